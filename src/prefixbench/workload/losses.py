"""Where the tokens of a run go that no plan can make hits: the reasons behind a maximum.

Every token of a run belongs to exactly one of: the most hits, the template's tail, the non-shared
length, the rest of a block, a prefix that is computed the first time (by its group, by its group's
longest request alone, again on a further rank), the head of a cold cache, hits that requests in
flight or a small cache lose. The parts sum to all input tokens, so each reason has a price in
percentage points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefixbench.core.wording import plural
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lag import LagModel
from prefixbench.workload.lengths import request_id
from prefixbench.workload.order import by_size
from prefixbench.workload.setting import Setting
from prefixbench.workload.tree import Tree

#: Groups whose cold start is listed on its own; the largest.
LISTED_GROUPS = 10


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Tokens of a run that cannot be hits, for one reason."""

    reason: str
    tokens: int
    message: str
    group: str | None = None

    def to_json(self, input_tokens: int) -> dict[str, Any]:
        row = {
            "reason": self.reason,
            "tokens": self.tokens,
            "cost_pp": 100 * self.tokens / input_tokens,
            "message": self.message,
        }
        return row if self.group is None else {**row, "prefix_group_id": self.group}


def losses(setting: Setting) -> list[Loss]:
    """All losses above zero, the largest first; the ten largest cold starts each on its own."""
    parts = [*_request_losses(setting), *_run_losses(setting)]
    return sorted((loss for loss in parts if loss.tokens), key=lambda loss: -loss.tokens)


def forced_hits(setting: Setting) -> list[Loss]:
    """Why a target can be too low: what every plan hits."""
    geometry, head_len = setting.geometry, setting.geometry.head_len
    head = Loss(
        reason="shared_head",
        tokens=(setting.range.least - setting.history_hits) * geometry.granularity,
        message=f"the {plural(head_len, 'token')} that every prompt begins with"
        f" {'fills' if head_len == 1 else 'fill'} {plural(geometry.head_blocks, 'block')},"
        f" which {_finders_of_the_head(setting)}",
    )
    history = Loss(
        reason="session_history",
        tokens=setting.history_hits * geometry.granularity,
        message="every later turn of a session finds the turn before it",
    )
    return sorted((loss for loss in (head, history) if loss.tokens), key=lambda loss: -loss.tokens)


def _finders_of_the_head(setting: Setting) -> str:
    if setting.counts_prefixes or setting.domains.warmed:
        return "all requests share"
    heads = setting.domains.cold_heads
    return "all requests but the first find" if heads == 1 else "the first of each cache lacks"


def _request_losses(setting: Setting) -> list[Loss]:
    """What every request keeps for itself behind its largest prefix."""
    geometry, lengths = setting.geometry, setting.workload.input_len
    unshared = lengths - setting.most_prefixes * geometry.granularity
    first_turns = setting.workload.first_turn_count
    unshared, turn_text = unshared[:first_turns], unshared[first_turns:]
    tail = np.minimum(unshared, geometry.tail_len)
    kept = np.minimum(unshared - tail, geometry.minimum_non_shared_len)
    unused = _beyond_the_common_limit(setting)
    rest = unshared - tail - kept - unused
    return [
        Loss(
            reason="template_tail",
            tokens=int(tail.sum()),
            message=f"every prompt ends with {plural(geometry.tail_len, 'template token')}",
        ),
        Loss(
            reason="minimum_non_shared_length",
            tokens=int(kept.sum()),
            message="every request keeps"
            f" {plural(geometry.minimum_non_shared_len, 'token')} unshared",
        ),
        Loss(
            reason="block_rounding",
            tokens=int(rest.sum()),
            message=f"prefixes end on whole blocks of {plural(geometry.granularity, 'token')}",
        ),
        _unused_length(setting, int(unused.sum())),
        Loss(
            reason="turn_text",
            tokens=int(turn_text.sum()),
            message="every later turn of a session brings an answer and new text",
        ),
    ]


def _beyond_the_common_limit(setting: Setting) -> IntArray:
    """Tokens of each first turn that it could share, but for a limit it has with others."""
    rows = slice(setting.workload.first_turn_count)
    room = setting.geometry.longest_prefixes(setting.workload.input_len[rows])
    unused: IntArray = (room - setting.most_prefixes[rows]) * setting.geometry.granularity
    return unused


def _unused_length(setting: Setting, tokens: int) -> Loss:
    if setting.tree is not None:
        return Loss(
            reason="tree_depth",
            tokens=tokens,
            message="requests are longer than the tree of prefixes is deep",
        )
    return Loss(
        reason="common_length",
        tokens=tokens,
        message="with nested_prefix: false no request shares more than the shortest of its group",
    )


def _run_losses(setting: Setting) -> Iterator[Loss]:
    """What is computed at least once, and what is not found although it was computed."""
    if setting.counts_prefixes:
        return
    if setting.tree is not None:
        yield from _cold_nodes(setting, setting.tree)
    elif not setting.domains.warmed:
        yield from _cold_losses(setting)
    yield _cold_head(setting)
    yield from _lost_in_flight(setting)


def _cold_nodes(setting: Setting, tree: Tree) -> Iterator[Loss]:
    """Each node of a tree in every cache that it is asked for in."""
    blocks = level_blocks(setting, setting.most_prefixes)
    for name, computed in zip(tree.names, blocks, strict=True):
        yield Loss(
            reason="cold_start",
            tokens=computed * setting.geometry.granularity,
            message=f"the text of each {name} is computed once in every cache that serves it",
        )


def level_blocks(setting: Setting, prefix_blocks: IntArray) -> list[int]:
    """Blocks of each level of the tree that are computed once."""
    domains = setting.domains
    if domains.warmed:
        return [0] * len(domains.levels)
    maxima = domains.maxima(prefix_blocks)
    return [int((level.deepest(maxima) - level.begin).sum()) for level in domains.levels]


def _cold_head(setting: Setting) -> Loss:
    return Loss(
        reason="cold_head",
        tokens=setting.domains.head_loss * setting.geometry.granularity,
        message="each cache computes the shared head once"
        + (", for every model and salt" if setting.namespaces.any() else ""),
    )


def _cold_losses(setting: Setting) -> Iterator[Loss]:
    """Each group's largest prefix in every cache it uses."""
    granularity, domains = setting.geometry.granularity, setting.domains
    groups = len(setting.workload.group_ids)
    by_domain = domains.cold_losses(setting.most_prefixes) * granularity
    everywhere = np.zeros(groups, np.int64)
    np.add.at(everywhere, domains.group, by_domain)
    once = np.zeros(groups, np.int64)
    np.maximum.at(once, domains.group, by_domain)
    yield Loss(
        reason="routing",
        tokens=int((everywhere - once).sum()),
        message="prefixes are computed again in further caches that their requests are sent to,"
        f" {plural(domains.count - len(np.unique(domains.group)), 'time')} in all",
    )
    longest, alone = _longest_requests(setting)
    yield from _of_groups(setting, "cold_start", once - alone, "the prefix of {group} is computed")
    names = [request_id(int(row)) for row in longest]
    yield from _of_groups(
        setting,
        "largest_request",
        alone,
        "{request}, the longest of {group}, reaches beyond all its others",
        requests=names,
    )


def _longest_requests(setting: Setting) -> tuple[IntArray, IntArray]:
    """Each group's longest request, and the tokens it could share that no other one can."""
    workload = setting.workload.first_turns
    most = setting.most_prefixes[: workload.request_count]
    rising = by_size(workload, most)
    rows = rising[np.argsort(workload.group[rising], kind="stable")]
    last = np.cumsum(workload.group_sizes) - 1
    several = workload.group_sizes > 1
    longest = rows[np.maximum(last, 0)]
    second = rows[np.maximum(last - 1, 0)]
    beyond = (most[longest] - most[second]).astype(np.int64) * setting.geometry.granularity
    return longest, np.where(several, beyond, 0)


def _of_groups(
    setting: Setting,
    reason: str,
    tokens: IntArray,
    message: str,
    requests: Sequence[str] | None = None,
) -> Iterator[Loss]:
    """A loss for each of the largest groups, and one for all others together."""
    names = setting.workload.group_ids
    largest = np.argsort(-tokens, kind="stable")
    for group in largest[:LISTED_GROUPS].tolist():
        request = "" if requests is None else requests[group]
        yield Loss(
            reason=reason,
            tokens=int(tokens[group]),
            group=names[group],
            message=message.format(group=names[group], request=request),
        )
    others = largest[LISTED_GROUPS:]
    yield Loss(
        reason=reason,
        tokens=int(tokens[others].sum()),
        message=f"the same in {plural(len(others), 'more group')}",
    )


def _lost_in_flight(setting: Setting) -> Iterator[Loss]:
    """Hits of the largest prefixes that come too early, or after the blocks were evicted."""
    if setting.keeps_all:
        return
    most, granularity = setting.most_prefixes, setting.geometry.granularity
    concurrency = setting.config.planning.concurrency
    capacity = setting.config.planning.capacity_blocks or 0
    kept = LagModel(setting.domains, setting.order, most, setting.waited_for).hits(concurrency)
    yield Loss(
        reason="concurrency",
        tokens=(setting.domains.hits(most) + setting.history_hits - kept) * granularity,
        message=f"with {concurrency} requests in flight some are sent before a prefix is cached",
    )
    yield Loss(
        reason="capacity",
        tokens=(kept - setting.range.most) * granularity,
        message=f"a cache of {plural(capacity, 'block')} evicts prefixes"
        " before they are asked for again",
    )


def unreachable_reasons(setting: Setting) -> list[Loss]:
    """Why a target, or a group's, lies outside the range; the most expensive reason first."""
    wanted, least, most = np.array([setting.targets.total]), setting.range.least, setting.range.most
    below, above = bool((wanted < least).any()), bool((wanted > most).any())
    if setting.targets.by_group is not None:
        wanted = np.array(setting.targets.by_group)
        below = bool((wanted < setting.group_range.least).any())
        above = bool((wanted > setting.group_range.most).any())
    return [*(losses(setting) if above else []), *(forced_hits(setting) if below else [])]
