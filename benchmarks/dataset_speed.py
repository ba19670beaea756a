"""CPU seconds and memory of writing a data set, next to the usual way of making prompts.

    python benchmarks/dataset_speed.py --tokenizer FILE --corpus train.jsonl --requests 100000

Each measurement runs in a process of its own: the first one builds and keeps the pool, the next
ones find it. Figures are CPU seconds (user and system) of that process and of what it started;
memory is its peak. The data set is removed at once. Then the command `generate` does the same, as
users run it: with modules that are compiled once, whatever PYTHONDONTWRITEBYTECODE says.
`--verify 10000` encodes so many prompts again with the fast engine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LENGTH = 4_096
BLOCK = 16
#: Runs of the whole command, of which the cheapest counts: others use the machine too.
GENERATIONS = 3
ON_DISK = "text, metadata and hashes to disk"


class Laps:
    """CPU seconds between marks, those of children included."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = cpu_seconds()

    def mark(self, name: str) -> None:
        now = cpu_seconds()
        self.seconds[name] = now - self._start
        self._start = now


def cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    source = {"source": "text", "path": options.corpus} if options.corpus else {}
    return {
        "dataset_id": "speed",
        "request_count": options.requests,
        "block_size": BLOCK,
        "input_length": LENGTH,
        "target": {"hit_ratio": 0.5},
        "prefix": {"mode": "multi_prefix", "group_count": 10},
        "suffix": source,
        "tokenizer": options.tokenizer,
        "prompt_format": options.format,
    }


def write(options: argparse.Namespace) -> dict[str, Any]:
    """One data set, stage by stage as the pipeline writes it."""
    laps = Laps()
    from prefixbench.config.load import parse_config
    from prefixbench.dataset.collisions import compose_without_collisions
    from prefixbench.dataset.compose import ChunkComposer, compose_chunks
    from prefixbench.dataset.materials import load_materials
    from prefixbench.dataset.writer import DatasetWriter
    from prefixbench.workload.planner import plan_workload

    config = parse_config(settings_of(options))
    laps.mark("imports")
    materials = load_materials(config)
    laps.mark("materials")
    plan = plan_workload(config, BLOCK, materials.planning_frame)
    laps.mark("plan")
    composed = compose_without_collisions(plan, materials)
    laps.mark("collisions")
    chunks = ChunkComposer(plan=plan, composed=composed)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        with DatasetWriter(Path(folder), dataset_id="speed", identity="speed") as writer:
            for chunk in compose_chunks(chunks, first=0, workers=1):
                writer.write(chunk)
            writer.finish({"dataset_id": "speed"}, {})
        laps.mark(ON_DISK)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"seconds": laps.seconds, "megabytes": size / 1e6, "rss_mb": rss}


def verify(options: argparse.Namespace) -> dict[str, Any]:
    """Encode all of a small data set again, the load and the first calls apart."""
    from prefixbench.config.load import parse_config
    from prefixbench.dataset.collisions import compose_without_collisions
    from prefixbench.dataset.materials import load_materials
    from prefixbench.dataset.proof import VerifyDepth
    from prefixbench.dataset.verification import verify_texts
    from prefixbench.workload.planner import plan_workload

    def whole(count: int) -> tuple[float, Any]:
        config = parse_config(settings_of(options) | {"request_count": count})
        plan = plan_workload(config, BLOCK, materials.planning_frame)
        composer = compose_without_collisions(plan, materials).composer
        start = time.process_time()
        result = verify_texts(plan, composer, materials, VerifyDepth.FULL)
        return time.process_time() - start, result

    materials = load_materials(parse_config(settings_of(options)))
    apart, _ = whole(200)
    seconds, result = whole(options.verify)
    return {"load_and_sample_s": apart, "full_s": seconds - apart, "result": result.to_json()}


def naive(options: argparse.Namespace) -> dict[str, Any]:
    """The usual way: join texts, encode, cut, decode, encode again until the length holds."""
    from prefixbench.content.corpus import load_corpus
    from prefixbench.content.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(options.tokenizer)
    texts = load_corpus(options.corpus or "builtin", seed=0).texts
    tokenizer.encode(texts[0])
    start = time.process_time()
    for number in range(options.naive):
        text = " ".join(texts[(number * 97 + place) % len(texts)] for place in range(LENGTH // 60))
        ids = tokenizer.encode(text)[:LENGTH]
        for _ in range(10):
            ids = tokenizer.encode(tokenizer.decode(ids))
            if len(ids) == LENGTH:
                break
            ids = (ids + ids)[:LENGTH]
    return {"seconds_a_prompt": (time.process_time() - start) / options.naive}


MEASUREMENTS = {"write": write, "verify": verify, "naive": naive}


def in_own_process(name: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def generate(options: argparse.Namespace, depth: str) -> None:
    """Run the command a few times, each in a process of its own; print the least cost."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        config = Path(folder) / "speed.json"
        config.write_text(json.dumps(settings_of(options)))
        command = [sys.executable, "-m", "prefixbench", "generate", "--quiet", "--verify", depth]
        paths = ["--config", str(config), "--output", str(Path(folder) / "set"), "--overwrite"]
        used = [usage_of([*command, *paths]) for _ in range(GENERATIONS)]
    usage = min(used, key=lambda one: one.ru_utime + one.ru_stime)
    seconds, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6
    print(f"generate --verify {depth}: {seconds:.2f} CPU s, {memory:.0f} MB at the peak")


def usage_of(command: list[str]) -> resource.struct_rusage:
    """What a command costs from start to end, as an installed package: with compiled modules."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage


def print_writing(title: str, measured: dict[str, Any], requests: int) -> None:
    print(f"{title}: {requests} requests, {measured['megabytes']:.0f} MB on disk")
    for name, seconds in measured["seconds"].items():
        print(f"  {name:<36}{seconds:>8.3f} s")
    print(f"  {'peak memory':<36}{measured['rss_mb']:>8.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="builtin")
    parser.add_argument("--corpus")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--format", default="text")
    parser.add_argument("--verify", type=int, default=0)
    parser.add_argument("--naive", type=int, default=30)
    parser.add_argument("--folder", help="where the data set is written and removed")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(MEASUREMENTS[options.measure](options)))
        return
    print_writing("with the pool built or found", in_own_process("write"), options.requests)
    warm = in_own_process("write")
    print_writing("with the pool found", warm, options.requests)
    for depth in ("certificate", "sample"):
        generate(options, depth)
    usual = in_own_process("naive")["seconds_a_prompt"]
    ours = warm["seconds"][ON_DISK] / options.requests
    print(f"a prompt on disk: {ours * 1e6:.1f} us here, {usual * 1e6:.0f} us only to make it the")
    print(f"usual way (encode, cut, decode, encode again): {usual / ours:.0f} times as much")
    if options.verify:
        again = in_own_process("verify")
        print(f"encoded again: {options.verify} prompts in {again['full_s']:.2f} s, engine and")
        print(f"sample apart in {again['load_and_sample_s']:.2f} s: {again['result']}")


if __name__ == "__main__":
    main()
