"""A data set played against simulated engines, as the document that is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefixbench.cli.hit_rows import hit_rows, with_tiers
from prefixbench.cli.played_times import cost_of, times_document
from prefixbench.core.tally import as_rate
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.rehearsal import Spread, hits_by_capacity, rehearse
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.routing import ROUTERS
from prefixbench.simulator.stopwatch import Stopwatch


def dataset_document(
    folder: Path,
    profile: str | None,
    *,
    capacity_blocks: int | None,
    curve: bool,
    concurrency: int | None,
    routing: str,
    dp_size: int,
    cost: Path | None = None,
    engine_path: PlayPath = PlayPath.AUTO,
) -> dict[str, Any]:
    """What `simulate --dataset` shows; a profile and concurrency that are None are the data set's.

    A routing that names no router is the plan's.
    """
    dataset = DatasetReader(folder)
    dataset.check_hashes()
    manifest = dataset.manifest
    profile = profile or str(manifest.data["engine_profile"])
    concurrency = concurrency or int(manifest.config["execution"]["concurrency"])

    model = cost_of(cost)
    watch = None if model is None else Stopwatch()

    def make_engine() -> Engine:
        return Engine(
            profile,
            capacity_blocks,
            block_size=manifest.hit_granularity,
            cost=model or CostModel.ORDER_ONLY,
        )

    spread = Spread(dp_size, ROUTERS[routing]()) if routing in ROUTERS else None
    played = rehearse(
        dataset,
        make_engine,
        concurrency=concurrency,
        spread=spread,
        watch=watch,
        path=engine_path,
    )
    return {
        "dataset_id": manifest.dataset_id,
        "profile": profile,
        "engine_path": played.path.value,
        "capacity_blocks": capacity_blocks,
        "concurrency": concurrency,
        "routing": routing,
        "block_size": manifest.hit_granularity,
        "queries": played.tally.queries,
        "hits": played.tally.hits,
        "predicted_hit_ratio": as_rate(played.tally),
        "designed_hit_ratio": dataset.validation["designed_hit_ratio"],
        "evicted_blocks": played.evicted_blocks,
        "preemptions": played.preemptions,
        "groups": hit_rows("id", played.by_group.items()),
        "ranks": hit_rows("rank", sorted(played.by_place.items())),
        "domains": [
            {"rank": rank, "group": group, "queries": row.queries, "hits": row.hits}
            for (rank, group), row in sorted(played.by_domain.items())
        ],
        "tiers": hit_rows("name", played.by_tier.items()),
        "combined_hit_ratio": as_rate(with_tiers(played.tally, played.by_tier.values())),
        "times": None if watch is None else times_document(watch.moments.values()),
        "curve": _curve(dataset) if curve else None,
    }


def _curve(dataset: DatasetReader) -> list[dict[str, Any]]:
    return [
        {"capacity_blocks": capacity, "hit_ratio": as_rate(tally)}
        for capacity, tally in hits_by_capacity(dataset).items()
    ]
