"""Job ids as Slurm's users type them, and no others."""

from __future__ import annotations

import pytest

from advisor.model.errors import BadInput
from advisor.model.job_id import parse_job_id


@pytest.mark.parametrize(
    ("text", "job", "name", "task", "part"),
    [
        ("95", 95, "95", None, None),
        (" 95\n", 95, "95", None, None),
        ("95_2", 95, "95_2", 2, None),
        ("95_0", 95, "95_0", 0, None),
        ("95_[1-4]", 95, "95", None, None),
        ("95_[1,3-5:2%2]", 95, "95", None, None),
        ("95_[1-3,...]", 95, "95", None, None),
        ("97+1", 97, "97+1", None, 1),
        ("97+0", 97, "97+0", None, 0),
        ("94.0", 94, "94", None, None),
        ("94.batch", 94, "94", None, None),
        ("94.extern", 94, "94", None, None),
        ("97.0+1", 97, "97", None, None),
        ("95_2.batch", 95, "95_2", 2, None),
        ("97+1.0", 97, "97+1", None, 1),
        ("95[2]", 2 * 2**32 + 95, "95[2]", None, None),  # LSF's, of an element of an array
        ("8589934687", 2 * 2**32 + 95, "95[2]", None, None),
        ("9223372036854775807", 2**63 - 1, "4294967295[2147483647]", None, None),
    ],
)
def test_day_one_4_ids_as_slurm_writes_them(text, job, name, task, part):
    found = parse_job_id(text, where="JOBID")
    assert (found.job, found.name, found.task, found.part) == (job, name, task, part)


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-1", "1e3", "0x10", "9 4", "9,4", "95;ls", "95\n96", "٩٥"),
        *("9_", "_4", "9__4", "9_4_1", "95_[]", "95_[x]", "97+", "97+-1", "95_2+1", "94.", "94.foo"),
        *("9223372036854775808", "9" * 20_000),
    ],
)
def test_day_one_4_other_words_are_refused(text):
    with pytest.raises(BadInput) as caught:
        parse_job_id(text, where="JOBID")
    assert caught.value.code == "job.id"
    assert "95_2" in caught.value.mend
    assert len(str(caught.value)) < 400
