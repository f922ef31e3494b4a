"""`advisor bench` and `python -m benchmarks`: in the source tree, and where only the package is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import advisor
import benchmarks
from benchmarks import __main__ as program
from benchmarks.commands import bench

NAMES = {command.name for command in bench.registered_commands}


def without_the_source_tree(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `advisor` where the package and its dependencies are, but not the folder it lies in."""
    (folder / "advisor").symlink_to(Path(advisor.__file__).parent)
    path = os.pathsep.join((str(folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    return subprocess.run(
        (sys.executable, "-S", "-c", "from advisor.cli.main import run; run()", *arguments),
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [("knn", "--queries", "100", "--format", "json"), ()])
def test_where_only_the_package_is_installed_the_command_says_so(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = without_the_source_tree(tmp_path, "bench", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: advisor bench: the benchmarks are in the source tree")
    assert "make setup" in done.stderr


def test_the_source_tree_has_the_contract_s_measurements() -> None:
    assert {"submit", "knn", "simulate", "retrain", "tune"} <= NAMES
    modules = {path.stem for path in Path(benchmarks.__file__).parent.glob("*.py")}
    assert modules >= NAMES


def test_a_result_is_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "_RESULTS", tmp_path / "results")
    arguments = ["simulate", "--trace", "synthetic:300:1", "--peer-jobs", "50"]
    assert program.main(arguments) == 0
    kept = json.loads((tmp_path / "results" / "simulate.json").read_text())
    assert kept["jobs"] == 300
    assert kept["peer"]["jobs"] == 50
    head, printed = capsys.readouterr().out.splitlines()
    assert head == "== simulate"
    assert json.loads(printed) == kept


def test_one_that_fails_is_named_and_no_result_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "_RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "simulate.json").write_text("{}")  # of an earlier run
    assert program.main(["simulate", "--trace", str(tmp_path / "none.swf")]) == 1
    assert "failed: simulate" in capsys.readouterr().err
    assert not list((tmp_path / "results").iterdir())


@pytest.mark.parametrize(
    ("codes", "ended"),
    [({"knn": 0, "slurm_api": 2}, 0), ({"knn": 1, "slurm_api": 2}, 1), ({"knn": 2, "slurm_api": 2}, 1)],
)
def test_of_all_those_that_lack_something_here_are_left_out_and_no_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    codes: dict[str, int],
    ended: int,
) -> None:
    monkeypatch.setattr(program, "_RESULTS", tmp_path)
    monkeypatch.setattr(program, "_all_names", lambda: list(codes))
    monkeypatch.setattr(program, "_run", lambda name, _options: codes[name])
    assert program.main([]) == ended
    assert "left out: " in capsys.readouterr().err
    assert program.main(["slurm_api"]) == 1  # asked for
