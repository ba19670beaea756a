"""The manifest: what a data set is, without a single prompt in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage, StorageError
from prefixbench.core.version import FORMAT_VERSION
from prefixbench.dataset.layout import MANIFEST

#: What every complete manifest holds, and of which kind.
_ALWAYS: Mapping[str, type] = {
    "seed": int,
    "request_count": int,
    "block_size": int,
    "hit_granularity": int,
    "head_len": int,
    "tail_len": int,
    "warmed": bool,
    "execution_mode": str,
    "config": dict,
    "tokenizer": dict,
    "suffix": dict,
    "routing": dict,
    "theoretical_result": dict,
    "groups": list,
}


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
    def broken_keys(self) -> list[str]:
        """What a complete manifest must hold and this one does not, or holds as another kind."""
        return [key for key, kind in _ALWAYS.items() if type(self.data.get(key)) is not kind]

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
        raise StorageError(
            f"no data set here: {file.name} cannot be read ({error.strerror})",
            context=ErrorContext(stage=Stage.CONTENT, field="dataset"),
            hint="name the folder that `prefixbench generate --output` wrote",
        ) from error


def _parse(raw: bytes, name: str) -> Mapping[str, Any]:
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _broken(name, "is not JSON") from error
    if not isinstance(data, dict) or "dataset_id" not in data or "status" not in data:
        raise _broken(name, "has no dataset_id and status")
    return data


def _broken(name: str, why: str) -> DatasetChangedError:
    return DatasetChangedError(
        f"{name} {why}",
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
