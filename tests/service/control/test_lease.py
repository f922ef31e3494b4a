"""Two control processes, one folder: one acts, and what the other one does changes nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from advisor.ec2.journal import Intent, Journal
from advisor.files import fence, whole_file
from advisor.files.fence import Fence
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.service.control.lease import SILENCE_SECONDS, Lease
from advisor.service.exchange.lease_file import BEAT, LEASE, read_holder
from advisor.slurm.commands import Commands
from advisor.testing.manual_clock import ManualClock


class Record(msgspec.Struct):
    value: int = 0


class Sides:
    """Two processes with monotonic clocks of their own, as two hosts have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / LEASE).touch()
        self.clocks = {name: ManualClock(steady=start) for name, start in (("a", 5.0), ("b", 9e6))}
        self.leases = {name: self.new(name) for name in "ab"}

    def new(self, name: str) -> Lease:
        return Lease(self.folder, self.clocks[name].clock, host=name, pid=7)

    def take_over(self, name: str) -> Fence:
        """Another one's silence, then a takeover."""
        assert self.leases[name].try_take() is None
        self.clocks[name].pass_by(SILENCE_SECONDS)
        held = self.leases[name].try_take()
        assert held is not None
        return held


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    yield Sides(tmp_path)
    fence.put_in_force(None)


def test_one_takes_it_and_the_other_stands_by(sides: Sides) -> None:
    held = sides.leases["a"].try_take()
    assert held is not None
    assert held.number == 1
    for _ in range(20):  # it lives, for five minutes
        sides.clocks["b"].pass_by(SILENCE_SECONDS - 0.1)
        sides.leases["a"].beat(held)
        assert sides.leases["b"].try_take() is None
    assert sides.leases["b"].holder.host == "a"
    assert read_holder(sides.folder).pid == 7


def test_after_its_silence_the_other_takes_over_and_it_notices(sides: Sides) -> None:
    first = sides.leases["a"].try_take()
    assert first is not None
    second = sides.take_over("b")
    assert second.number == 2
    second.check()
    with pytest.raises(TellAdmin) as caught:
        sides.leases["a"].beat(first)
    assert caught.value.code == "lease.lost"
    assert sides.leases["a"].try_take() is None


def test_wall_clocks_are_not_compared(sides: Sides) -> None:
    sides.clocks["a"].wall += 86_400.0
    held = sides.leases["a"].try_take()
    assert held is not None
    os.utime(sides.folder / BEAT, (0.0, 0.0))
    assert sides.leases["b"].try_take() is None
    sides.clocks["b"].wall += 1e6
    sides.leases["a"].beat(held)
    assert sides.leases["b"].try_take() is None


def test_a_released_lease_is_taken_at_once(sides: Sides) -> None:
    held = sides.leases["a"].try_take()
    assert held is not None
    sides.leases["a"].beat(held, released=True)
    second = sides.leases["b"].try_take()
    assert second is not None
    assert second.number == 2


def test_a_process_on_the_same_host_waits_like_any_other(sides: Sides) -> None:
    assert sides.leases["a"].try_take() is not None
    sides.leases["a"] = sides.new("a")
    assert sides.take_over("a").number == 2


def test_a_folder_without_a_lease_is_a_mount_point_without_its_file_system(sides: Sides) -> None:
    (sides.folder / LEASE).unlink()
    with pytest.raises(FileNotFoundError):
        sides.leases["a"].try_take()
    assert list(sides.folder.iterdir()) == []


def test_a_damaged_lease_is_taken_after_the_silence_with_a_greater_number(sides: Sides) -> None:
    assert sides.leases["a"].try_take() is not None
    (sides.folder / LEASE).write_bytes(b'{"fence":')
    assert sides.take_over("b").number == 2


def test_a_disk_that_cannot_be_written_gives_no_lease(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sides.leases["a"].try_take()
    assert held is not None
    sides.leases["b"].try_take()
    sides.clocks["b"].pass_by(SILENCE_SECONDS)
    real = os.open

    def read_only(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and ".partial" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(whole_file.os, "open", read_only)
    with pytest.raises(OSError, match="Read-only"):
        sides.leases["b"].try_take()
    held.check()  # it still has it: what it launches has to be ended
    monkeypatch.undo()
    assert sides.leases["b"].try_take() is not None
    with pytest.raises(TellAdmin):
        held.check()


def test_a_state_file_has_the_number_and_is_read_without_it(sides: Sides) -> None:
    file = StateFile(sides.folder / "x.json", Record)
    fence.put_in_force(sides.leases["a"].try_take())
    file.write(Record(5))
    assert json.loads(file.path.read_bytes()) == {"fence": 1, "value": 5}
    assert file.read() == Record(5)


@pytest.mark.parametrize("stopped_at", ["open", "fsync", "check", "replace"])
def test_a_writer_that_was_stopped_and_wakes_up_overwrites_nothing(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, stopped_at: str
) -> None:
    file = StateFile(sides.folder / "x.json", Record)
    first = sides.leases["a"].try_take()
    fence.put_in_force(first)
    file.write(Record(1))
    stop_once(monkeypatch, stopped_at, lambda: write_as(sides.take_over("b"), file, first))
    with pytest.raises((TellAdmin, FileNotFoundError)):
        file.write(Record(3))
    assert file.read() == Record(2)


def write_as(held: Fence, file: StateFile[Record], former: Fence | None) -> None:
    """What the other process does, under its own fence."""
    fence.put_in_force(held)
    # its own process number
    file.path.with_name(".other.partial").write_bytes(msgspec.json.encode(Record(2)))
    file.path.with_name(".other.partial").replace(file.path)
    fence.put_in_force(former)


def stop_once(monkeypatch: pytest.MonkeyPatch, at: str, meanwhile: Callable[[], object]) -> None:
    """Let something happen once, just before a step."""
    owner, name = {
        "open": (whole_file.os, "open"),
        "fsync": (whole_file.os, "fsync"),
        "check": (Fence, "check"),
        "replace": (Path, "replace"),
    }[at]
    real = getattr(owner, name)

    def stopped(*arguments: object, **more: object) -> object:
        monkeypatch.setattr(owner, name, real)
        meanwhile()
        return real(*arguments, **more)

    monkeypatch.setattr(owner, name, stopped)


INTENT = Intent(
    token="advisor-1-a",
    nodes=("burst1",),
    option=Capacity.SPOT,
    instance_type="c5.xlarge",
    subnet_id=None,
    requested=Capacity.SPOT,
    time=1.0,
    instances={},
)


@pytest.mark.parametrize("stopped_at", ["check", "fsync"])
def test_an_intent_is_known_to_the_next_holder_or_launches_nothing(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, stopped_at: str
) -> None:
    path = sides.folder / "launches.jsonl"
    first = sides.leases["a"].try_take()
    fence.put_in_force(first)
    journal = Journal(path)
    seen: list[Journal] = []

    def taken_over() -> None:
        fence.put_in_force(sides.take_over("b"))
        seen.append(Journal(path))
        fence.put_in_force(first)

    stop_once(monkeypatch, stopped_at, taken_over)
    with pytest.raises(TellAdmin):
        journal.intend(INTENT)
    monkeypatch.undo()
    fence.put_in_force(None)
    known = [intent.token for intent in seen[0].open_intents()]
    assert known in ([], [INTENT.token])
    # what the old process wrote went into the file that the new one has replaced
    assert [intent.token for intent in Journal(path).open_intents()] == known


def test_an_intent_before_the_takeover_is_known_after_it(sides: Sides) -> None:
    path = sides.folder / "launches.jsonl"
    fence.put_in_force(sides.leases["a"].try_take())
    Journal(path).intend(INTENT)
    fence.put_in_force(sides.take_over("b"))
    assert [intent.token for intent in Journal(path).open_intents()] == [INTENT.token]


def test_a_lost_lease_changes_nothing_in_slurm(sides: Sides, tmp_path: Path) -> None:
    fence.put_in_force(sides.leases["a"].try_take())
    commands = Commands(Path("/usr/bin"), None)
    assert commands.text("echo", "x") == "x\n"
    sides.take_over("b")
    with pytest.raises(TellAdmin) as caught:
        commands.text("touch", str(tmp_path / "changed"))
    assert caught.value.code == "lease.lost"
    assert not (tmp_path / "changed").exists()


def test_a_lease_that_is_gone_is_not_called_a_takeover(sides: Sides) -> None:
    held = sides.leases["a"].try_take()
    assert held is not None
    held.path.unlink()  # the folder is not mounted any more
    with pytest.raises(TellAdmin, match=r"lease\.json is gone: is its folder mounted\?"):
        held.check()
