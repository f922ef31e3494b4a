"""Writing back keeps what people wrote."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from advisor.config import load
from advisor.config.editing import former_of, parse_changes, take_back, write_back
from advisor.model.errors import BadInput

OURS = '# our site\n[placement]\n# measured in May\nboot_seconds = 90  # s\n\n[cluster]\nname = "hpc"\n'


def test_comments_order_and_mode_stay(tmp_path):
    path = tmp_path / "advisor.toml"
    path.write_text(OURS)
    path.chmod(0o640)
    write_back(path, {"placement.boot_seconds": 75.5, "rules.deny_users": ["eve"]})
    text = path.read_text()
    assert text.startswith("# our site\n[placement]\n# measured in May\nboot_seconds = 75.5  # s\n")
    assert 'deny_users = ["eve"]' in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    settings = load(path, {}).settings
    assert settings.placement.boot_seconds == 75.5
    assert settings.cluster.name == "hpc"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["advisor.toml", "advisor.toml.old"]
    assert former_of(path).read_text() == OURS
    assert stat.S_IMODE(former_of(path).stat().st_mode) == 0o640


def test_a_new_file_is_made(tmp_path):
    path = tmp_path / "advisor.toml"
    write_back(path, {"cluster.name": "hpc"})
    assert load(path, {}).settings.cluster.name == "hpc"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"placement.boot_second": 1}, "no setting"),
        ({"portfolio.judged_jobs": 1}, "the constant 1,000 jobs now"),
        ({"placement.boot_seconds": -1}, "-1 is too small"),
        ({"cluster.policy": "best"}, "cunha2017"),
    ],
)
def test_a_wrong_change_leaves_the_file_alone(tmp_path, changes, what):
    path = tmp_path / "advisor.toml"
    path.write_text(OURS)
    with pytest.raises(BadInput, match=what) as caught:
        write_back(path, changes)
    assert ".partial" not in str(caught.value)
    assert path.read_text() == OURS
    assert [entry.name for entry in tmp_path.iterdir()] == ["advisor.toml"]


def test_a_broken_file_is_reported_not_overwritten(tmp_path):
    path = tmp_path / "advisor.toml"
    path.write_text("[cluster\n")
    with pytest.raises(BadInput, match="not TOML"):
        write_back(path, {"cluster.name": "hpc"})
    assert path.read_text() == "[cluster\n"
    path.write_text("cluster = 3\n")
    with pytest.raises(BadInput, match=r"Write \[cluster\] on a line of its own"):
        write_back(path, {"cluster.name": "hpc"})


def test_no_such_folder(tmp_path):
    with pytest.raises(BadInput, match="cannot be written"):
        write_back(tmp_path / "none" / "advisor.toml", {"cluster.name": "hpc"})


def test_changes_from_the_command_line():
    changes = parse_changes(["placement.boot_seconds=3", "cluster.name = main", 'rules.deny_users=["a"]'])
    assert changes == {"placement.boot_seconds": 3, "cluster.name": "main", "rules.deny_users": ["a"]}
    with pytest.raises(BadInput, match="is not a change"):
        parse_changes(["placement.boot_seconds"])
    deep = "[" * 10_000
    assert parse_changes([f"cluster.name={deep}"]) == {"cluster.name": deep}  # refused when it is checked


def test_the_owner_and_the_group_stay(tmp_path):
    path = tmp_path / "advisor.toml"
    path.write_text(OURS)
    path.chmod(0o640)
    if os.geteuid() == 0:  # only root may give a file away
        os.chown(path, 1234, 2345)
    before = path.stat()
    write_back(path, {"placement.boot_seconds": 75.5})
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_the_file_behind_a_link_is_changed_for_all_hosts_that_have_the_link(tmp_path):
    (tmp_path / "shared").mkdir()
    path, link = tmp_path / "shared" / "advisor.toml", tmp_path / "advisor.toml"
    path.write_text(OURS)
    link.symlink_to(path)
    write_back(link, {"placement.boot_seconds": 75.5})
    assert link.readlink() == path
    assert load(path, {}).settings.placement.boot_seconds == 75.5
    assert former_of(link).read_text() == OURS
    assert take_back(link)
    assert path.read_text() == OURS
    assert link.is_symlink()


@pytest.mark.parametrize("key", ["ec2.image_id", "ec2.key_name"])
def test_a_section_that_goes_on_behind_another_one_is_changed(tmp_path, key):
    path = tmp_path / "advisor.toml"
    path.write_text(
        '[ec2]\nimage_id = "ami-1"\n\n[web]\nport = 9420  # ours\n\n'
        '[ec2.classes.gpu]\nnodes = "g[1-2]"\ninstance_types = ["g5.xlarge"]\n'
        "cores = 2\nmemory_mb = 1000\non_demand_usd_per_hour = 1.0\n"
    )
    write_back(path, {key: "new", "cluster.name": "hpc"})
    ec2 = load(path, {}).settings.ec2
    assert getattr(ec2, key.partition(".")[2]) == "new"
    assert list(ec2.classes) == ["gpu"]
    assert "port = 9420  # ours" in path.read_text()
    write_back(path, {"ec2.key_name": None})
    assert load(path, {}).settings.ec2.key_name is None


def test_a_mark_of_the_files_encoding_does_no_harm(tmp_path):
    path = tmp_path / "advisor.toml"
    path.write_text(OURS, "utf-8-sig")
    write_back(path, {"placement.boot_seconds": 75.5})
    assert load(path, {}).settings.placement.boot_seconds == 75.5


def test_a_full_disk_is_not_taken_for_a_missing_right(tmp_path, monkeypatch):
    def full(_descriptor, _mode):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "advisor.toml"
    path.write_text(OURS)
    monkeypatch.setattr("advisor.config.editing.os.fchmod", full)
    with pytest.raises(BadInput, match="No space left") as caught:
        write_back(path, {"placement.boot_seconds": 75.5})
    assert "Run the command as" not in caught.value.mend
    assert path.read_text() == OURS
