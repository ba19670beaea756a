"""`prefixbench simulate --story`: a few requests, their blocks, and every step of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prefixbench.cli.played_times import cost_of
from prefixbench.config.story import IMAGE_MARK, Story, StoryRequest, load_story
from prefixbench.core.tally import as_rate
from prefixbench.simulator.block_keys import Key
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.rules import TierRules
from prefixbench.simulator.story import StoryEntry, StoryStep, play_story

#: Shown for a token that only its own request generates.
OWN_TOKEN = "·"

#: Numbers of tokens that are no characters; Unicode ends below.
_FIRST_NUMBER = 1 << 21


def story_document(
    file: Path, *, cost: Path | None = None, **given: str | int | None
) -> dict[str, Any]:
    """Everything that is printed, under the keys of --json.

    `given` are settings of the story that win over the file, where they are not None.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    story = load_story(file).model_copy(update=changes)
    engine = _engine_of(story, cost_of(cost) or CostModel.ORDER_ONLY)
    tokens = _Tokens()
    entries = [
        StoryEntry(tokens.request_of(request), request.arrive_step) for request in story.requests
    ]
    steps = list(play_story(engine, entries))
    names = _BlockNames(engine, entries, story.requests)
    return {
        "story": file.name,
        "profile": engine.profile.name,
        "block_size": engine.options.block_size,
        "capacity_blocks": story.capacity_blocks,
        "requests": [
            _request_row(request, entry.request, names, steps)
            for request, entry in zip(story.requests, entries, strict=True)
        ],
        "steps": list(_merged(_step_row(step, names) for step in steps)),
        "cache": _cache_row(engine, names),
        **_counters(engine),
    }


def _engine_of(story: Story, cost: CostModel) -> Engine:
    return Engine(
        story.profile,
        story.capacity_blocks,
        story.max_num_batched_tokens,
        story.max_num_seqs,
        block_size=story.block_size,
        chunked_prefill=story.chunked_prefill,
        long_prefill_token_threshold=story.long_prefill_token_threshold,
        policy=story.policy,
        prefix_caching=story.prefix_caching,
        tiers=None if story.host_blocks is None else _host_tier(story),
        cost=cost,
    )


def _host_tier(story: Story) -> list[TierRules]:
    size = story.block_size or Engine(story.profile).options.block_size
    return [TierRules(name="host", unit_len=size, capacity_units=story.host_blocks)]


class _Tokens:
    """Characters as numbers; a part of an image is a token of that image, wherever it stands."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}

    def request_of(self, request: StoryRequest) -> EngineRequest:
        extra = [("lora", request.lora), ("cache_salt", request.cache_salt)]
        return EngineRequest(
            request.id,
            list(self._prompt(request)),
            list(self._answer(request)),
            extra_key=tuple(pair for pair in extra if pair[1] is not None),
            priority=request.priority,
        )

    def _prompt(self, request: StoryRequest) -> Iterable[int]:
        images = iter(request.images)
        image, place = "", 0
        before = ""
        for character in request.prompt_tokens:
            if character != IMAGE_MARK:
                yield ord(character)
            else:
                image, place = (image, place + 1) if before == character else (next(images), 0)
                yield self._number("image " + image, place)
            before = character

    def _answer(self, request: StoryRequest) -> Iterable[int]:
        if request.answer is not None:
            return map(ord, "".join(request.answer.split()))
        return (
            self._number("answer " + request.id, place) for place in range(request.output_length)
        )

    def _number(self, source: str, place: int) -> int:
        return self._numbers.setdefault((source, place), _FIRST_NUMBER + len(self._numbers))


class _BlockNames:
    """Blocks numbered from 1 as they first appear, and the characters in them."""

    def __init__(
        self, engine: Engine, entries: Sequence[StoryEntry], requests: Sequence[StoryRequest]
    ) -> None:
        self.block_size = engine.options.block_size
        self.keys = {one.request.request_id: engine.block_keys(one.request) for one in entries}
        self.numbers: dict[Key, int] = {}
        self.texts: dict[Key, str] = {}
        for request in requests:
            shown = shown_tokens(request)
            for place, key in enumerate(self.keys[request.id]):
                self.numbers.setdefault(key, len(self.numbers) + 1)
                start = place * self.block_size
                self.texts.setdefault(key, shown[start : start + self.block_size])

    def row(self, key: Key) -> dict[str, Any]:
        return {"block": self.numbers[key], "tokens": self.texts[key]}

    def chain(self, request_id: str) -> list[dict[str, Any]]:
        """A request's full blocks, each with the number of the one it stands behind."""
        parents = [None, *(self.numbers[key] for key in self.keys[request_id])]
        return [
            self.row(key) | {"parent": parent}
            for key, parent in zip(self.keys[request_id], parents, strict=False)
        ]


def shown_tokens(request: StoryRequest) -> str:
    """Prompt and answer, one character a token."""
    if request.answer is not None:
        return request.prompt_tokens + "".join(request.answer.split())
    return request.prompt_tokens + OWN_TOKEN * request.output_length


def _request_row(
    request: StoryRequest, sent: EngineRequest, names: _BlockNames, steps: Sequence[StoryStep]
) -> dict[str, Any]:
    name = request.id
    hits = [step.outcome.hits[name] for step in steps if name in step.outcome.hits]
    return {
        "id": name,
        "lora": request.lora,
        "cache_salt": request.cache_salt,
        "input_len": len(sent.prompt),
        "output_len": len(sent.output),
        "tokens": shown_tokens(request),
        "blocks": names.chain(name),
        "hit_tokens": hits[0] if hits else None,
        "tier_hit_tokens": sum(
            sum(step.outcome.tier_hits.get(name, {}).values()) for step in steps
        ),
        "resume_hit_tokens": [
            step.outcome.resume_hits[name] for step in steps if name in step.outcome.resume_hits
        ],
        "preemptions": sum(step.outcome.preempted.count(name) for step in steps),
    }


def _step_row(step: StoryStep, names: _BlockNames) -> dict[str, Any]:
    outcome = step.outcome
    return {
        "step": step.number,
        "times": outcome.times,
        "duration_ms": outcome.duration_ns / 1e6 if outcome.duration_ns else None,
        "computed": outcome.scheduled,
        "hits": outcome.hits | outcome.resume_hits,
        "evicted": [names.row(key) for key in sorted(step.lost, key=names.numbers.__getitem__)],
        "preempted": outcome.preempted,
        "finished": outcome.finished,
        "free_blocks": outcome.free_blocks,
        "running": outcome.running,
        "waiting": outcome.waiting,
    }


def _merged(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Neighbours that differ in their number alone become one row."""
    last: dict[str, Any] | None = None
    for row in rows:
        if last is not None and _is_repeated(last, row):
            last["times"] += row["times"]
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def _is_repeated(last: dict[str, Any], row: dict[str, Any]) -> bool:
    number = {"step": row["step"], "times": row["times"]}
    follows = last["step"] + last["times"] == row["step"]
    return follows and not row["evicted"] and last | number == row


def _cache_row(engine: Engine, names: _BlockNames) -> dict[str, Any] | None:
    view = engine.pool_view()
    if view is None:
        return None
    return {
        "blank_blocks": view.blank_blocks,
        "queue": [None if key is None else names.row(key) for key in view.queue],
    }


def _counters(engine: Engine) -> dict[str, Any]:
    stats = engine.stats()
    blocks = stats.prefix_cache.tally
    return {
        "queries": stats.queries,
        "hits": stats.hits,
        "hit_rate": as_rate(stats.tokens),
        "query_blocks": blocks.queries,
        "hit_blocks": blocks.hits,
        "block_hit_rate": as_rate(blocks),
        "tier_hits": stats.below.hits,
        "preempted_queries": stats.preempted_queries,
        "preempted_hits": stats.preempted_hits,
        "preemptions": stats.scheduler.num_preemptions,
        "evicted_blocks": engine.cache_contents().evicted_blocks,
        "prefill_steps": stats.scheduler.num_prefill_steps,
        "kv_usage": engine.kv_usage,
    }
