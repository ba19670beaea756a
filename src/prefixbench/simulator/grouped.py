"""vLLM's scheduler over a model whose layers keep their KV in several groups.

The step is that of `scheduler`; what a request holds differs: a row of blocks for each group, all
from one pool. Executed in vLLM 0.28, 0.30, 0.32 and 0.33:

- a group of a window gives up the blocks behind it before a request takes new ones;
- a recurrent group holds the state of the last block alone, and the one that it goes on from; its
  chunks end where a block ends, where the last block that can hit ends, and at a junction; a state
  that is named in a step is found from the next step on;
- a whole prompt is reserved with at most a window and a token budget of blocks for such a group;
- up to 0.28 every block that can end a hit is named; from 0.29 on only those where a later request
  is expected to go on: before the last token of this prompt, and where this prompt left a prefix
  that another group still has. A shared prefix is therefore seen twice before it hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefixbench.simulator.block_keys import BlockKeys, Key
from prefixbench.simulator.block_pool import KEYLESS, Block
from prefixbench.simulator.kv_groups import GroupLayout, Row
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import EngineProfile, StateNaming
from prefixbench.simulator.scheduler import MixedScheduler
from prefixbench.simulator.stepping import Found, SchedulerOptions, StepPlan


@dataclass(slots=True)
class _Table:
    """What a request holds: a row for each group, and how many places of it were named or not."""

    rows: list[Row]
    settled: list[int]
    junction: int
    given_up: list[int]

    @property
    def blocks(self) -> list[Block]:
        return [block for row in self.rows for block in row if block]

    @property
    def keyless_blocks(self) -> int:
        return sum(row.count(KEYLESS) for row in self.rows)


class GroupedScheduler(MixedScheduler):
    """vLLM's step with a row of blocks for each KV group."""

    def __init__(
        self, profile: EngineProfile, options: SchedulerOptions, now_ns: Callable[[], int]
    ) -> None:
        super().__init__(profile, options, now_ns)
        self._layout = GroupLayout(profile.groups, options.block_size)
        self._keys = BlockKeys(self._layout.name_len)
        self._tables: dict[LiveRequest, _Table] = {}
        # States that were named in this step.
        self._fresh: set[Key] = set()

    def schedule(self) -> StepPlan:
        self._fresh.clear()
        return super().schedule()

    def blocks_for(self, length: int) -> int:
        return sum(
            min(self._all_blocks(group, length), 2)
            if self._layout.groups[group].recurrent
            else self._most_blocks(group, length)
            for group in range(len(self._layout.sizes))
        )

    # Looking up.

    def _find(self, live: LiveRequest, limit: int) -> Found:
        def find(group: int, place: int) -> Block | None:
            found = self.pool.find((self._key_of(live, group, place),))
            return found[0] if found else None

        rows, hit_len, longest = self._layout.match(find, limit)
        blocks = [block for row in rows for block in row if block is not None]
        return Found(blocks, hit_len, tuple(rows), longest if longest > hit_len else 0)

    def _key_of(self, live: LiveRequest, group: int, place: int) -> Key:
        """The key of a group's block; blocks of different groups never are the same."""
        layout = self._layout
        end = (place + 1) * layout.sizes[group] // layout.name_len
        return self._keys_of(live)[end - 1] * len(layout.sizes) + group

    def _name_of(self, key: Key) -> Key:
        return key // len(self._layout.sizes)

    # Blocks of one request.

    def _chunk(self, live: LiveRequest, tokens: int) -> int:
        return self._cut(live, live.computed_len, tokens, self._tables[live].junction)

    def _first_chunk(self, live: LiveRequest, found: Found, start: int, tokens: int) -> int:
        return self._cut(live, start, tokens, found.junction)

    def _cut(self, live: LiveRequest, start: int, tokens: int, junction: int) -> int:
        """Cut a chunk of a prompt where a state is to be kept."""
        prefill_end = max(live.prompt_len, live.known_len - 1)
        if not self._layout.has_states or start >= prefill_end:
            return tokens
        step = self._layout.alignment
        end = start + tokens
        if end < prefill_end and (end // step * step > start or step <= self._longest_prefill):
            end = end // step * step
        stops = [(live.known_len - 1) // step * step]
        if start % step:
            stops.append((start // step + 1) * step)
        if start < junction < end:
            stops.append(start + (junction - start) // step * step)
        return max(min((stop for stop in stops if start < stop < end), default=end) - start, 0)

    @property
    def _longest_prefill(self) -> int:
        threshold = self.options.long_prefill_token_threshold
        budget = self.options.max_num_batched_tokens
        return min(threshold or budget, budget)

    def _may_start(self, live: LiveRequest, found: Found, end: int) -> bool:
        if self._waits_for_a_state(live, found):
            return False
        free = self.pool.free_blocks - self.pool.idle_count(found.blocks)
        if self._missing(found, end + self.rules.draft_tokens, self._all_blocks) > free:
            return False
        whole = self._missing(found, live.known_len, self._most_blocks)
        return whole <= free or not self._profile.reserve_whole_prompt

    def _missing(self, found: Found, length: int, blocks: Callable[[int, int], int]) -> int:
        """Blocks that are to be taken beside the found ones, for the first `length` tokens."""
        missing = 0
        for group in range(len(self._layout.sizes)):
            there = len(found.tables[group]) if found.tables else 0
            there = max(there, self._layout.unneeded_blocks(group, found.hit_len))
            missing += self._added(group, blocks(group, length) - there)
        return missing

    def _added(self, group: int, blocks: int) -> int:
        """Blocks that a group takes to reach so many places further."""
        return min(max(blocks, 0), 1) if self._layout.groups[group].recurrent else max(blocks, 0)

    def _waits_for_a_state(self, live: LiveRequest, found: Found) -> bool:
        return any(
            self._key_of(live, group, len(row) - 1) in self._fresh
            for group, row in enumerate(found.tables)
            if row and self._layout.groups[group].recurrent
        )

    def _all_blocks(self, group: int, length: int) -> int:
        return -(-length // self._layout.sizes[group])

    def _most_blocks(self, group: int, length: int) -> int:
        """Places of which a group holds blocks at a time while this length is computed."""
        window, whole = self._layout.groups[group].window, self._all_blocks(group, length)
        if window is None:
            return whole
        in_sight = window - 1 + self.options.max_num_batched_tokens
        return min(whole, self._all_blocks(group, in_sight) + 1)

    def _hold(self, live: LiveRequest, found: Found) -> None:
        self.pool.hold(found.blocks)
        rows = [list(row) for row in found.tables] or [[] for _ in self._layout.sizes]
        self._tables[live] = _Table(
            rows, [len(row) for row in rows], found.junction, [0] * len(rows)
        )

    def _grow(self, live: LiveRequest, end: int) -> bool:
        table = self._tables[live]
        self._give_up_unneeded(live, table)
        further = [
            max(self._all_blocks(group, end + self.rules.draft_tokens) - len(row), 0)
            for group, row in enumerate(table.rows)
        ]
        added = [self._added(group, places) for group, places in enumerate(further)]
        if sum(added) > self.pool.free_blocks:
            return False
        self.pool.take(sum(added))
        for row, places, blocks in zip(table.rows, further, added, strict=True):
            row += [None] * (places - blocks)
            row += [KEYLESS] * blocks
        self._publish(live, end)
        return True

    def _give_up_unneeded(self, live: LiveRequest, table: _Table) -> None:
        for group, row in enumerate(table.rows):
            begin = table.given_up[group]
            end = min(self._layout.unneeded_blocks(group, live.computed_len), len(row))
            if end > begin:
                self.pool.release_row(row[begin:end])
                row[begin:end] = [None] * (end - begin)
                table.given_up[group] = end

    def _publish(self, live: LiveRequest, end: int) -> None:
        """Name what can help later requests; nothing is settled, as windows move every step."""
        if not self.rules.caches:
            return
        table, layout = self._tables[live], self._layout
        length = layout.nameable_len(end)
        boundaries = self._expected_boundaries(live, table)
        for group, (row, size) in enumerate(zip(table.rows, layout.sizes, strict=True)):
            places = range(table.settled[group], length // size)
            for place in layout.worth_naming(group, places, boundaries):
                if row[place] == KEYLESS:
                    key = self._key_of(live, group, place)
                    row[place] = self.pool.publish((key,))[0]
                    if layout.groups[group].recurrent:
                        self._fresh.add(key)
            table.settled[group] = max(places.stop, table.settled[group])
        if self._profile.state_naming is StateNaming.WHILE_HELD:
            self._note_last_state(live, table, length)

    def _note_last_state(self, live: LiveRequest, table: _Table, length: int) -> None:
        """The last state of a prompt that can hit counts as new while the prompt ends behind it."""
        layout = self._layout
        if length != layout.nameable_len(live.prompt_len - 1):
            return
        for group, (row, size) in enumerate(zip(table.rows, layout.sizes, strict=True)):
            place = length // size - 1
            if layout.groups[group].recurrent and place >= 0 and row[place] is not None:
                self._fresh.add(self._key_of(live, group, place))

    def _expected_boundaries(self, live: LiveRequest, table: _Table) -> Sequence[int] | None:
        """Where later requests are expected to go on; None: anywhere."""
        return (live.prompt_len - 1, table.junction) if self._profile.sparse_retention else None

    def _release(self, live: LiveRequest) -> None:
        table = self._tables.pop(live, None)
        for row in table.rows if table else ():
            self.pool.release_row(row)
        live.computed_len = 0

    def _holding(self, live: LiveRequest) -> tuple[list[Block], int]:
        table = self._tables.get(live)
        return (table.blocks, table.keyless_blocks) if table else ([], 0)

    def _room(self, live: LiveRequest) -> int:
        table = self._tables.get(live)
        rows = zip(table.rows, self._layout.sizes, strict=True) if table else ()
        return min((len(row) * size for row, size in rows), default=0)
