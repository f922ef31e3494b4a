"""The commands of ``advisor bench``: how fast this machine is, beside a peer measured in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import working
from advisor.cli.rehearse import a_share
from advisor.cli.tables import print_facts
from advisor.model.plain import plain

if TYPE_CHECKING:
    from rich.console import Console

bench = typer.Typer(no_args_is_help=True, help="Measure on this machine.")

SeedOption = Annotated[int, typer.Option(min=0, help="Of whatever is drawn by chance.")]


@bench.command("knn")
def bench_knn(
    knowledge_base: Annotated[int, typer.Option(min=100, help="Cases.")] = 10_000,
    queries: Annotated[int, typer.Option(min=100, help="Questions asked.")] = 2_000,
    k: Annotated[int, typer.Option(min=1, max=100, help="Neighbours.")] = 16,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """One estimate, against scikit-learn's brute force on the encoded space."""
    from benchmarks import knn

    with working("starting") as tell:
        result = knn.run(knowledge_base=knowledge_base, queries=queries, k=k, seed=seed, tell=tell)
    emit(result, output, listing(result))


@bench.command("tune")
def bench_tune(
    *,
    trace: Annotated[str, typer.Option(help="A log, or `synthetic`.")] = "synthetic",
    run_times: Annotated[bool, typer.Option("--run-times", help="Tune run times, not waits.")] = False,
    at: Annotated[int, typer.Option(min=1, help="Row that stands for now.")] = 10_000,
    population: Annotated[int, typer.Option(min=4, help="Individuals.")] = 50,
    generations: Annotated[int, typer.Option(min=1, help="Generations.")] = 100,
    control: Annotated[bool, typer.Option(help="Differential evolution too, as a control.")] = True,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """The genetic search for one estimator's parameters."""
    from benchmarks import tune

    with working("starting") as tell:
        result = tune.run(
            trace=trace,
            target="run" if run_times else "wait",
            at=at,
            population=population,
            generations=generations,
            control=control,
            seed=seed,
            tell=tell,
        )
    emit(result, output, listing(result))


@bench.command("back_to_spot")
def bench_back_to_spot(
    spot: Annotated[list[Path], typer.Option(exists=True, dir_okay=False, help="Spot traces of one kind.")],
    nodes: Annotated[int, typer.Option(min=1, help="Instances that a job needs.")] = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Jobs with checkpoints that go back to spot, against those that stay where they found room."""
    from benchmarks import back_to_spot

    with working("starting") as tell:
        result = back_to_spot.run(spot=spot, nodes=nodes, tell=tell)
    emit(result, output, listing(result))


@bench.command("retrain")
def bench_retrain(
    trace: Annotated[str, typer.Option(help="A log, or synthetic[:jobs[:seed]].")] = "synthetic:100000",
    output: FormatOption = Format.TEXT,
) -> None:
    """The weekly training of the size classifier, in a process of its own."""
    from benchmarks import retrain

    with working("starting") as tell:
        result = retrain.run(trace=trace, tell=tell)
    emit(result, output, listing(result))


@bench.command("runtimes")
def bench_runtimes(
    trace: Annotated[str, typer.Option(help="A log, or synthetic[:jobs[:seed]].")] = "synthetic:20000",
    skip: Annotated[int, typer.Option(min=0, help="First rows, which only teach.")] = 11_000,
    jobs: Annotated[int, typer.Option(min=100, help="Rows that are scored.")] = 10_000,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run times forecast as distributions, beside one histogram for each class of jobs."""
    from benchmarks import runtimes

    with working("starting") as tell:
        result = runtimes.run(trace=trace, skip=skip, jobs=jobs, tell=tell)
    emit(result, output, listing(result))


@bench.command("submit")
def bench_submit(
    knowledge_base: Annotated[int, typer.Option(min=100, help="Jobs both estimators know.")] = 10_000,
    questions: Annotated[int, typer.Option(min=100, help="Asked on the bare socket.")] = 10_000,
    submissions: Annotated[
        int, typer.Option(min=0, help="sbatch calls a run inside a real slurmctld; 0 leaves that out.")
    ] = 100,
    clients: Annotated[int, typer.Option(min=1, help="sbatch processes at a time.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of runs: no hook, an empty one, ours.")] = 24,
    policy: Annotated[
        str | None, typer.Option(help="What decides; by default the settings' default.")
    ] = None,
    waiting: Annotated[int, typer.Option(min=0, help="Jobs in the on-premise queue.")] = 25,
    output: FormatOption = Format.TEXT,
) -> None:
    """An advice on the bare socket beside an echo; sbatch with and without the hook."""
    from benchmarks import submit

    with working("starting") as tell:
        result = submit.run(
            knowledge_base=knowledge_base,
            questions=questions,
            submissions=submissions,
            clients=clients,
            rounds=rounds,
            policy=policy,
            waiting=waiting,
            tell=tell,
        )
    emit(result, output, listing(result))


@bench.command("hookless")
def bench_hookless(
    jobs: Annotated[int, typer.Option(min=20, help="Jobs submitted.")] = 1_000,
    clients: Annotated[int, typer.Option(min=1, help="sbatch processes at a time.")] = 2,
    output: FormatOption = Format.TEXT,
) -> None:
    """New jobs advised from the queue of a real slurmctld; their decisions beside those of the hook."""
    from benchmarks import hookless

    with working("starting") as tell:
        result = hookless.run(jobs=jobs, clients=clients, tell=tell)
    emit(result, output, listing(result))


@bench.command("slurm_api")
def bench_slurm_api(
    jobs: Annotated[int, typer.Option(min=100, help="Held jobs in the queue.")] = 5_000,
    moves: Annotated[int, typer.Option(min=100, help="Jobs moved, most of them in one call.")] = 1_000,
    rounds: Annotated[int, typer.Option(min=1, help="Of each back end, in turn.")] = 3,
    output: FormatOption = Format.TEXT,
) -> None:
    """Slurm's commands against pyslurm (which has to be installed) on a real slurmctld."""
    from benchmarks import slurm_api

    with working("starting") as tell:
        result = slurm_api.run(jobs=jobs, moves=moves, rounds=rounds, tell=tell)
    emit(result, output, listing(result))


@bench.command("simulate")
def bench_simulate(
    trace: Annotated[str, typer.Option(help="A log, or synthetic[:jobs[:seed]].")] = "synthetic:250000",
    peer_jobs: Annotated[int, typer.Option(min=10, help="First jobs for the plain oracle.")] = 5_000,
    output: FormatOption = Format.TEXT,
) -> None:
    """A log on the simulated cluster (EASY, first come first served), against the plain oracle."""
    from benchmarks import simulate

    with working("starting") as tell:
        result = simulate.run(trace=trace, peer_jobs=peer_jobs, tell=tell)
    emit(result, output, listing(result))


@bench.command("portfolio")
def bench_portfolio(
    situations: Annotated[int, typer.Option(min=10, help="Queues of each length.")] = 200,
    trace: Annotated[str, typer.Option(help="A log, or synthetic[:jobs[:seed]].")] = "synthetic:5000",
    jobs: Annotated[int | None, typer.Option(min=10, help="First jobs of the log only.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of Algorithm 1, each with a seed of its own.")] = 3,
    output: FormatOption = Format.TEXT,
) -> None:
    """All sixty policies on 100 and 500 queued jobs; twenty of sixty by Algorithm 1 against all."""
    from benchmarks import portfolio

    with working("starting") as tell:
        result = portfolio.run(situations=situations, trace=trace, jobs=jobs, seeds=seeds, tell=tell)
    emit(result, output, listing(result))


@bench.command("price")
def bench_price(
    rounds: Annotated[int, typer.Option(min=1, help="Of which the median counts.")] = 5,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Whole queues valued by the one price, beside what each poll computes of them anyway."""
    from benchmarks import price

    with working("starting") as tell:
        result = price.run(seed=seed, rounds=rounds, tell=tell)
    emit(result, output, listing(result))


@bench.command("launch")
def bench_launch(
    nodes: Annotated[int, typer.Option(min=1, help="Cloud nodes asked for in one call.")] = 1000,
    classes: Annotated[
        int,
        typer.Option(
            min=0, help="Classes of three types that share the nodes, spot; 0: one type, on-demand."
        ),
    ] = 10,
    output: FormatOption = Format.TEXT,
) -> None:
    """Nodes asked for in one go on the EC2 endpoint emulator, beside bare boto3."""
    from benchmarks import launch

    with working("starting") as tell:
        result = launch.run(nodes=nodes, classes=classes, tell=tell)
    emit(result, output, listing(result))


@bench.command("hedge")
def bench_hedge(
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of runs: all jobs wait, places are kept.")] = 2,
    stretch: Annotated[float, typer.Option(min=0.1, help="Factor on arrivals and run times.")] = 1.0,
    kill_every: Annotated[
        float,
        typer.Option(min=1.0, help="Seconds between two kills of the watching process; `inf` for none."),
    ] = 20.0,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Hedged jobs on a real slurmctld, beside the same jobs that only wait."""
    from benchmarks import hedge

    with working("starting") as tell:
        result = hedge.run(pairs=pairs, seed=seed, stretch=stretch, kill_watcher_every=kill_every, tell=tell)
    emit(result, output, listing(result))


@bench.command("matching")
def bench_matching(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of jobs, with matching and without.")] = 16,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Long jobs' nodes on a real slurmctld, with matching and without."""
    from benchmarks import matching

    with working("starting") as tell:
        result = matching.run(rounds=rounds, seed=seed, tell=tell)
    emit(result, output, listing(result))


@bench.command("soak")
def bench_soak(
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that the advisor sends to the cloud.")] = 300,
    reclaims: Annotated[int, typer.Option(min=0, help="Instances that EC2 takes back.")] = 20,
    kills: Annotated[int, typer.Option(min=0, help="Kills of slurmctld, and of `advisor control`.")] = 3,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Every fault at once on one site: no job may be lost, no instance left over."""
    from benchmarks import soak

    with working("starting") as tell:
        result = soak.run(jobs=jobs, reclaims=reclaims, kills=kills, seed=seed, tell=tell)
    emit(result, output, listing(result))


@bench.command("takeover")
def bench_takeover(
    *,
    times: Annotated[int, typer.Option(min=1, help="Takeovers.")] = 10,
    only_control: Annotated[
        bool, typer.Option("--only-control", help="Kill and stop `advisor control` alone.")
    ] = False,
    slurm_alone: Annotated[
        bool, typer.Option("--slurm-alone", help="What Slurm does where nothing of the advisor runs.")
    ] = False,
    restarts: Annotated[
        bool, typer.Option(help="Restart the second slurmctld after each duty, as operate.md says.")
    ] = True,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Two controllers on a real pair of slurmctld: the first one is killed under load."""
    from benchmarks import takeover, takeover_pair

    with working("starting") as tell:
        if slurm_alone:
            result = takeover_pair.run_slurm_alone(times=times, restarts=restarts, seed=seed, tell=tell)
        else:
            result = takeover.run(
                times=times, only_control=only_control, restarts=restarts, seed=seed, tell=tell
            )
    emit(result, output, listing(result))


@bench.command("fidelity")
def bench_fidelity(
    jobs: Annotated[int, typer.Option(min=10, help="Jobs of a day.")] = 300,
    seconds: Annotated[float, typer.Option(min=10.0, help="Seconds in which they arrive.")] = 240.0,
    days: Annotated[int, typer.Option(min=1, help="Days, with the seeds 1, 2, ...")] = 3,
    simulations: Annotated[int, typer.Option(min=2, help="Of each day.")] = 20,
    output: FormatOption = Format.TEXT,
) -> None:
    """The same days through a real slurmctld and through the simulation."""
    from benchmarks import fidelity

    with working("starting") as tell:
        result = fidelity.run(
            jobs=jobs, seconds=seconds, seeds=range(1, days + 1), simulations=simulations, tell=tell
        )
    emit(result, output, listing(result))


@bench.command("live_days")
def bench_live_days(
    jobs: Annotated[int, typer.Option(min=10, help="Jobs of a day.")] = 300,
    seconds: Annotated[float, typer.Option(min=10.0, help="Seconds in which they arrive.")] = 240.0,
    days: Annotated[int, typer.Option(min=1, help="Days, with the seeds 1, 2, ...")] = 3,
    budget_share: Annotated[
        float, typer.Option(callback=a_share, help="A day's budget, as a share of its core-hours.")
    ] = 0.6,
    output: FormatOption = Format.TEXT,
) -> None:
    """Days under a budget on a real slurmctld, with the shipped daemons, beside their rehearsal."""
    from benchmarks import live_days

    with working("starting") as tell:
        result = live_days.run(
            jobs=jobs, seconds=seconds, seeds=range(1, days + 1), budget_share=budget_share, tell=tell
        )
    emit(result, output, listing(result))


@bench.command("promises")
def bench_promises(
    promises: Annotated[int, typer.Option(min=1, help="Promises to be made.")] = 50,
    jobs: Annotated[int, typer.Option(min=10, help="All jobs.")] = 200,
    seconds: Annotated[float, typer.Option(min=10.0, help="Seconds in which they arrive.")] = 240.0,
    boot_seconds: Annotated[
        float, typer.Option(min=1.0, help="Boot of a cloud node that the settings expect.")
    ] = 15.0,
    seed: SeedOption = 1,
    places: Annotated[
        bool, typer.Option(help="Whether jobs in the cloud keep their place on-premise (hedge.enabled).")
    ] = True,
    output: FormatOption = Format.TEXT,
) -> None:
    """Jobs that name a time, on a real slurmctld with the shipped daemons: kept or not, and their cost."""
    from benchmarks import promises as live

    with working("starting") as tell:
        result = live.run(
            promises=promises,
            jobs=jobs,
            seconds=seconds,
            boot_seconds=boot_seconds,
            seed=seed,
            places=places,
            tell=tell,
        )
    emit(result, output, listing(result))


@bench.command("pages")
def bench_pages(
    jobs: Annotated[int, typer.Option(min=1000, help="Finished jobs in the history.")] = 200_000,
    seed: SeedOption = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Each page over a long history: its first and its later views, and the redrawn curve of Tune."""
    from benchmarks import pages

    with working("starting") as tell:
        result = pages.run(jobs=jobs, seed=seed, tell=tell)
    emit(result, output, listing(result))


def listing(result: dict[str, Any]) -> Callable[[Console], None]:
    """Show a result as lines of name and value."""

    def show(console: Console) -> None:
        print_facts(console, [(name, _shown(value)) for name, value in _flat(plain(result))])

    return show


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(one) for one in value)
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested fields under dotted names."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{name}.{key}" if name else key)
