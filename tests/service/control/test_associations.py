"""Users whose associations leave out the burst partition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import pytest

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.rules import let_in
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.service.control.admission import AdmissionFeature
from advisor.service.control.connections import Connections
from advisor.slurm.accounts import partitions_of_users, preempting_qos
from tests.decide.cases import make_job, make_settings
from tests.service.doubles import Hands

ASSOCIATIONS = (
    "|root|\nroot|root|\nann|chem|onprem\nann|chem|burst\nann|phys|onprem\nbob|chem|\nbob|chem|low\n"
)


class Said:
    """sacctmgr, with one answer; and slurm.conf."""

    def __init__(self, answer: str = "", enforce: str = "") -> None:
        self.answer, self.enforce, self.asked = answer, enforce, list[tuple[str, ...]]()
        self.plugin = ""

    def text(self, *command: str) -> str:
        self.asked.append(command)
        return self.answer

    def config(self) -> Mapping[str, str]:
        return {
            "ClusterName": "here",
            "AccountingStorageEnforce": self.enforce,
            "TopologyPlugin": self.plugin,
        }


@pytest.mark.parametrize(
    ("enforce", "kept_out"),
    [("none", frozenset()), ("associations,limits,qos", frozenset({("ann", "phys")}))],
)
def test_who_has_no_association_for_the_burst_partition(
    enforce: str, kept_out: frozenset[tuple[str, str]]
) -> None:
    said = cast("Any", Said(ASSOCIATIONS, enforce))
    settings = Settings.model_validate({"cluster": {"burst_partition": "burst"}})
    connections = Connections(slurm=said, partitions_of_users=partial(partitions_of_users, said))
    feature = AdmissionFeature(settings, connections, Hands().clock)
    assert feature.runners[0].run_once()
    assert feature.publish(SiteState(time=100.0, cluster=None)).kept_out == kept_out
    assert all(command[-1] == "cluster=here" for command in said.asked)
    reasons = [let_in(make_job(user="ann", account=each), kept_out).reason for each in ("phys", "chem")]
    assert reasons == [Reason.NO_ASSOCIATION if kept_out else Reason.MAY_MOVE, Reason.MAY_MOVE]


def test_no_job_is_sent_there_before_it_is_known_whom_slurmctld_refuses() -> None:
    def busy(*_: str) -> Any:
        raise RetryLater("slurmdbd does not answer")

    said, settings, clock = cast("Any", Said("", "associations,limits")), make_settings(), Hands().clock
    site = SiteState(time=100.0, cluster=None)
    for asked in ("partitions_of_users", "limits_in_partition", "nodes_in_topology"):
        said.enforce, said.plugin = "associations,limits", "topology/tree"
        feature = AdmissionFeature(settings, Connections(slurm=said, **{asked: busy}), clock)
        assert "not been read yet" in feature.publish(site).cloud.protected
        assert not feature.runners[0].run_once()
        assert "not been read yet" in feature.publish(site).cloud.protected
        assert feature.period_seconds < 10.0, "and it is asked again soon"
        said.enforce = said.plugin = "none"
        assert feature.runners[0].run_once()
        assert feature.publish(site) == site


def test_the_qos_that_preempt_others() -> None:
    said = cast("Any", Said("normal|\nhigh|normal,low\n"))
    assert preempting_qos(said) == {"high": {"normal", "low"}}
