"""The shares of queues with FAIRSHARE, as bqueues shows them."""

from __future__ import annotations

import pytest

from advisor.lsf.answers import Queue
from advisor.lsf.shares import QUEUE_STEP, queue_orders
from advisor.model.queue_order import ShareAccount

QUEUES = {"plain": Queue(name="plain", priority=35), "normal": Queue(name="normal", priority=30)}
PARAMETERS = "    MAX_USER_PRIORITY = 100\n\n    RUN_JOB_FACTOR = 3.000000\n"
HEAD = "\nQUEUE: plain\n  -- fcfs\n\nUSERS:  all\n\n------\n\nQUEUE: normal\n  -- The default queue.\n\n"
# of volclava 2.2
SHOWN = """USER_SHARES:  [default,1] [ann,10]

SHARE_INFO_FOR: normal/
USER/GROUP      SHARES    PRIORITY   STARTED    CPU_TIME  RUN_TIME\x20
 bob                 1       0.333         0         0.0         0\x20
 ann                10       0.321         8      3600.0     18000\x20

USERS:  all
"""


def test_a_queue_with_shares_is_told_from_one_without() -> None:
    orders = queue_orders(QUEUES, HEAD + SHOWN, PARAMETERS, {})
    assert orders["plain"].first_priority == 35 * QUEUE_STEP + 50
    assert orders["plain"].default_shares is None
    normal = orders["normal"]
    assert normal.default_shares == 1.0
    assert 30 * QUEUE_STEP < normal.first_priority < 31 * QUEUE_STEP
    bob, ann = normal.accounts
    assert bob == ShareAccount(path=("bob",), shares=1.0, load=3.0)
    assert (ann.load, ann.run_load) == pytest.approx((27.0 + 0.7 + 3.5, 3.5), abs=1e-9)


@pytest.mark.parametrize(
    ("pages", "parameters"),
    [
        (f"{HEAD}{SHOWN}\nQUEUE:", PARAMETERS),  # cut off
        (HEAD + SHOWN, f"{PARAMETERS}    CPU_TIME_FACTOR = .\n"),
        (HEAD + SHOWN.replace(" bob", " eve nan inf 0 0 0 0\n bob", 1), PARAMETERS),
    ],
)
def test_what_cannot_be_read_is_left_out(pages: str, parameters: str) -> None:
    normal = queue_orders(QUEUES, pages, parameters, {})["normal"]
    assert [account.path for account in normal.accounts] == [("bob",), ("ann",)]


def test_without_an_answer_jobs_start_by_their_priorities() -> None:
    orders = queue_orders(QUEUES, "", PARAMETERS, {})
    assert {name: order.default_shares for name, order in orders.items()} == {"plain": None, "normal": None}


def test_a_priority_that_other_terms_have_changed_counts_as_it_is_shown() -> None:
    """IBM LSF can add committed run time and an adjustment of the site's own."""
    shown = SHOWN.replace("0.321", "0.100")
    _, ann = queue_orders(QUEUES, HEAD + shown, PARAMETERS, {})["normal"].accounts
    assert ann.load == pytest.approx(100.0)


def test_users_of_many_slots_are_told_apart_although_three_decimals_do_not() -> None:
    shown = SHOWN.replace("0.321         8", "0.001      3000").replace("0.333         0", "0.001       400")
    bob, ann = queue_orders(QUEUES, HEAD + shown, PARAMETERS, {})["normal"].accounts
    assert bob.load == pytest.approx(1203.0)
    assert ann.load == pytest.approx(9007.2)


def test_factors_of_the_queue_go_before_those_of_the_site() -> None:
    shown = SHOWN.replace("\nUSERS:  all\n", "\nRUN_JOB_FACTOR: 1.500000\n\nUSERS:  all\n")
    assert queue_orders(QUEUES, HEAD + shown, PARAMETERS, {})["normal"].slot_load == 1.5
    assert queue_orders(QUEUES, HEAD + SHOWN, "    RUN_JOB_FACTOR = 2.0\n", {})["normal"].slot_load == 2.0


def test_a_tree_of_groups_as_ibm_shows_it() -> None:
    """The columns of IBM's releases, which others have published."""
    shown = """USER_SHARES:  [chem, 20] [bio, 10] [default, 1]

SHARE_INFO_FOR: normal/
 USER/GROUP   SHARES  PRIORITY  STARTED  RESERVED  CPU_TIME  RUN_TIME   ADJUST  GPU_RUN_TIME
chem/           20       0.952      4        2          0.0        0       0.000         0
bio             10       3.333      0        0          0.0        0       0.000         0

SHARE_INFO_FOR: normal/chem/
 USER/GROUP   SHARES  PRIORITY  STARTED  RESERVED  CPU_TIME  RUN_TIME   ADJUST  GPU_RUN_TIME
ann              5       0.238      4        2          0.0        0       0.000         0

"""
    chem, bio, ann = queue_orders(QUEUES, HEAD + shown, PARAMETERS, {"bio": ("eve", "joe")})[
        "normal"
    ].accounts
    assert (chem.path, chem.load, chem.users) == (("chem",), 21.0, frozenset())
    assert (bio.path, bio.users) == (("bio",), frozenset({"eve", "joe"}))
    assert (ann.path, ann.shares, ann.load) == (("chem", "ann"), 5.0, 21.0)


@pytest.mark.parametrize("row", [" ann  many  0.3  8  0.0  0", " ann  10", " ann 10 - 8 x 0"])
def test_a_row_that_cannot_be_read_is_left_out(row: str) -> None:
    shown = SHOWN.replace(" ann                10       0.321         8      3600.0     18000 ", row)
    assert [one.path for one in queue_orders(QUEUES, HEAD + shown, PARAMETERS, {})["normal"].accounts] == [
        ("bob",)
    ]
