"""Rows of a data set, chunk by chunk, in sending order; the same bytes from any worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

import orjson

from prefixbench.config.sessions import Answers
from prefixbench.content.batch import PromptBatch
from prefixbench.content.layout import TextPart
from prefixbench.dataset.collisions import ComposedPlan
from prefixbench.dataset.layout import DATA, METADATA
from prefixbench.dataset.members import prompt_parts, recipe_members
from prefixbench.dataset.row_files import CHUNK_ROWS, id_bytes
from prefixbench.dataset.rows import metadata_lines
from prefixbench.dataset.writer import RowChunk
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lengths import request_id
from prefixbench.workload.planner import Plan
from prefixbench.workload.sessions import continued_request

#: What is computed for a batch of rows costs little more for many: some megabytes of text at once.
_TOKENS_AT_ONCE = 1 << 22
_CHUNKS_AT_ONCE = 4

#: Rows joined at once: a usual piece is hashed and copied before it leaves the processor's cache.
_JOINED_ROWS = 32


@dataclass(frozen=True, kw_only=True)
class ChunkComposer:
    """Composes any chunk of rows from the plan and the composer alone; can be sent to a worker."""

    plan: Plan
    composed: ComposedPlan
    with_ids: bool = False

    @property
    def chunk_count(self) -> int:
        return -(-self.plan.workload.request_count // CHUNK_ROWS)

    @property
    def rows_at_once(self) -> int:
        """Rows composed in one go: whole chunks, fewer of them where prompts are long."""
        workload = self.plan.workload
        mean_len = workload.input_tokens // workload.request_count
        chunks = _TOKENS_AT_ONCE // (mean_len * CHUNK_ROWS)
        return CHUNK_ROWS * min(max(chunks, 1), _CHUNKS_AT_ONCE)

    def rows_from(self, start: int) -> RowChunk:
        """The rows at places [start, start + rows_at_once) of the sending order."""
        stop = min(start + self.rows_at_once, self.plan.workload.request_count)
        requests = self.plan.order[start:stop]
        batch = self.composed.composer.batch(requests)
        metadata = metadata_lines(self.plan, self.composed, batch, start, stop)
        chunk = {DATA: self._lines(requests, batch), METADATA: [metadata]}
        if not self.with_ids:
            return chunk
        ids_before = int(self.plan.workload.input_len[self.plan.order[:start]].sum())
        return chunk | id_bytes(batch.ids(), first_offset=ids_before)

    def _lines(self, requests: IntArray, batch: PromptBatch) -> Iterator[bytes]:
        """Some lines at a time, joined when they are asked for."""
        parts = [self._begins(requests), *self._prompts(requests, batch), self._ends(requests)]
        rows = zip(*parts, strict=True)
        while piece := b"".join(chain.from_iterable(islice(rows, _JOINED_ROWS))):
            yield piece

    def _begins(self, requests: IntArray) -> TextPart:
        """The start of each line, up to the member that holds the prompt."""
        begins = [
            b'{"request_id":"%b",' % request_id(request).encode() for request in requests.tolist()
        ]
        if not self._answers_are_served:
            return begins
        sessions = self.plan.workload.first_turn_count
        histories = (continued_request(request, sessions) for request in requests.tolist())
        return [
            begin if history is None else begin + b'"continues":"%b",' % history.encode()
            for begin, history in zip(begins, histories, strict=True)
        ]

    @property
    def _answers_are_served(self) -> bool:
        sessions = self.plan.config.sessions
        return sessions is not None and sessions.answers is Answers.SERVED

    def _ends(self, requests: IntArray) -> TextPart:
        """The members behind the prompt, and the end of each line."""
        workload, of_group = self.plan.workload, self._group_options
        lengths, groups = workload.output_len[requests], workload.group[requests]
        return [
            b',"max_tokens":%d%b}\n' % (length, of_group[group])
            for length, group in zip(lengths.tolist(), groups.tolist(), strict=True)
        ]

    @cached_property
    def _group_options(self) -> list[bytes]:
        """Model and cache salt of the groups that have them, as members of a row."""
        options = {
            group.id: {
                key: value
                for key, value in (("model", group.model), ("cache_salt", group.cache_salt))
                if value is not None
            }
            for group in self.plan.config.prefix.groups
        }
        members = (options.get(name) for name in self.plan.workload.group_ids)
        return [b"," + orjson.dumps(given)[1:-1] if given else b"" for given in members]

    def _prompts(self, requests: IntArray, batch: PromptBatch) -> list[TextPart]:
        """The member of each line that holds the prompt, or in its stead the recipe."""
        config = self.plan.config
        if not config.save_prompts:
            retries = self.composed.composer.retries[requests]
            return [[*recipe_members(requests, retries, batch, config.prompt_format)]]
        return prompt_parts(batch, config.prompt_format)


def compose_chunks(chunks: ChunkComposer, *, first: int, workers: int) -> Iterator[RowChunk]:
    """All rows from chunk `first` on, in order; some are composed ahead by worker processes."""
    count = chunks.plan.workload.request_count
    starts = range(first * CHUNK_ROWS, count, chunks.rows_at_once)
    if workers <= 1 or len(starts) <= 1:
        yield from map(chunks.rows_from, starts)
        return
    # Unlike the standard library's pool, this one never runs the caller's main module again.
    from loky import ProcessPoolExecutor

    with ProcessPoolExecutor(workers, initializer=_adopt, initargs=(chunks,)) as pool:
        pending: deque[Future[RowChunk]] = deque()
        for start in starts:
            pending.append(pool.submit(_compose_adopted, start))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


_adopted: list[ChunkComposer] = []


def _adopt(chunks: ChunkComposer) -> None:
    """Keep the composer of a worker process for all its chunks."""
    _adopted[:] = [chunks]


def _compose_adopted(start: int) -> RowChunk:
    return {name: list(pieces) for name, pieces in _adopted[0].rows_from(start).items()}
