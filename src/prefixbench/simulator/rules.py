"""The rules of one engine version as data.

A profile is what differs between engines; the code that follows the rules is one simulator. The
rows stand in `vllm_profiles` and `other_profiles`, each value with where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from prefixbench.core.records import CacheScope


class CacheKind(StrEnum):
    """How the cache is built."""

    BLOCKS = "pool of blocks"
    TREE = "radix tree"
    SLOTS = "slots"


class LastToken(StrEnum):
    """Whether the last token of a request may come from the cache."""

    COMPUTED = "at most n-1 tokens hit"
    MAY_HIT = "all n tokens may hit"


class PartialBlock(StrEnum):
    """What a block that is not full does."""

    OCCUPIES = "takes a block, never hits"
    NO_ROOM = "takes no room, never hits"
    HITS = "hits token by token"


class PublishPoint(StrEnum):
    """When a block becomes findable for other requests."""

    SCHEDULE = "at schedule, before it is computed"
    ROUND_END = "at the end of the scheduling round"
    STEP_END = "after the step"
    RESULT = "after the result was processed"


class KeylessFreed(StrEnum):
    """Where a freed block goes that carries no key."""

    FRONT = "head of the free queue"
    BACK = "tail of the free queue"
    AT_ONCE = "freed at once"


class EvictionUnit(StrEnum):
    """What is lost at a time."""

    BLOCK = "block"
    LEAF = "leaf node"
    SLOT = "slot"


class TouchOrder(StrEnum):
    """Which end of a chain is lost first."""

    TAIL_FIRST = "tail before head"
    WHOLE = "whole entry"


class Duplicates(StrEnum):
    """What happens to a second block of the same content."""

    KEPT = "kept; the oldest is found"
    LAST_WRITER = "kept; the latest is found"
    SHARED = "never made"


class Counting(StrEnum):
    """When queries and hits are counted."""

    LOOK_UP = "at every look-up"
    ADMISSION = "at admission"
    FINISH = "at finish"
    CALLER = "by the caller"


class Readmission(StrEnum):
    """How the look-up after a preemption is counted."""

    COUNTED = "like the first"
    HIDDEN = "apart, not exported"
    NOT_COUNTED = "not counted"


class StateNaming(StrEnum):
    """When the state of a recurrent group cannot be found because it is new in the step."""

    WHILE_HELD = "in each step in which its prompt ends behind it"
    ONCE = "in the step that names it"
    NOT_SIMULATED = "not simulated"


class SelfPreemption(StrEnum):
    """What follows when a running request has to give up its own blocks (priority policy)."""

    ENDS_PASS = "no other running request is scheduled"
    PASSED_OVER = "those after it are scheduled"


class Lookahead(StrEnum):
    """How speculative decoding (EAGLE, MTP) changes a match."""

    DROP_BLOCK = "the last matched block is dropped"
    NEXT_TOKEN_KEY = "a block's key includes the next token"
    BIGRAM_KEY = "a key token is a pair of tokens"
    NONE = "not supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroup:
    """Layers whose KV is kept alike, in blocks of their own from the one pool.

    `window` tokens are attended to; None: all (full attention). A `recurrent` group (Mamba, linear
    attention) has one state instead, which stands for all tokens before. `block_size` None is the
    engine's.

    >>> str(KVGroup(window=1024))
    'window 1024'
    """

    window: int | None = None
    recurrent: bool = False
    block_size: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether every block of a prefix is needed."""
        return self.window is None and not self.recurrent

    def __str__(self) -> str:
        kind = "full" if self.window is None else f"window {self.window}"
        kind = "recurrent" if self.recurrent else kind
        return kind if self.block_size is None else f"{kind} in blocks of {self.block_size}"


class Role(StrEnum):
    """What part of a request an engine of a split deployment does."""

    WHOLE = "prefill and decode"
    PREFILL = "prefill: ends with the first token"
    DECODE = "decode: the prompt's KV is handed over"


class TierWrite(StrEnum):
    """When a tier receives what it holds."""

    THROUGH = "when it was computed"
    ON_EVICTION = "when the cache above loses it"


#: A tier whose units are the device's blocks, whatever their size.
DEVICE_BLOCK = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRules:
    """A cache below the device's, which keeps and finds whole units of `unit_len` tokens.

    Room is `capacity_units` (None: without limit), the least recently used unit goes first. A unit
    that was neither stored nor used for `ttl_ns` is gone. What a request finds here costs `load_ns`
    once and `load_token_ns` a token. Without `stores_output` only prompts are written through.

    >>> str(TierRules(name="host", unit_len=256, capacity_units=100))
    'host: 100 units of 256 tokens, written when it was computed'
    """

    name: str
    unit_len: int
    write: TierWrite = TierWrite.THROUGH
    stores_output: bool = True
    capacity_units: int | None = None
    ttl_ns: int | None = None
    load_ns: float = 0.0
    load_token_ns: float = 0.0

    def __str__(self) -> str:
        room = "" if self.capacity_units is None else f"{self.capacity_units} "
        unit = (
            f"units of {self.unit_len} tokens" if self.unit_len else "blocks of the device's size"
        )
        return f"{self.name}: {room}{unit}, written {self.write}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One engine version. `notes` says for each field where its value comes from.

    `block_size` is the default; `hit_granularity` of a profile is its block size, or 1 where a
    partial block hits.
    """

    name: str
    engine: str
    versions: str
    cache: CacheKind = CacheKind.BLOCKS
    block_size: int
    last_token: LastToken = LastToken.COMPUTED
    partial_block: PartialBlock = PartialBlock.OCCUPIES
    publish: PublishPoint
    keyless_freed: KeylessFreed
    eviction: EvictionUnit = EvictionUnit.BLOCK
    touch_order: TouchOrder = TouchOrder.TAIL_FIRST
    duplicates: Duplicates = Duplicates.KEPT
    counting: Counting = Counting.ADMISSION
    readmission: Readmission = Readmission.HIDDEN
    reserve_whole_prompt: bool = True
    mixed_steps: bool = True
    lone_ignores_threshold: bool = False
    self_preemption: SelfPreemption = SelfPreemption.ENDS_PASS
    sparse_retention: bool = False
    state_naming: StateNaming = StateNaming.NOT_SIMULATED
    lookahead: Lookahead = Lookahead.NONE
    #: Draft tokens of speculative decoding (EAGLE, MTP); 0: none.
    draft_tokens: int = 0
    #: KV groups of the model; none: one of full attention.
    groups: tuple[KVGroup, ...] = ()
    scope: CacheScope = CacheScope.DP_LOCAL
    hit_definition: str = "tokens_engine"
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    role: Role = Role.WHOLE
    tiers: tuple[TierRules, ...] = ()
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def hit_granularity(self) -> int:
        """The smallest step of hits, in tokens."""
        return 1 if self.partial_block is PartialBlock.HITS else self.block_size

    @property
    def is_simulated(self) -> bool:
        """Whether the engine follows these rules; other rows only describe theirs."""
        if self.cache is not CacheKind.BLOCKS:
            return self.role is not Role.DECODE
        return self.eviction is EvictionUnit.BLOCK and self.partial_block is not PartialBlock.HITS

    def values(self) -> dict[str, str | int | bool]:
        """Every rule by name, plain, as the printed table and `--json` show it."""
        rules = [
            rule.name for rule in fields(self) if rule.name not in ("groups", "tiers", "notes")
        ]
        return {
            **{name: getattr(self, name) for name in rules},
            "groups": "; ".join(map(str, self.groups)) or "full",
            "tiers": "; ".join(map(str, self.tiers)) or "none",
            "simulated": self.is_simulated,
        }


def profile_row(notes: Mapping[str, str], **values: Any) -> EngineProfile:
    """A row of the table with the sources of its values."""
    return EngineProfile(**values, notes=MappingProxyType(dict(notes)))


def next_row(base: EngineProfile, notes: Mapping[str, str], **changes: Any) -> EngineProfile:
    """A row that differs from another one in what is given; other notes are inherited."""
    return replace(base, **changes, notes=MappingProxyType({**base.notes, **notes}))
