"""Corpora: the generated one, files of several kinds, GSM8K by name, refusals."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from content_samples import gsm8k_file
from extras import needs
from prefixbench.content.corpus import GSM8K_VARIABLE, load_corpus
from prefixbench.content.word_problems import generate_word_problems
from prefixbench.core.errors import CorpusError


def test_word_problems_have_the_schema_and_their_sums_are_right() -> None:
    rows = list(generate_word_problems(3, 400))
    checked = 0
    for row in rows:
        assert list(row) == ["question", "answer"]
        *lines, last = row["answer"].split("\n")
        for formula, value in re.findall(r"<<([0-9+*-]+)=(\d+)>>", row["answer"]):
            left, operator, right = re.fullmatch(r"(\d+)([+*-])(\d+)", formula).groups()
            results = {
                "+": int(left) + int(right),
                "-": int(left) - int(right),
                "*": int(left) * int(right),
            }
            assert results[operator] == int(value) >= 0
            checked += 1
        assert last == f"#### {value}"
        assert lines
        assert not re.search(r"[{}]", row["question"] + row["answer"])
    assert checked > 800


def test_a_longer_list_of_problems_starts_with_the_shorter_one() -> None:
    longer = list(generate_word_problems(5, 60))
    assert longer[:20] == list(generate_word_problems(5, 20))
    assert longer != list(generate_word_problems(6, 60))
    assert len({row["question"] for row in longer}) == 60


def test_jsonl_rows_of_every_accepted_kind(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [{"question": "Q? ", "answer": " A"}, {"text": "plain"}, "bare", {"prompt": "p"}]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    corpus = load_corpus(path, seed=0)
    assert corpus.texts == ("Q?\nA", "plain", "bare", "p")
    assert (corpus.name, corpus.rows) == ("own.jsonl", 4)


def test_only_a_newline_ends_a_jsonl_row(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    texts = ("one\u2028two", "three\x85four\x0bfive\x0c\x1c\x1d\x1esix", "seven\u2029eight")
    rows = [f'{{"text": "{text}"}}' for text in (texts[0], texts[2])]
    rows.insert(1, json.dumps({"text": texts[1]}, ensure_ascii=False))
    path.write_bytes("\r\n".join(rows).encode())
    assert load_corpus(path, seed=0).texts == texts


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.txt"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, name: str) -> None:
    content = {"a.csv": "text\none two\n", "a.txt": "one two\n"}.get(name, '{"text": "one two"}\n')
    path = tmp_path / name
    path.write_text(content, encoding="utf-8-sig")
    assert load_corpus(path, seed=0).texts == ("one two",)


def test_json_is_a_list_of_rows_or_a_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    rows = [{"text": "one"}, "two", {"question": "three", "answer": "four"}]
    path.write_text(json.dumps(rows, indent=1))
    assert load_corpus(path, seed=0).texts == ("one", "two", "three\nfour")
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert load_corpus(path, seed=0).texts == ("one", "two", "three\nfour")


def test_an_answer_may_be_a_number_or_missing(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    answers = [7, 0, 2.5, None, " "]
    path.write_text("\n".join(json.dumps({"question": "Q?", "answer": a}) for a in answers))
    assert load_corpus(path, seed=0).texts == ("Q?\n7", "Q?\n0", "Q?\n2.5", "Q?", "Q?")


def test_csv_rows_are_read_by_their_header(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    long = "word " * 40_000
    path.write_text(f'\ufeffid,question,answer\n1,"Two, and\nmore?",4\n2,{long},\n')
    corpus = load_corpus(path, seed=0)
    assert corpus.texts == ("Two, and\nmore?\n4", long.strip())
    assert corpus.name == "own.csv"


def test_reading_a_csv_takes_nothing_from_other_readers_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("text\nTwo words.\n")
    before = csv.field_size_limit()
    load_corpus(path, seed=0)
    assert csv.field_size_limit() >= before


def test_a_csv_without_a_text_column_is_a_clear_refusal(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("id,size\n1,2\n")
    with pytest.raises(CorpusError, match=r"own\.csv line 2.*no column with a text") as caught:
        load_corpus(path, seed=0)
    assert "question" in caught.value.hint


def test_parquet_needs_its_extra_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match="extra `hf`") as caught:
        load_corpus(path, seed=0)
    assert "prefixbench[hf]" in caught.value.hint


@pytest.mark.extras
def test_parquet_rows_are_read(tmp_path: Path) -> None:
    pyarrow, parquet = needs("pyarrow"), needs("pyarrow.parquet")

    path = tmp_path / "own.parquet"
    parquet.write_table(pyarrow.table({"question": ["One?", "Two?"], "answer": ["1", "2"]}), path)
    assert load_corpus(path, seed=0).texts == ("One?\n1", "Two?\n2")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CorpusError, match="no table with a text"):
        load_corpus(path, seed=0)


def test_parquet_columns_without_text_are_not_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    far = pyarrow.array([2**62, 1], pyarrow.timestamp("us"))  # no Python date is so late
    parquet.write_table(pyarrow.table({"text": ["one", "two"], "when": far}), path)
    assert load_corpus(path, seed=0).texts == ("one", "two")


@pytest.mark.parametrize(
    ("columns", "row"),
    [({"text": ["one", None]}, 1), ({"text": [1, 2]}, 0), ({"size": [1]}, 0)],
)
def test_a_parquet_row_without_text_is_named(
    tmp_path: Path, columns: dict[str, list[object]], row: int
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(CorpusError, match=rf"own\.parquet row {row}"):
        load_corpus(path, seed=0)


def test_text_files_are_paragraphs_or_lines(tmp_path: Path) -> None:
    paragraphs, lines = tmp_path / "a.txt", tmp_path / "b.txt"
    paragraphs.write_bytes(b"one\r\ntwo\r\n\r\n\r\nthree\r\n")
    lines.write_text("one\ntwo\n")
    assert load_corpus(paragraphs, seed=0).texts == ("one\ntwo", "three")
    assert load_corpus(lines, seed=0).texts == ("one", "two")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{}\n", "line 1"),
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}\n', "line 2"),
        ("a.jsonl", b"nonsense\n", "line 1"),
        ("a.jsonl", b"[1]\n", "line 1"),
        ("a.jsonl", b'{"question": "Q?", "answer": ["A"]}\n', "line 1"),
        ("a.json", b'[{"text": "x"}, {"text": 3}]', "no JSON list"),
        ("a.json", b'[{"text": "x"}', "no JSON list"),
        ("a.txt", b"", "holds no text"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.zip", b"", "kind of file"),
        ("none", None, "no such file"),
    ],
)
def test_unusable_files_are_clear_refusals(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        load_corpus(path, seed=0)
    assert caught.value.exit_code == 4
    assert str(tmp_path) not in caught.value.render()


def test_a_missing_file_is_a_clear_refusal(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such file"):
        load_corpus(tmp_path / "none.jsonl", seed=0)


def test_gsm8k_without_its_data_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GSM8K_VARIABLE, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(CorpusError, match="not on this machine") as caught:
        load_corpus("gsm8k", seed=0)
    assert caught.value.exit_code == 4
    assert "grade-school-math" in caught.value.hint
    assert "\n" not in caught.value.hint


def test_a_place_of_gsm8k_that_is_empty_is_said_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(GSM8K_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(CorpusError, match=f"{GSM8K_VARIABLE} names no file"):
        load_corpus("gsm8k", seed=0)


@pytest.mark.parametrize("as_folder", [True, False])
def test_gsm8k_is_found_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, as_folder: bool
) -> None:
    path = gsm8k_file()
    monkeypatch.setenv(GSM8K_VARIABLE, str(path.parent if as_folder else path))
    corpus = load_corpus("gsm8k", seed=0)
    assert (corpus.name, corpus.rows) == ("gsm8k", 7_473)
    assert corpus.sha256 == "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"
