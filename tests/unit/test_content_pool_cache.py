"""Pools on disk: read instead of built, and never trusted over a rebuild."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from content_samples import LABELS, builtin_tokenizer, columns_of, text_frame
from prefixbench.content import pool_cache
from prefixbench.content.compose import Composer
from prefixbench.content.corpus import Corpus, load_corpus
from prefixbench.content.disk_memo import CACHE_VARIABLE, cache_folder
from prefixbench.content.pool import Pool, TextSource, build_pool
from prefixbench.content.pool_cache import load_pool


def sources() -> tuple[TextSource, TextSource]:
    corpus = load_corpus("builtin", seed=0)
    first, second = corpus.texts[:40], corpus.texts[40:90]
    return TextSource(Corpus("a", first, "a" * 64)), TextSource(Corpus("b", second, "b" * 64), " ")


def prompts(pool: Pool) -> list[bytes]:
    frame = text_frame()
    columns = columns_of([(number % 2, 200 + number, 90) for number in range(6)], frame)
    composer = Composer(pool, frame, columns, LABELS)
    return [composer.prompt_json(number) for number in range(6)]


@pytest.mark.parametrize("own_prefix", [True, False])
def test_a_pool_is_built_once_and_read_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_prefix: bool
) -> None:
    suffix, other = sources()
    prefix = other if own_prefix else None
    folder = tmp_path / "made" / "here"
    built = load_pool(builtin_tokenizer(), suffix, prefix, folder=folder)
    monkeypatch.setattr(pool_cache, "build_pool", None)
    read = load_pool(builtin_tokenizer(), suffix, prefix, folder=folder)
    assert read is not built
    assert read.certificate == built.certificate
    assert read.shares_source == built.shares_source != own_prefix
    assert prompts(read) == prompts(built) == prompts(pickle.loads(pickle.dumps(read)))
    assert [path.suffix for path in folder.iterdir()] == [".npz"]


def test_what_the_pool_depends_on_names_its_file(tmp_path: Path) -> None:
    suffix, other = sources()
    for number, (source, exact_text) in enumerate(
        [
            (suffix, True),
            (suffix, False),
            (other, True),
            (TextSource(suffix.corpus, " "), True),
            (TextSource(Corpus("renamed", suffix.corpus.texts, "a" * 64)), True),
        ],
        start=1,
    ):
        pool = load_pool(builtin_tokenizer(), source, exact_text=exact_text, folder=tmp_path)
        assert pool.certificate.guards[0].corpus == source.corpus.name
        assert len(list(tmp_path.iterdir())) == number


def test_a_damaged_file_is_built_anew(tmp_path: Path) -> None:
    suffix, _ = sources()
    expected = prompts(load_pool(builtin_tokenizer(), suffix, folder=tmp_path))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"PK" + whole[400:], b"\0" * 1_000):
        path.write_bytes(damaged)
        assert prompts(load_pool(builtin_tokenizer(), suffix, folder=tmp_path)) == expected
        assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    suffix, _ = sources()
    blocked = tmp_path / "file"
    blocked.write_text("")
    pool = load_pool(builtin_tokenizer(), suffix, folder=blocked)
    assert prompts(pool) == prompts(build_pool(builtin_tokenizer(), suffix))


def test_the_environment_names_the_folder_or_switches_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv(CACHE_VARIABLE, "")
    assert cache_folder() is None
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "prefixbench"
