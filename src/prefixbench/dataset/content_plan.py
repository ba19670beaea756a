"""A plan as the composer takes it: columns, the tree of master prefixes, and turns of sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.prefix import PrefixGroupConfig
from prefixbench.config.sessions import Answers
from prefixbench.content.recipes import ContentColumns, Conversations
from prefixbench.content.tree import MasterTree
from prefixbench.workload.columns import IntArray
from prefixbench.workload.planner import Plan
from prefixbench.workload.sessions import session_count
from prefixbench.workload.tree import tree_of


@dataclass(frozen=True, kw_only=True)
class PlannedRows:
    """What the composer needs of each request, in generation order; lengths in tokens."""

    group: IntArray
    input_len: IntArray
    output_len: IntArray
    planned_prefix_len: IntArray
    divergence_len: IntArray
    group_ids: list[str]


def rows_of_plan(plan: Plan) -> PlannedRows:
    """The rows of a plan that was just made."""
    return PlannedRows(
        group=plan.workload.group,
        input_len=plan.workload.input_len,
        output_len=plan.workload.output_len,
        planned_prefix_len=plan.prefix_len,
        divergence_len=plan.divergence_len,
        group_ids=list(plan.workload.group_ids),
    )


def content_columns(rows: PlannedRows, config: PrefixCacheDatasetConfig) -> ContentColumns:
    """The rows as columns; no divergence block where none is wanted."""
    columns = ContentColumns(
        group=rows.group,
        input_len=rows.input_len,
        planned_prefix_len=rows.planned_prefix_len,
        divergence_len=rows.divergence_len,
        group_ids=rows.group_ids,
        tree=master_tree(config.prefix),
    )
    if config.sessions is not None:
        sessions = session_count(len(columns), config.sessions.turns)
        columns = _as_turns(columns, rows.output_len, sessions, config.sessions.answers)
    if config.suffix.divergence_block:
        return columns
    return replace(columns, divergence_len=np.zeros_like(columns.divergence_len))


def master_tree(prefix: PrefixGroupConfig) -> MasterTree | None:
    """The tree of a configuration; None where groups share nothing but the head."""
    tree = tree_of(prefix.tree)
    if tree is None:
        return None
    return MasterTree.of_levels(
        prefix.node_ids, [length for length in tree.lengths[:-1] if length is not None]
    )


def _as_turns(
    columns: ContentColumns, output_len: IntArray, sessions: int, answers: Answers
) -> ContentColumns:
    """Later turns begin behind the answer that the server gave, if it is the server's.

    Its last token is no part of the planned prefix, since no engine stores it, but of the text.
    """
    answer_len = np.zeros(len(columns), dtype=np.int64)
    prefix_len, divergence_len = columns.planned_prefix_len.copy(), columns.divergence_len.copy()
    if answers is Answers.SERVED:
        later = slice(sessions, None)
        answer_len[later] = output_len[: len(columns) - sessions]
        prefix_len[later] += 1
        room = columns.input_len[later] - prefix_len[later]
        divergence_len[later] = np.minimum(divergence_len[later], room)
    return replace(
        columns,
        planned_prefix_len=prefix_len,
        divergence_len=divergence_len,
        turns=Conversations(sessions=sessions, answer_len=answer_len),
    )
