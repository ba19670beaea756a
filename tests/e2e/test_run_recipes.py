"""Runs of data sets whose prompts are recipes or ids: composed while sending, isolated by ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixbench.core.errors import CorpusError
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import document, expected_hits, options, phases, rows, sample

INSTANT = ServeOptions(time_scale=0)


@pytest.mark.parametrize("prompt_format", ["text", "token_ids"])
async def test_recipes_are_sent_as_the_prompts_they_stand_for(
    tmp_path: Path, prompt_format: str
) -> None:
    dataset = sample(save_prompts=False, prompt_format=prompt_format)
    assert "recipe" in next(DatasetReader(dataset).requests())
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    planned = expected_hits(dataset)
    assert sum(planned.values()) > 0
    assert {row["request_id"]: row["cached_tokens"] for row in rows(tmp_path / "run")} == planned


async def test_recipes_without_their_corpus_are_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    dataset = sample(save_prompts=False)
    own = tmp_path / "own.txt"
    own.write_text("\n\n".join(f"Another text, number {n}, of its own." for n in range(60)))
    async with running_server(INSTANT) as url:
        with pytest.raises(CorpusError, match="not the one of the data set"):
            await run_dataset_async(options(dataset, tmp_path / "run", url, corpus=str(own)))
    assert not (tmp_path / "run").exists()


async def test_ids_are_isolated_by_another_opening_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of one data set on one warm cache: the second finds nothing of the first."""
    draws = iter((0, 1))
    monkeypatch.setattr("prefixbench.run.isolation.secrets.randbelow", lambda _: next(draws))
    dataset = sample(prompt_format="token_ids")
    words = DatasetReader(dataset).manifest.data
    assert len(words["opening_word_ids"]) == len(words["opening_words"]) > 1
    async with running_server(INSTANT) as url:
        for number in (1, 2):
            run = tmp_path / f"run_{number}"
            await run_dataset_async(options(dataset, run, url, isolation="content"))
            (phase,) = phases(run)
            assert phase["hits"] == sum(expected_hits(dataset).values()) > 0
            isolation = document(run, "run")["isolation"]
            assert isolation["asked"] == "content"
