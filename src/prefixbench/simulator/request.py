"""A request as it is submitted, and as an engine carries it until it is finished."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from prefixbench.simulator.block_keys import Key
from prefixbench.simulator.block_pool import Block


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request: its prompt, and the tokens the engine will generate for it (at least one).

    `extra_key` separates caches (adapter, cache salt): requests with different ones share nothing.
    An image, a sound or an embedding has no key of its own: its placeholder tokens are numbers that
    stand for it, so that blocks are equal where vLLM's keys (item and place in it) are.
    A smaller `priority` is more important.
    """

    request_id: str
    prompt: Sequence[int]
    output: Sequence[int]
    extra_key: tuple[Hashable, ...] = ()
    priority: int = 0


@dataclass(slots=True, eq=False)
class LiveRequest:
    """The engine's view of an unfinished request. All counts are tokens unless named blocks.

    `known_len` counts prompt and generated tokens, `computed_len` those whose KV is in the cache.
    Known and not computed is what is left to schedule; a request that only decodes lacks one.
    """

    request: EngineRequest
    number: int
    request_id: str = field(init=False)
    prompt_len: int = field(init=False)
    final_len: int = field(init=False)
    known_len: int = field(init=False)
    computed_len: int = 0
    #: No block has to be taken or published while `computed_len` stays at or below this.
    settled_len: int = 0
    #: Its leading blocks, which carry keys, and the number of those after them.
    blocks: list[Block] = field(default_factory=list)
    keyless_blocks: int = 0
    keys: list[Key] | None = None
    admissions: int = 0

    def __post_init__(self) -> None:
        self.request_id = self.request.request_id
        self.prompt_len = len(self.request.prompt)
        self.known_len = self.prompt_len
        self.final_len = self.prompt_len + len(self.request.output)

    @property
    def rank(self) -> tuple[int, int]:
        """Order under the priority policy: the smallest runs first, the largest is the victim."""
        return (self.request.priority, self.number)

    @property
    def output_len(self) -> int:
        return self.known_len - self.prompt_len

    @property
    def missing_outputs(self) -> int:
        return self.final_len - self.known_len
