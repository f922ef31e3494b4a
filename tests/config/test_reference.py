"""docs/settings.md and the sample are what the definitions say."""

from __future__ import annotations

import tomllib

import pytest

from advisor.config import check, load
from advisor.config.definitions import definitions
from advisor.config.reference import reference, sample, toml_text, values_of
from advisor.model.settings import Settings
from tests.conftest import ROOT


def test_the_committed_reference_is_the_generated_one():
    committed = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert committed == reference(), "run: advisor config reference > docs/settings.md"


def test_the_reference_names_everything():
    everyday, expert = reference().split("## Expert settings")
    for definition in definitions():
        if definition.expert:
            assert f"| `{definition.key}` |" in expert
        else:
            assert f"| `{definition.name}` |" in everyday


def test_an_admin_can_hold_the_sample_in_the_head(tmp_path):
    """At most 30 settings: those of docs/tune.md's four numbers, the partitions, the money, the cloud."""
    shown = [line for line in sample().splitlines() if line.startswith("#") and line[1:2].isalpha()]
    everyday = [definition.name for definition in definitions() if not definition.expert]
    assert [line[1:].split(" = ")[0] for line in shown] == everyday
    assert len(everyday) <= 30


def test_every_setting_says_what_it_does_and_why_its_default_is_what_it_is():
    for definition in definitions():
        for text in (definition.meaning, definition.why):
            assert len(text.split()) >= 3, definition.key
            assert text.endswith("."), (definition.key, text)


@pytest.mark.parametrize("expert", [False, True])
def test_the_sample_as_it_is_changes_nothing(tmp_path, expert):
    path = tmp_path / "advisor.toml"
    path.write_text(sample(expert=expert))
    loaded = load(path, {})
    assert loaded.settings == Settings()
    assert check(loaded, {"onprem", "burst"}) == []


@pytest.mark.parametrize("expert", [False, True])
def test_the_sample_uncommented_is_the_defaults(tmp_path, expert):
    path = tmp_path / "advisor.toml"
    lines = []
    for line in sample(expert=expert).splitlines():
        commented_out = line.startswith("#") and line[1:2].isalpha()
        lines.append("" if line.endswith("= ...") else line[1:] if commented_out else line)
    path.write_text("\n".join(lines))
    assert load(path, {}).settings == Settings()


def test_every_default_is_written_as_toml_reads_it():
    for key, value in values_of(Settings()).items():
        text = toml_text(value)
        if value is None:
            assert text == ""
            continue
        back = tomllib.loads(f"value = {text}")["value"]
        section, name = key.split(".")
        again = Settings.model_validate({section: {name: back}})
        assert getattr(getattr(again, section), name) == value
