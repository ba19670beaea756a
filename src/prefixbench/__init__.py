"""prefixbench plans, proves, runs and explains prefix-cache benchmarks of LLM servers."""

from prefixbench.core.version import __version__

__all__ = ["__version__"]
