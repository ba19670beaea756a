"""`prefixbench plan`: what a configuration will give, without writing a text."""

from __future__ import annotations

from typing import Any

import click

from prefixbench.cli.configured import configuration_options, read_request
from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage


@click.command(cls=Verb, stage=Stage.PLAN)
@configuration_options
def command(output: Output, **given: Any) -> int:
    """Lengths, groups, reachability and the exact plan, without texts."""
    from prefixbench.cli.plan_page import print_plan
    from prefixbench.cli.progress import planning_progress
    from prefixbench.pipeline import plan_prefix_cache_dataset

    request = read_request(output, **given)
    with planning_progress(output):
        planned = plan_prefix_cache_dataset(request.config, server=request.server)
    document = planned.to_json()
    output.show(document, lambda console: print_plan(document, console))
    if planned.failure is None:
        return 0
    output.say(planned.failure.render())
    return planned.failure.exit_code
