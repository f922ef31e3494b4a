"""``advisor rehearse``: a log decided by several policies in a closed loop, at equal money."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import say_too_large, ticking
from advisor.cli.rehearse_shipped import (
    SetOption,
    ShippedOption,
    ShippedOptions,
    SlurmConfOption,
    SpotPricesOption,
    SpotTraceOption,
    SpotVcpusOption,
    StockOutOption,
    VcpusOption,
    rules_of,
)
from advisor.cli.tables import print_table
from advisor.cli.traces import TraceOption
from advisor.cli.whatif import MAX_PROCESSES, MAX_PROCESSORS
from advisor.model.advice import Capacity
from advisor.model.errors import BadInput
from advisor.model.site import CloudState
from advisor.parallel import cores
from advisor.replay.traces import find_trace
from advisor.service.admin.rehearsal_words import fidelity_words, money_words, rehearsal_table, shipped_words

if TYPE_CHECKING:
    from advisor.replay.closed_loop.rehearse import Rehearsal
    from advisor.replay.closed_loop.world import WorldOptions


def finite(value: float) -> float:
    """Refuse NaN, which the range of an option lets pass."""
    if math.isnan(value):
        raise typer.BadParameter("it is not a number")
    return value


def a_share(param: typer.CallbackParam, value: float) -> float:
    """Refuse a percentage, such as 5 for 5 %, where an option is a share of 1."""
    if not 0.0 <= value <= 1.0:
        of_hundred = f". Did you mean {value / 100.0:g}?" if 1.0 < value <= 100.0 else ""
        raise BadInput(
            f"{value:g} is not a share of 1",
            where=param.opts[0],
            mend=f"Give a number from 0 to 1{of_hundred}",
            code="option.share",
        )
    return value


SkipOption = Annotated[int, typer.Option(min=0, help="Rows at the log's start that are only learned from.")]
JobsOption = Annotated[int | None, typer.Option(min=1, help="Rows that are replayed; all by default.")]
PoliciesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Further policies beside those that are always shown, such as zrigui2022.",
    ),
]
ShareOption = Annotated[
    float,
    typer.Option(
        callback=a_share,
        help="Budget: the on-demand price of this share (0 to 1) of the log's core-hours. It accrues evenly.",
    ),
]
NodesOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_PROCESSORS,
        metavar="PROCESSORS",
        help="Processors of the cluster on-premise; 0: as the log's header says (MaxProcs).",
    ),
]
BootOption = Annotated[
    float, typer.Option(min=0.0, max=86_400.0, callback=finite, help="Boot time of a cloud node, seconds.")
]
BillBootOption = Annotated[bool, typer.Option("--bill-boot", help="The boot is paid for, too.")]
SlowdownOption = Annotated[
    float,
    typer.Option(
        min=0.01, max=1_000.0, callback=finite, help="Run time in the cloud over run time on-premise."
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        help="Page with the curves of saved hours and mean wait against dollars, at 1, 2, 5 and 10 %.",
        dir_okay=False,
    ),
]
ProcessesOption = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_PROCESSES, help="Policies that are simulated at the same time; 0: one for each core."
    ),
]


def rehearse(
    *,
    trace: TraceOption,
    skip: SkipOption = 0,
    jobs: JobsOption = None,
    policies: PoliciesOption = None,
    budget_share: ShareOption = 0.05,
    nodes: NodesOption = 0,
    boot: BootOption = 120.0,
    bill_boot: BillBootOption = False,
    slowdown: SlowdownOption = 1.05,
    out: OutOption = None,
    processes: ProcessesOption = 0,
    slurm_conf: SlurmConfOption = None,
    shipped: ShippedOption = False,
    changes: SetOption = None,
    spot_trace: SpotTraceOption = None,
    spot_prices: SpotPricesOption = None,
    stock_out: StockOutOption = None,
    vcpus: VcpusOption = None,
    spot_vcpus: SpotVcpusOption = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Rehearse a log in a closed loop: a job that leaves the queue shortens the wait of those that stay.

    Every policy meets the same jobs, the same cluster under EASY backfilling (with --slurm-conf under
    Slurm's), a cloud with room for all (but for the rows of --shipped), and the same budget, which none
    exceeds. Each knows only what it could have known at that moment, but for the clairvoyant. Nothing is
    written but the page.
    """
    from advisor.replay.closed_loop.world import WorldOptions

    world = WorldOptions(
        boot_seconds=boot,
        slowdown=slowdown,
        bills_boot=bill_boot,
        budget_share=budget_share,
        rules=rules_of(slurm_conf),
    )
    asked = _asked(policies, world, out, processes, config)
    options = ShippedOptions(
        config=config,
        changes=changes or (),
        spot_traces=spot_trace or (),
        spot_prices=spot_prices,
        stock_outs=stock_out or (),
        vcpus=vcpus,
        spot_vcpus=spot_vcpus,
    )
    result = _rehearsed(asked, find_trace(trace), skip, jobs, nodes, options.asked_for(shipped))
    if out is not None:
        from advisor.service.admin.rehearsal_page import write_rehearsal

        write_rehearsal(out, result)
    emit(result, output, lambda console: _show(console, result))


def _rehearsed(
    asked: Rehearsal, log: str, skip: int, jobs: int | None, nodes: int, shipped: ShippedOptions | None
) -> dict[str, Any]:
    from advisor.replay.closed_loop.log import loop_jobs
    from advisor.replay.closed_loop.rehearse import rehearse as run
    from advisor.replay.sources import load_table

    loops = None if shipped is None else shipped.read()
    with ticking() as tick:
        table = load_table(log, progress=lambda done, total: tick("reading", done, total))
        window = loop_jobs(table, skip=skip, jobs=jobs, nodes=nodes)
        say_too_large(window.too_large, window.machine)
        result = run(window, asked, tick)
        if loops is not None:
            from advisor.rehearsal.shipped import rehearse_shipped

            rows, curve = rehearse_shipped(window, asked, *loops, tick)
            result["rows"] += rows
            result["curve"] += curve
    return result


def _asked(
    policies: str | None, world: WorldOptions, out: Path | None, processes: int, config: Path | None
) -> Rehearsal:
    """The rehearsal that the options ask for; a page that cannot be written is refused before it begins."""
    from advisor.decide.submission.cloud_terms import usd_per_core_hour
    from advisor.replay.closed_loop.policies import chosen
    from advisor.replay.closed_loop.rehearse import CURVE_SHARES, Rehearsal
    from advisor.service.admin.plots import refuse_unwritable

    if out is not None:
        refuse_unwritable(out)
    return Rehearsal(
        policies=chosen([name.strip() for name in (policies or "").split(",") if name.strip()]),
        world=world,
        usd_per_core_hour=usd_per_core_hour(Capacity.ON_DEMAND, CloudState(), settings_of(config)),
        shares=CURVE_SHARES if out is not None else (),
        processes=processes or cores(),
    )


def _show(console: Console, result: Mapping[str, Any]) -> None:
    console.print(Text(f"{result['trace']}: {money_words(result)}"))
    headings, cells = rehearsal_table(result["rows"])
    print_table(console, headings, cells, numbers=headings[1:])
    for line in (*shipped_words(result["rows"]), *fidelity_words(result["fidelity"])):
        console.print(Text(line))
