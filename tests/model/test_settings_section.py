"""Settings for whoever reads them inside sbatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from advisor.model.advice import Mode
from advisor.model.settings import ClusterSettings, PathSettings, Settings
from advisor.model.settings_decision import PlacementSettings
from advisor.model.settings_price import BudgetSettings
from advisor.model.settings_section import Section, for_reading
from advisor.model.settings_service import WebSettings


def all_values(section: Any, fields: type[Section], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, info in fields.model_fields.items():
        value = getattr(section, name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from all_values(value, info.annotation, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def test_every_value_is_the_same() -> None:
    settings = Settings(
        cluster=ClusterSettings(default_mode=Mode.ACT, modes={"fat": Mode.SHADOW}),
        placement=PlacementSettings(overhead_per_processor=0.5),
    )
    assert dict(all_values(for_reading(settings), Settings)) == dict(all_values(settings, Settings))


def test_methods_and_properties_are_the_same() -> None:
    settings = Settings(cluster=ClusterSettings(modes={"fat": Mode.ACT}), web=WebSettings(address="::1"))
    quick = for_reading(settings)
    assert quick.cluster.mode_of("fat") is Mode.ACT
    assert quick.cluster.mode_of(None) is settings.cluster.mode_of(None)
    assert quick.placement.cutoff(7) == settings.placement.cutoff(7)
    assert quick.paths.submit_socket == PathSettings().submit_socket
    assert quick.web.is_for_this_machine_alone


def test_a_property_is_worked_out_once() -> None:
    asked = []

    class Asked(Section):
        limit: int = 3

        @property
        def twice(self) -> int:
            asked.append(self.limit)
            return 2 * self.limit

    quick = for_reading(Asked())
    assert (quick.twice, quick.twice, quick.limit) == (6, 6, 3)
    assert asked == [3]


def test_they_are_for_reading_only() -> None:
    quick = for_reading(Settings())
    with pytest.raises(AttributeError):
        quick.cluster.burst_partition = "other"
    with pytest.raises(AttributeError):
        quick.no_such_section  # type: ignore[attr-defined] # noqa: B018


def test_slurms_accounts_are_in_lower_case_and_lsfs_projects_as_they_are() -> None:
    budget = BudgetSettings(accounts={"Chem": 5.0, "*": 1.0}, users={"Ann": 2.0})
    slurm, lsf = (
        Settings(budget=budget, cluster=ClusterSettings(scheduler=scheduler, pilot_accounts=("Chem",)))
        for scheduler in ("slurm", "lsf")
    )
    assert slurm.budget.accounts == {"chem": 5.0, "*": 1.0}
    assert slurm.cluster.pilot_accounts == ("chem",)
    assert slurm.budget.users == {"Ann": 2.0}
    assert lsf.budget == budget
    assert lsf.cluster.pilot_accounts == ("Chem",)
