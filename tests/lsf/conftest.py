"""Records as LSF writes them, made here: the form of IBM's page, the order of the records seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RELEASES = ("5.1", "7.06", "9.11", "9.12", "10.1", "10.108")

USUAL: dict[str, Any] = {
    "event_time": 1_700_003_600,
    "job_id": 4711,
    "user_id": 1001,
    "options": 0x2000002,  # project and queue
    "processors": 4,
    "submit_time": 1_700_000_000,
    "begin_time": 0,
    "start_time": 1_700_000_600,
    "user": "ann",
    "queue": "normal",
    "resource_request": "",
    "dependency": "",
    "asked_hosts": [],
    "hosts": ["node1", "node1", "node2", "node2"],
    "status": 64,
    "host_factor": 60.0,
    "name": "flow",
    "command": "solve --all",
    "user_seconds": 5793844.23,
    "system_seconds": 679.06,
    "project": "physics",
    "exit_status": 0,
    "max_processors": 4,
    "array_index": 0,
    "max_resident_kb": 10_725_376,
    "reservation": "",
    "service_class": "",
    "exit_info": 0,
    "share_account": "/ann",
    "application": "",
    "requeue_exit_values": "",
    "long_reservation": "",
    "description": "",
    "usage_by_host": [],
    "run_limit": -1,
    "options3": 0,
    "effective_resource_request": "select[type == any] order[r15s:pg] ",
    "running_seconds": 3000,
    "allocated_slots": ["node1", "node1", "node2", "node2"],
    "requeue_time": 0,
    "ineligible": -1,
    "rest": '0 0 1 "schedulingOverhead" "0.00"',
}


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def counted(texts: list[str]) -> str:
    return " ".join([str(len(texts)), *map(quoted, texts)])


def usage(hosts: list[str], version: str) -> str:
    """Before 10 a count follows the four numbers, and names stand without quotes."""
    name = quoted if version.startswith("10") else str
    numbers = "1306 0 1287486 242" if version.startswith("10") else "1306 0 1287486 242 0"
    return " ".join([str(len(hosts)), *(f"{name(host)} {numbers}" for host in hosts)])


def write(version: str = "10.108", *, as_ibms_page: bool = False, **changes: Any) -> str:
    """One line of lsb.acct."""
    r = USUAL | changes
    parts = [
        f'"JOB_FINISH" "{version}" {r["event_time"]} {r["job_id"]} {r["user_id"]} {r["options"]}',
        f"{r['processors']} {r['submit_time']} {r['begin_time']} 0 {r['start_time']}",
        *map(quoted, (r["user"], r["queue"], r["resource_request"], r["dependency"])),
        '"" "login1" "/home/ann" "" "%J.out" "" "1700000000.4711"',
        counted(r["asked_hosts"]),
        counted(r["hosts"]),
        f"{r['status']} {r['host_factor']} {quoted(r['name'])} {quoted(r['command'])}",
        f"{r['user_seconds']} {r['system_seconds']} 966960 0 -1 0 0 3026323 0 0 0 0 -1 0 0 0 12529329 649 -1",
        f'"" {quoted(r["project"])} {r["exit_status"]} {r["max_processors"]} "" "" {r["array_index"]}',
        f'{r["max_resident_kb"]} 0 "" "" {quoted(r["reservation"])}',
    ]
    if version == "5.1":
        return " ".join(parts)
    parts += [
        f'{quoted(r["service_class"])} 0 "" {r["exit_info"]} "" -1 {quoted(r["share_account"])} ""',
        f'{quoted(r["application"])} "" -1 "" {quoted(r["requeue_exit_values"])} 6160  "" {r["start_time"]}',
        f"{quoted(r['long_reservation'])} {quoted(r['description'])}",
    ]
    if version == "7.06":
        return " ".join([*parts, "0"])
    limit_and_flags = (r["options3"], r["run_limit"]) if as_ibms_page else (r["run_limit"], r["options3"])
    parts += [
        '2 1032 "0" 1033 "0"' if version.startswith("10") else "0",
        usage(r["usage_by_host"], version),
        f"{limit_and_flags[0]} {limit_and_flags[1]} 8688640 {quoted(r['effective_resource_request'])}",
        f'"" -1 "" -1 0 "" 0 0 "" {r["running_seconds"]} "/home/ann" 1 "18338657682652659712" 1 ""',
    ]
    if version == "9.11":
        return " ".join(parts)
    parts += ["0.000000"]
    if version == "9.12":
        return " ".join(parts)
    parts += [
        "0.00 0.00 0.00 0.00",
        counted(r["allocated_slots"]),
        f"{r['ineligible']} 1 678 1000 1 {r['requeue_time']}",
    ]
    return " ".join([*parts, r["rest"]] if version == "10.108" else parts)


@pytest.fixture
def write_record() -> Callable[..., str]:
    """A line of ``lsb.acct``: ``write_record("9.12", run_limit=3600)``; the job is a usual one otherwise."""
    return write


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Version of the log's format: each of those with fields of their own."""
    return str(request.param)
