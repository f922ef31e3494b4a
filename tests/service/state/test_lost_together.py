"""Instances of one pool that EC2 takes within two minutes are one loss, told once."""

from __future__ import annotations

from pathlib import Path

from advisor.ec2.pools import Pool, UnavailablePools
from advisor.model.advice import Capacity
from advisor.model.settings_cloud import Ec2Settings
from advisor.predict.survival.pool_survival import Life, losses_of
from advisor.service.state.life_record import LifeRecord
from advisor.service.state.records import EndedLife, Lives
from advisor.service.state.state_files import CLOSED_POOLS, LIVES
from advisor.testing.memory_ec2 import MemoryEc2
from tests.service.doubles import POOL, make_instance


def life(end: float, pool: str = "a", *, was_taken: bool = True) -> Life:
    return Life(pool=pool, start=0.0, end=end, was_taken=was_taken)


def test_what_ends_within_two_minutes_in_one_pool_is_one_loss() -> None:
    lives = [life(100.0), life(220.0), life(221.0), life(150.0, "b"), life(110.0, was_taken=False)]
    assert [[each.end for each in loss] for loss in losses_of(lives)] == [[100.0, 220.0], [150.0], [221.0]]


def test_the_table_tells_losses_together_from_single_ones(tmp_path: Path) -> None:
    state = LIVES.at(tmp_path)
    ended = [EndedLife("a", 0.0, end, True) for end in (100.0, 130.0, 160.0, 900.0)]
    state.keep(Lives(open={}, ended=ended, over=set()), "test")
    row = LifeRecord(state).table()["a"]
    assert (row["taken"], row["losses"], row["lost_together"]) == (4, 2, 3)


def test_a_pool_that_lost_several_is_closed_for_a_while(tmp_path: Path) -> None:
    breakers = UnavailablePools(CLOSED_POOLS.at(tmp_path), lambda: 1000.0)
    pool = Pool(option=Capacity.SPOT, instance_type=Ec2Settings().instance_type)
    breakers.lost_together(pool)
    assert pool.key in breakers.unavailable()
    assert not breakers.claim(pool)


def test_a_loss_is_told_once_however_many_lists_show_it(tmp_path: Path) -> None:
    record = LifeRecord(LIVES.at(tmp_path))
    nodes = [f"burst{number}" for number in range(1, 5)]
    record.observe([make_instance(node, launch_time=0.0) for node in nodes], lambda _: False, 100.0)

    def lost(*names: str, at: float) -> list[str]:
        left = [make_instance(node, launch_time=0.0) for node in nodes]
        return record.observe(left, lambda name: name in {f"i-{node}" for node in names}, at)

    assert lost("burst1", at=110.0) == []  # a single one
    assert lost("burst1", "burst2", at=120.0) == [POOL.key]
    assert lost("burst1", "burst2", "burst3", at=130.0) == []
    assert lost(*nodes, at=900.0) == []
    assert record.table()[POOL.key]["lost_together"] >= 3


def test_a_loss_stays_the_same_when_an_instance_that_ended_first_is_noted_last(tmp_path: Path) -> None:
    record = LifeRecord(LIVES.at(tmp_path))
    early, *others = (make_instance(f"burst{number}", launch_time=0.0) for number in range(1, 4))
    record.observe([early, *others], lambda _: False, 100.0)
    record.observe(others, lambda _: False, 150.0)  # some lists of EC2 leave it out
    assert record.observe(others, lambda _: True, 200.0) == [POOL.key]
    assert record.observe([early, *others], lambda _: True, 210.0) == []


def test_ec2_in_memory_takes_a_pool_back_together() -> None:
    ec2 = MemoryEc2(now=lambda: 1000.0)
    for subnet in ("subnet-a", "subnet-b"):
        ec2.connect("ec2").run_instances(
            ImageId="ami-1",
            InstanceType="c5.xlarge",
            SubnetId=subnet,
            MinCount=2,
            MaxCount=2,
            ClientToken=subnet,
            InstanceMarketOptions={"MarketType": "spot"},
            TagSpecifications=[],
        )
    taken = ec2.reclaim_pool("c5.xlarge", "subnet-a", 120.0)
    assert len(taken) == 2
    ends = {item.instance_id: item.ends_at for item in ec2.instances.values()}
    assert {name for name, end in ends.items() if end == 1120.0} == set(taken)
