"""slurmctld refuses each job of a partition whose nodes topology.conf does not name (topology/tree)."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from advisor.decide.submission.capacity import choose
from advisor.model.errors import TellAdmin
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.service.control.admission import AdmissionFeature
from advisor.service.control.connections import Connections
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands, nodes_in_topology
from advisor.testing.lab import Lab, LabOptions
from tests.decide.cases import make_job
from tests.service.doubles import Hands

pytestmark = [pytest.mark.slurm]

OPTIONS = LabOptions(nodes=2, burst_nodes=2, extra=("TopologyPlugin=topology/tree",))
HERE = "SwitchName=s1 Nodes=onprem1\nSwitchName=s2 Nodes=onprem2\nSwitchName=top Switches=s[1-2]\n"


@pytest.mark.parametrize(
    ("switches", "is_taken"), [(HERE, False), (f"{HERE}SwitchName=cloud Nodes=burst[1-2]\n", True)]
)
def test_no_job_is_sent_where_slurmctld_refuses_it(switches: str, *, is_taken: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="lab-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "etc").mkdir()
        (folder / "etc" / "topology.conf").write_text(switches)
        lab = Lab(folder, OPTIONS)
        with lab:
            commands = Commands(Settings().paths.slurm_bin, lab.conf)
            backend, settings = CliBackend(commands), Settings()
            named = partial(nodes_in_topology, commands)
            connections = Connections(slurm=backend, nodes_in_topology=named)
            feature = AdmissionFeature(settings, connections, Hands().clock)
            assert feature.runners[0].run_once()
            snapshot = backend.snapshot(0.0)
            feature.polled(cast("Any", type("", (), {"snapshot": snapshot})))
            site = feature.publish(SiteState(time=0.0, cluster=None))
            capacity, _ = choose(make_job(), 60.0, site.cloud, settings, 0.0)
            assert (capacity is not None) is is_taken
            if is_taken:
                lab.sbatch("--partition=burst")
            else:
                with pytest.raises(TellAdmin, match="Requested node configuration is not available"):
                    lab.sbatch("--partition=burst")
