"""The requests of a data set as they are sent: each row with what the plan says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage
from prefixbench.dataset.reader import DatasetReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One line of data.jsonl and its line of request_metadata.jsonl."""

    row: dict[str, Any]
    metadata: dict[str, Any]

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


def planned_requests(dataset: DatasetReader) -> Iterator[PlannedRequest]:
    """The requests in sending order, one in memory at a time."""
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
        yield PlannedRequest(row=row, metadata=metadata)
