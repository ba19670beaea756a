"""Where a plan can miss its target by a few blocks although the target is in range, and why.

Everywhere else one block of prefix changes what is hit by 0 or 1, or the end of the order can be
cut block by block, so that every whole number of hits is met.
"""

from __future__ import annotations

from prefixbench.workload.counting import InOrder
from prefixbench.workload.setting import Setting
from prefixbench.workload.shape import Growth

#: An order by prefixes whose prefixes, planned on it, give another order.
OPEN_CIRCLE = (
    "the order follows the prefixes and hits follow the order; no plan was found in which the two"
    " agree"
)


def coarse_steps(setting: Setting, growth: Growth) -> str | None:
    """Why hits change in steps of more than a block; None where every target in range is met."""
    if not setting.config.planning.block_residual_calibration:
        return "block_residual_calibration: false leaves the plain formula as it rounds"
    if not setting.config.prefix.nested_prefix:
        return "nested_prefix: false moves all requests of a group by a block at once"
    if growth.rising and isinstance(setting.counting, InOrder):
        return (
            "no prefix may be shorter than an earlier one of its group, and with requests in flight"
            " or a limited cache a block more in one request can be found by several others"
        )
    if setting.lru is not None and setting.domains.warmed:
        return (
            "the warm-up stores the longest prefixes, so in a limited cache a block more in one of"
            " them can change what several requests find"
        )
    return None
