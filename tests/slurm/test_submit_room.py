"""How many more jobs a user may submit, from what slurmctld 22.05 printed."""

from __future__ import annotations

import pytest

from advisor.slurm.submit_room import least_left

SAID = """Current Association Manager state

Association Records

ClusterName=lab Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lft=1 DefAssoc=No
    GrpSubmitJobs=4000(5) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
ClusterName=lab Account=lab UserName= Partition= Priority=0 ID=3
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpSubmitJobs=77(3) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs=9 MaxWallPJ=
ClusterName=lab Account=bio UserName= Partition= Priority=0 ID=4
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpSubmitJobs=N(3) GrpWall=N(0.00)
ClusterName=lab Account=lab UserName=nobody(65534) Partition= Priority=0 ID=5
    ParentAccount= Lft=3 DefAssoc=Yes
    GrpSubmitJobs=N(3) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs=5(3) MaxWallPJ=

QOS Records

QOS=normal(1)
    GrpJobs=N(4) GrpJobsAccrue=N(1) GrpSubmitJobs=900(880) GrpWall=N(0.00)
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
        MaxJobsPU=N(2) MaxJobsAccruePU=N(1) MaxSubmitJobsPU=50(44)
"""


@pytest.mark.parametrize(
    ("user", "account", "qos", "found"),
    [
        (("nobody", "65534"), "lab", "normal", (2, 20 / 900)),
        (("nobody", "65534"), "lab", "other", (2, 0.12)),
        (("nobody", "65534"), "bio", "other", (6, 0.12)),
        (("eve", "7"), "bio", "other", (3995, 3995 / 4000)),
        (("eve", "7"), "lab", "normal", (20, 20 / 900)),
        (("eve", "7"), "gone", "other", (0, 1.0)),
    ],
)
def test_what_is_left(user: tuple[str, str], account: str, qos: str, found: tuple[int, float]) -> None:
    left, share = least_left(SAID, user, account, qos)
    assert (left, share) == (found[0], pytest.approx(found[1]))
