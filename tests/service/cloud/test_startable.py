"""Nodes that no quota allows to be up are as good as taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from advisor.ec2.account import Account, Others, Reservation
from advisor.ec2.paid import paid_book
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.settings import Settings
from advisor.model.site import ROOM_KINDS, class_kind
from advisor.service.cloud.startable import startable, without_room
from advisor.service.observation.cloud_rooms import NO_ROOM
from tests.service.doubles import make_instance, make_node

ON_DEMAND, SPOT = {"L-1216C47A": 12.0}, {"L-34B43A08": 8.0}
DOWN = ("IDLE", "POWERED_DOWN")


def account(quotas: Mapping[str, float], **more: Any) -> Account:
    return Account(quotas=quotas, vcpus={"c5.xlarge": 4}, **more)


def names(
    nodes: Sequence[Node], known: Account, *, listed: Sequence[Any] = (), use_spot: bool = False
) -> list[str]:
    settings = Settings()
    book = paid_book(known, settings, Prices.of_settings(settings.ec2), listed)
    found = startable(nodes, lambda _: ("c5.xlarge",), known, listed, book, use_spot=use_spot)
    return [node.name for node in found]


def down(number: int, first: int = 1) -> list[Node]:
    return [make_node(f"burst{index}", *DOWN) for index in range(first, first + number)]


def test_an_unknown_quota_limits_nothing() -> None:
    assert len(names(down(9), account({}))) == 9
    assert len(names(down(9), account({"L-DB2E81BA": 0.0}))) == 9  # of another family


@pytest.mark.parametrize(
    ("use_spot", "quotas", "number"),
    [
        (False, ON_DEMAND | SPOT, 3),
        (True, ON_DEMAND | SPOT, 3),  # what spot is refused is launched on-demand
        (True, {"L-34B43A08": 8.0, "L-1216C47A": 0.0}, 2),
        (False, {"L-34B43A08": 8.0, "L-1216C47A": 0.0}, 0),
    ],
)
def test_so_many_may_start_as_the_quota_has_left(
    quotas: Mapping[str, float], number: int, *, use_spot: bool
) -> None:
    assert len(names(down(9), account(quotas), use_spot=use_spot)) == number


def test_what_is_up_or_under_way_stays_and_uses_the_quota() -> None:
    nodes = [*down(4, 3), make_node("burst1", "IDLE"), make_node("burst2", "IDLE", "POWERING_UP")]
    listed = [make_instance("burst1", option=Capacity.ON_DEMAND)]
    assert names(nodes, account(ON_DEMAND), listed=listed) == ["burst1", "burst2", "burst3"]
    others = Others(on_demand={("c5.xlarge", "us-east-1a"): 5})
    assert names(nodes, account(ON_DEMAND, others=others), listed=listed) == ["burst1", "burst2"]


def test_what_a_reservation_holds_free_can_be_launched_though_the_quota_is_used_up() -> None:
    held = Reservation(reservation_id="cr-1", instance_type="c5.xlarge", zone="us-east-1a", total=3)
    assert len(names(down(9), account(ON_DEMAND, reservations=(held,), unused={"c5.xlarge": 3}))) == 3


def test_a_class_that_no_quota_allows_has_no_room() -> None:
    big, small = make_node("burst1", *DOWN), make_node("burst2", *DOWN)
    rooms = without_room({"": ()}, [big, small], [small], {"burst1": "big", "burst2": "small"})
    assert rooms == {"": (), **{class_kind("big", kind): NO_ROOM[""] for kind in ROOM_KINDS}}
    assert without_room({"": ()}, [big, small], [small]) == {"": ()}
