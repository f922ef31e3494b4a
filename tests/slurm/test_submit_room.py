"""How many more jobs a user may submit, from what slurmctld 22.05 printed."""

from __future__ import annotations

import pytest

from advisor.model.job import Job
from advisor.model.submit_limits import SubmitKey, submit_keys
from advisor.slurm.submit_room import shares_left

SAID = """Current Association Manager state

Association Records

ClusterName=lab Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lft=1 DefAssoc=No
    GrpSubmitJobs=4000(5) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
ClusterName=lab Account=lab UserName= Partition= Priority=0 ID=3
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpSubmitJobs=770(3) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs=9 MaxWallPJ=
ClusterName=lab Account=bio UserName= Partition= Priority=0 ID=4
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpSubmitJobs=N(3) GrpWall=N(0.00)
ClusterName=lab Account=lab UserName=nobody(65534) Partition= Priority=0 ID=5
    ParentAccount= Lft=3 DefAssoc=Yes
    GrpSubmitJobs=N(3) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs=500(300) MaxWallPJ=

QOS Records

QOS=normal(1)
    GrpJobs=N(4) GrpJobsAccrue=N(1) GrpSubmitJobs=900(450) GrpWall=N(0.00)
    MaxTRESPJ=
    Account Limits
      root
        MaxJobsPA=N(2) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=300(299)
      lab
        MaxJobsPA=N(2) MaxJobsAccruePA=N(1) MaxSubmitJobsPA=300(3)
    User Limits
      0
        MaxJobsPU=N(2) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=50(50)
      65534
        MaxJobsPU=N(2) MaxJobsAccruePU=N(1) MaxSubmitJobsPU=450(300)
"""


LEAST = {
    SubmitKey(account="root"): 3995 / 4000,
    SubmitKey(account="lab"): 767 / 770,
    SubmitKey(account="bio"): 3995 / 4000,  # that of the account above it
    SubmitKey(account="lab", user="nobody"): 0.4,
    SubmitKey(qos="normal"): 0.5,
    SubmitKey(qos="normal", account="root"): 0.0,
    SubmitKey(qos="normal", account="lab"): 0.99,
    SubmitKey(qos="normal", user="0"): 0.0,  # no association of theirs is shown
    SubmitKey(qos="normal", user="nobody"): 150 / 450,
}


def test_what_is_left_of_each_limit() -> None:
    assert shares_left(SAID) == pytest.approx(LEAST)


def test_accounts_above_one_another_in_a_circle_end() -> None:
    said = SAID.replace("ParentAccount=root(1)", "ParentAccount=lab(3)")
    assert shares_left(said)[SubmitKey(account="bio")] == pytest.approx(767 / 770)


@pytest.mark.parametrize(
    ("user", "account", "qos", "least"),
    [
        ("nobody", "lab", "normal", 150 / 450),
        ("nobody", "lab", "other", 0.4),
        ("nobody", "bio", "other", 3995 / 4000),
        ("eve", "lab", "normal", 0.5),
        ("eve", "gone", "other", 1.0),
        (None, None, None, 1.0),
    ],
)
def test_the_least_that_is_left_of_a_jobs_limits(
    user: str | None, account: str | None, qos: str | None, least: float
) -> None:
    job = Job(job_id=1, submit_time=0.0, processors=1, user=user, account=account, qos=qos)
    left = shares_left(SAID)
    assert min(left.get(key, 1.0) for key in submit_keys(job)) == pytest.approx(least)
