"""Loops over arrays of integers, compiled where numba is installed, and the chains as such loops.

The one file of the simulator that may use numpy and numba; neither is imported unless asked for.
Every loop is plain Python, so that it can be tested as such, and gives what a readable model gives:
the chains below what `stack_distance` does, those of `compiled_play` what `engine` does.

A request is a row: its group, the blocks it shares with the group's chain, the blocks of its own.
Each row with shared blocks puts one run on its group's stack, so a run is named by its row: its
depth and its toucher are known, and one column says which run lies below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from inspect import getsource, isfunction
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prefixbench.simulator.stack_distance import ChainRequest

#: From so many requests on, loading the compiled loops costs less than they save.
WORTH_COMPILING = 300_000

_NO_RUN = -1
#: Deeper than any chain; sums with a number of blocks still fit 64 bits.
_FAR = 1 << 62


def can_compile() -> bool:
    return find_spec("numba") is not None


def is_worth_compiling(requests: int) -> bool:
    return requests >= WORTH_COMPILING and can_compile()


def integers(values: Sequence[int], *, short: bool = False) -> Any:
    """An array of 64-bit integers, or of 32-bit ones."""
    import numpy as np

    return np.array(values, np.int32 if short else np.int64)


def zeros(count: int, *, short: bool = False) -> Any:
    import numpy as np

    return np.zeros(count, np.int32 if short else np.int64)


def rows(count: int, fields: Sequence[str], **columns: Sequence[int]) -> Any:
    """Rows of named 64-bit integers, zero where no column is given; `rows[3].field` reads one."""
    import numpy as np

    table = np.zeros(count, [(field, np.int64) for field in fields]).view(np.recarray)
    for field, values in columns.items():
        table[field] = values
    return table


def rings(places: int, *, joined: int = 0) -> Any:
    """Links (before, after) of places in rings: the first `joined` in one, the others alone."""
    import numpy as np

    links = np.repeat(np.arange(places, dtype=np.int32), 2).reshape(places, 2)
    ring = links[:joined, 0].copy()
    links[:joined, 0], links[:joined, 1] = np.roll(ring, 1), np.roll(ring, -1)
    return links


def lacks_compiler(requests: int) -> bool:
    """Whether so many requests would be walked in compiled code, were numba installed."""
    return requests >= WORTH_COMPILING and find_spec("numba") is None


class ChainColumns(NamedTuple):
    """Requests as three arrays of 64-bit integers; groups count from 0."""

    group: Any
    shared: Any
    own: Any

    @classmethod
    def of(cls, requests: Sequence[ChainRequest]) -> ChainColumns:
        import numpy as np

        def column(name: str) -> Any:
            values = (getattr(request, name) for request in requests)
            return np.fromiter(values, np.int64, len(requests))

        return cls(column("group"), column("shared"), column("own"))


def compiled_hits(columns: ChainColumns, capacity_blocks: int) -> list[int]:
    """As `stack_distance.lru_hits`."""
    import numpy as np

    one_after_the_other = np.arange(len(columns.group))
    depths = compiled_depths(columns, one_after_the_other, capacity_blocks)
    found: list[int] = np.minimum(columns.shared, depths).tolist()
    return found


def compiled_depths(columns: ChainColumns, stored_before: Any, capacity_blocks: int) -> Any:
    """As `stack_distance.lru_depths`; an array, of which `stored_before` is one too."""
    import numpy as np

    count = len(columns.group)
    live, begins, depths = np.zeros(count, np.int64), np.zeros(count, np.int64), columns.shared * 0
    top, below = _no_runs(columns)
    deepest = np.zeros(len(top), np.int64)
    _compiled(_find_depths)(
        *columns, stored_before, capacity_blocks, top, below, begins, live, deepest, depths
    )
    return depths


def compiled_steps(columns: ChainColumns) -> dict[int, int]:
    """What `CapacityCurve.from_steps` takes: at each place, how many more hits than one nearer."""
    import numpy as np

    count = len(columns.group)
    # A row finds the runs that it covers, and cuts one more.
    begins, ends = np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64)
    weights = np.zeros(count + 1, np.int64)
    stretches = _compiled(_find_stretches)(*columns, *_no_runs(columns), weights, begins, ends)
    edges = np.concatenate((begins[:stretches], ends[:stretches]))
    signs = np.repeat(np.array([1, -1], np.int64), stretches)
    places, rows = np.unique(edges, return_inverse=True)
    steps = np.zeros(len(places), np.int64)
    np.add.at(steps, rows, signs)
    return dict(zip(places.tolist(), steps.tolist(), strict=True))


def _no_runs(columns: ChainColumns) -> tuple[Any, Any]:
    """The top of each group's stack, and what lies below each run."""
    import numpy as np

    groups = int(columns.group.max(initial=0)) + 1
    return np.full(groups, _NO_RUN, np.int64), np.full(len(columns.group), _NO_RUN, np.int64)


@cache
def _compiled(loop: Any) -> Any:
    return _jit(loop)


@cache
def compiled_entry(entry: Callable[..., Any], modules: tuple[ModuleType, ...]) -> Any:
    """A function compiled together with those of these modules, each after what it calls.

    What numba keeps on disk is named by all their sources: it looks at one file alone, and a rule
    may have changed in another.
    """
    from numba import njit

    inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # only called by the others
    digest = sha256("".join(map(getsource, modules)).encode()).hexdigest()[:16]
    namespace: dict[str, Any] = {}
    for module in modules:
        namespace |= vars(module)
    for name, function in list(namespace.items()):
        if isfunction(function) and function is not entry and _is_of(function, modules):
            namespace[name] = inner(FunctionType(function.__code__, namespace, name))
    whole = FunctionType(entry.__code__, namespace)
    whole.__qualname__ = f"{entry.__name__}-{digest}"
    return _jit(whole)


def _is_of(function: FunctionType, modules: tuple[ModuleType, ...]) -> bool:
    return function.__module__ in {module.__name__ for module in modules}


def _jit(loop: Any) -> Any:
    """Compiled at its first call, and kept on disk where there is a place to write to."""
    from numba import njit

    try:
        return njit(cache=True)(loop)
    except RuntimeError:  # no directory beside the file or of the user is writable
        return njit(loop)


def _find_depths(
    group: Any,
    shared: Any,
    own: Any,
    stored_before: Any,
    capacity: int,
    top: Any,
    below: Any,
    begins: Any,
    live: Any,
    deepest: Any,
    depths: Any,
) -> None:
    """Fill in `depths`; `live` are the blocks that each row touched last and that are still there,
    `begins` where its run begins (`_FAR` where it has none), `deepest` each group's cached depth.
    """
    stored = used = oldest = 0
    for row in range(len(depths)):
        while stored < stored_before[row]:
            reach, begin, run = shared[stored], 0, top[group[stored]]
            used += reach + own[stored] - min(reach, deepest[group[stored]])
            while run >= 0 and begin < reach:
                end = min(shared[run], reach)
                live[run] -= min(end - begin, live[run])
                begin = end
                if shared[run] > reach:
                    begins[run] = reach
                    break
                begins[run] = _FAR
                run = below[run]
            if reach:
                below[stored], top[group[stored]] = run, stored
                deepest[group[stored]] = max(reach, deepest[group[stored]])
            else:
                begins[stored] = _FAR
            live[stored] = reach + own[stored]
            while used > capacity:
                taken = min(live[oldest], used - capacity)
                live[oldest] -= taken
                used -= taken
                # Own blocks go first, then the deep end of the run.
                left = begins[oldest] + live[oldest]
                deepest[group[oldest]] = min(left, deepest[group[oldest]])
                if not live[oldest]:
                    oldest += 1
            stored += 1
        depths[row] = deepest[group[row]]


def _find_stretches(
    group: Any, shared: Any, own: Any, top: Any, below: Any, weights: Any, begins: Any, ends: Any
) -> int:
    """Fill in the places [begin, end) of every stretch that is found; return how many there are."""
    size = len(group)
    stretches = live = 0
    for row in range(size):
        depth, begin, run = shared[row], 0, top[group[row]]
        while run >= 0 and begin < depth:
            end = min(shared[run], depth)
            newer = live + begin  # what this row has lifted counts as newer
            index = run + 1
            while index:
                newer -= weights[index]
                index &= index - 1
            begins[stretches] = newer + 1
            ends[stretches] = newer + 1 + end - begin
            stretches += 1
            live += begin - end
            index = run + 1
            while index <= size:
                weights[index] += begin - end
                index += index & -index
            begin = end
            if shared[run] > depth:
                break
            run = below[run]
        if depth:
            below[row], top[group[row]] = run, row
        live += depth + own[row]
        index = row + 1
        while index <= size:
            weights[index] += depth + own[row]
            index += index & -index
    return stretches
