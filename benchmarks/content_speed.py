"""CPU seconds of making prompts: pool, recipes, text to disk, ids, and a re-encoded sample.

    python benchmarks/content_speed.py --tokenizer DIR --corpus train.jsonl

All figures are CPU seconds of this process (user and system), the machine's other work left out.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from prefixbench.config.suffix import CollisionDetectionConfig
from prefixbench.content.accidents import Sending
from prefixbench.content.compose import Composer
from prefixbench.content.corpus import load_corpus
from prefixbench.content.draws import ContentLabels
from prefixbench.content.pool import TextSource, build_pool
from prefixbench.content.recipes import ContentColumns
from prefixbench.content.repair import resolve_collisions
from prefixbench.content.tape import unescape
from prefixbench.content.template import Frame, make_frame
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer

T = TypeVar("T")

BLOCK = 16
GROUPS = 10
LINES_A_WRITE = 256


def timed(name: str, work: Callable[[], T]) -> T:
    """Do the work and print what it cost."""
    start = time.process_time()
    result = work()
    print(f"{name:<40}{time.process_time() - start:>9.3f} s")
    return result


def random_columns(count: int, length: int, frame: Frame) -> ContentColumns:
    """Groups and whole-block prefixes drawn evenly, from none to all but one block."""
    draws = np.random.default_rng(0)
    blocks = draws.integers(0, length // BLOCK - 1, count)
    prefix = np.maximum(blocks * BLOCK, frame.head_len)
    return ContentColumns(
        group=draws.integers(0, GROUPS, count),
        input_len=np.full(count, length),
        planned_prefix_len=prefix,
        divergence_len=np.minimum(BLOCK, length - frame.tail_len - prefix),
        group_ids=[f"group_{number}" for number in range(GROUPS)],
    )


def lines(composer: Composer) -> Iterator[bytes]:
    for request in range(len(composer)):
        yield b'{"prompt":"' + composer.prompt_json(request) + b'"}\n'


def write_text(composer: Composer, path: Path) -> int:
    """Bytes written, in chunks and synced to the disk."""
    written = 0
    with path.open("wb") as file:
        chunk: list[bytes] = []
        for line in lines(composer):
            chunk.append(line)
            if len(chunk) == LINES_A_WRITE:
                written += file.write(b"".join(chunk))
                chunk.clear()
        written += file.write(b"".join(chunk))
    return written


def mismatches(composer: Composer, tokenizer: Tokenizer, count: int) -> int:
    """Of `count` prompts spread over the data set, those that encode to other ids."""
    requests = range(0, len(composer), max(len(composer) // count, 1))
    wrong = 0
    for request in requests:
        encoded = tokenizer.encode(unescape(composer.prompt_json(request)), True)
        wrong += encoded != composer.prompt_ids(request).tolist()
    return wrong


def naive_seconds(tokenizer: Tokenizer, texts: Sequence[str], length: int, count: int) -> float:
    """CPU seconds a prompt of the usual way: join texts, encode, cut, decode, encode again.

    Lengths that drift are repaired by cutting or by further text, at most ten times.
    """
    start = time.process_time()
    for number in range(count):
        text = " ".join(texts[(number * 97 + place) % len(texts)] for place in range(length // 60))
        ids = tokenizer.encode(text)[:length]
        for _ in range(10):
            ids = tokenizer.encode(tokenizer.decode(ids))
            if len(ids) == length:
                break
            ids = (ids + ids)[:length]
    return (time.process_time() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="builtin")
    parser.add_argument("--corpus", default="builtin")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=4_096)
    parser.add_argument("--verify", type=int, default=200)
    parser.add_argument("--naive", type=int, default=30)
    parser.add_argument("--separator", default="\n\n")
    options = parser.parse_args()

    tokenizer = timed("load tokenizer", lambda: load_tokenizer(options.tokenizer))
    corpus = load_corpus(options.corpus, seed=0)
    source = TextSource(corpus, options.separator)
    pool = timed("build pool", lambda: build_pool(tokenizer, source))
    frame = make_frame(tokenizer)
    columns = random_columns(options.requests, options.length, frame)
    labels = ContentLabels(seed=0, dataset_id="speed", plan="0.5")
    composer = timed("recipes", lambda: Composer(pool, frame, columns, labels))
    none = np.zeros(len(composer), dtype=np.int64)
    sending = Sending(place=columns.requests, cache=none, planned_hits=none, warmed=False)
    detection = CollisionDetectionConfig()
    timed("collisions", lambda: resolve_collisions(composer, BLOCK, detection, sending))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        written = timed("text to disk", lambda: write_text(composer, path))
    timed("ids", lambda: sum(len(composer.prompt_ids(n)) for n in range(len(composer))))
    wrong = timed(
        f"encode {options.verify} again", lambda: mismatches(composer, tokenizer, options.verify)
    )
    start = time.process_time()
    for request in range(min(len(composer), 20_000)):
        composer.prompt_json(request)
    ours = (time.process_time() - start) / min(len(composer), 20_000)
    naive = naive_seconds(tokenizer, corpus.texts, options.length, options.naive)
    print(f"one prompt: {ours * 1e6:.1f} us here, {naive * 1e6:.0f} us the usual way,")
    print(f"{naive / ours:.0f} times as much")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(composer)} prompts, {written / 1e6:.0f} MB, {wrong} mismatches, {memory:.0f} MB")


if __name__ == "__main__":
    main()
