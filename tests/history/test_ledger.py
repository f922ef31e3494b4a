"""The ledger of advice: what was decided, for which job, what became of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.engine import Engine

from advisor.history.ledger import Wanted
from advisor.history.records import AdviceRecord, BriefEstimate, decode, encode
from advisor.history.store import HistoryStore
from advisor.model.advice import Advice, Answer, Capacity, Mode, Placement, Quantity, Question, Verdict
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimate, Estimates, SizeEstimate
from advisor.model.job import Job, JobOutcome, JobState

Make = Callable[..., JobOutcome]


def record(
    advice_id: str = "a-1",
    time: float = 1000.0,
    placement: Placement = Placement.BURST,
    mode: Mode = Mode.ACT,
    wait: float = 500.0,
) -> AdviceRecord:
    return AdviceRecord(
        advice=Advice(
            advice_id=advice_id,
            time=time,
            placement=placement,
            partition="burst" if placement is Placement.BURST else None,
            capacity=Capacity.SPOT if placement is Placement.BURST else None,
            mode=mode,
            answers=(
                Answer(question=Question.MAY_MOVE, verdict=Verdict.YES, reason="rule.none"),
                Answer(
                    question=Question.FASTER,
                    verdict=Verdict.YES if placement is Placement.BURST else Verdict.NO,
                    reason="turnaround.cloud_faster",
                    numbers=(("wait", Quantity(wait)), ("cutoff", Quantity(math.inf, "s^2"))),
                    detail="x",
                ),
            ),
            size="small",
            prefer=("spot",),
        ),
        job=Job(job_id=0, submit_time=time, processors=4, user="ann", queue="onprem", features=("a",)),
        estimates=Estimates(
            wait=Estimate(seconds=wait, variance=100.0),
            run=Estimate(seconds=60.0, variance=math.inf),
            size=SizeEstimate(is_small=True, probability_small=0.9, divider_seconds=math.nan),
        ),
    )


def test_a_record_is_plain_json_and_comes_back() -> None:
    line = encode(record(wait=math.nan))
    assert b"\n" not in line
    json.loads(line, parse_constant=pytest.fail)  # no NaN, no Infinity: other languages read it too
    back = decode(line)
    assert math.isnan(back.estimates.wait.seconds)
    assert back.advice.answers[1].numbers[1][1] == Quantity(math.inf, "s^2")
    assert decode(encode(record())).advice == record().advice
    assert decode(encode(record())).job == record().job


def test_what_a_newer_release_adds_is_ignored() -> None:
    content = json.loads(encode(record()))
    content["advice"]["colour"] = "blue"
    assert decode(json.dumps(content)).advice == record().advice


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_anything_else_is_refused(line: bytes | str) -> None:
    with pytest.raises(BadInput):
        decode(line)


@pytest.mark.parametrize("line", [b"[" * 100_000, b" " * 2**21, b'{"advice": 1}', b"\xff"])
def test_hostile_lines_are_refused(line: bytes) -> None:
    with pytest.raises(BadInput):
        decode(line)


def test_a_record_that_cannot_be_read_can_be_found():
    """A newer release wrote it: the admin has to know which row it is."""
    content = json.loads(encode(record())) | {"advice": "of another shape"}
    with pytest.raises(BadInput, match="table advice, the record that begins") as caught:
        decode(json.dumps(content))
    assert json.dumps(content)[:60] in str(caught.value)


def test_advice_is_kept_once(store: HistoryStore) -> None:
    records = [record(f"a-{number}", time=float(number)) for number in range(1500)]
    assert store.add_advice(iter(records)) == 1500
    assert store.add_advice(records) == 0
    found = [decision.record.advice for decision in store.decisions()]
    assert found == [kept.advice for kept in records]
    assert [decision.record.advice.time for decision in store.decisions(since=1490.0)] == [
        float(time) for time in range(1490, 1500)
    ]


def test_old_advice_is_forgotten_with_its_links_a_thousand_at_a_time(
    store: HistoryStore, make_outcome: Make
) -> None:
    store.add_advice(record(f"a-{number:04d}", time=float(number)) for number in range(1500))
    store.add([make_outcome(1, submit=0.0, advice_id="a-0000")])
    store.link("a-0000", 1)
    store.link("a-1400", 2)
    assert [store.forget_before(1400.0) for _ in range(3)] == [1000, 400, 0]
    assert [decision.record.advice.time for decision in store.decisions()] == [
        float(time) for time in range(1400, 1500)
    ]
    assert store.advice_of(1) is None
    assert store.advice_of(2) is not None
    assert len(store.recent(10)) == 1, "its job stays in the history"


def test_decisions_are_read_in_pages(store: HistoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.history.ledger._PAGE", 7)
    store.add_advice(record(f"a-{number:02d}", time=float(number % 2)) for number in range(30))
    found = [decision.record.advice.advice_id for decision in store.decisions()]
    assert sorted(found) == [f"a-{number:02d}" for number in range(30)]


def test_what_sums_need_is_read_without_the_rest(store: HistoryStore) -> None:
    sure = replace(Estimate(seconds=500.0, variance=100.0), lower=400.0, upper=900.0, coverage=0.8)
    moved, stayed = record("a-1", 1000.0), record("a-2", 2000.0, Placement.ON_PREMISE)
    job = replace(moved.job, account="physics")
    store.add_advice([replace(moved, job=job, estimates=Estimates(wait=sure)), stayed])
    first, second = store.brief_decisions()
    assert (first.advice_id, first.placement, first.mode) == ("a-1", Placement.BURST, Mode.ACT)
    assert (first.reason, first.account) == (moved.advice.decisive.reason, "physics")
    assert first.wait == BriefEstimate(seconds=500.0, lower=400.0, upper=900.0, coverage=0.8)
    assert math.isnan(first.run.lower)
    assert (second.placement, second.account) == (Placement.ON_PREMISE, None)
    assert [one.advice_id for one in store.brief_decisions(since=1500.0)] == ["a-2"]


def test_a_sample_is_spread_over_its_time(store: HistoryStore, make_outcome: Make) -> None:
    store.add_advice(record(f"a-{number:02d}", time=float(number)) for number in range(50))
    store.add(
        make_outcome(number, submit=float(number), advice_id=f"a-{number:02d}")
        for number in range(50)
        if number != 20
    )
    found = store.sample(10.0, 40.0, most=7)
    assert [row.advice_id for _, row in found] == ["a-10", "a-15", "a-25", "a-30", "a-35"]  # one still runs
    assert {brief.estimates.wait.seconds for brief, _ in found} == {500.0}
    assert store.sample(60.0, 70.0, most=7) == []


def test_an_advice_is_found_by_its_job(store: HistoryStore) -> None:
    store.add_advice([record("a-1", 1000.0), record("a-2", 9000.0)])
    assert store.advice_of(7) is None
    assert store.link("a-1", 7)
    assert store.link("a-1", 7)
    assert store.link("a-1", 8)  # another task of the same array
    assert not store.link("nonsense", 7)
    found = store.advice_of(7)
    assert found is not None
    assert found.advice == record("a-1").advice
    assert store.advice_of(7, source="other") is None
    store.link("a-2", 7)  # the id came again: the newest advice is meant
    found = store.advice_of(7)
    assert found is not None
    assert found.advice.advice_id == "a-2"
    assert [decision.job_ids for decision in store.decisions()] == [(7, 8), (7,)]


def test_predicted_against_actual(store: HistoryStore, make_outcome: Make) -> None:
    store.add_advice([record()])
    assert list(store.ledger()) == []
    store.add([make_outcome(7, submit=1000.0, wait=130.0, run=90.0, advice_id="a-1", queue="burst")])
    store.set_costs({7: 0.125})
    (row,) = store.ledger()
    assert (row.advice_id, row.job_id, row.user, row.queue) == ("a-1", 7, "ann", "burst")
    assert (row.placement, row.mode, row.size) == (Placement.BURST, Mode.ACT, "small")
    assert row.reason == "turnaround.cloud_faster"
    assert (row.predicted_wait_seconds, row.predicted_wait_variance) == (500.0, 100.0)
    assert (row.predicted_run_seconds, row.predicted_run_variance) == (60.0, math.inf)
    assert (row.actual_wait_seconds, row.actual_run_seconds, row.processors) == (130.0, 90.0, 4)
    assert row.saved_seconds_estimate == 370.0
    assert row.cost_usd == 0.125
    found = store.advice_of(7)
    assert found is not None
    assert found.advice.advice_id == "a-1"


def test_a_job_that_moves_while_it_waits_saves_the_wait_that_was_left(
    store: HistoryStore, make_outcome: Make
) -> None:
    """It had waited ten hours when it moved, and these counted as waited in the cloud."""
    store.add_advice([record(time=37_000.0)])
    store.add([make_outcome(7, submit=1000.0, wait=36_130.0, advice_id="a-1", queue="burst")])
    (row,) = store.ledger()
    assert row.saved_seconds_estimate == 370.0
    (waits,) = store.waits([(0.0, 1e9)])
    assert (waits.with_us, waits.without_us) == (36_130.0, 36_500.0)


def test_forecasts_are_judged_by_the_waits_that_they_could_know(
    store: HistoryStore, make_outcome: Make
) -> None:
    made = {
        1: {},
        2: {"submit": 100.0, "wait": 910.0},  # advised anew while it waited
        3: {"array_job_id": 3},
        4: {"ineligible_seconds": 70.0},
        5: {"restarts": 1},
        6: {"state": JobState.PREEMPTED},
        7: {"submit": 1000.0, "wait": 0.0},  # in the second of its advice
    }
    store.add_advice([record(f"a-{n}", 1000.4, placement=Placement.ON_PREMISE) for n in made])
    store.add([make_outcome(n, advice_id=f"a-{n}", **changes) for n, changes in made.items()])
    judged = {row.job_id: (row.judged_wait_seconds, row.judged_run_seconds) for row in store.ledger()}
    waits = {number: wait for number, (wait, _) in judged.items() if not math.isnan(wait)}
    assert waits == {1: pytest.approx(9.6), 2: pytest.approx(9.6), 6: pytest.approx(9.6), 7: 0.0}
    assert [number for number, (_, run) in judged.items() if math.isnan(run)] == [6]


def test_the_later_tasks_of_an_array_save_what_its_first_one_does(
    store: HistoryStore, make_outcome: Make
) -> None:
    store.add_advice([record()])
    waits = {7: 130.0, 8: 130.0, 9: 90_000.0}  # there is room for two at a time
    store.add(
        make_outcome(number, submit=1000.0, wait=wait, advice_id="a-1", queue="burst")
        for number, wait in waits.items()
    )
    assert {row.job_id: row.actual_wait_seconds for row in store.ledger()} == waits
    assert [row.saved_seconds_estimate for row in store.ledger()] == [370.0] * 3


def test_a_job_its_user_placed_in_the_cloud_is_nobodys_saving(
    store: HistoryStore, make_outcome: Make
) -> None:
    answers = (Answer(question=Question.MAY_MOVE, verdict=Verdict.NO, reason="rule.explicit_burst"),)
    by_hand = record()
    store.add_advice([replace(by_hand, advice=replace(by_hand.advice, answers=answers))])
    store.add([make_outcome(7, advice_id="a-1", queue="burst")])
    (row,) = store.ledger()
    assert row.is_users_choice
    assert row.saved_seconds_estimate is None


@pytest.mark.parametrize(
    "changed", [{"mode": Mode.SHADOW}, {"placement": Placement.ON_PREMISE}, {"wait": math.nan}]
)
def test_nothing_is_saved_where_nothing_was_moved_or_known(
    store: HistoryStore, make_outcome: Make, changed: dict
) -> None:
    store.add_advice([record(**changed)])
    store.add([make_outcome(7, advice_id="a-1")])
    (row,) = store.ledger()
    assert row.saved_seconds_estimate is None
    assert row.cost_usd is None


@pytest.mark.parametrize("linked_first", [True, False])
def test_a_link_joins_a_job_that_does_not_name_its_advice(
    store: HistoryStore, make_outcome: Make, *, linked_first: bool
) -> None:
    store.add_advice([record(time=1001.5)])
    same, other_job = make_outcome(7, submit=1000.0), make_outcome(8, submit=1000.0)
    years_before = make_outcome(7, submit=1000.0 - 1e8)
    if linked_first:
        store.link("a-1", 7)
        store.add([years_before, other_job, same])
    else:
        store.add([years_before, other_job, same])
        store.link("a-1", 7)
    (row,) = store.ledger()
    assert (row.job_id, row.actual_run_seconds) == (7, 100.0)
    joined = {(found.job.job_id, found.job.submit_time): found.advice_id for found in store.outcomes()}
    assert joined == {(7, 1000.0): "a-1", (8, 1000.0): None, (7, 1000.0 - 1e8): None}


def test_the_ledger_begins_where_it_is_asked_to(store: HistoryStore, make_outcome: Make) -> None:
    for number in range(5):
        store.add_advice([record(f"a-{number}", time=float(number))])
        store.add([make_outcome(number, submit=float(number), advice_id=f"a-{number}")])
    assert [row.job_id for row in store.ledger(since=3.0)] == [3, 4]


def test_the_newest_advice_is_read_page_by_page(store: HistoryStore) -> None:
    store.add_advice([record(f"a-{n}", float(n // 2)) for n in range(6)])  # two at each moment
    wanted = Wanted(since=0.0)
    first = store.newest_decisions(wanted, 4)
    assert [one.record.advice.advice_id for one in first] == ["a-5", "a-4", "a-3", "a-2"]
    last = first[-1].record.advice
    rest = store.newest_decisions(wanted, 4, before=(last.time, last.advice_id))
    assert [one.record.advice.advice_id for one in rest] == ["a-1", "a-0"]
    assert len(store.newest_decisions(Wanted(since=2.0), 4)) == 2


def test_advice_is_found_by_what_was_decided(store: HistoryStore) -> None:
    kept = Placement.ON_PREMISE
    store.add_advice([record("a-1"), record("a-2", placement=kept), record("a-3", mode=Mode.SHADOW)])
    store.link("a-3", 77)

    def found(**wanted: Any) -> list[str]:
        page = store.newest_decisions(Wanted(since=0.0, **wanted), 9)
        return sorted(one.record.advice.advice_id for one in page)

    assert found(placement=kept) == ["a-2"]
    assert found(job_id=77) == ["a-3"]
    assert found(user="nobody known") == []
    assert found(reason="turnaround.cloud_faster") == ["a-1", "a-2", "a-3"]
    counts = store.decision_counts(Wanted(since=0.0))
    assert counts[Placement.BURST, Mode.SHADOW, "turnaround.cloud_faster"] == 1
    assert sum(counts.values()) == 3


def test_what_became_of_one_advice(store: HistoryStore, make_outcome: Make) -> None:
    store.add_advice([record("a-1"), record("a-2")])
    store.add(
        [make_outcome(7, submit=1000.0, advice_id="a-1"), make_outcome(6, submit=1000.0, advice_id="a-1")]
    )
    assert [row.job_id for row in store.outcomes_of("a-1")] == [6, 7]
    assert store.outcomes_of("a-2") == store.outcomes_of("none") == []


def test_postgresql_finds_the_advice_of_a_job_by_indexes(postgresql_store: HistoryStore) -> None:
    """Of 400,000 it took 25 s to find what 600 of them belong to no job: all links were read for each."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    store = postgresql_store
    store.add_advice([record("a-1"), record("a-2")])
    store.link("a-1", 7)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert [one.advice.advice_id for one in store.unlinked(0.0)] == ["a-2"]
        assert store.advice_of(7) is not None
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    with store._database.reading() as connection:
        plans = [
            "\n".join(connection.exec_driver_sql(f"EXPLAIN {query}", given).scalars())
            for query, given in asked
            if "FROM advice" in query
        ]
    assert len(plans) == 2
    assert not [plan for plan in plans if "SubPlan" in plan], "asked again for each advice"
