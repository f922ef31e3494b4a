"""Writing back keeps what people wrote."""

from __future__ import annotations

import stat

import pytest

from advisor.config import load
from advisor.config.editing import former_of, parse_changes, write_back
from advisor.model import BadInput

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
    with pytest.raises(BadInput, match="not a section"):
        write_back(path, {"cluster.name": "hpc"})


def test_no_such_folder(tmp_path):
    with pytest.raises(BadInput, match="cannot be written"):
        write_back(tmp_path / "none" / "advisor.toml", {"cluster.name": "hpc"})


def test_changes_from_the_command_line():
    changes = parse_changes(["placement.boot_seconds=3", "cluster.name = main", 'rules.deny_users=["a"]'])
    assert changes == {"placement.boot_seconds": 3, "cluster.name": "main", "rules.deny_users": ["a"]}
    with pytest.raises(BadInput, match="is not a change"):
        parse_changes(["placement.boot_seconds"])
