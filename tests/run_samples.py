"""Small data sets and runs of them, for tests of `run` against the embedded server."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from prefixbench.config.load import parse_config
from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.dataset.reader import DatasetReader
from prefixbench.pipeline import generate_prefix_cache_dataset
from prefixbench.run.options import RunOptions

COLD: dict[str, Any] = {
    "seed": 3,
    "request_count": 24,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 60, "max": 200, "mean": 120, "std": 40},
    "output_length": 3,
    "target": {"hit_ratio": 0.5, "semantics": "order_aware_global"},
    "prefix": {"mode": "multi_prefix", "group_count": 3},
    "suffix": {"source": "builtin"},
}
STATIC: dict[str, Any] = COLD | {
    "target": {"hit_ratio": 0.5, "semantics": "static_prefix_ratio"},
    "input_length": 150,
}


def sample(base: Mapping[str, Any] = COLD, **changes: Any) -> Path:
    """A data set of the built-in parts; the same settings give the same folder, made once."""
    return _generated(orjson.dumps({**base, **changes}, option=orjson.OPT_SORT_KEYS))


@cache
def _generated(settings: bytes) -> Path:
    folder = _samples_folder() / hashlib.sha256(settings).hexdigest()[:12]
    config = parse_config(orjson.loads(settings), dataset_id_default=folder.name)
    generate_prefix_cache_dataset(config, output_dir=folder)
    return folder


@cache
def _samples_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="prefixbench-samples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_tokenizer(folder: Path) -> Path:
    """The built-in tokenizer with a chat template, as a folder."""
    definition = orjson.loads(load_tokenizer("builtin").define())
    plain = definition["added_tokens"][0]
    for number, text in enumerate(("<|im_start|>", "<|im_end|>"), start=plain["id"] + 1):
        definition["added_tokens"].append(plain | {"id": number, "content": text})
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(orjson.dumps(definition))
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps({"chat_template": CHATML}))
    return folder


def options(dataset: Path, output: Path, *urls: str, **more: Any) -> RunOptions:
    return RunOptions(dataset=dataset, urls=urls, output=output, **more)


def expected_hits(dataset: Path) -> dict[str, int]:
    rows = DatasetReader(dataset).metadata()
    return {row["request_id"]: row["expected_hit_len"] for row in rows}


def document(run: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads((run / "runtime" / f"{name}.json").read_bytes())
    return content


def rows(run: Path, name: str = "request_results") -> list[dict[str, Any]]:
    lines = (run / "runtime" / f"{name}.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def phases(run: Path) -> list[dict[str, Any]]:
    """The rows of prefix_cache_metrics.json."""
    found: list[dict[str, Any]] = document(run, "prefix_cache_metrics")["phases"]
    return found


def checks(run: Path) -> dict[str, str]:
    """Worst status of each check over all phases."""
    ranks = ["skipped", "ok", "warn", "fail"]
    worst: dict[str, str] = {}
    for row in document(run, "prefix_cache_metrics")["checks"]:
        known = worst.get(row["name"], "skipped")
        worst[row["name"]] = max(known, row["status"], key=ranks.index)
    return worst
