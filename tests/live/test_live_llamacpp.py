"""A real llama.cpp server finds what the profile says, request by request, and counts it.

python live/check.py --llamacpp L
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from live_engines import SCRIPTS, free_port
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest

#: Names the Python of an environment with xllamacpp; a tiny model lies beside it.
VARIABLE = "PREFIXBENCH_LLAMACPP_PYTHON"
SLOTS, CONTEXT = 3, 6144

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python"),
    pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the shared folder with its scripts is absent"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    python = Path(os.environ[VARIABLE])
    model, port = python.parents[1] / "tiny.gguf", free_port()
    settings = [str(port), str(SLOTS), str(CONTEXT), "0"]
    with subprocess.Popen([python, SCRIPTS / "run_llama.py", model, *settings]) as server:
        base = f"http://127.0.0.1:{port}"
        try:
            wait_for(f"{base}/health")
            yield base
        finally:
            server.terminate()


def wait_for(url: str) -> None:
    for _ in range(100):
        try:
            with urlopen(url, timeout=5):
                return
        except URLError:
            time.sleep(0.2)
    raise AssertionError("the server does not answer")


def ask(address: str, prompt: list[int], outputs: int) -> dict[str, Any]:
    body = {
        "prompt": prompt,
        "n_predict": outputs,
        "temperature": 0,
        "return_tokens": True,
        "ignore_eos": True,
    }
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{address}/completion", json.dumps(body).encode(), headers)) as answer:
        return dict(json.load(answer))


def counters(address: str) -> tuple[int, int]:
    """Prompt tokens that were cached, and that were computed."""
    with urlopen(f"{address}/metrics") as page:
        rows = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines())
    prefix = "llamacpp:prompt_tokens"
    return int(rows[f"{prefix}_cached_total"]), int(rows[f"{prefix}_total"])


class Conversations:
    """Prompts that share heads with each other and go on from earlier answers."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._heads = [self._fresh(self._rng.randint(5, 200)) for _ in range(6)]
        self.past: list[list[int]] = []

    def next_prompt(self) -> list[int]:
        rng = self._rng
        base = rng.choice(rng.choice([self._heads, self.past or self._heads]))
        kept = base if rng.random() < 0.5 else base[: rng.randint(1, len(base))]
        return kept[:900] + self._fresh(rng.choice([0, 1, 5, 40, 300]))

    def _fresh(self, length: int) -> list[int]:
        return [self._rng.randrange(5, 1000) for _ in range(length)]


def test_each_answer_tells_the_hit_that_the_simulator_finds(address: str) -> None:
    engine = Engine("llamacpp", CONTEXT, max_num_seqs=SLOTS)
    conversations = Conversations(seed=1)
    for number in range(400):
        prompt = conversations.next_prompt()
        answer = ask(address, prompt, random.Random(number).choice([1, 2, 5, 20]))
        engine.submit(EngineRequest(str(number), prompt, answer["tokens"]))
        hits: dict[str, int] = {}
        while engine.has_work:
            hits |= engine.step(limit=1 << 30).hits
        assert answer["timings"]["cache_n"] == hits[str(number)], f"request {number}"
        conversations.past.append(prompt + answer["tokens"])
    cached, computed = counters(address)
    stats = engine.stats()
    assert 0 < stats.hits == cached
    assert stats.queries - stats.hits == computed
