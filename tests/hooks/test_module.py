"""First-day finding 1: the hook as a module, in each Lua: no global, users' words kept apart, fail open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.answers import answer_to
from tests.hooks.slurm_double import PARTITIONS, Network, SlurmDouble

OWN = """
function slurm_job_submit(job, partitions, uid)
  if job.name == "refused" then return -1 end
  if job.partition == nil then job.partition = "onprem" end
  return 0
end
function slurm_job_modify() return 7 end
"""
LOADED = """
local before = {}
for name in pairs(_G) do before[name] = true end
local advisor = dofile("FOLDER/advisor_submit.lua")
for name in pairs(_G) do if not before[name] then error("a global: " .. name) end end
"""


def site(lua: str, folder: Path, lines: str, own: str = OWN) -> tuple[SlurmDouble, Network]:
    network = Network(lambda line: answer_to(line, admin_comment="{}"))
    script = own + LOADED.replace("FOLDER", str(folder)) + lines + "\nreturn 0\n"
    return SlurmDouble(lua, network, folder, script=script), network


def asked(network: Network) -> dict[str, Any]:
    return dict(json.loads(network.requests[-1]))


AROUND = "slurm_job_submit = advisor.around(slurm_job_submit)"
BY_HAND = """
local own = slurm_job_submit
function slurm_job_submit(job, partitions, uid)
  advisor.before(job)
  local code = own(job, partitions, uid)
  if code ~= 0 then return code end
  return advisor.submit(job, partitions, uid)
end
"""


@pytest.mark.parametrize("lines", [AROUND, BY_HAND], ids=["around", "by hand"])
def test_day_one_1_a_partition_of_the_sites_rules_is_not_the_users_word(
    lua: str, tmp_path: Path, lines: str
) -> None:
    slurm, network = site(lua, tmp_path, lines)
    assert slurm.submit({}).changes == {"partition": "onprem", "admin_comment": "{}"}
    assert "partition" not in asked(network)
    assert asked(network)["default_partition"] == "onprem"
    slurm.submit({"partition": "onprem"})
    assert asked(network)["partition"] == "onprem"
    assert slurm.violations == []


def test_a_job_that_is_routed_to_several_partitions_has_the_limit_of_the_first(
    lua: str, tmp_path: Path
) -> None:
    own = "function slurm_job_submit(job) job.partition = 'short,long' return 0 end"
    slurm, network = site(lua, tmp_path, AROUND, own)
    network.answer = lambda line: answer_to(line, partition="burst")
    here = PARTITIONS["onprem"]  # the default, where the job cannot go
    own_limits = {"short": {**here, "default_time": 240.0}, "long": {**here, "default_time": 900.0}}
    done = slurm.submit({}, {**PARTITIONS, **own_limits})
    assert asked(network)["partition_time_limit"] == 240
    assert done.changes["time_limit"] == 240.0
    assert slurm.violations == []


def test_day_one_1_what_the_site_refuses_is_refused_and_nobody_is_asked(lua: str, tmp_path: Path) -> None:
    slurm, network = site(lua, tmp_path, AROUND)
    assert slurm.submit({"name": "refused", "partition": "x"}).code == -1
    assert network.requests == []
    assert slurm.modify({}) == (7, 0)
    # the words of a refused job are not the next one's
    slurm.submit({})
    assert "partition" not in asked(network)


@pytest.mark.parametrize("returned", ["", "return", "return nil", 'return "0"', "return true"])
def test_day_one_1_a_site_that_returns_no_code_has_accepted_the_job(
    lua: str, tmp_path: Path, returned: str
) -> None:
    own = f"function slurm_job_submit(job) job.partition = 'onprem' {returned} end"
    slurm, _ = site(lua, tmp_path, AROUND, own)
    assert slurm.submit({}).changes == {"partition": "onprem", "admin_comment": "{}"}


def test_day_one_1_without_before_all_words_are_the_users(lua: str, tmp_path: Path) -> None:
    slurm, network = site(lua, tmp_path, "slurm_job_submit = advisor.submit")
    slurm.submit({"partition": "onprem"})
    assert asked(network)["partition"] == "onprem"


def test_day_one_1_nothing_to_go_around_is_ours_alone(lua: str, tmp_path: Path) -> None:
    own = "function slurm_job_modify() return 0 end"
    slurm, _ = site(lua, tmp_path, "slurm_job_submit = advisor.around(nil)", own)
    assert slurm.submit({}).changes == {"admin_comment": "{}"}


def test_day_one_1_a_missing_or_broken_module_accepts_jobs(lua: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "slurm_hooks" / "job_submit.lua").read_text()
    for number, path in enumerate(("/nowhere/", f"{tmp_path}/broken_")):
        (tmp_path / "broken_advisor_submit.lua").write_text("return {")
        folder = tmp_path / str(number)
        folder.mkdir()
        slurm = SlurmDouble(
            lua, Network(lambda _line: b""), folder, script=text.replace("own_directory() ..", f'"{path}" ..')
        )
        assert slurm.loaded_code == 0
        done = slurm.submit({})
        assert (done.code, done.changes) == (0, {})
        assert any("jobs are accepted as submitted" in line for line in slurm.logs)
