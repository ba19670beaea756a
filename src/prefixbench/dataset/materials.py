"""What texts are made from: tokenizer, corpora, pool and frame of a configuration.

No two data sets share a text, unless they are the same prompts in another order or format: all
draws depend on seed, data set, target, sources and every length of the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.prompt_format import PromptFormat
from prefixbench.config.suffix import DataSourceConfig, SuffixGenerationConfig
from prefixbench.content.compose import Composer, ContentColumns
from prefixbench.content.corpus import Corpus
from prefixbench.content.disk_memo import cache_folder
from prefixbench.content.draws import ContentLabels
from prefixbench.content.passages import Passages, SampleChoice, choose_passages
from prefixbench.content.pool import Pool, TextSource
from prefixbench.content.pool_cache import load_pool
from prefixbench.content.sources import open_source
from prefixbench.content.tape import Positions
from prefixbench.content.template import Frame, make_frame, shortest_possible
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer
from prefixbench.content.words import WordAtom, opening_words
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.core.log import event
from prefixbench.core.wording import plural
from prefixbench.dataset.layout import canonical_sha256
from prefixbench.workload import setting

log = logging.getLogger(__name__)

#: Corpora made by code are one text for all data sets; what differs is where each begins to read.
CORPUS_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Materials:
    """Everything that composing needs beside the plan."""

    config: PrefixCacheDatasetConfig
    tokenizer: Tokenizer
    corpora: tuple[Corpus, ...]
    pool: Pool
    frame: Frame
    passages: Passages

    def composer(
        self, columns: ContentColumns, retries: Mapping[int, int] | Positions | None = None
    ) -> Composer:
        """The composer of a planned data set."""
        labels = ContentLabels(
            seed=self.config.seed, dataset_id=self.config.dataset_id, plan=self._sha256(columns)
        )
        return Composer(
            self.pool, self.frame, columns, labels, passages=self.passages, retries=retries
        )

    def _sha256(self, columns: ContentColumns) -> str:
        """Digest of what was planned and of the texts it is made from."""
        suffix, prefix = (
            source.model_dump(mode="json", exclude={"path", "collision_detection"})
            for source in (self.config.suffix, self.config.prefix_source)
        )
        return canonical_sha256(
            {
                "target": self.config.target.model_dump(mode="json"),
                "warmed": self.config.execution.mode.is_warmed,
                "suffix": suffix,
                "prefix": prefix,
                "corpora": [corpus.sha256 for corpus in self.corpora],
                "rows": columns.sha256,
            }
        )

    @property
    def warmup_filler(self) -> WordAtom:
        """The token after a warmed prefix: no marker, so no measured request begins with it."""
        return self.pool.words.warmup_filler

    @property
    def opening_words(self) -> tuple[WordAtom, ...]:
        """Words that may open every content, each one token; the first is the one used."""
        return opening_words(self.tokenizer)

    @property
    def planning_frame(self) -> setting.Frame:
        return _planning_frame(self.config, self.frame)


def load_materials(
    config: PrefixCacheDatasetConfig,
    *,
    corpus: str | None = None,
    prefix_corpus: str | None = None,
) -> Materials:
    """Load the tokenizer and the corpora.

    `corpus` stands for every source that is text, unless prefixes are given one of their own.
    """
    tokenizer = load_tokenizer(config.tokenizer)
    frame = _frame_of(config, tokenizer)
    suffix, prefix = _open_sources(config, tokenizer, corpus, prefix_corpus or corpus)
    pool = load_pool(
        tokenizer,
        suffix,
        prefix,
        exact_text=config.prompt_format is not PromptFormat.TOKEN_IDS,
        folder=cache_folder(),
    )
    _tell_left_out(pool)
    corpora = (suffix.corpus,) if prefix == suffix else (suffix.corpus, prefix.corpus)
    return Materials(
        config=config,
        tokenizer=tokenizer,
        corpora=corpora,
        pool=pool,
        frame=frame,
        passages=choose_passages(
            pool,
            ContentLabels(seed=config.seed, dataset_id=config.dataset_id),
            suffix=_choice(config.suffix),
            prefix=_choice(config.prefix_source),
        ),
    )


def _open_sources(
    config: PrefixCacheDatasetConfig,
    tokenizer: Tokenizer,
    corpus: str | None,
    prefix_corpus: str | None,
) -> tuple[TextSource, TextSource]:
    """The texts of suffixes and of prefixes; read once where they are the same."""
    suffix, prefix = config.suffix, config.prefix_source
    opened = open_source(suffix, tokenizer, seed=CORPUS_SEED, corpus=corpus)
    if _text_of(suffix) == _text_of(prefix) and corpus == prefix_corpus:
        return opened, opened
    return opened, open_source(prefix, tokenizer, seed=CORPUS_SEED, corpus=prefix_corpus)


def _tell_left_out(pool: Pool) -> None:
    """A tokenizer would read a special token inside a text, so such texts are not used."""
    for guard in pool.certificate.guards:
        if guard.with_added_token:
            event(
                log,
                "content.texts_left_out",
                level=logging.WARNING,
                corpus=guard.corpus,
                texts=guard.with_added_token,
                of=guard.texts,
                reason="they spell a special token of the tokenizer",
            )


def _text_of(source: DataSourceConfig) -> tuple[Any, ...]:
    return (source.source, source.path, source.separator)


def load_planning_frame(config: PrefixCacheDatasetConfig) -> setting.Frame:
    """Head and tail lengths alone: what a plan needs of the tokenizer."""
    frame = _frame_of(config, load_tokenizer(config.tokenizer))
    return _planning_frame(config, frame)


def _frame_of(config: PrefixCacheDatasetConfig, tokenizer: Tokenizer) -> Frame:
    return make_frame(tokenizer, config.prompt_format, carrier=config.prefix.carrier)


def _planning_frame(config: PrefixCacheDatasetConfig, frame: Frame) -> setting.Frame:
    if config.sessions is not None and frame.tail_len:
        raise ConfigError(
            "sessions cannot be planned with a tokenizer that ends every prompt with"
            f" {plural(frame.tail_len, 'token')} of its own",
            context=ErrorContext(
                stage=Stage.PLAN, dataset_id=config.dataset_id, field="prompt_format"
            ),
            hint="use prompt_format: token_ids, or a tokenizer without tokens at the end",
        )
    return setting.Frame(
        head_len=frame.head_len, tail_len=frame.tail_len, shortest=shortest_possible(frame)
    )


def _choice(source: DataSourceConfig) -> SampleChoice:
    if isinstance(source, SuffixGenerationConfig):
        return SampleChoice(source.sample_ids, source.mode)
    return SampleChoice(source.sample_ids)
