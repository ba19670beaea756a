"""A few requests written by hand, to look at an engine's cache block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from prefixbench.config.base import Count, Flag, Name, NonNegative, Section, Text, Whole, duplicates
from prefixbench.config.keys import take_unknown_keys, without_empty
from prefixbench.config.load import text_of
from prefixbench.config.problems import config_error, problems_of, shown
from prefixbench.config.yaml_text import parse_yaml
from prefixbench.core.errors import ConfigProblem

#: A token that stands for a part of an image.
IMAGE_MARK = "#"


class StoryRequest(Section):
    """One request; each character of a text that is no space is a token."""

    id: Name = Field(description="its name on the page")
    prompt: Text = Field(description="what is asked")
    answer: Text | None = Field(None, description="the tokens it generates")
    output_length: Count = Field(1, description="or how many tokens of its own it generates")
    arrive_step: NonNegative | None = Field(
        None, description="the step it arrives before; by default all earlier ones end first"
    )
    lora: Name | None = Field(None, description="name of an adapter")
    cache_salt: Name | None = Field(None, description="shared with requests of the same salt alone")
    images: tuple[Name, ...] = Field((), description="what the runs of # in the prompt show")
    priority: Whole = Field(0, description="with `policy: priority`; the smaller the sooner")

    def disagreements(self) -> Iterator[ConfigProblem]:
        for name in ("prompt", "answer"):
            text = getattr(self, name)
            if text is not None and not text.split():
                yield ConfigProblem(path=name, message="holds no token", given=shown(text))
        if self.answer is not None and "output_length" in self.model_fields_set:
            yield ConfigProblem(path="output_length", message="is told by answer already")
        marks = sum(token == IMAGE_MARK for token, _run in groupby(self.prompt_tokens))
        if marks != len(self.images):
            yield ConfigProblem(
                path="images",
                message=f"has {len(self.images)} names, the prompt {marks} runs of {IMAGE_MARK}",
                allowed="one name for each run",
            )

    @property
    def prompt_tokens(self) -> str:
        """The prompt, one character a token."""
        return "".join(self.prompt.split())


class Story(Section):
    """An engine and what it is asked, in the order of arrival."""

    profile: Name = Field("vllm-0.33", description="engine whose rules hold")
    block_size: Count | None = Field(None, description="tokens in a block")
    capacity_blocks: Count | None = Field(None, description="usable blocks")
    host_blocks: Count | None = Field(None, description="blocks of a tier in the host's memory")
    max_num_batched_tokens: Count | None = Field(None, description="token budget of a step")
    max_num_seqs: Count | None = Field(None, description="requests that run at once")
    long_prefill_token_threshold: NonNegative = Field(0, description="longest chunk; 0: no limit")
    chunked_prefill: Flag = Field(True, description="whether a prompt may be cut into steps")
    prefix_caching: Flag = Field(True, description="whether anything is ever found")
    policy: Literal["fcfs", "priority", "lpm", "dfs-weight"] = Field(
        "fcfs", description="order of admission"
    )
    requests: tuple[StoryRequest, ...] = Field(description="in the order of their arrival")

    def disagreements(self) -> Iterator[ConfigProblem]:
        if not self.requests:
            yield ConfigProblem(path="requests", message="is empty", allowed="at least one")
        for name in duplicates(request.id for request in self.requests):
            yield ConfigProblem(path="requests", message=f"name {name} twice")


def load_story(path: Path) -> Story:
    """Read a file; raises ConfigError with every problem found."""
    problems: list[ConfigProblem] = []
    given = parse_yaml(text_of(path), problems)
    if not isinstance(given, Mapping):
        problems.append(ConfigProblem(path=path.name, message="is no mapping of keys and values"))
        raise config_error(problems)
    return parse_story(given, problems)


def parse_story(given: Mapping[str, object], problems: list[ConfigProblem] | None = None) -> Story:
    """A story out of a mapping; raises ConfigError with every problem, those given included."""
    problems = problems or []
    known = without_empty(given)
    problems += take_unknown_keys(known, Story)
    try:
        story = Story.model_validate(known)
    except ValidationError as error:
        raise config_error([*problems, *problems_of(error)]) from error
    if problems:
        raise config_error(problems)
    return story
