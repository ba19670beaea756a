"""Conversations: requests that begin with the whole request before them (RFC 3.4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field

from prefixbench.config.base import Count, Section
from prefixbench.config.lengths import EmpiricalLength, LengthField
from prefixbench.core.errors import ConfigProblem


class Answers(StrEnum):
    """Which answers stand in the history of a later turn.

    `planned`: texts of the data set, which the server has not generated, so that only the prompts
    before them are found again; `served`: what the server answered, found up to its last token,
    which no engine stores.
    """

    PLANNED = "planned"
    SERVED = "served"


class SessionsConfig(Section):
    """Multi-turn sessions: each turn is the one before it, its answer, and new text."""

    turns: Count = Field(description="Turns of a session; request_count counts turns.")
    new_tokens: LengthField = Field(
        description="Tokens that each later turn adds behind the answer: a number, or a"
        " distribution. `input_length` is the length of the first turn."
    )
    answers: Answers = Field(
        default=Answers.PLANNED, description="Which answers stand in the history."
    )

    def disagreements(self) -> Iterator[ConfigProblem]:
        if isinstance(self.new_tokens, EmpiricalLength) and self.new_tokens.path is not None:
            yield ConfigProblem(
                path="new_tokens.path",
                message="cannot be read here",
                allowed="values: the samples themselves",
            )
