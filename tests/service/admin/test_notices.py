"""What is told, when, and once; and that it arrives at a real HTTP and a real mail server."""

from __future__ import annotations

import email
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.model.errors import BadInput, RetryLater
from advisor.model.periods import period_span
from advisor.model.settings_notices import NoticeSettings
from advisor.service.admin.notice_delivery import deliver
from advisor.service.admin.notices import WAIT_SECONDS, Condition, Notice, conditions, decide
from advisor.service.admin.since import clock_text
from advisor.service.admin.status_report import _cloud_troubles
from advisor.service.state.records import ToldNotice, ToldNotices
from advisor.service.state.state_files import NOTICES, TRAININGS
from tests.commands import app
from tests.full_disk import room_for
from tests.service.admin.notice_servers import hook_file, mails, posts

__all__ = ["mails", "posts"]

NOW = 1_790_000_000.0
DAY = 86_400.0


def report(**control: Any) -> dict[str, Any]:
    """A report of `advisor status` in which nothing is wrong, but for these fields of control."""
    return {
        "time": NOW,
        "serve": {"running": True},
        "control": {"running": True, "pid": 7, "loops": {}, "cloud_report": None, **control},
        "snapshot": {"usable": True, "cloud": {"spot_open": True, "on_demand_open": True}},
    }


def spend(spent: float, budget: float | None = 100.0, **more: Any) -> dict[str, Any]:
    budgets = [] if budget is None else [of("", spent, budget)]
    return {"cloud_report": {"spend": {"budgets": budgets, **more}, "counters": {}}}


def of(payer: str, spent: float, usd: float, period: str = "month", carried: float = 0.0) -> dict[str, Any]:
    """A budget as the report has it."""
    begin, end = period_span(NOW, period)
    found = {"payer": payer, "period": period, "usd": usd, "carried": carried, "spent": spent}
    return {**found, "promised": 0.0, "begin": begin, "end": end, "spent_week": spent}


def keys(found: dict[str, Any]) -> list[str]:
    return [condition.key for condition in conditions(found)]


def test_nothing_wrong_is_nothing_to_tell() -> None:
    assert keys(report()) == []


def test_each_trouble_has_a_key_that_its_numbers_do_not_change() -> None:
    down = report(running=False, cloud_report=None) | {"serve": {"running": False}}
    assert keys(down) == ["serve.down", "control.down"]
    stale = report(history_problem="the disk is full")
    closed = {"until": NOW, "code": "UnauthorizedOperation"}
    stale["snapshot"] = {"usable": False, "cloud": {"spot_closed": closed, "on_demand_closed": closed}}
    assert keys(stale) == ["snapshot.old", "history", "pool.spot", "pool.on_demand"]
    failing = {
        "poll": {"open_failures": {"poll Slurm": {"message": "5 s ago", "code": "slurm.timeout"}}},
        "learn": {"open_failures": {"ingest": {"message": "full", "code": "history.database"}}},
    }
    assert keys(report(loops=failing)) == ["loop.poll.poll Slurm"]
    counters = {"orphans_collected": 2, "handovers_stuck": ["a"]}
    assert keys(report(cloud_report={"spend": {}, "counters": counters})) == [
        "orphans.7.2",
        "handovers.stuck",
    ]
    doubt = report(**spend(1.0, launches_wait=True, in_doubt="the file was lost"))
    assert "budget.doubt" in keys(doubt)


def test_closed_capacity_is_told_with_its_end_and_the_word_of_ec2() -> None:
    found = report()
    closed = {"until": NOW, "code": "UnauthorizedOperation"}
    found["snapshot"]["cloud"] |= {"on_demand_open": False, "on_demand_closed": closed}
    (condition,) = conditions(found)
    words = f"until {clock_text(NOW)} (EC2: UnauthorizedOperation)"
    assert words in condition.text
    assert list(_cloud_troubles(found)) == [f"on-demand capacity is unavailable {words}"]


def test_a_market_without_nodes_is_not_one_that_ec2_has_refused() -> None:
    """Without a burst partition, and where all nodes are on-demand, spot is not open either."""
    found = report()
    found["snapshot"]["cloud"] |= {"spot_open": False, "spot_closed": None}
    assert (keys(found), list(_cloud_troubles(found))) == ([], [])


@pytest.mark.parametrize(
    ("spent", "percent"),
    [(49.9, None), (50.0, 50), (79.9, 50), (80.0, 80), (99.0, 80), (100.0, 100), (130, 100)],
)
def test_shares_of_the_budget(spent: float, percent: int | None) -> None:
    expected = [] if percent is None else [f"budget.2026-09-01.month.100..{percent}"]
    assert keys(report(**spend(spent))) == expected


def test_a_budget_that_was_raised_is_told_of_again() -> None:
    told = ToldNotices()
    heard = []
    for spent, budget in ((100.0, 100.0), (110.0, 200.0), (170.0, 200.0), (171.0, 200.0)):
        found = conditions(report(**spend(spent, budget)))
        notices, told = decide(found, told, now=NOW, repeat_seconds=1e9)
        heard += [one.text.partition(";")[0].rpartition("(")[2] for one in notices]
    assert heard == ["100 % or more)", "50 % or more)", "80 % or more)"]


def test_an_account_has_its_own_shares_and_no_budget_has_none() -> None:
    (condition,) = conditions(report(**spend(10.0, budgets=[of("chem", 10.0, 20.0)])))
    assert condition.key.endswith(".chem.50")
    assert "account chem has spent 10.00 of the 20.00 USD for this month" in condition.text
    assert keys(report(**spend(10.0, budget=None))) == []


def test_a_user_is_told_of_by_the_days_of_their_period_and_what_was_carried_over_counts() -> None:
    user = of("user ann", 16.0, 15.0, "14d", carried=5.0)
    (condition,) = conditions(report(**spend(0.0, budgets=[user])))
    assert condition.key.endswith(".14d.20.user ann.80")
    assert "user ann has spent 16.00 of the 20.00 USD for these 14 days" in condition.text
    (spent,) = conditions(report(**spend(0.0, budgets=[{**user, "spent": 20.0}])))
    assert "its jobs stay on-premise until the next 14 days" in spent.text


class Site:
    """Rounds of `advisor notify`."""

    def __init__(self) -> None:
        self.told = ToldNotices()
        self.now = NOW

    def round(self, *found: Condition, after: float = 60.0) -> list[Notice]:
        self.now += after
        notices, self.told = decide(found, self.told, now=self.now, repeat_seconds=DAY)
        return notices


TROUBLE = Condition(key="serve.down", text="serve does not answer")
EVENT = Condition(key="budget.x.80", text="80 %", is_event=True)


def test_a_trouble_is_told_when_it_lasts_once_a_day_and_when_it_is_over() -> None:
    site = Site()
    assert site.round(TROUBLE) == []
    assert site.round(TROUBLE, after=WAIT_SECONDS - 1.0) == []
    assert site.round(TROUBLE, after=1.0) == [Notice(key="serve.down", text="serve does not answer")]
    assert site.round(TROUBLE) == []
    assert len(site.round(TROUBLE, after=DAY)) == 1
    over = Notice(key="serve.down", text="over: serve does not answer", is_over=True)
    assert site.round() == [over]
    assert site.round() == []


def test_a_short_trouble_is_never_told() -> None:
    site = Site()
    assert site.round(TROUBLE) == []
    assert site.round() == []
    assert site.round(TROUBLE, after=WAIT_SECONDS) == []


@pytest.mark.parametrize("was_told", [False, True])
def test_f32_a_trouble_seen_with_a_clock_ahead_is_told(*, was_told: bool) -> None:
    known = ToldNotice(NOW + 400 * DAY, NOW + 401 * DAY if was_told else None, "it fails")
    told, said = ToldNotices({"loop": known}), []
    for seconds in (0.0, WAIT_SECONDS, DAY):
        found = [Condition(key="loop", text="it fails")]
        notices, told = decide(found, told, now=NOW + seconds, repeat_seconds=DAY)
        said.append(len(notices))
    assert said == ([0, 0, 1] if was_told else [0, 1, 0])


def test_an_event_is_told_at_once_and_once() -> None:
    site = Site()
    assert len(site.round(EVENT)) == 1
    assert site.round(EVENT, after=10 * DAY) == []
    assert site.round() == []
    assert site.round(EVENT) == []


def test_notices_arrive_both_ways(
    tmp_path: Path, mails: tuple[int, list[str]], posts: tuple[int, list[dict[str, Any]]]
) -> None:
    settings = NoticeSettings(
        webhook_file=hook_file(tmp_path, f"http://127.0.0.1:{posts[0]}/hook"),
        mail_to=("admin@example.org", "b@example.org"),
        mail_server=f"127.0.0.1:{mails[0]}",
    )
    notices = [Notice(key="a", text="serve does not answer: look at it"), Notice(key="b", text="80 %")]
    assert deliver(notices, settings, "c1") == []
    assert [post["text"] for post in posts[1]] == [f"Burst Advisor, c1: {notice.text}" for notice in notices]
    assert posts[1][0] == {"text": posts[1][0]["text"], "key": "a", "is_over": False, "cluster": "c1"}
    (mail,) = mails[1]
    assert "Subject: Burst Advisor, c1: serve does not answer, and 1 more" in mail
    assert "To: admin@example.org, b@example.org" in mail
    assert "look at it" in mail


def test_one_way_that_refuses_leaves_the_other(
    tmp_path: Path, mails: tuple[int, list[str]], posts: tuple[int, list[dict[str, Any]]]
) -> None:
    secret = f"http://127.0.0.1:{posts[0]}/no"
    settings = NoticeSettings(
        webhook_file=hook_file(tmp_path, secret), mail_to=("a@b.c",), mail_server=f"127.0.0.1:{mails[0]}"
    )
    notice = Notice(key="a", text="trouble")
    (refused,) = deliver([notice], settings, "c1")
    assert "status 500" in refused
    assert len(mails[1]) == 1
    with pytest.raises(RetryLater) as none_left:
        deliver([notice], NoticeSettings(webhook_file=settings.webhook_file), "c1")
    assert secret not in str(none_left.value)


@pytest.mark.parametrize(
    "url",
    ["https://a.b:port/x", "http://127.0.0.1:{}/x\u00e4", "http://[::1/x", "http://127.0.0.1:{}", "none"],
)
def test_a_webhook_that_cannot_be_used_leaves_the_mail(
    tmp_path: Path, mails: tuple[int, list[str]], url: str
) -> None:
    # the mail server stands for one that does not speak HTTP
    settings = NoticeSettings(
        webhook_file=hook_file(tmp_path, url.format(mails[0])),
        mail_to=("a@b.c",),
        mail_server=f"127.0.0.1:{mails[0]}",
    )
    (refused,) = deliver([Notice(key="a", text="trouble")], settings, "c1")
    assert "webhook" in refused
    assert len(mails[1]) == 1


@pytest.mark.parametrize("content", ["", "no url", "ftp://x", "https://a b"])
def test_a_file_without_a_url(tmp_path: Path, content: str) -> None:
    with pytest.raises(BadInput, match="has no URL"):
        deliver([Notice(key="a", text="t")], NoticeSettings(webhook_file=hook_file(tmp_path, content)), "c1")
    with pytest.raises(BadInput, match="cannot be read"):
        deliver([Notice(key="a", text="t")], NoticeSettings(webhook_file=tmp_path / "missing"), "c1")


def run(config: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["notify", "--config", str(config), "--format", "json", *arguments])


def test_the_command_tells_of_services_that_do_not_run_and_remembers(
    tmp_path: Path, posts: tuple[int, list[dict[str, Any]]]
) -> None:
    config = tmp_path / "advisor.toml"
    paths = f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n'
    config.write_text(paths)
    refused = run(config)
    assert refused.exit_code != 0
    assert isinstance(refused.exception, BadInput)
    config.write_text(
        f'{paths}[notices]\nwebhook_file = "{hook_file(tmp_path, f"http://127.0.0.1:{posts[0]}")}"\n'
    )
    assert json.loads(run(config, "--test", "--dry-run").stdout)["told"][0]["key"] == "test"
    assert posts[1] == []
    assert json.loads(run(config, "--test").stdout)["told"][0]["key"] == "test"
    assert len(posts[1]) == 1
    assert json.loads(run(config).stdout) == {"told": []}  # they may be starting
    state = NOTICES.at(tmp_path)
    known = state.read()
    assert known.notices.keys() >= {"serve.down", "control.down"}
    for notice in known.notices.values():
        notice.since -= WAIT_SECONDS
    state.write(known)
    assert len(json.loads(run(config, "--dry-run").stdout)["told"]) >= 2
    assert len(posts[1]) == 1
    told = {one["key"] for one in json.loads(run(config).stdout)["told"]}
    assert told >= {"serve.down", "control.down"}
    assert {post["key"] for post in posts[1]} >= told
    assert json.loads(run(config).stdout) == {"told": []}


def test_a_dry_run_leaves_damaged_files_where_they_are(tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n')
    for state in (NOTICES, TRAININGS):
        state.at(tmp_path).path.write_text("{")
    files = sorted(tmp_path.iterdir())
    assert run(config, "--dry-run").exit_code == 0
    assert sorted(tmp_path.iterdir()) == files


FALLEN = {"main": {"since": 0.0, "measure": "coverage", "why": "only 50 % of them lay in their intervals"}}


def test_a_full_disk_is_told_once_a_day_while_it_lasts(
    tmp_path: Path, posts: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "advisor.toml"
    hook = hook_file(tmp_path, f"http://127.0.0.1:{posts[0]}")
    config.write_text(
        f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n[notices]\nwebhook_file = "{hook}"\n'
    )
    begun = time.time()
    run(config)

    def told_after(seconds: float) -> list[str]:
        posts[1].clear()
        monkeypatch.setattr(time, "time", lambda: begun + seconds)
        found = run(config)
        assert found.exit_code == 1
        return [post["key"] for post in posts[1]]

    with room_for(20):
        assert told_after(60.0) == []
        assert {"notices.unkept", "serve.down", "control.down"} <= set(told_after(WAIT_SECONDS + 1.0))
        assert "notices.json cannot be written (File too large)" in posts[1][0]["text"]
        assert told_after(WAIT_SECONDS + 61.0) == []
        assert told_after(DAY) == []
        assert "notices.unkept" in told_after(WAIT_SECONDS + DAY + 2.0)
    monkeypatch.setattr(time, "time", lambda: begun + 2 * DAY)
    assert run(config).exit_code == 0
    assert NOTICES.at(tmp_path).read().notices.keys() >= {"serve.down", "control.down"}


def test_a_folder_that_is_not_there_is_told_once_a_day(
    tmp_path: Path, posts: tuple[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that is not mounted takes the record of notices with it."""
    config, folder = tmp_path / "advisor.toml", tmp_path / "shared" / "advisor"
    hook = hook_file(tmp_path, f"http://127.0.0.1:{posts[0]}")
    config.write_text(
        f'[paths]\nstate = "{folder}"\nrun = "{tmp_path}"\n[notices]\nwebhook_file = "{hook}"\n'
    )
    begun = time.time()

    def told_after(seconds: float) -> set[str]:
        posts[1].clear()
        monkeypatch.setattr(time, "time", lambda: begun + seconds)
        run(config)
        return {post["key"] for post in posts[1]}

    assert told_after(0.0) == set()
    assert {"notices.unkept", "control.down"} <= told_after(WAIT_SECONDS + 1.0)
    assert f"{folder}/notices.json cannot be written (No such file or directory)" in posts[1][0]["text"]
    assert told_after(WAIT_SECONDS + 61.0) == set()
    assert "notices.unkept" in told_after(WAIT_SECONDS + DAY + 2.0)
    folder.mkdir(parents=True)
    assert run(config).exit_code == 0


FAILED = {"retrain": {"began": NOW - 60.0, "ended": NOW, "failed": "MemoryError: ", "refused": ""}}
KILLED = {"retrain": {"began": NOW - 5 * 3600.0, "ended": None, "failed": "", "refused": ""}}
WORSE = {"retrain": {"began": NOW - 60.0, "ended": NOW, "failed": "", "refused": "it classes worse"}}
RUNS = {"retrain": {"began": NOW - 60.0, "ended": None, "failed": "", "refused": ""}}


def test_models_and_trainings_are_told_of() -> None:
    assert keys(report() | {"trainings": RUNS, "models_refused": {}}) == []
    assert keys(report() | {"trainings": FAILED}) == ["training.failed.retrain"]
    assert keys(report() | {"trainings": KILLED}) == ["training.failed.retrain"]
    (worse,) = conditions(report() | {"trainings": WORSE})
    assert worse.is_event
    assert "--force" in worse.text
    assert keys(report() | {"models_refused": {"size": "its hash is another"}}) == ["model.size"]


EVERYTHING = (
    report(running=False) | {"serve": {"running": False}},
    report(cloud_report={"spend": {}, "counters": {"orphans_collected": 1}}),
    report(fallen_back=FALLEN),
    report() | {"trainings": FAILED, "models_refused": {"size": "its hash is another"}},
    report() | {"trainings": WORSE},
    *(report(**spend(usd)) for usd in (50.0, 80.0, 100.0)),
)


def protected() -> dict[str, Any]:
    found = report()
    found["snapshot"]["cloud"] = {
        "protected": "ten boots have failed",
        "spot_closed": {"until": NOW, "code": "InsufficientInstanceCapacity"},
        "on_demand_open": True,
    }
    return found


def test_each_alert_arrives_at_a_web_and_a_mail_server_and_says_what_to_do(
    tmp_path: Path, mails: tuple[int, list[str]], posts: tuple[int, list[dict[str, Any]]]
) -> None:
    settings = NoticeSettings(
        webhook_file=hook_file(tmp_path, f"http://127.0.0.1:{posts[0]}/hook"),
        mail_to=("admin@example.org",),
        mail_server=f"127.0.0.1:{mails[0]}",
    )
    for found in (*EVERYTHING, protected()):
        notices, told = decide(conditions(found), ToldNotices(), now=NOW, repeat_seconds=DAY)
        late, _ = decide(conditions(found), told, now=NOW + WAIT_SECONDS, repeat_seconds=DAY)
        assert deliver([*notices, *late], settings, "c1") == []
    named = {post["key"] for post in posts[1]}
    assert named == {
        "serve.down",
        "control.down",
        "orphans.7.1",
        "drift.main",
        "model.size",
        "training.failed.retrain",
        f"training.refused.retrain.{NOW - 60.0:.0f}",
        "cloud.protected",
        "pool.spot",
        *(f"budget.2026-09-01.month.100..{percent}" for percent in (50, 80, 100)),
    }
    assert len(mails[1]) == len(EVERYTHING) + 1
    mailed = "\n".join(email.message_from_string(mail).get_payload(decode=True).decode() for mail in mails[1])
    for post in posts[1]:
        assert post["text"].split(": ", 1)[1] in mailed
        assert "`" in post["text"], "it names what to run or set"
