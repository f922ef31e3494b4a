"""The advisor is down, slow, or answers nonsense (docs/faults.md, F30): jobs go in as submitted, in time."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.service.exchange import protocol
from tests.hooks.answers import answer_to, framed, seq_of
from tests.hooks.slurm_double import LUA_VERSIONS, PARTITIONS, PLAIN_JOB, Network, SlurmDouble

BUDGET_SECONDS = 0.05
GOOD = {
    "partition": "burst", "prefer": "spot", "site_factor": 10,
    "nice": 5, "admin_comment": "{}", "message": "moved", "features": "spot",
}  # fmt: skip
SET_BY_GOOD = {"partition", "prefer", "site_factor", "nice", "admin_comment", "features"}


def good_line(line: bytes, **changed: Any) -> bytes:
    return answer_to(line, **{**GOOD, **changed})


def unharmed(slurm: SlurmDouble) -> None:
    done = slurm.submit({})
    assert done.code == 0
    assert done.changes == {}
    assert done.messages == []
    assert done.seconds <= BUDGET_SECONDS + 1e-9
    assert slurm.violations == []


BAD_ANSWERS = {
    "hangs up at once": lambda _line: [(0.0, b"")],
    "half a line, then silence": lambda line: good_line(line)[:20],
    "half a line, then hangs up": lambda line: [(0.0, good_line(line)[:20]), (0.001, b"")],
    "no answer": lambda _line: b"<html>502</html>\n",
    "JSON": lambda line: b'{"v":1,"seq":%d,"ok":true,"partition":"burst"}\n' % seq_of(line),
    "an empty line": lambda _line: b"\n",
    "an empty line in a frame": lambda _line: framed(b"\n"),
    "no frame": lambda line: good_line(line)[6:],
    "two lines": lambda line: framed(good_line(line)[6:] * 2),
    "1 MB": lambda _line: b"x" * 1_000_000 + b"\n",
    "1 MB of a good answer": lambda line: b"=99999" + good_line(line, message="x" * 1_000_000)[6:],
    "drips a byte every 10 ms": lambda line: [(0.01, bytes([byte])) for byte in good_line(line)],
    "drips fast without end": lambda _line: [(0.0001, b"x")] * 100_000,
    "another job's": lambda line: good_line(line, seq=seq_of(line) + 1),
    "another version": lambda line: good_line(line, v=2),
    "no version": lambda line: good_line(line, v=""),
    "a field too few": lambda line: framed(good_line(line)[6:].replace(b"\t", b"", 1)),
    "trailing text": lambda line: framed(good_line(line)[6:-1] + b"\n" + b"x"),
    "a raw control character": lambda line: good_line(line, message="\x01"),
    "latin-1": lambda _line: b"\xff\xfe\n",
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_bad_answers_change_nothing(lua: str, tmp_path: Path, kind: str) -> None:
    network = Network(BAD_ANSWERS[kind])
    slurm = SlurmDouble(lua, network, tmp_path)
    for _ in range(5):
        unharmed(slurm)
    asked = len(network.requests)
    unharmed(slurm)
    assert len(network.requests) == asked, "the breaker is open"
    network.now += 10.01
    network.answer = good_line
    unharmed(slurm)  # leaves a question that it does not wait for
    assert set(slurm.submit({}).changes) == SET_BY_GOOD, "and closes when all is well again"


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition": "burst; rm"}, {"partition": "b" * 300}, {"prefer": "spot\nx"}, {"prefer": "a b"},
        {"site_factor": 1.5}, {"site_factor": "ten"}, {"site_factor": 3_000_000_000}, {"nice": -1},
        {"nice": 2.5}, {"admin_comment": "x" * 5000}, {"admin_comment": "a\u0007"}, {"message": "m" * 600},
        {"message": "two\nlines"}, {"features": "a;b"}, {"error": "server.busy"},
        {"v": "x"},
    ],
)  # fmt: skip
def test_one_wrong_field_spoils_the_whole_answer(lua: str, tmp_path: Path, wrong: dict[str, Any]) -> None:
    slurm = SlurmDouble(lua, Network(lambda line: good_line(line, **wrong)), tmp_path)
    unharmed(slurm)


def test_a_field_that_cannot_be_set_is_the_jobs_own_trouble(lua: str, tmp_path: Path) -> None:
    """A user's own long constraint comes back in a field: it must not open the breaker for others."""
    network = Network(lambda line: good_line(line, prefer="x" * 600))
    slurm = SlurmDouble(lua, network, tmp_path)
    for _ in range(20):
        unharmed(slurm)
    assert len(network.requests) == 20
    network.answer = good_line
    assert set(slurm.submit({}).changes) == SET_BY_GOOD


def test_a_refusal_is_no_failure(lua: str, tmp_path: Path) -> None:
    def refuse(line: bytes) -> bytes:
        return protocol.refusal("server.failed", seq_of(line))

    network = Network(refuse)
    slurm = SlurmDouble(lua, network, tmp_path)
    for _ in range(20):
        unharmed(slurm)
    assert len(network.requests) == 20, "it costs nothing to ask a server that answers at once"
    assert network.connects == 1


def test_d6_silence_costs_all_submissions_together_two_budgets_and_then_nothing(
    lua: str, tmp_path: Path
) -> None:
    """With the default settings. slurmctld runs one hook at a time: waits of who submits at once add up."""
    network = Network(good_line)
    network.silent = True
    slurm = SlurmDouble(lua, network, tmp_path)
    spent = [slurm.submit({}).seconds for _ in range(50)]
    assert spent[:2] == pytest.approx([BUDGET_SECONDS] * 2)
    assert spent[2:] == [0.0] * 48
    for _ in range(20):
        network.now += 10.01
        assert slurm.submit({}).seconds == 0.0, "nobody waits for a probe"
    assert network.open == 1, "the probe's, of which there is one at a time"
    assert len(network.requests) == 3
    assert json.loads(network.requests[-1])["dry"] is True


def test_a_probes_answer_closes_the_breaker_and_is_no_jobs_advice(lua: str, tmp_path: Path) -> None:
    network = Network(lambda line: [(20.0, good_line(line))])
    slurm = SlurmDouble(lua, network, tmp_path)
    unharmed(slurm)
    unharmed(slurm)
    network.now += 10.01
    unharmed(slurm)  # leaves a question
    network.now += 15.0
    unharmed(slurm)  # not answered yet
    network.now += 10.0
    network.answer = lambda line: good_line(line, partition="onprem")
    assert slurm.submit({}).changes["partition"] == "onprem", "asked by itself, on another connection"
    assert network.open == 1


def test_a_server_that_answers_probes_only_costs_one_budget_a_probe(lua: str, tmp_path: Path) -> None:
    def late(line: bytes) -> Any:
        return good_line(line) if json.loads(line).get("dry") else [(0.06, good_line(line))]

    slurm = SlurmDouble(lua, Network(late), tmp_path)
    unharmed(slurm)
    unharmed(slurm)
    for _ in range(3):
        slurm.network.now += 10.01
        assert slurm.submit({}).seconds == 0.0  # leaves a question
        assert slurm.submit({}).seconds == pytest.approx(BUDGET_SECONDS)
        assert [slurm.submit({}).seconds for _ in range(5)] == [0.0] * 5


def test_an_answer_that_comes_late_is_never_taken_for_the_next(lua: str, tmp_path: Path) -> None:
    network = Network(lambda line: [(0.06, good_line(line))])
    slurm = SlurmDouble(lua, network, tmp_path)
    unharmed(slurm)
    network.answer = lambda line: good_line(line, partition="onprem")
    assert slurm.submit({}).changes["partition"] == "onprem"


def test_a_kept_connection_the_server_closed_is_opened_again_once(lua: str, tmp_path: Path) -> None:
    network = Network(good_line)
    slurm = SlurmDouble(lua, network, tmp_path)
    slurm.submit({})
    slurm.submit({})
    assert network.connects == 1
    slurm.connections[-1].closed_by_peer = True  # the server was restarted
    assert set(slurm.submit({}).changes) == SET_BY_GOOD
    assert network.connects == 2


def test_d11_features_stand_beside_a_partition_that_was_looked_at(lua: str, tmp_path: Path) -> None:
    """The hook cannot see what nodes have: slurmctld rejects a job whose features nobody has."""
    for beside in ({"features": "nosuch"}, {"prefer": "nosuch"}, {"features": "x", "prefer": "y"}):
        slurm = SlurmDouble(lua, Network(lambda line, told=beside: answer_to(line, **told)), tmp_path)
        assert slurm.submit({}).changes == {}
        assert slurm.submit({"partition": "burst"}).changes == {}
        assert any("features and no partition" in line for line in slurm.logs)


@pytest.mark.parametrize("names", [",", ",burst", "burst,", "burst,,onprem", ",,"])
def test_d11_a_list_with_an_empty_name_is_not_set(lua: str, tmp_path: Path, names: str) -> None:
    slurm = SlurmDouble(lua, Network(lambda line: answer_to(line, partition=names)), tmp_path)
    unharmed(slurm)
    slurm.network.answer = lambda line: answer_to(line, partition="burst,onprem")
    assert slurm.submit({}).changes == {"partition": "burst,onprem"}


@pytest.mark.parametrize(
    ("job", "partition"),
    [
        ({"time_limit": 4294967295.0}, {"max_time": 1440.0}),  # --time=UNLIMITED
        ({"max_nodes": 1.0, "min_nodes": 1.0}, {"min_nodes": 2.0}),
        ({"min_mem_per_node": 5000.0}, {"max_mem_per_node": 4000.0}),
        ({"min_mem_per_cpu": 5000.0}, {"max_mem_per_cpu": 4000.0}),
        ({"alloc_node": "login2"}, {"allow_alloc_nodes": "login1,login3"}),
        ({"time_limit": 4294967294.0}, {"max_time": 30.0}),  # 60 minutes here, as none is given
        ({"exc_nodes": "n[1-3],cloud-b[07-09]"}, {"nodes": "cloud-a[1-9],cloud-b1"}),
        ({"exc_nodes": "gpu1"}, {"nodes": "gpu[1-9]"}),
        ({"exc_nodes": "r1-n3"}, {"nodes": "r[1-2]-n[1-9]"}),
        ({"min_nodes": 2.0, "max_nodes": 4.0}, {"max_nodes": 3.0}),
        ({"reboot": 1.0}, {}),
    ],
)
def test_d2_a_job_over_another_limit_of_the_partition_stays(
    lua: str, tmp_path: Path, job: dict[str, Any], partition: dict[str, Any]
) -> None:
    slurm = SlurmDouble(lua, Network(lambda line: answer_to(line, partition="burst")), tmp_path)
    partitions = {**PARTITIONS, "burst": {**PARTITIONS["burst"], **partition}}
    assert slurm.submit(job, partitions).changes == {}
    within = {
        "max_nodes": 2.0, "alloc_node": "login1", "min_mem_per_node": 3000.0, "time_limit": 20.0,
        "exc_nodes": "n[1-3],cloud-c1", "reboot": 65534.0,
    }  # fmt: skip
    assert slurm.submit(within, partitions).changes != {}
    assert slurm.violations == []


def test_d2_the_server_is_told_since_when_slurmctld_is_configured_as_it_is(lua: str, tmp_path: Path) -> None:
    network = Network(good_line)
    slurm = SlurmDouble(lua, network, tmp_path)

    def told() -> int:
        slurm.submit({})
        return int(json.loads(network.requests[-1])["configured_at"])

    loaded = told()
    assert network.now < loaded <= network.now + 1
    network.now += 100.5
    assert told() == loaded
    slurm.generation += 1  # scontrol reconfigure: slurmctld has made its records anew
    assert network.now < told() <= network.now + 1
    again = told()
    network.now -= 1000.0  # a clock that is set back
    assert told() <= network.now + 1 < again


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_neither_stalls_nor_locks_the_hook_out(
    lua: str, tmp_path: Path, step: float
) -> None:
    network = Network(good_line)
    network.silent = True
    slurm = SlurmDouble(lua, network, tmp_path)
    for _ in range(6):
        slurm.submit({})
    network.silent = False
    network.now += step
    unharmed(slurm)
    assert set(slurm.submit({}).changes) == SET_BY_GOOD


def test_the_clock_is_set_back_in_the_middle_of_a_question(lua: str, tmp_path: Path) -> None:
    network = Network(good_line)

    def set_back(line: bytes) -> list[tuple[float, bytes]]:
        network.now -= 3600
        return [(10.0, good_line(line))]

    network.answer = set_back
    slurm = SlurmDouble(lua, network, tmp_path)
    before = network.now
    slurm.submit({})
    assert network.now - before + 3600 <= 2 * BUDGET_SECONDS


lua_versions = st.sampled_from(LUA_VERSIONS)


@given(
    lua=lua_versions, raw=st.binary(max_size=300), end=st.sampled_from([b"", b"\n"]), in_frame=st.booleans()
)
def test_any_bytes_are_survived(lua: str, raw: bytes, end: bytes, *, in_frame: bool) -> None:
    said = framed(raw + end) if in_frame else raw + end
    with tempfile.TemporaryDirectory() as folder:
        slurm = SlurmDouble(lua, Network(lambda _line: said), Path(folder))
        unharmed(slurm)


# a tab would end the field and a line end the answer: the server refuses to say such a text
values = st.integers() | st.floats() | st.text(st.characters(exclude_characters="\t\n"), max_size=30)


@given(
    lua=lua_versions,
    fields=st.dictionaries(st.sampled_from([*GOOD, "v", "seq", "error"]), values, min_size=1, max_size=4),
)
def test_any_fields_are_judged_as_a_whole(lua: str, fields: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slurm = SlurmDouble(lua, Network(lambda line: good_line(line, **fields)), Path(folder))
        done = slurm.submit({})
        assert done.code == 0
        assert slurm.violations == []
        if done.changes:  # then it was valid: no refusal, and numbers where numbers belong
            assert int(fields.get("v", 1)) == 1
            assert str(fields.get("error", "")) == ""
            for name, value in done.changes.items():
                sent = str(fields.get(name, GOOD.get(name)))
                if name in ("site_factor", "nice"):
                    assert value == float(sent) + (2147483648 if name == "nice" else 0)
                else:
                    assert value.encode("latin-1") == sent.encode()


lua_text = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=400)
lua_number = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from(
    [4294967294.0, 4294967295.0, 65534.0, 65535.0, 18446744073709551614.0, 0.0, -1.0]
)
jobs = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("name", "comment", "features", "array_inx", "account", "partition"), lua_text),
        **{name: lua_number for name in PLAIN_JOB if isinstance(PLAIN_JOB[name], float)},
        "min_mem_per_cpu": lua_number,
    },
)


@given(lua=lua_versions, job=jobs)
def test_any_job_makes_a_question_the_server_can_read(lua: str, job: dict[str, Any]) -> None:
    network = Network(good_line)
    with tempfile.TemporaryDirectory() as folder:
        slurm = SlurmDouble(lua, network, Path(folder))
        assert slurm.submit(job).code == 0
    assert slurm.violations == []
    for line in network.requests:
        assert len(line) <= 65536
        request = protocol.decode_request(line)
        assert isinstance(request, protocol.AdviseRequest)
        if job.get("name"):
            expected = job["name"][:256].encode("latin-1").decode("utf-8", "replace")
            assert request.name == expected
