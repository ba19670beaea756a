"""A trace out of a file of any known form; what was read once is kept in its compact form.

The kept file lies in the cache folder under a name made of the source's SHA-256 and of how it was
read, so a changed source is read again. It holds block numbers only, like every trace.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from prefixbench.content.disk_memo import cache_folder, write_whole
from prefixbench.core.errors import ConfigError
from prefixbench.core.log import event
from prefixbench.core.version import RULE_VERSION
from prefixbench.exchange import runs
from prefixbench.exchange.trace import ReadOptions, Trace, TraceFormat, broken_trace
from prefixbench.simulator.trace import BlockIds, TraceRequest

log = logging.getLogger(__name__)

_SILENT = "no request names a block, so nothing is known of what they share"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTrace:
    """A whole trace in memory, with the SHA-256 of its source; otherwise as `Trace`."""

    name: str
    format: TraceFormat
    sha256: str
    requests: Sequence[TraceRequest]
    block_size: int | None
    ids: BlockIds | None
    chosen: str
    notes: tuple[str, ...]

    @property
    def header(self) -> runs.Header:
        return runs.Header(
            name=self.name,
            source_format=self.format.value,
            source_sha256=self.sha256,
            block_size=self.block_size,
            ids=self.ids,
            chosen=self.chosen,
            notes=self.notes,
        )


def open_trace(path: Path, form: TraceFormat, options: ReadOptions | None = None) -> Trace:
    """The trace as a stream; errors name the line."""
    reader: Any = import_module(f"prefixbench.exchange.{form.value}")
    trace: Trace = reader.read_trace(path, options or ReadOptions())
    return trace


def load_trace(path: Path, form: TraceFormat, options: ReadOptions | None = None) -> LoadedTrace:
    """The whole trace, out of the cache folder if it was read before."""
    options = options or ReadOptions()
    with path.open("rb") as file:
        source = file_digest(file, "sha256").hexdigest()
    folder = cache_folder()
    if folder is None or form is TraceFormat.RUNS:
        return _loaded(open_trace(path, form, options), form, source)
    kept = folder / f"trace-{_key(source, form, options)}.jsonl.gz"
    with suppress(OSError, ConfigError):
        trace = _loaded(open_trace(kept, TraceFormat.RUNS), form, source)
        event(log, "trace.kept", requests=len(trace.requests))
        return replace(trace, name=path.name)
    trace = _loaded(open_trace(path, form, options), form, source)
    write_whole(kept, lambda file: runs.write_trace(trace.header, trace.requests, file))
    event(log, "trace.read", requests=len(trace.requests))
    return trace


def _loaded(trace: Trace, form: TraceFormat, source: str) -> LoadedTrace:
    requests = list(trace.requests)
    if not requests:
        raise broken_trace(f"{trace.name} holds no requests", hint="name another file")
    # Nothing told of sharing is not the same as nothing shared.
    tells = any(request.blocks for request in requests)
    silent = trace.block_size is not None and not tells
    return LoadedTrace(
        name=trace.name,
        format=form,
        sha256=source,
        requests=requests,
        block_size=trace.block_size if tells else None,
        ids=trace.ids if tells else None,
        chosen=trace.chosen,
        notes=(*trace.notes, *((_SILENT,) if silent else ())),
    )


def _key(source: str, form: TraceFormat, options: ReadOptions) -> str:
    parts = (source, form.value, options, _fingerprint(options), runs.FORMAT, RULE_VERSION)
    return sha256(repr(parts).encode()).hexdigest()[:32]


def _fingerprint(options: ReadOptions) -> str | None:
    """What the named tokenizer is, wherever it lies."""
    if options.tokenizer is None:
        return None
    from prefixbench.content.tokenizer import load_tokenizer

    return load_tokenizer(options.tokenizer).fingerprint
