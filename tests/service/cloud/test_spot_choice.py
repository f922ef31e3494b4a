"""Launches of spot nodes: in pools that are worth the run, and not too many of one owner in one pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.submission.capacity import spot_tries
from advisor.ec2.prices import Prices
from advisor.model.advice import Advice, Answer, Capacity, Mode, Placement, Quantity, Question, Verdict
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.model.spot_pools import SpotPool
from advisor.service.cloud.spot_choice import Narrowed, SpotChoice
from tests.decide.spot.test_pools import pool
from tests.service.cloud.rig import Rig, rig
from tests.service.doubles import make_look, make_queued

__all__ = ["rig"]

HOUR = 3600.0
A, B = "spot|c5.xlarge|subnet-a", "spot|c5.xlarge|subnet-b"
SETTINGS = Settings.model_validate(
    {"ec2": {"subnet_ids": ["subnet-a", "subnet-b"], "on_demand_usd_per_hour": 1.0}}
)
CLASS = {"cores": 4, "memory_mb": 8000, "on_demand_usd_per_hour": 1.0}


def queued(job: int, run_hours: float | None = 1.0, **facts: Any) -> QueuedJob:
    numbers = () if run_hours is None else (("predicted_cloud_run", Quantity(run_hours * HOUR)),)
    answer = Answer(question=Question.CAPACITY, verdict=Verdict.YES, reason="capacity.spot", numbers=numbers)
    said = admin_comment(
        Advice(
            advice_id="a-1",
            time=0.0,
            placement=Placement.BURST,
            partition="burst",
            capacity=Capacity.SPOT,
            mode=Mode.ACT,
            answers=(answer,),
        )
    )
    return make_queued(job, "CONFIGURING", queue="burst", admin_comment=said, **{"user": "ann"} | facts)


def narrow(
    jobs: Mapping[str, QueuedJob],
    *known: SpotPool,
    losses: int = 0,
    running: Mapping[str, str] | None = None,
    others: tuple[QueuedJob, ...] = (),
    together: frozenset[str] = frozenset(),
    settings: Settings = SETTINGS,
    boot_seconds: float | None = None,
) -> Narrowed:
    context: Any = SimpleNamespace(
        settings=settings,
        spot_pools=lambda: known,
        prices_now=lambda: Prices.of_settings(settings.ec2),
        spot_tries=lambda item: spot_tries(structs.replace(item.job, interruptions=losses), settings),
        cloud=SimpleNamespace(boot_seconds_of=lambda _option, _types: boot_seconds),
    )
    choice = SpotChoice(context)
    return choice.narrow(
        jobs,
        dict.fromkeys(jobs, Capacity.SPOT),
        together=together,
        snapshot=make_look(0.0, (), [*jobs.values(), *others]),
        pool_of_node=running or {},
    )


def test_all_pools_will_do_while_nothing_is_known() -> None:
    assert narrow({"n1": queued(1)}) == ({"n1": Capacity.SPOT}, {"n1": ((A, B),)})
    assert narrow({"n1": queued(1, None)}, pool(A, 0.1, 1.0), pool(B, 0.1, 1.0)).pools_of["n1"] == ((A, B),)


def test_a_run_goes_where_it_is_worth_it_or_on_demand() -> None:
    known = (pool(A, 0.3, 5.0), pool(B, 0.35, 500.0))
    found = narrow({"n1": queued(1, 8.0)}, *known)
    assert found == ({"n1": Capacity.SPOT}, {"n1": ((B,),)})
    flaky = (pool(A, 0.3, 2.0), pool(B, 0.3, 2.0))
    assert narrow({"n1": queued(1, 8.0)}, *flaky) == ({"n1": Capacity.ON_DEMAND}, {})
    assert narrow({"n1": queued(1, 0.1)}, *known, losses=2).capacity_of["n1"] is Capacity.ON_DEMAND


def test_eight_nodes_of_one_user_are_in_two_pools_and_of_eight_users_anywhere() -> None:
    mine = narrow({f"n{number}": queued(number) for number in range(1, 9)})
    assert Counter(mine.pools_of.values()) == {((A,),): 4, ((B,),): 4}
    theirs = narrow({f"n{number}": queued(number, user=f"u{number}") for number in range(1, 9)})
    assert set(theirs.pools_of.values()) == {((A, B),)}


def test_nodes_that_run_count_and_a_chain_is_one_owner() -> None:
    running = [queued(number, user=f"u{number}", nodes=f"old{number}") for number in range(1, 5)]
    last = make_queued(99, user="zoe", dependency="afterok:1:2:3:4:5")
    new = {"n5": queued(5, user="u5")}
    there = {f"old{number}": A for number in range(1, 5)}
    found = narrow(new, running=there, others=(*running, last))
    assert found.pools_of == {"n5": ((B,),)}
    assert narrow(new, running=there, others=tuple(running)).pools_of == {"n5": ((A, B),)}


def test_a_job_of_several_nodes_is_not_divided() -> None:
    job, names = queued(1), [f"n{number}" for number in range(8)]
    found = narrow(dict.fromkeys(names, job), together=frozenset(names))
    assert set(found.pools_of.values()) == {((A, B),)}


def test_the_pools_of_later_rounds_are_tried_where_the_best_has_no_room() -> None:
    dear, cheap = pool(A, 0.5, 500.0), pool(B, 0.2, 500.0)
    assert narrow({"n1": queued(1)}, dear, cheap).pools_of["n1"] == ((B,), (A,))
    closed = structs.replace(cheap, is_open=False)
    assert narrow({"n1": queued(1)}, dear, closed).pools_of["n1"] == ((A,),)
    nothing = narrow({"n1": queued(1)}, structs.replace(dear, is_open=False), closed)
    assert nothing == ({"n1": Capacity.ON_DEMAND}, {})


def test_nodes_with_the_same_first_round_are_launched_in_one_call() -> None:
    """The second pool is worth a short run only; so for both the first pool is all there is."""
    known = (pool(A, 0.5, 4.0), pool(B, 0.2, 500.0))
    short, long = queued(1, 0.2), queued(2, 8.0, user="bob")
    assert narrow({"n1": short}, *known).pools_of["n1"] == ((B,), (A,))
    both = narrow({"n1": short, "n2": long}, *known)
    assert both.pools_of == {"n1": ((B,),), "n2": ((B,),)}


def test_a_job_without_checkpoints_is_not_launched_where_one_with_them_would_be() -> None:
    known = (pool(A, 0.5, 4.0), pool(B, 0.2, 500.0))
    plain, saving = queued(1, 4.0), queued(2, 8.0, comment="checkpoint=1min", user="bob")
    assert narrow({"n1": plain}, *known).pools_of == {"n1": ((B,),)}
    both = narrow({"n1": plain, "n2": saving}, *known)
    assert both.pools_of == {"n1": ((B,),), "n2": ((B,), (A,))}


def test_nodes_of_other_classes_keep_their_own_later_rounds() -> None:
    settings = Settings.model_validate(
        {
            "ec2": {
                "subnet_ids": ["a"],
                "on_demand_usd_per_hour": 1.0,
                "classes": {
                    "one": {"nodes": "n1", "instance_types": ["c5.xlarge", "m5.xlarge"]} | CLASS,
                    "two": {"nodes": "n2", "instance_types": ["c5.xlarge", "r5.xlarge"]} | CLASS,
                },
            }
        }
    )
    best, second, third = "spot|c5.xlarge|a", "spot|m5.xlarge|a", "spot|r5.xlarge|a"
    known = (pool(best, 0.2, 500.0), pool(second, 0.4, 500.0), pool(third, 0.6, 500.0))
    found = narrow({"n1": queued(1), "n2": queued(2, 0.5, user="bob")}, *known, settings=settings)
    assert found.pools_of == {"n1": ((best,), (second,)), "n2": ((best,), (third,))}


def test_a_promised_job_goes_to_no_pool_where_its_instance_lasts_less_than_was_reckoned() -> None:
    """Its chance to be late was taken from the pools of the first round (`decide/promise/promised.py`)."""
    settings = Settings.model_validate(
        SETTINGS.model_dump() | {"promise": {"enabled": True}, "cluster": {"policy": "price"}}
    )
    known = (pool(A, 0.2, 500.0), pool(B, 0.1, 4.0))
    promised = queued(1, 2.0, comment="by=+9h")
    found = narrow({"n1": promised, "n2": queued(2, 2.0, user="bob")}, *known, settings=settings)
    assert found.pools_of == {"n1": ((A,),), "n2": ((A,), (B,))}


def test_owners_of_many_nodes_stay_in_the_pools_of_the_first_round() -> None:
    """A later round would take all that the first one has no room for, so too many in one pool."""
    known = (pool(A, 0.5, 500.0), pool(B, 0.2, 500.0))
    found = narrow({f"n{number}": queued(number) for number in range(1, 9)}, *known)
    assert set(found.pools_of.values()) == {((B,),)}


def test_a_later_round_takes_no_more_of_an_owner_than_may_be_in_a_pool_with_the_first_of_others() -> None:
    """Of two groups of three nodes the first would follow the other into its pool where its own is full."""
    known = (pool(A, 0.1, 8.0), pool(B, 0.25, 50.0))
    long, short = {f"n{i}": queued(i, 8.0) for i in (1, 2, 3)}, {f"n{i}": queued(i, 0.2) for i in (4, 5, 6)}
    assert set(narrow(long, *known).pools_of.values()) == {((B,), (A,))}
    assert set(narrow(short, *known).pools_of.values()) == {((A,), (B,))}
    both = narrow(long | short, *known)
    assert Counter(both.pools_of.values()) == {((B,),): 3, ((A,),): 3}


def test_the_provision_loop_hands_the_pools_to_the_fleet(rig: Rig) -> None:
    rig.look(jobs=[queued(7)])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    assert rig.fleet.pools_of == {"burst1": (("spot|c5.xlarge|default",),)}


def test_the_start_that_a_loss_costs_takes_as_long_as_boots_were_seen_to_take() -> None:
    job, known = {"n1": queued(1, 8.0, comment="checkpoint=1min")}, (pool(A, 0.3, 1.0), pool(B, 0.3, 1.0))
    assert narrow(job, *known).capacity_of["n1"] is Capacity.SPOT
    assert narrow(job, *known, boot_seconds=36_000.0).capacity_of["n1"] is Capacity.ON_DEMAND
