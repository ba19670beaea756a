"""A scheduler that mixes prefill and decode in one token budget, as vLLM v1 does.

Read in vLLM 0.9 to 0.33, executed 0.18 to 0.33; what changed between versions is in the profile.
One step:

1. Running requests, in order: each gets what it lacks, capped by the chunk limit and by what is
   left of the budget. When blocks are short, running requests are preempted from the end (under
   the priority policy: the least important one) until the current one fits or is itself preempted;
   up to 0.32 the latter ends the pass.
2. If nothing was preempted, waiting requests are admitted in order, and admission stops at the
   first that does not fit: its hit is looked up, its blocks are held, new ones are taken.
3. Every full block that the step will compute is published at once, before it is computed.
4. A request whose last known token was computed samples a token; after its last one its blocks
   are freed, tail first.
"""

from __future__ import annotations

from prefixbench.simulator.paged import PagedScheduler
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import PublishPoint
from prefixbench.simulator.step_rules import longest_chunk, reserved_len
from prefixbench.simulator.stepping import Found, StepPlan
from prefixbench.simulator.waiting import Policy


class MixedScheduler(PagedScheduler):
    """vLLM's step; with another publish point, the step of engines built like it."""

    _budget = 0
    _chunk_limit = 0

    def schedule(self) -> StepPlan:
        plan = StepPlan()
        self._budget = self.options.max_num_batched_tokens
        self._chunk_limit = longest_chunk(self.rules, len(self.running) + len(self.waiting))
        self._schedule_running(plan)
        if self.waiting and not plan.preempted:
            while self._may_admit() and self._admit(self.waiting.first(), plan):
                pass
        if self._profile.publish is PublishPoint.ROUND_END:
            self._publish_scheduled(plan)
        return plan

    def complete(self, plan: StepPlan) -> None:
        if self._profile.publish is PublishPoint.STEP_END:
            self._publish_scheduled(plan)
        super().complete(plan)

    def check_integrity(self) -> None:
        super().check_integrity()
        assert len(self.running) <= self.options.max_num_seqs

    def _publish_scheduled(self, plan: StepPlan) -> None:
        for live, tokens in zip(plan.lives, plan.scheduled.values(), strict=True):
            self._publish(live, live.computed_len + tokens)
            self._settle(live)

    def _schedule_running(self, plan: StepPlan) -> None:
        running, lives, scheduled = self.running, plan.lives, plan.scheduled
        index = 0
        while index < len(running) and self._budget:
            live = running[index]
            tokens = live.known_len - live.computed_len
            if tokens > 1:
                tokens = self._chunk(live, min(tokens, self._chunk_limit, self._budget))
                if not tokens:
                    index += 1
                    continue
            end = live.computed_len + tokens
            if end > live.settled_len and not self._grow(live, end):
                earlier = running[:index]
                has_room = self._make_room(live, end, plan)
                # A victim may have stood before this request.
                index = sum(each in running for each in earlier)
                if not has_room:
                    if self.rules.self_preemption_ends_pass:
                        return
                    continue
            lives.append(live)
            scheduled[live.request_id] = tokens
            self._budget -= tokens
            index += 1

    def _make_room(self, live: LiveRequest, end: int, plan: StepPlan) -> bool:
        """Preempt until `live` has its blocks; False when it had to go itself.

        A victim that was scheduled in this step drops out of it and returns its budget, but what
        it published stays findable although it is never computed (executed in 0.32).
        """
        while True:
            victim = self._pick_victim()
            self._preempt(victim)
            self._budget += plan.drop(victim)
            plan.preempted.append(victim.request_id)
            if victim is live:
                return False
            if self._grow(live, end):
                return True

    def _pick_victim(self) -> LiveRequest:
        if self.options.policy is Policy.PRIORITY:
            return max(self.running, key=lambda live: live.rank)
        return self.running[-1]

    def _preempt(self, live: LiveRequest) -> None:
        """Take all blocks back; the request starts anew, with its generated tokens as prompt."""
        self.running.remove(live)
        self._release(live)
        self.waiting.add_preempted(live)

    def _may_admit(self) -> bool:
        return bool(self.waiting and self._budget and len(self.running) < self.options.max_num_seqs)

    def _chunk(self, live: LiveRequest, tokens: int) -> int:  # noqa: ARG002
        """How much of what the budget leaves a running request takes; 0: it waits."""
        return tokens

    def _first_chunk(self, live: LiveRequest, found: Found, start: int, tokens: int) -> int:  # noqa: ARG002
        """The same for a request that goes on from `start`."""
        return tokens

    def _may_start(self, live: LiveRequest, found: Found, end: int) -> bool:
        """Whether the first `end` tokens fit and, if the profile asks for it, the whole prompt."""
        return self._has_room(found, reserved_len(self.rules, live.known_len, end))

    def _admit(self, live: LiveRequest, plan: StepPlan) -> bool:
        """Start (or restart) the first waiting request if a part of it fits into this step."""
        found = self._look_up(live)
        start = self._len_at_start(live, found)
        tokens = min(live.known_len - start, self._chunk_limit)
        if tokens > self._budget and not self.options.chunked_prefill:
            return False
        tokens = self._first_chunk(live, found, start, min(tokens, self._budget))
        if not tokens or not self._may_start(live, found, start + tokens):
            return False
        self.waiting.remove_first()
        self.running.append(live)
        self._start(live, found, start, plan)
        self._grow(live, start + tokens)
        plan.add(live, tokens)
        self._budget -= tokens
        return True
