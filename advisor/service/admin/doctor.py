"""What an administrator can get wrong, looked at one by one; each finding says how to mend it."""

from __future__ import annotations

import enum
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from advisor.config import LoadedSettings, check
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.settings import Settings
from advisor.predict.knn.predictor import Predictor
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.access import DENIED, denied
from advisor.service.exchange.client import SubmitClient
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND

_SLOW_SECONDS: Final = 0.005


class Level(enum.StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One check's result.

    Attributes
    ----------
    check : str
        What was looked at.
    level : Level
        How it is.
    what, mend : str
        What was found; how to mend it (empty when all is well).
    """

    check: str
    level: Level
    what: str
    mend: str = ""


def ok(check: str, what: str) -> Diagnosis:
    """All is well."""
    return Diagnosis(check=check, level=Level.OK, what=what)


def warning(check: str, what: str, mend: str) -> Diagnosis:
    """It works, but not as well as it could."""
    return Diagnosis(check=check, level=Level.WARNING, what=what, mend=mend)


def error(check: str, what: str, mend: str) -> Diagnosis:
    """Something does not work."""
    return Diagnosis(check=check, level=Level.ERROR, what=what, mend=mend)


Check = Callable[[], Iterator[Diagnosis]]


def guarded(name: str, run: Check) -> Iterator[Diagnosis]:
    """A check's findings; a check that cannot be made is a finding too and hurts no other."""
    try:
        yield from run()
    except AdvisorError as problem:
        yield error(name, str(problem), "See the message; then run `advisor doctor` again")
    except PermissionError as problem:
        yield error(name, str(denied(Path(problem.filename or ""))), "Run the doctor as the service's user")
    except Exception as problem:  # noqa: BLE001 - the doctor must live to tell
        yield error(
            name, f"the check itself failed: {type(problem).__name__}: {problem}", "Please report this"
        )


def examine_service(loaded: LoadedSettings, partitions: set[str] | None) -> Iterator[Diagnosis]:
    """Settings, folders, database, models, sockets, snapshot.

    Parameters
    ----------
    partitions : set of str or None
        The cluster's; None when Slurm did not say.
    """
    settings = loaded.settings
    yield from guarded("settings", lambda: _settings(loaded, partitions))
    yield from guarded("folders", lambda: _folders(settings))
    yield from guarded("state files", lambda: _state_files(settings))
    yield from guarded("history", lambda: _history(settings))
    yield from guarded("models", lambda: _models(settings))
    yield from guarded("submit socket", lambda: _submit_socket(settings))
    yield from guarded("control socket", lambda: _control_socket(settings))
    yield from guarded("snapshot", lambda: _snapshot(settings))


def _settings(loaded: LoadedSettings, partitions: set[str] | None) -> Iterator[Diagnosis]:
    findings = check(loaded, partitions)
    for finding in findings:
        make = error if finding.severity == "error" else warning
        yield make("settings", f"{finding.key} ({finding.where}): {finding.what}", finding.mend)
    if not findings:
        yield ok("settings", f"{loaded.path or 'defaults'}: no mistakes")
    modes = {loaded.settings.cluster.mode_of(p) for p in loaded.settings.cluster.on_premise_partitions}
    if modes == {"shadow"}:
        yield warning(
            "settings",
            "every partition is in shadow mode: jobs are advised, none is moved",
            'Set cluster.default_mode = "act" when `advisor ledger` has convinced you',
        )


def _folders(settings: Settings) -> Iterator[Diagnosis]:
    for name, path in (("paths.state", settings.paths.state), ("paths.run", settings.paths.run)):
        if not path.is_dir():
            yield error(
                "folders", f"{name} = {path} is not there", f"mkdir {path}; give it to the service's user"
            )
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield error("folders", f"everybody can write {path}", f"chmod o-w {path}")
        elif not os.access(path, os.W_OK):
            yield warning("folders", f"you cannot write {path}", "Run the doctor as the service's user")
        else:
            yield ok("folders", f"{path} can be used")


def _state_files(settings: Settings) -> Iterator[Diagnosis]:
    """Files of the loops' state that were damaged: control goes on without, and somebody should know."""
    if ill := sorted(path.name for path in settings.paths.state.glob("*.bad")):
        yield warning(
            "state files",
            f"damaged files were set aside in {settings.paths.state}: {', '.join(ill[:10])}",
            "The journal of advisor-control says what became of it; find out why (disk?), then remove them",
        )


def _history(settings: Settings) -> Iterator[Diagnosis]:
    try:
        with HistoryStore(settings.paths.history_url, busy_seconds=2.0) as store:
            jobs = store.count()
    except AdvisorError as problem:
        mend = "Learning and the ledger stand still until it is mended, and then go on by themselves"
        yield error("history", str(problem), mend)
        return
    least = settings.estimator.min_finished_jobs
    if jobs < least:
        yield warning(
            "history",
            f"{jobs} finished jobs are known: few to learn from",
            "`advisor ingest sacct` reads the accounting, `advisor ingest swf` a log",
        )
    else:
        yield ok("history", f"{jobs:,} finished jobs are known")


def _models(settings: Settings) -> Iterator[Diagnosis]:
    store = ModelStore(folder=settings.paths.models)
    try:
        predictor = Predictor.from_arrays(*store.load(PREDICTOR_KIND))
    except UseFallback:
        yield error(
            "models", "there is no knowledge base: every job stays", "Start `advisor control`; it builds one"
        )
    else:
        cases = len(predictor.run)
        yield (
            ok("models", f"knowledge base of {cases:,} jobs")
            if cases
            else warning(
                "models", "the knowledge base is empty", "`advisor ingest sacct`; jobs that end fill it too"
            )
        )
    try:
        store.load(SIZE_KIND)
    except UseFallback:
        yield warning(
            "models", "no size model: every job counts as large", "`advisor retrain`, or wait a week"
        )
    else:
        yield ok("models", "there is a size model")


def _submit_socket(settings: Settings) -> Iterator[Diagnosis]:
    path = settings.paths.submit_socket
    yield from _socket_mode("submit socket", path, "advisor serve")
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
        yield error("submit socket", str(problem), "Restart `advisor serve`; its journal says more")
        return
    text = f"answers in {1000 * seconds:.2f} ms; {reply.advice_given:,} jobs advised"
    if seconds > _SLOW_SECONDS:
        yield warning("submit socket", text, "Look what else runs here; the hook gives up at its budget")
    else:
        yield ok("submit socket", text)
    if reply.spool_dropped:
        yield error(
            "submit socket",
            f"{reply.spool_dropped} advice records could not be written",
            f"Is the disk of {settings.paths.spool} full?",
        )
    if reply.hedges_not_announced > reply.hedges_announced:
        yield warning(
            "submit socket",
            f"`advisor control` could not be told of {reply.hedges_not_announced} hedged jobs, only of "
            f"{reply.hedges_announced}: it keeps their places late",
            f"Does it run, and do both services run as one user and share {settings.paths.run}?",
        )


def _control_socket(settings: Settings) -> Iterator[Diagnosis]:
    yield from _socket_mode("control socket", settings.paths.control_socket, "advisor control")
    folder = settings.paths.state / "handover"
    waiting = len(list(folder.glob("*.json")))
    if waiting > 10:
        yield warning("control socket", f"{waiting} hand-overs wait", "`advisor status` says what fails")
    if ill := sorted(path.name for path in folder.glob("*.bad")):
        yield warning(
            "control socket",
            f"{len(ill)} hand-overs were set aside in {folder}, the last one {ill[-1]}",
            "The journal of advisor-control says why (handover.set_aside); remove them when you have looked",
        )


def _socket_mode(name: str, path: Path, service: str) -> Iterator[Diagnosis]:
    if not path.is_socket():
        yield error(
            name, f"{path} is not there", f"Start `{service}` (systemctl status says why it is not up)"
        )
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield error(name, f"everybody can use {path} (mode {mode:04o})", f"Restart `{service}`; it sets 0660")
    else:
        yield ok(name, f"{path}, mode {mode:04o}")


def _snapshot(settings: Settings) -> Iterator[Diagnosis]:
    snapshot = snapshots.read(settings.paths.snapshot)
    age = time.time() - snapshot.state.time
    limit = settings.submit.snapshot_max_age_seconds
    if age < -1.0:
        yield error(
            "snapshot", f"it is from {-age:.0f} s in the future", "The clock was set back: restart control"
        )
    elif age > limit:
        yield error(
            "snapshot",
            f"{age:.0f} s old: no job is moved",
            "Does `advisor control` run? `advisor status` says more",
        )
    else:
        yield ok("snapshot", f"{age:.0f} s old")
    protected = snapshot.state.cloud.protected
    if protected:
        yield error("snapshot", f"nothing is sent to the cloud: {protected}", "Look at the nodes' boot logs")
