# ruff: noqa: INP001 - a program that is copied into a lab, not a module of the package
"""Stands in for a cloud: `resume` "boots" a node by starting its slurmd on this machine.

Installed in a lab's folder as resume, suspend, resume_fail and prolog; it acts by the name it is called
under. Standard library only: slurmctld runs it with an almost empty environment, its first three file
descriptors closed and its signals blocked.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETTINGS = json.loads((HERE / "stand_in.json").read_text())
FOLDER = Path(SETTINGS["folder"])
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "SLURM_CONF": str(FOLDER / "etc" / "slurm.conf"),
    "LC_ALL": "C.UTF-8",
}
WAIT_SECONDS = 60.0
NOT_UP = {"powered_down", "powering_down", "powering_up", "not_responding"}
"""A node that is to power down after its jobs (``power_down``) is up."""


def run(*command: str) -> str:
    """Output of a command; an empty text when it fails."""
    done = subprocess.run(  # noqa: S603 - fixed commands, no shell
        command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        log(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def log(text: str) -> None:
    """One line in the lab's cloud log."""
    with (FOLDER / "log" / "cloud.log").open("a") as file:
        file.write(f"{time.time():.3f} {text}\n")


def resume(nodes: list[str]) -> None:
    """Boot each node."""
    time.sleep(SETTINGS["boot_seconds"])
    for node in nodes:
        run("scontrol", "update", f"nodename={node}", "nodeaddr=127.0.0.1", f"nodehostname={node}")
        (FOLDER / "spool" / node).mkdir(exist_ok=True)
        # -b: the boot time is now; else a node on this long-running machine is taken for not rebooted
        run("slurmd", "-b", "-N", node)
        log(f"{node}: slurmd started")


def suspend(nodes: list[str]) -> None:
    """End each node's slurmd."""
    for node in nodes:
        try:
            os.kill(int((FOLDER / "run" / f"slurmd-{node}.pid").read_text()), signal.SIGTERM)
        except (OSError, ValueError) as error:
            log(f"{node}: {error}")


def prolog() -> None:
    """Wait for the job's cloud nodes: when this ends, slurmctld launches the batch script at once.

    Otherwise it looks at configuring jobs only every 30 s (PERIODIC_TIMEOUT, compiled in).
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST", "")
    end = time.monotonic() + WAIT_SECONDS
    while nodes.startswith("burst") and time.monotonic() < end:
        states = run("sinfo", "-h", "-N", "-n", nodes, "-O", "StateComplete:200").split()
        if states and not any(NOT_UP.intersection(state.split("+")) for state in states):
            return
        # no longer allocated: the boot was given up, and the job must not hang on this prolog
        if any(state.startswith(("idle", "down")) for state in states):
            return
        time.sleep(0.2)


def main() -> None:
    """Act by the program's name. Never fails: ResumeTimeout handles nodes that do not come."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    verb = Path(sys.argv[0]).name
    if verb == "prolog":
        prolog()
        return
    log(f"{verb} {' '.join(sys.argv[1:])}")
    nodes = run("scontrol", "show", "hostnames", sys.argv[1]).split()
    if verb == "resume":
        resume(nodes)
    elif verb == "suspend":
        suspend(nodes)


main()
