"""Turns whose history is known only once the server has answered, made whole.

A row that `continues` another one holds only what stands behind that one's answer:

    whole prompt = whole prompt of the turn before | its answer | what the row holds

Where no server is asked, the manifest's filler word stands for each token of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage
from prefixbench.dataset.reader import DatasetReader

#: The row that a row of data.jsonl continues.
CONTINUES = "continues"


def continued(
    before: Mapping[str, Any], answer: str | list[int], row: Mapping[str, Any]
) -> dict[str, Any]:
    """A row made whole, given the whole row of the turn before and what was answered there.

    The answer is a text, or ids where prompts are ids.
    """
    key = "prompt_token_ids" if "prompt_token_ids" in row else "prompt"
    return {name: value for name, value in row.items() if name != CONTINUES} | {
        key: before[key] + answer + row[key]
    }


def whole_requests(dataset: DatasetReader) -> Iterator[dict[str, Any]]:
    """Rows of a data set in sending order, every prompt whole.

    Holds one prompt for each session that is not at its end.
    """
    sessions = dataset.manifest.config.get("sessions")
    if sessions is None:
        yield from dataset.requests()
        return
    filler = dataset.manifest.data["warmup_filler"]
    open_turns: dict[str, tuple[int, dict[str, Any]]] = {}
    for row in dataset.requests():
        turn, whole = 0, row
        if CONTINUES in row:
            turn, before = _turn_before(dataset, open_turns, row)
            is_text = "prompt" in row
            unit = filler["text"] if is_text else [filler["id"]]
            whole = continued(before, unit * before["max_tokens"], row)
        if turn + 1 < sessions["turns"]:
            open_turns[row["request_id"]] = (turn, whole)
        yield whole


def _turn_before(
    dataset: DatasetReader,
    open_turns: dict[str, tuple[int, dict[str, Any]]],
    row: Mapping[str, Any],
) -> tuple[int, dict[str, Any]]:
    """The number of the row's turn, and the turn before it, which nobody else continues."""
    found = open_turns.pop(row[CONTINUES], None)
    if found is None:
        raise DatasetChangedError(
            "a turn does not come behind the one that it continues",
            context=ErrorContext(
                stage=Stage.CONTENT,
                dataset_id=dataset.manifest.dataset_id,
                request_id=row["request_id"],
                field=CONTINUES,
            ),
            hint="generate the data set again; turns keep their order",
        )
    turn, before = found
    return turn + 1, before
