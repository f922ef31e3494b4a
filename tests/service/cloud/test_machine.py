"""A thousand stories of launches, faults, reclaims and crashes, and what holds in each (issue 4).

No node has two instances, no instance is an orphan for longer than the grace, no job is lost or ends twice,
none loses its node to us, nothing of other people's is touched, and spending stays under all budgets. More
stories, other ones each time: ``ADVISOR_STORIES=20000 pytest tests/service/cloud/test_machine.py``.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from advisor.model.advice import Capacity
from tests.service.cloud_stories import BUDGETS, OF_CLOCKS, OF_FLEETS, OF_RESERVATIONS, stories
from tests.service.cloud_world import Action, tell

pytestmark = pytest.mark.slow

STORIES = int(os.environ.get("ADVISOR_STORIES", "1000"))
PARTS = 4


def options(examples: int, *phases: Phase) -> Any:
    return hypothesis_settings(
        max_examples=examples,
        phases=phases or (Phase.generate, Phase.shrink),
        deadline=None,
        database=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens(part: int) -> None:
    chosen = part if "ADVISOR_STORIES" not in os.environ else int.from_bytes(os.urandom(4))

    @seed(chosen)
    @options(STORIES // PARTS)
    @given(story=stories(), budget_usd=BUDGETS, own_budgets=st.booleans())
    def happens(story: Any, budget_usd: float, *, own_budgets: bool) -> None:
        tell(story, budget_usd=budget_usd, own_budgets=own_budgets)

    happens()


def test_whatever_happens_to_fleets() -> None:
    @seed(1 if "ADVISOR_STORIES" not in os.environ else int.from_bytes(os.urandom(4)))
    @options(STORIES // PARTS)
    @given(story=stories(*OF_FLEETS), budget_usd=BUDGETS, own_budgets=st.booleans())
    def happens(story: Any, budget_usd: float, *, own_budgets: bool) -> None:
        tell(story, budget_usd=budget_usd, own_budgets=own_budgets, fleets=True)

    happens()


def test_whatever_happens_to_reservations() -> None:
    @seed(0 if "ADVISOR_STORIES" not in os.environ else int.from_bytes(os.urandom(4)))
    @options(STORIES // PARTS // 5)
    @given(
        story=stories(*OF_RESERVATIONS),
        budget_usd=BUDGETS,
        own_budgets=st.booleans(),
        reserved=st.integers(1, 2),
    )
    def happens(story: Any, budget_usd: float, reserved: int, *, own_budgets: bool) -> None:
        tell(story, budget_usd=budget_usd, own_budgets=own_budgets, reserved=reserved)

    happens()


def test_whatever_happens_to_clocks() -> None:
    @seed(0 if "ADVISOR_STORIES" not in os.environ else int.from_bytes(os.urandom(4)))
    @options(STORIES // PARTS)
    @given(story=stories(*OF_CLOCKS), budget_usd=BUDGETS, own_budgets=st.booleans())
    def happens(story: Any, budget_usd: float, *, own_budgets: bool) -> None:
        tell(story, budget_usd=budget_usd, own_budgets=own_budgets)

    happens()


SPOT, ON_DEMAND = Capacity.SPOT, Capacity.ON_DEMAND
THE_LAST_HAND_OVER_COMES_AGAIN: list[Action] = [
    ("submit", 100.0, 900.0, 1, SPOT, "well"),
    ("submit", 400.0, 100.0, 1, SPOT, "well"),
    ("submit", 20.0, 300.0, 1, SPOT, "well"),
    ("live", 6),
    ("submit", 100.0, 300.0, 1, ON_DEMAND, "well"),
    ("live", 4),
    ("repeat",),
]
A_SUSPEND_FAILS_AND_THE_RESUME_AFTER_IT_DOES_NOT: list[Action] = [
    ("submit", 20.0, 300.0, 1, ON_DEMAND, "well"),
    ("live", 6),
    ("stall", 150.0),
    ("submit", 900.0, 300.0, 1, ON_DEMAND, "well"),
    ("work", "poll"),
    ("ec2_fails", "describe_instances", "html", 1),
    ("work", "provision"),
    ("live", 8),
]
SLURMCTLD_FORGETS_A_SUSPEND: list[Action] = [
    ("submit", 20.0, 300.0, 1, ON_DEMAND, "well"),
    ("live", 6),
    ("stall", 70.0),
    ("forget_suspends",),
    ("submit", 900.0, 300.0, 1, ON_DEMAND, "well"),
    ("live", 8),
]
A_RESUME_FINDS_AN_ORPHAN: list[Action] = [
    ("submit", 20.0, 300.0, 1, ON_DEMAND, "well"),
    ("live", 5),
    ("lose_program", "suspend"),
    ("live", 12),
    ("submit", 400.0, 300.0, 1, ON_DEMAND, "well"),
    ("work", "provision"),
    ("stall", 20.0),
    ("work", "provision"),  # Slurm has not been looked at in all that time
    ("stall", 20.0),
    ("work", "reconcile"),
    ("live", 2),
]
EC2_IS_AWAY_WHILE_A_JOB_RUNS: list[Action] = [
    ("submit", 2900.0, 3000.0, 1, ON_DEMAND, "well"),
    ("live", 6),
    ("ec2_away", 5, 300.0),
    ("live", 2),
    ("submit", 400.0, 900.0, 1, ON_DEMAND, "well"),
    ("live", 4),
    ("submit", 400.0, 900.0, 1, ON_DEMAND, "well"),
    ("live", 4),
]


def test_a_hand_over_that_comes_again_never_asks_the_cap_about_a_node_that_has_its_instance() -> None:
    """It was refused then, and powered down under its job."""
    tell(THE_LAST_HAND_OVER_COMES_AGAIN, budget_usd=0.1)


def test_hand_overs_of_a_node_are_done_in_their_order() -> None:
    """A suspend that failed was done after the resume that followed it, and ended the job's instance."""
    tell(A_SUSPEND_FAILS_AND_THE_RESUME_AFTER_IT_DOES_NOT, slurmd_b=True)


def test_a_suspend_that_slurmctld_has_forgotten_ends_no_job() -> None:
    """Killed before it had saved its state, it started a job on the node; its instance was ended then."""
    world = tell(SLURMCTLD_FORGETS_A_SUSPEND)
    assert [job.restarts for job in world.slurm.jobs.values()] == [0, 0]


def test_an_orphan_that_a_resume_has_found_is_none_whatever_slurm_showed_before() -> None:
    """The reconciler ended the instance of a running job: what it had seen of Slurm was older than that."""
    tell(A_RESUME_FINDS_AN_ORPHAN, slurmd_b=True)


def test_what_runs_while_ec2_cannot_be_read_is_on_the_bill() -> None:
    """It was taken for nothing, and the cap passed by as much."""
    tell(EC2_IS_AWAY_WHILE_A_JOB_RUNS, budget_usd=0.22)


A_PURSE_IS_DAMAGED_WHILE_A_JOB_RUNS: list[Action] = [
    ("submit", 2900.0, 3000.0, 1, ON_DEMAND, "well"),
    ("live", 100, 15.0),
    ("damage_budget", "budget.json"),
    ("submit", 400.0, 900.0, 1, ON_DEMAND, "well"),
    ("live", 4),
    ("damage_budget", "budget.json", "budget.json.old"),
    ("submit", 400.0, 900.0, 1, ON_DEMAND, "well"),
    ("live", 4),
]
OTHERS_TAKE_THE_PLACE_OF_A_PAID_NODE: list[Action] = [
    ("live", 1),
    ("others_take", 1),
    ("submit", 100.0, 600.0, 1, ON_DEMAND, "well", "none", "ann"),
    ("live", 3),
]
ILL_ENTRIES_OF_EVERY_KIND: list[Action] = [
    ("submit", 20.0, 300.0, 1, ON_DEMAND, "well"),
    *(("ill_entry", kind) for kind in ("directory", "link", "fifo", "option", "other node", "")),
    ("live", 6),
]


def test_d5_a_damaged_budget_makes_nothing_cheaper() -> None:
    """The day began anew, and the cap was passed by what had been spent."""
    tell(A_PURSE_IS_DAMAGED_WHILE_A_JOB_RUNS, budget_usd=0.22)


def test_what_others_take_of_a_reservation_is_nobody_else_s_bill() -> None:
    """The node was launched on-demand instead, for an account that had no money."""
    world = tell(OTHERS_TAKE_THE_PLACE_OF_A_PAID_NODE, own_budgets=True, reserved=1)
    assert not [item for item in world.ec2.instances.values() if item not in world.strangers]
    assert world.slurm.jobs[1].ends == ["COMPLETED"]


def test_a_job_without_money_runs_on_what_is_paid_for() -> None:
    story = [action for action in OTHERS_TAKE_THE_PLACE_OF_A_PAID_NODE if action[0] != "others_take"]
    world = tell(story, own_budgets=True, reserved=1)
    assert {item.reservation_id for item in world.ec2.instances.values()} == {"", "cr-1"}


def test_d3_no_ill_entry_keeps_a_job_from_its_end() -> None:
    tell(ILL_ENTRIES_OF_EVERY_KIND)
