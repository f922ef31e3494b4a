"""The alert rules for Prometheus name metrics that exist, with their labels, and say what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parent.parent
RULES = PROJECT / "monitoring" / "advisor-alerts.yml"
(GROUP,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((PROJECT / "advisor" / "service").rglob("*.py"))
)


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    names = re.findall(r"\badvisor_[a-z_]+", rule["expr"])
    assert names or "up{" in rule["expr"]
    for name in names:
        whole = re.sub(r"_(total|bucket)$", "", name).removeprefix("advisor_")
        pattern = rf'"(?:advisor_)?(?:serve_)?{whole.removeprefix("serve_")}"'
        assert re.search(pattern, SOURCES), name
    assert rule["labels"]["severity"] in {"page", "warn", "info"}
    said = rule["annotations"]
    assert said["summary"]
    assert len(said["description"]) > 40
    for label in re.findall(r"\$labels\.(\w+)", " ".join(said.values())):
        assert label == "instance" or f'"{label}"' in SOURCES


def test_an_alert_s_name_is_there_once() -> None:
    names = [rule["alert"] for rule in GROUP["rules"]]
    assert len(names) == len(set(names))
