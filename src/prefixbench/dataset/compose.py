"""Rows of a data set, chunk by chunk, in sending order; the same bytes from any worker."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
from loky import ProcessPoolExecutor

from prefixbench.config.dataset import PromptFormat
from prefixbench.core.records import RequestOutcome, RequestPlan
from prefixbench.dataset.collisions import ComposedPlan
from prefixbench.dataset.layout import row
from prefixbench.dataset.writer import CHUNK_ROWS, RowChunk
from prefixbench.workload.planner import Plan
from prefixbench.workload.rows import request_outcomes, request_plans


@dataclass(frozen=True, kw_only=True)
class ChunkComposer:
    """Composes any chunk of rows from the plan and the composer alone; can be sent to a worker."""

    plan: Plan
    composed: ComposedPlan

    @property
    def chunk_count(self) -> int:
        return -(-self.plan.workload.request_count // CHUNK_ROWS)

    def chunk(self, number: int) -> RowChunk:
        start = number * CHUNK_ROWS
        stop = min(start + CHUNK_ROWS, self.plan.workload.request_count)
        rows = self.plan.order[start:stop].tolist()
        plans = list(request_plans(self.plan, start, stop))
        outcomes = request_outcomes(self.plan, start, stop)
        data = b"".join(map(self._data_line, rows, plans))
        metadata = b"".join(map(self._metadata_line, rows, plans, outcomes))
        return RowChunk(data=data, metadata=metadata)

    def _data_line(self, request: int, planned: RequestPlan) -> bytes:
        """One line of data.jsonl; the prompt is spliced in, since the pool holds it escaped."""
        options: dict[str, Any] = {"max_tokens": planned.output_len}
        group = self._group_options.get(planned.prefix_group_id)
        if group:
            options |= group
        head = orjson.dumps({"request_id": planned.request_id})[:-1]
        return head + b"," + self._prompt(request) + b"," + row(options)[1:]

    @cached_property
    def _group_options(self) -> dict[str, dict[str, str]]:
        """Model and cache salt of the groups that have them."""
        return {
            group.id: {
                key: value
                for key, value in (("model", group.model), ("cache_salt", group.cache_salt))
                if value is not None
            }
            for group in self.plan.config.prefix.groups
        }

    def _prompt(self, request: int) -> bytes:
        """The member of the row that holds the prompt, or in its stead the recipe."""
        config, composer = self.plan.config, self.composed.composer
        if not config.save_prompts:
            digest = hashlib.sha256(composer.prompt_json(request)).hexdigest()
            recipe = {"request": request, "retry": int(composer.retries[request])}
            return orjson.dumps({"recipe": recipe, "prompt_sha256": digest})[1:-1]
        match config.prompt_format:
            case PromptFormat.TOKEN_IDS:
                ids = composer.prompt_ids(request).tolist()
                return b'"prompt_token_ids":' + orjson.dumps(ids)
            case PromptFormat.CHAT:
                content = composer.prompt_json(request)
                return b'"messages":[{"role":"user","content":"' + content + b'"}]'
            case PromptFormat.TEXT:
                return b'"prompt":"' + composer.prompt_json(request) + b'"'

    def _metadata_line(self, request: int, planned: RequestPlan, outcome: RequestOutcome) -> bytes:
        composer = self.composed.composer
        accidental = self.composed.accidental_hits.get(request, 0)
        hit_len = outcome.expected_hit_len + accidental
        return row(
            {
                "request_id": planned.request_id,
                "prefix_group_id": planned.prefix_group_id,
                "order_index": planned.order_index,
                "input_len": planned.input_len,
                "output_len": planned.output_len,
                "planned_prefix_len": planned.planned_prefix_len,
                "cached_watermark_before": outcome.cached_watermark_before,
                "expected_hit_len": hit_len,
                "expected_head_hit_len": outcome.expected_head_hit_len,
                "expected_hit_ratio": hit_len / planned.input_len,
                "cached_watermark_after": outcome.cached_watermark_after,
                "divergence_len": planned.divergence_len,
                "suffix_len": planned.suffix_len,
                "planned_dp_id": planned.planned_dp_id,
                "planned_instance_id": planned.planned_instance_id,
                "collision_status": self.composed.status_of(request),
                "accidental_hit_len": accidental,
                "sample_ids": composer.sample_ids(request),
                "prefix_chars": composer.prefix_chars(request),
            }
        )


def compose_chunks(chunks: ChunkComposer, *, first: int, workers: int) -> Iterator[RowChunk]:
    """All chunks from `first` on, in order; a few are composed ahead by worker processes."""
    numbers = range(first, chunks.chunk_count)
    if workers <= 1 or len(numbers) <= 1:
        yield from map(chunks.chunk, numbers)
        return
    # Unlike the standard library's pool, this one never runs the caller's main module again.
    with ProcessPoolExecutor(workers, initializer=_adopt, initargs=(chunks,)) as pool:
        pending: deque[Future[RowChunk]] = deque()
        for number in numbers:
            pending.append(pool.submit(_compose_adopted, number))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


_adopted: list[ChunkComposer] = []


def _adopt(chunks: ChunkComposer) -> None:
    """Keep the composer of a worker process for all its chunks."""
    _adopted[:] = [chunks]


def _compose_adopted(number: int) -> RowChunk:
    return _adopted[0].chunk(number)
