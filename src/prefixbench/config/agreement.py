"""Settings of different sections that contradict each other.

A check names, by its parameters, the settings it compares; it is left out where one of them is
itself broken, so that all that can be said is said at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prefixbench.config.lengths import ExplicitLength, LengthDistributionConfig
from prefixbench.config.planning import PlanningConfig
from prefixbench.config.prefix import Carrier, PrefixGroupConfig
from prefixbench.config.problems import nearest_word
from prefixbench.config.prompt_format import PromptFormat
from prefixbench.config.routing import RoutingConfig, RoutingPolicy
from prefixbench.config.sessions import Answers, SessionsConfig
from prefixbench.config.suffix import (
    CacheMatchSemantics,
    SourceName,
    SuffixGenerationConfig,
)
from prefixbench.config.target import TargetHitRateConfig, TargetScope
from prefixbench.core.errors import ConfigProblem
from prefixbench.core.records import CacheScope
from prefixbench.core.wording import plural

Problems = Iterator[ConfigProblem]


def disagreements_between(settings: Mapping[str, Any]) -> Problems:
    """Every contradiction between the given settings (top-level key to validated value)."""
    for check in _CHECKS:
        needed = inspect.signature(check).parameters
        if all(name in settings for name in needed):
            yield from check(**{name: settings[name] for name in needed})


def _input_lengths_are_one_a_request(
    request_count: int, input_length: LengthDistributionConfig
) -> Problems:
    yield from _one_a_request("input_length", input_length, request_count)


def _output_lengths_are_one_a_request(
    request_count: int, output_length: LengthDistributionConfig
) -> Problems:
    yield from _one_a_request("output_length", output_length, request_count)


def _one_a_request(key: str, length: LengthDistributionConfig, request_count: int) -> Problems:
    if isinstance(length, ExplicitLength) and len(length.values) != request_count:
        yield ConfigProblem(
            path=f"{key}.values",
            message="does not have one length a request",
            given=plural(len(length.values), "length"),
            allowed=f"{plural(request_count, 'length')} (request_count)",
        )


def _unshared_part_leaves_room(
    input_length: LengthDistributionConfig, prefix: PrefixGroupConfig
) -> Problems:
    unshared = prefix.minimum_non_shared_length
    if unshared is None:
        return
    path = "prefix.minimum_non_shared_length"
    too_short = [index for index, length in enumerate(input_length.stated) if length < unshared]
    if too_short:
        yield ConfigProblem(
            path=path,
            message=f"is longer than request {too_short[0]}"
            f" ({len(too_short)} of {len(input_length.stated)} stated lengths)",
            given=str(unshared),
            allowed=f"at most {min(input_length.stated)}",
        )
    elif input_length.longest is not None and input_length.longest <= unshared:
        yield ConfigProblem(
            path=path,
            message="leaves no request room for a shared prefix",
            given=str(unshared),
            allowed=f"less than the longest request ({plural(input_length.longest, 'token')})",
        )


def _prompt_fits_the_model(
    input_length: LengthDistributionConfig, max_model_len: int | None
) -> Problems:
    if max_model_len is not None and min(input_length.stated, default=0) >= max_model_len:
        yield ConfigProblem(
            path="max_model_len",
            message="has no room for any request and its answer",
            given=str(max_model_len),
            allowed=f"more than {min(input_length.stated)}",
        )


def _groups_cover_the_requests(request_count: int, prefix: PrefixGroupConfig) -> Problems:
    if prefix.assignment:
        yield from _assignment_fits(request_count, prefix)
        return
    if len(prefix.group_ids) > request_count:
        yield ConfigProblem(
            path=_naming_key(prefix),
            message="has more groups than there are requests",
            given=plural(len(prefix.group_ids), "group"),
            allowed=f"at most {request_count} (request_count)",
        )
    counts = [group.request_count for group in prefix.groups]
    counted = sum(count for count in counts if count is not None)
    weighted = counts.count(None)
    if weighted == len(counts):
        return
    if (not weighted and counted != request_count) or counted + weighted > request_count:
        yield ConfigProblem(
            path="prefix.groups",
            message="request_count of the groups does not sum to request_count",
            given=plural(counted, "request"),
            allowed=f"at most {request_count - weighted}, the rest goes to groups with a weight"
            if weighted
            else plural(request_count, "request"),
        )


def _naming_key(prefix: PrefixGroupConfig) -> str:
    if prefix.group_count:
        return "prefix.group_count"
    return "prefix.tree" if prefix.tree else "prefix.groups"


def _assignment_fits(request_count: int, prefix: PrefixGroupConfig) -> Problems:
    path = "prefix.assignment"
    if len(prefix.assignment) != request_count:
        yield ConfigProblem(
            path=path,
            message="does not have one group a request",
            given=plural(len(prefix.assignment), "entry", "entries"),
            allowed=f"{plural(request_count, 'entry', 'entries')} (request_count)",
        )
    if not prefix.groups:
        return
    yield from _known_groups(path, prefix.assignment, prefix.group_ids)
    for group in prefix.groups:
        assigned = prefix.assignment.count(group.id)
        if not assigned:
            yield ConfigProblem(
                path=path,
                message="gives a group no request",
                given=group.id,
                allowed="at least one request for each of prefix.groups",
            )
        elif group.request_count not in (None, assigned):
            yield ConfigProblem(
                path=path,
                message=f"contradicts request_count {group.request_count} of {group.id}",
                given=plural(assigned, "request"),
                allowed="the same number in both, or no request_count",
            )


def _targets_name_the_groups(target: TargetHitRateConfig, prefix: PrefixGroupConfig) -> Problems:
    if target.scope is not TargetScope.PER_GROUP or not target.groups:
        return
    named = [group.id for group in target.groups]
    yield from _known_groups("target.groups", named, prefix.group_ids)
    for missing in (name for name in prefix.group_ids if name not in named):
        yield ConfigProblem(
            path="target.groups",
            message="has no target for a group",
            given=missing,
            allowed="a target for each group, or scope: global",
        )


def _bindings_name_the_groups(routing: RoutingConfig, prefix: PrefixGroupConfig) -> Problems:
    if routing.policy is not RoutingPolicy.EXPLICIT or not routing.bindings:
        return
    yield from _known_groups("routing.bindings", routing.bindings, prefix.group_ids)
    for missing in (name for name in prefix.group_ids if name not in routing.bindings):
        yield ConfigProblem(
            path="routing.bindings",
            message="has no rank for a group",
            given=missing,
            allowed="a rank for each group",
        )


def _groups_share_a_limited_cache(
    target: TargetHitRateConfig, planning: PlanningConfig
) -> Problems:
    if planning.capacity_blocks is not None and target.scope is TargetScope.PER_GROUP:
        yield ConfigProblem(
            path="planning.capacity_blocks",
            message="cannot be used together with a target for each group: in a cache of limited"
            " size each group's hits depend on the others",
            given=str(planning.capacity_blocks),
            allowed="target.scope: global beside it, or no planning.capacity_blocks",
        )


def _a_tree_shares_across_groups(
    prefix: PrefixGroupConfig, target: TargetHitRateConfig, planning: PlanningConfig
) -> Problems:
    if not prefix.tree:
        return
    if target.scope is TargetScope.PER_GROUP:
        yield ConfigProblem(
            path="prefix.tree",
            message="cannot be used together with a target for each group: what a leaf finds"
            " depends on the others",
            allowed="target.scope: global beside it",
        )
    if planning.capacity_blocks is not None:
        yield ConfigProblem(
            path="prefix.tree",
            message="cannot be planned for a limited cache",
            allowed="no planning.capacity_blocks beside it",
        )


def _sessions_are_whole(
    sessions: SessionsConfig | None,
    input_length: LengthDistributionConfig,
    prefix: PrefixGroupConfig,
    planning: PlanningConfig,
    routing: RoutingConfig,
) -> Problems:
    if sessions is None:
        return
    local = routing.cache_scope is not CacheScope.GLOBAL and routing.rank_count > 1
    excluded = {
        "input_length": (isinstance(input_length, ExplicitLength), "a length for each request"),
        "prefix.assignment": (bool(prefix.assignment), "a group for each request"),
        "prefix.groups": (
            any(group.request_count is not None for group in prefix.groups),
            "request_count of a group",
        ),
        "prefix.nested_prefix": (not prefix.nested_prefix, "prefixes of one length"),
        "planning.capacity_blocks": (planning.capacity_blocks is not None, "a limited cache"),
        "routing.policy": (
            local and routing.policy is RoutingPolicy.ROUND_ROBIN,
            "turns that go to caches in turn",
        ),
    }
    for path, (given, what) in excluded.items():
        if given:
            yield ConfigProblem(
                path=path,
                message=f"gives {what}, which sessions do not allow",
                allowed="no sessions beside it, or another setting",
            )


def _known_groups(path: str, named: Any, known: tuple[str, ...]) -> Problems:
    for name in dict.fromkeys(named):
        if name not in known:
            yield ConfigProblem(
                path=path,
                message="names an unknown group",
                given=name,
                allowed=" / ".join(known),
                nearest=nearest_word(name, known),
            )


def _prefix_texts_have_a_file(
    prefix: PrefixGroupConfig, suffix: SuffixGenerationConfig
) -> Problems:
    source = prefix.source or suffix.source
    path = prefix.path or suffix.path
    if source is SourceName.TEXT and path is None and prefix.source is not None:
        yield ConfigProblem(
            path="prefix.path",
            message="is required with prefix.source: text",
            allowed="a jsonl, txt, csv or parquet file",
        )
    if prefix.path is not None and source not in (SourceName.TEXT, SourceName.GSM8K):
        yield ConfigProblem(
            path="prefix.path",
            message=f"cannot be used with prefix.source: {source}",
            allowed="prefix.source: text or gsm8k",
        )


def _sessions_are_text(
    sessions: SessionsConfig | None, prompt_format: PromptFormat, suffix: SuffixGenerationConfig
) -> Problems:
    if sessions is None:
        return
    if prompt_format is PromptFormat.CHAT:
        yield ConfigProblem(
            path="prompt_format",
            message="cannot be used together with sessions: a template may render an earlier turn"
            " in another way than the last one",
            given=str(prompt_format),
            allowed=" / ".join((PromptFormat.TEXT, PromptFormat.TOKEN_IDS)),
        )
    semantics = suffix.collision_detection.cache_match_semantics
    chained = CacheMatchSemantics.CHAINED_PREFIX
    if sessions.answers is Answers.SERVED and semantics is not chained:
        yield ConfigProblem(
            path="suffix.collision_detection.cache_match_semantics",
            message="cannot be used together with sessions.answers: served, whose texts are known"
            " only once the server has answered",
            given=str(semantics),
            allowed=f"{chained}, or sessions.answers: {Answers.PLANNED}",
        )


def _a_system_prompt_is_for_chats(
    prefix: PrefixGroupConfig, prompt_format: PromptFormat, suffix: SuffixGenerationConfig
) -> Problems:
    if prefix.carrier is not Carrier.SYSTEM:
        return
    if prompt_format is not PromptFormat.CHAT:
        yield ConfigProblem(
            path="prefix.carrier",
            message="names a message, which only chats have",
            given=str(prefix.carrier),
            allowed=f"prompt_format: {PromptFormat.CHAT} beside it",
        )
    if not suffix.divergence_block:
        yield ConfigProblem(
            path="prefix.carrier",
            message="needs a divergence block: what the template puts behind a system prompt is"
            " equal in all requests",
            given=str(prefix.carrier),
            allowed="suffix.divergence_block: true",
        )


_CHECKS: tuple[Callable[..., Problems], ...] = (
    _input_lengths_are_one_a_request,
    _output_lengths_are_one_a_request,
    _unshared_part_leaves_room,
    _prompt_fits_the_model,
    _groups_cover_the_requests,
    _targets_name_the_groups,
    _bindings_name_the_groups,
    _groups_share_a_limited_cache,
    _a_tree_shares_across_groups,
    _sessions_are_whole,
    _prefix_texts_have_a_file,
    _sessions_are_text,
    _a_system_prompt_is_for_chats,
)
