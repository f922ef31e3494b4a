"""What the hook asks, what it sets, and that nothing ever keeps a job from being accepted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from advisor.config.hook import hook_settings
from advisor.model.settings import PathSettings, Settings
from advisor.model.settings_service import SubmitSettings
from advisor.service.exchange import protocol
from advisor.service.exchange.protocol import AdviseRequest
from tests.hooks.answers import answer_to
from tests.hooks.slurm_double import (
    INFINITE,
    NICE_OFFSET,
    NO_VAL,
    NO_VAL64,
    PARTITIONS,
    Network,
    SlurmDouble,
)

MOVE = {
    "partition": "burst",
    "prefer": "spot",
    "admin_comment": '{"burst_advisor":1,"id":"x","n":{"predicted_wait":3.5}}',
    "message": 'Burst Advisor: starts in the cloud, 100 % "sooner"',
}


def replying(**fields: Any) -> Network:
    """A server that answers every question with these fields."""
    return Network(lambda line: answer_to(line, **fields))


def request_of(network: Network) -> AdviseRequest:
    request = protocol.decode_request(network.requests[-1])
    assert isinstance(request, AdviseRequest)
    return request


def test_moves_a_job_and_tells_its_user_once(lua: str, tmp_path: Path) -> None:
    slurm = SlurmDouble(lua, replying(**MOVE), tmp_path)
    done = slurm.submit({})
    assert done.code == 0
    assert done.changes == {name: MOVE[name] for name in ("partition", "prefer", "admin_comment")}
    assert done.messages == [MOVE["message"]]
    assert slurm.violations == []


def test_an_advice_to_stay_says_what_the_server_says(lua: str, tmp_path: Path) -> None:
    said = "done by 14:20 free"
    slurm = SlurmDouble(lua, replying(site_factor=1000, admin_comment="{}", message=said), tmp_path)
    done = slurm.submit({})
    assert done.changes == {"site_factor": 1000.0, "admin_comment": "{}"}
    assert done.messages == [said]


@pytest.mark.parametrize("factor", [3.0, -3.0])
def test_what_the_user_or_another_plugin_set_stays(lua: str, tmp_path: Path, factor: float) -> None:
    slurm = SlurmDouble(lua, replying(**MOVE, site_factor=5, nice=7), tmp_path)
    mine = {"prefer": "bigmem", "features": "x86", "site_factor": factor, "nice": NICE_OFFSET + 50}
    done = slurm.submit({**mine, "admin_comment": "mine"})
    assert done.changes == {"partition": "burst"}


def test_a_users_constraint_may_be_narrowed(lua: str, tmp_path: Path) -> None:
    slurm = SlurmDouble(lua, replying(partition="burst", features="x86&on-demand"), tmp_path)
    assert slurm.submit({"features": "x86"}).changes["features"] == "x86&on-demand"
    assert slurm.submit({}).changes["features"] == "x86&on-demand"


@pytest.mark.parametrize("own", [{"features": "x86&on"}, {"features": "a|b"}, {"prefer": "spot"}])
def test_a_job_that_cannot_be_held_to_its_capacity_is_not_moved(
    lua: str, tmp_path: Path, own: dict[str, str]
) -> None:
    """Slurm uses the user's --prefer *instead of* the constraint, and his own constraint is not replaced."""
    slurm = SlurmDouble(lua, replying(partition="burst", features="x86&on-demand", message="x"), tmp_path)
    done = slurm.submit(own)
    assert (done.code, done.changes, done.messages) == (0, {}, [])
    assert slurm.violations == []


def test_quotes_and_backslashes_arrive_as_they_were(lua: str, tmp_path: Path) -> None:
    generator = random.Random(5)
    texts = ["\\", '"', '\\"', '"\\', "ends in \\\\", 'a\\"b', "\\u0041", '{"a":"b\\\\"}', "☃\\n"]
    texts += ["".join(generator.choices('\\"/u0 n☃', k=generator.randint(1, 12))) for _ in range(200)]
    asked = iter(texts)
    slurm = SlurmDouble(lua, Network(lambda line: answer_to(line, admin_comment=next(asked))), tmp_path)
    set_to = [slurm.submit({}).changes["admin_comment"] for _ in texts]
    assert [text.encode("latin-1").decode() for text in set_to] == texts


def test_nice_is_offset_and_only_ever_lowers(lua: str, tmp_path: Path) -> None:
    assert SlurmDouble(lua, replying(nice=100), tmp_path).submit({}).changes == {"nice": NICE_OFFSET + 100}
    assert SlurmDouble(lua, replying(nice=0), tmp_path).submit({}).changes == {}
    # an answer that would raise the job's place is no valid answer
    assert SlurmDouble(lua, replying(nice=-5, partition="burst"), tmp_path).submit({}).changes == {}


def test_describes_the_job(lua: str, tmp_path: Path) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit(
        {
            "min_cpus": 65534.0, "num_tasks": 6.0, "cpus_per_task": 2.0, "min_nodes": 2.0,
            "ntasks_per_node": 3.0, "time_limit": 90.0, "requeue": 0.0, "array_inx": "1-7%2",
            "min_mem_per_cpu": 50.0, "account": "physics", "comment": "no-burst", "features": "x86&fast",
            "tres_per_node": "gres:gpu:1", "req_nodes": "onprem2", "partition": "onprem", "script": None,
            "max_nodes": 3.0, "pn_min_cpus": 6.0, "pn_min_tmp_disk": 100.0,
        }
    )  # fmt: skip
    asked = request_of(network)
    assert slurm.violations == []
    assert (asked.uid, asked.gid, asked.user, asked.name) == (1000, 1000, "alice", "wrap")
    assert (asked.min_cpus, asked.num_tasks, asked.cpus_per_task) == (65534, 6, 2)
    assert (asked.min_nodes, asked.ntasks_per_node, asked.memory_per_cpu) == (2, 3, 50)
    assert (asked.max_nodes, asked.min_cpus_per_node, asked.tmp_disk) == (3, 6, 100)
    assert (asked.time_limit, asked.requeue, asked.array) == (90, False, "1-7%2")
    assert (asked.partition, asked.default_partition) == ("onprem", None)
    assert (asked.account, asked.comment, asked.features) == ("physics", "no-burst", "x86&fast")
    assert (asked.generic_resources, asked.req_nodes, asked.interactive) == ("gres:gpu:1", "onprem2", True)


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ({"num_tasks": 3.0, "bitflags": 503_333_120.0}, 3),  # as slurmctld 22.05 shows --spread-job
        ({"num_tasks": 3.0, "bitflags": 503_332_864.0}, None),
        ({"num_tasks": 3.0, "bitflags": 503_333_120.0, "max_nodes": 2.0}, 2),
        ({"bitflags": 503_316_736.0}, None),
    ],
)
def test_a_job_that_is_spread_says_its_most_nodes(
    lua: str, tmp_path: Path, said: dict[str, float], most: int | None
) -> None:
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path)
    narrow = {**PARTITIONS, "burst": {**PARTITIONS["burst"], "max_nodes": 2.0}}
    # slurmctld never starts it where it may not have them all
    assert ("partition" in slurm.submit(said, narrow).changes) is (most != 3)
    assert request_of(network).max_nodes == most
    assert slurm.violations == []


@pytest.mark.parametrize(("shared", "whole"), [(0.0, True), (1.0, False), (2.0, False), (65534.0, False)])
def test_a_job_that_shares_its_nodes_with_none_says_so(
    lua: str, tmp_path: Path, shared: float, *, whole: bool
) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit({"shared": shared})
    assert request_of(network).whole_nodes is whole
    assert slurm.violations == []


@pytest.mark.parametrize(
    ("tres", "sent"),
    [
        ({"tres_per_task": "cpu=4"}, None),  # sbatch -c 4 of 23.11 and later
        ({"tres_per_task": "cpu:4"}, None),
        ({"tres_per_task": "cpu=4", "tres_per_job": "mem=4000"}, None),
        ({"tres_per_task": "cpu=4,gres/gpu=1"}, "not by node alone: cpu=4,gres/gpu=1"),
        ({"tres_per_task": "cpu=4", "tres_per_socket": "gres:gpu:2"}, "not by node alone: gres:gpu:2"),
        ({"tres_per_job": "gres:gpu:1", "cpus_per_tres": "gres:gpu:8"}, "not by node alone: gres:gpu:1"),
        ({"tres_per_node": "gres:gpu:1", "mem_per_tres": "gres:gpu:9000"}, "not by node alone: gres:gpu:1"),
        ({"tres_per_node": "gres:cpulike:1"}, "gres:cpulike:1"),
        ({"tres_per_task": "cpu=2", "tres_per_node": "gres/gpu=1"}, "gres/gpu=1"),
        ({"tres_per_job": "license/matlab=1"}, "license/matlab=1"),
        ({"tres_per_node": "cpu"}, "cpu"),  # not understood: doubt
        ({"tres_per_job": "gres:gpu:4", "min_nodes": 2.0}, "of all nodes: gres:gpu:4"),  # --gpus=4 -N2
        ({"tres_per_job": "gres:gpu:4", "min_nodes": 1.0}, "gres:gpu:4"),
        ({"tres_per_node": "gres:gpu:4", "min_nodes": 2.0}, "gres:gpu:4"),
        ({"ntasks_per_tres": 1.0}, "not by node alone: gpu"),  # --ntasks-per-gpu: as many GPUs as tasks
        ({"ntasks_per_tres": 4.0, "tres_per_job": "gres:gpu:2"}, "not by node alone: gres:gpu:2"),
        ({"ntasks_per_tres": 65534.0}, None),
        (
            {"tres_per_job": "gres:gpu:4", "num_tasks": 4.0, "ntasks_per_node": 1.0},
            "of all nodes: gres:gpu:4",
        ),
        ({"tres_per_job": "gres:gpu:4", "num_tasks": 4.0, "ntasks_per_node": 4.0}, "gres:gpu:4"),
        ({"ntasks_per_tres": 0.0}, None),  # so slurmrestd's clients may say that there is none
    ],
)
def test_processors_are_no_generic_resource(
    lua: str, tmp_path: Path, tres: dict[str, Any], sent: str | None
) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit({"cpus_per_task": 4.0, **tres})
    assert request_of(network).generic_resources == sent
    assert slurm.violations == []


@pytest.mark.parametrize(
    ("asked", "layout"),
    [
        ({"cores_per_socket": 2.0}, True),
        ({"sockets_per_node": 2.0, "threads_per_core": 1.0}, True),
        ({"ntasks_per_socket": 4.0}, True),
        ({"threads_per_core": 1.0}, False),  # --hint=nomultithread
        ({"threads_per_core": 65534.0, "cores_per_socket": 65535.0}, False),
    ],
)
def test_a_job_that_asks_how_its_nodes_are_built_says_so(
    lua: str, tmp_path: Path, asked: dict[str, float], *, layout: bool
) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit(asked)
    assert request_of(network).layout is layout
    assert request_of(network).whole_cores is (asked.get("threads_per_core") == 1.0)
    assert slurm.violations == []


def test_a_job_that_waits_for_more_than_its_turn_says_so(lua: str, tmp_path: Path) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit({"begin_time": 1.9e9, "priority": 0.0, "burst_buffer": "#BB create"})
    asked = request_of(network)
    assert (asked.begin_time, asked.held, asked.burst_buffer) == (1_900_000_000, True, "#BB create")
    slurm.submit({"begin_time": 0.0, "priority": 5.0})  # --begin was not said; a priority of the operator's
    asked = request_of(network)
    assert (asked.begin_time, asked.held, asked.burst_buffer) == (None, False, None)
    assert slurm.violations == []


def test_what_the_user_did_not_say_is_absent(lua: str, tmp_path: Path) -> None:
    network = replying()
    unset = {
        "time_limit": INFINITE, "min_mem_per_node": NO_VAL64, "name": "", "num_tasks": NO_VAL, "qos": None,
    }  # fmt: skip
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit(unset)
    sent = json.loads(network.requests[-1])
    assert set(sent) == {
        "v", "op", "seq", "uid", "user", "gid", "default_partition", "min_cpus",
        "configured_at",
    }  # fmt: skip
    assert request_of(network).interactive is False
    assert slurm.violations == []


def test_sends_the_limit_that_holds_when_the_user_gave_none(lua: str, tmp_path: Path) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    unset = {**PARTITIONS, "burst": {**PARTITIONS["burst"], "default_time": NO_VAL}}
    slurm.submit({"partition": "burst"}, unset)
    assert request_of(network).partition_time_limit == 1440
    limited = {**PARTITIONS, "burst": {**PARTITIONS["burst"], "default_time": 30.0}}
    slurm.submit({"partition": "burst"}, limited)
    assert request_of(network).partition_time_limit == 30
    slurm.submit({"partition": "burst", "time_limit": INFINITE}, limited)
    assert request_of(network).partition_time_limit == 1440


@pytest.mark.parametrize(
    ("here", "there", "becomes"),
    [
        ({"default_time": 120.0}, {"default_time": 30.0}, 120.0),
        ({"default_time": 20.0}, {"default_time": 30.0}, 20.0),
        ({"default_time": 30.0}, {"default_time": 30.0}, None),
        ({"default_time": NO_VAL}, {"default_time": 30.0, "max_time": INFINITE}, INFINITE),
        ({"default_time": NO_VAL}, {"default_time": NO_VAL, "max_time": INFINITE}, None),
    ],
)
def test_a_moved_job_without_a_limit_keeps_that_of_its_own_partition(
    lua: str, tmp_path: Path, here: dict[str, Any], there: dict[str, Any], becomes: float | None
) -> None:
    partitions = {
        "onprem": {**PARTITIONS["onprem"], **here}, "burst": {**PARTITIONS["burst"], **there}
    }  # fmt: skip
    slurm = SlurmDouble(lua, replying(partition="burst", time_limit=5000), tmp_path)
    assert slurm.submit({}, partitions).changes == {"partition": "burst"} | (
        {} if becomes is None else {"time_limit": becomes}
    )
    assert "time_limit" not in slurm.submit({"time_limit": INFINITE}, partitions).changes
    assert slurm.violations == []


@pytest.mark.parametrize(
    "name",
    ['say "hi"', "a\nb\r\nc\tTab", "back\\slash", "\x01\x1f\x7f", "nul-free", "x" * 10_000, "\xff\xfe latin"],
)
def test_whatever_a_user_types_is_data(lua: str, tmp_path: Path, name: str) -> None:
    network = replying(partition="burst", message="moved")
    slurm = SlurmDouble(lua, network, tmp_path)
    done = slurm.submit({"name": name})
    assert done.changes == {"partition": "burst"}
    assert network.requests[-1].count(b"\n") == 1
    expected = name[:256].encode("latin-1").decode("utf-8", "replace")
    assert request_of(network).name == expected


def test_a_comment_too_long_to_be_judged_leaves_the_job_alone(lua: str, tmp_path: Path) -> None:
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path)
    assert slurm.submit({"comment": "x" * 20_000 + " no-burst"}).changes == {}
    assert network.requests == []
    # a preference is sent whole as well: the end of it may be what no cloud node has
    prefer = "spot&" * 100 + "rack1"
    slurm.submit({"prefer": prefer})
    assert request_of(network).prefer == prefer
    # escaping makes it longer than the server reads
    assert slurm.submit({"comment": "\x01" * 16_000}).changes == {}
    assert slurm.submit({"comment": "x" * 16_000}).changes != {}


def test_heterogeneous_jobs_are_not_touched(lua: str, tmp_path: Path) -> None:
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path)
    for offset in (0.0, 1.0):
        assert slurm.submit({"het_job_offset": offset}).changes == {}
    assert network.requests == []


def test_scrontab_jobs_are_not_touched(lua: str, tmp_path: Path) -> None:
    network = replying(**MOVE)
    assert SlurmDouble(lua, network, tmp_path).submit({"cron_job": True}).changes == {}
    assert network.requests == []


def test_a_modification_is_accepted_as_it_is(lua: str, tmp_path: Path) -> None:
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path)
    assert slurm.modify({"partition": "onprem", "admin_comment": "x"}) == (0, 0)
    assert network.requests == []


@pytest.mark.parametrize(
    ("job", "partition"),
    [
        ({}, {"state_up": 1.0}),  # takes submissions, starts nothing
        ({}, {"state_up": 0.0}),
        ({"time_limit": 2000.0}, {}),  # over MaxTime: rejected or pending for ever
        ({"min_nodes": 4.0}, {}),
        ({"min_nodes": 3.0}, {"total_nodes": 2.0, "max_nodes": INFINITE}),
        ({"min_cpus": 13.0}, {}),
    ],
)
def test_a_job_that_would_not_start_there_is_not_moved(
    lua: str, tmp_path: Path, job: dict[str, float], partition: dict[str, float]
) -> None:
    slurm = SlurmDouble(lua, replying(**MOVE), tmp_path)
    partitions = {**PARTITIONS, "burst": {**PARTITIONS["burst"], **partition}}
    assert slurm.submit(job, partitions).changes == {}
    assert slurm.submit({}, PARTITIONS).changes["partition"] == "burst"


@pytest.mark.parametrize(
    ("job", "is_moved"),
    [
        ({"time_limit": 31.0}, False),
        ({"time_limit": INFINITE}, False),
        ({"time_limit": 31.0, "partition": "short"}, False),
        ({"time_limit": 31.0, "partition": "short,long"}, True),
        (
            {"time_limit": 31.0, "partition": "short,gone"},
            True,
        ),  # not known here: slurmctld says what is wrong
        ({"time_limit": 31.0, "qos": "long"}, True),  # it may have the flag PartitionTimeLimit
        ({"time_limit": 31.0, "default_qos": "normal"}, False),
        ({"time_limit": 30.0}, True),
        ({}, True),
    ],
)
def test_a_job_that_is_too_long_for_its_own_partition_is_not_moved(
    lua: str, tmp_path: Path, job: dict[str, Any], *, is_moved: bool
) -> None:
    """sbatch refuses it, or it waits for ever: with the move it could never come home."""
    slurm = SlurmDouble(lua, replying(**MOVE), tmp_path)
    own = {**PARTITIONS["onprem"], "max_time": 30.0, "default_time": NO_VAL}
    others = {"long": PARTITIONS["onprem"] | {"flag_default": 0.0}, "short": own | {"flag_default": 0.0}}
    partitions = {
        **PARTITIONS,
        **others,
        "onprem": own,
        "burst": PARTITIONS["burst"] | {"max_time": INFINITE},
    }
    assert ("partition" in slurm.submit(job, partitions).changes) is is_moved
    assert slurm.violations == []


@pytest.mark.parametrize(
    ("job", "partition", "is_moved"),
    [
        ({"account": "physics"}, {"allow_accounts": "chemistry,physics"}, True),
        ({"account": "Physics"}, {"allow_accounts": "physics"}, True),  # Slurm compares so
        ({"default_account": "physics"}, {"allow_accounts": "physics"}, True),
        ({"account": "physics"}, {"allow_accounts": "ALL"}, True),
        ({"account": "phys"}, {"allow_accounts": "physics"}, False),
        ({"account": "physics"}, {"deny_accounts": "a,physics"}, False),
        ({"account": "chemistry"}, {"deny_accounts": "physics"}, True),
        ({}, {"allow_accounts": "physics"}, False),  # not known: left alone
        ({}, {"deny_accounts": "physics"}, False),
        ({"qos": "normal"}, {"allow_qos": "normal,long"}, True),
        ({"qos": "short", "default_qos": "normal"}, {"allow_qos": "normal"}, False),
        ({"default_qos": "normal"}, {"deny_qos": "normal"}, False),
        ({}, {"deny_qos": "normal"}, False),
    ],
)
def test_a_partition_that_does_not_take_the_account_or_qos_is_not_set(
    lua: str, tmp_path: Path, *, job: dict[str, str], partition: dict[str, str], is_moved: bool
) -> None:
    slurm = SlurmDouble(lua, replying(**MOVE), tmp_path)
    done = slurm.submit(job, {**PARTITIONS, "burst": {**PARTITIONS["burst"], **partition}})
    assert ("partition" in done.changes) is is_moved
    assert is_moved or done.changes == {}
    assert slurm.violations == []


def test_a_moved_job_keeps_its_users_limit_until_it_runs(lua: str, tmp_path: Path) -> None:
    slurm = SlurmDouble(lua, replying(**MOVE, time_limit=66), tmp_path)
    done = slurm.submit({"time_limit": 60.0}, PARTITIONS)
    assert done.changes["partition"] == "burst"
    assert "time_limit" not in done.changes


def test_a_partition_the_user_may_not_use_is_not_set(lua: str, tmp_path: Path) -> None:
    slurm = SlurmDouble(lua, replying(**MOVE), tmp_path)
    done = slurm.submit({}, {"onprem": PARTITIONS["onprem"]})
    assert done.changes == {}
    assert done.messages == []


def test_reports_its_own_failures_with_the_next_question(lua: str, tmp_path: Path) -> None:
    network = replying()
    slurm = SlurmDouble(lua, network, tmp_path)
    network.refuse = "connection refused"
    for _ in range(7):
        slurm.submit({})
    network.refuse = None
    network.now += 60
    slurm.submit({})  # leaves a question
    slurm.submit({})
    asked = request_of(network)
    assert (asked.hook_failed, asked.hook_skipped, asked.dry) == (2, 6, False)
    slurm.submit({})
    assert request_of(network).hook_failed == 0


def test_settings_file(lua: str, tmp_path: Path) -> None:
    conf = "# hook\n socket = /run/x y.sock \nbudget_ms=20\nbreaker_failures = 1\nbreaker_seconds=x\nwhat=1\n"
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path, conf)
    assert any("/run/x y.sock, 20 ms" in line for line in slurm.logs)
    assert any("breaker_seconds must be" in line for line in slurm.logs)
    network.silent = True
    assert slurm.submit({}).seconds == pytest.approx(0.02)
    slurm.submit({})
    assert len(network.requests) == 1  # one failure opened the breaker


@pytest.mark.parametrize("said", ["false", "False", "off", "no   # until the fault is found", "0"])
def test_switched_off(lua: str, tmp_path: Path, said: str) -> None:
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path, f"enabled = {said}\n")
    assert slurm.submit({}).changes == {}
    assert network.connects == 0


def test_without_lua_socket_jobs_are_accepted(lua: str, tmp_path: Path) -> None:
    slurm = SlurmDouble(lua, replying(), tmp_path, with_socket=False)
    assert slurm.loaded_code == 0
    assert slurm.submit({}).code == 0
    assert any("lua-socket is missing" in line for line in slurm.logs)


def test_the_hook_reads_what_the_settings_say(lua: str, tmp_path: Path) -> None:
    settings = Settings(
        submit=SubmitSettings(budget_seconds=0.02, breaker_failures=1, breaker_seconds=30.5),
        paths=PathSettings(run=tmp_path),
    )
    network = replying(**MOVE)
    slurm = SlurmDouble(lua, network, tmp_path, hook_settings(settings))
    assert slurm.logs == [f"advisor hook: loaded, socket {tmp_path}/submit.sock, 20 ms"]
    network.silent = True
    assert slurm.submit({}).seconds == pytest.approx(0.02)
    for later, asked in ((29.0, 1), (31.0, 2)):  # one failure has opened the breaker, for 30.5 s
        network.now = 1.8e9 + later
        slurm.submit({})
        assert len(network.requests) == asked
