"""`prefixbench simulate --story`, as typed: every number is worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from prefixbench.cli.main import main


def tell(tmp_path: Path, story: dict[str, Any], *arguments: str) -> Result:
    path = tmp_path / "story.yaml"
    path.write_text(yaml.safe_dump(story))
    return CliRunner().invoke(main, ["simulate", "--story", str(path), *arguments])


def told(tmp_path: Path, requests: list[dict[str, Any]], **engine: Any) -> dict[str, Any]:
    result = tell(tmp_path, {"block_size": 4, **engine, "requests": requests}, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def hits(document: dict[str, Any]) -> dict[str, int]:
    return {row["id"]: row["hit_tokens"] for row in document["requests"]}


def asked(**prompts: str) -> list[dict[str, Any]]:
    return [{"id": name, "prompt": prompt} for name, prompt in prompts.items()]


def test_a_whole_prompt_is_never_a_hit(tmp_path: Path) -> None:
    document = told(tmp_path, asked(A="abcd efgh", B="abcd efgh", C="abcd efgh i"))
    assert hits(document) == {"A": 0, "B": 4, "C": 8}
    assert (document["hits"], document["queries"]) == (12, 25)
    assert (document["hit_blocks"], document["query_blocks"]) == (3, 4)


def test_a_block_is_told_by_all_that_stands_before_it(tmp_path: Path) -> None:
    document = told(tmp_path, asked(A="abcd efgh ijkl m", B="abcd xfgh ijkl m"))
    chains = {
        row["id"]: [(one["parent"], one["block"], one["tokens"]) for one in row["blocks"]]
        for row in document["requests"]
    }
    assert chains["A"] == [(None, 1, "abcd"), (1, 2, "efgh"), (2, 3, "ijkl")]
    assert chains["B"] == [(None, 1, "abcd"), (1, 4, "xfgh"), (4, 5, "ijkl")]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"lora": "a"}, {"lora": "a"}, 8),
        ({"lora": "a"}, {"lora": "b"}, 0),
        ({"lora": "a"}, {}, 0),
        ({"cache_salt": "a"}, {"cache_salt": "b"}, 0),
        ({"cache_salt": "a"}, {"lora": "a"}, 0),
        ({}, {}, 8),
    ],
)
def test_adapters_and_salts_keep_requests_apart(
    tmp_path: Path, first: dict[str, str], second: dict[str, str], found: int
) -> None:
    requests = [{"id": "A", "prompt": "abcd efgh i"} | first]
    requests.append({"id": "B", "prompt": "abcd efgh i"} | second)
    assert hits(told(tmp_path, requests))["B"] == found


def test_the_same_image_hits_and_another_does_not(tmp_path: Path) -> None:
    requests = [
        {"id": name, "prompt": "ab## #### ij#k l", "images": [image, "map"]}
        for name, image in (("A", "cat"), ("B", "dog"), ("C", "cat"))
    ]
    assert hits(told(tmp_path, requests)) == {"A": 0, "B": 0, "C": 12}


def test_an_answer_can_be_found_up_to_its_last_token(tmp_path: Path) -> None:
    """The KV of the last sampled token is never computed: floor((6 + 6 - 1) / 4) blocks of 4."""
    requests = [
        {"id": "A", "prompt": "abcd ef", "answer": "uvwxyz"},
        {"id": "B", "prompt": "abcd efuv wxyz next"},
    ]
    assert hits(told(tmp_path, requests)) == {"A": 0, "B": 8}


def test_steps_say_who_computed_found_and_lost_what(tmp_path: Path) -> None:
    """Four blocks; A leaves two of them findable, B takes the two empty ones and the tail of A."""
    requests = asked(A="abcd efgh", B="ABCD EFGH IJ", C="abcd efgh")
    document = told(tmp_path, requests, capacity_blocks=4)
    assert hits(document) == {"A": 0, "B": 0, "C": 4}
    steps = document["steps"]
    assert [step["computed"] for step in steps] == [{"A": 8}, {"B": 10}, {"C": 4}]
    lost = [[block["tokens"] for block in step["evicted"]] for step in steps]
    assert lost == [[], ["efgh"], []]
    assert document["evicted_blocks"] == 1
    # B's keyless block went back to the front and was C's second one, which is full and found.
    assert document["cache"]["blank_blocks"] == 0
    queue = [block["tokens"] for block in document["cache"]["queue"]]
    assert queue == ["EFGH", "ABCD", "efgh", "abcd"]


def test_requests_in_flight_share_a_budget(tmp_path: Path) -> None:
    requests = [one | {"arrive_step": 0} for one in asked(A="abcd efgh", B="abcd efgh")]
    document = told(tmp_path, requests, max_num_batched_tokens=4)
    assert [step["computed"] for step in document["steps"]] == [{"A": 4}, {"A": 4}, {"B": 4}]
    assert hits(document) == {"A": 0, "B": 4}


def test_a_preempted_request_is_counted_once(tmp_path: Path) -> None:
    requests = [
        {"id": name, "prompt": prompt, "output_length": 6, "arrive_step": 0}
        for name, prompt in (("A", "abcd efg"), ("B", "ABCD EFG"))
    ]
    document = told(tmp_path, requests, capacity_blocks=4)
    assert [row["preemptions"] for row in document["requests"]] == [0, 1]
    assert (document["queries"], document["preempted_queries"]) == (14, 9)
    assert document["requests"][1]["resume_hit_tokens"] == [document["preempted_hits"]] == [4]


def test_the_host_gives_back_what_the_device_has_lost(tmp_path: Path) -> None:
    requests = asked(A="abcd efgh i", B="ABCD EFGH IJKL M", C="abcd efgh i")
    document = told(tmp_path, requests, capacity_blocks=4, host_blocks=16)
    assert hits(document)["C"] == 0
    assert document["requests"][2]["tier_hit_tokens"] == document["tier_hits"] == 8


@pytest.mark.parametrize(
    ("profile", "found"),
    [("vllm-0.28+window8", [0, 16, 16]), ("vllm-0.33+window8", [0, 0, 16])],
)
def test_layers_with_windows_have_stories_too(
    profile: str, found: list[int], tmp_path: Path
) -> None:
    """The end of a shared prefix is kept from its first use on, or (0.29 on) from its second."""
    requests = asked(**{name: "abcd efgh ijkl mnop " + name * 9 for name in "ABC"})
    document = told(tmp_path, requests, profile=profile)
    assert list(hits(document).values()) == found
    shared = [block["block"] for block in document["requests"][0]["blocks"][:4]]
    assert all(
        [block["block"] for block in row["blocks"][:4]] == shared for row in document["requests"]
    )


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    story = {"block_size": 4, "requests": asked(A="abcd efgh i", B="abcd efgh i")}
    page = tell(tmp_path, story, "--profile", "sglang-0.5", "--capacity-blocks", "9")
    assert page.stdout.splitlines()[0] == "story.yaml  sglang-0.5, 4 tokens a block, 9 blocks"
    assert "B        [abcdefgh]i›·" in page.stdout


def test_a_step_waits_for_the_next_arrival(tmp_path: Path) -> None:
    requests = [one | {"arrive_step": 5} for one in asked(A="abcd")]
    assert [step["step"] for step in told(tmp_path, requests)["steps"]] == [5]


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    story = {
        "capacity": 4,
        "requests": [
            {"id": "A", "prompt": "ab##", "arive_step": 0},
            {"id": "B", "prompt": " ", "output_length": 0},
            {"id": "C", "prompt": "a", "answer": "b", "output_length": 1},
        ],
    }
    result = tell(tmp_path, story)
    assert result.exit_code == 2
    for expected in (
        "capacity: is an unknown key",
        "did you mean arrive_step?",
        "requests.0.images: has 0 names, the prompt 1 runs of #",
        "requests.1.output_length: is no valid value",
        "requests.2.output_length: is told by answer already",
    ):
        assert expected in result.output
    assert tell(tmp_path, {"requests": []}).exit_code == 2
    twice = tell(tmp_path, {"requests": asked(A="a") * 2})
    assert "name A twice" in twice.output
    too_long = tell(
        tmp_path, {"block_size": 4, "capacity_blocks": 1, "requests": asked(A="abcdefgh")}
    )
    assert (too_long.exit_code, "do not fit into 1 block" in too_long.output) == (2, True)
