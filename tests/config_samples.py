"""Small configurations for tests, and the problems that a wrong one has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.load import load_config, parse_config
from prefixbench.core.errors import ConfigError, ConfigProblem


def minimal(**settings: Any) -> dict[str, Any]:
    """The three settings a data set needs, and what is given."""
    return {
        "request_count": 10,
        "input_length": 1000,
        "target": {"hit_ratio": 0.5},
        **settings,
    }


def parsed(**settings: Any) -> PrefixCacheDatasetConfig:
    return parse_config(minimal(**settings))


def problems_in(given: Any) -> dict[str, ConfigProblem]:
    """Path to problem of a configuration that must be refused."""
    with pytest.raises(ConfigError) as caught:
        parse_config(given)
    assert caught.value.exit_code == 2
    return by_path(caught.value)


def problems_with(**settings: Any) -> dict[str, ConfigProblem]:
    return problems_in(minimal(**settings))


def by_path(error: ConfigError) -> dict[str, ConfigProblem]:
    assert error.problems
    return {problem.path: problem for problem in error.problems}


def load_text(folder: Path, text: str, *overrides: str) -> PrefixCacheDatasetConfig:
    file = folder / "sample.yaml"
    file.write_text(text, "utf-8")
    return load_config(file, overrides)


def refused_text(folder: Path, text: str, *overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, *overrides)
    return caught.value
