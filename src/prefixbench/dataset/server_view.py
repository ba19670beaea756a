"""Prompts encoded again, as the server they are made for would."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.fast_engine import (
    FAST_ENGINE,
    REFERENCE_ENGINE,
    FastEngine,
    load_fast_engine,
)
from prefixbench.content.tape import Ids
from prefixbench.content.template import messages_renderer
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer
from prefixbench.core.errors import ErrorContext, Stage, TokenizerError
from prefixbench.core.log import event

log = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]


class ServerView:
    """Encodes rows of data.jsonl; `prompts_by_engine` counts what was encoded by which engine.

    The reference engine encodes, until a fast one has agreed with it on a sample.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_format: PromptFormat) -> None:
        self.prompts_by_engine: Counter[str] = Counter()
        self._tokenizer = tokenizer
        self._format = prompt_format
        is_chat = prompt_format is PromptFormat.CHAT
        self._render = messages_renderer(tokenizer) if is_chat else None
        before, after = ((), ()) if is_chat else tokenizer.frame_ids
        self._before, self._after = (np.array(ids, dtype=np.uint32) for ids in (before, after))
        self._fast: FastEngine | None = None

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any], tokenizer: str | None) -> ServerView:
        """The view of a data set's own tokenizer; TokenizerError if it is another one or none.

        Manifests name a tokenizer's file without its folder, so only the built-in one is found
        without help.
        """
        expected = manifest["tokenizer"]
        loaded = load_tokenizer(tokenizer or manifest["config"]["tokenizer"])
        if loaded.fingerprint != expected["fingerprint"]:
            raise TokenizerError(
                f"tokenizer {loaded.name!r} is not the one of the data set, {expected['name']!r}",
                context=ErrorContext(
                    stage=Stage.CONTENT, dataset_id=manifest["dataset_id"], field="tokenizer"
                ),
                hint="name the tokenizer that the data set was generated with",
            )
        return cls(loaded, PromptFormat(manifest["prompt_format"]))

    def try_fast_engine(self, sample: Rows) -> None:
        """Encode with the fast engine from now on, if there is one and both agree on the sample."""
        if self._format is PromptFormat.TOKEN_IDS or not sample:
            return
        fast = load_fast_engine(self._tokenizer)
        if fast is None:
            return
        texts = [self.text_of(row) for row in sample]
        self.prompts_by_engine[REFERENCE_ENGINE] += len(texts)
        reference = self._tokenizer.encode_batch(texts)
        pairs = zip(reference, fast.encode_batch(texts), strict=True)
        disagreements = sum(expected != found.tolist() for expected, found in pairs)
        if disagreements:
            event(
                log,
                "content.fast_engine_disagrees",
                level=logging.WARNING,
                prompts=disagreements,
                of=len(texts),
            )
            return
        self._fast = fast

    def __call__(self, rows: Rows) -> list[Ids]:
        """The whole sequence the server sees of each row."""
        if self._format is PromptFormat.TOKEN_IDS:
            return [np.array(row["prompt_token_ids"], dtype=np.uint32) for row in rows]
        texts = [self.text_of(row) for row in rows]
        bare = self._encode(texts)
        if not len(self._before) and not len(self._after):
            return bare
        return [np.concatenate([self._before, ids, self._after]) for ids in bare]

    def _encode(self, texts: Sequence[str]) -> list[Ids]:
        if self._fast is not None:
            self.prompts_by_engine[FAST_ENGINE] += len(texts)
            return self._fast.encode_batch(texts)
        self.prompts_by_engine[REFERENCE_ENGINE] += len(texts)
        return [np.array(ids, dtype=np.uint32) for ids in self._tokenizer.encode_batch(texts)]

    def text_of(self, row: Mapping[str, Any]) -> str:
        """The text the model sees of one row, special tokens spelled out by the template."""
        if self._render is None:
            return str(row["prompt"])
        return self._render(row["messages"])
