"""The hook in each Lua that slurmctld might be linked with."""

from __future__ import annotations

import pytest

from tests.hooks.slurm_double import LUA_VERSIONS


@pytest.fixture(params=LUA_VERSIONS)
def lua(request: pytest.FixtureRequest) -> str:
    """Name of lupa's module of one Lua version."""
    return str(request.param)
