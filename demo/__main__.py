"""``make demo``: everything at once, in about three minutes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from advisor.history.store import HistoryStore
from advisor.model.advice import Placement
from advisor.model.bill import Bill
from advisor.model.errors import AdvisorError, BadInput
from advisor.replay.sources import load_table
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.client import SubmitClient
from advisor.service.running.logs import configure as configure_logs
from advisor.testing.site import Site
from demo import lsf, simulated
from demo.afterwards import keep_up, say_what_is_left, write_report
from demo.live import Played, Stage
from demo.plan import Plan, make_plan
from demo.report import JobResult, show, summarise
from demo.stage import make_site, missing_tools, teach

_FORECASTS_SECONDS: Final = 60.0
"""Longest wait for the first forecasts."""

console = Console()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make demo DEMO='...'", description=__doc__)
    parser.add_argument(
        "--trace", default="synthetic:8000:1", help="log (.swf, .swf.gz) or synthetic[:jobs[:seed]]"
    )
    parser.add_argument("--compression", type=_ratio, help="seconds of the log in a second")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up to play with")
    parser.add_argument("--lsf", action="store_true", help="under a stand-in for LSF instead of Slurm")
    parser.add_argument("--simulated", action="store_true", help="the simulated cluster, no real Slurm")
    return parser.parse_args()


def _ratio(text: str) -> float:
    value = float(text)
    if not 1.0 <= value < float("inf"):
        msg = "give 1 or more, for instance 600"
        raise argparse.ArgumentTypeError(msg)
    return value


def main() -> int:
    """Play it; exit code 0 when every job completed exactly once."""
    arguments = parse_arguments()
    os.umask(0o022)  # the jobs' users read files of the lab, also where root's own umask is 077
    configure_logs()
    try:
        plan = make_plan(load_table(arguments.trace), compression=arguments.compression)
        if arguments.lsf:
            return lsf.play(plan, console)
        missing = missing_tools()
        if arguments.simulated or missing:
            why = f"not here: {', '.join(missing)}" if missing else "asked for"
            console.print(f"[bold yellow]On the simulated cluster, not on a real Slurm ({why}).[/]")
            return simulated.play(plan, console)
        return play_live(plan, keep=arguments.keep)
    except BadInput as error:
        console.print(f"error: {error}", style="bold red", markup=False)
        return 2
    except AdvisorError as error:
        console.print(f"error ({error.code}): {error}", style="bold red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has been stopped")
        return 130


def play_live(plan: Plan, *, keep: bool) -> int:
    """Play on a real Slurm under one temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="burst-demo-"))
    site = make_site(plan, folder)
    try:
        with console.status("starting munge, MariaDB, slurmdbd, slurmctld, slurmds and the EC2 emulator"):
            site.start()
        with console.status("teaching the history to the advisor"):
            jobs = teach(site, plan, time.time())
        console.print(f"{jobs} finished jobs of {plan.title} are in the history")
        with console.status("training the size classifier"):
            site.advisor("retrain", check=False)  # too short a history: everything counts as large
        with console.status("starting advisor control and advisor serve; learning from the history"):
            site.start_advisor()
            if not _forecasts_are_in_use(site):
                console.print("[yellow]there is no price yet: no job moves before[/]")
        stage = Stage(plan=plan, site=site, console=console)
        stage.play()
        code = _report(stage)
        with console.status("writing the report"):
            report = write_report(site)
        if keep:
            site.start_web()
        say_what_is_left(console, report, f"http://127.0.0.1:{site.web_port}/" if keep else None)
        if keep:
            keep_up(console, site)
        return code
    finally:
        site.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _forecasts_are_in_use(site: Site) -> bool:
    """Wait until the price decides: run times are learned from the history, and a price is known."""
    run = site.folder / "run"
    end = time.monotonic() + _FORECASTS_SECONDS
    while time.monotonic() < end:
        with suppress(AdvisorError, OSError), SubmitClient(run / "submit.sock") as client:
            price = snapshots.read(run / "snapshot.msgpack").state.price
            if client.ping().model_version is not None and price is not None:
                return True
        time.sleep(0.5)
    return False


def _report(stage: Stage) -> int:
    """Wait until accounting has taught the advisor every end, then show what it brought."""
    end = time.monotonic() + 60.0
    with console.status("waiting for accounting"):
        while (results := _results(stage)) is None:
            if time.monotonic() > end:
                console.print("[red]accounting did not report every job[/]")
                return 1
            time.sleep(0.5)
    with console.status("waiting for the cloud nodes to be given back"):
        money = _paid(stage)
    summary = summarise(
        results,
        processors=stage.plan.processors,
        cloud_usd=money.spent_usd,
        idle_usd=money.idle_usd,
        instances=len(stage.seen_instances),
        on_spot=sum(option == "spot" for option in stage.seen_instances.values()),
    )
    show(
        summary,
        results,
        processors=stage.plan.processors,
        compression=stage.plan.compression,
        console=console,
    )
    return 0 if summary.completed_once == summary.jobs else 1


def _paid(stage: Stage) -> Bill:
    """What `advisor spend` says when every node was given back and the history has it; so far, if not."""
    end = time.monotonic() + 60.0
    known = -1.0
    with HistoryStore(f"sqlite:///{stage.site.state / 'history.db'}") as store:
        while time.monotonic() < end:
            found = store.bill()
            is_over = all(item["state"] == "terminated" for item in stage.site.ec2.instances())
            if is_over and found.spent_usd == known:
                break
            known = found.spent_usd if is_over else -1.0
            time.sleep(3.0)  # longer than a round of the learn loop
        return store.bill()


def _results(stage: Stage) -> list[JobResult] | None:
    """Results of all jobs, in submission order; None while accounting misses one."""
    with HistoryStore(f"sqlite:///{stage.site.state / 'history.db'}") as store:
        results = [_result(played, store) for played in stage.played.values()]
    complete = [result for result in results if result is not None]
    return complete if len(complete) == len(results) else None


def _result(played: Played, store: HistoryStore) -> JobResult | None:
    outcome = store.of_job(played.job_id, source="slurm")
    if outcome is None:
        return None
    record = store.advice_of(played.job_id)
    return JobResult(
        job=played.job,
        state=outcome.state.value,
        placement=Placement.BURST if outcome.partition == "burst" else Placement.ON_PREMISE,
        wait_seconds=outcome.wait_seconds,
        run_seconds=outcome.run_seconds,
        predicted_wait_seconds=record.estimates.wait.seconds if record else float("nan"),
        starts=1 + outcome.restarts,
    )


if __name__ == "__main__":
    sys.exit(main())
