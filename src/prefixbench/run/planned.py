"""The requests of a data set as they are sent: each row with what the plan says of it.

A data set of sessions has `session_id`, `turn` and `history_request_id` in each row of metadata.
Where the server's own answers stand in the histories, the row of a later turn says in `continues`
which request it goes on from, and holds the new text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage
from prefixbench.dataset.reader import DatasetReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One line of data.jsonl and its line of request_metadata.jsonl.

    `has_later_turn`: another request of the data set goes on from this one.
    """

    row: dict[str, Any]
    metadata: dict[str, Any]
    has_later_turn: bool = False

    @property
    def request_id(self) -> str:
        return str(self.row["request_id"])

    @property
    def group_id(self) -> str:
        return str(self.metadata["prefix_group_id"])

    @property
    def input_len(self) -> int:
        return int(self.metadata["input_len"])

    @property
    def dp_id(self) -> int:
        return int(self.metadata["planned_dp_id"])

    @property
    def instance_id(self) -> int:
        return int(self.metadata["planned_instance_id"])

    @property
    def planned_prefix_len(self) -> int:
        return int(self.metadata["planned_prefix_len"])

    @property
    def output_len(self) -> int:
        return int(self.row["max_tokens"])

    @property
    def session_id(self) -> str | None:
        return self.metadata.get("session_id")

    @property
    def history_id(self) -> str | None:
        """The request of the turn before; None for a first turn, and without sessions."""
        return self.metadata.get("history_request_id")

    @property
    def continues_answer(self) -> bool:
        """Whether the row holds only what comes behind the server's answer to the turn before."""
        return "continues" in self.row


def planned_requests(
    dataset: DatasetReader, last_turns: Mapping[str, int] | None = None
) -> Iterator[PlannedRequest]:
    """The requests in sending order, one in memory at a time; `last_turns` as told below."""
    last_turns = last_turns or {}
    for row, metadata in zip(dataset.requests(), dataset.metadata(), strict=True):
        if row["request_id"] != metadata["request_id"]:
            raise DatasetChangedError(
                "data.jsonl and request_metadata.jsonl are in different orders",
                context=ErrorContext(
                    stage=Stage.RUN,
                    dataset_id=dataset.manifest.dataset_id,
                    request_id=str(row["request_id"]),
                ),
                hint="generate the data set again",
            )
        last_turn = last_turns.get(metadata.get("session_id", ""), 0)
        yield PlannedRequest(
            row=row, metadata=metadata, has_later_turn=metadata.get("turn", 0) < last_turn
        )


def last_turns(dataset: DatasetReader) -> dict[str, int]:
    """The number of the last turn of each session; nothing without sessions.

    Raises DatasetChangedError where a turn does not follow the turn before it, which would have to
    wait for what is never sent.
    """
    latest: dict[str, tuple[int, str]] = {}
    for row in dataset.metadata() if dataset.manifest.config.get("sessions") else ():
        turn, before = latest.get(row["session_id"], (-1, None))
        if (row["turn"], row["history_request_id"]) != (turn + 1, before):
            raise DatasetChangedError(
                f"turn {row['turn']} of session {row['session_id']} does not follow the turn"
                " before it",
                context=ErrorContext(
                    stage=Stage.RUN,
                    dataset_id=dataset.manifest.dataset_id,
                    request_id=row["request_id"],
                    field="history_request_id",
                ),
                hint="generate the data set again",
            )
        latest[row["session_id"]] = (row["turn"], row["request_id"])
    return {session: turn for session, (turn, _) in latest.items()}
