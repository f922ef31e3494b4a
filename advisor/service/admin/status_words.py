"""The lines of `advisor status`, `advisor portfolio show` and the first page, from reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from advisor.decide.explanation.display import duration, usd
from advisor.model.periods import payer_words, period_now
from advisor.slurm.steering import RESERVATION


def status_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value of each line, from a status report (`advisor.service.admin.status_report`)."""
    serve, control, snapshot = result["serve"], result["control"], result["snapshot"]
    rows = [
        ("cluster", result["cluster_name"]),
        ("modes", ", ".join(f"{name}: {mode}" for name, mode in result["modes"].items())),
    ]
    if serve["running"]:
        model = serve["model_version"] or "none"
        seconds = serve["answer_seconds"]
        answer = "" if seconds is None else f"answers in {1000 * seconds:.2f} ms, "
        rows.append(("serve", f"{serve['advice_given']:,} advised, {answer}model {model}"))
    elif serve["running"] is None:
        rows.append(("serve", "not known"))
    else:
        rows.append(("serve", "not running, or starting (the first start takes one or two minutes)"))
    if control["running"]:
        rows.append(("control", f"{control.get('knowledge_base_jobs', 0):,} jobs in the knowledge base"))
    else:
        rows.append(("control", "not known" if control["running"] is None else "not running"))
    if lease := result.get("lease"):
        acts = f"{lease['host']} acts (takeover {lease['fence']})" if lease["host"] else "none acts"
        rows.append(("controllers", acts))
    if snapshot["age_seconds"] is not None:
        rows.append(("snapshot", f"{snapshot['age_seconds']:.0f} s old"))
        spend = (control.get("cloud_report") or {}).get("spend") or {}
        rows += _site_rows(snapshot.get("cluster"), snapshot.get("cloud") or {}, spend)
    rows += _learned_rows(control)
    if control.get("cloud_nodes"):
        nodes = ", ".join(
            f"{count} {power.replace('_', ' ')}" for power, count in control["cloud_nodes"].items()
        )
        rows.append(("cloud nodes", nodes))
    if text := _matching(control.get("matching"), control.get("acquirer")):
        rows.append(("matching", text))
    if control.get("portfolio"):
        rows.append(("portfolio", portfolio_in_words(control["portfolio"])))
    if text := places_in_words(control.get("places") or {}):
        rows.append(("placeholders", text))
    return rows


def asked_again_in_words(again: dict[str, Any]) -> str:
    """Results of asking again about jobs while they wait; empty where that is off."""
    if not again.get("on"):
        return ""
    would = f", {again['would_move']:,} would have been (shadow mode)" if again["would_move"] else ""
    return f"{again['moved']:,} moved while they waited{would}; {again['asked']:,} decisions repeated"


def advised_in_words(advising: dict[str, Any]) -> str:
    """How many jobs were advised from the queue, and how long they were in it before (``cluster.hook``)."""
    slowest = f", the slowest {advising['slowest_seconds']:.0f} s after its submission"
    left = f"; {advising['left_alone']:,} left alone" if advising["left_alone"] else ""
    advised = f"{advising['advised']:,} advised{slowest if advising['advised'] else ''}"
    return f"{advised}; {advising['moved']:,} moved{left}"


def _learned_rows(control: dict[str, Any]) -> list[tuple[str, str]]:
    ratios = control.get("performance_ratios")
    text = asked_again_in_words(control.get("asking_again") or {})
    rows = [("cloud speed", ratios_in_words(ratios))] if ratios else []
    rows += price_rows(control.get("price") or {})
    promises = control.get("promises") or {}
    if promises.get("made"):
        rows.append(("promises", f"{promises['kept']:,} of {promises['made']:,} that are over were kept"))
    if advising := control.get("advising"):
        rows.append(("without a hook", advised_in_words(advising)))
    return [*rows, ("waiting jobs", text)] if text else rows


def price_rows(price: dict[str, Any]) -> list[tuple[str, str]]:
    """The price of an hour, the budget's tokens, and what was moved; empty where the policy is another."""
    if not price:
        return []
    if price["unknown"]:
        return [("price", f"unknown, and no job moves: {price['unknown']}")]
    worth = f"{price['worth_it']:,} waiting job{' does' if price['worth_it'] == 1 else 's do'}"
    moved = f"{worth} of those valued last, {price['moved']:,} were moved while they waited"
    hour = f"a job moves if it saves an hour for {usd(price['usd_per_hour'])} at most"
    rows = [("price", f"{hour}; {moved}")]
    machines = price.get("machines") or []  # an older control says nothing of them
    if len(machines) > 1:
        rows.append(("queues", _machines(machines)))
    if reserved := _reserved(machines):
        rows.append(("reservations", reserved))
    if price["budget_usd"]:
        spent = f"{usd(price['spent_usd'])} of {usd(price['budget_usd'])} spent {period_now(price['period'])}"
        rows.append(("budget", f"{spent}; {usd(max(0.0, price['tokens_usd']))} may be committed now"))
    if price["tokens_by_account"]:
        empty = sorted(name for name, left in price["tokens_by_account"].items() if left <= 0.0)
        none = (
            f"nothing is left of {', '.join(map(payer_words, empty[:5]))}" if empty else "each has some left"
        )
        number = len(price["tokens_by_account"])
        rows.append(("other budgets", f"{number:,}; {none}; `advisor budget` shows them"))
    return rows


def _machines(machines: list[dict[str, Any]]) -> str:
    """The partitions that share nodes, and how many jobs wait for each such machine, most first."""
    most = sorted(machines, key=lambda one: -one["waiting"])
    parts = [
        f"{', '.join(one['partitions'])} ({one['processors']:,} processors): {one['waiting']:,} jobs wait"
        for one in most[:5]
    ]
    return "; ".join(parts) + (f"; and {len(most) - 5} more" if len(most) > 5 else "")


def _reserved(machines: list[dict[str, Any]]) -> str:
    """What reservations take from jobs that have none, now and next."""
    parts = []
    for machine in machines:
        for one in machine.get("reserved") or ():
            begin = f"in {duration(one['in_seconds'])}, for" if one["in_seconds"] else "now, for another"
            of = f"{one['processors']:,} of {machine['processors']:,} processors"
            parts.append(f"{of} of {', '.join(machine['partitions'])} {begin} {duration(one['for_seconds'])}")
    return "; ".join(parts)


def ratios_in_words(ratios: dict[str, Any]) -> str:
    """Ratio of run times in the cloud to those on-premise, and the three names that differ most from it."""
    learned = (
        f"run times are {ratios['overhead']:.3g}*c + {ratios['baseline']:.3g} times those on-premise for c "
        f"processors (±{ratios['deviation']:.0%}, from {ratios['jobs']:,} cloud runs)"
    )
    own = {
        name: ratio["factor"]
        for kind in ("partitions", "applications")
        for name, ratio in ratios[kind].items()
    }
    odd = sorted(own, key=lambda name: -abs(math.log(own[name])))[:3]
    words = ", ".join(f"{name} {own[name]:.2f}" for name in odd)
    return f"{learned}; multiplied by {words}" if words else learned


def _matching(matching: dict[str, Any] | None, acquirer: dict[str, Any] | None) -> str:
    """Nodes by their chance to survive, and what matching and acquirer did; empty where no node is up."""
    parts = [f"{count} {tier}" for tier, count in ((matching or {}).get("nodes") or {}).items() if count]
    if matching and parts:
        steered, held = matching["jobs_steered"], matching["jobs_held_off"]
        did = f"{steered:,} jobs steered, {held:,} kept off nodes for a while"
        parts.append(f"by {matching['by']}: {did}" if matching["enabled"] else "only observed")
    pools = (matching or {}).get("pools") or ()
    if taken := sum(row.get("taken", 0) for row in pools):
        losses, together = (sum(row.get(key, 0) for row in pools) for key in ("losses", "lost_together"))
        parts.append(f"EC2 took {taken:,} spot nodes in {losses:,} losses, {together:,} of them together")
    if acquirer:
        kept, target = acquirer["kept_nodes"], acquirer["target_nodes"]
        parts.append(f"{target if target is not None else kept} kept, {acquirer['nodes_retired']:,} retired")
    return ", ".join(parts)


def portfolio_in_words(report: dict[str, Any]) -> str:
    """The leader (the policy in force), why it leads, and how to undo what it has set."""
    if not report.get("enabled"):
        return "off"
    policy = report["policy"] or "none yet"
    ordered = f"{report['jobs_ordered']:,} jobs put first"
    billing = f"billing: {report['billing']}"
    return (
        f"{policy} ({report['why']}); {_nodes_in_words(report)}; {ordered}; {billing}; undo: {report['undo']}"
    )


def places_in_words(places: dict[str, Any]) -> str:
    """Placeholders and their outcomes, and small jobs that ran too long; empty where there were none."""
    now = sum((places.get("now") or {}).values())
    counts, without = places.get("counts") or {}, places.get("without")
    parts = [f"{now:,} now"] if now else []
    words = {
        "places_kept": "so far",
        "brought_back": "brought back",
        "moved_again": "went there again",
        "stayed": "stayed in the cloud",
    }
    parts += [f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name)]
    if without:
        parts.append(f"hedged jobs without one: {without:,} (limits of jobs, or they may preempt others)")
    if places.get("small_requeued") or places.get("small_left"):
        requeued, left = places.get("small_requeued", 0), places.get("small_left", 0)
        parts.append(f"ran longer than small jobs may: {requeued:,} requeued, {left:,} left running")
    return ", ".join(parts)


def _site_rows(
    cluster: dict[str, Any] | None, cloud: dict[str, Any], spend: Mapping[str, Any]
) -> list[tuple[str, str]]:
    rows = []
    if cluster:
        hours = cluster["queued_work_core_seconds"] / 3600.0
        waiting = "1 job waits" if cluster["queue_size"] == 1 else f"{cluster['queue_size']:,} jobs wait"
        queue = f"{waiting} ({hours:,.1f} core hours by their limits)"
        free = f"{cluster['free_processors']:,} of {cluster['total_processors']:,} processors free"
        rows.append(("on-premise", f"{queue}, {cluster['running_jobs']:,} run, {free}"))
    if cloud:
        boot = cloud.get("boot_seconds")
        learned = f", boot {boot:.0f} s" if boot is not None else ""
        up = f"{cloud['nodes_up']} of {cloud['nodes_total']} nodes up"
        # what the submit server counts as promised has that of waiting jobs, too
        spent, promised = (spend.get(name, cloud.get(name, 0.0)) for name in ("spent_usd", "promised_usd"))
        money = f"{usd(spent)} spent in the budget's period, {usd(promised)} promised"
        rows.append(("cloud", f"{up}, {money}{learned}"))
    return rows


def portfolio_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value of each line of `advisor portfolio show`."""
    if not report.get("enabled") and not report.get("closed_nodes"):
        return [
            ("portfolio", "off: Slurm's own order and power saving run the burst partition"),
            ("to try it", "advisor replay portfolio --trace LOG first; then portfolio.enabled = true"),
        ]
    since = report["since"]
    age = "" if since is None else f", for {max(0.0, report['time'] - since):,.0f} s"
    rows = [
        ("policy", (report["policy"] or "none: Slurm's own behaviour") + age),
        ("why", report["why"]),
        ("best", f"{report['champion'] or 'not known yet'}, judged on {report['judged_jobs']:,} jobs"),
        ("billing", f"{report['billing']}: {report['release_rule']}"),
        ("nodes", _nodes_in_words(report)),
    ]
    if report["closed_nodes"]:
        rows.append(("closed", ", ".join(report["closed_nodes"])))
    rows.append(
        ("jobs", f"{report['jobs_waiting'] or 0:,} wait, {report['jobs_ordered']:,} of them put first")
    )
    for name, score in report["scores"].items():
        rows.append(("score", f"{score:.3f} {name}"))
    for name, loss in report["losses"].items():
        rows.append(("loss", f"{loss:.2%} {name}"))
    for name, times in report["chosen"].items():
        rows.append(("chosen", f"{times:,} times {name}"))
    rows.append(("undo", f"{report['undo']} (or scontrol delete reservationname={RESERVATION})"))
    return rows


def _nodes_in_words(report: dict[str, Any]) -> str:
    """How many nodes are up and how many may be."""
    rented, allowed = report["nodes_rented"], report["nodes_allowed"]
    limit = "no limit" if allowed is None else f"{allowed:,} allowed"
    words = f"{rented or 0:,} up, {limit}"
    if report["closed_nodes"]:
        words += f", {len(report['closed_nodes']):,} closed by the reservation {report['reservation']}"
    if report["nodes_kept"]:
        words += f", {len(report['nodes_kept']):,} kept warm"
    if report["no_more_because"]:
        words += f"; no further nodes: {report['no_more_because']}"
    return words
