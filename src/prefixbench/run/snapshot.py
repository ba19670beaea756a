"""Looks at all metrics addresses at one moment; the raw pages are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from prefixbench.run.exposition import Exposition, ScrapeError, parse_exposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One look at one metrics address: its page, raw and read, or why there is none."""

    text: str | None = None
    page: Exposition | None = None
    error: ScrapeError | None = None

    @classmethod
    def of_text(cls, text: str) -> Self:
        try:
            return cls(text=text, page=parse_exposition(text))
        except ScrapeError as error:
            return cls(text=text, error=error)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """One scrape for each metrics address."""

    scrapes: Mapping[str, Scrape]

    @classmethod
    def of_pages(cls, pages: Mapping[str, str]) -> Self:
        """A snapshot from pages at hand, by address."""
        return cls({endpoint: Scrape.of_text(text) for endpoint, text in pages.items()})

    def scrape(self, endpoint: str) -> Scrape:
        """The look at one address; an empty one if the address was not looked at."""
        return self.scrapes.get(endpoint, Scrape())

    @property
    def errors(self) -> dict[str, ScrapeError]:
        """The addresses that gave no samples, and why."""
        return {
            endpoint: scrape.error
            for endpoint, scrape in self.scrapes.items()
            if scrape.error is not None
        }
