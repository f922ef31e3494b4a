"""The doctor's look at Slurm, check by check, on a Slurm that says what a test wants."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.model.advice import Mode
from advisor.model.cluster import Node
from advisor.model.errors import RetryLater
from advisor.model.settings import ClusterSettings, PathSettings, Settings
from advisor.model.settings_cloud import CapacitySettings
from advisor.model.snapshot import ClusterSnapshot, Partition, Reservation
from advisor.service.admin.doctor import Diagnosis, Level
from advisor.service.admin.doctor_hook import HOOK_DEFAULTS
from advisor.service.admin.doctor_slurm import SlurmExamination
from advisor.slurm import hook_files, parsing
from tests.service.doubles import make_look, make_node

SOUND = {
    "JobSubmitPlugins": "lua",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PrivateData": "cloud",
    "SlurmctldParameters": "idle_on_node_suspend,cloud_reg_addrs",
    "PriorityType": "priority/multifactor",
    "SlurmUser": "slurm(64030)",
}


class Talker:
    """Slurm as far as the doctor asks it."""

    def __init__(self, config: Mapping[str, str] = SOUND, *, administrator: bool = True) -> None:
        self.said = dict(config)
        self.administrator = administrator
        self.is_up = True
        self.has_burst = True
        self.release = (22, 5, 8)
        self.nodes: list[Node] = []
        self.suspend_seconds: float | None = None
        self.resume_seconds: int | None = None
        self.reserved: tuple[Reservation, ...] = ()

    def version(self) -> tuple[int, ...]:
        return self.release

    def ping(self) -> bool:
        return self.is_up

    def config(self) -> dict[str, str]:
        return self.said

    def partitions(self) -> tuple[Partition, ...]:
        if not self.has_burst:
            return ()
        return (
            Partition(
                name="burst", is_up=True, nodes="burst[1-2]", total_processors=8, max_minutes=None,
                suspend_seconds=self.suspend_seconds, resume_seconds=self.resume_seconds,
            ),
        )  # fmt: skip

    def reservations(self) -> tuple[Reservation, ...]:
        return self.reserved

    def snapshot(self, now: float) -> ClusterSnapshot:
        return make_look(now, self.nodes)

    def is_administrator(self, user: str) -> bool:
        assert user
        if self.administrator is None:
            raise RetryLater("sacctmgr: cannot reach slurmdbd", code="slurm.command_failed")
        return self.administrator


def examine(slurm: Talker, settings: Settings | None = None) -> dict[str, list[Diagnosis]]:
    found: dict[str, list[Diagnosis]] = {}
    for diagnosis in SlurmExamination(settings or Settings(), slurm).run():
        found.setdefault(diagnosis.check, []).append(diagnosis)
    return found


@pytest.fixture
def common_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1)


def test_a_sound_slurm() -> None:
    found = examine(Talker())
    assert [each.level for each in found["slurm"] + found["slurm.conf"] + found["rights"]] == [Level.OK] * 6


def test_nobody_answers() -> None:
    slurm = Talker()
    slurm.is_up = False
    (only,) = examine(slurm)["slurm"]
    assert only.level is Level.ERROR


@pytest.mark.parametrize(("names", "warns"), [({"burst1", "burst2", "n1"}, True), ({"burst1", "n1"}, False)])
def test_a_maintenance_that_takes_the_cloud_nodes_as_well(names: set[str], *, warns: bool) -> None:
    slurm = Talker()
    slurm.nodes = [make_node("burst1", "IDLE", "CLOUD"), make_node("burst2", "IDLE", "CLOUD")]
    now = time.time()
    slurm.reserved = (
        Reservation(name="maintenance", begin=now + 7200.0, end=now + 9000.0, nodes=frozenset(names)),
    )
    found = [each.what for each in examine(slurm)["cloud nodes"] if "reservation" in each.what]
    assert bool(found) == warns
    if warns:
        assert found[0].startswith("all are in a reservation that begins in 2 h 00 min")


def test_an_old_release() -> None:
    slurm = Talker()
    slurm.release = (21, 8, 0)
    assert examine(slurm)["slurm"][0].level is Level.WARNING


@pytest.mark.parametrize(
    ("missing", "level"),
    [
        ("JobSubmitPlugins", Level.ERROR),
        ("AccountingStorageType", Level.ERROR),
        ("PrivateData", Level.ERROR),
    ],
)
def test_what_slurm_conf_lacks(missing: str, level: Level) -> None:
    found = examine(Talker({name: value for name, value in SOUND.items() if name != missing}))
    bad = [each for each in found["slurm.conf"] if each.level is not Level.OK]
    assert [each.level for each in bad] == [level]
    assert bad[0].mend


@pytest.mark.parametrize(
    ("has", "lacks"),
    [("idle_on_node_suspend", "cloud_reg_addrs"), ("cloud_reg_addrs", "idle_on_node_suspend")],
)
def test_what_slurmctld_parameters_lack(has: str, lacks: str) -> None:
    found = examine(Talker(SOUND | {"SlurmctldParameters": has}))
    (bad,) = [each for each in found["slurm.conf"] if each.level is not Level.OK]
    assert bad.level is Level.WARNING
    assert lacks in bad.what
    assert bad.mend.startswith("Add it")


def test_newer_releases_show_powered_down_nodes_by_themselves() -> None:
    slurm = Talker(SOUND | {"PrivateData": "none"})
    assert any(each.level is Level.ERROR for each in examine(slurm)["slurm.conf"])
    slurm.release = (24, 11, 5)
    assert all(each.level is Level.OK for each in examine(slurm)["slurm.conf"])


@pytest.mark.parametrize(
    ("release", "parameters", "said"),
    [
        ((24, 11, 5), "(null)", ""),
        ((26, 5, 5), "(null)", "requeue_on_resume_failure"),
        ((26, 5, 5), "bf_interval=2,requeue_on_resume_failure", ""),
        ((26, 5, 5), "requeue_on_resume_failure,requeue_delay=1,defer", "requeue_delay=1"),
        ((26, 5, 5), "requeue_delay=10,requeue_on_resume_failure", ""),
    ],
)
def test_what_newer_releases_do_at_a_requeue(release: tuple[int, ...], parameters: str, said: str) -> None:
    slurm = Talker(SOUND | {"SchedulerParameters": parameters})
    slurm.release = release
    bad = [each for each in examine(slurm)["slurm.conf"] if each.level is not Level.OK]
    assert [each.level for each in bad] == ([Level.WARNING] if said else [])
    assert all(said in each.what and each.mend for each in bad)


@pytest.mark.parametrize(
    ("mode", "has_burst", "asks"),
    [(Mode.SHADOW, False, False), (Mode.SHADOW, True, True), (Mode.ACT, False, True)],
)
def test_a_site_that_begins_in_shadow_mode_is_not_asked_for_a_cloud(
    mode: Mode, *, has_burst: bool, asks: bool
) -> None:
    slurm = Talker({name: SOUND[name] for name in ("JobSubmitPlugins", "AccountingStorageType", "SlurmUser")})
    slurm.has_burst = has_burst
    found = examine(slurm, Settings(cluster=ClusterSettings(default_mode=mode)))
    wrong = {each.what for each in found["slurm.conf"] if each.level is not Level.OK}
    assert ("PrivateData=(null) has no cloud" in wrong, "cloud programs" in found) == (asks, asks)
    assert asks or (not wrong and [each.level for each in found["cloud nodes"]] == [Level.OK])


def test_the_program_that_the_site_has_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_files, "_INSTALLED", (tmp_path / "none", tmp_path))
    (tmp_path / "resume").touch()
    said = {each.mend for each in examine(Talker())["cloud programs"] if each.level is Level.ERROR}
    assert f"ResumeProgram={tmp_path}/resume" in said
    assert f"SuspendProgram={hook_files.folder()}/suspend" in said


@pytest.mark.usefixtures("common_user")
@pytest.mark.parametrize(("administrator", "level"), [(True, Level.OK), (False, Level.ERROR)])
def test_the_service_must_be_allowed_to_change_nodes(*, administrator: bool, level: Level) -> None:
    (only,) = examine(Talker(administrator=administrator))["rights"]
    assert only.level is level
    assert level is Level.OK or "sacctmgr" in only.mend


@pytest.mark.usefixtures("common_user")
@pytest.mark.parametrize(("hook", "level"), [(True, Level.WARNING), (False, Level.ERROR)])
def test_shadow_mode_without_a_cloud_changes_nothing_but_admin_comments(*, hook: bool, level: Level) -> None:
    slurm = Talker(administrator=False)
    slurm.has_burst = False
    (only,) = examine(slurm, Settings(cluster=ClusterSettings(hook=hook)))["rights"]
    assert only.level is level


@pytest.mark.parametrize(
    ("told", "level", "said"),
    [
        (None, None, ""),
        ("budget_ms = 50.0\n# a word\nbreaker_failures=2\n", None, ""),
        ("budget_ms = 20\n", Level.WARNING, "its budget_ms is 20, but the settings say 50"),
        ("breaker_seconds = soon\n", Level.WARNING, "its breaker_seconds is soon, but the settings say 10"),
        ("enabled = false\n", Level.WARNING, "switches it off"),
        ("enabled = Off # for now\n", Level.WARNING, "switches it off"),
        ("socket = /elsewhere\n", Level.ERROR, "it connects to /elsewhere"),
    ],
)
def test_what_the_hook_is_told_is_what_the_settings_say(
    tmp_path: Path, told: str | None, level: Level | None, said: str
) -> None:
    if told is not None:
        (tmp_path / "advisor_hook.conf").write_text(told)
    slurm = Talker(SOUND | {"SLURM_CONF": str(tmp_path / "slurm.conf")})
    about = [d for d in examine(slurm)["hook"] if "its " in d.what or "connects" in d.what or "off" in d.what]
    assert [(d.level, said in d.what) for d in about] == ([] if level is None else [(level, True)])


@pytest.mark.parametrize(
    ("partition", "told", "complaints"),
    [
        ("burst", None, 0),
        ("cloud", None, 1),
        ("cloud", "burst_partition = cloud\n", 0),
        ("burst", "handover_folder = /elsewhere\ncontrol_socket=/elsewhere\n", 2),
    ],
)
def test_programs_hand_over_to_where_we_listen(
    tmp_path: Path, partition: str, told: str | None, complaints: int
) -> None:
    if told is not None:
        (tmp_path / "advisor_programs.conf").write_text(told)
    slurm = Talker(SOUND | {"ResumeProgram": str(tmp_path / "resume")})
    settings = Settings(cluster=ClusterSettings(burst_partition=partition, default_mode=Mode.ACT))
    found = [d for d in examine(slurm, settings)["cloud programs"] if d.what.startswith("their ")]
    assert len(found) == complaints
    level = Level.ERROR if partition == "burst" else Level.WARNING
    assert all(d.level is level for d in found)


def test_without_programs_no_file_of_the_folder_we_are_in_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "advisor_programs.conf").write_text("log_fiel = /var/log/x\n")
    monkeypatch.chdir(tmp_path)
    assert not [one for one in examine(Talker())["cloud programs"] if "nothing reads" in one.what]


def test_a_misspelt_key_of_the_programs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "advisor_programs.conf"
    slurm = Talker(SOUND | {"ResumeProgram": str(tmp_path / "resume")})
    path.write_text("# a comment = none\nanswer_seconds = 1\npoll_seconds=1\nlog_fiel = /var/log/x\n")
    (found,) = (one for one in examine(slurm)["cloud programs"] if "nothing reads" in one.what)
    assert (found.level, found.what) == (Level.WARNING, f"{path} sets log_fiel, which nothing reads")
    assert "log_file, poll_seconds, sinfo, slurm_conf, stage_in, stage_in_seconds" in found.mend
    path.write_text("log_file = /var/log/x\n")
    assert not [one for one in examine(slurm)["cloud programs"] if "nothing reads" in one.what]


def test_the_defaults_are_those_of_the_hook_itself() -> None:
    lua = (hook_files.folder() / "advisor_submit.lua").read_text()
    for key, value in HOOK_DEFAULTS.items():
        assert f"  {key} = {value}," in lua or f'  {key} = "{value}",' in lua


@pytest.mark.parametrize(
    ("sections", "by_partition", "by_cluster", "said"),
    [
        ({}, 60.0, "NONE", ""),
        ({"acquirer": {"kept_nodes": 2}}, 60.0, "NONE", "acquirer.kept_nodes"),
        ({"acquirer": {"kept_nodes": 2}}, None, "300 sec", "acquirer.kept_nodes"),
        ({"acquirer": {"kept_nodes": 2}}, 7200.0, "300 sec", ""),
        ({"acquirer": {"kept_nodes": 2}}, None, "NONE", ""),
        ({"acquirer": {"kept_nodes": 2}}, math.inf, "300 sec", ""),
        ({"portfolio": {"enabled": True}}, 30.0, "NONE", "portfolio.steer_nodes"),
        ({"portfolio": {"enabled": True, "steer_nodes": False}}, 30.0, "NONE", ""),
    ],
)
def test_slurmctld_lets_nodes_stay_that_are_to_be_kept(
    sections: dict[str, dict[str, object]], by_partition: float | None, by_cluster: str, said: str
) -> None:
    slurm = Talker(SOUND | {"SuspendTime": by_cluster})
    slurm.nodes, slurm.suspend_seconds = [make_node("burst1", "IDLE", features=("spot",))], by_partition
    found = examine(slurm, Settings.model_validate(sections))["cloud nodes"]
    about = [diagnosis.what for diagnosis in found if "SuspendTime" in diagnosis.what]
    assert len(about) == bool(said)
    assert said in "".join(about)


@pytest.mark.parametrize(
    ("by_partition", "by_cluster", "level"),
    [
        (None, "INFINITE", Level.ERROR),
        (math.inf, "INFINITE", Level.ERROR),
        (math.inf, "300 sec", Level.WARNING),
        (300.0, "INFINITE", None),
        (None, "300 sec", None),
        (None, "", None),
    ],
)
def test_slurmctld_powers_cloud_nodes_up_and_down(
    by_partition: float | None, by_cluster: str, level: Level | None
) -> None:
    slurm = Talker(SOUND | {"SuspendTime": by_cluster})
    slurm.nodes, slurm.suspend_seconds = [make_node("burst1", "IDLE", features=("spot",))], by_partition
    found = [one.level for one in examine(slurm)["cloud nodes"] if "SuspendTime" in one.what]
    assert found == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("by_partition", "by_cluster", "complaints"),
    [(None, "60 sec", 1), (600, "60 sec", 0), (60, "600 sec", 1), (None, "", 0)],
)
def test_the_partitions_own_resume_timeout_is_compared_with_the_boot(
    by_partition: int | None, by_cluster: str, complaints: int
) -> None:
    slurm = Talker(SOUND | {"ResumeTimeout": by_cluster})
    slurm.nodes, slurm.resume_seconds = [make_node("burst1", "IDLE", features=("spot",))], by_partition
    found = [one for one in examine(slurm)["cloud nodes"] if "ResumeTimeout" in one.what]
    assert len(found) == complaints


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"SuspendExcNodes": "(null)", "SuspendExcParts": "(null)", "SuspendExcStates": "(null)"}, ""),
        ({"SuspendExcNodes": "onprem[1-9]", "SuspendExcParts": "onprem"}, ""),
        ({"SuspendExcNodes": "onprem1,burst[2-7]:2"}, "burst2"),
        ({"SuspendExcParts": "onprem,burst"}, "burst[1-2]"),
        ({"SuspendExcStates": "DRAIN,CLOUD"}, "burst[1-2]"),
    ],
)
def test_cloud_nodes_that_stay_up_for_ever_are_told(config: dict[str, str], kept: str) -> None:
    slurm = Talker(SOUND | {"SuspendTime": "300 sec"} | config)
    slurm.nodes = [make_node("burst1", "IDLE"), make_node("burst2", "IDLE")]
    about = [found.what for found in examine(slurm)["cloud nodes"] if "SuspendExc" in found.what]
    assert len(about) == bool(kept)
    assert "".join(about).startswith(kept)


@pytest.mark.parametrize(
    ("matching", "features", "complaints"),
    [
        ({"enabled": True}, ("cloud", "spot"), 1),
        ({"enabled": True}, ("cloud", "spot", "steady"), 0),
        ({"enabled": True, "long_lived_feature": ""}, ("cloud", "spot"), 0),
        ({"enabled": False}, ("cloud", "spot"), 0),
    ],
)
def test_nodes_that_last_can_be_marked(
    matching: dict[str, object], features: tuple[str, ...], complaints: int
) -> None:
    slurm = Talker()
    slurm.nodes = [make_node("burst1", "IDLE", features=features)]
    found = examine(slurm, Settings.model_validate({"matching": matching}))["cloud nodes"]
    assert sum("feature steady" in diagnosis.what for diagnosis in found) == complaints


def test_an_order_of_jobs_needs_factors() -> None:
    settings = Settings.model_validate({"portfolio": {"enabled": True}})
    found = examine(Talker(SOUND | {"PriorityType": "priority/basic"}), settings)["slurm.conf"]
    assert sum("policy's order" in diagnosis.what for diagnosis in found) == 1


def test_an_older_prolog_is_said(tmp_path: Path) -> None:
    own = tmp_path / "prolog_slurmctld"
    own.write_bytes((hook_files.folder() / "prolog_slurmctld").read_bytes())
    for content, complaints in ((b"", 0), (b"# changed", 1)):
        own.write_bytes(own.read_bytes() + content)
        found = examine(Talker(SOUND | {"PrologSlurmctld": str(own)}))["cloud programs"]
        assert sum(str(own) in diagnosis.what for diagnosis in found) == complaints


@pytest.mark.usefixtures("common_user")
def test_a_check_that_cannot_be_made_hurts_no_other() -> None:
    slurm = Talker()
    slurm.administrator = None
    found = examine(slurm)
    assert found["rights"][0].level is Level.ERROR
    assert "hook" in found


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ((("cloud", "spot"), ("cloud", "on-demand")), ""),
        ((("cloud",), ("cloud",)), "never moved"),
        ((("spot", "on-demand"), ("reserved",)), "none can be a spot instance"),
    ],
)
def test_which_nodes_may_be_spot(features: tuple[tuple[str, ...], ...], said: str) -> None:
    slurm = Talker()
    slurm.nodes = [make_node(f"burst{n}", features=those) for n, those in enumerate(features, 1)]
    warnings = [each.what for each in examine(slurm)["cloud nodes"] if each.level is Level.WARNING]
    assert [said in text for text in warnings] == [True] * bool(said)
    without = Settings(capacity=CapacitySettings(use_spot=False))
    assert {each.level for each in examine(slurm, without)["cloud nodes"]} == {Level.OK}


@pytest.mark.parametrize(("said", "setting"), [("0", True), ("1", False), ("1", True), ("0", False)])
def test_who_may_be_requeued_is_said_once(*, said: str, setting: bool) -> None:
    settings = Settings(cluster=ClusterSettings(requeue_default=setting))
    found = examine(Talker({**SOUND, "JobRequeue": said}), settings)["slurm.conf"]
    wrong = [each.mend for each in found if each.level is Level.ERROR]
    assert wrong == (
        [] if (said == "1") is setting else [f"Set cluster.requeue_default = {str(not setting).lower()}"]
    )


@pytest.mark.parametrize(
    ("weights", "offset", "needed"),
    [
        ({}, 1000, None),
        ({"PriorityWeightAge": "1000"}, 1000, 1001),
        ({"PriorityWeightAge": "999"}, 1000, None),
        ({"PriorityWeightFairShare": "10000", "PriorityWeightQOS": "20000"}, 1000, 30_001),
        ({"PriorityWeightTRES": "cpu=1000,mem=2000,gres/gpu=3000"}, 1000, 6001),
        ({"PriorityWeightTRES": "(null)", "PriorityWeightAge": "0"}, 1, None),
        ({"PriorityWeightAge": "1000"}, 0, None),
    ],
)
def test_g15_the_offset_of_small_jobs_is_held_against_the_sites_weights(
    weights: dict[str, str], offset: int, needed: int | None
) -> None:
    settings = Settings.model_validate({"size": {"small_priority_offset": offset}})
    found = [
        each for each in examine(Talker(SOUND | weights), settings)["slurm.conf"] if "small job" in each.what
    ]
    asked = [each for each in found if each.level is Level.WARNING]
    assert len(found) == bool(offset)
    assert [f"size.small_priority_offset = {needed} " in each.mend for each in asked] == [True] * bool(needed)


def test_day_one_16_another_interpreter_makes_a_program_no_other_version(tmp_path: Path) -> None:
    """Where Python lies elsewhere, a site writes that into the first line."""
    ours = hook_files.folder() / "resume"
    _, _, rest = ours.read_text("utf-8").partition("\n")
    installed = tmp_path / "resume"
    installed.write_text(f"#!/opt/python/bin/python3 -IS\n{rest}")
    assert hook_files.is_ours(installed, "resume") is True
    installed.write_text(f"#!/opt/python/bin/python3 -IS\n# changed\n{rest}")
    assert hook_files.is_ours(installed, "resume") is False
    assert hook_files.is_ours(tmp_path / "none", "resume") is None


@pytest.mark.parametrize(
    ("plugins", "script", "said"),
    [
        ("(null)", None, "there is none"),
        ("lua", "return slurm.SUCCESS", "there is none"),
        ("lua", 'dofile("/etc/slurm/advisor_submit.lua")', "none is advised twice"),
    ],
)
def test_g20_2_a_site_without_the_hook_is_sound(
    tmp_path: Path, plugins: str, script: str | None, said: str
) -> None:
    if script is not None:
        (tmp_path / "job_submit.lua").write_text(script)
    slurm = Talker(SOUND | {"JobSubmitPlugins": plugins, "SLURM_CONF": str(tmp_path / "slurm.conf")})
    found = examine(slurm, Settings(cluster=ClusterSettings(hook=False)))
    assert [(each.level, said in each.what) for each in found["hook"]] == [(Level.OK, True)]
    assert not any("JobSubmitPlugins" in each.what for each in found["slurm.conf"])


def test_what_a_second_controller_lacks_is_said(tmp_path: Path) -> None:
    two = SOUND | parsing.config("SlurmctldHost[0]  = ctl1\nSlurmctldHost[1]  = ctl2(10.0.0.2)\n")
    shared = Settings(paths=PathSettings(state=tmp_path, shared=True))

    def said(settings: Settings, config: dict[str, str]) -> list[str]:
        found = SlurmExamination(settings, Talker(config)).run()  # type: ignore[arg-type]
        return [each.what for each in found if "second controller" in each.what]

    assert said(Settings(), two) == ["there is a second controller, ctl2(10.0.0.2)"]
    assert said(shared, two) == []
    assert said(shared, SOUND) == []
