"""docs/settings.md and the sample are what the definitions say."""

from __future__ import annotations

import tomllib

from advisor.config import load
from advisor.config.definitions import definitions
from advisor.config.reference import reference, sample, toml_text, values_of
from advisor.model.settings import Settings
from tests.conftest import ROOT


def test_the_committed_reference_is_the_generated_one():
    committed = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert committed == reference(), "run: advisor config reference > docs/settings.md"


def test_the_reference_names_everything():
    text = reference()
    for definition in definitions():
        assert f"| `{definition.name}` |" in text


def test_the_sample_as_it_is_changes_nothing(tmp_path):
    path = tmp_path / "advisor.toml"
    path.write_text(sample())
    assert load(path, {}).settings == Settings()


def test_the_sample_uncommented_is_the_defaults(tmp_path):
    path = tmp_path / "advisor.toml"
    lines = []
    for line in sample().splitlines():
        commented_out = line.startswith("#") and not line.startswith("# ")
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
