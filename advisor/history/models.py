"""Models on disk: arrays without pickle, and a manifest with their hash, in a folder of the service.

The learn loop, `advisor retrain` and `advisor tune` write them, `advisor serve` loads the newest.

Layout: ``<folder>/<kind>/<version>/{arrays.npz,manifest.json}`` and ``<folder>/<kind>/current``, a symbolic
link to the version in force. A version gets its name when it is complete, and is promoted by one rename, so a
reader finds the old model or the new one, and never a mixture.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as library_version
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from advisor.model.errors import AdvisorError, BadInput, TellAdmin, UseFallback

log = structlog.get_logger(__name__)

_DAMAGED = "models.damaged"
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VERSION = re.compile(r"[0-9]{8}")
_FORMAT = 1
_MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_MAX_ARRAYS_BYTES = 4 * 1024**3
_LIBRARIES = ("numpy", "scikit-learn", "numba", "burst-advisor")
_MAKERS = {"size": "`advisor retrain`", "parameters": "`advisor tune`", "cutoff": "`advisor tune --weekly`"}


def maker_of(kind: str) -> str:
    """The command that makes a new model of a kind, for messages."""
    return _MAKERS.get(kind, "`systemctl restart advisor-control`")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStore:
    """Models of one site by kind, e.g. ``"predictor"`` or ``"size"``.

    Attributes:
        folder: Must belong to root or the running user; no other user may write in it.
        keep: Versions kept of each kind, the one in force and the newest others.
    """

    folder: Path
    keep: int = 5

    def save(self, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
        """Write a new version and promote it.

        Args:
            kind: Lower-case letters, digits, ``-`` and ``_``.
            arrays: No object arrays: they would need pickle.
            meta: Anything JSON knows (NaN too), e.g. the feature schema; given back by :meth:`load`.

        Returns:
            The version: eight digits, counting up.

        Raises:
            BadInput: The folder cannot be written.
            TellAdmin: Another user owns the folder or can write in it.
        """
        home = self.prepare(kind)
        packed = _pack(arrays)
        with _clear_errors(home), _locked(home):
            known = self.versions(kind)
            version = f"{int(known[-1]) + 1 if known else 1:08d}"
            manifest = {
                "format": _FORMAT,
                "kind": kind,
                "version": version,
                "sha256": hashlib.sha256(packed).hexdigest(),
                "bytes": len(packed),
                "libraries": _libraries(),
                "meta": dict(meta),
            }
            _write_version(home, version, packed, json.dumps(manifest, indent=1).encode())
            _promote(home, version)
            self._remove_old(home)
        return version

    def prepare(self, kind: str) -> Path:
        """Make the folder of a kind, and check it, before the work that ends with :meth:`save`."""
        home = self._home(kind)
        with _clear_errors(home):
            for folder in (home.parent, home):  # the mode of a parent would be the umask's
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_folders(home)
        return home

    def take_out_damaged(self, kind: str) -> None:
        """Leave nothing in force where that is damaged, for a caller that makes a new one.

        Raises:
            TellAdmin: Another user can write there.
        """
        try:
            self.load(kind)
        except UseFallback:
            return
        except TellAdmin as error:
            if error.code != _DAMAGED:
                raise
            log.warning("models.taken_out", why=str(error))
            with _clear_errors(self._home(kind)):
                (self._home(kind) / "current").unlink()

    def load(self, kind: str, version: str | None = None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Read a version (default: the one in force) after its owner, modes and hash have been checked.

        Raises:
            UseFallback: There is no such model (yet).
            TellAdmin: It is damaged or was changed, or another user can write there.
        """
        if version is not None:
            return self._load(kind, version)
        while True:
            version = self.current(kind)
            try:
                return self._load(kind, version)
            except AdvisorError:
                # newer versions were promoted and this one was removed meanwhile: read the newest
                if self.current(kind) == version:
                    raise

    def _load(self, kind: str, version: str | None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        home = self._home(kind)
        with _clear_errors(home):
            if version is None or not _VERSION.fullmatch(version) or not (home / version).is_dir():
                raise UseFallback(
                    f"{home}: no {kind} model has been trained yet. {maker_of(kind)} makes one",
                    code="models.none",
                )
            self._check_folders(home, home / version)
            manifest = _read_manifest(home / version / "manifest.json", kind, version)
            packed = _read_checked(home / version / "arrays.npz", _MAX_ARRAYS_BYTES)
        found = hashlib.sha256(packed).hexdigest()
        if found != manifest["sha256"]:
            raise _damaged(
                home / version / "arrays.npz", f"its SHA-256 is {found[:16]}..., not the manifest's"
            )
        return _unpack(packed, home / version / "arrays.npz"), manifest["meta"]

    def current(self, kind: str) -> str | None:
        """The version in force; None before the first one."""
        link = self._home(kind) / "current"
        try:
            target = os.readlink(link)  # noqa: PTH115 - the text itself is wanted, not a path
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _damaged(link, error.strerror or "not a link") from error
        if not _VERSION.fullmatch(target):
            raise _damaged(link, "it leads out of the folder")
        return target

    def versions(self, kind: str) -> list[str]:
        """Versions kept, oldest first."""
        home = self._home(kind)
        if not home.is_dir():
            return []
        return sorted(entry.name for entry in home.iterdir() if _VERSION.fullmatch(entry.name))

    def _home(self, kind: str) -> Path:
        if not _KIND.fullmatch(kind):
            msg = f"not a kind of model: {kind!r}"
            raise ValueError(msg)
        return Path(self.folder) / kind

    def _check_folders(self, *folders: Path) -> None:
        for folder in (Path(self.folder), *folders):
            _check_ours(folder, os.lstat(folder), stat.S_ISDIR)

    def _remove_old(self, home: Path) -> None:
        versions = self.versions(home.name)
        in_force = self.current(home.name)
        for version in versions[: -self.keep]:
            if version != in_force:
                shutil.rmtree(home / version, ignore_errors=True)
        for leftover in home.glob(".partial-*"):  # of a process that was killed; the lock is held
            shutil.rmtree(leftover, ignore_errors=True)


def _pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            msg = f"array {name!r} holds Python objects: only plain numbers and text are stored"
            raise TypeError(msg)
    buffer = io.BytesIO()
    # as numpy.savez does it, which cannot take arrays called "file" or "allow_pickle"
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def _unpack(packed: bytes, path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path, str(error)) from error


def _libraries() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = library_version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _write_version(home: Path, version: str, packed: bytes, manifest: bytes) -> None:
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=home))
    try:
        for name, content in (("arrays.npz", packed), ("manifest.json", manifest)):
            descriptor = os.open(partial / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        partial.rename(home / version)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _promote(home: Path, version: str) -> None:
    link = home / ".current.new"
    link.unlink(missing_ok=True)
    link.symlink_to(version)
    link.replace(home / "current")
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)  # both renames are on disk before the caller goes on
    finally:
        os.close(descriptor)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One process at a time writes versions of a kind; readers never wait."""
    descriptor = os.open(home / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _clear_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            error.strerror or type(error).__name__,
            where=str(error.filename or home),
            mend="Check that its disk has room, and that the models folder exists and belongs to the "
            "service's user",
            code="models.unreadable",
        ) from error


def _check_ours(path: Path, status: os.stat_result, right_type: Any) -> None:
    """Check that root or this user owns it and no other user can write it (docs/designs/0001, rule 7)."""
    mend = "Only the service's user may write models: chown and chmod go-w it, after looking at what is in it"
    if not right_type(status.st_mode):
        what = "not the plain file or folder that belongs here (a link is neither)"
        raise TellAdmin(f"{path}: {what}. Remove it, after looking at what it is", code="models.type")
    if status.st_uid not in (0, os.geteuid()):
        what = f"belongs to user {status.st_uid}. If that is the service's user, run `advisor` as that user"
        raise TellAdmin(f"{path}: {what}. Else: {mend}", code="models.owner")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise TellAdmin(f"{path}: others can write it (mode {mode:04o}). {mend}", code="models.mode")


def _read_checked(path: Path, limit: int) -> bytes:
    """A file's content; owner and mode are checked on the opened file, so it cannot be swapped between."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        _check_ours(path, status, stat.S_ISREG)
        if status.st_size > limit:
            raise _damaged(path, f"larger than {limit} bytes")
        return file.read()


def _read_manifest(path: Path, kind: str, version: str) -> dict[str, Any]:
    try:
        manifest = json.loads(_read_checked(path, _MAX_MANIFEST_BYTES))
        right = manifest["format"], manifest["kind"], manifest["version"]
        complete = isinstance(manifest["sha256"], str) and isinstance(manifest["meta"], dict)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"not a manifest ({error})") from error
    if not complete or right != (_FORMAT, kind, version):
        raise _damaged(path, f"it is not the manifest of {kind} {version} in format {_FORMAT}")
    content: dict[str, Any] = manifest
    return content


def _damaged(path: Path, why: str) -> TellAdmin:
    home = next(folder for folder in path.parents if not _VERSION.fullmatch(folder.name))
    return TellAdmin(
        f"{path}: not loaded: {why}. Make a new one ({maker_of(home.name)}), or point the link `current` to "
        "an older version",
        code=_DAMAGED,
    )
