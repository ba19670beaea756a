"""The built-in corpus: seeded word problems with the row schema of GSM8K.

A row is `{question, answer}`; an answer holds one calculation a line, `<<12*4=48>>` beside its
result, and ends with `#### result` (the format of the data set of Cobbe et al. 2021). The rows
depend on the seed alone: integer draws, no library, no locale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from prefixbench.content.story_words import (
    ASIDES,
    DAYS,
    ITEMS,
    NAMES,
    PLACES,
    PROBLEMS,
    SCENES,
    Problem,
    Step,
)
from prefixbench.core.seeds import below, stream

#: Rows of the built-in corpus.
ROW_COUNT = 2_000


class _Draws:
    """The draws of one row, taken one after the other."""

    def __init__(self, seed: int, row: int) -> None:
        self._key = stream("word_problem", seed=seed, row=row)
        self._count = 0

    def below(self, bound: int) -> int:
        self._count += 1
        return below(bound, self._key, self._count)

    def choice(self, words: tuple[str, ...]) -> str:
        return words[self.below(len(words))]


def generate_word_problems(seed: int, count: int = ROW_COUNT) -> Iterator[dict[str, str]]:
    """Rows `{question, answer}`; a longer list starts with the shorter one."""
    return (_row(_Draws(seed, row)) for row in range(count))


def _row(draws: _Draws) -> dict[str, str]:
    problem = PROBLEMS[draws.below(len(PROBLEMS))]
    names = _names(draws) | {
        "item": draws.choice(ITEMS),
        "place": draws.choice(PLACES),
        "day": draws.choice(DAYS),
        "x": str(2 + draws.below(97)),
    }
    numbers = {
        letter: low + draws.below(high - low + 1) for letter, (low, high) in problem.numbers.items()
    }
    question = [draws.choice(SCENES)]
    if draws.below(2):
        question.append(draws.choice(ASIDES))
    question.append(problem.question)
    return {
        "question": " ".join(question).format(**names, **numbers),
        "answer": _answer(problem, names, numbers),
    }


def _names(draws: _Draws) -> dict[str, str]:
    first = draws.below(len(NAMES))
    other = (first + 1 + draws.below(len(NAMES) - 1)) % len(NAMES)
    return {"name": NAMES[first], "friend": NAMES[other]}


def _answer(problem: Problem, names: dict[str, str], numbers: dict[str, int]) -> str:
    known = dict(numbers)
    lines = []
    for place, step in enumerate(problem.steps, start=1):
        value = _value(step, known)
        known[f"r{place}"] = value
        formula = f"{known[step.left]}{step.operator}{known[step.right]}"
        lines.append(step.sentence.format(sum=f"{formula} = <<{formula}={value}>>{value}", **names))
    return "\n".join([*lines, f"#### {value}"])


def _value(step: Step, known: dict[str, int]) -> int:
    left, right = known[step.left], known[step.right]
    match step.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case _:
            return left * right


@cache
def problem_words() -> tuple[str, ...]:
    """Every word that the built-in corpus can hold, in order of first appearance."""
    sentences = [*SCENES, *ASIDES, *DAYS, *PLACES, *ITEMS, *NAMES]
    for problem in PROBLEMS:
        sentences += [problem.question, *(step.sentence for step in problem.steps)]
    words = re.findall(r"[A-Za-z]+", re.sub(r"\{\w+\}", " ", " ".join(sentences)))
    return tuple(dict.fromkeys(words))
