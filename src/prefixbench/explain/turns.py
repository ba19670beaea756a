"""Turns of sessions as observed: with the answers that came, in the caches they went to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from prefixbench.core.records import RequestPlan
from prefixbench.explain.run_files import ObservedRequest

#: Instance and rank.
Place = tuple[int, int]


def place_of(plan: RequestPlan) -> Place:
    """The cache that a request goes to."""
    return plan.planned_instance_id, plan.planned_dp_id


def with_served_answers(
    plans: Iterable[RequestPlan], results: Mapping[str, ObservedRequest], extra_head_len: int
) -> tuple[RequestPlan, ...]:
    """Later turns with the lengths that the server counted.

    Where an answer became other tokens when it was encoded again, what the turn found of its
    history is taken as it is. `extra_head_len` tokens of each prompt are not the plan's.
    """
    planned = {plan.request_id: plan for plan in plans}
    return tuple(
        _with_answer(plan, before, results, extra_head_len)
        if (before := planned.get(plan.history_request_id or "")) is not None
        else plan
        for plan in planned.values()
    )


def _with_answer(
    plan: RequestPlan,
    before: RequestPlan,
    results: Mapping[str, ObservedRequest],
    extra_head_len: int,
) -> RequestPlan:
    told, result = results[before.request_id], results[plan.request_id]
    if told.prompt_tokens is None or told.output_tokens is None or result.prompt_tokens is None:
        return plan
    said = told.prompt_tokens + told.output_tokens
    new_len = plan.input_len - before.input_len - before.output_len
    stored = said - 1 if result.prompt_tokens == said + new_len else result.cached_tokens or 0
    return replace(
        plan,
        input_len=result.prompt_tokens - extra_head_len,
        planned_prefix_len=stored - extra_head_len,
    )


def parted_from_histories(plans: Iterable[RequestPlan]) -> Iterator[RequestPlan]:
    """Turns of sessions that move between caches, each with what its own cache has of its history.

    In a cache that has none a turn is like a first turn: it shares the prefix of its group.
    """
    first_of: dict[str, RequestPlan] = {}
    before_of: dict[str, RequestPlan] = {}
    stored: defaultdict[str, dict[Place, int]] = defaultdict(dict)
    for plan in plans:
        before = before_of.get(plan.history_request_id or "")
        first = plan if before is None else first_of[before.request_id]
        first_of[plan.request_id], before_of[plan.request_id] = first, plan
        if before is None:
            yield plan
            continue
        histories = stored[first.request_id]
        histories[place_of(before)] = plan.planned_prefix_len
        history_len = histories.get(place_of(plan))
        if history_len is None:
            shared = first.planned_prefix_len
            yield replace(plan, planned_prefix_len=shared, history_request_id=None)
        elif history_len != plan.planned_prefix_len:
            yield replace(plan, planned_prefix_len=history_len)
        else:
            yield plan
