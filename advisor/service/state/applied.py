"""Settings that were changed by the pages and by `advisor config set`: by whom, when, why, and the undo."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from advisor.config.editing import take_back, values_in_file, write_back
from advisor.config.redacting import redacted
from advisor.config.reference import toml_text
from advisor.files.owners import give_to_owner_of
from advisor.model.errors import BadInput, RetryLater
from advisor.service.state.records import Applied, AppliedChanges, Change
from advisor.service.state.state_files import APPLIED

_MOST: Final = 1000
_MAX_REASON: Final = 300
_HIDDEN: Final = "***"
_PATIENCE_SECONDS: Final = 10.0


class SettingsHistory:
    """Writes settings into the file and keeps what was changed.

    The file is written first, the history after it: the daemons watch the history and read the file when it
    has grown. Where the history cannot be written, the file is as before. What is read to decide on a change
    is read in :meth:`alone`: another command may change it meanwhile.

    Args:
        state: ``paths.state``.
    """

    def __init__(self, settings: Path, state: Path) -> None:
        self._settings = settings
        self._file = APPLIED.at(state)
        self._state = state
        self._lock = threading.RLock()
        self._is_alone = False

    def entries(self) -> tuple[Applied, ...]:
        """All changes, oldest first.

        Raises:
            BadInput: This user may not read them (``file.unusable``): they are not lost, so not set aside.
        """
        try:
            self._file.load()
        except BadInput as error:
            if isinstance(error.__cause__, PermissionError):
                raise
        except RetryLater:
            pass
        return self._file.read().entries

    def entry(self, number: int) -> Applied | None:
        """A change by its number."""
        return next((one for one in self.entries() if one.number == number), None)

    def apply(
        self,
        changes: Mapping[str, Any],
        *,
        author: str,
        reason: str,
        now: float,
        undoes: int | None = None,
    ) -> Applied:
        """Write settings into the file and into the history.

        Args:
            changes: ``section.name`` to its value; None takes the line out of the file.
            now: Epoch seconds.

        Raises:
            BadInput: No reason, nothing changes, a wrong value, or no permission to write.
        """
        with self.alone():
            entries = self.entries()
            made = Applied(
                number=entries[-1].number + 1 if entries else 1,
                time=now,
                author=author,
                reason=_reason(reason),
                changes=tuple(changes_of(self._settings, changes)),
                undoes=undoes,
            )
            had_file, now_in_file = self._settings.exists(), values_in_file(self._settings)
            write_back(self._settings, changes)
            try:
                self._keep(AppliedChanges(entries=(*entries[1 - _MOST :], made)))
            except OSError as error:
                if not had_file:
                    self._settings.unlink()
                elif not take_back(self._settings):
                    write_back(
                        self._settings, {change.key: now_in_file.get(change.key) for change in made.changes}
                    )
                raise BadInput(
                    f"the history of settings cannot be written ({error.strerror}), so nothing was changed",
                    where=str(self._file.path),
                    mend="Be root or the service's user, and see that the disk is not full",
                    code="config.history",
                ) from None
            return made

    def _keep(self, record: AppliedChanges) -> None:
        """Write the history, for the owner of ``paths.state`` also where root does it."""
        folder = self._file.path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        self._file.write(record)
        give_to_owner_of(folder.parent, folder, self._file.path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One writer at a time: of this process, and of all that look at the same folder.

        Raises:
            RetryLater: Another one is not ready in ten seconds (``config.locked``).
        """
        with self._lock:
            if self._is_alone:
                yield
                return
            try:  # a site that is not installed yet has the settings file alone
                folder = self._state if self._state.is_dir() else self._settings.parent
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                yield  # what is wrong with it is said when it is written to
                return
            try:
                _lock(descriptor, folder)
                self._is_alone = True
                yield
            finally:
                self._is_alone = False
                os.close(descriptor)

    def to_undo(self, number: int) -> dict[str, Any]:
        """The changes that undo a change: ``section.name`` to the value before it, None if there was none.

        Raises:
            BadInput: There is no such change, or a later one has the last word (``config.undo``).
        """
        entry = self.entry(number)
        if entry is None:
            raise BadInput(
                f"there is no change {number}",
                where="undo",
                mend="Choose one that `advisor config history` or the page Tune lists",
                code="config.undo",
            )
        now = values_in_file(self._settings)
        other = [
            change.key
            for change in entry.changes
            if _value(_text(now.get(change.key))) != _value(change.after)  # 500 in the file may be 500.0 here
        ]
        if other:
            raise BadInput(
                f"{', '.join(other)} was changed after it",
                where=f"change {number}",
                mend="Undo the later change first, or apply the value that you want",
                code="config.undo",
            )
        hidden = [change.key for change in entry.changes if change.before and _HIDDEN in change.before]
        if hidden:
            raise BadInput(
                f"{', '.join(hidden)} had a password, which the history does not keep",
                where=f"change {number}",
                mend="Write the value into the settings file",
                code="config.undo",
            )
        return {change.key: _value(change.before) for change in entry.changes}


def _lock(descriptor: int, folder: Path) -> None:
    """Lock a folder as the only writer of the settings."""
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() - begun >= _PATIENCE_SECONDS:
                raise RetryLater(
                    f"another command or page has been changing the settings for {_PATIENCE_SECONDS:.0f} s, "
                    f"so nothing was changed. `lslocks` shows its process by the path {folder}: let it end, "
                    "then run the command again",
                    code="config.locked",
                ) from None
            time.sleep(0.05)
        else:
            return


def changes_of(settings: Path, changes: Mapping[str, Any]) -> list[Change]:
    """The changes beside what the file has now.

    Raises:
        BadInput: None of them changes anything (``config.unchanged``).
    """
    now = values_in_file(settings)
    made = [
        Change(key=key, before=_text(now.get(key)), after=_text(value))
        for key, value in changes.items()
        if now.get(key) != value
    ]
    if not made:
        raise BadInput(
            "nothing would change",
            where=str(settings),
            mend="Choose another value",
            code="config.unchanged",
        )
    return made


def _text(value: Any) -> str | None:
    return None if value is None else toml_text(redacted(value))


def _value(text: str | None) -> Any:
    return None if text is None else tomllib.loads(f"value = {text}")["value"]


def _reason(text: str) -> str:
    words = " ".join(text.split())
    if not (0 < len(words) <= _MAX_REASON and words.isprintable()):
        raise BadInput(
            "a change needs a reason",
            where="reason",
            mend=f"Write why, in 1 to {_MAX_REASON} printable characters",
            code="config.reason",
        )
    return words
