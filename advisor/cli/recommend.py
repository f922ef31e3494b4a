"""``advisor recommend``: the budget that the site's own last weeks suggest."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.own_jobs import jobs_of_site, lasting_state
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.whatif import NodesOption, ProcessesOption
from advisor.model.advice import Capacity
from advisor.model.periods import period_days
from advisor.parallel import Tick, cores
from advisor.service.admin.recommend_words import reason_words, recommend_table, recommend_words

if TYPE_CHECKING:
    from advisor.model.settings import Settings
    from advisor.model.settings_price import BudgetSettings
    from advisor.replay.closed_loop.own_jobs import OwnJobs
    from advisor.replay.closed_loop.policies import Terms
    from advisor.replay.closed_loop.rehearse import Rehearsal


_Weeks = Annotated[
    int | None,
    typer.Option(
        min=4,
        help="Rehearse the last so many weeks of the history, up to its newest job. By default 12, or the "
        "newest 500,000 jobs where there are more.",
    ),
]
_Usd = Annotated[
    float | None,
    typer.Option(min=0.01, help="A budget of a month in USD: show it as well, and pick it."),
]
_UsdPerHour = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="What an hour saved is worth in USD; 0: budget.usd_per_hour_saved, else what an hour of the "
        "mean job costs in the cloud.",
    ),
]
_Write = Annotated[
    bool, typer.Option("--write", help="Write the picked budget into the settings file (`budget.usd`).")
]
_Keep = Annotated[
    bool,
    typer.Option(
        "--keep",
        help="Keep the curves, also of other uncertainty limits, for the page Tune. It takes longer.",
    ),
]


def recommend(
    *,
    weeks: _Weeks = None,
    usd: _Usd = None,
    usd_per_hour: _UsdPerHour = 0.0,
    write: _Write = False,
    keep: _Keep = False,
    nodes: NodesOption = 0,
    processes: ProcessesOption = 0,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Recommend a budget: hours saved against dollars a month, from the site's own last weeks.

    The last weeks of the history are simulated with several budgets under the policy `price`, and all
    on-premise. A job that leaves the queue lets the others start sooner, so the hours are those of all jobs.
    Nothing is written without --write.
    """
    from advisor.cli.config_values import tell_written, write_settings

    begun = time.perf_counter()
    settings = settings_of(config)
    result = _recommended(settings, weeks, usd, usd_per_hour, nodes, processes, keeps=keep)
    picked = result["pick"]["usd"]
    written = None
    if write and picked:
        # the settings may have changed while the weeks were rehearsed
        written = write_settings(
            config, lambda: _monthly(settings_of(config).budget, picked), "advisor recommend --write"
        )
    result |= {"written": written, "seconds": time.perf_counter() - begun}

    def draw(console: Console) -> None:
        _draw(console, result)
        if written is not None:
            tell_written(console, written)
        elif picked:
            console.print(Text(f"To write it: advisor recommend --usd {picked:.12g} --write"))

    emit(result, output, draw)


def _monthly(before: BudgetSettings, usd: float) -> dict[str, Any]:
    """The settings of a budget of so much a month; accounts and users keep the period of their own money."""
    changed: dict[str, Any] = {"budget.usd": usd, "budget.period": "month"}
    if before.period != "month":
        if before.accounts and before.account_period is None:
            changed["budget.account_period"] = before.period
        if before.users and before.user_period is None:
            changed["budget.user_period"] = before.period
    return changed


def _recommended(
    settings: Settings,
    weeks: int | None,
    usd: float | None,
    usd_per_hour: float,
    nodes: int,
    processes: int,
    *,
    keeps: bool,
) -> dict[str, Any]:
    from advisor.replay.closed_loop.recommendation import (
        Pick,
        curve_of,
        fidelity_of_site,
        pick_of,
        worth_of_hour,
    )
    from advisor.replay.closed_loop.site_settings import requeueable_share

    with ticking("reading the history") as tick:
        own, asked, terms = _window(settings, weeks, nodes, processes or cores())
        jobs = own.jobs
        curve = curve_of(jobs, asked, () if usd is None else (usd,), tick, terms)
        kept = _kept(settings, own, asked, terms, tick) if keeps else None
        fidelity = fidelity_of_site(own.here, asked.world)
    said = usd_per_hour or settings.budget.usd_per_hour_saved
    worth = said or worth_of_hour(jobs, asked.usd_per_core_hour)
    pick = pick_of(curve.points, worth) if usd is None else Pick(usd=usd, worth_usd=worth)
    return {
        "begin": float(jobs.submit[0]),
        "end": float(jobs.submit[-1]),
        "jobs": len(jobs),
        "processors": jobs.machine,
        "usd_per_core_hour": asked.usd_per_core_hour,
        "boot_seconds": asked.world.boot_seconds,
        "slowdown": asked.world.slowdown,
        **asdict(curve),
        "fidelity": asdict(fidelity),
        "pick": asdict(pick),
        "reason": reason_words(pick, is_asked=usd is not None, is_set=said > 0.0),
        "requeueable_share": requeueable_share(own, settings),
        "keeps_places": settings.hedge.enabled,
        "kept": kept,
    }


def _kept(settings: Settings, own: OwnJobs, asked: Rehearsal, terms: Terms, tick: Tick) -> Path:
    """Rehearse the usual budgets under each uncertainty limit and keep the curves; returns their file."""
    from advisor.replay.closed_loop.recommendation import curve_of, worth_of_hour
    from advisor.service.admin.curves import KeptCurves, LimitCurve, keep, limits_of

    found = {
        limit: curve_of(own.jobs, asked, (), tick, replace(terms, uncertainty_limit=60.0 * limit))
        for limit in limits_of(settings)
    }
    widest = next(iter(found.values()))
    curves = KeptCurves(
        time=time.time(),
        begin=float(own.jobs.submit[0]),
        end=float(own.jobs.submit[-1]),
        jobs=len(own.jobs),
        weeks=widest.weeks,
        usd_per_core_hour=asked.usd_per_core_hour,
        mean_wait_seconds=widest.mean_wait_seconds,
        worth_usd=worth_of_hour(own.jobs, asked.usd_per_core_hour),
        curves=tuple(
            LimitCurve(limit_minutes=None if math.isinf(limit) else limit, points=curve.points)
            for limit, curve in found.items()
        ),
    )
    return keep(settings.paths.state, curves)


def _window(
    settings: Settings, weeks: int | None, nodes: int, processes: int
) -> tuple[OwnJobs, Rehearsal, Terms]:
    """The jobs of the last weeks, the cloud as it is known, and the price as it is set."""
    from advisor.decide.submission.cloud_terms import usd_per_core_hour
    from advisor.replay.closed_loop.recommendation import PRICE, begin_of
    from advisor.replay.closed_loop.rehearse import Rehearsal
    from advisor.replay.closed_loop.site_settings import terms_of, under_rules, world_of

    seen = lasting_state(settings)
    own = jobs_of_site(settings, seen, nodes, lambda table: begin_of(table, weeks))
    usd = usd_per_core_hour(Capacity.ON_DEMAND, seen.cloud, settings)
    asked = Rehearsal(
        policies=(PRICE.policy,),
        world=replace(world_of(settings, own, seen, share=0.0), max_days=period_days("month")),
        usd_per_core_hour=usd,
        processes=processes,
    )
    terms = replace(terms_of(settings, usd), policy=PRICE.policy, fixed_price=None)
    return replace(own, jobs=under_rules(own, settings, seen)), asked, terms


def _draw(console: Console, result: Mapping[str, Any]) -> None:
    first, *others = recommend_words(result)
    console.print(Text(first))
    headings, cells = recommend_table(result)
    print_table(console, headings, cells, numbers=headings)
    for line in others:
        console.print(Text(line))
