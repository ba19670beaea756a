"""Marked words in texts, keys, headers, addresses and folders: none of them is ever told.

Prompts stand in data.jsonl and go to the server; nothing else may hold a word of them (RFC 3.4.1).
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest

from prefixbench.cli.demo import background_server
from prefixbench.server.options import ServeOptions

#: One word in every sentence of the corpus, so that no prompt is without it.
TEXT = "zanquartol"
KEY, HEADER, PASSWORD = "sk-vilmorash", "brontevule", "hulvermint"
FOLDER, HOST, ROUTE = "ostrelwick", "quandrimore", "pellucane"
SECRETS = (TEXT, KEY, HEADER, PASSWORD, FOLDER, HOST, ROUTE)

CONFIG = {
    "dataset_id": "private",
    "request_count": 24,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 100, "max": 300, "mean": 200, "std": 50},
    "output_length": 2,
    "target": {"hit_ratio": 0.5},
    "prefix": {"group_count": 2},
}


class Place:
    """A folder with a marked name, and the commands that are typed beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / FOLDER
        self.secret.mkdir(parents=True)
        (self.secret / "private.yaml").write_bytes(orjson.dumps(CONFIG))
        self.corpus = self.secret / "notes.jsonl"
        rows = [{"text": f"On day {n} the {TEXT} took {n * 7} stones away."} for n in range(300)]
        self.corpus.write_bytes(b"\n".join(map(orjson.dumps, rows)))

    def prefixbench(self, *words: str | Path, exit_code: int = 0) -> str:
        """Run a command; what it printed, on stdout and on stderr, must hold no secret."""
        environment = dict(os.environ) | {"PRIVATE_KEY": KEY}
        done = subprocess.run(
            [sys.executable, "-m", "prefixbench", *map(str, words)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == exit_code, printed
        assert told(printed) == [], printed
        return printed

    def generate(self, output: str, *options: str | Path, exit_code: int = 0) -> str:
        words = ("generate", "-vv", "--config", self.secret / "private.yaml", "--output", output)
        return self.prefixbench(*words, *options, exit_code=exit_code)

    def assert_nothing_written(self, *folders: str) -> None:
        """No file beside the prompts holds a secret."""
        seen = 0
        for folder in folders:
            for path in (self.folder / folder).rglob("*"):
                if path.is_file() and path.name not in ("data.jsonl", "prompt_ids.u32"):
                    raw = path.read_bytes()
                    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
                    assert told(raw.decode(errors="replace")) == [], path.name
                    seen += 1
        assert seen >= len(folders)


def told(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret.lower() in text.lower()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("privacy"))


@pytest.fixture(scope="module")
def dataset(place: Place) -> str:
    place.generate("dataset", "--corpus", place.corpus)
    rows = (place.folder / "dataset" / "data.jsonl").read_text().splitlines()
    assert all(TEXT in row for row in rows), "the marked word is in every prompt"
    return "dataset"


@contextmanager
def gossip() -> Iterator[str]:
    """A server that answers everything with an error that repeats all it was told."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            heard = [self.path, str(self.headers), self.rfile.read(size).decode()]
            body = json.dumps({"error": {"message": " ".join(heard)}}).encode()
            self.send_response(200 if self.path.endswith("/models") else 400)
            if self.path.endswith("/models"):
                body = b'{"data": [{"id": "m"}]}'
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}/{ROUTE}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_data_sets_hold_secrets_in_prompts_alone(place: Place, dataset: str) -> None:
    place.prefixbench("validate", "-vv", "--dataset", dataset)
    place.prefixbench("simulate", "-vv", "--dataset", dataset)
    place.generate("ids", "--corpus", place.corpus, "--with-ids")
    place.generate("recipes", "--corpus", place.corpus, "--set", "save_prompts=false")
    assert told((place.folder / "recipes" / "data.jsonl").read_text()) == []
    place.prefixbench("validate", "-vv", "--dataset", "recipes", "--corpus", place.corpus)
    place.assert_nothing_written(dataset, "ids", "recipes")


def test_a_run_and_its_report_hold_no_secret(place: Place, dataset: str) -> None:
    with background_server(ServeOptions(time_scale=0)) as url:
        known = ("--api-key-env", "PRIVATE_KEY", "--header", f"X-Team: {HEADER}")
        run = ("run", "-vv", "--dataset", dataset, "--url", url, "--output", "run", *known)
        place.prefixbench(*run)
    place.prefixbench("report", "-vv", "--run-dir", "run")
    place.prefixbench("report", "--json", "--run-dir", "run")
    assert (place.folder / "run" / "report" / "prefix_cache_report.html").is_file()
    place.assert_nothing_written("run")


@pytest.mark.parametrize(
    ("user", "known"), [("", ("--api-key-env", "PRIVATE_KEY")), (f"me:{PASSWORD}@", ())]
)
def test_a_server_that_repeats_everything_is_not_repeated(
    place: Place, dataset: str, user: str, known: tuple[str, ...]
) -> None:
    output = f"gossip_{len(user)}"
    with gossip() as address:
        place.prefixbench(
            *("run", "-vv", "--dataset", dataset, "--url", f"http://{user}{address}"),
            *("--output", output, "--header", f"X-Team: {HEADER}", *known, "--metrics-optional"),
            exit_code=6,
        )
    place.prefixbench("report", "-vv", "--run-dir", output)
    place.assert_nothing_written(output)


def test_a_server_that_is_not_there_stays_unnamed(place: Place, dataset: str) -> None:
    url = f"http://me:{PASSWORD}@node7.{HOST}.invalid:9/{ROUTE}?key={KEY}"
    words = ("run", "-vv", "--dataset", dataset, "--url", url, "--output", "nowhere")
    place.prefixbench(*words, "--startup-timeout", "0", exit_code=5)


BROKEN = {
    "line.jsonl": f'{{"text": "fine"}}\n{{"text": "the {TEXT} said so\n',
    "list.jsonl": f'["{TEXT}"]\n',
    "other_key.jsonl": f'{{"body": "{TEXT}"}}\n',
    "column.csv": f"body\n{TEXT}\n",
    "latin.txt": f"{TEXT} caf\xe9",
    "short.txt": f"The {TEXT} is short.",
    "table.parquet": f"{TEXT} is no table",
    "kind.docx": TEXT,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_corpus_is_told_by_name_and_line_alone(place: Place, name: str) -> None:
    path = place.secret / name
    path.write_bytes(BROKEN[name].encode("latin-1"))
    printed = place.generate("broken", "--corpus", path, exit_code=4)
    assert name in printed


def test_missing_files_are_told_without_their_folders(place: Place) -> None:
    missing = place.secret / "missing"
    for options in (
        ("--corpus", f"{missing}.txt"),
        ("--tokenizer", missing),
        ("--set", f"suffix.path={missing}.txt", "--set", "suffix.source=text"),
    ):
        place.generate("missing", *options, exit_code=4)
    place.prefixbench("plan", "-vv", "--config", f"{missing}.yaml", exit_code=2)
    place.prefixbench("validate", "-vv", "--dataset", missing, exit_code=2)
    place.prefixbench("report", "-vv", "--run-dir", missing, exit_code=2)


def test_changed_prompts_are_told_without_their_text(place: Place, dataset: str) -> None:
    folder = place.folder / "changed"
    subprocess.run(["cp", "-r", place.folder / dataset, folder], check=True)
    data = folder / "data.jsonl"
    data.write_text(data.read_text().replace(TEXT, f"{TEXT} again", 1))
    place.prefixbench("validate", "-vv", "--dataset", "changed", exit_code=3)
    words = ("run", "-vv", "--dataset", "changed", "--url", "http://127.0.0.1:9", "--output", "not")
    place.prefixbench(*words, exit_code=3)
    data.write_text(data.read_text()[:-40])
    place.prefixbench("validate", "-vv", "--dataset", "changed", exit_code=3)
    place.assert_nothing_written("changed")


def test_texts_that_collide_are_told_by_number(place: Place) -> None:
    changes = ("suffix.divergence_block=false", "suffix.collision_detection.max_retries=0")
    corpus = place.secret / "few.txt"
    corpus.write_text("\n\n".join(f"Day {n} of the {TEXT} is long and wet." for n in range(20)))
    options = [word for change in changes for word in ("--set", change)]
    small = ("--set", "block_size=4", "--corpus", corpus)
    printed = place.generate("collide", *options, *small, exit_code=4)
    assert "request_id=r" in printed
    place.assert_nothing_written("collide")
