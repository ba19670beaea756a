"""parse(render(x)) == x, with a renderer of our own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefixbench.run.exposition import parse_exposition

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]

NAMES = st.from_regex(r"[a-z][a-z0-9_:]{0,12}x", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=8)
    | st.sampled_from(["\\", '"', "\n", '\\n"', "a,b}", "="]),
    max_size=3,
).map(lambda labels: tuple(sorted(labels.items())))
VALUES = st.integers(0, 2**53).map(float) | st.sampled_from([0.25, float("inf")])
SERIES = st.dictionaries(st.tuples(NAMES, LABELS), VALUES, min_size=1, max_size=8)


def render(series: Series, *, total: str) -> str:
    lines = []
    for name in sorted({name for name, _ in series}):
        lines.append(f"# TYPE {name}{total} {'counter' if total else 'gauge'}")
        for (owner, labels), value in series.items():
            if owner == name:
                pairs = ",".join(f'{key}="{escaped(text)}"' for key, text in labels)
                number = "+Inf" if value == float("inf") else repr(value)
                lines.append(f"{name}{total}{{{pairs}}} {number}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(SERIES, st.sampled_from(["", "_total"]))
def test_a_rendered_page_reads_back_the_same(series: Series, total: str) -> None:
    page = parse_exposition(render(series, total=total))
    read = {
        (name, tuple(sorted(sample.labels.items()))): sample.value
        for name, samples in page.samples.items()
        for sample in samples
    }
    assert read == series
