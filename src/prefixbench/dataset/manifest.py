"""The manifest: what a data set is, without a single prompt in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefixbench.core.errors import DatasetChangedError, ErrorContext, InputPathError, Stage
from prefixbench.core.shapes import TEXT, Needed, Shape, misfit
from prefixbench.core.version import FORMAT_VERSION
from prefixbench.dataset.file_shapes import MANIFEST as MANIFEST_SHAPE
from prefixbench.dataset.json_files import json_object
from prefixbench.dataset.layout import MANIFEST, canonical_sha256

#: What every manifest holds, be the data set complete or not.
_ANY: Mapping[str, Shape] = {"dataset_id": Needed(TEXT), "status": Needed(TEXT)}


@dataclass(frozen=True, slots=True)
class DatasetManifest:
    """A manifest as read from disk; `data` holds every key, the properties the common ones."""

    data: Mapping[str, Any]
    sha256: str

    @classmethod
    def load(cls, path: str | Path = ".") -> DatasetManifest:
        """Read a manifest, given its file or the folder of its data set."""
        file = Path(path)
        if file.is_dir():
            file = file / MANIFEST
        raw = _read(file)
        manifest = cls(_parse(raw, file.name), hashlib.sha256(raw).hexdigest())
        _check_format(manifest)
        return manifest

    @property
    def dataset_id(self) -> str:
        return str(self.data["dataset_id"])

    @property
    def status(self) -> str:
        return str(self.data["status"])

    @property
    def misfit(self) -> str | None:
        """What a complete manifest must hold and this one does not, or holds as another kind."""
        wrong = misfit(self.data, MANIFEST_SHAPE)
        if wrong is None and canonical_sha256(self.config) != self.data["config_sha256"]:
            return "config is not what config_sha256 says"
        return wrong

    @property
    def failure(self) -> Mapping[str, Any]:
        """The error that ended a partial data set; empty where none was caught."""
        return _mapping(self.data.get("error"))

    @property
    def seed(self) -> int:
        return int(self.data["seed"])

    @property
    def request_count(self) -> int:
        return int(self.data["request_count"])

    @property
    def block_size(self) -> int:
        return int(self.data["block_size"])

    @property
    def hit_granularity(self) -> int:
        return int(self.data["hit_granularity"])

    @property
    def head_len(self) -> int:
        return int(self.data["head_len"])

    @property
    def tail_len(self) -> int:
        return int(self.data["tail_len"])

    @property
    def execution_mode(self) -> str:
        return str(self.data["execution_mode"])

    @property
    def config(self) -> Mapping[str, Any]:
        return _mapping(self.data["config"])

    @property
    def tokenizer(self) -> Mapping[str, Any]:
        return _mapping(self.data["tokenizer"])

    @property
    def files(self) -> Mapping[str, Any]:
        return _mapping(self.data.get("files", {}))

    def hash_of(self, name: str) -> str | None:
        """SHA-256 that one of the data set's files must have; None where none is stated."""
        stated = _mapping(self.files.get(name)).get("sha256")
        return None if stated is None else str(stated)

    @property
    def groups(self) -> list[Mapping[str, Any]]:
        return list(self.data["groups"])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputPathError(
            f"no data set here: {file.name} cannot be read ({error.strerror})",
            context=ErrorContext(stage=Stage.CONTENT, field="dataset"),
            hint="name the folder that `prefixbench generate --output` wrote",
        ) from error


def _parse(raw: bytes, name: str) -> Mapping[str, Any]:
    return json_object(raw, name, lambda why: _broken(name, why), _ANY)


def _broken(name: str, why: str) -> DatasetChangedError:
    return DatasetChangedError(
        why,
        context=ErrorContext(stage=Stage.CONTENT, field=name),
        hint="generate the data set again, or restore the file",
    )


def _check_format(manifest: DatasetManifest) -> None:
    version = manifest.data.get("format_version")
    if version != FORMAT_VERSION:
        raise DatasetChangedError(
            f"the data set has format {version}, this version reads format {FORMAT_VERSION}",
            context=ErrorContext(
                stage=Stage.CONTENT, dataset_id=manifest.dataset_id, field="format_version"
            ),
            hint="generate it again with this version",
        )
