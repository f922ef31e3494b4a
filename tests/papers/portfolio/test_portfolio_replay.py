"""The replay: what may be known when, and that nothing of the future is used."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.decide.portfolio.portfolio_options import CHAMPION, Options
from advisor.decide.portfolio.replay_knowledge import Knowledge, Leadership, prepared
from advisor.model.errors import BadInput
from advisor.papers.portfolio.portfolio_replay import replay
from advisor.replay.sources import load_table
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes, replay_policy
from advisor.simulate.portfolio.policies import PUBLISHED


def test_the_last_charge_holds_on():
    charge = Leadership(np.array([3, 4]), [CHAMPION, 0])
    assert [charge.after(known) for known in (0, 1, 2, 99)] == [(3, CHAMPION), (4, 0), (4, 0), (4, 0)]


def test_nothing_is_known_of_run_times_that_are_not_over():
    """With guessed run times no job had run for longer, at a checkpoint that is known, than it has here."""
    log = prepared(load_table("synthetic:300"), Cloud(), None)
    options = Options(runtimes=Runtimes.PREDICTED)
    slow, quick = PUBLISHED[12], PUBLISHED[0]  # ODB leads, and ODA alongside starts many jobs before it
    earliest = np.min(
        [replay_policy(log, Cloud(), Runtimes.PREDICTED, one)[2] for one in (slow, quick)], axis=0
    )
    cluster = RentedCluster(log, Cloud(), Runtimes.PREDICTED, [slow], 3600.0)
    known, foresees = Knowledge(log, options, earliest), Knowledge(log, Options(), earliest)
    hidden = seen = 0
    while not cluster.advance(chooses=True):
        count, every = known.checkpoints(cluster), foresees.checkpoints(cluster)
        moment = log.submit[0] + 3600.0 * count
        job = cluster.state.job
        ran_there = np.minimum(np.maximum(moment - earliest, 0.0), log.run)
        started = np.nan_to_num(job["start"], nan=np.inf)
        ran_here = np.where(np.isnan(job["end"]), np.maximum(cluster.now - started, 0.0), log.run)
        assert count == 0 or (ran_there <= ran_here).all()
        assert count <= every
        hidden += every - count
        seen += count
        cluster.apply(0, 3600.0)
    assert hidden > 0
    assert seen > 0


@pytest.mark.parametrize("evidence", [0.0, 1.0])
def test_the_future_changes_nothing(monkeypatch, evidence):
    """Choices made on the first half of a log are the same when the second half is another."""
    whole = prepared(load_table("synthetic:240"), Cloud(), None)
    half = whole.select(slice(0, 120))
    options = Options(
        runtimes=Runtimes.PREDICTED, policies=PUBLISHED[::7] + PUBLISHED[-1:], evidence=evidence
    )
    monkeypatch.setattr("advisor.decide.portfolio.replay_knowledge.PRIOR_WORKLOADS", ("synthetic:200:1",))
    uses = [replay(log, options, lambda *_: None).uses[-1] for log in (whole, half)]
    early = [
        [(moment, policy) for moment, policy in zip(use.moments, use.policies, strict=True) if moment < end]
        for use in uses
        for end in [float(half.submit[-1])]
    ]
    assert early[0] == early[1]
    assert len(early[0]) > 20


def test_wide_jobs_are_left_out_and_none_left_is_refused():
    log = load_table("synthetic:300")
    assert prepared(log, Cloud(), None).processors.max() <= 64
    with pytest.raises(BadInput):
        prepared(log.select(log.processors > 64), Cloud(), None)
