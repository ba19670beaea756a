"""Every configuration that a document shows is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from doc_pages import Block, blocks_of, document_paths, name_of
from prefixbench.config.load import parse_config
from prefixbench.config.story import parse_story

#: What a block may leave out when it shows a part of a configuration.
REST = {"request_count": 8, "input_length": 8192, "target": {"hit_ratio": 0.5}}


def _yaml_blocks() -> list[tuple[Path, Block]]:
    return [
        (document, block)
        for document in document_paths()
        for block in blocks_of(document)
        if block.language == "yaml"
    ]


@pytest.mark.parametrize(
    ("document", "block"),
    _yaml_blocks(),
    ids=[f"{name_of(document)}:{block.start}" for document, block in _yaml_blocks()],
)
def test_a_configuration_loads(document: Path, block: Block) -> None:
    shown: dict[str, Any] = yaml.safe_load(block.text)
    assert shown
    if "requests" in shown:
        parse_story(shown)
        return
    complete = shown if block.file_name else REST | shown
    parse_config(complete, dataset_id_default=document.stem)


def test_there_are_configurations_to_load() -> None:
    assert len(_yaml_blocks()) > 20
