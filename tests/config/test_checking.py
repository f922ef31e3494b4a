"""What no single value can show to be wrong."""

from __future__ import annotations

import pytest

from advisor.config import check, load
from advisor.config.slurm_conf import partition_names


@pytest.fixture
def settings(tmp_path):
    def write(text: str):
        path = tmp_path / "advisor.toml"
        path.write_text(text)
        return load(path, {})

    return write


def test_good_settings_have_no_findings(settings):
    assert check(settings(""), {"onprem", "burst", "gpu"}) == []
    assert check(settings(""), None) == []


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("", "warning"),
        ('[cluster]\nburst_partition = "burst"\n', "error"),
        ('[cluster]\ndefault_mode = "act"\n', "error"),
        ('[cluster.modes]\nonprem = "act"\n', "error"),
    ],
    ids=["not set", "set", "jobs move", "some jobs move"],
)
def test_shadow_mode_needs_no_burst_partition(settings, text, severity):
    found = check(settings(text), {"onprem"})
    assert [f.severity for f in found if f.key == "cluster.burst_partition"] == [severity]


@pytest.mark.parametrize(
    ("text", "key", "severity", "mend"),
    [
        ('[cluster]\nburst_partition = "brust"\n', "cluster.burst_partition", "error", "Did you mean burst?"),
        (
            '[cluster]\non_premise_partitions = ["onprem", "zzz"]\n',
            "cluster.on_premise_partitions",
            "error",
            "It has: burst, onprem",
        ),
        ('[cluster.modes]\nonperm = "act"\n', "cluster.modes", "error", "Did you mean onprem?"),
        ('[paths]\nstate = "var"\n', "paths.state", "error", "whole path"),
        ('[web]\naddress = "0.0.0.0"\n', "web.address", "warning", "proxy with TLS"),
        ('[web]\naddress = "controller"\n', "web.address", "warning", "proxy with TLS"),
        (f'[paths]\nrun = "/{"r" * 100}"\n', "paths.run", "error", "shorter"),
        (
            '[rules]\nallow_users = ["eve"]\ndeny_users = ["eve"]\n',
            "rules.deny_users",
            "warning",
            "Deny wins",
        ),
        ('[rules]\nopt_out_comment = "stay here"\n', "rules.opt_out_comment", "error", "one word"),
        ('[rules]\nopt_out_comment = "advisor:stay"\n', "rules.opt_out_comment", "error", "colon"),
        ('[hedge]\nopt_out_comment = "stay;here"\n', "hedge.opt_out_comment", "error", "colon"),
        ('[cluster]\nopt_in_comment = " burst "\n', "cluster.opt_in_comment", "error", "a space"),
        ('[cluster]\ndefault_mode = "act"\n', "ec2.image_id", "warning", "AMI"),
        ("[submit]\nbudget_seconds = 0.4\n", "submit.budget_seconds", "warning", "0.05"),
        ("[loops]\nsnapshot_seconds = 60\n", "loops.snapshot_seconds", "error", "twice as often"),
    ],
)
def test_findings(settings, text, key, severity, mend):
    found = check(settings(text), {"onprem", "burst"})
    assert {finding.key for finding in found} == {key}
    assert found[0].severity == severity
    assert mend in found[0].mend
    assert found[0].what


@pytest.mark.parametrize(
    ("policy", "text", "key", "what"),
    [
        ("price", "[waiting]\nshort_wait_seconds = 900\n", "waiting.short_wait_seconds", "sets it to 0.0"),
        ("price", "[placement]\ncutoff_minutes = 30\n", "placement.cutoff_minutes", 'only "cunha2017" reads'),
        ("cunha2017", "[hedge]\nenabled = true\n", "hedge.enabled", 'policy "cunha2017" sets it to false'),
        ("cunha2017", "[promise]\nenabled = true\n", "promise.enabled", "sets it to false"),
        ("ambati2021", "[promise]\nusd_per_job = 2\n", "promise.usd_per_job", 'only "price" reads it'),
        ("agarwal2023", "[price]\nloss_weight = 2\n", "price.loss_weight", 'only "price" reads it'),
        ("deng2013", "[acquirer]\nkept_nodes = 2\n", "acquirer.kept_nodes", "sets it to 0"),
    ],
)
def test_a_setting_that_the_policy_ignores_or_replaces(settings, policy, text, key, what):
    (found,) = check(settings(f'{text}[cluster]\npolicy = "{policy}"\n'), None)
    assert (found.key, found.severity) == (key, "warning")
    assert what in found.what


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("price", "[hedge]\nenabled = true\n[price]\nloss_weight = 2\n"),
        ("price", "[promise]\nenabled = true\nconfidence = 0.9\n"),
        ("ambati2021", "[waiting]\nshort_wait_seconds = 900\n"),
        ("agarwal2023", "[acquirer]\nkept_nodes = 2\n[matching]\nenabled = true\n"),
        ("cunha2017", "[hedge]\nenabled = false\n"),
    ],
)
def test_settings_that_hold_under_the_policy(settings, policy, text):
    assert check(settings(f'{text}[cluster]\npolicy = "{policy}"\n'), None) == []


def test_errors_come_first(settings):
    found = check(settings('[cluster]\ndefault_mode = "act"\nburst_partition = "x"\n'), {"onprem"})
    assert [finding.severity for finding in found] == ["error", "warning"]
    assert ":3" in found[0].where


def test_partitions_of_a_slurm_conf(tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "# PartitionName=old\nPartitionName=DEFAULT State=UP\n"
        "partitionname=onprem Nodes=n1\ninclude more.conf\n"
    )
    assert partition_names(conf) is None
    (tmp_path / "more.conf").write_text("PartitionName=burst,gpu Nodes=c1\n")
    assert partition_names(conf) == {"onprem", "burst", "gpu"}
    assert partition_names(tmp_path / "none.conf") is None


def test_a_slurm_conf_that_includes_itself_ends(tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text("PartitionName=a\nInclude slurm.conf\n")
    assert partition_names(conf) is None
