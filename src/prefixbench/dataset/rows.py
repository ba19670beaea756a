"""Lines of request_metadata.jsonl, made column by column.

A hundred thousand rows of twenty fields are written by one template; each column is turned into
JSON at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from prefixbench.content.batch import PromptBatch
from prefixbench.dataset.collisions import ComposedPlan
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lengths import request_id
from prefixbench.workload.planner import Plan
from prefixbench.workload.sessions import continued_request, session_id


def metadata_lines(
    plan: Plan, composed: ComposedPlan, batch: PromptBatch, start: int, stop: int
) -> bytes:
    """Rows of the requests at places [start, stop) of the sending order; `batch` holds the same."""
    requests = plan.order[start:stop]
    names = requests.tolist()
    outcome = _outcomes(plan, composed, requests)
    input_len, prefix_len = plan.workload.input_len[requests], plan.prefix_len[requests]
    divergence_len = plan.divergence_len[requests]
    group_words = [orjson.dumps(name) for name in plan.workload.group_ids]
    columns = {
        "request_id": _words(map(request_id, names)),
        "prefix_group_id": [group_words[g] for g in plan.workload.group[requests].tolist()],
        "order_index": _words(range(start, stop)),
        "input_len": _words(input_len),
        "output_len": _words(plan.workload.output_len[requests]),
        "planned_prefix_len": _words(prefix_len),
        "cached_watermark_before": _words(outcome["before"]),
        "expected_hit_len": _words(outcome["hits"]),
        "expected_head_hit_len": _words(outcome["head"]),
        "expected_hit_ratio": _words(outcome["hits"] / input_len),
        "cached_watermark_after": _words(outcome["after"]),
        "divergence_len": _words(divergence_len),
        "suffix_len": _words(input_len - prefix_len - divergence_len),
        "planned_dp_id": _words(plan.routes.dp_rank[requests]),
        "planned_instance_id": _words(plan.routes.instance[requests]),
        "collision_status": _words(map(composed.report.statuses.__getitem__, names)),
        "accidental_hit_len": _words(outcome["accidental"]),
        "sample_ids": batch.sample_ids(),
        "prefix_chars": _words(batch.prefix_chars()),
    }
    if plan.workload.session_count is not None:
        columns |= _turns(names, plan.workload.session_count)
    return json_lines(columns)


def _turns(requests: Sequence[int], sessions: int) -> dict[str, list[bytes]]:
    """Which turn of which session each request is, and which one it continues."""
    return {
        "session_id": [b'"%b"' % session_id(request % sessions).encode() for request in requests],
        "turn": _words([request // sessions for request in requests]),
        "history_request_id": [
            b"null" if history is None else b'"%b"' % history.encode()
            for history in (continued_request(request, sessions) for request in requests)
        ],
    }


def _outcomes(plan: Plan, composed: ComposedPlan, requests: IntArray) -> dict[str, Any]:
    """What the requests find cached, in tokens, accidental hits included."""
    granularity, depths = plan.geometry.granularity, plan.depths
    hit_blocks = depths.hits[requests].astype(np.int64)
    accidental = _accidental(composed, requests)
    return {
        "before": depths.before[requests].astype(np.int64) * granularity,
        "after": depths.after[requests].astype(np.int64) * granularity,
        "hits": hit_blocks * granularity + accidental,
        "head": np.minimum(hit_blocks, plan.geometry.head_blocks) * granularity,
        "accidental": accidental,
    }


def _accidental(composed: ComposedPlan, requests: IntArray) -> IntArray:
    """Tokens that the requests find by accident: none at all in most data sets."""
    found = composed.accidental_hits
    if not found:
        return np.zeros(len(requests), dtype=np.int64)
    return np.array([found.get(name, 0) for name in requests.tolist()], dtype=np.int64)


def json_lines(columns: Mapping[str, Sequence[bytes]]) -> bytes:
    """JSON lines from columns whose values are JSON already; most columns hold one value only.

    >>> json_lines({"a": [b"1", b"2"], "b": [b'"x"', b"null"]})
    b'{"a":1,"b":"x"}\\n{"a":2,"b":null}\\n'
    """
    template = b""
    varying: list[Sequence[bytes]] = []
    for name, values in columns.items():
        value = b"%b"
        if varying and values.count(values[0]) == len(values):
            value = values[0].replace(b"%", b"%%")
        else:
            varying.append(values)
        template += b",%b:%b" % (orjson.dumps(name).replace(b"%", b"%%"), value)
    template = b"{%b}\n" % template[1:]
    return b"".join([template % row for row in zip(*varying, strict=True)])


def _words(values: Any) -> list[bytes]:
    """Each number of a column, or each word without a comma, as JSON."""
    if not isinstance(values, np.ndarray):
        return orjson.dumps(list(values))[1:-1].split(b",")
    if (values == values[0]).all():
        return [orjson.dumps(values[0].item())] * len(values)
    return orjson.dumps(values.tolist())[1:-1].split(b",")
