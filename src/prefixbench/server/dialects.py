"""Which page of metrics is shown: a dialect by its name, and a version of vLLM by the profile.

The dialects beside vLLM show the newest names of their engines, whatever the profile.
"""

from __future__ import annotations

from collections.abc import Mapping

from prefixbench.server.families import Dialect, Version
from prefixbench.server.page_of_vllm import NEWEST_VLLM, VLLM
from prefixbench.server.pages_of_others import LLAMACPP, MINDIE, SGLANG
from prefixbench.simulator.profile import EngineProfile

DIALECTS: Mapping[str, Dialect] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "mindie": MINDIE,
    "llamacpp": LLAMACPP,
}


def imitated_version(profile: EngineProfile) -> str:
    """The vLLM whose page a profile shows: its latest one, or the newest for other engines."""
    is_vllm = profile.engine in ("vLLM", "vLLM-Ascend")
    return profile.versions.rpartition("-")[2] if is_vllm else NEWEST_VLLM


def parse_version(text: str) -> Version:
    """
    >>> parse_version("0.11.2")
    (0, 11, 2)
    """
    return tuple(map(int, text.split(".")))
