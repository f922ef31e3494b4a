"""The state of the advisor and its cluster for `advisor status` and the first page, without Slurm and EC2."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from advisor.model.errors import AdvisorError
from advisor.model.plain import plain
from advisor.model.settings import Settings
from advisor.service.admin.since import clock_text
from advisor.service.exchange import status_file
from advisor.service.exchange.access import DENIED
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.lease_file import read_holder
from advisor.service.exchange.snapshot import read as read_snapshot

_METRICS_BYTES: Final = 4 * 1024 * 1024


def status_report(settings: Settings, now: float, serve: dict[str, Any]) -> dict[str, Any]:
    """Modes, ages, queue, cloud, what keeps jobs from the cloud, and the last errors.

    `now` is in epoch seconds, `serve` the result of :func:`ask_serve`.
    """
    result = {
        "time": now,
        "cluster_name": settings.cluster.name,
        "modes": {
            name: settings.cluster.mode_of(name).value for name in settings.cluster.on_premise_partitions
        },
        "serve": serve,
        "control": _control(settings, now),
        "lease": _lease(settings),
        "snapshot": _snapshot(settings, now),
    }
    result["troubles"] = _troubles(result)
    return result


def ask_serve(settings: Settings) -> dict[str, Any]:
    """Ask the submit server on its socket; ``running`` is False where it does not answer.

    A user who may not use the socket gets the values of `advisor control`'s metrics instead; ``running`` is
    None where those cannot be read either.
    """
    try:
        with SubmitClient(settings.paths.submit_socket, timeout=1.0) as client:
            before = time.perf_counter()
            reply = client.ping()
            seconds = time.perf_counter() - before
    except AdvisorError as error:
        if error.code == DENIED:
            return {"error": str(error), **_from_metrics(settings)}
        return {"running": False, "error": str(error)}
    return {
        "running": True,
        "answer_seconds": seconds,
        "advice_given": reply.advice_given,
        "uptime_seconds": reply.uptime_seconds,
        "model_version": reply.model_version,
        "snapshot_usable": reply.snapshot_usable,
        "spool_dropped": reply.spool_dropped,
        "release": reply.release,
    }


def _from_metrics(settings: Settings) -> dict[str, Any]:
    """The submit server's state by the metrics of `advisor control`, which every user here may read."""
    if not settings.loops.metrics_port:
        return {"running": None}
    try:
        values = _metrics(settings.loops.metrics_address, settings.loops.metrics_port)
    except (OSError, http.client.HTTPException, ValueError):
        return {"running": None}
    if not values.get("advisor_serve_up"):
        return {"running": False}
    advised = sum(value for name, value in values.items() if name.startswith("advisor_serve_advice_total"))
    return {
        "running": True,
        "answer_seconds": None,
        "advice_given": int(advised),
        "model_version": _version(values, "predictor"),
    }


def _metrics(address: str, port: int) -> dict[str, float]:
    """Samples of the submit server by name and labels."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - seldom needed

    with closing(http.client.HTTPConnection(address, port, timeout=2.0)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read(_METRICS_BYTES).decode()
    return {
        f"{sample.name}{''.join(sorted(sample.labels.values()))}": sample.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith("advisor_serve")
        for sample in family.samples
    }


def _version(values: dict[str, float], kind: str) -> str | None:
    version = values.get(f"advisor_serve_model_version{kind}")
    return None if version is None else f"{version:08.0f}"


def _control(settings: Settings, now: float) -> dict[str, Any]:
    try:
        content = status_file.read(settings.paths.published)
    except AdvisorError as error:
        return {"running": None if error.code == DENIED else False, "error": str(error)}
    written = content.get("time")
    age = now - written if isinstance(written, int | float) else None
    # it writes the file at every poll: after three missing ones it hangs or has ended
    patience = 3 * settings.loops.snapshot_seconds + 30.0
    return {"running": age is not None and abs(age) < patience, "age_seconds": age, **content}


def _lease(settings: Settings) -> dict[str, Any] | None:
    """Which control process acts; None with one controller."""
    if not settings.paths.shared:
        return None
    try:
        return {**msgspec.to_builtins(read_holder(settings.paths.state)), "here": os.uname().nodename}
    except (AdvisorError, FileNotFoundError) as error:
        return {"fence": 0, "host": "", "error": str(error)}


def _snapshot(settings: Settings, now: float) -> dict[str, Any]:
    try:
        snapshot = read_snapshot(settings.paths.snapshot)
    except AdvisorError as error:
        return {"age_seconds": None, "usable": False, "error": str(error)}
    age = now - snapshot.state.time
    cloud = snapshot.state.cloud
    return {
        "age_seconds": age,
        "usable": abs(age) <= settings.submit.snapshot_max_age_seconds,  # as `advisor serve` decides
        "cluster": plain(snapshot.state.cluster),
        "cloud": plain(replace(cloud, rooms={})),
        "counters": snapshot.counters,
    }


def _troubles(result: dict[str, Any]) -> list[str]:
    """Sentences about what keeps the advisor from working."""
    parts = (_process_troubles, _price_troubles, _drift_troubles, _cloud_troubles, _loop_troubles)
    return [sentence for part in parts for sentence in part(result)]


def _process_troubles(result: dict[str, Any]) -> Iterator[str]:
    serve = result["serve"]
    if serve["running"] is False:
        yield "advisor serve does not answer: every job is accepted as submitted"
    elif serve["running"] and not serve["model_version"]:
        yield "no estimators yet: nothing can be predicted, every job stays on-premise"
    for name in ("serve", "control"):
        if result[name]["running"] is None:
            yield f"the state of advisor {name} is not known: {result[name]['error']}"
    if problem := (result.get("lease") or {}).get("error"):
        yield f"the lease of the two controllers cannot be read: {problem}"
    if result["control"]["running"] is False:
        yield "advisor control does not run: it learns nothing and starts no cloud node"
    if problem := result["control"].get("history_problem"):
        yield f"learning and the ledger pause; nodes are still started and ended: {problem}"
    if not result["snapshot"]["usable"] and result["control"]["running"] is not None:
        yield "the snapshot of the cluster is too old: every job stays on-premise"
    if all(mode == "shadow" for mode in result["modes"].values()):
        yield "all partitions are in shadow mode: advice is recorded, and no job is moved"


def _price_troubles(result: dict[str, Any]) -> Iterator[str]:
    if unknown := (result["control"].get("price") or {}).get("unknown"):
        yield f"there is no price, so no job moves: {unknown}"


def _drift_troubles(result: dict[str, Any]) -> Iterator[str]:
    for name, one in (result["control"].get("fallen_back") or {}).items():
        yield f"jobs of the partition {name} stay on-premise, since forecasts do not hold: {one['why']}"


def _cloud_troubles(result: dict[str, Any]) -> Iterator[str]:
    cloud = result["snapshot"].get("cloud") or {}
    if cloud.get("protected"):
        yield f"no job is sent to the cloud: {cloud['protected']}"
    for option, until in closed_by_ec2(cloud):
        yield f"{option.replace('_', '-')} capacity is unavailable {until}"
    report = result["control"].get("cloud_report") or {}
    spend, counters = report.get("spend") or {}, report.get("counters") or {}
    if spend.get("launches_wait"):
        yield f"nothing is launched until it is known what was spent: {spend['in_doubt']}"
    elif spend.get("rebuilt_today"):
        spent = f"today's spending was estimated anew ({spend['spent_today_usd']:.2f} USD)"
        yield f"{spend['rebuilt_today']}: {spent}; it may be too high"
    if stuck := counters.get("handovers_stuck"):
        names = ", ".join(stuck[:5])
        yield f"hand-overs cannot be used; in the folder handover of paths.state remove by hand: {names}"
    if result["control"].get("cloud_configured") is False:
        yield "ec2.image_id is empty: no cloud node is started"


def closed_by_ec2(cloud: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Purchase options that EC2 has refused: until when they are closed, and why.

    One that has no node in the burst partition is not among them.
    """
    for option in ("spot", "on_demand"):
        if closed := cloud.get(f"{option}_closed"):
            yield option, f"until {clock_text(closed['until'])} (EC2: {closed['code']})"


def _loop_troubles(result: dict[str, Any]) -> Iterator[str]:
    for name, loop in (result["control"].get("loops") or {}).items():
        for step, failure in (loop.get("open_failures") or {}).items():
            if str(failure.get("code")).startswith("history."):
                continue  # shown as history_problem
            yield f"{name}: {step}: {failure.get('message')} ({failure.get('code')})"
