"""Where the tokens of a run go that no plan can make hits: the reasons behind a maximum.

Every token of a run belongs to exactly one of: the most hits, the template's tail, the non-shared
length, the rest of a block, the cold start of a domain, the head of a cold cache. The parts sum to
all input tokens, so each reason has a price in percentage points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prefixbench.workload.setting import Setting

#: Domains whose cold start is listed on its own; the largest.
LISTED_DOMAINS = 10


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
    parts = [*_request_losses(setting), *_cold_losses(setting)]
    return sorted((loss for loss in parts if loss.tokens), key=lambda loss: -loss.tokens)


def _request_losses(setting: Setting) -> list[Loss]:
    """What every request keeps for itself behind its largest prefix."""
    geometry, lengths = setting.geometry, setting.workload.input_len
    unshared = lengths - setting.most_prefixes * geometry.granularity
    tail = np.minimum(unshared, geometry.tail_len)
    kept = np.minimum(unshared - tail, geometry.minimum_non_shared_len)
    rest = unshared - tail - kept
    return [
        Loss(
            reason="template_tail",
            tokens=int(tail.sum()),
            message=f"every prompt ends with {geometry.tail_len} template tokens",
        ),
        Loss(
            reason="minimum_non_shared_length",
            tokens=int(kept.sum()),
            message=f"{geometry.minimum_non_shared_len} tokens of every request stay unshared",
        ),
        Loss(
            reason="block_rounding",
            tokens=int(rest.sum()),
            message=f"prefixes end on whole blocks of {geometry.granularity} tokens",
        ),
    ]


def _cold_losses(setting: Setting) -> list[Loss]:
    """What each (cache, group) domain computes once, and the head each cache computes once."""
    if setting.counts_prefixes:
        return []
    domains, granularity = setting.domains, setting.geometry.granularity
    lost = domains.cold_losses(setting.most_prefixes) * granularity
    names = setting.workload.group_ids
    largest = np.argsort(-lost, kind="stable")
    listed, others = largest[:LISTED_DOMAINS], largest[LISTED_DOMAINS:]
    by_domain = [
        Loss(
            reason="cold_start",
            tokens=int(lost[domain]),
            group=names[domains.group[domain]],
            message=f"the largest prefix of {names[domains.group[domain]]} is computed once"
            f" in cache {domains.cache[domain]}",
        )
        for domain in listed
    ]
    rest = Loss(
        reason="cold_start",
        tokens=int(lost[others].sum()),
        message=f"{len(others)} more prefixes are computed once each",
    )
    head = Loss(
        reason="cold_head",
        tokens=domains.head_loss * granularity,
        message="each cache computes the shared head once",
    )
    return [*by_domain, rest, head]
