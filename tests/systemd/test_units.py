"""The units are what systemd understands, hardened, and hold no credentials."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.history.schema import SCHEMA_VERSION
from advisor.model.settings import Settings
from advisor.service.state.records import WEB_FOLDER

UNITS = Path(__file__).resolve().parent.parent.parent / "systemd"
HELPER = UNITS / "advisor-places@.service"
PAGES = UNITS / "advisor-web.service"
SERVICES = sorted(unit for unit in UNITS.glob("*.service") if unit not in {HELPER, PAGES})
ALL = [*SERVICES, HELPER, PAGES, *sorted(UNITS.glob("*.timer")), *sorted(UNITS.glob("*.socket"))]
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictSUIDSGID": "yes",
    "User": "advisor",
    "Group": "slurm",
    "StateDirectory": "advisor",
}


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Every ``Name=value`` of a unit; each line must be one, a section or a comment."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if not line or line.startswith("#") or re.fullmatch(r"\[(Unit|Service|Socket|Timer|Install)\]", line):
            continue
        match = re.fullmatch(r"([A-Z]\w+)=(.*)", line)
        assert match, f"{unit.name}: {line!r}"
        found.setdefault(match[1], []).append(match[2])
    return found


def test_all_are_there() -> None:
    assert {unit.name for unit in ALL} == {
        "advisor-serve.service",
        "advisor-serve.socket",
        "advisor-control.service",
        "advisor-retrain.service",
        "advisor-retrain.timer",
        "advisor-notify.service",
        "advisor-notify.timer",
        "advisor-places@.service",
        "advisor-places.socket",
        "advisor-web.service",
        "advisor-web.socket",
    }


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_hardened_and_without_secrets(unit: Path) -> None:
    settings = settings_of(unit)
    assert {name: settings.get(name) for name in HARDENING} == {n: [v] for n, v in HARDENING.items()}
    assert not re.search(r"AWS_|SECRET|PASSWORD|TOKEN", unit.read_text(), re.IGNORECASE)
    commands = settings["ExecStart"]
    assert len(commands) == 1 or settings["Type"] == ["oneshot"]
    assert all(command.lstrip("-").startswith("/opt/advisor/bin/advisor ") for command in commands)


def test_what_is_root_may_only_become_somebody_else_and_only_the_advisor_may_ask() -> None:
    helper, door = settings_of(HELPER), settings_of(UNITS / "advisor-places.socket")
    expected = HARDENING | {"User": "root", "CapabilityBoundingSet": "CAP_SETUID CAP_SETGID"}
    for name in ("Group", "StateDirectory"):
        del expected[name]
    assert {name: helper.get(name) for name in expected} == {n: [v] for n, v in expected.items()}
    assert helper["ExecStart"] == ["/opt/advisor/bin/advisor place-helper"]
    assert (door["SocketUser"], door["SocketMode"], door["Accept"]) == (["advisor"], ["0600"], ["yes"])
    assert Settings().hedge.helper_socket == Path(door["ListenStream"][0])


def test_the_pages_reach_nothing_that_acts() -> None:
    """Nothing to write but a cache and a folder of their own, no Unix socket, no other machine."""
    pages = settings_of(PAGES)
    expected = {name: value for name, value in HARDENING.items() if name != "StateDirectory"}
    assert {name: pages.get(name) for name in expected} == {n: [v] for n, v in expected.items()}
    assert not {"RuntimeDirectory", "ReadWritePaths"} & pages.keys()
    assert pages["StateDirectory"] == [f"{Settings().paths.state.name}/{WEB_FOLDER}"]
    assert str(Settings().paths.state) in pages["ReadOnlyPaths"][0]
    assert str(Settings().paths.run) in pages["ReadOnlyPaths"][0]
    assert pages["RestrictAddressFamilies"] == ["AF_INET AF_INET6"]
    assert (pages["IPAddressDeny"], pages["IPAddressAllow"]) == (["any"], ["localhost"])
    assert pages["ExecStart"] == ["/opt/advisor/bin/advisor web"]
    others = [settings_of(unit)["CPUWeight"][0] for unit in SERVICES]
    assert int(pages["CPUWeight"][0]) <= min(map(int, others))


def test_the_proxys_door_is_for_its_group_alone() -> None:
    door = settings_of(UNITS / "advisor-web.socket")
    assert (door["SocketUser"], door["SocketMode"]) == (["root"], ["0660"])
    assert door["ListenStream"][0] in (UNITS.parent / "docs" / "pages.md").read_text()
    apply = settings_of(UNITS / "advisor-web-apply.conf")
    assert apply == {"ReadWritePaths": ["/etc/advisor"]}


def test_seeds_r2_the_pages_reach_a_database_by_its_unix_socket_where_the_docs_say_so(tmp_path: Path) -> None:
    """What docs/install.md documents works with what is shipped, and gives the pages no other socket."""
    page = (UNITS.parent / "docs" / "install.md").read_text("utf-8")
    section = page[page.index("## PostgreSQL") : page.index("## Secrets")]
    assert 'database_url = "postgresql:///' in section  # no host: libpq takes the Unix socket
    install = re.search(
        r"^install -D -m 0644 systemd/(\S+) (/etc/systemd/system/advisor-web.service.d/\S+)$",
        section,
        re.MULTILINE,
    )
    assert install is not None
    drop_in = settings_of(UNITS / install[1])
    both = settings_of(PAGES)["RestrictAddressFamilies"] + drop_in["RestrictAddressFamilies"]
    assert set(" ".join(both).split()) == {"AF_INET", "AF_INET6", "AF_UNIX"}
    assert drop_in["TemporaryFileSystem"] == ["/run:ro"]  # munge, systemd and D-Bus are gone
    shown = drop_in["BindReadOnlyPaths"][0].split()
    assert shown == [f"-{Settings().paths.run}", "-/run/postgresql"]
    hidden = drop_in["InaccessiblePaths"][0].split()
    assert hidden == [f"-{Settings().paths.submit_socket}", f"-{Settings().paths.control_socket}"]


def test_seeds_r2_the_helper_may_become_somebody_else_and_no_more() -> None:
    """Its children are sbatch as users: setuid and setgroups stay, what else is privileged goes."""
    lines = settings_of(HELPER)["SystemCallFilter"]
    assert lines[0] == "@system-service"
    taken = set(" ".join(line.removeprefix("~") for line in lines[1:]).split())
    assert {"@mount", "@module", "@reboot", "@clock", "@raw-io", "@debug", "@swap", "@chown"} <= taken
    assert not {"@privileged", "@setuid", "@process", "@network-io"} & taken


@pytest.mark.parametrize("name", ["advisor-serve", "advisor-control"])
def test_daemons_say_when_they_are_ready_and_alive(name: str) -> None:
    settings = settings_of(UNITS / f"{name}.service")
    assert settings["Type"] == ["notify"]
    assert int(settings["WatchdogSec"][0]) >= 30
    assert settings["Restart"] == ["always"]


def test_what_ends_instances_is_started_until_it_runs() -> None:
    """After 20 failures in five minutes, as with unreadable settings, nothing started it any more."""
    assert settings_of(UNITS / "advisor-control.service")["StartLimitIntervalSec"] == ["0"]


def test_the_control_socket_can_be_given_to_a_group() -> None:
    """`submit.socket_group`: chown is among the privileged calls, for which systemd kills the process."""
    allowed = set[str]()
    for line in settings_of(UNITS / "advisor-control.service")[
        "SystemCallFilter"
    ]:  # later lines change earlier ones
        words = line.removeprefix("~").split()
        calls = {"@chown", *words} if {"@privileged", "@system-service"} & set(words) else set(words)
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    assert "@chown" in allowed
    assert "@privileged" not in allowed


def test_systemd_opens_the_submit_socket_for_slurmctld_and_closes_it_with_the_service() -> None:
    door, service = settings_of(UNITS / "advisor-serve.socket"), settings_of(UNITS / "advisor-serve.service")
    assert Settings().paths.submit_socket == Path(door["ListenStream"][0])
    assert (door["SocketUser"], door["SocketGroup"]) == (service["User"], service["Group"])
    assert door["SocketMode"] == ["0660"]
    assert door["PartOf"] == ["advisor-serve.service"], "a stopped advisor is not started by the next job"
    assert service["Requires"] == ["advisor-serve.socket"]
    assert "advisor-serve.socket" in service["After"][0].split()
    assert "@chown" not in " ".join(service["SystemCallFilter"])


@pytest.mark.parametrize("door", sorted(UNITS.glob("*.socket")), ids=lambda unit: unit.stem)
def test_no_socket_file_is_left_where_nobody_listens(door: Path) -> None:
    assert settings_of(door)["RemoveOnStop"] == ["yes"]


def test_slurmctld_never_waits_for_the_start_of_a_service_of_ours() -> None:
    """Its restart took 110 s while advisor-serve compiled: seen under a real systemd."""
    for unit in (*SERVICES, HELPER, PAGES):
        assert "Before" not in settings_of(unit), unit.name
    assert settings_of(UNITS / "advisor-serve.socket")["Before"] == ["slurmctld.service"]


def test_the_submit_server_reaches_no_network_and_comes_first() -> None:
    settings = settings_of(UNITS / "advisor-serve.service")
    assert settings["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert settings["PrivateNetwork"] == ["yes"]
    others = [settings_of(unit)["CPUWeight"][0] for unit in SERVICES if unit.stem != "advisor-serve"]
    assert int(settings["CPUWeight"][0]) > max(map(int, others))


def test_systemd_agrees_where_it_is_installed(tmp_path: Path) -> None:
    for unit in ALL:  # the programs are not installed here
        text = unit.read_text().replace("/opt/advisor/bin/advisor", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert all(settings_of(unit) for unit in ALL)  # parsed line by line instead
        return
    done = subprocess.run(
        [analyze, "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    about_ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "advisor-" in line]
    assert about_ours == []
    assert done.returncode == 0, done.stderr


def test_the_package_stops_what_it_removes_and_loads_the_units_it_brings() -> None:
    """debhelper of Debian 12 adds no line for units in /usr/lib: seen under a real systemd."""
    packaging = UNITS.parent / "packaging"
    stops = (packaging / "take_down").read_text()
    missing = [unit.name for unit in ALL if unit.name.replace("@", "@*") not in stops]
    assert missing == []
    for script, word in (("prerm", "take_down"), ("postinst", "daemon-reload"), ("postrm", "daemon-reload")):
        assert word in (packaging / "debian" / script).read_text()
    spec = (packaging / "burst-advisor.spec").read_text()
    assert all(word in spec[spec.index("%preun") : spec.index("%postun")] for word in ("take_down", "-eq 0"))
    assert "set_up packaging/take_down" in (packaging / "install_files").read_text()


def test_the_socket_of_the_pages_is_opened_before_their_service_starts() -> None:
    """systemd refuses to start a socket whose service runs already: seen under a real systemd."""
    page = (UNITS.parent / "docs" / "pages.md").read_text("utf-8")
    stop, start = (
        page.index("systemctl stop advisor-web"),
        page.index("systemctl enable --now advisor-web.socket"),
    )
    assert stop < start


def set_up_history(folder: Path, version: str | None) -> subprocess.CompletedProcess[str]:
    """Run what `set_up` does with a history in SQLite at an upgrade or downgrade of the package."""
    text = (UNITS.parent / "packaging" / "set_up").read_text()
    program = text[text.index("<<'EOF'\n") + 7 : text.index("\nEOF\n")]
    history, copy = folder / "history.db", folder / "history.db.before-upgrade"
    with sqlite3.connect(history) as connection:
        if version is not None:
            connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
            connection.execute("INSERT INTO alembic_version VALUES (?)", (version,))
    copy.write_text("of an earlier upgrade")
    versions = UNITS.parent / "advisor" / "history" / "migrations" / "versions"
    return subprocess.run(
        [sys.executable, "-IS", "-", str(history), str(copy), str(versions)],
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    ("version", "is_copied"), [("0001", True), (None, True), ("now", False), ("9999", False)]
)
def test_only_what_an_upgrade_will_migrate_replaces_the_copy_of_the_history(
    tmp_path: Path, version: str | None, *, is_copied: bool
) -> None:
    """A downgrade put the migrated history in the place of the one that the older release can read."""
    done = set_up_history(tmp_path, SCHEMA_VERSION if version == "now" else version)
    with (tmp_path / "history.db.before-upgrade").open("rb") as file:
        assert (file.read(21) != b"of an earlier upgrade") is is_copied
    assert ("brings" in done.stdout) is is_copied
    assert ("newer release" in done.stderr) is (version == "9999")


def test_a_purge_leaves_no_settings_to_the_next_user_of_that_id() -> None:
    """dpkg knows none of the files in /etc/advisor; that of the notices' webhook has a secret."""
    postrm = (UNITS.parent / "packaging" / "debian" / "postrm").read_text()
    purge = postrm[postrm.index("= purge") : postrm.index("userdel")]
    paths = Settings().paths
    assert {"/etc/advisor", str(paths.state), str(paths.run)} <= set(purge.split())


def test_the_rpm_brings_compiled_modules() -> None:
    """The service's user can write none there: `advisor status` took three times as long."""
    spec = (UNITS.parent / "packaging" / "burst-advisor.spec").read_text()
    install = spec[spec.index("%install") : spec.index("%post")]
    assert install.index("__pycache__") < install.index("-m compileall")
