"""Answer the calls that LSF's resource connector makes to a provider of hosts.

The connector (ebrokerd) runs a script for each call, with JSON as input and output; the script passes the
call to `advisor control`. Launches and terminations take the same path as Slurm's resume and suspend: a
hand-over on disk, then the provision loop with its journal, tags and budget.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.fleet import Fleet
from advisor.ec2.instances import Instance
from advisor.lsf.cloud_hosts import CloudHosts, HostRequest
from advisor.model.errors import AdvisorError, BadInput
from advisor.model.node_sets import fold
from advisor.model.settings_classes import NodeClass
from advisor.model.snapshot import PENDING, ClusterSnapshot, QueuedJob
from advisor.service.cloud.hosts_for_jobs import jobs_of_hosts
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock

log = structlog.get_logger(__name__)

_LIST_SECONDS: Final = 3.0
"""Answers use a list of the instances that is at most this old."""
_AGAIN_SECONDS: Final = 10.0
"""A host that was requested this long ago and has neither an instance nor a hand-over is handed over again.

A crash has come between the request and its hand-over, or no poll of LSF since.
"""
_HOST: Final = "advisorhost"
"""The Boolean resource of every host that the advisor launches, for RC_HOSTS of a queue."""


class ResourceConnector:
    """Answers the connector's calls. Thread-safe.

    Args:
        arrived: Called after a hand-over was written, to wake the loop that acts on it.
        is_taken_back: Returns whether EC2 has announced that it takes an instance (its id) back.
        queue: LSF's queue of the cloud hosts.
    """

    def __init__(
        self,
        hosts: CloudHosts,
        *,
        fleet: Fleet,
        folder: HandoverFolder,
        view: SharedView,
        clock: Clock,
        arrived: Callable[[], None],
        is_taken_back: Callable[[str], bool],
        queue: str,
    ) -> None:
        self._hosts = hosts
        self._fleet = fleet
        self._folder = folder
        self._view = view
        self._clock = clock
        self._arrived = arrived
        self._is_taken_back = is_taken_back
        self._queue = queue
        self._lock = threading.Lock()
        self._listed: Sequence[Instance] = ()
        self._listed_at = float("-inf")
        self._without_host = dict[int, int]()  # waiting job that has hosts: how many elements have none
        self._job_of = dict[str, int]()  # host that is there or coming: the job for which it was launched
        self._unnamed: dict[str, float] = {}  # host whose job the last poll did not show: epoch seconds
        self._calls: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "getAvailableMachines": self._machines,
            "getAvailableTemplates": self._templates,
            "getRequestStatus": self._status,
            "getReturnRequests": self._lost,
            "requestMachines": self._create,
            "requestReturnMachines": self._give_back,
        }

    def answer(self, call: str, asked: object) -> dict[str, Any]:
        """The answer to a call: ``output``, which the script prints, or the ``error`` with which it fails."""
        try:
            if call not in self._calls or not isinstance(asked, dict):
                mend = f"Call one of {', '.join(self._calls)} with a JSON object (docs/lsf.md)"
                raise BadInput(f"there is no call {call[:40]!a}", where="resource connector", mend=mend)
            with self._lock:
                self._settle()
                return {"v": 1, "ok": True, "output": self._calls[call](asked)}
        except (AdvisorError, KeyError, TypeError, ValueError, AttributeError) as error:
            why = str(error) if isinstance(error, AdvisorError) else f"{type(error).__name__}: {error}"
            log.warning("connector.refused", call=call[:40], why=why[:300])
            return {"v": 1, "ok": False, "error": why}

    # -------------------------------------------------------------------------------------- questions

    def _templates(self, _asked: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "templates": [
                {
                    "templateId": name,
                    "maxNumber": len(self._hosts.nodes_in(name)),
                    "attributes": _attributes(each),
                }
                for name, each in self._hosts.classes.items()
            ]
        }

    def _create(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        wanted = asked["template"]
        account = str(asked.get("rc_account") or "default")
        template = str(wanted["templateId"])
        name, made = self._hosts.create(template, int(wanted["machineCount"]), account)
        log.info("connector.asked", request=name, nodes=fold(made.nodes))
        self._launch(made.nodes)
        return {"message": f"{len(made.nodes)} hosts are launched", "requestId": name}

    def _give_back(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        listed = {item.instance_id: item.node for item in self._instances()}
        ids = {
            str(listed.get(str(machine["machineId"])) or machine["name"]): str(machine["machineId"])
            for machine in asked["machines"]
        }
        ours = {node: instance_id for node, instance_id in ids.items() if node in self._hosts}
        if not ours:
            mend = "Name hosts that `advisor nodes` lists; nothing was ended"
            raise BadInput(
                "the advisor launched none of these hosts", where="requestReturnMachines", mend=mend
            )
        name, made = self._hosts.give_back(ours)
        self._wait_no_more(made.nodes)
        self._hand_over("suspend", made.nodes)
        log.info("connector.gives_back", request=name, nodes=fold(made.nodes))
        return {"message": f"{len(ours)} hosts are ended", "requestId": name}

    def _status(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"requests": [self._status_of(str(each["requestId"])) for each in asked["requests"]]}

    def _lost(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Hosts that LSF is to give up: EC2 has ended them, takes them back, or the budget is spent."""
        lost = [
            {"machine": str(machine["name"]), "machineId": str(machine["machineId"])}
            for machine in asked["machines"]
            if self._is_lost(str(machine["name"]), str(machine["machineId"]))
        ]
        return {"status": "complete", "message": "", "requests": lost}

    def _machines(self, _asked: Mapping[str, Any]) -> dict[str, Any]:
        alive = (item for item in self._instances() if item.is_alive and item.node)
        return {
            "status": "complete",
            "message": "",
            "machines": [_machine(item, item.node or "", "succeed") for item in alive],
        }

    # ---------------------------------------------------------------------------------------- answers

    def _status_of(self, name: str) -> dict[str, Any]:
        made = self._hosts.request(name)
        if made is None:
            text = "this request is not known"
            return {"requestId": name, "status": "complete_with_error", "machines": [], "message": text}
        machines = [
            self._ending(node, made) if made.is_return else self._coming(node, made) for node in made.nodes
        ]
        results = {machine["result"] for machine in machines}
        finished = "complete_with_error" if "fail" in results else "complete"
        status = "running" if "executing" in results else finished
        why = "; ".join(sorted({machine["message"] for machine in machines if machine["message"]}))
        return {"requestId": name, "status": status, "machines": machines, "message": why}

    def _coming(self, node: str, made: HostRequest) -> dict[str, Any]:
        if node in made.failed:
            return _unknown(node, "fail", made.failed[node], made.account)
        item = next((one for one in self._instances() if one.node == node and one.is_alive), None)
        if item is None or not item.private_ip:
            return _unknown(node, "executing", "", made.account)
        return _machine(item, node, "succeed", made.account)

    def _ending(self, node: str, made: HostRequest) -> dict[str, Any]:
        item = next((one for one in self._instances() if one.instance_id == made.ids[node]), None)
        if item is not None and item.may_cost:
            return _machine(item, node, "executing", made.account)
        return {
            **_unknown(node, "succeed", "", made.account),
            "machineId": made.ids[node],
            "status": "TERMINATED",
        }

    def _is_lost(self, node: str, instance_id: str) -> bool:
        item = next((one for one in self._instances() if one.instance_id == instance_id), None)
        host = self._hosts.host(node)
        if host is not None and host.closing and not self._view.fresh().jobs_on.get(node):
            return True
        if item is None:
            # an instance that was launched a moment ago may not be listed yet
            return node not in self._fleet.unlisted_nodes(self._listed)
        return not item.is_alive or self._is_taken_back(instance_id)

    # ------------------------------------------------------------------------------------ hosts and jobs

    def _launch(self, nodes: Sequence[str]) -> None:
        """Hand hosts over with their jobs; a host whose job is not known waits for the next poll of LSF.

        A job may have been sent to the cloud since the last poll. A host without a job is spot where its
        class may be, and is promised the cost of a day.
        """
        now = self._clock.wall()
        snapshot = self._view.if_fresh()
        if snapshot is None:  # LSF does not answer
            self._wait_no_more(nodes)
            self._hand_over("resume", nodes)
            return
        jobs = list[tuple[int, Sequence[str]]]()
        for template, each in self._hosts.classes.items():
            of_class = set(self._hosts.nodes_in(template)).intersection(nodes)
            jobs += self._jobs_for([node for node in nodes if node in of_class], each, snapshot)
        named = {node: job_id for job_id, hosts in jobs for node in hosts}
        self._job_of |= named
        may_wait = [
            node for node in nodes if node not in named and snapshot.time <= self._unnamed.get(node, now)
        ]
        known = [node for node in nodes if node not in may_wait]
        self._wait_no_more(known)
        for node in may_wait:
            self._unnamed.setdefault(node, now)
        if known:
            self._hand_over("resume", known, jobs)

    def _wait_no_more(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._unnamed.pop(node, None)

    def _jobs_for(
        self, nodes: Sequence[str], each: NodeClass, snapshot: ClusterSnapshot
    ) -> list[tuple[int, Sequence[str]]]:
        """The jobs for which hosts are launched: a job's advice names the capacity and the cost."""
        pending = [queued for queued in snapshot.jobs if queued.state == PENDING]
        ids = {queued.job.job_id for queued in pending}
        self._without_host = {job_id: left for job_id, left in self._without_host.items() if job_id in ids}
        waiting = [one for one in pending if one.job.queue == self._queue and not _lacks_advice(one)]
        jobs, without_host = jobs_of_hosts(
            nodes,
            (each.cores, each.memory_mb),
            waiting,
            self._without_host,
            is_never_spot=is_never_spot(each.features),
        )
        self._without_host |= without_host
        return jobs

    def _instances(self) -> Sequence[Instance]:
        now = self._clock.monotonic()
        if now - self._listed_at >= _LIST_SECONDS:
            self._listed, self._listed_at = tuple(self._fleet.instances()), now
        return self._listed

    def _settle(self) -> None:
        """Repeat hand-overs that a crash prevented, and free the names of hosts that have ended.

        A job whose host has ended, or could not be launched, is to have another one.
        """
        listed = self._instances()
        known = {item.node for item in listed if item.may_cost} | self._fleet.unlisted_nodes(listed)
        under_way = {node for _, hand_over in self._folder.waiting() for node in hand_over.nodes}
        alive = {node for node in known if node} | under_way
        due = self._hosts.due(_AGAIN_SECONDS)
        if again := [node for node in due if node not in alive]:
            self._wait_no_more(again)
            self._hand_over("resume", again)
        if later := [node for node in self._unnamed if node not in alive]:
            self._launch(later)
        for node in list(self._job_of):
            if (host := self._hosts.host(node)) is None or host.gone:
                self._without_host.pop(self._job_of.pop(node), None)
        if unread := self._hosts.forget(alive):
            log.warning("connector.never_asked_again", nodes=fold(unread))
            self._hand_over("suspend", unread)

    def _hand_over(
        self, operation: str, nodes: Sequence[str], jobs: Sequence[tuple[int, Sequence[str]]] = ()
    ) -> None:
        now = self._clock.wall()
        identity = f"{int(now * 1e6)}-{os.getpid()}-{secrets.token_hex(4)}"
        rows = [
            {"job_id": job_id, "element": number, "nodes_resume": fold(hosts)}
            for number, (job_id, hosts) in enumerate(jobs)
        ]
        said = {"v": 1, "id": identity, "op": operation, "time": now, "nodes": fold(nodes)}
        said |= {"resume_file": json.dumps({"jobs": rows})} if rows else {}
        line = json.dumps(said).encode() + b"\n"
        self._folder.put(decode(line), line)
        self._arrived()


def _lacks_advice(queued: QueuedJob) -> bool:
    """Whether a job may run on spot and has no advice yet: no host is launched for it in particular."""
    return queued.job.requeue is True and parse_admin_comment(queued.admin_comment) is None


def _attributes(each: NodeClass) -> dict[str, list[str]]:
    """A template's attributes, which LSF compares with the jobs' resource requirements."""
    words = [_HOST, *(feature.replace("-", "_") for feature in each.features)]
    numbers = {"ncpus": each.cores, "ncores": each.cores, "mem": each.memory_mb} | (
        {"ngpus_physical": each.gpus} if each.gpus else {}
    )
    return {
        "type": ["String", "X86_64"],
        **{name: ["Numeric", str(value)] for name, value in numbers.items()},
        **{word: ["Boolean", "1"] for word in words},
    }


def _machine(item: Instance, node: str, result: str, account: str = "default") -> dict[str, Any]:
    return {
        "machineId": item.instance_id,
        "name": node,
        "result": result,
        "status": item.state.upper(),
        "privateIpAddress": item.private_ip,
        "rcAccount": account,
        "message": "",
        "launchtime": int(item.launch_time),
    }


def _unknown(node: str, result: str, why: str, account: str) -> dict[str, Any]:
    """A machine without an instance."""
    return {
        "machineId": "", "name": node, "result": result, "status": "", "privateIpAddress": "",
        "rcAccount": account, "message": why, "launchtime": 0,
    }  # fmt: skip
