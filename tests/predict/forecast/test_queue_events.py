"""Codes of names: a job's four codes equal those of its single names."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.job import Job
from advisor.predict.forecast.submission_features import CODED, Codes

NAMES = st.sampled_from([None, "a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"), NAMES, NAMES, st.sampled_from([None, "", "q", "q,r", "r"]), NAMES, st.booleans()
        ),
        st.tuples(
            st.just("put"), st.sampled_from(CODED), st.sampled_from(["a", "b", "q"]), st.integers(0, 9)
        ),
    ),
    max_size=40,
)


def one_by_one(codes: Codes, job: Job, *, learn: bool) -> tuple[int, ...]:
    ask = codes.code if learn else codes.look_up
    queue = job.queue.partition(",")[0] if job.queue else None
    return tuple(
        ask(column, name) for column, name in zip(CODED, (job.user, job.group, queue, job.name), strict=True)
    )


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_codes_of_a_job_equal_those_of_its_names(steps) -> None:
    together, plain = Codes(), Codes()
    for step in steps:
        if step[0] == "put":
            for codes in (together, plain):
                codes.put(*step[1:])
            continue
        _, user, group, queue, name, learn = step
        job = Job(job_id=1, submit_time=0.0, processors=2, user=user, group=group, queue=queue, name=name)
        found = together.submission(job, 5.0, learn=learn)
        assert tuple(found[3:]) == one_by_one(plain, job, learn=learn)
        assert (found.time, found.processors) == (5.0, 2)
    assert together.as_plain() == plain.as_plain()
