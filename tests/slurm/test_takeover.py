"""Services on both hosts of a real pair of slurmctld: control is killed on one, the other one goes on."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks import takeover

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]


def test_a_takeover_loses_doubles_and_refuses_nothing() -> None:
    try:
        subprocess.run(["unshare", "--uts", "--mount", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a second host name needs the right to unshare (CAP_SYS_ADMIN)")
    found = takeover.run(times=1, only_control=True, tell=print)
    assert found["takeovers"] >= 2  # and the way back
    nothing = ("refused", "ran_twice", "lost", "orphans", "nodes_with_two_instances", "paid_twice")
    assert {name: found[name] for name in nothing if found[name]} == {}
