"""`prefixbench simulate`: what a simulated cache would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from prefixbench.cli.output import Output
from prefixbench.cli.trace_source import read_source, trace_source_options
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage
from prefixbench.simulator.hit_definition import HitDefinition
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.routing import ROUTERS
from prefixbench.simulator.trace_cache import Policy

if TYPE_CHECKING:
    from prefixbench.simulator.replay import Replay

#: The routing that a data set's own plan makes; the others are routers.
PLANNED = "planned"

_TRACE_ALONE = ("trace",)
#: What an option needs beside it, by its parameter's name; common options stand with anything.
_GOES_WITH = {
    **dict.fromkeys(("form", "tokenizer", "sub_agents"), _TRACE_ALONE),
    "block_size": ("trace", "story"),
    **dict.fromkeys(("policy", "ttl", "hit_definition", "window"), _TRACE_ALONE),
    **dict.fromkeys(("curve", "concurrency", "routing", "dp_size"), ("dataset", "trace")),
    **dict.fromkeys(("profile", "capacity_blocks"), ("dataset", "trace", "story")),
    "cost": ("dataset", "trace", "story"),
    "check": ("replay",),
    "engine_path": ("dataset", "trace", "replay"),
}

#: The word that asks for the table of profiles instead of naming one.
LIST = "list"


@click.command(cls=Verb, stage=Stage.SIMULATE)
@click.option(
    "--dataset", type=click.Path(path_type=Path), help="Folder of a data set to play in its order."
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Workload of some server to put before a cache.",
)
@trace_source_options
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy]),
    help="With --trace: which block goes first; lru by default.",
)
@click.option("--ttl", type=click.FloatRange(0), help="With --trace: seconds a block may lie idle.")
@click.option(
    "--hit-definition",
    type=click.Choice([definition.value for definition in HitDefinition]),
    default=HitDefinition.TOKENS_ENGINE.value,
    show_default=True,
    help="With --trace: what the hit ratio and the curve count.",
)
@click.option(
    "--window",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="With --trace: share of the requests, from the end, that is measured.",
)
@click.option(
    "--story", type=click.Path(path_type=Path), help="A few requests, shown block by block."
)
@click.option("--replay", type=click.Path(path_type=Path), help="Recorded steps to replay.")
@click.option(
    "--check", is_flag=True, help="With --replay: exit 1 on the first difference from the record."
)
@click.option(
    "--engine-path",
    type=click.Choice([path.value for path in PlayPath]),
    default=PlayPath.AUTO.value,
    show_default=True,
    help="How an engine takes its steps: readable, compiled (extra fast), or what is sooner.",
)
@click.option(
    "--profile",
    help="Engine whose rules hold; `list` prints the table. A model that drafts or has windows:"
    " `NAME+eagle`, `NAME+window1024`.",
)
@click.option(
    "--capacity-blocks", type=click.IntRange(1), help="Blocks of each cache; unlimited by default."
)
@click.option("--curve", is_flag=True, help="Hit ratio by capacity.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Requests in flight; the data set's, and 1 with a trace, by default.",
)
@click.option(
    "--routing",
    type=click.Choice([PLANNED, *ROUTERS]),
    default=PLANNED,
    show_default=True,
    help="What decides which engine serves a request: a data set's plan, or such a router.",
)
@click.option("--dp-size", type=click.IntRange(1), help="Engines behind the router of --routing.")
@click.option(
    "--cost",
    type=click.Path(path_type=Path),
    help="Prices that `fit` has written: steps take time. A trace comes as it came, unless"
    " --concurrency is given.",
)
def command(
    output: Output,
    dataset: Path | None,
    trace: Path | None,
    story: Path | None,
    replay: Path | None,
    check: bool,
    engine_path: str,
    profile: str | None,
    routing: str,
    dp_size: int | None,
    **settings: Any,
) -> int:
    """Play a data set, a trace, a story or recorded steps against a simulated cache."""
    if profile == LIST:
        return _show_profiles(output)
    sources = {"dataset": dataset, "trace": trace, "story": story, "replay": replay}
    given = [name for name, file in sources.items() if file is not None]
    if len(given) != 1:
        raise click.UsageError(
            "give one of --dataset, --trace, --story, --replay or --profile list"
        )
    _refuse_misplaced_options(given[0])
    if routing != PLANNED and trace is not None and profile is None:
        raise click.UsageError("--routing goes with --dataset, or with --trace and --profile")
    path = PlayPath(engine_path)
    asks_for_engine = {"cost": settings["cost"] is not None, "engine-path": path != PlayPath.AUTO}
    for option, is_given in asks_for_engine.items():
        if is_given and trace is not None and profile is None:
            raise click.UsageError(f"--{option} goes with --trace where --profile names an engine")
    if dp_size is not None and routing == PLANNED:
        raise click.UsageError("--dp-size goes with --routing; the plan has ranks of its own")
    if replay is not None:
        return _replay(output, replay, check=check, path=path)
    if story is not None:
        chosen = {name: settings[name] for name in ("capacity_blocks", "block_size", "cost")}
        return _tell(output, story, profile=profile, **chosen)
    if trace is not None:
        return _simulate_trace(
            output, trace, profile, routing=routing, dp_size=dp_size or 1, path=path, **settings
        )
    assert dataset is not None
    limits = {name: settings[name] for name in ("capacity_blocks", "curve", "concurrency", "cost")}
    return _rehearse(
        output, dataset, profile, routing=routing, dp_size=dp_size or 1, engine_path=path, **limits
    )


def _refuse_misplaced_options(source: str) -> None:
    """An option that would change nothing is a mistake, and is told."""
    context = click.get_current_context()
    for option in context.command.params:
        places = _GOES_WITH.get(option.name or "")
        typed = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if places is not None and typed and source not in places:
            named = " or ".join(f"--{place}" for place in places)
            raise click.UsageError(f"{option.opts[0]} goes with {named}")


def _tell(output: Output, file: Path, **given: Any) -> int:
    from prefixbench.cli.simulate_story import story_document
    from prefixbench.cli.story_page import print_story

    document = story_document(file, **given)
    output.show(document, lambda console: print_story(document, console))
    return 0


def _simulate_trace(
    output: Output,
    file: Path,
    profile: str | None,
    *,
    routing: str,
    dp_size: int,
    policy: str | None,
    ttl: float | None,
    hit_definition: str,
    window: float,
    capacity_blocks: int | None,
    curve: bool,
    concurrency: int | None,
    cost: Path | None,
    path: PlayPath,
    **source: Any,
) -> int:
    from prefixbench.cli.played_times import cost_of
    from prefixbench.cli.simulate_trace import cache_rules, engine_row, trace_document
    from prefixbench.cli.trace_page import print_trace

    rules = cache_rules(policy=policy, concurrency=concurrency, ttl=ttl)
    source_trace = read_source(file, **source)
    if ttl is not None and any(one.arrival_ms is None for one in source_trace.requests):
        raise click.UsageError("--ttl needs arrival times, and the trace does not tell them")
    document = trace_document(
        source_trace,
        rules,
        capacity_blocks=capacity_blocks,
        definition=HitDefinition(hit_definition),
        window=window,
        with_curve=curve,
    )
    document["engine"] = profile and engine_row(
        source_trace,
        profile,
        capacity_blocks=capacity_blocks,
        concurrency=concurrency,
        routing=routing,
        dp_size=dp_size,
        cost=cost_of(cost),
        path=path,
    )
    output.show(document, lambda console: print_trace(document, console))
    return 0


def _show_profiles(output: Output) -> int:
    from prefixbench.cli.simulation_page import print_profiles
    from prefixbench.simulator.profile import profiles

    rows = [{**row.values(), "notes": dict(row.notes)} for row in profiles()]
    output.show({"profiles": rows}, lambda console: print_profiles(rows, console))
    return 0


def _replay(output: Output, file: Path, *, check: bool, path: PlayPath) -> int:
    from prefixbench.simulator.replay import replay_file

    replay = replay_file(file, check=check, path=path)
    document = replay.trace | {"engine_path": replay.path.value}
    output.show(document, lambda console: console.print(_replay_line(file, replay)))
    if replay.difference is None:
        return 0
    output.say(f"first difference: {replay.difference}")
    return 1


def _replay_line(file: Path, replay: Replay) -> str:
    counters = replay.trace.get("expected", {})
    told = ", ".join(
        f"{name} {value}" for name, value in counters.items() if isinstance(value, int)
    )
    verdict = "differs from its record" if replay.difference else "replayed"
    return f"{file.name} {verdict}" + (f": {told}" if told else "")


def _rehearse(output: Output, folder: Path, profile: str | None, **settings: Any) -> int:
    from prefixbench.cli.simulate_dataset import dataset_document
    from prefixbench.cli.simulation_page import print_rehearsal

    document = dataset_document(folder, profile, **settings)
    output.show(document, lambda console: print_rehearsal(document, console))
    return 0
