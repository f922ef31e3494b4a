"""Faults after a launch (docs/faults.md): crashes, lists that lag, failed terminations, clocks that jump."""

from __future__ import annotations

import operator

import pytest

from advisor.ec2.clients import client
from advisor.ec2.errors import FailureClass
from advisor.ec2.listing import described
from advisor.ec2.tags import CLUSTER_TAG
from advisor.model.errors import AdvisorError, RetryLater, TellAdmin

pytestmark = [pytest.mark.ec2, pytest.mark.slow]

RUN = {"service": "ec2", "action": "RunInstances"}
END = {"service": "ec2", "action": "TerminateInstances"}
LIST = {"service": "ec2", "action": "DescribeInstances"}
HOUR = 3600.0


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


def alive(emulator):
    return sorted(item["id"] for item in emulator.instances() if item["state"] in ("pending", "running"))


@pytest.fixture
def crash_at(monkeypatch):
    """Makes a method of a fleet or of its part end the process, before or after doing its work."""

    def arrange(fleet, place, *, after):
        owner = operator.attrgetter(place.rpartition(".")[0])(fleet) if "." in place else fleet
        method = place.rpartition(".")[2]
        original = getattr(owner, method)

        def crash(*arguments, **more):
            if after:
                original(*arguments, **more)
            raise Crash

        monkeypatch.setattr(owner, method, crash)

    return arrange


@pytest.mark.parametrize(
    ("place", "when", "launched"),
    [
        ("journal.intend", "before", 0),
        ("journal.intend", "after", 0),
        ("_launches._launcher.run_instances", "before", 0),
        ("_launches._launcher.run_instances", "after", 2),
        ("journal.launched", "before", 2),
        ("journal.launched", "after", 2),
        ("_launches.name", "before", 2),
    ],
)
@pytest.mark.parametrize("is_wanted", [True, False])
def test_f09_a_crash_anywhere_in_a_launch_never_launches_twice(
    emulator, start_fleet, clock, crash_at, place, when, launched, is_wanted
):
    nodes = ["burst1", "burst2"]
    fleet = start_fleet()
    crash_at(fleet, place, after=when == "after")
    with pytest.raises(Crash):
        fleet.resume(nodes)
    before = alive(emulator)
    assert len(before) == launched
    fleet = start_fleet()
    fleet.recover(nodes if is_wanted else [])
    if is_wanted:
        report = fleet.resume(nodes)
        assert sorted(item.node for item in report.launched) == nodes
        assert len(alive(emulator)) == 2
        assert set(before) <= set(alive(emulator))
    else:
        assert alive(emulator) == before  # nobody wants them: nothing new
        clock.pass_by(HOUR)
        fleet.recover([])
        assert fleet.journal.open_intents() == []
    # whatever happened, each instance is known as the node it is, so the reconciler can judge it
    known = {item.instance_id: item.node for item in fleet.instances() if item.is_alive}
    assert sorted(known) == alive(emulator)
    assert sorted(known.values()) == nodes[: len(known)]


def test_f09_a_launch_nobody_answered_for_is_settled_by_its_token(emulator, fleet):
    emulator.config(visible_after_s=600)
    emulator.faults([{**RUN, "reset": "after"}])
    report = fleet.resume(["burst1"])
    assert report.failed["burst1"].kind is FailureClass.SERVER
    (running,) = alive(emulator)
    emulator.faults([])
    assert fleet.resume(["burst1"]).failed["burst1"].code == "IntentOpen"
    assert alive(emulator) == [running]
    assert [item.instance_id for item in fleet.recover(["burst1"])] == [running]
    assert [item.instance_id for item in fleet.resume(["burst1"]).launched] == [running]


@pytest.mark.usefixtures("unpaced")
@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation", "InternalError"])
def test_f09_a_refused_question_settles_nothing(emulator, fleet, code):
    emulator.faults([{**RUN, "reset": "after"}])
    fleet.resume(["burst1"])
    (running,) = alive(emulator)
    emulator.faults([{**RUN, "error": {"code": code}}])
    assert fleet.recover(["burst1"]) == []
    assert len(fleet.journal.open_intents()) == 1
    emulator.faults([])
    assert [item.instance_id for item in fleet.recover(["burst1"])] == [running]


def test_f09_settings_that_changed_meanwhile_do_not_hide_an_instance(emulator, start_fleet, clock):
    emulator.faults([{**RUN, "reset": "after"}])
    start_fleet().resume(["burst1"])
    (running,) = alive(emulator)
    emulator.faults([])
    fleet = start_fleet(key_name="another")  # the repeated request is another one: EC2 refuses the token
    assert fleet.recover(["burst1"]) == []
    assert len(fleet.journal.open_intents()) == 1
    clock.pass_by(HOUR)
    assert [item.instance_id for item in fleet.recover(["burst1"])] == [running]
    assert alive(emulator) == [running]


def test_f09_an_old_token_is_not_relied_on(emulator, fleet, clock):
    emulator.faults([{**RUN, "reset": "after"}])
    fleet.resume(["burst1"])
    (running,) = alive(emulator)
    clock.pass_by(48 * HOUR)
    emulator.faults([])
    assert [item.instance_id for item in fleet.recover(["burst1"])] == [running]
    assert emulator.calls("RunInstances") == []


def test_f09_an_intent_that_cannot_be_written_launches_nothing(emulator, fleet):
    fleet.journal.path.unlink(missing_ok=True)
    fleet.journal.path.mkdir()
    with pytest.raises(TellAdmin, match="nothing is launched"):
        fleet.resume(["burst1"])
    assert emulator.instances() == []


def test_f06_describe_lags_and_nothing_is_launched_or_forgotten(emulator, fleet, clock):
    emulator.config(visible_after_s=600)
    (launched,) = fleet.resume(["burst1"]).launched
    for _ in range(5):
        assert fleet.instances() == []
        assert fleet.resume(["burst1"]).launched[0].instance_id == launched.instance_id
        clock.pass_by(15)
    assert alive(emulator) == [launched.instance_id]


def test_f06_visible_without_address_then_with_one(emulator, fleet):
    emulator.config(address_after_s=0.2)
    (launched,) = fleet.resume(["burst1"]).launched
    assert launched.private_ip == ""
    while not (address := fleet.instances()[0].private_ip):
        pass
    assert fleet.resume(["burst1"]).launched[0].private_ip == address


def test_f06_an_instance_not_listed_yet_is_suspended_as_soon_as_ec2_knows_it(emulator, fleet):
    emulator.config(visible_after_s=0.3)
    (launched,) = fleet.resume(["burst1"]).launched
    while not fleet.suspend(["burst1"]):
        assert alive(emulator) == [launched.instance_id]
    assert alive(emulator) == []


@pytest.mark.parametrize("was_listed", [True, False])
def test_f06_a_list_older_than_an_end_gives_no_node_the_instance_of_its_former_life(
    emulator, fleet, clock, monkeypatch, was_listed
):
    (first,) = fleet.resume(["burst1"]).launched
    listed = described(client("ec2", fleet.settings), {CLUSTER_TAG: "c1"})
    monkeypatch.setattr("advisor.ec2.fleet.described", lambda *_: listed if was_listed else [])
    assert fleet.suspend(["burst1"]) == [first.instance_id]
    (second,) = fleet.resume(["burst1"]).launched
    assert second.instance_id != first.instance_id
    clock.pass_by(400.0)  # EC2 has not ended it after all
    assert any(item.is_alive for item in fleet.instances()) is was_listed


def test_f07_a_reused_address_does_not_confuse_nodes(emulator, fleet):
    emulator.config(reuse_addresses=True)
    (first,) = fleet.resume(["burst1"]).launched
    fleet.suspend(["burst1"])
    (second,) = fleet.resume(["burst2"]).launched
    assert second.private_ip == first.private_ip
    shown = {item.instance_id: (item.node, item.is_alive) for item in fleet.instances()}
    assert shown == {first.instance_id: ("burst1", False), second.instance_id: ("burst2", True)}
    assert fleet.suspend(["burst1"]) == []
    assert alive(emulator) == [second.instance_id]


def test_f08_one_unknown_id_does_not_save_the_others(emulator, fleet):
    fleet.resume([f"burst{i}" for i in range(1, 21)])
    ids = [*alive(emulator), "i-0123456789abcdef0"]
    assert sorted(fleet.terminate(ids)) == sorted(ids)
    assert alive(emulator) == []


def test_f08_failed_terminations_are_reported_and_succeed_later(emulator, fleet):
    fleet.resume([f"burst{i}" for i in range(1, 11)])
    ids = alive(emulator)
    protected = {"InstanceId.1": ids[0]}
    emulator.faults(
        [
            {**END, "params": {"InstanceId.2": ".+"}, "error": {"code": "OperationNotPermitted"}},
            {**END, "params": protected, "error": {"code": "OperationNotPermitted"}},
        ]
    )
    assert sorted(fleet.terminate(ids)) == ids[1:]
    emulator.faults([])
    assert fleet.suspend(["burst1", *(f"burst{i}" for i in range(2, 11))]) == [ids[0]]
    assert alive(emulator) == []


def test_f08_no_permission_is_asked_for_once(emulator, fleet):
    fleet.resume([f"burst{i}" for i in range(1, 9)])
    emulator.faults([{**END, "error": {"code": "UnauthorizedOperation", "status": 403}}])
    assert fleet.terminate(alive(emulator)) == []
    assert len(emulator.calls("TerminateInstances")) == 1


def test_f21_a_stopped_instance_is_gone_for_slurm_and_terminated(emulator, fleet, ec2):
    (launched,) = fleet.resume(["burst1"]).launched
    ec2.stop_instances(InstanceIds=[launched.instance_id])
    (shown,) = fleet.instances()
    assert (shown.is_alive, shown.may_cost) == (False, True)
    (second,) = fleet.resume(["burst1"]).launched
    assert second.instance_id != launched.instance_id
    assert set(fleet.suspend(["burst1"])) == {launched.instance_id, second.instance_id}


def test_f23_half_a_list_is_no_list(emulator, fleet, start_fleet):
    other = start_fleet(cluster="c1")
    for index in range(3):
        other.resume([f"burst{index}"])
    emulator.faults([{**LIST, "params": {"NextToken": ".+"}, "error": {"code": "UnauthorizedOperation"}}])
    assert len(fleet.instances()) == 3  # one page needs no second
    emulator.faults([{**LIST, "error": {"code": "ExpiredToken", "status": 400}}])
    with pytest.raises(AdvisorError):
        fleet.instances()
    with pytest.raises(AdvisorError):
        fleet.suspend(["burst1"])
    with pytest.raises(AdvisorError):
        fleet.resume(["burst9"])
    assert len(alive(emulator)) == 3


def test_f23_all_pages_are_read(emulator, fleet, ec2):
    for index in range(101):  # the emulator lists 100 launches on a page
        ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="c5.large",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [
                        {"Key": "advisor:cluster", "Value": "c1"},
                        {"Key": "advisor:node", "Value": f"n{index}"},
                    ],
                }
            ],
        )
    emulator.faults([])
    assert len({item.node for item in fleet.instances()}) == 101
    assert len(emulator.calls("DescribeInstances")) == 2
    emulator.faults([{**LIST, "params": {"NextToken": ".+"}, "http": {"status": 500, "body": "<!doctype"}}])
    with pytest.raises(RetryLater):
        fleet.instances()


def test_f32_a_clock_jump_ends_and_launches_nothing(emulator, fleet, clock):
    emulator.config(visible_after_s=600)
    (launched,) = fleet.resume(["burst1"]).launched
    for jump in (HOUR, -2 * HOUR, 24 * HOUR):
        clock.wall += jump
        fleet.recover([])
        assert fleet.resume(["burst1"]).launched[0].instance_id == launched.instance_id
    assert alive(emulator) == [launched.instance_id]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_f32_a_clock_set_forward_forgets_no_launch_without_an_answer(
    emulator, start_fleet, clock, is_restarted
):
    """Its job had gone, so it was looked for; EC2 did not list it yet, and the next job's node got two."""
    emulator.config(visible_after_s=600)
    emulator.faults([{**RUN, "reset": "after"}])
    fleet = start_fleet()
    fleet.resume(["burst1"])
    emulator.faults([])
    (running,) = alive(emulator)
    clock.wall += 2 * HOUR
    fleet = start_fleet() if is_restarted else fleet
    fleet.recover([])
    fleet.resume(["burst1"])
    assert alive(emulator) == [running]
    assert [item.instance_id for item in fleet.recover(["burst1"])] == [running]


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_f32_a_clock_set_after_a_restart_launches_nothing_twice(emulator, start_fleet, clock, jump):
    emulator.config(visible_after_s=600)
    (launched,) = start_fleet().resume(["burst1"]).launched
    fleet = start_fleet()
    clock.wall += jump
    assert fleet.resume(["burst1"]).launched[0].instance_id == launched.instance_id
    assert alive(emulator) == [launched.instance_id]


def test_f32_a_clock_set_back_does_not_close_pools_for_ever(emulator, fleet, clock):
    emulator.capacity({"c5.xlarge|*|*": 0})
    fleet.resume(["burst1"])
    emulator.capacity({"c5.xlarge|*|*": 5})
    clock.wall -= 24 * HOUR
    assert fleet.resume(["burst1"]).launched


def test_only_our_own_instances_are_seen_or_touched(emulator, start_fleet, ec2):
    ours, theirs = start_fleet(cluster="c1"), start_fleet(cluster="c2")
    theirs.resume(["burst1"])
    ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="c5.large")
    before = alive(emulator)
    ours = start_fleet(cluster="c1")
    assert ours.instances() == []
    assert ours.suspend(["burst1"]) == []
    assert alive(emulator) == before


def test_names_of_a_large_launch_follow(emulator, fleet):
    fleet.resume([f"burst{i}" for i in range(1, 131)])
    assert fleet.tag_unnamed() == 110
    assert fleet.tag_unnamed() == 10
    assert fleet.tag_unnamed() == 0
    tags = [item["tags"] for item in emulator.instances()]
    assert sorted(tag["Name"] for tag in tags) == sorted(f"burst{i}" for i in range(1, 131))
    assert all(tag["advisor:node"] == tag["Name"] for tag in tags)


def test_a_name_that_cannot_be_set_is_no_failure(emulator, fleet):
    emulator.faults([{"service": "ec2", "action": "CreateTags", "error": {"code": "UnauthorizedOperation"}}])
    assert len(fleet.resume(["burst1", "burst2"]).launched) == 2
    assert sorted(item.node for item in fleet.instances()) == ["burst1", "burst2"]


def test_the_journal_forgets_what_has_ended(emulator, fleet, clock):
    fleet.resume(["burst1", "burst2"])
    fleet.suspend(["burst1"])
    fleet.instances()
    assert sorted(node for node, _ in fleet.journal.instances().values()) == ["burst2"]
    emulator.reset()  # EC2 no longer lists it at all
    clock.pass_by(HOUR)
    fleet.instances()
    assert fleet.journal.instances() == {}


def test_f12_an_instance_whose_node_was_asked_for_since_the_look_is_no_orphan(emulator, fleet, clock):
    """slurmctld may have given it to a job already, before anything else is done about the node."""
    fleet.resume(["burst1"])
    clock.pass_by(HOUR)
    looked, orphans = clock.steady, fleet.instances()
    clock.pass_by(1.0)
    fleet.mark_requested(["burst1"])
    assert fleet.terminate_orphans(orphans, looked) == []
    clock.pass_by(1.0)
    assert fleet.terminate_orphans(orphans, clock.steady) == [item.instance_id for item in orphans]
    assert alive(emulator) == []


@pytest.mark.parametrize("pattern", ["c?", "*", "c*"])
def test_d7_a_name_with_wildcards_owns_nothing_of_others(emulator, start_fleet, pattern):
    """EC2 reads `*` and `?` in a filter as wildcards: what it lists is compared again, letter by letter."""
    (foreign,) = start_fleet().resume(["burst1"]).launched
    other = start_fleet(cluster=pattern)
    assert other.instances() == []
    other.suspend(["burst1"])
    assert foreign.instance_id in alive(emulator)
