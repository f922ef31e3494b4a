"""Files of others, on a file server too."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from advisor.files.whole_file import read_plain_file, replace_file
from advisor.model.errors import BadInput, UseFallback
from advisor.service.admin.plots import refuse_unwritable, write_page
from advisor.service.exchange import snapshot, status_file
from advisor.service.submit.state_holder import _signature_of


def failing(monkeypatch: pytest.MonkeyPatch, code: int, times: int) -> None:
    """Let the next openings fail."""
    left, opened = [code] * times, os.open

    def tried(*arguments: Any) -> int:
        if left:
            raise OSError(left[0], os.strerror(left.pop()))
        return opened(*arguments)

    monkeypatch.setattr(os, "open", tried)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_root_does_not_replace_a_device_by_a_page(tmp_path: Path) -> None:
    """``--out /dev/null`` made a file of it, in which no other user could write."""
    device = tmp_path / "null"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for write in (refuse_unwritable, lambda path: write_page(path, "title", "about", [])):
        with pytest.raises(BadInput) as caught:
            write(device)
        assert caught.value.code == "plot.unwritable"
    with pytest.raises(OSError, match="device"):
        replace_file(device, b"")
    assert device.is_char_device()


def test_a_page_goes_where_a_link_leads_and_the_link_stays(tmp_path: Path) -> None:
    link, target = tmp_path / "stdout", tmp_path / "page.html"
    link.symlink_to(target)
    refuse_unwritable(link)
    write_page(link, "title", "about", [])
    assert link.is_symlink()
    assert "title" in target.read_text()


def test_a_file_that_another_host_replaces_meanwhile_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "budget.json").write_text("{}")
    failing(monkeypatch, errno.ESTALE, 1)
    assert read_plain_file(tmp_path / "budget.json", 9) == b"{}"


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_nobody_is_told_to_remove_a_file_that_a_server_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "budget.json").write_text("{}")
    failing(monkeypatch, code, 2)
    with pytest.raises(BadInput, match=os.strerror(code)) as caught:
        read_plain_file(tmp_path / "budget.json", 9)
    assert caught.value.mend == "Check the disk or file server that it is on"


def test_what_daemons_read_of_each_other_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on NFS 4.2: a file that is replaced every few seconds is stale in one opening of four."""
    path = tmp_path / status_file.NAME
    path.write_text("{}")
    opened, stale = Path.open, [path]

    def tried(self: Path, *arguments: Any, **options: Any) -> Any:
        if self in stale:
            stale.remove(self)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", tried)
    assert status_file.read(tmp_path) == {}
    stale.append(path)
    assert _signature_of(path) is not None
    stale.append(path)
    with pytest.raises(UseFallback, match=r"decode|truncated|Expected"):
        snapshot.read(path)
    stale += [path] * 2
    with pytest.raises(UseFallback, match=os.strerror(errno.ESTALE)):
        status_file.read(tmp_path)
