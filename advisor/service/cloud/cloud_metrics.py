"""Prometheus metrics of the cloud: pools, launches, boots, interruptions, orphans and money."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.model.bill import Rows
from advisor.service.cloud.cloud_report import CloudReport


class CloudCollector(Collector):
    """Reads the cloud report at each scrape."""

    def __init__(self, report: CloudReport) -> None:
        self._report = report

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        yield from _pools(self._report.pools())
        yield from _counters(self._report.counters())
        yield from _money(self._report.spend(), self._report.today())


def _pools(rows: list[dict[str, Any]]) -> Iterable[Metric]:
    gauges = {
        "open": GaugeMetricFamily(
            "advisor_pool_open", "0: closed by its breaker, 1: open.", labels=("pool",)
        ),
        "instances": GaugeMetricFamily(
            "advisor_pool_instances", "Instances that cost money.", labels=("pool",)
        ),
        "usd_per_hour": GaugeMetricFamily(
            "advisor_pool_usd_per_hour", "Price of one node for one hour.", labels=("pool",)
        ),
        "boot_median_seconds": GaugeMetricFamily(
            "advisor_pool_boot_median_seconds", "Median of the last 50 boots.", labels=("pool",)
        ),
        "boot_p90_seconds": GaugeMetricFamily(
            "advisor_pool_boot_p90_seconds", "90th percentile of the last 50 boots.", labels=("pool",)
        ),
    }
    launches = CounterMetricFamily("advisor_pool_launches", "Nodes launched.", labels=("pool",))
    for row in rows:
        for name, gauge in gauges.items():
            if row[name] is not None:
                gauge.add_metric((row["pool"],), float(row[name]))
        launches.add_metric((row["pool"],), row["launches"])
    yield from gauges.values()
    yield launches


def _counters(counters: dict[str, Any]) -> Iterable[Metric]:
    refused = CounterMetricFamily(
        "advisor_launch_refused", "Nodes that got no instance, by code.", labels=("code",)
    )
    for code, number in counters["refusals"].items():
        refused.add_metric((code,), number)
    boots = CounterMetricFamily("advisor_boots", "Boots, by how they ended.", labels=("result",))
    boots.add_metric(("succeeded",), counters["boots_succeeded"])
    boots.add_metric(("failed",), counters["boots_failed"])
    notices = CounterMetricFamily(
        "advisor_interruptions",
        "Notices of EC2 about the end of instances, and the jobs lost.",
        labels=("kind",),
    )
    for kind, number in counters["interruptions"].items():
        notices.add_metric((kind,), number)
    yield from (refused, boots, notices)
    yield CounterMetricFamily(
        "advisor_orphans_collected", "Orphaned instances terminated.", value=counters["orphans_collected"]
    )
    yield CounterMetricFamily(
        "advisor_nodes_lost", "Nodes powered down after their instance ended.", value=counters["nodes_lost"]
    )
    yield CounterMetricFamily(
        "advisor_handovers_set_aside",
        "Unusable entries of the hand-over folder.",
        value=counters["handovers_set_aside"],
    )
    yield GaugeMetricFamily(
        "advisor_handovers_stuck",
        "Entries of the hand-over folder that can neither be used nor removed.",
        value=len(counters["handovers_stuck"]),
    )


def _money(spend: dict[str, Any], today: Rows | None) -> Iterable[Metric]:
    spent = GaugeMetricFamily(
        "advisor_spent_today_usd",
        "Spent since midnight UTC, by row: account, no_account, idle. The sum is what the nodes have cost.",
        labels=("row", "account"),
    )
    if today is not None:
        for account, usd in today.accounts.items():
            spent.add_metric(("account", account), usd)
        spent.add_metric(("no_account", ""), today.no_account_usd)
        spent.add_metric(("idle", ""), today.idle_usd)
    yield spent
    yield GaugeMetricFamily(
        "advisor_promised_usd",
        "Expected remaining cost of launched nodes, beyond what was spent.",
        value=spend["promised_usd"],
    )
    yield GaugeMetricFamily(
        "advisor_spending_in_doubt",
        "1: it is not known what was spent; nothing is launched until it is.",
        value=float(spend["launches_wait"]),
    )
    yield GaugeMetricFamily(
        "advisor_spending_rebuilt_today",
        "1: the record of spending was damaged and has been rebuilt today.",
        value=float(spend["rebuilt_today"] is not None),
    )
    yield GaugeMetricFamily(
        "advisor_budget_usd", "The budget of a period; 0: none.", value=float(spend["budget_usd"] or 0.0)
    )
    yield GaugeMetricFamily(
        "advisor_budget_spent_usd", "Spent since the budget's period began.", value=float(spend["spent_usd"])
    )
