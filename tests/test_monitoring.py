"""Alert rules and dashboards for Prometheus: promtool takes them, /metrics has what they ask for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from advisor.service.running.metrics import ServeMetrics, ServeReadings
from tests.service.control.test_wiring import make_control

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / "monitoring"
RULES = FOLDER / "advisor-alerts.yml"
DASHBOARD = json.loads((FOLDER / "grafana-advisor.json").read_text(encoding="utf-8"))
(GROUP,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((PROJECT / "advisor" / "service").rglob("*.py"))
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """/metrics of a control process and a submit server with all that they can show."""
    serve = ServeMetrics()
    serve.watch(
        lambda: ServeReadings(gauges={}, counters={}, state_errors={"models.damaged": 1}, model_version="1+1")
    )
    control = make_control(tmp_path_factory.mktemp("site"))
    yield control.metrics.exposition(serve.text).decode()
    control.store.close()


def promtool(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do_by_labels_that_exist(rule: dict[str, Any]) -> None:
    assert "advisor_" in rule["expr"] or "up{" in rule["expr"]
    assert rule["labels"]["severity"] in {"page", "warn", "info"}
    said = rule["annotations"]
    assert said["summary"]
    assert len(said["description"]) > 40
    for label in re.findall(r"\$labels\.(\w+)", " ".join(said.values())):
        assert label == "instance" or f'"{label}"' in SOURCES


def test_an_alert_s_name_is_there_once() -> None:
    names = [rule["alert"] for rule in GROUP["rules"]]
    assert len(names) == len(set(names))


def test_what_alerts_and_dashboards_ask_for_is_on_the_page(page: str) -> None:
    there = set()
    for family in text_string_to_metric_families(page):
        ends = ("", "_total", "_bucket", "_sum", "_count")
        there |= {family.name + end for end in ends}
    asked = [*(rule["expr"] for rule in GROUP["rules"]), *EXPRESSIONS]
    named = {name for expression in asked for name in re.findall(r"\badvisor_\w+", expression)}
    assert len(named) > 20
    assert named <= there


def test_dashboards_sum_by_labels_that_exist() -> None:
    labels = {
        label
        for found in EXPRESSIONS
        for by in re.findall(r"by \(([^)]+)\)", found)
        for label in by.split(", ")
    }
    assert len(labels) > 5
    for label in labels - {"le"}:
        assert f'"{label}"' in SOURCES, label


def test_promtool_takes_the_alerts(tmp_path: Path) -> None:
    assert f"{len(GROUP['rules'])} rules found" in promtool("check", "rules", str(RULES))
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(EXPRESSIONS)]
    panels = tmp_path / "panels.yml"
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(EXPRESSIONS)} rules found" in promtool("check", "rules", str(panels))


def test_promtool_takes_the_page(page: str) -> None:
    """It also has opinions about names (``no help text``, ``counters should end in _total``)."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60, check=False
    )
    assert "error while linting" not in done.stderr, done.stderr
    assert "error parsing" not in done.stderr, done.stderr
    assert done.returncode in {0, 3}, done.stderr


def run_rules(folder: Path, test: dict[str, Any]) -> None:
    """Have promtool evaluate all rules each minute."""
    path = folder / "test.yml"
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    path.write_text(json.dumps(tests))
    promtool("test", "rules", str(path))


@pytest.mark.parametrize(
    ("alert", "metric", "labels", "values", "minutes"),
    [
        ("AdvisorForecastsDrift", "advisor_partitions_fallen_back", {}, "0 1x20", 15),
        ("AdvisorTrainingFailed", "advisor_training_failed", {}, "0 1x20", 15),
        ("AdvisorCloudProtected", "advisor_cloud_protected", {}, "0 1x20", 15),
        ("AdvisorServeDown", "advisor_serve_up", {}, "1 0x20", 15),
        # from its start on: it has never had a good round
        ("AdvisorLoopFails", "advisor_loop_open_failures", {"loop": "learn"}, "1x40", 35),
        # a damaged version is tried once, so the series begins with 1 and stays there
        (
            "AdvisorModelRefused",
            "advisor_serve_state_errors_total",
            {"code": "models.damaged"},
            "_x3 1x20",
            5,
        ),
    ],
)
def test_an_alert_fires_when_it_should(
    tmp_path: Path, alert: str, metric: str, labels: dict[str, str], values: str, minutes: int
) -> None:
    """Promtool runs the rule: silent in its first minute, it fires some minutes later."""
    (rule,) = (rule for rule in GROUP["rules"] if rule["alert"] == alert)
    named = {"instance": "head", **labels}
    told = {
        text: re.sub(r"{{ \$labels\.(\w+) }}", lambda label: named[label[1]], value)
        for text, value in rule["annotations"].items()
    }
    found = {"exp_labels": {**named, **rule["labels"]}, "exp_annotations": told}
    series = f"{metric}{{{','.join(f'{name}={json.dumps(value)}' for name, value in named.items())}}}"
    one = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values}],
        "alert_rule_test": [
            {"eval_time": "0m", "alertname": alert, "exp_alerts": []},
            {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": [found]},
        ],
    }
    run_rules(tmp_path, one)


def test_a_loop_with_a_round_an_hour_is_not_said_to_fail(tmp_path: Path) -> None:
    """Such as the judge of the portfolio, whose last good round may be an hour ago."""
    loop = '{instance="head",loop="portfolio judge"}'
    shown = {"advisor_loop_last_good_time_seconds": "60x60", "advisor_loop_open_failures": "0x60"}
    one = {
        "interval": "1m",
        "input_series": [{"series": name + loop, "values": values} for name, values in shown.items()],
        "alert_rule_test": [{"eval_time": "55m", "alertname": "AdvisorLoopFails", "exp_alerts": []}],
    }
    run_rules(tmp_path, one)


def test_the_dashboard_has_a_panel_s_place_once_and_asks_the_chosen_source() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource"]
