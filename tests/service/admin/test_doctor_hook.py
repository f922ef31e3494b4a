"""What the doctor says of the hook: alone, in a site's own script, missing, old."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from advisor.model.settings import Settings
from advisor.service.admin.doctor import Level
from advisor.service.admin.doctor_hook import hook, module_loaded_by
from advisor.slurm import hook_files

OWN = "function slurm_job_submit() return slurm.SUCCESS end\n"
LOADS = 'local loaded, advisor = pcall(dofile, "{}/advisor_submit.lua")\n'


def install(folder: Path, *names: str) -> None:
    for name in names:
        shutil.copy(hook_files.folder() / name, folder / name)
        os.utime(folder / name, (1e9, 1e9))


def word(folder: Path) -> tuple[Level, str]:
    found = [each for each in hook(folder, Settings()) if each.what.startswith(str(folder))]
    assert len(found) == 1
    return found[0].level, found[0].what


def test_day_one_1_ours_alone(tmp_path: Path) -> None:
    assert word(tmp_path) == (Level.ERROR, f"{tmp_path}/job_submit.lua cannot be read")
    install(tmp_path, "job_submit.lua")
    assert word(tmp_path)[0] is Level.ERROR
    install(tmp_path, "advisor_submit.lua")
    assert word(tmp_path) == (Level.OK, f"{tmp_path}/job_submit.lua is this release's")


@pytest.mark.parametrize("where", ["{}", "."])
def test_day_one_1_the_sites_own_that_loads_ours(tmp_path: Path, where: str) -> None:
    script = tmp_path / "job_submit.lua"
    script.write_text(OWN + LOADS.format(where.format(tmp_path)))
    assert word(tmp_path)[0] is Level.ERROR, "the module is missing"
    install(tmp_path, "advisor_submit.lua")
    level, what = word(tmp_path)
    assert (level, "loads this release's advisor_submit.lua" in what) == (Level.OK, True)
    os.utime(script, (9e8, 9e8))
    assert word(tmp_path)[0] is Level.WARNING, "slurmctld looks at the script's time only"
    (tmp_path / "advisor_submit.lua").write_text("return {}")
    assert "not this release's version" in word(tmp_path)[1]


def test_day_one_1_the_sites_own_without_ours(tmp_path: Path) -> None:
    install(tmp_path, "advisor_submit.lua")
    script = tmp_path / "job_submit.lua"
    for text in (OWN, OWN + "-- " + LOADS.format(tmp_path), OWN + "--[[\n" + LOADS.format(tmp_path) + "]]\n"):
        script.write_text(text)
        level, what = word(tmp_path)
        assert (level, "no job gets advice" in what) == (Level.ERROR, True)
    (tmp_path / "advisor_submit.lua").unlink()
    script.write_text("--[[\nBurst Advisor's job_submit hook: asks\n--]]\n" + OWN)
    assert word(tmp_path) == (Level.WARNING, f"{script} is not this release's version")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('local a = dofile("/x/advisor_submit.lua")', "/x/advisor_submit.lua"),
        ("local a = require 'advisor_submit'", "advisor_submit.lua"),
        ('require("other")', None),
    ],
)
def test_day_one_1_how_it_is_loaded(line: str, found: str | None) -> None:
    assert module_loaded_by(OWN + line) == found
