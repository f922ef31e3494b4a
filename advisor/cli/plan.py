"""``advisor plan``: how many cores to own or reserve."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.own_jobs import jobs_since
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.whatif import LogOption, NodesOption, ProcessesOption, SinceOption
from advisor.model.advice import Capacity
from advisor.model.site import SiteState
from advisor.parallel import cores
from advisor.replay.traces import find_trace
from advisor.service.admin.plan_words import plan_table, plan_words
from advisor.service.admin.rehearsal_words import fidelity_words

if TYPE_CHECKING:
    from advisor.model.settings import Settings
    from advisor.replay.closed_loop.own_jobs import OwnJobs
    from advisor.replay.closed_loop.sizing import Plan

_OWN_SHARE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options about nodes, prices and the target, as they were given."""

    node_cores: int
    own_usd: float | None
    wait: float | None
    processes: int


def plan(
    *,
    since: SinceOption = "90d",
    trace: LogOption = None,
    nodes: NodesOption = 0,
    node_cores: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Cores of a node that is owned or reserved.")
    ] = 1,
    own_usd: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Price of an owned or reserved core-hour in USD; default: 0.4 of the on-demand price.",
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(min=0.0, help="Longest mean wait in minutes; default: that of the cluster as it is."),
    ] = None,
    processes: ProcessesOption = 0,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Find the cheapest size of the cluster, beside a budget for the cloud, that keeps the mean wait.

    The jobs of the last weeks are simulated on half to eleven tenths of the cluster, all on-premise and under
    the policy `price` with several budgets. Nothing is written.
    """
    begun = time.perf_counter()
    result = _result(
        settings_of(config),
        since=since,
        trace=None if trace is None else Path(find_trace(str(trace))),
        nodes=nodes,
        asked=_Asked(node_cores=node_cores, own_usd=own_usd, wait=wait, processes=processes or cores()),
    )
    result["seconds"] = time.perf_counter() - begun
    emit(result, output, lambda console: _draw(console, result))


def _result(
    settings: Settings,
    *,
    since: str,
    trace: Path | None,
    nodes: int,
    asked: _Asked,
) -> dict[str, Any]:
    from advisor.replay.closed_loop.fidelity import fidelity_of
    from advisor.replay.closed_loop.recommendation import fidelity_of_site
    from advisor.replay.closed_loop.site_settings import under_rules
    from advisor.replay.closed_loop.sizing import sized

    with ticking("reading the history") as tick:
        seen, own = jobs_since(settings, since, trace, nodes, tick)
        own = own.on_one_machine()  # each size is that of one
        jobs = under_rules(own, settings, seen)
        terms = _terms(settings, own, seen, asked)
        found = sized(jobs, terms, tick)
        fidelity = (
            fidelity_of_site(own.here, terms.world)
            if own.in_cloud
            else fidelity_of(own.here, found.on_premise)
        )
    return {
        "trace": "history" if trace is None else jobs.table.name,
        "since": float(jobs.submit[0]),
        "jobs": len(jobs),
        "days": jobs.span / 86_400.0,
        "processors": jobs.machine,
        "node_cores": terms.node_cores,
        "usd_per_core_hour": terms.usd_per_core_hour,
        "own_usd_per_core_hour": terms.own_usd_per_core_hour,
        "target_wait_seconds": found.target_wait_seconds,
        "optimum": None if found.optimum is None else asdict(found.optimum),
        "curve": [asdict(point) for point in found.curve],
        "fidelity": asdict(fidelity),
    }


def _terms(settings: Settings, own: OwnJobs, seen: SiteState, asked: _Asked) -> Plan:
    from advisor.decide.submission.cloud_terms import usd_per_core_hour
    from advisor.replay.closed_loop.recommendation import PRICE
    from advisor.replay.closed_loop.site_settings import terms_of, world_of
    from advisor.replay.closed_loop.sizing import Plan

    usd = usd_per_core_hour(Capacity.ON_DEMAND, seen.cloud, settings)
    return Plan(
        world=world_of(settings, own, seen, share=0.0),
        terms=replace(terms_of(settings, usd), policy=PRICE.policy, fixed_price=None),
        usd_per_core_hour=usd,
        own_usd_per_core_hour=_OWN_SHARE * usd if asked.own_usd is None else asked.own_usd,
        node_cores=asked.node_cores,
        target_wait_seconds=None if asked.wait is None else 60.0 * asked.wait,
        processes=asked.processes,
    )


def _draw(console: Console, result: Mapping[str, Any]) -> None:
    first, last = plan_words(result)
    console.print(Text(first))
    headings, cells, best = plan_table(result)
    print_table(console, headings, cells, numbers=headings, bold_rows=best)
    for line in (last, *fidelity_words(result["fidelity"])):
        console.print(Text(line))
