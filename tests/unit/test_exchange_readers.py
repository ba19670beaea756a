"""Each foreign form, read from a few lines; what is wrong is named and never quoted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from prefixbench.core.errors import ConfigError, TokenizerError
from prefixbench.exchange import load
from prefixbench.exchange.anonymous import BlockNumbers
from prefixbench.exchange.load import load_trace, open_trace
from prefixbench.exchange.mooncake import write_requests
from prefixbench.exchange.runs import write_trace
from prefixbench.exchange.trace import ReadOptions, TraceFormat
from prefixbench.simulator.trace import BlockIds, TraceRequest

SECRET = "the launch is on Tuesday"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PREFIXBENCH_CACHE", str(folder))
    return folder


def written(tmp_path: Path, *rows: object, name: str = "trace.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read(path: Path, form: str, **options: object) -> list[TraceRequest]:
    return list(open_trace(path, TraceFormat(form), ReadOptions(**options)).requests)  # type: ignore[arg-type]


MOONCAKE = {"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]}


def test_mooncake(tmp_path: Path) -> None:
    path = written(tmp_path, MOONCAKE, {"input_length": 1, "hash_ids": [0], "session_id": "s"})
    assert read(path, "mooncake") == [
        TraceRequest(input_len=600, output_len=9, arrival_ms=5, blocks=(range(2),)),
        TraceRequest(input_len=1, blocks=(range(1),), conversation=0),
    ]
    trace = open_trace(path, TraceFormat.MOONCAKE)
    assert (trace.block_size, trace.ids) == (512, BlockIds.PREFIX)


def test_mooncake_with_another_block_size(tmp_path: Path) -> None:
    stated = written(tmp_path, MOONCAKE | {"block_size": 64})
    assert open_trace(stated, TraceFormat.MOONCAKE).block_size == 64
    given = ReadOptions(block_size=32)
    assert open_trace(stated, TraceFormat.MOONCAKE, given).block_size == 32


def test_mooncake_is_written_as_it_is_read(tmp_path: Path) -> None:
    rows = read(written(tmp_path, MOONCAKE, {"input_length": 3, "hash_ids": [7]}), "mooncake")
    again = tmp_path / "again.jsonl"
    with again.open("wb") as file:
        assert write_requests(rows, 512, file) == 2
    assert read(again, "mooncake") == rows
    assert "block_size" not in again.read_text()
    with again.open("wb") as file:
        write_requests(rows, 16, file)
    assert open_trace(again, TraceFormat.MOONCAKE).block_size == 16


def test_bailian_chats_go_back_to_their_first_turn(tmp_path: Path) -> None:
    rows = [
        {"chat_id": chat, "parent_chat_id": parent, "timestamp": 0.5, "input_length": 20}
        | {"output_length": 3, "type": "text", "turn": 1, "hash_ids": [4, 9]}
        for chat, parent in [(7, -1), (8, -1), (9, 7), (10, 9), (11, 99)]
    ]
    path = written(tmp_path, *rows)
    found = read(path, "bailian")
    assert [request.conversation for request in found] == [0, 1, 0, 0, 4]
    assert found[0].arrival_ms == 500
    assert found[0].blocks == (range(4, 5), range(9, 10))
    trace = open_trace(path, TraceFormat.BAILIAN)
    assert (trace.block_size, trace.ids) == (16, BlockIds.CONTENT)


def session(*requests: dict[str, object]) -> dict[str, object]:
    return {"id": "t", "block_size": 64, "hash_id_scope": "local", "requests": requests}


def turn(t: float, **ids: list[int]) -> dict[str, object]:
    return {"t": t, "type": "n", "in": 130, "out": 5, **ids}


def test_weka_sessions_share_nothing(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        session(turn(0, hash_ids=[1, 2]), turn(1.5, hash_runs=[1, 2, 9, 1])),
        session(turn(0, hash_ids=[1, 2])),
    )
    found = read(path, "weka")
    assert [request.blocks for request in found] == [
        (range(1, 3),),
        (range(1, 3), range(9, 10)),
        (range(11, 13),),
    ]
    assert [request.conversation for request in found] == [0, 0, 1]
    assert found[1].arrival_ms == 1500


def test_weka_sub_agents_stand_where_they_ran(tmp_path: Path) -> None:
    agent = {"t": 2, "type": "subagent", "requests": [turn(0, hash_ids=[5]), turn(3, hash_ids=[6])]}
    path = written(tmp_path, session(turn(0, hash_ids=[1]), agent, turn(4, hash_ids=[2])))
    assert [request.arrival_ms for request in read(path, "weka")] == [0, 4000]
    assert "sub-agents" in open_trace(path, TraceFormat.WEKA).chosen
    found = read(path, "weka", sub_agents=True)
    assert [request.arrival_ms for request in found] == [0, 2000, 4000, 5000]


def test_azure(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    assert read(path, "azure") == [
        TraceRequest(input_len=4808, output_len=10, arrival_ms=0.0),
        TraceRequest(input_len=3180, output_len=8, arrival_ms=52.0),
    ]
    trace = open_trace(path, TraceFormat.AZURE)
    assert (trace.block_size, trace.ids) == (None, None)
    assert "lengths and arrivals" in trace.notes[0]


def test_request_logs_with_ids_need_no_tokenizer(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"prompt_token_ids": [1, 2, 3, 4, 5], "max_tokens": 7, "arrival_ms": 2.5},
        {"token_ids": [1, 2, 3, 4, 9]},
        {"prompt": [1, 2, 3, 4]},
        {"input_ids": [1, 2, 3, 4, 5], "cache_salt": "x"},
    )
    found = read(path, "requests", block_size=2)
    assert [request.blocks for request in found] == [
        (range(3),),
        (range(2), range(3, 4)),
        (range(2),),
        (range(4, 7),),
    ]
    assert (found[0].input_len, found[0].output_len, found[0].arrival_ms) == (5, 7, 2.5)


def test_request_logs_with_texts_are_tokenized(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": SECRET * 9}, {"text": SECRET * 9}, {"text": "other"})
    first, second, third = read(path, "requests", tokenizer="builtin")
    assert first == second
    assert first.input_len > 20
    assert third.blocks[0].start not in first.blocks[0]
    with pytest.raises(ConfigError, match="no tokenizer is named"):
        read(path, "requests")
    with pytest.raises(TokenizerError):
        read(path, "requests", tokenizer=str(tmp_path / "none"))


def test_chat_logs_are_joined_without_a_template(tmp_path: Path) -> None:
    rules = {"role": "system", "content": "Answer in one sentence. " * 9}
    parts = [{"type": "text", "text": "What "}, {"type": "image_url", "image_url": {}}]
    rows = [
        {"messages": [rules, {"role": "user", "content": question}]}
        for question in ("Who?", parts, None)
    ]
    path = written(tmp_path, *rows)
    found = read(path, "requests", tokenizer="builtin")
    shared = {request.blocks[0].start for request in found}
    assert shared == {0}
    assert found[1].input_len > found[2].input_len > 30
    note = open_trace(path, TraceFormat.REQUESTS).notes[0]
    assert "chat template" in note
    assert "without tools, tool calls and images" in note


def test_parts_without_a_text_count_for_nothing(tmp_path: Path) -> None:
    silent = [{"type": "text", "text": None}, {"type": "image_url", "image_url": {}}]
    rows = [{"messages": [{"role": "user", "content": content}]} for content in (silent, "", None)]
    found = read(written(tmp_path, *rows), "requests", tokenizer="builtin")
    assert found == [found[0]] * 3


def test_a_content_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"messages": [{"role": "user", "content": {"text": SECRET}}]})
    with pytest.raises(ConfigError, match="line 1: the content of a message is no text") as caught:
        read(path, "requests", tokenizer="builtin")
    assert SECRET not in str(caught.value)


def test_block_numbers_cannot_be_guessed() -> None:
    one, two = BlockNumbers(4), BlockNumbers(4)
    assert one.of(range(9)) == two.of(range(9)) == [0, 1, 2]
    assert one._key != two._key


def test_what_is_kept_holds_no_text(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, {"prompt": SECRET})
    options = ReadOptions(tokenizer="builtin")
    first = load_trace(path, TraceFormat.REQUESTS, options)
    [kept] = cache.glob("trace-*.gz")
    assert SECRET.encode() not in gzip.decompress(kept.read_bytes())
    assert "Tuesday" not in gzip.decompress(kept.read_bytes()).decode()
    assert load_trace(path, TraceFormat.REQUESTS, options) == first


def test_a_changed_file_is_read_again(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, MOONCAKE)
    first = load_trace(path, TraceFormat.MOONCAKE)
    written(tmp_path, MOONCAKE, MOONCAKE)
    assert len(load_trace(path, TraceFormat.MOONCAKE).requests) == 2
    written(tmp_path, MOONCAKE)
    [kept] = [file for file in cache.glob("trace-*") if first.sha256.encode() in unpacked(file)]
    kept.write_bytes(kept.read_bytes()[:40])
    assert load_trace(path, TraceFormat.MOONCAKE) == first


def test_another_tokenizer_under_the_same_name_is_noticed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, {"prompt": SECRET})
    for fingerprint in ("first", "second", "second"):
        monkeypatch.setattr(load, "_fingerprint", lambda _options, found=fingerprint: found)
        load_trace(path, TraceFormat.REQUESTS, ReadOptions(tokenizer="builtin"))
    assert len(list(cache.glob("trace-*.gz"))) == 2


def unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def test_the_compact_form_loses_nothing(tmp_path: Path) -> None:
    source = load_trace(written(tmp_path, MOONCAKE), TraceFormat.MOONCAKE)
    compact = tmp_path / "trace.gz"
    for _ in range(2):
        with compact.open("wb") as file:
            assert write_trace(source.header, source.requests, file) == 1
    again = open_trace(compact, TraceFormat.RUNS)
    assert list(again.requests) == source.requests
    assert (again.name, again.block_size, again.ids) == ("trace.jsonl", 512, BlockIds.PREFIX)
    bytes_before = compact.read_bytes()
    with compact.open("wb") as file:
        write_trace(source.header, source.requests, file)
    assert compact.read_bytes() == bytes_before


def test_gzipped_files_are_read_as_they_are(tmp_path: Path) -> None:
    plain = written(tmp_path, MOONCAKE)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(packed, "mooncake") == read(plain, "mooncake")
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        read(packed, "mooncake")


@pytest.mark.parametrize(
    ("form", "line", "reason"),
    [
        ("mooncake", '{"input_length": 5}', "line 2: hash_ids is missing"),
        (
            "mooncake",
            '{"input_length": "Tuesday", "hash_ids": []}',
            "line 2: input_length is no number",
        ),
        ("mooncake", '{"input_length": 5, "hash_ids": ["Tuesday"]}', "line 2: hash_ids is no list"),
        (
            "mooncake",
            '{"input_length": 5, "output_length": "Tuesday", "hash_ids": []}',
            "line 2: output_length is no number",
        ),
        ("mooncake", '{"input_length": -5, "hash_ids": []}', "line 2: input_length is no whole"),
        ("mooncake", '{"input_length": Tuesday', "line 2: no valid JSON at column 18"),
        ("mooncake", '["Tuesday"]', "line 2: the line is no object"),
        ("bailian", '{"chat_id": 1}', "line 2: parent_chat_id is missing"),
        ("weka", '{"requests": [{"t": 0, "in": 1, "out": 1}]}', "line 2: hash_runs is missing"),
        (
            "weka",
            '{"requests": [{"t": 0, "in": 1, "out": 1, "hash_runs": [1]}]}',
            "line 2: hash_runs",
        ),
        ("weka", '{"requests": ["Tuesday"]}', "line 2: requests is no list of objects"),
        ("weka", '{"requests": [{"t": "Tuesday"}]}', "line 2: t is no number"),
        ("requests", '{"question": "Tuesday"}', "line 2: one of prompt, text"),
        ("requests", '{"token_ids": [-1]}', "line 2: token_ids has a number below 0"),
    ],
)
def test_a_wrong_line_is_named_and_not_quoted(
    form: str, line: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        read(path, form)
    assert f"wrong.jsonl, {reason}" in raised.value.message
    assert "Tuesday" not in raised.value.render()
    assert raised.value.exit_code == 2


def test_a_wrong_csv_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nTuesday,1,2\n")
    with pytest.raises(ConfigError, match="line 2: TIMESTAMP is no date"):
        read(path, "azure")


def test_a_file_of_another_form_has_no_header(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no header of this form"):
        read(written(tmp_path, MOONCAKE), "runs")


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no requests"):
        load_trace(written(tmp_path), TraceFormat.MOONCAKE)
