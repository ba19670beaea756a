"""From a YAML file, or a mapping, to a configuration; or to one error with all its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from prefixbench.config.agreement import disagreements_between
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.inference import infer_across_sections
from prefixbench.config.keys import take_unknown_keys, without_empty
from prefixbench.config.overrides import SHORT_FORMS, Setting, expanded, parse_overrides, put
from prefixbench.config.problems import config_error, dotted, nearest_word, problems_of, shown
from prefixbench.config.yaml_text import parse_yaml
from prefixbench.core.errors import ConfigProblem

ROOT_KEY = "prefix_cache_dataset"

#: Keys that name files; a relative path in a configuration file counts from that file's folder.
PATH_KEYS = tuple(
    (section, "path") for section in ("input_length", "output_length", "prefix", "suffix")
)


def load_config(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    extra: Mapping[str, Any] | None = None,
) -> PrefixCacheDatasetConfig:
    """Read a file; `overrides` (KEY=VALUE) win over it, `extra` (dotted key to value) over both.

    Raises ConfigError with every problem found.
    """
    file = Path(path)
    problems: list[ConfigProblem] = []
    given = _anchored(_below_root(parse_yaml(text_of(file), problems), problems), file.parent)
    settings = parse_overrides(overrides, problems)
    settings += [(tuple(key.split(".")), value) for key, value in (extra or {}).items()]
    if problems and not given:
        raise config_error(problems)
    return _parse(given, settings, dataset_id_default=file.stem, problems=problems)


def parse_config(
    given: Mapping[str, Any], *, dataset_id_default: str = "dataset"
) -> PrefixCacheDatasetConfig:
    """A configuration out of a mapping, with or without the root key; raises ConfigError."""
    problems: list[ConfigProblem] = []
    below = _below_root(given, problems)
    return _parse(below, (), dataset_id_default=dataset_id_default, problems=problems)


def with_changes(
    config: PrefixCacheDatasetConfig, changes: Sequence[str]
) -> PrefixCacheDatasetConfig:
    """The same configuration with some `KEY=VALUE` changed, defaults settled anew.

    Raises ConfigError where the changes do not fit.
    """
    problems: list[ConfigProblem] = []
    given = config.model_dump(mode="json", exclude_unset=True)
    settings = parse_overrides(changes, problems)
    return _parse(given, settings, dataset_id_default=config.dataset_id, problems=problems)


def _parse(
    given: dict[str, Any],
    settings: Iterable[Setting],
    *,
    dataset_id_default: str,
    problems: list[ConfigProblem],
) -> PrefixCacheDatasetConfig:
    shorts = {dotted(place): short for short, place in SHORT_FORMS.items() if short in given}
    given = expanded(without_empty(given), problems)
    for path, value in settings:
        put(given, path, value, problems)
    given = without_empty({"dataset_id": dataset_id_default, **given})
    problems += take_unknown_keys(given, PrefixCacheDatasetConfig)
    values, found = _validated(infer_across_sections(given))
    problems += _unless_misspelled(found, problems)
    problems += disagreements_between(values)
    if problems:
        named = [_as_written(problem, shorts) for problem in problems]
        raise config_error(named, dataset_id=values.get("dataset_id"))
    return PrefixCacheDatasetConfig(**values)


def text_of(file: Path) -> str:
    """The file's text; raises ConfigError where it cannot be read or is not UTF-8."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 (byte {error.start})"
    except FileNotFoundError:
        message = "does not exist"
    except OSError as error:
        message = f"cannot be read ({error.strerror or type(error).__name__})"
    raise config_error(
        [ConfigProblem(path=file.name, message=message, allowed="a readable YAML file in UTF-8")]
    )


def _below_root(given: Any, problems: list[ConfigProblem]) -> dict[str, Any]:
    """The settings, out of the root key where there is one."""
    if isinstance(given, Mapping):
        root = _root_key_of(given)
        if root is None:
            return {str(key): value for key, value in given.items()}
        problems += _problems_at_the_root(given, root)
        given = given[root]
    if isinstance(given, Mapping):
        return {str(key): value for key, value in given.items()}
    if not problems:
        problems.append(
            ConfigProblem(
                path="",
                message="the configuration is empty" if given is None else "is no mapping",
                given=None if given is None else shown(given),
                allowed=f"keys and values, below {ROOT_KEY}: or at the top",
            )
        )
    return {}


def _root_key_of(given: Mapping[Any, Any]) -> str | None:
    """The root key, be it misspelled."""
    if ROOT_KEY in given:
        return ROOT_KEY
    return nearest_word(ROOT_KEY, [key for key in given if isinstance(key, str)])


def _problems_at_the_root(given: Mapping[Any, Any], root: str) -> Iterator[ConfigProblem]:
    if root != ROOT_KEY:
        yield ConfigProblem(path=root, message="is an unknown key", nearest=ROOT_KEY)
    for key in given:
        if key != root:
            yield ConfigProblem(
                path=str(key),
                message=f"stands beside {ROOT_KEY}",
                allowed=f"every key below {ROOT_KEY}:",
            )


def _anchored(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same settings, with relative paths of files counted from the folder."""
    for section, key in PATH_KEYS:
        values = given.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str):
            values[key] = str(folder / values[key])
    tokenizer = given.get("tokenizer")
    if isinstance(tokenizer, str) and (folder / tokenizer).exists():
        given["tokenizer"] = str(folder / tokenizer)
    return given


def _validated(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """Every top-level value on its own: the valid ones, and what is wrong with the others."""
    values: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for name, field in PrefixCacheDatasetConfig.model_fields.items():
        if name not in given:
            if field.is_required():
                problems.append(
                    ConfigProblem(path=name, message=f"is required: {field.description}")
                )
            else:
                values[name] = field.get_default(call_default_factory=True)
            continue
        try:
            values[name] = _adapter_of(field).validate_python(given[name])
        except ValidationError as error:
            problems += problems_of(error, (name,))
    return values, problems


def _adapter_of(field: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = field.annotation
    for rule in field.metadata:
        annotation = Annotated[annotation, rule]
    return TypeAdapter(annotation)


def _unless_misspelled(
    found: Iterable[ConfigProblem], unknown: Iterable[ConfigProblem]
) -> list[ConfigProblem]:
    """Without the keys that only seem to be missing, since an unknown key is close to them."""
    misspelled = {
        dotted((*problem.path.split(".")[:-1], problem.nearest))
        for problem in unknown
        if problem.nearest
    }
    return [
        problem
        for problem in found
        if problem.path not in misspelled or not problem.message.startswith("is required")
    ]


def _as_written(problem: ConfigProblem, shorts: Mapping[str, str]) -> ConfigProblem:
    """The problem under the name the user wrote, counted from below the root key."""
    path = problem.path.removeprefix(f"{ROOT_KEY}.")
    return replace(problem, path=shorts.get(path, path))
