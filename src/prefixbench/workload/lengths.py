"""Lengths of requests: five distributions, drawn from the seed alone.

The draw of request i depends on the seed and i, so a longer list starts with the shorter one and
lengths stay comparable across targets and data sets (RFC 3.2.2, 3.2.4, 3.3.1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from prefixbench.config.lengths import (
    EmpiricalLength,
    ExplicitLength,
    FixedLength,
    HistogramLength,
    LengthDistributionConfig,
    OutOfRange,
    TruncatedNormalLength,
)
from prefixbench.core.errors import ErrorContext, LengthError, Stage
from prefixbench.core.percentiles import percentile_of_sorted
from prefixbench.core.seeds import below, mixed, stream, unit
from prefixbench.core.wording import plural
from prefixbench.workload.columns import IntArray

#: Equal-width bins of the statistics where the distribution brings none of its own.
STATISTICS_BINS = 10


def generate_request_lengths(
    config: LengthDistributionConfig, request_count: int, seed: int
) -> list[int]:
    """Draw one length in tokens for each request (the RFC's interface, 3.5.2)."""
    drawn: list[int] = draw_lengths(config, request_count, seed).tolist()
    return drawn


def draw_lengths(
    config: LengthDistributionConfig,
    request_count: int,
    seed: int,
    *,
    purpose: str = "input_length",
    shortest: int = 1,
) -> IntArray:
    """Draw lengths; none is below `shortest`, the length that head, marker and tail need.

    A lower edge of a distribution is raised to `shortest`. A length the user stated (fixed,
    explicit, or a sample where `out_of_range: error`) raises LengthError naming the request.
    """
    key = stream(purpose, seed=seed)
    match config:
        case FixedLength(value=value):
            lengths = np.full(request_count, value, np.int64)
        case ExplicitLength(values=values):
            lengths = np.array(values, np.int64)
        case TruncatedNormalLength():
            lengths = _truncated_normal(config, request_count, key, shortest)
        case HistogramLength():
            lengths = _histogram(config, request_count, key, shortest)
        case EmpiricalLength():
            lengths = _empirical(config, request_count, key, shortest)
        case _:
            raise TypeError(f"not a length distribution: {type(config).__name__}")
    _refuse_too_short(lengths, shortest, purpose)
    return lengths


def _truncated_normal(
    config: TruncatedNormalLength, count: int, key: int, shortest: int
) -> IntArray:
    low, high = max(config.min, shortest), config.max
    if low > high:
        raise LengthError(
            f"max {high:,} is below {plural(low, 'token')}, the shortest possible request",
            context=ErrorContext(stage=Stage.LENGTHS, field="input_length.max"),
            hint=_room_hint(low),
        )
    match config.out_of_range:
        case OutOfRange.RESAMPLE:
            return np.array(_accepted(config, count, key, low), np.int64)
        case OutOfRange.CLIP:
            clipped: IntArray = np.clip(_first_normals(config, count, key), low, high)
            return clipped
        case OutOfRange.ERROR:
            values = _first_normals(config, count, key)
            for index, value in enumerate(values):
                if not low <= value <= high:
                    raise _out_of_range(index, value, low, high)
            return np.array(values, np.int64)
        case _:
            assert_never(config.out_of_range)


def _accepted(config: TruncatedNormalLength, count: int, key: int, low: int) -> list[int]:
    """Draws in [low, max], each drawn again until it is.

    Where the range is narrower than two standard deviations, or raised above the mean, almost
    every normal draw would fall outside, so the proposal is uniform on the range and accepted
    with the normal density, relative to the largest one in the range.
    """
    mean, std, high = config.mean, config.std, config.max
    nearest = max(mean, low) - mean

    def uniform(own: int, attempt: int) -> int | None:
        value = low + below(high - low + 1, own, 2 * attempt)
        density = math.exp((nearest**2 - (value - mean) ** 2) / (2 * std * std))
        return value if unit(own, 2 * attempt + 1) < density else None

    def normal(own: int, attempt: int) -> int | None:
        value = _normal(config, unit(own, 2 * attempt), unit(own, 2 * attempt + 1))
        return value if low <= value <= high else None

    if high - low < 2 * std or mean < low:
        return [_until_accepted(uniform, mixed(key, index)) for index in range(count)]
    return [
        value if low <= value <= high else _until_accepted(normal, mixed(key, index), 1)
        for index, value in enumerate(_first_normals(config, count, key))
    ]


def _until_accepted(propose: Callable[[int, int], int | None], own: int, attempt: int = 0) -> int:
    while (value := propose(own, attempt)) is None:
        attempt += 1
    return value


def _first_normals(config: TruncatedNormalLength, count: int, key: int) -> list[int]:
    """The first draw of each request, in range or not."""
    own = mixed(key, np.arange(count, dtype=np.uint64))
    first, second = ((mixed(own, draw) >> 11) * 2.0**-53 for draw in (0, 1))
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return [_normal(config, *pair) for pair in pairs]


def _normal(config: TruncatedNormalLength, first: float, second: float) -> int:
    """Two units as one normal draw (Box and Muller), rounded."""
    radius = math.sqrt(-2 * math.log(1 - first))
    return math.floor(config.mean + config.std * radius * math.cos(math.tau * second) + 0.5)


def _histogram(config: HistogramLength, count: int, key: int, shortest: int) -> IntArray:
    """Bins are [lo, hi): 1000 belongs to [1000, 2000), never to [0, 1000)."""
    bins = [(max(b.range[0], shortest), b.range[1], b.weight) for b in config.bins]
    bins = [(low, high, weight) for low, high, weight in bins if low < high]
    if not bins:
        raise LengthError(
            f"no length bin holds {plural(shortest, 'token')}, the shortest possible request",
            context=ErrorContext(stage=Stage.LENGTHS, field="input_length.bins"),
            hint="raise the upper edges of the bins",
        )
    cumulated = np.cumsum([weight for _, _, weight in bins])
    values = []
    for index in range(count):
        chosen = int(np.searchsorted(cumulated, unit(key, 2 * index) * cumulated[-1], "right"))
        low, high, _ = bins[min(chosen, len(bins) - 1)]
        values.append(low + below(high - low, key, 2 * index + 1))
    return np.array(values, np.int64)


def _empirical(config: EmpiricalLength, count: int, key: int, shortest: int) -> IntArray:
    samples = list(config.values) if config.values else read_samples(Path(str(config.path)))
    match config.out_of_range:
        case OutOfRange.RESAMPLE:
            samples = [value for value in samples if value >= shortest]
        case OutOfRange.CLIP:
            samples = [max(value, shortest) for value in samples]
        case OutOfRange.ERROR:
            pass
        case _:
            assert_never(config.out_of_range)
    if not samples:
        raise LengthError(
            f"no sample has {plural(shortest, 'token')}, the shortest possible request, or more",
            context=ErrorContext(stage=Stage.LENGTHS, field="input_length"),
            hint="give longer samples, or out_of_range: clip",
        )
    return np.array([samples[below(len(samples), key, i)] for i in range(count)], np.int64)


def read_samples(path: Path) -> list[int]:
    """Lengths out of a file: JSON lines or a JSON list, else numbers between spaces or commas.

    Objects carry the length as `input_length`, `input_len`, `length` or `ContextTokens`.
    """
    try:
        text = path.read_text("utf-8-sig")
        samples = [int(value) for value in _sample_values(text)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LengthError(
            f"the length samples in {path.name} cannot be read ({type(error).__name__})",
            context=ErrorContext(stage=Stage.LENGTHS, field="input_length.path"),
            hint="one whole number of tokens a line, or JSON lines with input_length",
        ) from error
    if not samples or min(samples) < 1:
        raise LengthError(
            f"{path.name} holds no samples, or one below 1 token",
            context=ErrorContext(stage=Stage.LENGTHS, field="input_length.path"),
            hint="one whole number of tokens a line, or JSON lines with input_length",
        )
    return samples


_SAMPLE_KEYS = ("input_length", "input_len", "length", "ContextTokens")


def _sample_values(text: str) -> list[Any]:
    start = text.lstrip()[:1]
    if start == "[":
        return [_sample_value(item) for item in json.loads(text)]
    if start == "{":
        return [_sample_value(json.loads(line)) for line in text.split("\n") if line.strip()]
    return text.replace(",", " ").split()


def _sample_value(item: Any) -> Any:
    if isinstance(item, dict):
        return next((item[key] for key in _SAMPLE_KEYS if key in item), None)
    return item


def _refuse_too_short(lengths: IntArray, shortest: int, purpose: str) -> None:
    if len(lengths) and int(lengths.min()) < shortest:
        index = int(np.argmin(lengths))
        raise LengthError(
            f"{plural(int(lengths[index]), 'token')} cannot hold a request: the shortest one has"
            f" {shortest:,}",
            context=ErrorContext(stage=Stage.LENGTHS, request_id=request_id(index), field=purpose),
            hint=_room_hint(shortest),
        )


def _room_hint(shortest: int) -> str:
    return f"give at least {plural(shortest, 'token')}: head, a unique token, the template's tail"


def refuse_beyond_context(
    input_len: IntArray, output_len: IntArray, max_model_len: int | None
) -> None:
    """Raise LengthError for the first request that does not fit the model's context."""
    if max_model_len is None:
        return
    beyond = np.flatnonzero(input_len + output_len > max_model_len)
    if len(beyond):
        index = int(beyond[0])
        raise LengthError(
            f"{int(input_len[index])} input + {int(output_len[index])} output tokens exceed"
            f" max_model_len {max_model_len} ({plural(len(beyond), 'such request')})",
            context=ErrorContext(
                stage=Stage.LENGTHS, request_id=request_id(index), field="max_model_len"
            ),
            hint="shorten input_length or output_length, or raise max_model_len",
        )


def request_id(index: int) -> str:
    """The name of request `index` (generation order), the same in every file."""
    return f"r{index:06d}"


def _out_of_range(index: int, value: int, low: int, high: int) -> LengthError:
    return LengthError(
        f"a drawn length of {plural(value, 'token')} is outside {low}..{high}",
        context=ErrorContext(
            stage=Stage.LENGTHS, request_id=request_id(index), field="input_length.out_of_range"
        ),
        hint="use out_of_range: resample or clip, or widen the range",
    )


def length_statistics(
    lengths: IntArray, seed: int, edges: Sequence[tuple[int, int]] | None = None
) -> dict[str, Any]:
    """Count, extremes, mean, percentiles and bins [lo, hi) of the lengths, in tokens."""
    ordered = np.sort(lengths)
    values = ordered.data  # plain integers, without a list of a million of them
    bins = edges if edges is not None else _even_edges(values[0], values[-1] + 1)
    below_edge = {
        edge: int(np.searchsorted(ordered, edge, "left")) for pair in bins for edge in pair
    }
    return {
        "count": len(values),
        "min": values[0],
        "max": values[-1],
        "mean": int(ordered.sum()) / len(values),
        **{f"p{q}": percentile_of_sorted(values, q) for q in (50, 90, 95, 99)},
        "bins": [
            {"range": [low, high], "count": below_edge[high] - below_edge[low]}
            for low, high in bins
        ],
        "seed": seed,
    }


def _even_edges(low: int, high: int) -> list[tuple[int, int]]:
    count = min(STATISTICS_BINS, high - low)
    cuts = [low + (high - low) * step // count for step in range(count + 1)]
    return list(pairwise(cuts))
