"""Reads a data set from disk, one request in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixbench.config.prefix import PrefixGroupConfig
from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage
from prefixbench.core.records import RequestPlan
from prefixbench.core.shapes import Shape
from prefixbench.dataset.file_shapes import DATA_ROW, METADATA_ROW, VALIDATION_REPORT
from prefixbench.dataset.json_files import Refuse, read_document, read_rows
from prefixbench.dataset.layout import DATA, FILES, ID_FILES, IDS, METADATA, REPORT, file_sha256
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.workload.node_paths import NodePath, nodes_above

if TYPE_CHECKING:  # arrays, which few readers ask for
    from prefixbench.content.tape import Ids


class DatasetReader:
    """A data set folder: its manifest, its validation report, and its rows in sending order."""

    _data_row: Mapping[str, Shape] = DATA_ROW

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = DatasetManifest.load(self.folder)

    @property
    def manifest_sha256(self) -> str:
        return self.manifest.sha256

    @property
    def validation(self) -> Mapping[str, Any]:
        """The validation report as written."""
        return read_document(self._existing(REPORT), self._refusing(REPORT), VALIDATION_REPORT)

    def requests(self) -> Iterator[dict[str, Any]]:
        """Rows of data.jsonl, in sending order."""
        return self._rows(DATA, self._data_row)

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Rows of request_metadata.jsonl, in sending order."""
        return self._rows(METADATA, METADATA_ROW)

    def plans(self) -> Iterator[RequestPlan]:
        """The rows of `metadata` as the planner's records."""
        return map(self.plan_of, self.metadata())

    def plan_of(self, metadata: Mapping[str, Any]) -> RequestPlan:
        """One row of `metadata` as the planner's record."""
        group = metadata["prefix_group_id"]
        return RequestPlan(
            request_id=metadata["request_id"],
            prefix_group_id=group,
            input_len=metadata["input_len"],
            output_len=metadata["output_len"],
            planned_prefix_len=metadata["planned_prefix_len"],
            divergence_len=metadata["divergence_len"],
            suffix_len=metadata["suffix_len"],
            order_index=metadata["order_index"],
            planned_dp_id=metadata["planned_dp_id"],
            planned_instance_id=metadata["planned_instance_id"],
            nodes_above=self._nodes_above.get(group, ()),
            history_request_id=metadata.get("history_request_id"),
            namespace=self._namespaces.get(group, 0),
        )

    @cached_property
    def _nodes_above(self) -> Mapping[str, NodePath]:
        manifest = self.manifest
        levels = manifest.config.get("prefix", {}).get("tree", ())
        return nodes_above(PrefixGroupConfig(tree=levels), manifest.head_len)

    @cached_property
    def _namespaces(self) -> Mapping[str, int]:
        prefix = PrefixGroupConfig(groups=self.manifest.config.get("prefix", {}).get("groups", ()))
        names = [group.id for group in prefix.groups]
        return dict(zip(names, prefix.namespaces(names), strict=True))

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files beside the manifest: three, and those of the ids where they were asked for."""
        return FILES + (ID_FILES if IDS in self.manifest.files else ())

    def prompt_ids(self) -> Iterator[Ids]:
        """The ids of each whole sequence that the server sees, in sending order.

        Only a data set that was generated with ids has them (`file_names`).
        """
        from prefixbench.dataset.row_files import read_ids

        for name in ID_FILES:
            self._existing(name)
        try:
            yield from read_ids(self.folder)
        except ValueError as error:
            raise self._changed(
                "the ids and their offsets do not fit together",
                field=IDS,
                hint="generate the data set again, or restore both files",
            ) from error

    def check_complete(self) -> None:
        """Raise unless generation came to its end."""
        if self.manifest.status == "complete":
            return
        failure = self.manifest.failure
        code = f" ({failure['code']})" if "code" in failure else ""
        why = failure.get("message", "its generation did not finish")
        raise self._changed(
            f"the data set is partial{code}: {why}",
            field="status",
            hint=failure.get("hint", "finish it with `prefixbench generate --resume`"),
        )

    def check_manifest(self) -> None:
        """Raise unless the data set is complete and its manifest holds what always stands there."""
        self.check_complete()
        misfit = self.manifest.misfit
        if misfit is not None:
            raise self._changed(
                f"manifest.json is broken: {misfit}",
                field=misfit.split()[0],
                hint="generate the data set again, or restore the file",
            )

    def check_hashes(self) -> None:
        """Raise unless the data set is complete and every file has the manifest's hash.

        A line that was moved changes the hash too: the order of sending is part of the proof
        (RFC 3.3.9).
        """
        self.check_manifest()
        for name in self.file_names:
            if file_sha256(self._existing(name)) != self.manifest.hash_of(name):
                raise self._changed(
                    f"{name} is not what the manifest describes: edited or reordered",
                    field=name,
                    hint="generate the data set again; after a new order its proof is void",
                )

    def _rows(self, name: str, shape: Shape) -> Iterator[dict[str, Any]]:
        return read_rows(self._existing(name), self._refusing(name), shape)

    def _refusing(self, name: str) -> Refuse:
        return lambda why: self._changed(
            why, field=name, hint="generate the data set again, or restore the file"
        )

    def _existing(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise self._changed(
                f"{name} is missing",
                field=name,
                hint="generate the data set again, or restore the file",
            )
        return path

    def _changed(self, message: str, *, field: str, hint: str) -> DatasetChangedError:
        return DatasetChangedError(
            message,
            context=ErrorContext(
                stage=Stage.CONTENT, dataset_id=self.manifest.dataset_id, field=field
            ),
            hint=hint,
        )
