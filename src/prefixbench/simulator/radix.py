"""A radix tree over token pages, as SGLang keeps its cache.

The rules are those of `RadixCache` in SGLang 0.5.23 (executed):

- a node holds a slice of tokens, whole pages only; children differ in their first page;
- matching and storing walk from the root and touch every node on the way; where a key leaves a
  node, the node is split there, and both halves count as touched, the upper one (a new node)
  later than the lower one;
- a lock keeps a node and all nodes above it; what is unlocked is evictable;
- eviction takes whole unlocked leaves, the least recently touched first, until enough tokens are
  free; a parent that becomes an unlocked leaf joins them;
- requests with different extra keys (adapter, cache salt) share nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count


@dataclass(slots=True, eq=False)
class Node:
    """A slice of tokens below its parent's; the root of a namespace holds none."""

    tokens: array[int]
    parent: Node | None
    touched: int
    children: dict[bytes, Node] = field(default_factory=dict)
    locks: int = 0
    in_heap: bool = False

    @property
    def is_evictable(self) -> bool:
        return not self.children and not self.locks and self.parent is not None


@dataclass(frozen=True, slots=True)
class Match:
    """The longest stored prefix of a key: its tokens, and the node where it ends."""

    hit_len: int
    node: Node


def token_array(tokens: Iterable[int]) -> array[int]:
    """Tokens in 64 bits each: numbers of traces need more than 31."""
    return array("q", tokens)


class RadixTree:
    """Stored token sequences. It never evicts by itself: the caller asks for room."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.evictable_len = 0
        self.protected_len = 0
        self._roots: dict[Hashable, Node] = {}
        self._ticks = count(1)
        # Unlocked leaves by the time they were touched, at the latest when they were pushed.
        self._heap: list[tuple[int, int, Node]] = []
        self._pushes = count()

    def match(self, tokens: array[int], extra_key: Hashable = None) -> Match:
        """Find the longest stored prefix, in whole pages; touches and splits nodes on the way.

        The tokens are matched as given: that a prompt's last token is never matched is the
        caller's rule.
        """
        return self._descend(tokens, extra_key)

    def shared_len(self, tokens: array[int], extra_key: Hashable = None) -> int:
        """How much of the start is stored, in whole pages; unlike a match, changes nothing."""
        node = self._roots.get(extra_key)
        depth = 0
        while node is not None:
            node = node.children.get(self._first_page(tokens[depth : depth + self.page_size]))
            if node is not None:
                part = tokens[depth : depth + len(node.tokens)]
                common = self._common_len(node.tokens, part)
                depth += common
                node = node if common == len(node.tokens) else None
        return depth

    def insert(self, tokens: array[int], extra_key: Hashable = None) -> int:
        """Store the whole pages of a sequence; returns how many tokens were there already."""
        length = len(tokens) // self.page_size * self.page_size
        found = self._descend(tokens, extra_key)
        if found.hit_len < length:
            self._add_leaf(found.node, tokens[found.hit_len : length])
        return found.hit_len

    def evict(self, tokens: int) -> int:
        """Free whole leaves until `tokens` are free or nothing is unlocked; returns how many."""
        freed = 0
        while freed < tokens and self._heap:
            touched, _, leaf = heappop(self._heap)
            leaf.in_heap = False
            if not leaf.is_evictable:
                continue
            if touched < leaf.touched:
                self._offer(leaf)
                continue
            freed += len(leaf.tokens)
            self._remove_leaf(leaf)
        return freed

    def lock(self, node: Node) -> None:
        """Keep a node and all above it."""
        for each in _path_up(node):
            if not each.locks:
                self.evictable_len -= len(each.tokens)
                self.protected_len += len(each.tokens)
            each.locks += 1

    def unlock(self, node: Node) -> None:
        """Give up one lock on a node and all above it."""
        for each in _path_up(node):
            each.locks -= 1
            if not each.locks:
                self.evictable_len += len(each.tokens)
                self.protected_len -= len(each.tokens)
                self._offer(each)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots."""
        stack = list(self._roots.values())
        while stack:
            for child in stack.pop().children.values():
                yield child
                stack.append(child)

    def check_integrity(self) -> None:
        """Sizes, locks and links agree."""
        evictable = protected = 0
        for node in self.nodes():
            assert node.tokens
            assert len(node.tokens) % self.page_size == 0
            assert node.parent is not None
            assert node.parent.children[self._first_page(node.tokens)] is node
            assert node.parent.parent is None or node.parent.locks >= node.locks
            assert node.in_heap or not node.is_evictable
            evictable += 0 if node.locks else len(node.tokens)
            protected += len(node.tokens) if node.locks else 0
        assert (evictable, protected) == (self.evictable_len, self.protected_len)

    def _descend(self, tokens: array[int], extra_key: Hashable) -> Match:
        node = self._roots.get(extra_key)
        if node is None:
            node = self._roots[extra_key] = Node(token_array(()), None, 0)
        depth = 0
        length = len(tokens) // self.page_size * self.page_size
        while depth < length:
            child = node.children.get(self._first_page(tokens[depth : depth + self.page_size]))
            if child is None:
                break
            child.touched = next(self._ticks)
            common = self._common_len(child.tokens, tokens[depth : depth + len(child.tokens)])
            depth += common
            if common < len(child.tokens):
                return Match(depth, self._split(child, common))
            node = child
        return Match(depth, node)

    def _first_page(self, tokens: array[int]) -> bytes:
        return tokens[: self.page_size].tobytes()

    def _common_len(self, held: array[int], asked: array[int]) -> int:
        """Tokens, in whole pages, that two sequences share from their start."""
        low, high = 0, min(len(held), len(asked)) // self.page_size
        if held[: high * self.page_size] == asked[: high * self.page_size]:
            return high * self.page_size
        while high - low > 1:
            middle = (low + high) // 2
            part = slice(low * self.page_size, middle * self.page_size)
            low, high = (middle, high) if held[part] == asked[part] else (low, middle)
        return low * self.page_size

    def _split(self, lower: Node, upper_len: int) -> Node:
        """Put a new node with the first part of `lower` between it and its parent."""
        parent = lower.parent
        assert parent is not None
        upper = Node(lower.tokens[:upper_len], parent, next(self._ticks), locks=lower.locks)
        parent.children[self._first_page(upper.tokens)] = upper
        lower.tokens = lower.tokens[upper_len:]
        lower.parent = upper
        upper.children[self._first_page(lower.tokens)] = lower
        return upper

    def _add_leaf(self, parent: Node, tokens: array[int]) -> None:
        leaf = Node(tokens, parent, next(self._ticks))
        parent.children[self._first_page(tokens)] = leaf
        self.evictable_len += len(tokens)
        self._offer(leaf)

    def _remove_leaf(self, leaf: Node) -> None:
        parent = leaf.parent
        assert parent is not None
        del parent.children[self._first_page(leaf.tokens)]
        self.evictable_len -= len(leaf.tokens)
        self._offer(parent)

    def _offer(self, node: Node) -> None:
        """Put a node that became an unlocked leaf where eviction looks for it."""
        if node.is_evictable and not node.in_heap:
            node.in_heap = True
            heappush(self._heap, (node.touched, next(self._pushes), node))


def _path_up(node: Node) -> Iterator[Node]:
    """The node and those above it, without the root."""
    each: Node | None = node
    while each is not None and each.parent is not None:
        yield each
        each = each.parent
