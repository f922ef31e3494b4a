"""Settings from file and environment: right ones with their origin, wrong ones with a clear message."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from advisor.config import DEFAULT_PATH, load
from advisor.config import loading as loading_module
from advisor.config.definitions import RETIRED, by_key, definitions, variable_of
from advisor.model.advice import Mode
from advisor.model.errors import BadInput
from advisor.model.settings import Settings


@pytest.fixture
def file(tmp_path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "advisor.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_defaults_without_a_file(monkeypatch, tmp_path):
    monkeypatch.setattr(loading_module, "DEFAULT_PATH", tmp_path / "none.toml")
    loaded = load(None, {})
    assert loaded.settings == Settings()
    assert loaded.path is None
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}
    assert set(loaded.origins) == set(by_key())


def test_slurm_conf_is_the_one_slurms_commands_read_unless_we_are_told_another(file):
    environ = {"SLURM_CONF": "/opt/slurm/etc/slurm.conf"}
    loaded = load(file(""), environ)
    assert loaded.settings.paths.slurm_conf == Path("/opt/slurm/etc/slurm.conf")
    assert str(loaded.origins["paths.slurm_conf"]) == "SLURM_CONF"
    ours = file('[paths]\nslurm_conf = "/etc/ours.conf"\n')
    assert load(ours, environ).settings.paths.slurm_conf == Path("/etc/ours.conf")
    both = load(ours, {**environ, "ADVISOR_PATHS__SLURM_CONF": "/etc/mine.conf"})
    assert both.settings.paths.slurm_conf == Path("/etc/mine.conf")
    assert str(both.origins["paths.slurm_conf"]) == "ADVISOR_PATHS__SLURM_CONF"


def test_the_default_place_is_read_where_it_exists(monkeypatch, file):
    path = file('[cluster]\nname = "hpc"\n')
    monkeypatch.setattr(loading_module, "DEFAULT_PATH", path)
    assert load(None, {}).settings.cluster.name == "hpc"
    assert DEFAULT_PATH.is_absolute()


def test_a_file_and_where_each_value_stands(file):
    path = file(
        'budget.usd = 5\n[cluster]\n# ours\nname = "hpc"\n\n[placement]\n"boot_seconds" = 90\n'
        "[cluster.modes]\nonprem = 'act'\n[budget.accounts]\nchem = 3.5\n"
    )
    loaded = load(path, {})
    assert loaded.settings.cluster.name == "hpc"
    assert loaded.settings.cluster.modes == {"onprem": Mode.ACT}
    assert loaded.settings.placement.boot_seconds == 90.0
    assert loaded.settings.budget.accounts == {"chem": 3.5}
    lines = {key: str(origin) for key, origin in loaded.origins.items() if str(origin) != "default"}
    assert lines == {
        "budget.usd": f"{path}:1",
        "cluster.name": f"{path}:4",
        "placement.boot_seconds": f"{path}:7",
        "cluster.modes": f"{path}:8",
        "budget.accounts": f"{path}:10",
    }


def test_inline_tables_have_an_origin_even_without_a_line(file):
    path = file("placement = {boot_seconds = 7, use_cutoff = false}\n")
    loaded = load(path, {})
    assert loaded.settings.placement.boot_seconds == 7.0
    assert str(loaded.origins["placement.boot_seconds"]) == str(path)


def test_the_environment_overrides_the_file(file):
    path = file("[placement]\nboot_seconds = 90\n")
    environ = {
        "ADVISOR_CONFIG": str(path),
        "ADVISOR_PLACEMENT__BOOT_SECONDS": "30",
        "ADVISOR_PLACEMENT__USE_CUTOFF": "false",
        "ADVISOR_WAITING__LONG_JOB_SECONDS": "inf",
        "ADVISOR_CLUSTER__NAME": "123",
        "ADVISOR_CLUSTER__ON_PREMISE_PARTITIONS": "one, two",
        "ADVISOR_RULES__DENY_USERS": '["eve"]',
        "ADVISOR_BUDGET__ACCOUNTS": "{chem = 3}",
        "ADVISOR_PATHS__DATABASE_URL": "",
        "ADVISOR_TRACES": "ignored",
        "HOME": "ignored",
    }
    loaded = load(None, environ)
    settings = loaded.settings
    assert settings.placement.boot_seconds == 30.0
    assert settings.placement.use_cutoff is False
    assert math.isinf(settings.waiting.long_job_seconds)
    assert settings.cluster.name == "123"
    assert settings.cluster.on_premise_partitions == ("one", "two")
    assert settings.rules.deny_users == ("eve",)
    assert settings.budget.accounts == {"chem": 3.0}
    assert settings.paths.database_url is None
    assert str(loaded.origins["placement.boot_seconds"]) == "ADVISOR_PLACEMENT__BOOT_SECONDS"


WRONG = [
    ("[placement]\nboot_second = 3\n", ":2", "placement.boot_second", "Did you mean placement.boot_seconds?"),
    ("[placment]\nboot_seconds = 3\n", ":1", "placment", "Did you mean placement?"),
    ('policy = "price"\n', "", "policy", "Did you mean cluster.policy?"),
    ("[zzz]\n", ":1", "zzz", "config show"),
    ("[rules]\nboot_seconds = 3\n", ":2", "rules.boot_seconds", "Did you mean placement.boot_seconds?"),
    ("placement = 3\n", ":1", "placement", "[placement]"),
    ("[placement]\nboot_seconds = -3\n", ":2, placement.boot_seconds", "-3", "at least 0"),
    ('[budget]\nperiod = "fortnight"\n', ":2, budget.period", "'fortnight'", "days such as `14d`"),
    ("[placement]\nboot_seconds = true\n", ":2, placement.boot_seconds", "true", "number in s"),
    ("[placement]\nboot_seconds = nan\n", ":2, placement.boot_seconds", "nan", "number in s"),
    ("[budget.accounts]\nchem = true\n", "accounts", "true", "table of name = number"),
    ("[submit]\nallowed_uids = [7, true]\n", ":2, submit.allowed_uids", "true", "list of whole number"),
    (
        "[budget.accounts]\nchem = nan\n",
        "accounts",
        "nan",
        "table of name = number",
    ),
    (
        '[cluster.modes]\nonprem = "on"\n',
        "cluster.modes.onprem",
        "'on'",
        "`shadow` or `advise` or `opt-in` or `act`",
    ),
    (
        '[cluster]\nburst_partition = "onprem"\n',
        "section cluster",
        "also an on-premise",
        "config show cluster",
    ),
    ("[cluster]\non_premise_partitions = []\n", "section cluster", "empty", "config show cluster"),
    ("[portfolio]\nperiod_seconds = 120\n", "section portfolio", "at least twice", "config show portfolio"),
    (
        '[portfolio]\nmax_warm_nodes = 0\nleader = "ODA-WSPT-WorstFit+h2+bf"\n',
        "section portfolio",
        "keeps 2 nodes warm, max_warm_nodes allows 0",
        "config show portfolio",
    ),
    ("[cluster\n", ":1:", "not TOML", '"quotes"'),
    ("[cluster]\nname = hpc\n", ":2:", "not TOML", '"quotes"'),
    ("[cluster]\n[cluster]\n", ":2:", "not TOML", '"quotes"'),
    (b"[cluster]\nname = '\xff'\n", ":2", "UTF-8", "UTF-8"),
    (b"#" * 1_000_001, "", "larger", "settings file"),
]


@pytest.mark.parametrize(("text", "where", "what", "mend"), WRONG)
def test_a_wrong_file_says_where_what_and_how_to_mend(file, text, where, what, mend):
    path = file(text)
    with pytest.raises(BadInput) as caught:
        load(path, {})
    error = caught.value
    assert str(path) in error.where
    assert where in error.where
    assert what in error.what
    assert mend in error.mend


def test_a_user_may_have_the_name_nan(file):
    path = file('[rules]\ndeny_users = ["nan"]\n[cluster]\nname = "nan"\n')
    assert load(path, {}).settings.rules.deny_users == ("nan",)


def test_crlf_and_a_byte_order_mark_are_fine(file):
    path = file(b"\xef\xbb\xbf[placement]\r\nboot_seconds = 5\r\n")
    assert load(path, {}).settings.placement.boot_seconds == 5.0


@pytest.mark.parametrize(
    ("variable", "value", "mend"),
    [
        ("ADVISOR_PLACEMENT__BOOT_SECOND", "3", "Did you mean ADVISOR_PLACEMENT__BOOT_SECONDS?"),
        ("ADVISOR_PLACEMENT__BOOT_SECONDS", "soon", "at least 0"),
        ("ADVISOR_PLACEMENT__BOOT_SECONDS", "nan", "at least 0"),
        ("ADVISOR_CLUSTER__MODES", "onprem=act", "{ name = value"),
    ],
)
def test_a_wrong_variable_is_named(variable, value, mend, monkeypatch, tmp_path):
    monkeypatch.setattr(loading_module, "DEFAULT_PATH", tmp_path / "none.toml")
    with pytest.raises(BadInput) as caught:
        load(None, {variable: value})
    assert variable in str(caught.value)
    assert mend in caught.value.mend


@pytest.mark.parametrize("key", RETIRED)
def test_a_setting_that_is_gone_says_what_to_do(key, file):
    section, name = key.split(".")
    assert key not in by_key()
    for text, environ in (
        (f"[{section}]\n{name} = 1\n", {}),
        ("", {variable_of(section, name): "1"}),
    ):
        with pytest.raises(BadInput) as caught:
            load(file(text), environ)
        assert caught.value.mend == RETIRED[key]
    assert RETIRED[key].startswith("It is the constant ")


def test_a_named_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(BadInput, match="no such file"):
        load(None, {"ADVISOR_CONFIG": str(tmp_path / "none.toml")})


def test_a_folder_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path, {})


def test_definitions_cover_every_setting_and_say_why():
    for definition in definitions():
        assert definition.meaning, definition.key
        assert definition.why, definition.key
        section = getattr(Settings(), definition.section)
        assert getattr(section, definition.name) == definition.default
        assert definition.variable == f"ADVISOR_{definition.section}__{definition.name}".upper()
    assert len(definitions()) == sum(
        len(type(getattr(Settings(), section)).model_fields) for section in Settings.model_fields
    )


def test_loading_reads_nothing_from_this_process(file):
    before = dict(os.environ)
    load(file(""), {})
    assert dict(os.environ) == before


def test_d7_the_default_name_is_refused_where_there_is_a_cloud(tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text('[ec2]\nimage_id = "ami-1"\n')
    with pytest.raises(BadInput, match="end each other's nodes") as caught:
        load(config, {})
    assert "cluster.name" in caught.value.where
    config.write_text('[ec2]\nimage_id = "ami-1"\n[cluster]\nname = "c1"\n')
    assert load(config, {}).settings.cluster.name == "c1"


@pytest.mark.parametrize("name", ["lab?", "lab*", "", "-lab", "a b", "x" * 64, "lab\n"])
def test_d7_a_name_that_ec2_reads_as_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"allowed form|too long|too short"):
        load(None, {"ADVISOR_CLUSTER__NAME": name})


def test_d12_an_infinite_cap_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    for text in (
        "[budget]\nusd = inf",
        "[budget]\naccounts = { chem = inf }",
        "[hedge]\nbudget_usd = inf",
    ):
        config.write_text(f"{text}\n")
        with pytest.raises(BadInput, match="finite"):
            load(config, {})


def test_d12_lists_nested_without_end_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text("a = " + "[" * 100_000)
    with pytest.raises(BadInput, match="nested"):
        load(config, {})
