"""Data sets that hold recipes instead of prompts: the prompts are composed again while reading.

A recipe names a request and how often it was drawn; with the manifest's configuration, the row's
metadata, the tokenizer and the corpus that is all a prompt depends on. Each prompt is compared with
its hash before it is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.load import parse_config
from prefixbench.content.compose import Composer, ContentColumns
from prefixbench.content.corpus import BUILTIN
from prefixbench.content.tape import Positions
from prefixbench.core.errors import (
    CorpusError,
    DatasetChangedError,
    ErrorContext,
    Stage,
    TokenizerError,
)
from prefixbench.dataset.content_plan import PlannedRows, content_columns
from prefixbench.dataset.file_shapes import RECIPE_ROW
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.materials import Materials, load_materials
from prefixbench.dataset.members import prompt_sha256, stored_rows
from prefixbench.dataset.reader import DatasetReader

#: Prompts composed at a time: few, so that a run that sends meanwhile is not held up.
_BATCH = 32

#: Settings that content depends on; of the others the rows hold the result.
_CONTENT_SETTINGS = (
    "dataset_id",
    "seed",
    "request_count",
    "block_size",
    "target",
    "prefix",
    "sessions",
    "suffix",
    "execution",
    "tokenizer",
    "prompt_format",
)


def open_dataset(
    folder: str | Path, *, tokenizer: str | None = None, corpus: str | None = None
) -> DatasetReader:
    """A data set whose rows hold prompts, whether they are on disk or composed from recipes.

    `tokenizer` and `corpus` are those it was made with, where its manifest's words do not suffice
    (it names files without their folders). TokenizerError or CorpusError if they are others.
    """
    reader = DatasetReader(folder)
    reader.check_manifest()
    if reader.manifest.config["save_prompts"]:
        return reader
    return RecipeReader(reader, tokenizer, corpus)


class RecipeReader(DatasetReader):
    """Reads recipes and hands out the rows that they stand for."""

    _data_row = RECIPE_ROW

    def __init__(self, stored: DatasetReader, tokenizer: str | None, corpus: str | None) -> None:
        super().__init__(stored.folder)
        config = _content_config(self.manifest, tokenizer)
        materials = _materials_of(self.manifest, config, corpus)
        self._prompt_format = config.prompt_format
        self._composer = self._checked_composer(config, materials)

    def requests(self) -> Iterator[dict[str, Any]]:
        """Rows with their prompts, in sending order; DatasetChangedError for a wrong hash."""
        rows = super().requests()
        while chunk := list(islice(rows, _BATCH)):
            requests = np.array([row["recipe"]["request"] for row in chunk], dtype=np.int64)
            members = stored_rows(self._composer.batch(requests), self._prompt_format)
            for row, member in zip(chunk, members, strict=True):
                yield self._filled(row, member)

    def _filled(self, row: dict[str, Any], member: dict[str, Any]) -> dict[str, Any]:
        if prompt_sha256(member) != row["prompt_sha256"]:
            raise DatasetChangedError(
                "a recipe gives another prompt than the one that was planned",
                context=ErrorContext(
                    stage=Stage.CONTENT,
                    dataset_id=self.manifest.dataset_id,
                    request_id=row["request_id"],
                    field="prompt_sha256",
                ),
                hint="generate the data set again with this version",
            )
        options = {
            key: value for key, value in row.items() if key not in ("recipe", "prompt_sha256")
        }
        return options | member

    def _checked_composer(self, config: PrefixCacheDatasetConfig, materials: Materials) -> Composer:
        try:
            columns, retries = self._read_plan(config)
            return materials.composer(columns, retries)
        except (KeyError, IndexError, ValueError, OverflowError) as error:
            raise self._changed(
                "data.jsonl, request_metadata.jsonl and manifest.json do not belong together",
                field="recipe",
                hint="generate the data set again, or restore the files",
            ) from error

    def _read_plan(self, config: PrefixCacheDatasetConfig) -> tuple[ContentColumns, Positions]:
        """The plan as the composer takes it, and the retries; in the order of generation."""
        names = [group["id"] for group in self.manifest.data["groups"]]
        number_of = {name: number for number, name in enumerate(names)}
        columns = np.zeros((6, self.manifest.request_count), dtype=np.int64)
        missing = set(range(self.manifest.request_count))
        for data, row in zip(super().requests(), self.metadata(), strict=True):
            missing.remove(data["recipe"]["request"])
            columns[:, data["recipe"]["request"]] = (
                number_of[row["prefix_group_id"]],
                row["input_len"],
                row["output_len"],
                row["planned_prefix_len"],
                row["divergence_len"],
                data["recipe"]["retry"],
            )
        if missing:
            raise ValueError(f"{len(missing)} requests have no recipe")
        planned = PlannedRows(
            group=columns[0],
            input_len=columns[1],
            output_len=columns[2],
            planned_prefix_len=columns[3],
            divergence_len=columns[4],
            group_ids=names,
        )
        return content_columns(planned, config), columns[5]


def _content_config(manifest: DatasetManifest, tokenizer: str | None) -> PrefixCacheDatasetConfig:
    """The configuration as far as content depends on it; lengths stand in the rows."""
    settings: dict[str, Any] = {key: manifest.config[key] for key in _CONTENT_SETTINGS}
    settings["input_length"] = manifest.data["input_length_statistics"]["max"]
    if tokenizer is not None:
        settings["tokenizer"] = tokenizer
    return parse_config(settings)


def _materials_of(
    manifest: DatasetManifest, config: PrefixCacheDatasetConfig, corpus: str | None
) -> Materials:
    """Tokenizer and corpus as they were when the data set was made, or an error that says which."""
    recorded = _recorded_corpora(manifest)
    is_only = len(recorded) == 1
    given = [_text_called(made_of["name"], corpus, is_only=is_only) for made_of in recorded]
    try:
        materials = load_materials(config, corpus=given[0], prefix_corpus=given[-1])
    except TokenizerError as error:
        raise _other_tokenizer(manifest, error.message) from error
    except CorpusError as error:
        raise _other_corpus(manifest, error.message) from error
    if materials.tokenizer.fingerprint != manifest.tokenizer["fingerprint"]:
        raise _other_tokenizer(manifest, "the tokenizer is not the one of the data set")
    found = [made_of.sha256 for made_of in materials.corpora]
    if found != [made_of["sha256"] for made_of in recorded]:
        raise _other_corpus(manifest, "the corpus is not the one of the data set")
    return materials


def _recorded_corpora(manifest: DatasetManifest) -> list[Mapping[str, Any]]:
    """The corpus of the suffixes, and that of the prefixes where it is another one."""
    both = manifest.data["corpus"], manifest.data.get("prefix_corpus")
    return [made_of for made_of in both if made_of is not None]


def _text_called(name: str, given: str | None, *, is_only: bool) -> str | None:
    """Where to find a corpus that a manifest names; `given` may be a folder with several.

    The built-in one is not given, unless somebody gives another in its place.
    """
    if name == BUILTIN and not (is_only and given):
        return BUILTIN
    inside = Path(given or "", name)
    return str(inside) if given is not None and inside.is_file() else given


def _other_tokenizer(manifest: DatasetManifest, message: str) -> TokenizerError:
    name = manifest.tokenizer["name"]
    return TokenizerError(
        f"the prompts cannot be composed: {message}",
        context=_context(manifest, "tokenizer"),
        hint=f"give the tokenizer that it was made with, {name!r}: --tokenizer PATH",
    )


def _other_corpus(manifest: DatasetManifest, message: str) -> CorpusError:
    recorded = _recorded_corpora(manifest)
    names = " and ".join(f"{one['name']!r} with {one['rows']} rows" for one in recorded)
    where = "PATH" if len(recorded) == 1 else "FOLDER with the files"
    return CorpusError(
        f"the prompts cannot be composed: {message}",
        context=_context(manifest, "corpus"),
        hint=f"give the corpus that it was made with, {names}: --corpus {where}",
    )


def _context(manifest: DatasetManifest, field: str) -> ErrorContext:
    return ErrorContext(stage=Stage.CONTENT, dataset_id=manifest.dataset_id, field=field)
