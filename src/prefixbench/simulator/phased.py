"""A scheduler whose steps either prefill or decode, as nano-vLLM does it (read in bb823b3).

1. Prefill: waiting requests are admitted in order while budget, seats and blocks last; a request
   gets the blocks of its whole prompt at once. Only the first request of a step may be cut to what
   is left of the budget; it keeps its place until its prompt is done.
2. If nothing was prefilled, all running requests decode; when blocks are short the last running
   one is pushed back, at worst the request itself.
3. Full blocks are published after the step, so that requests of one step never hit each other.
"""

from __future__ import annotations

from prefixbench.simulator.paged import PagedScheduler
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.stepping import Found, StepPlan


class PhasedScheduler(PagedScheduler):
    """nano-vLLM's step."""

    def schedule(self) -> StepPlan:
        plan = StepPlan()
        budget = self.options.max_num_batched_tokens
        while self.waiting and budget and len(plan.lives) < self.options.max_num_seqs:
            tokens = self._prefill(self.waiting.first(), budget, plan)
            if not tokens:
                break
            budget -= tokens
        if not plan.lives:
            self._decode(plan)
        return plan

    def complete(self, plan: StepPlan) -> None:
        for live, tokens in zip(plan.lives, plan.scheduled.values(), strict=True):
            self._publish(live, live.computed_len + tokens)
            self._settle(live)
        super().complete(plan)

    def _prefill(self, live: LiveRequest, budget: int, plan: StepPlan) -> int:
        """Schedule a part of the first waiting request; returns its tokens, 0 if it must wait."""
        starts = not live.blocks and not live.keyless_blocks
        found = self._look_up(live) if starts else Found([], 0)
        start = self._len_at_start(live, found) if starts else live.computed_len
        tokens = live.known_len - start
        if tokens > budget and plan.lives:
            return 0
        if starts:
            if not self._has_room(found, live.known_len):
                return 0
            self._start(live, found, start, plan)
            self._grow(live, live.known_len)
        tokens = min(tokens, budget)
        if start + tokens == live.known_len:
            self.waiting.remove_first()
            self.running.append(live)
        plan.add(live, tokens)
        return tokens

    def _decode(self, plan: StepPlan) -> None:
        index = 0
        while index < min(len(self.running), self.options.max_num_seqs):
            live = self.running[index]
            while live.computed_len + 1 > live.settled_len and not self._grow(
                live, live.computed_len + 1
            ):
                victim = self.running[-1]
                self._push_back(victim, plan)
                if victim is live:
                    break
            else:
                plan.add(live, 1)
                index += 1

    def _push_back(self, live: LiveRequest, plan: StepPlan) -> None:
        self.running.remove(live)
        self._release(live)
        self.waiting.add_preempted(live)
        plan.preempted.append(live.request_id)
