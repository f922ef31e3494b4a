"""#SBATCH lines and options, read as sbatch reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.slurm.batch_script import (
    memory_mib,
    merged,
    node_range,
    read_environment,
    read_options,
    read_script,
    time_limit_minutes,
)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("1:30", 2),  # minutes:seconds, rounded up
        ("2:00:00", 120),
        ("1-0", 1440),
        ("1-12", 2160),
        ("1-12:30", 2190),
        ("0-00:00:30", 1),
        ("UNLIMITED", None),
        ("0", None),
        ("-1", None),
    ],
)
def test_time_limits(text, minutes):
    assert time_limit_minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "x", "1:2:3:4", "1-2:3:4:5", "-", "1-", "-5", "1:-3", "²", "9" * 20])
def test_wrong_time_limits(text):
    with pytest.raises(ValueError):  # noqa: PT011 - any message: the option's name is told where it is read
        time_limit_minutes(text)


@given(st.text(max_size=20))
def test_any_text_is_a_time_limit_or_wrong(text):
    try:
        found = time_limit_minutes(text)
    except ValueError:
        return
    assert found is None or found > 0


@pytest.mark.parametrize(
    ("text", "mib"), [("4G", 4096), ("512", 512), ("2000M", 2000), ("100k", 1), ("1T", 2**20)]
)
def test_memory(text, mib):
    assert memory_mib(text) == mib


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("ARRAY_INX", "1-9", {"array": "1-9"}),
        ("MEM_PER_NODE", "4G", {"memory_per_node": 4096}),
        ("EXCLUSIVE", "exclusive", {"whole_nodes": True}),
        ("EXCLUSIVE", "user", {}),
        ("JOB_NAME", "a b", {"name": "a b"}),
        ("GPUS_PER_NODE", "2", {"generic_resources": "gpu:2"}),
        ("REQUEUE", "1", {"requeue": True}),
        ("CORE_SPEC", "1", {}),
    ],
)
def test_variables_of_sbatch(name, value, field):
    assert read_environment({f"SBATCH_{name}": value, "PATH": "/bin"}).fields == field


@pytest.mark.parametrize("text", ["4X", "-1", "4\u212a"])
def test_no_memory(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        memory_mib(text)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("2", (2, 2)),
        ("2-4", (2, 4)),
        ("1k", (1024, 1024)),
        ("1-2k", (1, 2048)),
        ("1-15:4", (1, 13)),  # from 23.02 on
        ("8,2,4-6", (2, 8)),
        ("1m", (2**20, 2**20)),
    ],
)
def test_nodes(text, nodes):
    assert node_range(text) == nodes


SCRIPT = """#!/bin/bash
# a comment
#SBATCH --time=2:00:00 --ntasks 16
#SBATCH -N2 -p onprem
#SBATCH --comment="see #4, no-burst" # why
#SBATCH --no-requeue --mail-user me@example.org -o out.txt
#SBATCHED --time=1
  # still a comment

srun ./model
#SBATCH --time=5
"""


def test_a_script():
    found = read_script(SCRIPT, where="job.sh")
    assert found.fields == {
        "time_limit": 120,
        "num_tasks": 16,
        "min_nodes": 2,
        "max_nodes": 2,
        "partition": "onprem",
        "comment": "see #4, no-burst",
        "requeue": False,
    }
    assert found.ignored == ("mail-user", "-o")
    assert not found.heterogeneous


def test_an_expedited_requeue_is_a_requeue():
    assert read_options(["--requeue=expedite"], where="x").fields == {"requeue": True}


def test_every_way_to_write_an_option():
    for words in (["-t", "5"], ["-t5"], ["--time=5"], ["--time", "5"], ["-t=5"]):
        assert read_options(words, where="here").fields == {"time_limit": 5}
    assert read_options(["-H", "-t", "5", "--exclusive", "-n3"], where="here").fields == {
        "held": True,
        "time_limit": 5,
        "num_tasks": 3,
        "whole_nodes": True,
    }
    assert read_options(["--exclusive=user", "-n3"], where="here").fields == {"num_tasks": 3}
    assert read_options(["--prefer=a&b", "-n3"], where="here").fields == {"prefer": "a&b", "num_tasks": 3}
    assert read_options(["-D", "work", "-n3", "job.sh"], where="here").fields == {"num_tasks": 3}


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("--bb=capacity=1G", {"burst_buffer": "capacity=1G"}),
        ("--sockets-per-node=2 --threads-per-core=1", {"layout": True, "whole_cores": True}),
        ("--cores-per-socket=1", {}),
        ("-B 1:4", {"layout": True}),
        ("-B *:*:1", {}),
        ("--hint=nomultithread", {"whole_cores": True}),
        ("--hint=compute_bound", {}),
        ("-N2 --gpus=4", {"min_nodes": 2, "max_nodes": 2, "generic_resources": "of all nodes: gpu:4"}),
        ("--gpus-per-socket=1", {"generic_resources": "not by node alone: gpu:1"}),
    ],
)
def test_what_the_hook_tells_of_nodes_is_read(words: str, fields: dict[str, object]) -> None:
    found = read_options(words.split(), where="here")
    assert (found.fields, found.ignored, found.unknown) == (fields, (), ())


def test_later_options_win():
    script = read_script("#!/bin/sh\n#SBATCH -t 5 -n 2\n#SBATCH -t 6\n#SBATCH hetjob\n", where="job.sh")
    both = merged(script, read_options(["--time=7"], where="command line"))
    assert both.fields == {"time_limit": 7, "num_tasks": 2}
    assert both.heterogeneous


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "job.sh:1", "no batch script"),
        ("srun x\n", "job.sh:1", "no batch script"),
        ("#!/bin/sh\n#SBATCH --time=soon\n", "job.sh:2", "'soon'"),
        ("#!/bin/sh\n\n#SBATCH --ntasks=0\n", "job.sh:3", "'0'"),
        ("#!/bin/sh\n#SBATCH --time\n", "job.sh:2", "no value"),
        ('#!/bin/sh\n#SBATCH --comment="open\n', "job.sh:2", "quotation"),
        ("#!/bin/sh\n#SBATCH --mem=lots\n", "job.sh:2", "'lots'"),
        ("#!/bin/sh\n#SBATCH --nodes=a\n", "job.sh:2", "'a'"),
    ],
)
def test_wrong_scripts_say_where(text, where, what):
    with pytest.raises(BadInput) as caught:
        read_script(text, where="job.sh")
    assert caught.value.where == where
    assert what in caught.value.what
    assert caught.value.mend


def installed_help(folder: Path) -> str:
    """What ``sbatch --help`` of this machine prints; empty without Slurm."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        return ""
    conf = folder / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\n")
    command = [sbatch, "--help"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={"SLURM_CONF": str(conf)}
    ).stdout


@pytest.mark.parametrize("release", ["installed", "24.11", "26.05"])
def test_day_one_8_every_option_of_sbatch_is_known(release, tmp_path):
    recorded = Path(__file__).parent / "fixtures" / release / "sbatch_help.txt"
    text = installed_help(tmp_path) if release == "installed" else recorded.read_text()
    if not text:
        pytest.skip("no sbatch here")
    options = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", text))
    assert len(options) > 80
    unknown = []
    for option in sorted(options):
        with suppress(BadInput):  # known, and 1 is not what it takes
            unknown += read_options([f"{option}=1"], where="x").unknown
    assert unknown == []
    letters = re.findall(r"^ +-([A-Za-z]),", text, re.MULTILINE)
    assert len(letters) > 25
    for letter in letters:
        with suppress(BadInput):  # known, and its value is missing
            assert read_options([f"-{letter}"], where="x").unknown == ()
