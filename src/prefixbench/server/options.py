"""What a server is asked to be; the fields are the options of `prefixbench serve`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from prefixbench.core.errors import ConfigError, ConfigProblem, ErrorContext, Stage
from prefixbench.server.dialects import DIALECTS
from prefixbench.simulator.cost import CostModel

#: Room for 16 million tokens in blocks of 16: more than a benchmark's data set, so that nothing is
#: evicted unless a capacity is asked for.
DEFAULT_CAPACITY_BLOCKS = 2**20

#: The longest request in tokens where neither an option nor the capacity sets a limit.
DEFAULT_MAX_MODEL_LEN = 131_072

#: Of the order of a model with 8 billion parameters on one data-centre GPU (20,000 prompt tokens
#: a second, 5 ms for a decode step of one sequence); a plausible load, no claim about any engine.
DEFAULT_COST = CostModel(
    step_ns=5e6, prefill_token_ns=5e4, context_token_ns=5, decode_sequence_ns=1e5
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of the embedded server (contract section 1, `serve`).

    `port` 0 takes any free one. `capacity_blocks` are usable blocks of each rank; the label
    `num_gpu_blocks` says one more, as vLLM counts its null block. `block_size` None is the
    profile's. `max_model_len` None is the smaller of a default and what the capacity holds.
    `cost` says how long a step takes; `time_scale` engine seconds pass in one real second, and 0
    means no waiting at all. `lora_models` are further model names; each is a part of the cache
    key, as an adapter's name is. `faults` are `NAME[=VALUE]` words (see `faults.py`).
    """

    host: str = "127.0.0.1"
    port: int = 0
    profile: str = "vllm-0.33"
    dialect: str = "vllm"
    tokenizer: str = "builtin"
    model: str = "prefixbench"
    lora_models: tuple[str, ...] = ()
    chat_template: Path | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS
    dp_size: int = 1
    time_scale: float = 1.0
    cost: CostModel = DEFAULT_COST
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes a server runs with; `block_size` and `max_model_len` are tokens."""

    block_size: int
    capacity_blocks: int
    max_model_len: int


def resolve_limits(options: ServeOptions, profile_block_size: int) -> Limits:
    """Check the numbers of the options, all at once, and fill in what was not given."""
    block_size = profile_block_size if options.block_size is None else options.block_size
    room = block_size * options.capacity_blocks
    problems = list(_problems(options, room))
    if problems:
        raise ConfigError(
            "; ".join(f"{problem.path}: {problem.message}" for problem in problems),
            context=ErrorContext(stage=Stage.CONFIG, field=problems[0].path),
            hint="`prefixbench serve --help` lists the options",
            problems=problems,
        )
    return Limits(
        block_size=block_size,
        capacity_blocks=options.capacity_blocks,
        max_model_len=options.max_model_len or min(room, DEFAULT_MAX_MODEL_LEN),
    )


def _problems(options: ServeOptions, room: int) -> Iterator[ConfigProblem]:
    for field, least in (("block_size", 1), ("capacity_blocks", 1), ("dp_size", 1)):
        yield from _below(field, getattr(options, field), least)
    yield from _below("max_model_len", options.max_model_len, 2)
    yield from _below("time_scale", options.time_scale, 0)
    if options.max_model_len is not None and options.max_model_len > room > 0:
        yield ConfigProblem(
            path="--max-model-len",
            message=f"one request of this length does not fit into a cache of {room} tokens",
            given=str(options.max_model_len),
            allowed=f"at most {room}",
        )
    if options.dialect not in DIALECTS:
        yield ConfigProblem(
            path="--dialect",
            message=f"there is no dialect {options.dialect!r}; known: {', '.join(DIALECTS)}",
            given=options.dialect,
            allowed=", ".join(DIALECTS),
            nearest=next(iter(get_close_matches(options.dialect, DIALECTS, n=1)), None),
        )
    elif options.dp_size > 1 and not DIALECTS[options.dialect].tells_ranks:
        yield ConfigProblem(
            path="--dp-size",
            message=f"metrics of {options.dialect} do not tell ranks apart",
            given=str(options.dp_size),
            allowed="1",
        )


def _below(field: str, value: float | None, least: int) -> Iterator[ConfigProblem]:
    if value is not None and not value >= least:
        yield ConfigProblem(
            path="--" + field.replace("_", "-"),
            message=f"must be at least {least}, not {value}",
            given=str(value),
            allowed=f"{least} or more",
        )
