"""What the design becomes at the run's concurrency, as far as the closed form can say.

With W requests in flight a request sees at least what stands W places before it and at most what
its predecessor left (planning.md, section 7). Where both give the same hits the prediction is that
number; where they differ the engine's publish point decides, and only the interval is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefixbench.core.tally import HitTally, as_rate
from prefixbench.core.wording import plural
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.scene import Scene
from prefixbench.explain.visibility import hit_bounds
from prefixbench.explain.wording import count, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted hit ratio, or the interval it lies in, with the reason why it is no number."""

    ratio: float | None
    low: float | None
    high: float | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "reason": self.reason}


def predict(scene: Scene, *, in_flight: int | None, lost_hits: int) -> Prediction:
    """Predict the hits of a scene with `in_flight` requests on their way at most.

    `lost_hits` are planned hits, in tokens, that an LRU cache of the server's size evicts.
    """
    if in_flight is None:
        return unpredicted("the number of requests in flight is not known")
    high = scene.under(None).tally()
    flying = plural(in_flight, "request")
    if lost_hits and in_flight > 1:
        return unpredicted(
            f"the cache is small: with {flying} in flight up to {count(lost_hits)} tokens of "
            "planned hits are evicted"
        )
    if lost_hits:
        return _number(
            HitTally(high.hits - lost_hits, high.queries),
            f"LRU evicts {count(lost_hits)} tokens of planned hits, one request at a time",
        )
    low = HitTally(_hits_at_lag(scene, in_flight), high.queries)
    if low.hits == high.hits:
        return _number(high, f"nothing evicted before its hit, {flying} in flight")
    return Prediction(
        ratio=None,
        low=as_rate(low),
        high=as_rate(high),
        reason=f"between {percent(as_rate(low))} and {percent(as_rate(high))} with {flying} in "
        "flight: it depends on when the engine shows a block",
    )


def _number(tally: HitTally, reason: str) -> Prediction:
    ratio = as_rate(tally)
    return Prediction(ratio=ratio, low=ratio, high=ratio, reason=reason)


def unpredicted(reason: str) -> Prediction:
    """No number, for a reason."""
    return Prediction(ratio=None, low=None, high=None, reason=reason)


def _hits_at_lag(scene: Scene, lag: int) -> int:
    """Hits when a request sees only those at least `lag` places earlier.

    Place i is sent at time 2i and answered at 2(i + lag) - 1, just before place i + lag is sent.
    """
    flights = {
        plan.request_id: ObservedRequest(
            request_id=plan.request_id,
            phase="",
            status="ok",
            sent_ns=2 * place,
            first_token_ns=2 * (place + lag) - 1,
        )
        for place, plan in enumerate(scene.requests)
    }
    return sum(bounds.least for bounds in hit_bounds(scene, flights).values())
