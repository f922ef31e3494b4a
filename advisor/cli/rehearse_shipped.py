"""Options of ``advisor rehearse``: Slurm's rules; with ``--shipped`` settings to compare and EC2's market."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.context import loaded_settings
from advisor.model.errors import BadInput
from advisor.simulate.pool.rules import Rules

if TYPE_CHECKING:
    from advisor.model.settings import Settings
    from advisor.rehearsal.cloud_market import CloudMarket

ShippedOption = Annotated[
    bool,
    typer.Option(
        "--shipped",
        help="Also run the submit server and the control loops themselves on a virtual clock, under the "
        "settings in force (slower: some 20 ms a job).",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE[;...]",
        help="With --shipped: a further row under settings that are changed so; may be repeated. Examples: "
        "hedge.enabled=true, cluster.policy=cunha2017.",
    ),
]
SpotTraceOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="With --shipped: spot instances that were alive (JSON with metadata.gap_seconds and data). The "
        "burst partition's nodes are divided among the files; what exceeds a trace is taken back. Without "
        "it no spot is used.",
    ),
]
SpotPricesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.csv",
        help="With --shipped: spot prices of ec2.instance_type over time (timestamp, az, instance_type, "
        "product, price_usd_per_hour), relative to ec2.on_demand_usd_per_hour.",
    ),
]
StockOutOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MARKET@HOUR+HOURS",
        help="With --shipped: EC2 has no capacity from that hour of the rehearsal on for so many hours; "
        "spot@24+6 or on-demand@24+6. May be repeated.",
    ),
]
VcpusOption = Annotated[
    int | None,
    typer.Option(min=0, help="With --shipped: the account's quota of on-demand vCPUs, one a processor."),
]
SpotVcpusOption = Annotated[
    int | None,
    typer.Option(min=0, help="With --shipped: the account's quota of spot vCPUs, one a processor."),
]
SlurmConfOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Backfill as this slurm.conf says (SchedulerType, SchedulerParameters), each processor being a "
        "node; by default EASY backfilling. It is slower.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedOptions:
    """Options as they were given."""

    config: Path | None
    changes: Sequence[str]
    spot_traces: Sequence[Path]
    spot_prices: Path | None
    stock_outs: Sequence[str]
    vcpus: int | None
    spot_vcpus: int | None

    def asked_for(self, shipped: bool) -> ShippedOptions | None:
        """These options with ``--shipped``; None without it.

        Raises:
            BadInput: One of them is given without it (``rehearse.shipped``).
        """
        given = (
            *self.changes,
            *self.spot_traces,
            self.spot_prices,
            *self.stock_outs,
            self.vcpus,
            self.spot_vcpus,
        )
        if not shipped and any(one is not None for one in given):
            raise BadInput(
                "these options concern the rows of --shipped only, so that nothing would change",
                where="--set, --spot-trace, --spot-prices, --stock-out, --vcpus, --spot-vcpus",
                mend="Add --shipped, or leave them out",
                code="rehearse.shipped",
            )
        return self if shipped else None

    def read(self) -> tuple[dict[str, Settings], CloudMarket]:
        """Settings by the name of their row, and the market of EC2.

        Raises:
            BadInput: They cannot be used.
        """
        settings = self._settings()
        return settings, self._market(next(iter(settings.values())))

    def _market(self, settings: Settings) -> CloudMarket:
        from advisor.rehearsal import cloud_market
        from advisor.testing.memory_ec2_market import ON_DEMAND, SPOT

        ec2 = settings.ec2
        prices = self.spot_prices
        quotas = {ON_DEMAND: self.vcpus, SPOT: self.spot_vcpus}
        return cloud_market.CloudMarket(
            spot_traces=tuple(map(cloud_market.read_spot_trace, self.spot_traces)),
            spot_price=None
            if prices is None
            else cloud_market.read_spot_prices(prices, ec2.instance_type, ec2.on_demand_usd_per_hour),
            outages=tuple(map(cloud_market.outage_of, self.stock_outs)),
            vcpu_limits={market: limit for market, limit in quotas.items() if limit is not None},
        )

    def _settings(self) -> dict[str, Settings]:
        from advisor.config.editing import parse_changes
        from advisor.config.loading import changed
        from advisor.rehearsal.shipped import SHIPPED

        loaded = loaded_settings(self.config)
        found = {SHIPPED: loaded.settings}
        for change in self.changes:
            name = f"{SHIPPED}, {change}"
            found[name] = changed(loaded, parse_changes(change.split(";"))).settings
        return found


def rules_of(slurm_conf: Path | None) -> Rules | None:
    """The rules by which a cluster backfills; None: EASY."""
    from advisor.config.slurm_conf import value_in

    if slurm_conf is None:
        return None
    parameters, kind = (value_in(slurm_conf, name) for name in ("SchedulerParameters", "SchedulerType"))
    return Rules.of_slurm(parameters or "", kind or "")
