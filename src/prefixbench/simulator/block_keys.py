"""Exact identity of chained cache blocks, without hashing tokens.

vLLM names a block by a hash over its parent's hash, its tokens and its extra keys, so that two
blocks are equal only if everything before them is equal (seed rule of all vLLM v1 versions; the
choice of hash does not change hits). Here a block's key is a small integer that is given out
once per (parent key, content); keys are positive.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from prefixbench.simulator.tokens import TokenRuns, runs_of

Key = int


class BlockKeys:
    """Gives every full block of a token sequence its key; equal chains get equal keys.

    A block of consecutive tokens is known by its first token, and blocks of one run are given out
    as one list: a prompt of a few runs costs a few look-ups, however long it is.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._roots: dict[Hashable, Key] = {}
        self._children: dict[tuple[Key, tuple[int, ...]], Key] = {}
        self._runs: dict[tuple[Key, int], list[Key]] = {}
        self._next = 1
        self._collect_at = 100_000

    def of(
        self, prompt: Sequence[int], output: Sequence[int], extra_key: tuple[Hashable, ...] = ()
    ) -> list[Key]:
        """Keys of all full blocks of prompt and output together.

        `extra_key` (adapter, cache salt) separates chains from their first block on.
        """
        prompt_runs, output_runs = runs_of(prompt), runs_of(output)
        root = self._root(extra_key)
        if prompt_runs is None or output_runs is None:
            return self._of_tokens([*prompt, *output], root)
        if prompt_runs and output_runs and prompt_runs[-1].stop == output_runs[0].start:
            return self._of_runs(TokenRuns((*prompt_runs, *output_runs)).runs, root)
        return self._of_runs((*prompt_runs, *output_runs), root)

    def __len__(self) -> int:
        """How many keys are known; an upper bound of the blocks ever told apart."""
        return len(self._children) + sum(map(len, self._runs.values()))

    @property
    def worth_collecting(self) -> bool:
        return self._next > self._collect_at

    def forget_all_but(self, live: Iterable[Key]) -> None:
        """Drop keys that no cached block, no unfinished request and no kept key descends from."""
        parent_of = {key: parent for (parent, _content), key in self._children.items()}
        for (parent, _first), run in self._runs.items():
            parent_of.update(zip(run, (parent, *run), strict=False))
        kept: set[Key] = {0}
        for key in live:
            while key not in kept:
                kept.add(key)
                key = parent_of.get(key, 0)
        self._roots = {extra: key for extra, key in self._roots.items() if key in kept}
        self._children = {link: key for link, key in self._children.items() if key in kept}
        runs = {link: [key for key in run if key in kept] for link, run in self._runs.items()}
        self._runs = {link: run for link, run in runs.items() if run}
        self._collect_at = self._next + max(100_000, len(kept))

    def _root(self, extra_key: tuple[Hashable, ...]) -> Key:
        root = self._roots.get(extra_key)
        if root is None:
            root = self._roots[extra_key] = self._new_keys(1)[0]
        return root

    def _new_keys(self, count: int) -> range:
        keys = range(self._next, self._next + count)
        self._next += count
        return keys

    def _child(self, parent: Key, content: tuple[int, ...]) -> Key:
        link = (parent, content)
        key = self._children.get(link)
        if key is None:
            key = self._children[link] = self._new_keys(1)[0]
        return key

    def _run(self, parent: Key, first: int, count: int) -> list[Key]:
        """Keys of at least `count` blocks of consecutive tokens from `first` on, under `parent`."""
        link = (parent, first)
        run = self._runs.get(link)
        if run is None:
            run = self._runs[link] = []
        if len(run) < count:
            run.extend(self._new_keys(count - len(run)))
        return run

    def _of_runs(self, runs: Iterable[range], parent: Key) -> list[Key]:
        size = self.block_size
        keys: list[Key] = []
        open_block: tuple[int, ...] = ()
        for run in runs:
            start, stop = run.start, run.stop
            if open_block:
                start = min(start + size - len(open_block), stop)
                open_block += tuple(range(run.start, start))
                if len(open_block) < size:
                    continue
                parent = self._child(parent, open_block)
                keys.append(parent)
            whole = (stop - start) // size
            if whole:
                keys += self._run(parent, start, whole)[:whole]
                parent = keys[-1]
            open_block = tuple(range(start + whole * size, stop))
        return keys

    def _of_tokens(self, tokens: list[int], parent: Key) -> list[Key]:
        """As `_of_runs`, block by block; the same tokens get the same keys."""
        size = self.block_size
        keys: list[Key] = []
        run_start, run_parent, run_blocks = 0, 0, 0
        for start in range(0, len(tokens) // size * size, size):
            content = tuple(tokens[start : start + size])
            first = content[0]
            if content[-1] - first != size - 1 or content != tuple(range(first, first + size)):
                parent, run_blocks = self._child(parent, content), 0
            else:
                if not run_blocks or first != run_start + run_blocks * size:
                    run_start, run_parent, run_blocks = first, parent, 0
                run_blocks += 1
                parent = self._run(run_parent, run_start, run_blocks)[run_blocks - 1]
            keys.append(parent)
        return keys
