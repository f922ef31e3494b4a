"""First-day finding 1: the hook as a module in a site's own job_submit.lua, on a real slurmctld.

What is loaded are the lines that docs/install.md tells a site to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.errors import TellAdmin
from advisor.service.admin.doctor import Diagnosis, Level
from advisor.service.admin.doctor_hook import hook
from tests.slurm.submit_site import LONG, SHORT, Site, advised_site

pytestmark = pytest.mark.slurm

INSTALL = Path(__file__).resolve().parents[2] / "docs" / "install.md"
AROUND, BY_HAND = re.findall(
    r"```lua\n(.*?)```", INSTALL.read_text().partition("### You have a job_submit.lua already")[2], re.DOTALL
)
ROUTES = """
function slurm_job_submit(job, partitions, uid)
  if job.partition == nil then job.partition = "onprem" end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.ERROR -- jobs are not changed here
end
"""
REFUSES = """
function slurm_job_submit(job, partitions, uid)
  if job.time_limit == slurm.NO_VAL then
    slurm.log_user("%s", "give a time limit")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""
SETS_QOS = """
function slurm_job_submit(job, partitions, uid)
  job.qos = "normal"
  job.comment = (job.comment or "seen")
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""
RAISES = """
function slurm_job_submit(job, partitions, uid)
  if job.name == "odd" then error("a mistake of the site's own") end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with advised_site(tmp_path_factory.mktemp("s")) as site:
        yield site


def with_lines(site: Site, own: str, lines: str = AROUND) -> str:
    """The site's script with the documented lines, the module where this cluster has it."""
    return own + lines.replace("/etc/slurm/", f"{site.lab.conf.parent}/")


def use(site: Site, own: str, lines: str = AROUND) -> None:
    site.use_script(with_lines(site, own, lines))
    site.look_until_advised()


def reason_of(job: dict[str, str]) -> str:
    recorded = parse_admin_comment(job["AdminComment"])
    assert recorded is not None
    return recorded.reason


def doctors_word(site: Site) -> Diagnosis:
    found = [each for each in hook(site.lab.conf.parent, site.settings) if "its " not in each.what]
    return found[0]


@pytest.mark.parametrize("lines", [AROUND, BY_HAND], ids=["around", "by hand"])
def test_day_one_1_a_site_that_routes_by_a_default_partition(site: Site, lines: str) -> None:
    own = ROUTES
    if lines is BY_HAND:
        own = ROUTES.replace("function slurm_job_submit", "local function my_own_rules")
        lines = f"{lines}\nreturn slurm.SUCCESS\n"
    use(site, own, lines)
    job, message = site.ask(LONG)
    assert job["Partition"] == "burst"
    assert "starts in the cloud" in message
    kept, _ = site.ask(SHORT)
    assert (kept["Partition"], reason_of(kept)) == ("onprem", "turnaround.cloud_not_faster")
    named, _ = site.ask(LONG, "--partition=onprem")
    assert (named["Partition"], reason_of(named)) == ("onprem", "rule.explicit_partition")
    # and its own slurm_job_modify still decides about changes
    with pytest.raises(TellAdmin, match="scontrol update"):
        site.lab.run("scontrol", "update", f"jobid={job['JobId']}", "comment=x")
    assert doctors_word(site).level is Level.OK
    assert "the site's own and loads this release's" in doctors_word(site).what


def test_day_one_1_a_site_that_refuses_jobs(site: Site) -> None:
    use(site, REFUSES)
    assert site.ask(LONG)[0]["Partition"] == "burst"
    with site.advisor.client() as client:
        before = client.ping().advice_given
        with pytest.raises(TellAdmin, match="give a time limit"):
            site.submit()
        assert client.ping().advice_given == before
    job, _ = site.ask(LONG)
    site.lab.run("scontrol", "update", f"jobid={job['JobId']}", "comment=x")


def test_day_one_1_a_site_that_sets_the_qos(site: Site) -> None:
    use(site, SETS_QOS)
    job, _ = site.ask(LONG)
    assert (job["Partition"], job["Comment"]) == ("burst", "seen")
    job, _ = site.ask(LONG, "--comment=no-burst")
    assert (job["Partition"], reason_of(job)) == ("onprem", "rule.opt_out_comment")


def test_day_one_1_a_sites_own_mistake_spoils_no_advice(site: Site) -> None:
    use(site, RAISES)
    assert site.ask(LONG)[0]["Partition"] == "burst"
    assert site.submit(LONG, "--job-name=odd")[0]["Partition"] == "onprem"
    assert site.ask(LONG)[0]["Partition"] == "burst"


def test_day_one_1_a_missing_module_leaves_the_sites_rules_in_force(site: Site) -> None:
    module = site.lab.conf.with_name("advisor_submit.lua")
    text = module.read_text()
    module.unlink()
    try:
        site.use_script(with_lines(site, REFUSES))
        assert "AdminComment" not in site.submit(LONG)[0]
        with pytest.raises(TellAdmin, match="give a time limit"):
            site.submit()
        assert doctors_word(site).level is Level.ERROR
        # nor does the script of a site that has none of its own stop anything
        site.use_script((INSTALL.parents[1] / "slurm_hooks" / "job_submit.lua").read_text())
        assert "AdminComment" not in site.submit(LONG)[0]
        module.write_text("return {")
        site.use_script(with_lines(site, REFUSES))
        assert "AdminComment" not in site.submit(LONG)[0]
    finally:
        module.write_text(text)
    use(site, REFUSES)
    assert site.ask(LONG)[0]["Partition"] == "burst"
