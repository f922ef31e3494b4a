"""Stage-ins: their speed is learned, and a job whose data did not come is brought back, whole."""

from __future__ import annotations

import pytest

from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.staging import StageIns
from advisor.service.exchange.staged import Staged, decode
from tests.service.cloud.rig import Rig, comment, rig
from tests.service.doubles import make_queued

__all__ = ["rig"]


def stage_ins(rig: Rig) -> StageIns:
    return StageIns(rig.context, give_back=rig.provision.give_back)


def ended(job: int, seconds: float, *, ok: bool = True) -> Staged:
    return Staged(v=1, job=job, seconds=seconds, ok=ok)


def test_the_speed_is_known_after_three(rig: Rig) -> None:
    job = make_queued(7, state="CONFIGURING", queue="burst", comment="data=20GB")
    rig.look(jobs=[job])
    for seconds in (100.0, 200.0):
        assert stage_ins(rig).ended(ended(7, seconds))
    assert rig.cloud.staging_mb_per_second is None
    assert stage_ins(rig).ended(ended(7, 50.0))
    assert rig.cloud.staging_mb_per_second == 100.0  # 8 of 10 come as fast


def test_a_job_that_nobody_knows_is_not_settled(rig: Rig) -> None:
    rig.look()
    assert not stage_ins(rig).ended(ended(7, 5.0))
    assert not stage_ins(rig).ended(ended(7, 5.0, ok=False))
    assert rig.provision.returning == set()


@pytest.mark.parametrize("requeue", [True, False])
def test_a_job_whose_data_did_not_come_returns(rig: Rig, *, requeue: bool) -> None:
    def shown(state: str, *, may_requeue: bool) -> QueuedJob:
        return make_queued(7, state, admin_comment=comment(), queue="burst", requeue=may_requeue)

    rig.look(jobs=[shown("CONFIGURING", may_requeue=requeue)])
    assert stage_ins(rig).ended(ended(7, 5.0, ok=False))
    # slurmctld must not end a job that may not be requeued: it has not begun
    assert rig.slurm.told == ([] if requeue else [("job", (7,), {"requeue": "1"})])
    rig.provision.return_jobs()
    assert len(rig.slurm.told) == int(not requeue)  # not before slurmctld has requeued it
    rig.look(jobs=[shown("PENDING", may_requeue=True)])
    rig.provision.return_jobs()
    kept = {} if requeue else {"requeue": "0"}
    assert rig.slurm.told[-1] == ("job", (7,), {"partition": "onprem", "starttime": "now", **kept})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b'{"v":2,"op":"staged","job":1,"seconds":1,"ok":true}',
        b'{"v":1,"op":"staged","job":0,"seconds":1,"ok":true}',
        b'{"v":1,"op":"staged","job":1,"seconds":-1,"ok":true}',
        b'{"v":1,"op":"staged","job":1,"seconds":1}',
        b'{"v":1,"op":"turn"}',
    ],
)
def test_other_messages_are_none(line: bytes) -> None:
    assert decode(line) is None
