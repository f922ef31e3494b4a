"""What is written down about places survives; what makes no sense in it hurts nobody."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from advisor.service.state.hedge_entries import HedgeEntry, HedgeRecord, Phase
from advisor.service.state.state_files import HEDGE_ENTRIES
from tests.full_disk import room_for

KEPT = st.builds(
    HedgeEntry,
    job_id=st.integers(1, 20),
    advice_id=st.text(max_size=20),
    kind=st.sampled_from(["hedge", "speculation"]),
    submitted=st.floats(0, 2e9),
    stop_seconds=st.one_of(st.none(), st.floats(1, 1e6)),
    partition=st.just("onprem"),
    limit_seconds=st.one_of(st.none(), st.floats(60, 1e6)),
    features=st.one_of(st.none(), st.lists(st.text(max_size=5), max_size=3).map(tuple)),
    site_factor=st.integers(0, 10_000),
    phase=st.sampled_from(Phase),
    placeholder=st.integers(0, 1000),
    has_slot=st.booleans(),
)

ENTRY = HedgeEntry(
    job_id=7,
    advice_id="a",
    kind="hedge",
    submitted=1.0,
    stop_seconds=None,
    partition="onprem",
    limit_seconds=None,
    features=("x",),
    site_factor=0,
)


class RecordMachine(RuleBasedStateMachine):
    """A record that is read anew at any moment says what it said before."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.file = HEDGE_ENTRIES.at(Path(self.folder.name))
        self.record, self.expected = HedgeRecord(self.file), dict[int, HedgeEntry]()

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(kept=KEPT)
    def put(self, kept: HedgeEntry) -> None:
        self.record.put(kept)
        self.expected[kept.job_id] = kept

    @rule(kept=KEPT, phase=st.sampled_from(Phase))
    def change(self, kept: HedgeEntry, phase: Phase) -> None:
        self.expected[kept.job_id] = self.record.put(kept, phase=phase, why="changed")
        assert self.expected[kept.job_id].phase is phase

    @rule(job_id=st.integers(1, 20))
    def drop(self, job_id: int) -> None:
        self.record.drop(job_id)
        self.expected.pop(job_id, None)

    @rule()
    def crash(self) -> None:
        self.record = HedgeRecord(self.file)

    @invariant()
    def says_what_was_put(self) -> None:
        assert {kept.job_id: kept for kept in self.record.all()} == self.expected
        assert len(self.record) == len(self.expected)


TestRecord = RecordMachine.TestCase
TestRecord.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)


@given(
    junk=st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["kept", "job_id", "phase", "counts"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
@settings(deadline=None, max_examples=50)
def test_junk_is_left_out(tmp_path_factory, junk: object) -> None:
    path = tmp_path_factory.mktemp("record") / "places.json"
    good = asdict(ENTRY)
    path.write_text(json.dumps({"kept": [junk, good], "counts": {"a": junk, "b": 2}}))
    record = HedgeRecord(HEDGE_ENTRIES.at(path.parent))
    assert 7 in record
    assert record.counts["b"] == 2
    path.write_text(json.dumps(junk))
    assert HedgeRecord(HEDGE_ENTRIES.at(path.parent)).all() is not None


def test_what_cannot_be_written_is_not_taken_for_written(tmp_path: Path) -> None:
    record = HedgeRecord(HEDGE_ENTRIES.at(tmp_path))
    first = record.put(ENTRY)
    with room_for(10):
        with pytest.raises(OSError, match="File too large"):
            record.put(first, is_requeued=True)
        with pytest.raises(OSError, match="File too large"):
            record.put(replace(first, job_id=8))
    assert record.all() == [first] == HedgeRecord(HEDGE_ENTRIES.at(tmp_path)).all()


def test_counts_are_kept(tmp_path: Path) -> None:
    file = HEDGE_ENTRIES.at(tmp_path)
    record = HedgeRecord(file)
    record.count("brought_back")
    record.drop(1)  # nothing there: nothing written
    assert HedgeRecord(file).counts == {}
    record.put(ENTRY)
    assert HedgeRecord(file).counts == {"brought_back": 1}
