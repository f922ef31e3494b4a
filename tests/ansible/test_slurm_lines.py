"""What slurm.conf is to say: the role prints it, docs/install.md has it, and the lab runs with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
ROLE = PROJECT / "ansible" / "roles" / "burst_advisor"
MANUAL: dict[str, Any] = {
    "burst_advisor_programs_dir": "/usr/local/lib/advisor",
    "burst_advisor_node_names": "burst[1-20]",
    "burst_advisor_on_demand_node_names": "ondemand[1-10]",
}


def printed(settings: dict[str, Any] | None = None, **variables: Any) -> list[str]:
    """The lines that the role prints, variables worked out as Ansible does it: when they are asked for."""
    environment = jinja2.Environment(undefined=jinja2.ChainableUndefined, trim_blocks=True, autoescape=False)
    environment.filters["bool"] = lambda value: str(value).strip().lower() in {"true", "1", "yes"}
    given: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        given |= yaml.safe_load((ROLE / part / "main.yml").read_text(encoding="utf-8"))
    given |= variables
    known = {"burst_advisor_all_settings": {"cluster": {"burst_partition": "burst"}} | (settings or {})}

    def render(text: str) -> str:
        template = environment.from_string(text)
        while missing := [name for name in names_in(text) if name in given and name not in known]:
            for name in missing:
                value = given[name]
                known[name] = render(value) if isinstance(value, str) else value
                if known[name] in ("True", "False"):
                    known[name] = known[name] == "True"
        return template.render(known)

    text = (ROLE / "templates" / "slurm.conf.j2").read_text(encoding="utf-8")
    return [line for line in render(text).splitlines() if line]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"burst_advisor_\w+", text))


def test_the_manual_has_what_the_role_prints() -> None:
    manual = (PROJECT / "docs" / "install.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\n(PriorityType.*?)^```", manual, re.MULTILINE | re.DOTALL)
    assert ["JobSubmitPlugins=lua", *block.splitlines()] == printed(**MANUAL)


@pytest.mark.parametrize(
    ("settings", "said", "unsaid"),
    [
        ({}, ["Feature=cloud,spot,steady ", "Feature=cloud,on-demand,steady ", " SuspendTime=300 "], []),
        ({"matching": {"long_lived_feature": "calm"}}, ["Feature=cloud,spot,calm "], ["steady"]),
        ({"matching": {"long_lived_feature": ""}}, ["Feature=cloud,spot Weight"], ["steady"]),
        ({"acquirer": {"kept_nodes": 3}}, [" SuspendTime=7200 "], []),
        ({"acquirer": {"kept_nodes": 3}, "loops": {"acquire_seconds": 1800.0}}, [" SuspendTime=3600 "], []),
        ({"size": {"small_priority_offset": 0}}, [], ["PriorityType"]),
        ({"size": {"enabled": False}, "portfolio": {"enabled": True}}, ["PriorityType"], []),
    ],
)
def test_the_lines_follow_the_settings(settings: dict[str, Any], said: list[str], unsaid: list[str]) -> None:
    text = "\n".join(printed(settings))
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_the_lab_runs_with_them() -> None:
    """But for the times, which are seconds there, and the names of its nodes."""
    lab = (PROJECT / "advisor" / "testing" / "lab_files" / "slurm.conf.in").read_text(encoding="utf-8")
    told = dict(line.split("=", 1) for line in lab.splitlines() if "=" in line and not line.startswith("#"))
    own = {"JobSubmitPlugins", "PrologSlurmctld", "NodeName", "PartitionName"}
    for line in printed():
        name, value = line.split("=", 1)
        if name in own or "@" in told.get(name, ""):
            continue
        assert set(value.split(",")) <= set(told.get(name, "").split(",")), line
    assert {"@resume_program@", "@suspend_program@", "@resume_fail_program@", "@prolog_line@"} <= set(
        re.findall(r"@\w+@", lab)
    )
