"""A fitted cost model on disk: JSON, the four prices, and what is known of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.cost_fit import PRICES

COST_FORMAT = "prefixbench-cost/1"


def cost_document(model: CostModel, unknown: Mapping[str, str], **about: Any) -> dict[str, Any]:
    """The file's content: a price that is unknown is null, and `unknown` says why."""
    prices = {name: None if name in unknown else getattr(model, name) for name in PRICES}
    return {"format": COST_FORMAT, **prices, "unknown": dict(unknown), **about}


def read_cost(path: Path) -> CostModel:
    """The prices of a file; null costs nothing. Raises ConfigError naming file and field."""
    try:
        document = json.loads(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise _refused(path, f"no valid JSON in UTF-8 ({error})") from error
    if not isinstance(document, dict) or document.get("format") != COST_FORMAT:
        raise _refused(path, f"format is not {COST_FORMAT}")
    return CostModel(**{name: _price(path, document, name) for name in PRICES})


def _price(path: Path, document: Mapping[str, Any], name: str) -> float:
    price = document.get(name)
    if price is None:
        return 0.0
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e18:
        raise _refused(path, f"{name} is no price in nanoseconds")
    return float(price)


def _refused(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path.name} is no cost model: {reason}",
        context=ErrorContext(stage=Stage.SIMULATE, field="cost"),
        hint="`prefixbench fit` writes one",
    )
