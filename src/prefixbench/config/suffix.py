"""What requests are made of behind their shared prefix, and how accidents are found."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field

from prefixbench.config.base import Count, Flag, NonNegative, Section, Text
from prefixbench.core.errors import ConfigProblem


class SourceName(StrEnum):
    """Where text comes from."""

    GSM8K = "gsm8k"
    BUILTIN = "builtin"
    RANDOM = "random"
    TEXT = "text"


class SuffixMode(StrEnum):
    """Which samples are joined: neighbours, or samples in a drawn or named order."""

    CONCAT = "concat"
    SAMPLE = "sample"


class CacheMatchSemantics(StrEnum):
    """How the server's cache recognises a block (RFC 3.3.14)."""

    CHAINED_PREFIX = "chained_prefix"
    INDEPENDENT_BLOCK = "independent_block"
    CONTENT_DEFINED_CHUNK = "content_defined_chunk"


class OnCollision(StrEnum):
    """What happens to an unplanned equal block after the last retry (RFC 3.3.15)."""

    ERROR = "error"
    WARN = "warn"
    ACCEPT_WITH_WARNING = "accept_with_warning"


class CollisionDetectionConfig(Section):
    """The search for unplanned equal blocks (RFC 3.3.14)."""

    enabled: Flag = Field(default=True, description="Whether to look for unplanned equal blocks.")
    cache_match_semantics: CacheMatchSemantics = Field(
        default=CacheMatchSemantics.CHAINED_PREFIX,
        description="How the server's cache matches blocks.",
    )
    first_non_shared_block_unique: Flag = Field(
        default=True,
        description="No two requests of a group may share the block after their prefix.",
    )
    window_blocks: Count = Field(
        default=2, description="Length of the window, in blocks, in which repeats are looked for."
    )
    max_retries: NonNegative = Field(
        default=8, description="How often a request is made anew before `on_collision` decides."
    )
    on_collision: OnCollision = Field(
        default=OnCollision.ERROR,
        description="After the retries: exit 4; or status and log; or also PASS_WITH_WARNING with"
        " the accidental hits counted in the designed ratio.",
    )


class DataSourceConfig(Section):
    """A source of text and which part of it is used (RFC 2.6)."""

    source: SourceName = Field(
        default=SourceName.BUILTIN,
        description="gsm8k: that corpus (named by --corpus, the environment variable"
        " PREFIXBENCH_GSM8K, or the extra `hf`); builtin: the seeded word problems that come with"
        " prefixbench; random: random tokens; text: the file `path`.",
    )
    sample_ids: tuple[NonNegative, ...] = Field(
        default=(), description="Rows of the corpus (from 0) to begin with, in this order."
    )
    path: Text | None = Field(
        default=None,
        description="File of samples for source text or gsm8k (jsonl, txt, csv, parquet).",
    )
    separator: Text = Field(default="\n\n", description="Text between two samples.")

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.source is SourceName.TEXT and self.path is None:
            yield ConfigProblem(
                path="path",
                message="is required with source: text",
                allowed="a jsonl, txt, csv or parquet file",
            )
        if self.source in (SourceName.BUILTIN, SourceName.RANDOM) and self.path is not None:
            yield ConfigProblem(
                path="path",
                message=f"cannot be used with source: {self.source}",
                allowed="source: text or gsm8k",
            )
        if self.source is SourceName.RANDOM and self.sample_ids:
            yield ConfigProblem(
                path="sample_ids",
                message="cannot be used with source: random",
                allowed="source: gsm8k, builtin or text",
            )


class SuffixGenerationConfig(DataSourceConfig):
    """The part of each request that no other request shares (RFC 3.3.11 to 3.3.15)."""

    mode: SuffixMode = Field(
        default=SuffixMode.CONCAT,
        description="concat: neighbours in the corpus are joined, named samples first; sample:"
        " samples in a drawn order, or the named ones alone, in a cycle.",
    )
    divergence_block: Flag = Field(
        default=True,
        description="True: a block that is unique by construction follows the prefix. False: the"
        " unique part begins with natural text; the first block is still checked.",
    )
    collision_detection: CollisionDetectionConfig = Field(
        default=CollisionDetectionConfig(), description="The search for equal blocks."
    )
