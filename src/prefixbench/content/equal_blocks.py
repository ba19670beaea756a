"""Requests whose first unshared block is equal: the only accidents that a chain allows.

Requests that begin their unique part with markers are judged all at once by their markers; those
that begin with natural text, one by one by the ids of the block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from prefixbench.content.compose import Composer
from prefixbench.content.registry import BlockRegistry
from prefixbench.content.tape import Positions
from prefixbench.core.blocks import align_down
from prefixbench.core.seeds import mixed, stream

#: Requests whose blocks are told apart at once: beyond, columns would only take memory.
_ROWS_AT_A_TIME = 1 << 16


def has_full_first_block(composer: Composer, block_size: int) -> Any:
    """Of each request, whether the block in which it leaves its prefix lies wholly inside it."""
    columns = composer.columns
    start = columns.planned_prefix_len // block_size * block_size
    return start + block_size <= columns.input_len


def classes_of_equal_markers(composer: Composer, block_size: int) -> list[Positions]:
    """Classes of requests that begin with the same markers at the same place.

    A marker occurs neither in a prefix nor in any other text, so blocks with markers are equal
    only if place and markers are.
    """
    is_marked = composer.recipes.column("marker_count") > 0
    requests = np.flatnonzero(is_marked & has_full_first_block(composer, block_size))
    keys = np.empty(len(requests), dtype=np.uint64)
    for start in range(0, len(requests), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        key: Any = stream("first_block")
        for column in _marked_beginnings(composer, block_size, requests[rows]):
            key = mixed(key, column.astype(np.uint64))
        keys[rows] = key
    return _equal_keys(keys, requests)


def _marked_beginnings(composer: Composer, block_size: int, requests: Positions) -> Iterator[Any]:
    """What tells marked first blocks apart, column by column."""
    table, prefix = composer.recipes, composer.columns.planned_prefix_len[requests]
    yield _meeting(composer, requests)
    yield prefix
    yield table.column("first_marker")[requests]
    inside = np.minimum(table.column("marker_count")[requests], block_size - prefix % block_size)
    yield np.where(inside > 1, table.column("second_marker")[requests], -1)


def _equal_keys(keys: Any, requests: Positions) -> list[Positions]:
    """Requests with one key, two or more, in their order."""
    # A plain sort tells whether there is any, and costs far less than finding out which.
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return []
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    return [requests[part] for part in np.split(order, ends) if len(part) > 1]


@dataclass(frozen=True, slots=True)
class EqualTexts:
    """Requests that are to be drawn anew, and the classes in which some find others' blocks."""

    redrawn: list[int]
    classes: list[Positions]


def find_equal_texts(composer: Composer, block_size: int) -> EqualTexts:
    """Requests whose unique part begins with the same natural text, or as their prefix goes on.

    Where one goes on as its prefix, its class is all that share this prefix.
    """
    owners: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    like_prefix: defaultdict[int, list[int]] = defaultdict(list)
    registries: dict[int, BlockRegistry] = {}
    natural = np.flatnonzero(composer.recipes.column("marker_count") == 0)
    numbering, prefix_len = composer.numbering, composer.columns.planned_prefix_len
    meeting = _meeting(composer, natural).tolist()
    prompts = zip(natural.tolist(), meeting, composer.each_ids(natural), strict=True)
    for request, meets_at, tokens in prompts:
        name, prefix = int(numbering[request]), int(prefix_len[request])
        if name not in registries:
            path = composer.ids_left_by(name)
            registries[name] = BlockRegistry(block_size, path, window_capacity=2)
        block = registries[name].first_block(tokens, prefix)
        if block is None:
            continue
        next_block = align_down(prefix, block_size) + block_size
        if registries[name].shared_len(tokens) >= next_block:
            like_prefix[name].append(request)
        else:
            owners[meets_at, block].append(request)
    equal = [np.array(requests) for requests in owners.values() if len(requests) > 1]
    return EqualTexts(
        redrawn=[
            *chain.from_iterable(like_prefix.values()),
            *chain.from_iterable(requests[1:].tolist() for requests in equal),
        ],
        classes=[*equal, *(composer.reaching(name) for name in like_prefix)],
    )


def _meeting(composer: Composer, requests: Positions) -> Positions:
    """A number that those have in common that share all before their unique part.

    That is their numbering, but for prefixes that end behind the first marker of a node: siblings
    that share it meet there.
    """
    numbering, tree = composer.numbering[requests], composer.columns.masters
    content = composer.columns.planned_prefix_len[requests] - composer.frame.head_len
    begin = tree.begins[np.maximum(tree.level_of(content), 0)]
    ends_behind_marker = (numbering >= 0) & (content == begin + 1)
    shared: Positions = np.where(
        ends_behind_marker, _first_alike(composer)[np.maximum(numbering, 0)], numbering
    )
    return shared


def _first_alike(composer: Composer) -> Positions:
    """Of each node, the first of its siblings that begins with the same marker."""
    markers = np.array([draw.markers[0] for draw in composer.recipes.masters])
    pairs = np.stack([composer.columns.masters.parent, markers], axis=1)
    _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    alike: Positions = first[inverse.ravel()]
    return alike


def classes_of_equal_heads(
    composer: Composer, block_size: int, order: Positions, caches: Positions
) -> list[Positions]:
    """The first requests of siblings that share their first marker, where a block ends behind it.

    Such siblings are more than there are markers; a second marker parts them one token later.
    `caches` are those of the requests, `order` lists them as they are sent.
    """
    columns = composer.columns
    tree, head_len = columns.masters, composer.frame.head_len
    first_turns = order[order < len(columns.group[columns.first_turns])]
    classes: list[Positions] = []
    for level, begin in enumerate(tree.begins.tolist()):
        behind_marker = head_len + begin + 1
        if behind_marker % block_size:
            continue
        reaching = first_turns[columns.planned_prefix_len[first_turns] >= behind_marker]
        nodes = tree.paths[columns.group[reaching], level]
        _, first = np.unique(np.stack([caches[reaching], nodes], axis=1), axis=0, return_index=True)
        opening = np.sort(first)
        classes += _equal_keys(_first_alike(composer)[nodes[opening]], reaching[opening])
    return classes
