"""Take one safety step away, and the same machine finds what it was for (issue 4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, seed

from advisor.ec2 import fleet as fleets
from advisor.ec2.fleet import Fleet
from advisor.ec2.journal import Journal
from advisor.ec2.launching import Launcher
from advisor.ec2.listing import described
from advisor.ec2.tags import CLUSTER_TAG
from advisor.model.cluster import NodePower
from advisor.model.errors import AdvisorError
from advisor.service.cloud.budget_guard import BudgetGuard
from advisor.service.cloud.late_requests import LateRequests
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.running.isolating import for_each
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_records import BudgetFile, BudgetRecord
from tests.service.cloud import test_machine
from tests.service.cloud.test_machine import options
from tests.service.cloud_stories import (
    BUDGETS,
    CRASH,
    DAMAGE,
    EC2_AWAY,
    LAG,
    LAUNCH_FAILS,
    LIVE,
    LOSE_PROGRAM,
    RESTART,
    SUBMIT,
    stories,
)
from tests.service.cloud_world import Action, tell

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
STORIES = 500

TWO_INSTANCES = r"has i-\w+ and gets i-\w+"
UNDER_A_JOB = r"terminated under job|while \w+ boots on it|powered down under job"
TOO_DEAR = r"USD of .+ are spent and promised"
ORPHAN = r"has been an orphan"
STRANGER = r"is somebody else's"


def no_intent_before_the_launch(patch: Patch) -> None:
    patch.setattr(Journal, "intend", lambda self, intent: self._intents.update({intent.token: intent}))


def open_intents_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(Journal, "open_intents", lambda _self: [])


def a_new_token_for_each_call(patch: Patch) -> None:
    original, number = Launcher._call, itertools.count()

    def call(self: Launcher, action: Any, request: Any) -> Any:
        return original(self, action, {**request, "ClientToken": f"advisor-{next(number)}"})

    patch.setattr(Launcher, "_call", call)


def whether_a_node_has_its_instance_is_not_asked(patch: Patch) -> None:
    patch.setattr(Fleet, "_without_instance", lambda _self, nodes, *_: list(nodes))


def the_journal_s_word_does_not_count_while_the_list_lags(patch: Patch) -> None:
    patch.setattr(Fleet, "_unlisted", lambda _self, _listed: {})


def anybody_s_instances_are_ours(patch: Patch) -> None:
    def all_of_them(ec2: Any, tags: dict[str, str]) -> Any:
        return described(ec2, {name: value for name, value in tags.items() if name != CLUSTER_TAG})

    patch.setattr(fleets, "described", all_of_them)


def absence_is_believed_from_the_list_alone(patch: Patch) -> None:
    def give_up_lost(self: ReconcileLoop) -> None:
        _, nodes, alive = self._pairs()
        for name, node in nodes.items():
            if node.power is NodePower.UP and name not in alive:
                self._slurm.update_node([name], state="POWER_DOWN_FORCE", reason="not listed")

    patch.setattr(ReconcileLoop, "give_up_lost", give_up_lost)


def orphans_are_not_collected(patch: Patch) -> None:
    patch.setattr(ReconcileLoop, "terminate_orphans", lambda _self: None)


def orphans_are_collected_whatever_was_resumed_meanwhile(patch: Patch) -> None:
    patch.setattr(
        Fleet,
        "terminate_orphans",
        lambda self, orphans, _polled: self.terminate([o.instance_id for o in orphans]),
    )


def hand_overs_in_any_order(patch: Patch) -> None:
    def act_on_handovers(self: ProvisionLoop) -> None:
        if self._unsettled:
            self._unsettled = False
            self._fleet.recover(self._booting.keys())
        for_each(self.folder.waiting(), self._act)

    patch.setattr(ProvisionLoop, "act_on_handovers", act_on_handovers)
    suspends_are_believed_whatever_slurm_shows(patch)  # else each is asked about, in any order


def suspends_are_believed_whatever_slurm_shows(patch: Patch) -> None:
    patch.setattr(LateRequests, "up_again", lambda *_: frozenset())


def the_cap_is_not_asked_at_the_launch(patch: Patch) -> None:
    patch.setattr(BudgetGuard, "put_aside", lambda *_, **__: {})


def promises_are_not_on_the_disk(patch: Patch) -> None:
    save = SpendingBudget._save

    def without(self: SpendingBudget) -> None:
        promises, self._kept.promises = self._kept.promises, {}
        save(self)
        self._kept.promises = promises

    patch.setattr(SpendingBudget, "_save", without)


def a_damaged_budget_is_a_new_day(patch: Patch) -> None:
    read = BudgetFile.read

    def forgets(self: BudgetFile) -> BudgetRecord | None:
        try:
            self._state.load()
        except AdvisorError:
            return BudgetRecord.empty()
        kept = read(self)
        self.doubt = ""
        return kept

    patch.setattr(BudgetFile, "read", forgets)


def what_cannot_be_read_is_free(patch: Patch) -> None:
    patch.setattr(
        ReconcileLoop, "_is_read", property(lambda _self: True, lambda _self, _value: None), raising=False
    )


_ALONE = (SUBMIT, LIVE)  # what the rarer ones need besides
STEPS: tuple[tuple[Callable[[Patch], None], str, tuple[Any, ...]], ...] = (
    (no_intent_before_the_launch, TWO_INSTANCES, (*_ALONE, CRASH, LAG)),
    (open_intents_are_not_looked_at, TWO_INSTANCES, (*_ALONE, LAUNCH_FAILS, LAG, LAG)),
    (a_new_token_for_each_call, TWO_INSTANCES, ()),
    (whether_a_node_has_its_instance_is_not_asked, TWO_INSTANCES, ()),
    (the_journal_s_word_does_not_count_while_the_list_lags, TWO_INSTANCES, ()),
    (anybody_s_instances_are_ours, STRANGER, ()),
    (absence_is_believed_from_the_list_alone, UNDER_A_JOB, ()),
    (orphans_are_not_collected, ORPHAN, (*_ALONE, LOSE_PROGRAM)),
    (the_cap_is_not_asked_at_the_launch, TOO_DEAR, ()),
    (promises_are_not_on_the_disk, TOO_DEAR, (*_ALONE, RESTART)),
    (a_damaged_budget_is_a_new_day, TOO_DEAR, (*_ALONE, DAMAGE)),
    (what_cannot_be_read_is_free, TOO_DEAR, (*_ALONE, EC2_AWAY)),
)


@pytest.mark.parametrize(("remove", "found", "kinds"), STEPS, ids=[step.__name__ for step, *_ in STEPS])
def test_without(
    remove: Callable[[Patch], None], found: str, kinds: tuple[Any, ...], monkeypatch: Patch
) -> None:
    @seed(0)
    @options(STORIES, Phase.generate)
    @given(story=stories(*kinds), budget_usd=BUDGETS)
    def happens(story: Any, budget_usd: float) -> None:
        tell(story, budget_usd=budget_usd)

    remove(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        happens()


@pytest.mark.parametrize(
    ("remove", "found", "story"),
    [
        (
            orphans_are_collected_whatever_was_resumed_meanwhile,
            UNDER_A_JOB,
            test_machine.A_RESUME_FINDS_AN_ORPHAN,
        ),
        (
            hand_overs_in_any_order,
            UNDER_A_JOB,
            test_machine.A_SUSPEND_FAILS_AND_THE_RESUME_AFTER_IT_DOES_NOT,
        ),
        (
            suspends_are_believed_whatever_slurm_shows,
            UNDER_A_JOB,
            test_machine.SLURMCTLD_FORGETS_A_SUSPEND,
        ),
    ],
)
def test_a_rare_story_without(
    remove: Callable[[Patch], None], found: str, story: list[Action], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        tell(story, slurmd_b=True)
