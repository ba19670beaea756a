"""The whole configuration of a data set (RFC 3.5.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from prefixbench.config.advice import advice_on
from prefixbench.config.agreement import disagreements_between
from prefixbench.config.base import Count, Flag, Name, Section, Text, Whole
from prefixbench.config.effective import effective_settings
from prefixbench.config.execution import ExecutionConfig
from prefixbench.config.inference import infer_across_sections
from prefixbench.config.lengths import FixedLength, LengthField
from prefixbench.config.order import RequestOrderConfig
from prefixbench.config.planning import PlanningConfig
from prefixbench.config.prefix import PrefixGroupConfig
from prefixbench.config.prompt_format import PromptFormat
from prefixbench.config.routing import RoutingConfig
from prefixbench.config.sessions import SessionsConfig
from prefixbench.config.suffix import DataSourceConfig, SourceName, SuffixGenerationConfig
from prefixbench.config.target import TargetHitRateConfig
from prefixbench.config.validation import ValidationConfig
from prefixbench.core.errors import ConfigProblem

#: Name of a data set that neither its configuration nor a file names.
UNNAMED = "dataset"

DEFAULT_OUTPUT_LEN = 16


class PrefixCacheDatasetConfig(Section):
    """Everything a user asks for; its attributes are the keys of the YAML file."""

    dataset_id: Name = Field(
        default=UNNAMED, description="Name of the data set; the file's name if absent."
    )
    seed: Whole = Field(default=0, description="Seed of every draw.")
    request_count: Count = Field(description="Number of requests.")
    block_size: Count | None = Field(
        default=None,
        description="Tokens in one cache block; from a server profile or the engine's default"
        " unless given.",
    )
    hit_granularity: Count | None = Field(
        default=None, description="Smallest step of hits, in tokens; the block size unless given."
    )
    input_length: LengthField = Field(
        description="Lengths of the prompts: a number, or a distribution with a `mode`."
    )
    output_length: LengthField = Field(
        default=FixedLength(value=DEFAULT_OUTPUT_LEN),
        description="Lengths of the answers, like input_length; 16 tokens unless given.",
    )
    max_model_len: Count | None = Field(
        default=None,
        description="Context of the model, in tokens; input and output must fit together.",
    )
    target: TargetHitRateConfig = Field(
        description="The hit ratio asked for; short form `target_prefix_ratio: 0.5`."
    )
    prefix: PrefixGroupConfig = Field(
        default=PrefixGroupConfig(),
        description="The prefix groups; short form `prefix_mode: single_prefix`.",
    )
    sessions: SessionsConfig | None = Field(
        default=None, description="Multi-turn sessions; single requests unless given."
    )
    suffix: SuffixGenerationConfig = Field(
        default=SuffixGenerationConfig(), description="What follows the shared prefix."
    )
    request_order: RequestOrderConfig = Field(
        default=RequestOrderConfig(), description="The order of sending."
    )
    execution: ExecutionConfig = Field(
        default=ExecutionConfig(), description="How the data set is run."
    )
    routing: RoutingConfig = Field(
        default=RoutingConfig(), description="Which rank serves a request."
    )
    planning: PlanningConfig = Field(
        default=PlanningConfig(), description="Switches of the planner."
    )
    validation: ValidationConfig = Field(
        default=ValidationConfig(), description="Acceptable deviations."
    )
    tokenizer: Text = Field(
        default="builtin",
        description="builtin, a tokenizer.json, a SentencePiece model, a file of tiktoken, a"
        " tekken.json, or a folder with one of them.",
        min_length=1,
    )
    engine_profile: Name = Field(
        default="vllm-0.33",
        description="Engine whose rules are assumed (`prefixbench simulate --profile list`).",
    )
    prompt_format: PromptFormat = Field(default=PromptFormat.TEXT, description="What is sent.")
    save_prompts: Flag = Field(
        default=True, description="False: data.jsonl holds recipes and hashes instead of prompts."
    )

    @classmethod
    def load(cls, path: str | Path) -> PrefixCacheDatasetConfig:
        """Read a YAML file; raises ConfigError with everything that is wrong in it."""
        from prefixbench.config.load import load_config  # the loader builds on this class

        return load_config(path)

    @model_validator(mode="before")
    @classmethod
    def _infer_across_sections(cls, given: Any) -> Any:
        return infer_across_sections(given) if isinstance(given, Mapping) else given

    def disagreements(self) -> Iterator[ConfigProblem]:
        yield from disagreements_between(dict(self))

    def with_block_size(self, block_size: int, hit_granularity: int | None = None) -> Self:
        """The same configuration for a cache whose blocks are known, defaults filled in."""
        unshared = self.prefix.minimum_non_shared_length
        if unshared is None:
            unshared = block_size
        return self.model_copy(
            update={
                "block_size": block_size,
                "hit_granularity": hit_granularity or self.hit_granularity or block_size,
                "prefix": self.prefix.model_copy(update={"minimum_non_shared_length": unshared}),
            }
        )

    @property
    def prefix_source(self) -> DataSourceConfig:
        """What master prefixes are made of: the suffix's source unless `prefix` names one."""
        source = self.prefix.source or self.suffix.source
        needs_file = source in (SourceName.TEXT, SourceName.GSM8K)
        return DataSourceConfig(
            source=source,
            sample_ids=self.prefix.sample_ids,
            path=self.prefix.path or (self.suffix.path if needs_file else None),
            separator=self.suffix.separator,
        )

    def warnings(self) -> tuple[str, ...]:
        """What is legal but probably not meant."""
        return tuple(advice_on(self))

    def effective(self) -> dict[str, Any]:
        """JSON-able settings with every default filled in; paths are names, addresses left out.

        `block_size` and what follows from it are null until `with_block_size` has filled them in.
        """
        return effective_settings(self)
