"""Rows that every room speaks of: what is planned for a request or a group, and what it finds.

All lengths are tokens and count from token 0 of the sequence the server sees, head included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CacheScope(StrEnum):
    """How far a cached prefix is visible (RFC 2.7)."""

    GLOBAL = "global"
    INSTANCE_LOCAL = "instance_local"
    DP_LOCAL = "dp_local"


class ValidationStatus(StrEnum):
    """Verdict on a deviation (RFC 3.3.17)."""

    PASS = "PASS"
    PASS_WITH_WARNING = "PASS_WITH_WARNING"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """One planned request.

    `input_len = planned_prefix_len + divergence_len + suffix_len`; the head (BOS, template head,
    opening word) belongs to the prefix, the template's tail to the suffix.

    In a tree of prefixes `nodes_above` are the nodes that the request's group shares with others,
    from the root on, each with the token at which it ends. A later turn of a session names the
    turn before it; its planned prefix is what the server has stored of its own history.

    `namespace` numbers model and salt; requests of different ones share nothing, nor the head.
    """

    request_id: str
    prefix_group_id: str
    input_len: int
    output_len: int = 16
    planned_prefix_len: int = 0
    divergence_len: int = 0
    suffix_len: int = 0
    order_index: int = 0
    planned_dp_id: int = 0
    planned_instance_id: int = 0
    nodes_above: tuple[tuple[str, int], ...] = ()
    history_request_id: str | None = None
    namespace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixGroupPlan:
    """One prefix group: its requests and what the plan makes of them.

    `cold_start_loss` is what its largest prefix costs once a cache, beyond the head;
    `head_cold_loss` what the shared head costs in the caches that this group opens.
    """

    group_id: str
    request_count: int
    requests: tuple[RequestPlan, ...] = ()
    request_weight: float | None = None
    input_tokens: int = 0
    master_prefix_len: int = 0
    target_hit_tokens: int = 0
    designed_hit_tokens: int = 0
    max_reachable_hit_ratio: float = 0.0
    cold_start_loss: int = 0
    head_cold_loss: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """What one request finds in the cache, by whichever model or server says it.

    `expected_hit_len` is everything the engine reports; `expected_head_hit_len` is the part of it
    that a head shared by all groups gives.
    """

    request_id: str
    prefix_group_id: str
    input_len: int
    cached_watermark_before: int
    expected_hit_len: int
    cached_watermark_after: int
    expected_head_hit_len: int = 0
