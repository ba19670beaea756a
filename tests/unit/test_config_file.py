"""Reading configuration files, and settings from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_samples import by_path, load_text, refused_text
from prefixbench.config.lengths import ExplicitLength, FixedLength
from prefixbench.config.load import load_config
from prefixbench.config.target import TargetSemantics
from prefixbench.core.errors import ConfigError

LONG = """\
prefix_cache_dataset:
  request_count: 4
  input_length: 512
  target: {hit_ratio: 0.5}
  prefix:
    groups:
      - {id: a, request_weight: 3}
      - {id: b, request_weight: 1}
"""
SHORT = "request_count: 4\ninput_length: 512\ntarget_prefix_ratio: 0.5\n"


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        LONG,
        "target.hit_ratio=0.25",
        "prefix.groups.1.request_weight=2.5",
        "input_length={mode: explicit, values: [1, 2, 3, 4]}",
        "validation.pass_tolerance=1e-3",
        "dataset_id=mine",
    )
    assert config.target.hit_ratio == 0.25
    assert [group.request_weight for group in config.prefix.groups] == [3, 2.5]
    assert config.input_length == ExplicitLength(values=(1, 2, 3, 4))
    assert config.validation.pass_tolerance == 0.001
    assert config.dataset_id == "mine"


def test_extra_settings_win_over_all(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(LONG)
    config = load_config(file, ["seed=1"], extra={"seed": 7, "planning.concurrency": 16})
    assert (config.seed, config.planning.concurrency) == (7, 16)


def test_a_later_setting_wins(tmp_path: Path) -> None:
    assert load_text(tmp_path, LONG, "seed=1", "seed=2").seed == 2


def test_long_settings_change_what_a_short_form_said(tmp_path: Path) -> None:
    config = load_text(tmp_path, SHORT, "target.hit_ratio=0.75")
    assert config.target.hit_ratio == 0.75
    assert config.target.semantics is TargetSemantics.STATIC_PREFIX_RATIO
    again = load_text(tmp_path, SHORT, "target_prefix_ratio=0.25", "prefix_mode=single_prefix")
    assert again.target.hit_ratio == 0.25


def test_a_null_setting_gives_the_default_back(tmp_path: Path) -> None:
    assert load_text(tmp_path, SHORT + "block_size: 32\n", "block_size=null").block_size is None


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("nothing", "--set"),
        ("=5", "--set"),
        ("target..hit_ratio=5", "--set"),
        ("prefix.groups.2.id=c", "prefix.groups.2"),
        ("prefix.groups.x.id=c", "prefix.groups.x"),
        ("request_count.deep=1", "request_count.deep"),
        ("target.hit_ratoi=1", "target.hit_ratoi"),
        ("target={hit_ratio: 0.5", "target"),
        ("target={hit_ratio: 0.5, hit_ratio: 0.6}", "target.hit_ratio"),
    ],
)
def test_a_setting_that_cannot_be_made_is_refused(tmp_path: Path, setting: str, path: str) -> None:
    assert path in by_path(refused_text(tmp_path, LONG, setting))


def test_problems_of_file_and_settings_come_together(tmp_path: Path) -> None:
    error = refused_text(tmp_path, LONG.replace("512", "0"), "nothing", "seed=x")
    assert set(by_path(error)) == {"--set", "seed", "input_length.value"}


def test_a_short_form_beside_its_long_form_is_refused(tmp_path: Path) -> None:
    error = refused_text(tmp_path, SHORT + "target: {hit_ratio: 0.6}\n")
    problem = by_path(error)["target_prefix_ratio"]
    assert "target.hit_ratio" in problem.message


def test_a_problem_is_named_by_the_short_form_the_user_wrote(tmp_path: Path) -> None:
    assert "target_prefix_ratio" in by_path(refused_text(tmp_path, SHORT.replace("0.5", "5")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        load_config(tmp_path / "absent.yaml")
    assert str(tmp_path) not in caught.value.render()


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"seed: 1 # \xff\xfe")
    with pytest.raises(ConfigError, match=r"is not UTF-8 \(byte 10\)"):
        load_config(file)


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SHORT.encode())
    assert load_config(file).request_count == 4


@pytest.mark.parametrize("text", ["", "# nothing\n", "just words\n", "- 1\n- 2\n", "---\n"])
def test_a_file_without_settings_is_refused(tmp_path: Path, text: str) -> None:
    assert refused_text(tmp_path, text).exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2\n",
        "a: b: c\n",
        "\tseed: 1\n",
        "a: *nowhere\n",
        "a: !!python/object:os.system x\n",
        "a: 1\n---\nb: 2\n",
        "a: \x01\n",
        "[" * 5000,
    ],
)
def test_broken_yaml_is_told_and_never_shown(tmp_path: Path, text: str) -> None:
    error = refused_text(tmp_path, text)
    assert "is no valid YAML" in error.message
    assert len(error.problems) == 1


def test_broken_yaml_names_line_and_column(tmp_path: Path) -> None:
    assert "line 2, column" in refused_text(tmp_path, "seed: 1\na: b: c\n").message


def test_repeated_keys_are_told_with_their_lines(tmp_path: Path) -> None:
    error = refused_text(tmp_path, LONG + "  seed: 1\n  prefix: {mode: single_prefix}\n  seed: 2\n")
    problems = by_path(error)
    assert "lines 9 and 11" in problems["seed"].message
    assert "lines 5 and 10" in problems["prefix"].message


def test_an_alias_to_itself_does_not_hang(tmp_path: Path) -> None:
    error = refused_text(tmp_path, SHORT + "prefix: &p {groups: [*p]}\n")
    assert "line 4, column 9: an alias stands inside its own anchor" in error.message


def test_merge_keys_and_aliases_work(tmp_path: Path) -> None:
    text = SHORT.replace("512", "&length {mode: fixed, value: 512}")
    config = load_text(tmp_path, text + "output_length: {<<: *length, value: 8}\n")
    assert config.output_length == FixedLength(value=8)


def test_values_are_read_as_yaml_1_2(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        "request_count: 0x10\n"
        "seed: 010\n"
        "dataset_id: 2024-01-31\n"
        "input_length: 512\n"
        "target: {hit_ratio: 5e-1}\n"
        "prefix: {groups: [{id: no}, {id: 1:30}]}\n",
    )
    assert (config.request_count, config.seed, config.dataset_id) == (16, 10, "2024-01-31")
    assert config.target.hit_ratio == 0.5
    assert config.prefix.group_ids == ("no", "1:30")
    refused_text(tmp_path, SHORT + "save_prompts: yes\n")
