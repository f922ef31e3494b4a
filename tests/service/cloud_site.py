"""The site of the stories about the cloud: settings, moved jobs, and the poll."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import Advice, Answer, Capacity, Mode, Placement, Quantity, Question, Verdict
from advisor.model.settings import ClusterSettings, PathSettings, Settings
from advisor.model.settings_classes import NodeClass
from advisor.model.settings_cloud import Ec2Settings
from advisor.model.settings_price import BudgetSettings
from advisor.model.settings_service import LoopSettings
from advisor.service.control.polling import PollLoop
from advisor.service.running.loops import Step
from tests.service.cloud_rules import CLUSTER, GRACE_SECONDS, USD_PER_HOUR


class PollOnly(PollLoop):
    """The poll loop without the files for `advisor serve` and `advisor status`, which nothing here reads."""

    def steps(self) -> tuple[Step, ...]:
        return (Step("poll Slurm", self.poll),)


@lru_cache(maxsize=64)
def comment(capacity: Capacity, predicted_seconds: float) -> str:
    """AdminComment of a job that we moved."""
    answer = Answer(
        question=Question.CAPACITY,
        verdict=Verdict.YES,
        reason="capacity.spot",
        numbers=(("predicted_cloud_run", Quantity(predicted_seconds, "s")),),
    )
    advice = Advice(
        advice_id="a-1",
        time=0.0,
        placement=Placement.BURST,
        partition="burst",
        capacity=capacity,
        mode=Mode.ACT,
        answers=(answer,),
    )
    return admin_comment(advice)


FLEETS = {
    "mid": {
        "nodes": "burst[1-90]",
        "instance_types": ["c5.xlarge", "m5.xlarge", "r5.xlarge"],
        "cores": 4,
        "memory_mb": 4000,
        "on_demand_usd_per_hour": USD_PER_HOUR["on-demand"],
    }
}
"""One class of several types: its spot nodes are fleets."""


OWN_BUDGETS = {
    "accounts": {"chem": 0.05, "none": 0.0},
    "account_period": "14d",
    "users": {"*": 0.08, "bob": 0.04},
    "carry_over": True,
}


@lru_cache(maxsize=64)
def site(budget_usd: float, *, fleets: bool = False, own_budgets: bool = False) -> Settings:
    own = OWN_BUDGETS if own_budgets else {}
    return Settings(
        cluster=ClusterSettings(default_mode=Mode.ACT, name=CLUSTER),
        budget=BudgetSettings.model_validate({"usd": budget_usd, "period": "day"} | own),
        loops=LoopSettings(orphan_grace_seconds=GRACE_SECONDS),
        ec2=Ec2Settings(
            image_id="ami-1",
            interruption_queue_url="memory",
            spot_usd_per_hour=USD_PER_HOUR["spot"],
            on_demand_usd_per_hour=USD_PER_HOUR["on-demand"],
            classes={name: NodeClass.model_validate(each) for name, each in FLEETS.items() if fleets},
        ),
        paths=PathSettings(state=Path("state"), run=Path("run")),
    )
