"""``advisor status``: how the advisor and its cluster are, at a glance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit, plain

if TYPE_CHECKING:
    from advisor.model.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Show modes, ages, queue, cloud nodes, what keeps jobs from the cloud, and the last errors.

    Asks nobody but the submit server's socket and reads what the control process wrote last, so that it works
    while Slurm or EC2 do not.
    """
    settings = settings_of(config)
    now = time.time()
    result = {
        "time": now,
        "cluster_name": settings.cluster.name,
        "modes": {
            name: settings.cluster.mode_of(name).value for name in settings.cluster.on_premise_partitions
        },
        "serve": _serve(settings),
        "control": _control(settings, now),
        "snapshot": _snapshot(settings, now),
    }
    result["troubles"] = _troubles(result)
    result["notes"] = list(_placement_notes(result))
    emit(result, output, lambda console: _draw(console, result))


def _serve(settings: Settings) -> dict[str, Any]:
    from advisor.model.errors import AdvisorError
    from advisor.service.client import SubmitClient

    try:
        with SubmitClient(settings.paths.submit_socket, timeout=1.0) as client:
            before = time.perf_counter()
            reply = client.ping()
            seconds = time.perf_counter() - before
    except AdvisorError as error:
        return {"running": False, "error": str(error)}
    return {
        "running": True,
        "answer_seconds": seconds,
        "advice_given": reply.advice_given,
        "uptime_seconds": reply.uptime_seconds,
        "model_version": reply.model_version,
        "placement_version": reply.placement_version,
        "snapshot_usable": reply.snapshot_usable,
        "spool_dropped": reply.spool_dropped,
        "release": reply.release,
    }


def _control(settings: Settings, now: float) -> dict[str, Any]:
    from advisor.model.errors import AdvisorError
    from advisor.service.status_file import read

    try:
        content = read(settings.paths.run)
    except AdvisorError as error:
        return {"running": False, "error": str(error)}
    written = content.get("time")
    age = now - written if isinstance(written, int | float) else None
    # it writes at every look: three missed ones and a bit mean that it hangs or is gone
    patience = 3 * settings.loops.snapshot_seconds + 30.0
    return {"running": age is not None and age < patience, "age_seconds": age, **content}


def _snapshot(settings: Settings, now: float) -> dict[str, Any]:
    from advisor.model.errors import AdvisorError
    from advisor.service.snapshot import read

    try:
        snapshot = read(settings.paths.snapshot)
    except AdvisorError as error:
        return {"age_seconds": None, "usable": False, "error": str(error)}
    age = now - snapshot.state.time
    cloud = snapshot.state.cloud
    return {
        "age_seconds": age,
        "usable": age <= settings.submit.snapshot_max_age_seconds,
        "cluster": plain(snapshot.state.cluster),
        "cloud": plain(cloud),
        "counters": snapshot.counters,
    }


def _troubles(result: dict[str, Any]) -> list[str]:
    """What keeps the advisor from working, in words."""
    return [*_process_troubles(result), *_cloud_troubles(result), *_loop_troubles(result)]


def _process_troubles(result: dict[str, Any]) -> Iterator[str]:
    serve = result["serve"]
    if not serve["running"]:
        yield "advisor serve does not answer: every job is accepted as submitted"
    elif not serve["model_version"]:
        yield "no estimators yet: nothing can be predicted, every job stays on-premise"
    if not result["control"]["running"]:
        yield "advisor control does not run: nothing is learned and no cloud node started"
    if not result["snapshot"]["usable"]:
        yield "the cluster has not been seen lately: every job stays on-premise"
    if all(mode == "shadow" for mode in result["modes"].values()):
        yield "all partitions are in shadow mode: advice is logged, nothing is changed"


def _placement_notes(result: dict[str, Any]) -> Iterator[str]:
    """Why jobs are not placed by the advisor's own rule, or by it but not moved: a new site is well so."""
    placement = result["control"].get("placement")
    if not placement:
        return
    if placement["rule"] == "published":
        known, needed = placement["finished_jobs"], placement["first_forest_after_jobs"]
        why = f"{known:,} of {needed:,} finished jobs" if known < needed else "its forests are being grown"
        yield f"the published placement rule decides until the advisor's own can: {why}"
    elif result["serve"]["running"] and not result["serve"]["placement_version"]:
        yield "advisor serve has not taken up the forests: the published placement rule decides until it has"
    elif placement["record_trusted_seconds"] <= 0.0:
        done = "has won nothing yet" if placement["record_earned"] else "is being earned from the history"
        yield f"the record of the advisor's own placement rule {done}: no job is moved that could lose by it"


def _cloud_troubles(result: dict[str, Any]) -> Iterator[str]:
    cloud = result["snapshot"].get("cloud") or {}
    if cloud.get("protected"):
        yield f"nothing is sent to the cloud: {cloud['protected']}"
    for option in ("spot", "on_demand"):
        if not cloud.get(f"{option}_open", True):
            yield f"{option.replace('_', '-')} capacity is closed for now"
    if result["control"].get("cloud_configured") is False:
        yield "ec2.image_id is empty: no cloud node is started"


def _loop_troubles(result: dict[str, Any]) -> Iterator[str]:
    for name, loop in (result["control"].get("loops") or {}).items():
        for step, failure in (loop.get("open_failures") or {}).items():
            yield f"{name}: {step}: {failure.get('message')} ({failure.get('code')})"


def _draw(console: Console, result: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(result):
        table.add_row(name, Text(value))
    console.print(table)
    for note in result["notes"]:
        console.print(Text(f"- {note}"))
    for trouble in result["troubles"]:
        console.print(Text(f"! {trouble}", "yellow"))


def _rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    serve, control, snapshot = result["serve"], result["control"], result["snapshot"]
    rows = [
        ("cluster", result["cluster_name"]),
        ("modes", ", ".join(f"{name}: {mode}" for name, mode in result["modes"].items())),
    ]
    if serve["running"]:
        model = serve["model_version"] or "none"
        answer = 1000 * serve["answer_seconds"]
        rows.append(
            ("serve", f"{serve['advice_given']:,} advised, answers in {answer:.2f} ms, model {model}")
        )
    else:
        rows.append(("serve", "not running"))
    if control["running"]:
        rows.append(("control", f"{control.get('knowledge_base_jobs', 0):,} jobs in the knowledge base"))
    else:
        rows.append(("control", "not running"))
    if control.get("placement"):
        rows.append(("placement", _placement_row(control["placement"])))
    if snapshot["age_seconds"] is not None:
        rows.append(("snapshot", f"{snapshot['age_seconds']:.0f} s old"))
        rows += _site_rows(snapshot.get("cluster"), snapshot.get("cloud") or {})
    if control.get("cloud_nodes"):
        nodes = ", ".join(
            f"{count} {power.replace('_', ' ')}" for power, count in control["cloud_nodes"].items()
        )
        rows.append(("cloud nodes", nodes))
    if text := _matching(control.get("matching"), control.get("acquirer")):
        rows.append(("nodes that last", text))
    if control.get("portfolio"):
        rows.append(("portfolio", _portfolio(control["portfolio"])))
    if text := _places(control.get("places") or {}):
        rows.append(("places kept", text))
    return rows


def _matching(matching: dict[str, Any] | None, acquirer: dict[str, Any] | None) -> str:
    """How many nodes are expected to stay, and what is done with that; empty where no node is up."""
    parts = [f"{count} {tier}" for tier, count in ((matching or {}).get("nodes") or {}).items() if count]
    if matching and parts:
        steered, held = matching["jobs_steered"], matching["jobs_held_off"]
        did = f"{steered:,} jobs steered, {held:,} held off for a while"
        parts.append(f"by {matching['by']}: {did}" if matching["enabled"] else "only watched")
    if acquirer:
        kept, target = acquirer["kept_nodes"], acquirer["target_nodes"]
        parts.append(f"{target if target is not None else kept} kept, {acquirer['nodes_retired']:,} retired")
    return ", ".join(parts)


def _portfolio(report: dict[str, Any]) -> str:
    """Which policy runs the burst partition, why, and how to undo it."""
    from advisor.cli.portfolio import nodes_in_words

    if not report.get("enabled"):
        return "off"
    policy = report["policy"] or "none yet"
    ordered = f"{report['jobs_ordered']:,} jobs put first"
    return f"{policy} ({report['why']}); {nodes_in_words(report)}; {ordered}; undo: {report['undo']}"


def _places(places: dict[str, Any]) -> str:
    """Hedged and speculative jobs, and small jobs that were none; empty where there has been none."""
    now = sum((places.get("now") or {}).values())
    counts = places.get("counts") or {}
    parts = [f"{now:,} now"] if now else []
    words = {"places_kept": "so far", "brought_back": "brought back", "stayed": "stayed in the cloud"}
    parts += [f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name)]
    if places.get("small_requeued") or places.get("small_left"):
        requeued, left = places.get("small_requeued", 0), places.get("small_left", 0)
        parts.append(f"not small after all: {requeued:,} requeued, {left:,} left")
    return ", ".join(parts)


def _placement_row(placement: dict[str, Any]) -> str:
    if placement["rule"] == "published":
        return "published rule for now"
    hours = placement["record_trusted_seconds"] / 3600.0
    return (
        f"advisor's own rule, {placement['forests']} forests of {placement['finished_jobs']:,} jobs; "
        f"safely won {max(0.0, hours):,.1f} h"
    )


def _site_rows(cluster: dict[str, Any] | None, cloud: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if cluster:
        hours = cluster["queued_work_core_seconds"] / 3600.0
        queue = f"{cluster['queue_size']:,} jobs wait ({hours:,.1f} core hours)"
        free = f"{cluster['free_processors']:,} of {cluster['total_processors']:,} processors free"
        rows.append(("on-premise", f"{queue}, {cluster['running_jobs']:,} run, {free}"))
    if cloud:
        boot = cloud.get("boot_seconds")
        learned = f", boot {boot:.0f} s" if boot is not None else ""
        up = f"{cloud['nodes_up']} of {cloud['nodes_total']} nodes up"
        rows.append(("cloud", f"{up}, {cloud['spent_today_usd']:.2f} USD today{learned}"))
    return rows
