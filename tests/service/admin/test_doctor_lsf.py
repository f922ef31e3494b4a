"""What the doctor says of a cluster of LSF."""

from __future__ import annotations

from pathlib import Path

from advisor.config import LoadedSettings, load
from advisor.history.models import ModelStore
from advisor.history.parameters import untuned_of
from advisor.model.settings import Settings
from advisor.model.settings_learning import EstimatorSettings
from advisor.predict.knn.features import CUNHA_TABLE_I
from advisor.predict.knn.predictor import Predictor
from advisor.service.admin.doctor import Diagnosis, examine_service
from advisor.service.admin.doctor_lsf import LsfExamination
from advisor.service.submit.models import PREDICTOR_KIND
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue

QUEUES = (
    StandInQueue(name="aws", hosts=()),
    StandInQueue(name="normal", hosts=("here1",), is_default=True),
)


def diagnoses(folder: Path, burst: str, more: str = "") -> list[Diagnosis]:
    """Of a site with two queues; `more` is added to the answer of bqueues, after `normal`."""
    with LsfStandIn(folder / "lsf", hosts={"here1": 8}, queues=QUEUES, max_priority=90) as lsf:
        bqueues = folder / "lsf" / "bin" / "bqueues"
        asked = bqueues.rename(bqueues.with_name("asked"))
        bqueues.write_text(f"#!/bin/sh\n{asked} -l\nprintf '{more}'\n")
        bqueues.chmod(0o755)
        cluster = {"scheduler": "lsf", "on_premise_partitions": ["normal"], "burst_partition": burst}
        paths = {"lsf_envdir": lsf.environment_folder, "state": folder}
        return list(LsfExamination(Settings.model_validate({"cluster": cluster, "paths": paths})).run())


def said(found: list[Diagnosis]) -> str:
    return "\n".join(f"{one.level} {one.check}: {one.what}" for one in found)


def test_a_queue_that_does_not_exist_is_not_one_without_hosts(tmp_path: Path) -> None:
    """The check of the settings names it."""
    (tmp_path / "a").mkdir()
    assert "the queue aws has no host" in said(diagnoses(tmp_path / "a", "aws"))
    (tmp_path / "b").mkdir()
    assert "has no host" not in said(diagnoses(tmp_path / "b", "cloud"))


def test_where_small_jobs_are_first_among_those_of_one_user_alone(tmp_path: Path) -> None:
    found = said(diagnoses(tmp_path, "aws", "USER_SHARES:  [default,1]\n"))
    assert "by bmod -sp 90; with FAIRSHARE only among the jobs of one user: normal" in found


def test_an_empty_knowledge_base_is_filled_from_lsfs_accounting(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir(mode=0o700)
    untuned = untuned_of(EstimatorSettings(), CUNHA_TABLE_I)
    ModelStore(folder=tmp_path / "models").save(PREDICTOR_KIND, *Predictor(untuned, untuned).to_arrays())
    cluster = {"scheduler": "lsf", "policy": "cunha2017"}
    settings = Settings.model_validate({"cluster": cluster, "paths": {"state": tmp_path}})
    found = examine_service(LoadedSettings(settings=settings, origins=load(None, {}).origins), None)
    (mend,) = (one.mend for one in found if one.what == "the knowledge base is empty")
    assert "`advisor ingest lsb.acct FOLDER`" in mend
