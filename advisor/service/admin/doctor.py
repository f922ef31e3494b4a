"""Check the advisor's own parts: settings, files, database, models, sockets; findings say how to mend it."""

from __future__ import annotations

import enum
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from advisor.config import LoadedSettings, check
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError, BadInput, UseFallback
from advisor.model.settings import Settings
from advisor.predict.knn.predictor import Predictor
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.service.admin.model_troubles import last_trainings, training_failure
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.access import DENIED, denied
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.lease_file import LEASE, read_holder
from advisor.service.state.records import Drift
from advisor.service.state.state_files import DRIFT, STATE_FILES, known_file
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND
from advisor.service.submit.run_times import RUN_TIMES_KIND

_SLOW_SECONDS: Final = 0.005
_LOW_BYTES: Final = 20_000_000  # the largest model is stored beside the one that it replaces
MEND_DRIFT: Final = (
    "Look for what has changed a week ago (limits, priorities, node types, boots): `advisor ledger` shows "
    "forecasts beside what happened. The partition comes back by itself when they hold; "
    "`drift.enabled = false` lets its jobs move at once"
)


class Level(enum.StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A finding of a check, and how to mend it (empty when nothing is wrong); `guarded` names the check."""

    check: str = ""
    level: Level
    what: str
    mend: str = ""


def ok(what: str) -> Diagnosis:
    """Nothing is wrong."""
    return Diagnosis(level=Level.OK, what=what)


def warning(what: str, mend: str) -> Diagnosis:
    """It works, but not as it should."""
    return Diagnosis(level=Level.WARNING, what=what, mend=mend)


def error(what: str, mend: str) -> Diagnosis:
    """It does not work."""
    return Diagnosis(level=Level.ERROR, what=what, mend=mend)


def guarded(name: str, found: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    """A check's findings; a check that fails is itself a finding and does not stop the others."""
    for each in _unfailing(found):
        yield each if each.check else replace(each, check=name)


def _unfailing(found: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    try:
        yield from found
    except AdvisorError as problem:
        yield error(str(problem), "See the message; then run `advisor doctor` again")
    except PermissionError as problem:
        yield error(str(denied(Path(problem.filename or ""))), "Run the doctor as the service's user")
    except Exception as problem:  # noqa: BLE001 - the other checks must still run
        yield error(f"the check itself failed: {type(problem).__name__}: {problem}", "Please report this")


def examine_service(loaded: LoadedSettings, partitions: set[str] | None) -> Iterator[Diagnosis]:
    """Check settings, folders, database, models, sockets and snapshot.

    `partitions` are the cluster's; None when Slurm did not answer.
    """
    settings = loaded.settings
    yield from guarded("settings", _settings(loaded, partitions))
    yield from guarded("folders", _folders(settings))
    yield from guarded("state files", _state_files(settings))
    yield from guarded("controllers", _controllers(settings))
    yield from guarded("history", _history(settings))
    yield from guarded("drift", _drift(settings))
    yield from guarded("models", _models(settings))
    yield from guarded("trainings", _trainings(settings))
    yield from guarded("submit socket", _submit_socket(settings))
    yield from guarded("control socket", _control_socket(settings))
    yield from guarded("snapshot", _snapshot(settings))


def _settings(loaded: LoadedSettings, partitions: set[str] | None) -> Iterator[Diagnosis]:
    findings = check(loaded, partitions)
    for finding in findings:
        make = error if finding.severity == "error" else warning
        yield make(f"{finding.key} ({finding.where}): {finding.what}", finding.mend)
    if not findings:
        yield ok(f"{loaded.path or 'defaults'}: no errors")
    cluster, budget = loaded.settings.cluster, loaded.settings.budget
    if cluster.policy == "price" and not budget.is_set:
        yield warning(
            "no budget is set: jobs get advice, and none is moved",
            "Set budget.usd; `advisor recommend` shows what each budget would have bought",
        )
    if not loaded.settings.cluster.moves_jobs:
        yield warning(
            "no partition has the mode act or opt-in: jobs get advice, and none is moved",
            'Set cluster.default_mode = "act" when the results in `advisor ledger` satisfy you',
        )


def _folders(settings: Settings) -> Iterator[Diagnosis]:
    for name, path in (("paths.state", settings.paths.state), ("paths.run", settings.paths.run)):
        if not path.is_dir():
            yield error(f"{name} = {path} does not exist", f"mkdir {path}; chown it to the service's user")
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield error(f"{path} is writable by all users", f"chmod o-w {path}")
        elif not os.access(path, os.W_OK):
            yield warning(f"you cannot write {path}", "Run the doctor as the service's user")
        elif (free := shutil.disk_usage(path).free) < _LOW_BYTES:
            mend = "Make room; launches, the ledger and learning then go on by themselves"
            yield error(f"the disk of {path} has only {free / 1e6:.1f} MB left", mend)
        else:
            yield ok(f"{path} is writable")


def _state_files(settings: Settings) -> Iterator[Diagnosis]:
    """State files that cannot be used, and damaged ones, without which control has continued."""
    is_ours = os.access(settings.paths.state, os.X_OK)  # else the check of the folders says it
    for one in STATE_FILES if is_ours else ():
        try:
            one.at(settings.paths.state).load()
        except BadInput as problem:
            yield error(str(problem), f"Mend it before `advisor control` starts without it. {one.loss}")
    if damaged := sorted(path.name for path in settings.paths.state.glob("*.bad")):
        known = dict.fromkeys(file for name in damaged if (file := known_file(name)) is not None)
        costs = "".join(f" {file.name}: {file.loss}" for file in known)
        yield warning(
            f"damaged files were set aside in {settings.paths.state}: {', '.join(damaged[:10])}.{costs}",
            "The journal of advisor-control says what was lost; find the cause, then remove the files",
        )


def _drift(settings: Settings) -> Iterator[Diagnosis]:
    """Partitions whose jobs stay on-premise, since forecasts have not held for a week."""
    fallen = DRIFT.at(settings.paths.state).load() or Drift()
    for name, one in fallen.fallen_back.items():
        yield warning(f"jobs of the partition {name} stay on-premise: {one.words}", MEND_DRIFT)
    if not fallen.fallen_back:
        yield ok("no partition has fallen back to on-premise")


def _controllers(settings: Settings) -> Iterator[Diagnosis]:
    """Two of them: which one acts, and what both must reach."""
    paths = settings.paths
    if not paths.shared:
        return
    try:
        holder = read_holder(paths.state)
    except FileNotFoundError:
        mend = f"Mount it; at the first installation, `touch {paths.state / LEASE}` as the service's user"
        yield error(f"{paths.state} has no {LEASE}: is it mounted?", mend)
        return
    if holder.host:
        yield ok(f"{holder.host} acts (takeover {holder.fence})")
    else:
        yield warning("no host acts yet", "Start `advisor control` on both")
    if paths.database_url is None:
        yield warning(
            "the history is an SQLite file, which two hosts must not open over NFS",
            "Set paths.database_url to a PostgreSQL database that both reach",
        )


def _accounting(settings: Settings) -> str:
    return "lsb.acct FOLDER" if settings.cluster.scheduler == "lsf" else "sacct"


def _history(settings: Settings) -> Iterator[Diagnosis]:
    try:
        with HistoryStore(settings.history_url, busy_seconds=2.0) as store:
            jobs = store.count()
    except AdvisorError as problem:
        mend = "Learning and the ledger pause until this is mended; then they continue by themselves"
        yield error(str(problem), mend)
        return
    if jobs < settings.estimator.min_finished_jobs:
        yield warning(
            f"it has only {jobs} finished jobs to learn from",
            f"`advisor ingest {_accounting(settings)}` adds jobs from the accounting, `advisor ingest swf` "
            "from a log",
        )
    else:
        yield ok(f"it has {jobs:,} finished jobs")


def _models(settings: Settings) -> Iterator[Diagnosis]:
    store = ModelStore(folder=settings.paths.models)
    try:
        if settings.cluster.policy == "price":
            RunTimesOfJobs.from_arrays(store.load(RUN_TIMES_KIND)[0])
            yield ok("run times are learned")
        else:
            yield _knowledge_base(Predictor.from_arrays(*store.load(PREDICTOR_KIND)), settings)
    except UseFallback:
        yield error("there are no forecasts: every job stays", "Start `advisor control`, which builds them")
    try:
        store.load(SIZE_KIND)
    except UseFallback:
        yield warning(
            "no size model: every job counts as large",
            f"`advisor retrain` makes one from {settings.estimator.min_finished_jobs} finished jobs on, and "
            "so does its weekly timer",
        )
    else:
        yield ok("there is a size model")


def _trainings(settings: Settings) -> Iterator[Diagnosis]:
    """Weekly trainings that have failed, after which a model grows old."""
    for command, run in last_trainings(settings).items():
        if why := training_failure(run, time.time()):
            yield warning(
                f"the weekly training `advisor {command}` has failed: {why}",
                "Look at `journalctl -u advisor-retrain`, then `systemctl start advisor-retrain`",
            )


def _knowledge_base(predictor: Predictor, settings: Settings) -> Diagnosis:
    if cases := len(predictor.run):
        return ok(f"knowledge base of {cases:,} jobs")
    mend = f"Run `advisor ingest {_accounting(settings)}`, or wait for jobs to end"
    return warning("the knowledge base is empty", mend)


def _submit_socket(settings: Settings) -> Iterator[Diagnosis]:
    path = settings.paths.submit_socket
    yield from _socket_mode(path, "advisor serve", every_user=settings.submit.every_user)
    if not path.is_socket():
        return
    try:
        with SubmitClient(path, timeout=2.0) as client:
            client.ping()  # the first one opens the connection
            before = time.perf_counter()
            reply = client.ping()
            seconds = time.perf_counter() - before
    except AdvisorError as problem:
        if problem.code == DENIED:
            raise
        yield error(str(problem), "Restart `advisor serve`; its journal has the reason")
        return
    text = f"answers in {1000 * seconds:.2f} ms; {reply.advice_given:,} jobs advised"
    if seconds > _SLOW_SECONDS:
        yield warning(text, "Reduce this host's load: the hook stops waiting at its time limit")
    else:
        yield ok(text)
    if reply.spool_dropped:
        yield error(
            f"{reply.spool_dropped} advice records could not be written",
            f"Check whether the disk of {settings.paths.spool} is full",
        )
    if reply.hedges_not_announced > reply.hedges_announced:
        yield warning(
            f"`advisor control` was notified of {reply.hedges_announced} hedged jobs, and not of "
            f"{reply.hedges_not_announced} others: their placeholders are late",
            f"Check that it runs, and that both services run as one user and share {settings.paths.run}",
        )


def _control_socket(settings: Settings) -> Iterator[Diagnosis]:
    if not (settings.paths.shared and _acts_elsewhere(settings)):
        yield from _socket_mode(settings.paths.control_socket, "advisor control")
    folder = settings.paths.state / "handover"
    waiting = len(list(folder.glob("*.json")))
    if waiting > 10:
        yield warning(f"{waiting} hand-overs wait", "`advisor status` shows what fails")
    if damaged := sorted(path.name for path in folder.glob("*.bad")):
        yield warning(
            f"{len(damaged)} hand-overs were set aside in {folder}, the last one {damaged[-1]}",
            "The journal of advisor-control has the reason (handover.set_aside); then remove the files",
        )


def _acts_elsewhere(settings: Settings) -> bool:
    """Whether another host's control process acts; Slurm's programs leave files for it then."""
    try:
        return read_holder(settings.paths.state).host != os.uname().nodename
    except FileNotFoundError:
        return False


def _socket_mode(path: Path, service: str, *, every_user: bool = False) -> Iterator[Diagnosis]:
    if not path.is_socket():
        yield error(
            f"{path} does not exist", f"Start `{service}` (systemctl status says why it does not run)"
        )
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    is_for_all = bool(mode & (stat.S_IROTH | stat.S_IWOTH))
    if every_user and not is_for_all:
        yield error(f"users cannot use {path} (mode {mode:04o})", f"Restart `{service}`; it sets 0666")
    elif is_for_all and not every_user:
        yield error(f"all users can use {path} (mode {mode:04o})", f"Restart `{service}`; it sets 0660")
    else:
        yield ok(f"{path}, mode {mode:04o}")


def _snapshot(settings: Settings) -> Iterator[Diagnosis]:
    snapshot = snapshots.read(settings.paths.snapshot)
    age = time.time() - snapshot.state.time
    limit = settings.submit.snapshot_max_age_seconds
    if age < -1.0:
        yield error(
            f"its time is {-age:.0f} s in the future", "The clock was set back: restart `advisor control`"
        )
    elif age > limit:
        yield error(
            f"{age:.0f} s old: no job is moved",
            "Check that `advisor control` runs; `advisor status` shows more",
        )
    else:
        yield ok(f"{age:.0f} s old")
    protected = snapshot.state.cloud.protected
    if protected:
        mend = (
            "If a file is named, make room on its disk; if nodes do not boot, read their console output in "
            "EC2; if topology.conf lacks them, give them a switch of their own there; if something has not "
            "been read yet, `advisor status` says which loop fails"
        )
        yield error(f"no job is sent to the cloud: {protected}", mend)
