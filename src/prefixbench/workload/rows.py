"""Records at the edge: the planner's columns as rows, in sending order or by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prefixbench.core.records import PrefixGroupPlan, RequestOutcome, RequestPlan
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lengths import request_id
from prefixbench.workload.planner import Plan
from prefixbench.workload.targets import target_blocks
from prefixbench.workload.validate import cold_loss_tokens

#: Rows turned into Python integers at a time.
_CHUNK = 4096


def request_plans(plan: Plan, start: int = 0, stop: int | None = None) -> Iterator[RequestPlan]:
    """Planned requests at places [start, stop) of the sending order."""
    names, namespaces = plan.workload.group_ids, plan.namespaces.tolist()
    columns = (
        plan.workload.group,
        plan.workload.input_len,
        plan.workload.output_len,
        plan.prefix_len,
        plan.divergence_len,
        plan.routes.dp_rank,
        plan.routes.instance,
    )
    for place, (row, group, length, output, prefix, divergence, dp, instance) in enumerate(
        _sent(plan, columns, start, stop), start
    ):
        yield RequestPlan(
            request_id=request_id(row),
            prefix_group_id=names[group],
            input_len=length,
            output_len=output,
            planned_prefix_len=prefix,
            divergence_len=divergence,
            suffix_len=length - prefix - divergence,
            order_index=place,
            planned_dp_id=dp,
            planned_instance_id=instance,
            namespace=namespaces[group],
        )


def request_outcomes(
    plan: Plan, start: int = 0, stop: int | None = None
) -> Iterator[RequestOutcome]:
    """What the requests at places [start, stop) find, in tokens; the headline run."""
    granularity, head = plan.geometry.granularity, plan.geometry.head_blocks
    depths, names = plan.depths, plan.workload.group_ids
    columns = (
        plan.workload.group,
        plan.workload.input_len,
        depths.before,
        depths.hits,
        depths.after,
    )
    for row, group, length, before, hits, after in _sent(plan, columns, start, stop):
        yield RequestOutcome(
            request_id=request_id(row),
            prefix_group_id=names[group],
            input_len=length,
            cached_watermark_before=before * granularity,
            expected_hit_len=hits * granularity,
            cached_watermark_after=after * granularity,
            expected_head_hit_len=min(hits, head) * granularity,
        )


def _sent(
    plan: Plan, columns: Sequence[IntArray], start: int, stop: int | None
) -> Iterator[tuple[int, ...]]:
    """The row and its value in each column, for the places [start, stop) of the sending order."""
    stop = plan.workload.request_count if stop is None else stop
    for first in range(start, stop, _CHUNK):
        rows = plan.order[first : min(first + _CHUNK, stop)]
        yield from zip(rows.tolist(), *(column[rows].tolist() for column in columns), strict=True)


def group_plans(plan: Plan) -> dict[str, PrefixGroupPlan]:
    """The groups with their figures, without their requests."""
    cold = cold_loss_tokens(plan)
    head_tokens = plan.geometry.head_blocks * plan.geometry.granularity
    opened = plan.domains.openers(plan.order).tolist()
    return {
        name: PrefixGroupPlan(
            group_id=name,
            request_count=int(plan.workload.group_sizes[group]),
            request_weight=plan.workload.group_weights[group],
            input_tokens=int(plan.workload.group_input_tokens[group]),
            master_prefix_len=_master_prefix_len(plan, group),
            target_hit_tokens=_target_hit_tokens(plan, group),
            designed_hit_tokens=int(plan.group_hit_blocks[group]) * plan.geometry.granularity,
            max_reachable_hit_ratio=float(
                plan.group_ratio(group, int(plan.group_range.most[group])) or 0
            ),
            cold_start_loss=cold[group],
            head_cold_loss=head_tokens * opened.count(group),
        )
        for group, name in enumerate(plan.workload.group_ids)
    }


def _master_prefix_len(plan: Plan, group: int) -> int:
    first_turns = plan.workload.first_turns
    members = plan.prefix_len[: first_turns.request_count][first_turns.group == group]
    return int(members.max()) if len(members) else 0


def _target_hit_tokens(plan: Plan, group: int) -> int:
    """The group's own target; for a global one its share by input tokens (RFC 3.3.8)."""
    if plan.budgets is not None:
        return plan.budgets[group] * plan.geometry.granularity
    tokens = int(plan.workload.group_input_tokens[group])
    granularity = plan.geometry.granularity
    return target_blocks(plan.targets.ratio, tokens, granularity) * granularity
