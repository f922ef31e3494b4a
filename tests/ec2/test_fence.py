"""A process that has lost the lease launches and ends no instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor.ec2.fleet import Fleet
from advisor.files import fence
from advisor.files.fence import Fence
from advisor.model.errors import TellAdmin
from advisor.testing.ec2 import Ec2Emulator

pytestmark = pytest.mark.ec2


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "lease.json"
    path.write_bytes(b"7")
    fence.put_in_force(Fence(path, 7, b"7"))
    yield path
    fence.put_in_force(None)


def test_a_client_token_has_the_number(lease: Path, start_fleet: Callable[..., Fleet]) -> None:
    fleet = start_fleet()
    fleet.resume(["burst1"])
    ((_, intent),) = fleet.journal.instances().values()
    assert intent.token.startswith("advisor-7-")
    assert len(intent.token) == 56


def test_without_the_lease_nothing_is_launched_and_nothing_is_ended(
    lease: Path, start_fleet: Callable[..., Fleet], emulator: Ec2Emulator
) -> None:
    fleet = start_fleet()
    launched = fleet.resume(["burst1"]).launched[0].instance_id
    lease.write_bytes(b"8")
    with pytest.raises(TellAdmin):
        fleet.resume(["burst2"])
    with pytest.raises(TellAdmin):
        fleet.terminate([launched])
    assert [item.instance_id for item in fleet.instances() if item.is_alive] == [launched]


def test_a_launch_of_the_former_holder_is_repeated_with_its_token(
    lease: Path, start_fleet: Callable[..., Fleet], emulator: Ec2Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped after its last look at the lease, and its call arrives after that of the next holder."""
    first = start_fleet()
    call = first._launches._launcher._ec2.run_instances
    found: list[str] = []

    def late(**request: object) -> object:
        lease.write_bytes(b"8")
        fence.put_in_force(Fence(lease, 8, b"8"))
        found.extend(item.instance_id for item in start_fleet().recover({"burst1"}))
        return call(**request)

    monkeypatch.setattr(first._launches._launcher._ec2, "run_instances", late)
    first.resume(["burst1"])
    assert [item.instance_id for item in first.instances() if item.is_alive] == found
    assert len(found) == 1
