"""The process of `advisor control`: make its parts, and run them until a signal ends it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions
from advisor.ec2.journal import Journal
from advisor.ec2.pools import Pool, UnavailablePools
from advisor.ec2.prices import PriceCache, cheapest_first
from advisor.ec2.reading_account import AccountCache
from advisor.lsf.backend import LsfBackend
from advisor.lsf.jobs_unwarned import JobsUnwarned
from advisor.model.errors import AdvisorError, BadInput
from advisor.model.settings import Settings
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.cloud.left_instances import refuse_to_leave_instances
from advisor.service.control.connections import Connections
from advisor.service.control.lease import Lease, LeaseKeeper
from advisor.service.control.wiring import Control
from advisor.service.hedge.place_helper import HelpedPlaceholders
from advisor.service.running.clock import Clock
from advisor.service.running.notify import Notifier
from advisor.service.running.signals import DaemonSignals
from advisor.service.stability.outlook import PoolOrder
from advisor.service.state.records import APPLIED_NAME
from advisor.service.state.state_files import CLOSED_POOLS, LSF_ADVICE, LSF_HOSTS, PRICES
from advisor.slurm.accounts import limits_in_partition, partitions_of_users, preempting_qos
from advisor.slurm.block_ends import BlockEnds
from advisor.slurm.commands import Commands, nodes_in_topology
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.pyslurm_backend import backend_of
from advisor.slurm.running_jobs import RunningJobs
from advisor.slurm.steering import BurstSteering

log = structlog.get_logger(__name__)

_TICK_SECONDS: Final = 5.0
_STAND_BY_SECONDS: Final = 1.0
_LEFT_AT_WORK: Final = 75  # EX_TEMPFAIL: systemd starts it anew


def make_control(settings: Settings, *, notifier: Notifier | None = None) -> Control:
    """Make `advisor control` with the real Slurm or LSF, and EC2.

    Raises:
        BadInput: A folder cannot be made.
    """
    _make_folder(settings.paths.state, "paths.state")
    _make_folder(settings.paths.run, "paths.run")
    fleet, breakers, prices, account, spot = None, None, None, None, None
    pool_order = PoolOrder()
    commands = Commands(settings.paths.slurm_bin, settings.paths.slurm_conf)
    if settings.ec2.image_id:
        breakers = UnavailablePools(CLOSED_POOLS.at(settings.paths.state), Clock().wall)
        journal = Journal(settings.paths.state / "launches.jsonl")
        prices = cache = PriceCache(settings.ec2, PRICES.at(settings.paths.state), Clock().wall)

        uses_blocks = settings.cluster.scheduler != "lsf"  # LSF is not told when a host ends
        account = seen = AccountCache(settings.ec2, settings.cluster.name, uses_blocks=uses_blocks)

        def order(pools: Sequence[Pool]) -> Sequence[Pool]:
            return cheapest_first(pool_order(pools), cache.prices)

        fleet = Fleet(
            settings.ec2,
            settings.cluster.name,
            journal,
            breakers,
            order=order,
            account=lambda: seen.account,
        )
        spot = SpotParts(Interruptions(settings.ec2, settings.cluster.name), RunningJobs(commands))
    else:
        log.info("control.no_cloud", reason="ec2.image_id is empty")
    if settings.cluster.scheduler == "lsf":
        return Control(settings, _under_lsf(settings, fleet, breakers, prices, account), notifier=notifier)
    jobs = RunningJobs(commands)
    connections = Connections(
        slurm=backend_of(settings),
        fleet=fleet,
        breakers=breakers,
        prices=prices,
        account=account,
        block_ends=BlockEnds(commands),
        spot=spot,
        places=_places(settings, commands),
        steering=BurstSteering(commands),
        pool_order=pool_order,
        preempting_qos=partial(preempting_qos, commands),
        partitions_of_users=partial(partitions_of_users, commands),
        limits_in_partition=partial(limits_in_partition, commands),
        nodes_in_topology=partial(nodes_in_topology, commands),
        nodes_asked=jobs,
        has_deadline=jobs.has_deadline,
    )
    return Control(settings, connections, notifier=notifier)


def _under_lsf(
    settings: Settings,
    fleet: Fleet | None,
    breakers: UnavailablePools | None,
    prices: PriceCache | None,
    account: AccountCache | None,
) -> Connections:
    """The connections to LSF, whose resource connector gets hosts from the advisor with ``ec2.image_id``."""
    state = settings.paths.state
    backend = LsfBackend.of(settings, LSF_ADVICE.at(state), None if fleet is None else LSF_HOSTS.at(state))
    notices = Interruptions(settings.ec2, settings.cluster.name)
    spot = None if fleet is None else SpotParts(notices, JobsUnwarned())
    return Connections(
        slurm=backend, fleet=fleet, breakers=breakers, prices=prices, account=account, spot=spot
    )


def _places(settings: Settings, commands: Commands) -> Placeholders:
    """Placeholders that the helper submits; root submits them itself if no helper listens."""
    places, helper = Placeholders(commands), settings.hedge.helper_socket
    return places if os.geteuid() == 0 and not helper.is_socket() else HelpedPlaceholders(places, helper)


def _make_folder(path: Path, setting: str) -> None:
    try:
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise BadInput(
            f"the folder cannot be used ({error.strerror})",
            where=f"{setting} = {path}",
            mend="Give it to the advisor's user, or name another one",
            code="control.folder",
        ) from None


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Be the only control process with this folder of state, by a lock that ends with the process.

    Two would launch for the same nodes and overwrite each other's records. The control socket keeps a second
    one away only where ``paths.run`` is the same. Two controllers (``paths.shared``) have the lease instead.

    Raises:
        BadInput: Another process acts there, or the folder cannot be used.
    """
    if settings.paths.shared:
        yield
        return
    _make_folder(settings.paths.state, "paths.state")
    path = settings.paths.state / "control.lock"
    with path.open("ab") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a process that is forked does not inherit it
        except (BlockingIOError, PermissionError):
            raise BadInput(
                "another `advisor control` acts with this folder",
                where=f"paths.state = {settings.paths.state}",
                mend="Leave it, or stop it first; two controllers need paths.shared",
                code="control.not_alone",
            ) from None
        except OSError as error:
            log.warning("control.no_lock", file=str(path), error=error.strerror)
        yield


def run(settings: Settings, *, reload_settings: Callable[[], Settings]) -> None:
    """Run until SIGTERM or SIGINT. SIGHUP restarts the loops with the present settings, if they are valid."""
    signals = DaemonSignals(settings.paths.state / APPLIED_NAME)
    notifier = Notifier.from_environment(os.environ)
    tick = min(_TICK_SECONDS, (notifier.watchdog_seconds or 3 * _TICK_SECONDS) / 3)
    with _alone(settings):
        _run(settings, signals, notifier, tick, reload_settings)


def _run(
    settings: Settings,
    signals: DaemonSignals,
    notifier: Notifier,
    tick: float,
    reload_settings: Callable[[], Settings],
) -> None:
    keeper = None
    if settings.paths.shared:
        keeper = _stand_by(settings, signals, notifier)
        signals.reload.clear()
        settings, _ = _reloaded(settings, reload_settings)  # it may have been the standby for months
    while not signals.stop.is_set():
        refuse_to_leave_instances(settings)
        control, changed = make_control(settings, notifier=notifier), False
        control.start()
        try:
            while not (signals.stop.is_set() or changed or control.is_outdated):
                signals.wait(tick)
                control.feed_watchdog()
                if signals.reload.is_set():
                    signals.reload.clear()  # first: a change while the loops end sets it again
                    settings, changed = _reloaded(settings, reload_settings)
            if control.is_outdated:
                log.warning(
                    "control.begins_anew", why="another history has taken the place of the one it knew"
                )
        finally:
            if signals.stop.is_set():  # said at a reload, systemd waits for the end, and kills
                notifier.stopping()
            ended = control.stop()
        if not ended and not signals.stop.is_set():
            log.error(
                "control.leaves", why="a loop is still at work; the next process begins where this one was"
            )
            raise SystemExit(_LEFT_AT_WORK)
        if keeper is not None and signals.stop.is_set() and ended:
            keeper.release()


def _stand_by(settings: Settings, signals: DaemonSignals, notifier: Notifier) -> LeaseKeeper | None:
    """Wait until this process has the lease; None when it was told to stop before."""
    lease = Lease(settings.paths.state, Clock())
    problem = status = ""
    while not signals.stop.is_set():
        try:
            held = lease.try_take()
        except (OSError, AdvisorError) as error:
            if str(error) != problem:
                log.warning("lease.unusable", why=str(error), folder=str(settings.paths.state))
            problem = str(error)
            held, now = None, "stands by: the lease cannot be used, see the log"
        else:
            problem, now = "", f"stands by: {lease.holder.host or 'no host'} acts"
        if held is not None:
            return LeaseKeeper(lease, held)
        if now != status:
            notifier.ready(now)  # systemd starts what waits for this
            log.info("control.stands_by", status=now)
        status = now
        notifier.alive(now)
        signals.wait(_STAND_BY_SECONDS)
    return None


def _reloaded(settings: Settings, reload_settings: Callable[[], Settings]) -> tuple[Settings, bool]:
    try:
        fresh = reload_settings()
        refuse_to_leave_instances(fresh)
    except AdvisorError as error:
        log.warning("settings.not_reloaded", message=str(error), kept="the previous ones")
        return settings, False
    return fresh, True
