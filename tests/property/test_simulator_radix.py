"""A radix tree with room for all knows the longest common prefix, and forgets nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefixbench.simulator.radix import RadixTree, token_array

SEQUENCE = st.lists(st.integers(0, 1), max_size=14)
NAMESPACE = st.sampled_from([None, "salt"])


def common_len(left: list[int], right: list[int]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


@given(
    st.lists(st.tuples(st.booleans(), SEQUENCE, NAMESPACE), max_size=25),
    st.sampled_from([1, 2, 3]),
)
def test_a_match_is_the_longest_common_prefix_in_whole_pages(
    operations: list[tuple[bool, list[int], str | None]], page: int
) -> None:
    tree = RadixTree(page)
    stored: list[tuple[list[int], str | None]] = []
    for is_insert, tokens, namespace in operations:
        here = [known for known, name in stored if name == namespace]
        longest = max((common_len(tokens, known) for known in here), default=0)
        expected = min(longest, len(tokens) // page * page) // page * page
        nodes = [(node.touched, len(node.tokens)) for node in tree.nodes()]
        assert tree.shared_len(token_array(tokens), namespace) == expected
        assert [(node.touched, len(node.tokens)) for node in tree.nodes()] == nodes
        if is_insert:
            assert tree.insert(token_array(tokens), namespace) == expected
            stored.append((tokens[: len(tokens) // page * page], namespace))
        else:
            assert tree.match(token_array(tokens), namespace).hit_len == expected
        tree.check_integrity()
    pages = {
        (name, tuple(known[:end]))
        for known, name in stored
        for end in range(page, len(known) + 1, page)
    }
    assert tree.evictable_len == len(pages) * page


@given(st.lists(st.tuples(SEQUENCE, st.booleans()), max_size=12), st.integers(0, 60))
def test_what_is_locked_stays_and_the_rest_goes(
    rows: list[tuple[list[int], bool]], wanted: int
) -> None:
    tree = RadixTree(1)
    locked = []
    for tokens, lock in rows:
        tree.insert(token_array(tokens))
        if lock:
            node = tree.match(token_array(tokens)).node
            tree.lock(node)
            locked.append((tokens, node))
    evictable = tree.evictable_len
    freed = tree.evict(wanted)
    tree.check_integrity()
    assert min(wanted, evictable) <= freed <= evictable
    for tokens, node in locked:
        assert tree.match(token_array(tokens)).hit_len == len(tokens)
        tree.unlock(node)
        tree.check_integrity()
    tree.evict(10**6)
    assert (tree.evictable_len, tree.protected_len) == (0, 0)
    assert not list(tree.nodes())
