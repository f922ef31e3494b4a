"""Prometheus metrics of the cloud: pools, launches, boots, interruptions, orphans and money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.model.bill import Rows
from advisor.service.cloud.cloud_report import CloudReport

_OF_POOLS: Final = {
    "open": "0: closed by its breaker, 1: open.",
    "instances": "Instances that cost money.",
    "usd_per_hour": "Price of one node for one hour.",
    "boot_median_seconds": "Median of the last 50 boots.",
    "boot_p90_seconds": "90th percentile of the last 50 boots.",
}
"""Columns of the table of pools, each with its help text."""


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
    for name, text in _OF_POOLS.items():
        gauge = GaugeMetricFamily(f"advisor_pool_{name}", text, labels=("pool",))
        for row in rows:
            if row[name] is not None:
                gauge.add_metric((row["pool"],), row[name])
        yield gauge
    launches = {row["pool"]: row["launches"] for row in rows}
    yield _counted("pool_launches", "Nodes launched.", "pool", launches)


def _counters(counters: dict[str, Any]) -> Iterable[Metric]:
    yield _counted("launch_refused", "Nodes that got no instance, by code.", "code", counters["refusals"])
    boots = {"succeeded": counters["boots_succeeded"], "failed": counters["boots_failed"]}
    yield _counted("boots", "Boots, by how they ended.", "result", boots)
    text = "Notices of EC2 about the end of instances, and the jobs lost."
    yield _counted("interruptions", text, "kind", counters["interruptions"])
    for name, text in (
        ("orphans_collected", "Orphaned instances terminated."),
        ("nodes_lost", "Nodes powered down after their instance ended."),
        ("handovers_set_aside", "Unusable entries of the hand-over folder."),
    ):
        yield CounterMetricFamily(f"advisor_{name}", text, value=counters[name])
    yield GaugeMetricFamily(
        "advisor_handovers_stuck",
        "Entries of the hand-over folder that can neither be used nor removed.",
        value=len(counters["handovers_stuck"]),
    )


def _counted(name: str, text: str, label: str, numbers: Mapping[str, float]) -> Metric:
    found = CounterMetricFamily(f"advisor_{name}", text, labels=(label,))
    for key, number in numbers.items():
        found.add_metric((key,), number)
    return found


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
        value=spend["launches_wait"],
    )
    yield GaugeMetricFamily(
        "advisor_spending_rebuilt_today",
        "1: the record of spending was damaged and has been rebuilt today.",
        value=spend["rebuilt_today"] is not None,
    )
    may_spend = sum(one["usd"] + one["carried"] for one in spend["budgets"] if not one["payer"])
    yield GaugeMetricFamily(
        "advisor_budget_usd", "The budget of a period and what was carried over; 0: none.", value=may_spend
    )
    yield GaugeMetricFamily(
        "advisor_budget_spent_usd", "Spent since the budget's period began.", value=spend["spent_usd"]
    )
