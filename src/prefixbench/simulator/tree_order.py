"""In which order a tree engine looks at its waiting requests (SGLang 0.5.23, read).

- `fcfs` (default): as they arrived.
- `lpm`: the longest match first; with more than 128 waiting, as they arrived. A request that finds
  little in the tree but shares a prefix with an earlier waiting one goes last, so that the earlier
  one computes the prefix for both.
- `dfs-weight`: depth first over the tree, the branch with most waiting requests first.

Probing for an order touches the tree, as in SGLang, but counts no query.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence

from prefixbench.simulator.radix import Match, Node, RadixTree
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.waiting import Policy

#: More waiting requests than this are not sorted by their match.
LPM_QUEUE_LIMIT = 128
#: A request that matches at most so many tokens of the tree is compared with others that wait.
IN_BATCH_CHECK_LEN = 32
#: A request that shares at least so many tokens with an earlier waiting one goes last.
IN_BATCH_SHARED_LEN = 32

TokensOf = Callable[[LiveRequest], "array[int]"]
Probe = Callable[[LiveRequest], Match]


def admission_order(
    policy: Policy, waiting: Sequence[LiveRequest], probe: Probe, tokens_of: TokensOf
) -> list[LiveRequest]:
    """The waiting requests, which stand in order of arrival, in the order of the policy.

    `probe` gives what a request finds in the tree, `tokens_of` its known tokens.
    """
    match policy:
        case Policy.LPM if len(waiting) <= LPM_QUEUE_LIMIT:
            return _longest_match_first(waiting, probe, tokens_of)
        case Policy.DFS_WEIGHT:
            return _heaviest_branch_first(waiting, probe)
        case _:
            return list(waiting)


def _longest_match_first(
    waiting: Sequence[LiveRequest], probe: Probe, tokens_of: TokensOf
) -> list[LiveRequest]:
    earlier = RadixTree(page_size=1)
    rank: dict[LiveRequest, tuple[bool, int]] = {}
    for live in waiting:
        hit = probe(live).hit_len
        goes_last = False
        if hit <= IN_BATCH_CHECK_LEN:
            tokens, extra_key = tokens_of(live), live.request.extra_key
            goes_last = earlier.match(tokens, extra_key).hit_len >= IN_BATCH_SHARED_LEN
            if not goes_last:
                earlier.insert(tokens, extra_key)
        rank[live] = (goes_last, 0 if goes_last else -hit)
    return sorted(waiting, key=rank.__getitem__)


def _heaviest_branch_first(waiting: Sequence[LiveRequest], probe: Probe) -> list[LiveRequest]:
    waiting_at: defaultdict[Node, list[LiveRequest]] = defaultdict(list)
    for live in waiting:
        waiting_at[probe(live).node].append(live)
    weights: defaultdict[Node, int] = defaultdict(int)
    tops: dict[Node, None] = {}
    for node, here in waiting_at.items():
        above = node
        weights[above] += len(here)
        while above.parent is not None:
            above = above.parent
            weights[above] += len(here)
        tops[above] = None
    order: list[LiveRequest] = []
    stack = [(top, False) for top in reversed(tops)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            order += waiting_at.get(node, ())
            continue
        stack.append((node, True))
        busy = [child for child in node.children.values() if weights.get(child)]
        stack += [(child, False) for child in sorted(busy, key=lambda child: weights[child])]
    return order
