"""The simulated model behind the routes: tokenizer, ranks, limits and faults, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.content.words import word_atoms
from prefixbench.core.clock import Clock
from prefixbench.server.api_error import ApiError
from prefixbench.server.calls import Call, Job, Ranks
from prefixbench.server.chat import ChatTemplate
from prefixbench.server.codec import Codec
from prefixbench.server.dialects import imitated_version, parse_version
from prefixbench.server.driver import RankDriver
from prefixbench.server.families import RankState, ServerState
from prefixbench.server.faults import Fault, parse_faults
from prefixbench.server.openai import CallOptions
from prefixbench.server.options import ServeOptions, resolve_limits
from prefixbench.server.speaker import Speaker
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.profile import get_profile


class Backend:
    """Everything a route needs. Building it loads the tokenizer and checks the options."""

    def __init__(self, options: ServeOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.profile = get_profile(options.profile)
        self.version = imitated_version(self.profile)
        self.limits = resolve_limits(options, self.profile.block_size)
        self.faults = parse_faults(options.faults)
        tokenizer = load_tokenizer(options.tokenizer)
        self.codec = Codec(tokenizer, ChatTemplate(tokenizer, options.chat_template))
        self.speaker = Speaker(word_atoms(tokenizer))
        self.started_s = time.time()
        self.drivers = tuple(self._driver(rank) for rank in range(options.dp_size))
        self._ranks = Ranks(self.drivers, self.speaker)

    def _driver(self, rank: int) -> RankDriver:
        engine = Engine(
            self.profile,
            self.limits.capacity_blocks,
            block_size=self.limits.block_size,
            cost=self.options.cost,
        )
        return RankDriver(
            engine,
            self.clock,
            time_scale=self.options.time_scale,
            rank=rank,
            started_s=self.started_s,
        )

    def start(self) -> None:
        for driver in self.drivers:
            driver.start()

    async def close(self) -> None:
        for driver in self.drivers:
            await driver.close()
        self.codec.close()

    @property
    def is_alive(self) -> bool:
        return all(driver.is_alive for driver in self.drivers)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.options.model, *self.options.lora_models)

    def start_call(
        self,
        prompts: list[list[int]],
        options: CallOptions,
        *,
        pinned_rank: int | None,
        arrived_ns: int,
    ) -> Call:
        """Check prompts against the limits and submit them."""
        if self.faults.has(Fault.EXTRA_PROMPT_TOKEN):
            prompts = [[self.speaker.any_token, *prompt] for prompt in prompts]
        for prompt in prompts:
            self._check_prompt(prompt, options.max_tokens)
        if pinned_rank is not None and pinned_rank not in range(len(self.drivers)):
            raise ApiError(400, f"there is no data parallel rank {pinned_rank}")
        job = Job(
            prompts=prompts,
            n=options.n,
            max_tokens=options.max_tokens,
            extra_key=self._extra_key(options),
            pinned_rank=pinned_rank,
            arrived_ns=arrived_ns,
        )
        return self._ranks.start(job)

    def _check_prompt(self, prompt: Sequence[int], max_tokens: int) -> None:
        if not prompt:
            raise ApiError(400, "the prompt must not be empty", param="prompt")
        self.codec.check_ids(prompt, param="prompt")
        limit = self.limits.max_model_len
        if len(prompt) + max_tokens > limit:
            raise ApiError(
                400,
                f"this model's context length is {limit} tokens, but the prompt has {len(prompt)} "
                f"and {max_tokens} more are to be generated",
                param="max_tokens" if len(prompt) < limit else "prompt",
            )

    def _extra_key(self, options: CallOptions) -> tuple[tuple[str, str], ...]:
        """What separates caches besides the tokens, as vLLM tags it from 0.31 on."""
        if options.model not in (None, *self.models):
            raise ApiError(404, "there is no such model; see /v1/models", param="model")
        adapter = options.model if options.model in self.options.lora_models else None
        parts = (("lora", adapter), ("cache_salt", options.cache_salt))
        return tuple((tag, value) for tag, value in parts if value is not None)

    def reset_prefix_cache(self) -> bool:
        """Empty all caches; False, and none is emptied, while a request is in flight."""
        if any(driver.load().in_flight for driver in self.drivers):
            return False
        return all(driver.reset_prefix_cache() for driver in self.drivers)

    def restart_counters(self) -> None:
        """Let all counters begin anew, as a restart of the process does."""
        self.started_s = time.time()
        for driver in self.drivers:
            driver.restart_counters(self.started_s)

    def state(self) -> ServerState:
        """The server at this moment, for its metrics page."""
        return ServerState(
            version=parse_version(self.version),
            model=self.options.model,
            started_s=self.started_s,
            cache_config=self._cache_config(),
            ranks=[
                RankState(rank=rank, counters=driver.counters, load=driver.load())
                for rank, driver in enumerate(self.drivers)
            ],
        )

    def _cache_config(self) -> Mapping[str, str]:
        """Labels as vLLM's `CacheConfig` names them; the null block is counted."""
        blocks, size = self.limits.capacity_blocks, self.limits.block_size
        stated_size = self.faults.count(Fault.BLOCK_SIZE_LABEL) or size
        return {
            "block_size": str(stated_size),
            "cache_hit_alignment_tokens": str(stated_size),
            "enable_prefix_caching": "True",
            "hash_block_size": str(stated_size),
            "kv_cache_size_tokens": str(blocks * size),
            "num_gpu_blocks": str(blocks + 1),
            "prefix_caching_hash_algo": "sha256",
        }
