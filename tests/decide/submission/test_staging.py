"""Data of a job: it starts later in the cloud and costs more there, and is told so."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.explanation.wording import explanation, recorded_explanation
from advisor.decide.submission.cloud_terms import cost_usd, start_of
from advisor.model.advice import Advice, Capacity, Placement
from advisor.model.settings import Settings
from advisor.model.site import Price
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings
from tests.decide.submission.test_priced import chances_of, estimates_of, priced

FREE = {"usd_per_gb_in": 0.0, "usd_per_gb_out": 0.0}
TARIFF = {"bandwidth_mb_per_second": 100.0, "usd_per_gb_in": 0.01, "usd_per_gb_out": 0.1}
CHEAP = Price(seconds_per_usd=1.0, tokens_usd=100.0)


def by_price(comment: str | None, data: dict[str, Any], price: Price = CHEAP, **rest: Any) -> Advice:
    cloud = rest.pop("cloud", None) or make_cloud(
        on_demand_usd_per_core_hour=0.05, spot_usd_per_core_hour=0.05, processors_per_node=4, nodes_total=9
    )
    estimates = estimates_of(chances=chances_of((600.0, 1.0)))
    job = make_job(requested_time=3600.0, comment=comment, **rest)
    return ask(job, estimates, settings=priced(data=data), cloud=cloud, price=price)


def test_the_price_counts_the_time_and_the_money_of_data() -> None:
    plain = by_price(None, TARIFF).values()
    loaded = by_price("data=20GB,data-out=5GB", TARIFF)
    values = loaded.values()
    assert loaded.placement is Placement.BURST
    assert values["staging"] == pytest.approx(250.0)  # 25 GB at 100 MB/s
    assert values["start_there"] == pytest.approx(plain["start_there"] + 250.0)
    assert values["predicted_saving"] == pytest.approx(plain["predicted_saving"] - 250.0)
    transfer = 20 * 0.01 + 5 * 0.1
    assert values["transfer_cost"] == pytest.approx(transfer)
    paid = 250.0 * 4 * 0.05 / 3600.0  # its nodes wait for the data as well
    assert values["predicted_cost"] == pytest.approx(plain["predicted_cost"] + transfer + paid)
    assert values["worst_cost"] == pytest.approx(plain["worst_cost"] + transfer + paid)


def test_why_says_so_in_a_sentence_and_the_admin_comment_keeps_it() -> None:
    advice = by_price("data=20GB,data-out=5GB", TARIFF)
    said = explanation(advice)
    assert "of which its data (25 GB) takes 4 min" in said
    assert "0.70 USD of it is for its data" in said
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    assert recorded.numbers["transfer_cost"] == pytest.approx(0.7)
    assert "25 GB" in recorded_explanation(recorded)


def test_data_that_takes_too_long_or_costs_too_much_keeps_a_job_here() -> None:
    slow = by_price("data=2TB", TARIFF)
    assert slow.decisive.reason == Reason.SAVES_NO_TIME
    assert "its data (2,000 GB) takes 5 h 33 min" in explanation(slow)
    dear = by_price("data=20GB,data-out=50GB", TARIFF, Price(seconds_per_usd=3600.0, tokens_usd=100.0))
    assert dear.decisive.reason == Reason.TOO_DEAR
    assert "5.20 USD of the cost is for its data" in explanation(dear)
    broke = by_price("data-out=50GB", TARIFF, Price(seconds_per_usd=1.0, tokens_usd=4.0))
    assert broke.decisive.reason == Reason.BUDGET_USED_UP


def test_reserved_nodes_do_not_make_transfers_free() -> None:
    cloud = make_cloud(reserved_free_nodes=9, processors_per_node=4, nodes_total=9)
    free = by_price("data=20GB", FREE, cloud=cloud)
    assert free.values()["predicted_cost"] == 0.0
    paid = by_price("data=20GB", TARIFF, cloud=cloud)
    assert paid.capacity is Capacity.RESERVED
    assert paid.values()["predicted_cost"] == pytest.approx(0.2)
    assert paid.values()["worst_cost"] == pytest.approx(0.2)


@pytest.mark.parametrize("policy", ["cunha2017", "ambati2021"])
def test_the_published_rules_count_it_too(policy: str) -> None:
    settings = make_settings(cluster={"policy": policy}, data=TARIFF)
    estimates = make_estimates(wait=1800.0, run=600.0)

    def advised(comment: str | None) -> Advice:
        return ask(make_job(comment=comment), estimates, settings=settings)

    plain, loaded = advised(None).values(), advised("data=10GB").values()
    assert loaded["predicted_cost"] > plain["predicted_cost"] + 10 * 0.01
    if policy == "cunha2017":
        assert loaded["predicted_saving"] == pytest.approx(plain["predicted_saving"] - 100.0)
        assert "its data takes 2 min more" in explanation(advised("data=10GB"))
        assert advised("data=200GB").decisive.reason == Reason.CLOUD_NOT_FASTER


def test_an_account_s_jobs_bring_what_the_site_says_and_the_comment_comes_first() -> None:
    data = TARIFF | {"accounts": {"climate": "30GB"}}
    assert by_price(None, data, account="climate").values()["data"] == 30.0
    assert by_price("data=1GB", data, account="climate").values()["data"] == 1.0
    assert "data" not in by_price(None, data, account="chem").values()
    with pytest.raises(ValueError, match="is no size"):
        make_settings(data={"accounts": {"climate": "much"}})


def test_a_size_that_cannot_be_read_keeps_the_job_here_and_says_how_to_write_it() -> None:
    advice = by_price("by=18:00 data=lots", TARIFF)
    assert advice.decisive.reason == Reason.DATA_UNKNOWN
    assert "write data=20GB" in explanation(advice)


def start(settings: Settings, comment: str = "data=60GB", **cloud: Any) -> float:
    return start_of(make_job(comment=comment), make_cloud(**cloud), settings).seconds


def test_a_stage_in_command_works_while_nodes_boot_and_its_speed_is_learned() -> None:
    copies = make_settings(placement={"boot_seconds": 120.0}, data=TARIFF)
    staged = make_settings(placement={"boot_seconds": 120.0}, data=TARIFF | {"stage_in": "/usr/bin/stage"})
    assert start(copies) == 720.0
    assert start(staged) == 600.0
    assert start(staged, "data=1GB") == 120.0  # it is there before the nodes are
    assert start(staged, staging_mb_per_second=400.0) == 150.0
    assert start(staged, "data-out=10GB", staging_mb_per_second=400.0) == 220.0  # the way back is declared


def test_every_task_of_an_array_brings_its_own() -> None:
    settings, cloud = make_settings(data=TARIFF), make_cloud(processors_per_node=4)

    def cost(tasks: int) -> float:
        job = make_job(comment="data-out=10GB", array_tasks=tasks)
        return cost_usd(job, 600.0, Capacity.ON_DEMAND, cloud, settings)

    assert cost(7) == pytest.approx(7 * cost(1))
