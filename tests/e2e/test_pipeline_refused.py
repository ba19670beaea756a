"""What a configuration asks for and cannot have: what is told, and what is left."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import orjson
import pytest

from content_samples import packaged_file
from pipeline_samples import generate
from prefixbench.core.errors import (
    CorpusError,
    DatasetChangedError,
    PrefixBenchError,
    TokenizerError,
    UnreachableTargetError,
    ValidationFailedError,
)
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.pipeline import validate_dataset


def test_an_unreachable_target_leaves_a_report_and_no_data(tmp_path: Path) -> None:
    changes = ("request_count=3", "target.hit_ratio=0.95")
    with pytest.raises(UnreachableTargetError) as caught:
        generate(tmp_path / "out", *changes)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json",
        "validation_report.json",
    }
    report = orjson.loads((tmp_path / "out" / "validation_report.json").read_bytes())
    assert report["validation_status"] == "FAIL"
    manifest = DatasetManifest.load(tmp_path / "out")
    assert manifest.status == "partial"
    assert manifest.data["error"]["code"] == caught.value.code
    with pytest.raises(
        DatasetChangedError, match=r"partial \(target_unreachable\): target hit"
    ) as partial:
        validate_dataset(tmp_path / "out")
    assert partial.value.hint == caught.value.hint
    followed = generate(tmp_path / "ok", *changes, *report["suggestions"][0]["change"])
    assert followed["validation_status"] == "PASS"


def test_an_unreachable_group_is_named_and_its_change_can_be_pasted(tmp_path: Path) -> None:
    targets = "[{id: a, hit_ratio: 0.2}, {id: b, hit_ratio: 1}, {id: c, hit_ratio: 0.5}]"
    with pytest.raises(UnreachableTargetError) as caught:
        generate(
            tmp_path / "out",
            "target.hit_ratio=null",
            "target.scope=per_group",
            f"target.groups={targets}",
        )
    assert caught.value.message.startswith("target of b 1.0000 exceeds the reachable 0.8")
    assert "target of a" not in caught.value.message
    words = shlex.split(caught.value.hint)
    given = next(word for word in words if word.startswith("target.groups="))
    generate(
        tmp_path / "ok",
        "target.hit_ratio=null",
        "target.scope=per_group",
        given.removesuffix(")"),
    )


def test_blocks_that_are_too_large_for_the_tolerance_are_blamed(tmp_path: Path) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        generate(tmp_path / "out", "request_count=4", "block_size=4096")
    assert "smaller blocks" in caught.value.hint


@pytest.mark.parametrize("on_failure", ["warn", "accept_with_warning"])
def test_on_failure_may_let_the_nearest_set_through(tmp_path: Path, on_failure: str) -> None:
    report = generate(
        tmp_path / "out",
        "request_count=30",
        "target.hit_ratio=0.95",
        f"validation.on_failure={on_failure}",
    )
    assert report["validation_status"] == "FAIL"
    assert report["designed_hit_ratio"] == report["max_reachable_hit_ratio"]
    validate_dataset(tmp_path / "out")


def test_a_tokenizer_that_joins_words_is_refused_for_text_and_served_by_ids(
    tmp_path: Path,
) -> None:
    model = packaged_file("ai21-tokenizer", "j2-tokenizer.model")
    changes = (f"tokenizer={model}", "request_count=40")
    with pytest.raises(TokenizerError, match=r"117655 of \d+ pieces do, such as '") as caught:
        generate(tmp_path / "text", *changes)
    assert "token_ids" in caught.value.hint
    generate(tmp_path / "ids", *changes, "prompt_format=token_ids")
    proof = validate_dataset(tmp_path / "ids", tokenizer=str(model), verify="full")
    assert proof.verification is not None
    assert proof.verification.prompts_checked == 40


@pytest.mark.parametrize(
    ("changes", "options", "kind"),
    [
        (("tokenizer=no-such-folder",), {}, TokenizerError),
        (("suffix.source=gsm8k",), {}, CorpusError),
        ((), {"corpus": "no-such-file.jsonl"}, CorpusError),
        (("suffix.sample_ids=[99999999]",), {}, CorpusError),
    ],
)
def test_missing_materials_end_with_exit_code_four(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, ...],
    options: dict[str, Any],
    kind: type[PrefixBenchError],
) -> None:
    monkeypatch.delenv("PREFIXBENCH_GSM8K", raising=False)
    with pytest.raises(kind) as caught:
        generate(tmp_path / "out", *changes, **options)
    assert caught.value.exit_code == 4
    assert not (tmp_path / "out").exists()


def test_a_wish_that_keeps_a_plan_from_its_target_can_be_taken_back_by_pasting(
    tmp_path: Path,
) -> None:
    one_length = ("prefix.nested_prefix=false", "input_length=400", "block_size=128")
    with pytest.raises(ValidationFailedError) as caught:
        generate(tmp_path / "out", *one_length, "target.hit_ratio=0.5")
    assert "block_residual_calibration" not in caught.value.hint
    words = shlex.split(caught.value.hint)
    change = words[words.index("--set") + 1]
    assert change == "prefix.nested_prefix=true"
    followed = generate(tmp_path / "ok", *one_length, "target.hit_ratio=0.5", change)
    assert followed["residual_blocks"] == 0
