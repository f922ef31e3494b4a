"""``advisor retrain``: train the size classifier on the site's history; a timer runs it weekly."""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit, stderr
from advisor.cli.progress import working
from advisor.model.errors import BadInput, UseFallback

if TYPE_CHECKING:
    from advisor.history.models import ModelStore
    from advisor.model.settings import Settings
    from advisor.predict.size.size_history import SizeHistory
    from advisor.predict.size.size_model import SizeModel


def peak_rss_mb() -> float:
    """Most memory this process has held, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0**2 if sys.platform == "darwin" else 1024.0)


def retrain(
    config: ConfigOption = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=500, max=100_000_000, help="Newest finished jobs to learn from; limits memory and time."
        ),
    ] = 200_000,
    force: Annotated[bool, typer.Option("--force", help="Promote it even if it backtests worse.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Train the size classifier anew, backtest it on the last week, and promote it unless it is worse."""
    from advisor.service.learn.training_record import noting

    os.nice(10)  # the submit server on the same host comes first
    began = time.perf_counter()
    settings = settings_of(config)
    with noting(settings.paths.state, "retrain") as training:
        result = _retrained(settings, jobs, force=force)
        if result["reason"] == "worse":
            training.refused = result["detail"]
    result |= {"seconds": time.perf_counter() - began, "peak_rss_mb": peak_rss_mb()}
    emit(result, output, lambda console: _show(console, result))


def _retrained(settings: Settings, jobs: int, *, force: bool) -> dict[str, Any]:
    from advisor.history.models import ModelStore
    from advisor.history.store import HistoryStore
    from advisor.predict.size.size_history import SizeHistory
    from advisor.service.learn.on_premise_equivalents import on_premise_outcome

    with HistoryStore(settings.history_url) as store, working("reading the history"):
        outcomes = [on_premise_outcome(outcome, settings, store) for outcome in store.recent(jobs)]
    history = SizeHistory.from_outcomes(outcomes, utc_offset_seconds=settings.cluster.utc_offset_seconds)
    # the history's own clock, so that an old log can be used as well, but no end to come: a clock was ahead
    now = min(max((outcome.end_time for outcome in outcomes), default=0.0), time.time()) + 1.0
    del outcomes
    least = settings.estimator.min_finished_jobs
    if len(history) < least:
        detail = f"the history has {len(history):,} finished jobs, of {least:,} that a model needs"
        result = _kept(f"{detail} (estimator.min_finished_jobs)", code="too-few-jobs")
    else:
        result = _train_and_promote(
            ModelStore(folder=settings.paths.models),
            history,
            now,
            settings.cluster.utc_offset_seconds,
            probability_cut=settings.size.probability_cut,
            force=force,
        )
    return result | {"jobs": len(history)}


def _train_and_promote(
    store: ModelStore,
    history: SizeHistory,
    now: float,
    utc_offset_seconds: float,
    *,
    probability_cut: float,
    force: bool,
) -> dict[str, Any]:

    from advisor.predict.size.size_model import SizeModel
    from advisor.replay.backtest import backtest
    from advisor.service.submit.models import SIZE_KIND

    store.take_out_damaged(SIZE_KIND)
    with working("backtesting on the last week"):
        judged = backtest(history, _current(store), now=now, probability_cut=probability_cut)
    if judged.is_worse and not force:
        return _kept("the new model classes the last week worse", code="worse") | {"backtest": asdict(judged)}
    with working("training"):
        model = SizeModel.retrain(history, now=now, utc_offset_seconds=utc_offset_seconds)
    if model.trees is None:
        return _kept("too few finished jobs to learn from", code="too-few-jobs")
    arrays, meta = model.to_arrays()
    version = store.save(SIZE_KIND, arrays, meta | {"backtest": asdict(judged)})
    return {
        "promoted": True,
        "version": version,
        "reason": "promoted",
        "detail": "",
        "divider_seconds": model.divider_seconds,
        "backtest": asdict(judged),
    }


def _kept(detail: str, *, code: str) -> dict[str, Any]:
    """The result when nothing is promoted: the model in force, if any, stays."""
    return {
        "promoted": False,
        "version": None,
        "reason": code,
        "detail": detail,
        "divider_seconds": None,
        "backtest": None,
    }


def _current(store: ModelStore) -> SizeModel | None:
    """The model in force; None when there is none, or another release made it with other features."""
    from advisor.predict.size.size_model import SizeModel
    from advisor.service.submit.models import SIZE_KIND

    try:
        arrays, meta = store.load(SIZE_KIND)
    except UseFallback:
        return None
    try:
        return SizeModel.from_arrays(arrays, meta)
    except BadInput as error:
        text = f"The new model is judged alone, for the one in force cannot be read: {error}"
        stderr.print(text, markup=False, highlight=False)
        return None


def _show(console: Console, result: dict[str, Any]) -> None:
    if result["promoted"]:
        console.print(
            f"Promoted version {result['version']}: small is below {result['divider_seconds']:,.0f} s."
        )
    else:
        console.print(f"Not promoted: {result['detail']}. The model in force stays.", markup=False)
    judged = result["backtest"]
    if judged and judged["jobs"]:
        line = f"On the last week's {judged['jobs']:,} jobs: {100 * judged['candidate_accuracy']:.1f} % right"
        if judged["current_accuracy"] == judged["current_accuracy"]:
            line += f", the model in force {100 * judged['current_accuracy']:.1f} %"
        console.print(line + ".")
    console.print(f"{result['jobs']:,} jobs, {result['seconds']:.1f} s, {result['peak_rss_mb']:,.0f} MiB.")
