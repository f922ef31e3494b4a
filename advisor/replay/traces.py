"""Logs of the Parallel Workloads Archive by name: fetched once, checked, resumed after a break.

`advisor traces get` fetches them; ``--trace NAME`` finds those that were fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from advisor.model.errors import BadInput, RetryLater, UseFallback

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes fetched, bytes in all)."""

ARCHIVE_URL: Final = "https://www.cs.huji.ac.il/labs/parallel/workload"
ACKNOWLEDGEMENT: Final = (
    "Logs of the Parallel Workloads Archive are free to use; publications acknowledge those who provided the "
    "log and the archive's maintainers: D. G. Feitelson, D. Tsafrir and D. Krakov, 'Experience with using "
    "the Parallel Workloads Archive', J. Parallel and Distributed Computing 74(10), 2014."
)
FOLDER: Final = Path("traces")
"""Where logs are kept, below the working directory."""
_BLOCK: Final = 1 << 16
_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A log of the archive.

    Attributes:
        name: Its name for `advisor traces get`.
        sha256: Checksum of the packed file.
        size_bytes, jobs, processors: Size of the packed file; lines of the log; processors of the machine.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    jobs: int
    processors: int
    contributors: str

    @property
    def file_name(self) -> str:
        """Name of the file, without folders."""
        return self.path.rpartition("/")[2]


CATALOGUE: Final = {
    trace.name: trace
    for trace in (
        Trace(
            name="ctc-sp2",
            path="l_ctc_sp2/CTC-SP2-1996-3.1-cln.swf.gz",
            sha256="b0340ab258dbf1be3ad7a2e3a9b6755255b30afbdf7f19071ef35844298d9deb",
            size_bytes=1_406_170,
            jobs=77_222,
            processors=338,
            contributors="Dan Dwyer and Steve Hotovy",
        ),
        Trace(
            name="hpc2n",
            path="l_hpc2n/HPC2N-2002-2.2-cln.swf.gz",
            sha256="af1f003b962abe2c8269c15a82ab3105ecf5830b8d4ffe8857854b24b7799cbb",
            size_bytes=2_864_623,
            jobs=202_871,
            processors=240,
            contributors="Ake Sandgren",
        ),
        Trace(
            name="kth-sp2",
            path="l_kth_sp2/KTH-SP2-1996-2.1-cln.swf.gz",
            sha256="ca38b89067b6150d8ee172694e27a9e67194eef0d338b609a764d10608d50a14",
            size_bytes=387_704,
            jobs=28_476,
            processors=100,
            contributors="Lars Malinowsky",
        ),
        Trace(
            name="lpc-egee",
            path="l_lpc/LPC-EGEE-2004-1.2-cln.swf.gz",
            sha256="d5e353f868049d62db91c735bddcc166d2bb31d5aebed3beb691a6d82a2eb18c",
            size_bytes=2_532_379,
            jobs=234_889,
            processors=140,
            contributors="Emmanuel Medernach",
        ),
        Trace(
            name="sdsc-blue",
            path="l_sdsc_blue/SDSC-BLUE-2000-4.2-cln.swf.gz",
            sha256="21e13db7ad9a172a2f186db26ba59e1f7215e24390bb363cfda6544ea2dc773c",
            size_bytes=3_867_428,
            jobs=243_306,
            processors=1152,
            contributors="Travis Earheart and Nancy Wilkins-Diehr",
        ),
        Trace(
            name="sdsc-ds",
            path="l_sdsc_ds/SDSC-DS-2004-2.1-cln.swf.gz",
            sha256="c4034501de919b7a01b5f1067fda45b13f4a2446799707bd7b939ef5be3bf73a",
            size_bytes=1_560_186,
            jobs=96_069,
            processors=1664,
            contributors="Victor Hazlewood",
        ),
        Trace(
            name="sdsc-sp2",
            path="l_sdsc_sp2/SDSC-SP2-1998-4.2-cln.swf.gz",
            sha256="542411910a45dabaa10a4c7237df39315d24e974b82c0e3a5c811e18585cf35a",
            size_bytes=1_143_524,
            jobs=59_715,
            processors=128,
            contributors="Victor Hazlewood",
        ),
    )
}


def find_trace(spec: str) -> str:
    """Path of the log that a specification names; a synthetic one is returned as it is.

    Args:
        spec: ``KTH-SP2.swf.gz``, ``kth-sp2``, ``synthetic:2000:1``.

    Raises:
        BadInput: The file is missing or may not be looked at, or the named log has not been fetched
            (``trace.missing``).
    """
    try:
        if spec == "synthetic" or spec.startswith("synthetic:") or Path(spec).is_file():
            return spec
    except OSError as error:
        raise BadInput(
            f"cannot look at {spec} ({error.strerror})",
            where="--trace",
            mend="Give a file that can be read",
            code="trace.missing",
        ) from None
    trace = CATALOGUE.get(spec.lower())
    if trace is None:
        raise BadInput(
            f"no such log: {spec}",
            where="--trace",
            mend=f"Give a file (.swf, .swf.gz), synthetic[:jobs[:seed]], or one of {', '.join(CATALOGUE)}",
            code="trace.missing",
        )
    path = FOLDER / trace.file_name
    if not path.is_file():
        raise BadInput(
            f"the log {trace.name} is not in the folder {FOLDER} yet",
            where="--trace",
            mend=f"Fetch it first: advisor traces get {trace.name}",
            code="trace.missing",
        )
    return str(path)


def named(name: str) -> Trace:
    """Find a log of the catalogue.

    Raises:
        BadInput: There is none of that name.
    """
    trace = CATALOGUE.get(name.lower())
    if trace is None:
        raise BadInput(
            f"no log is called {name!r}",
            where="advisor traces get",
            mend=f"Choose among {', '.join(CATALOGUE)}",
            code="trace.unknown",
        )
    return trace


def is_good(path: Path, trace: Trace) -> bool:
    """True if the file exists and has the catalogue's checksum."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == trace.sha256
    except FileNotFoundError:
        return False


def get(
    trace: Trace, folder: Path, *, archive_url: str = ARCHIVE_URL, progress: Progress | None = None
) -> Path:
    """Fetch a log into a folder unless it is there; the file appears only whole and checked.

    A broken transfer leaves ``.NAME.partial`` beside it, from which the next call resumes.

    Raises:
        BadInput: Another file of that name is there (it is left alone), or the folder cannot be written to.
        RetryLater: The connection broke; the same call resumes the transfer.
        UseFallback: The archive has no such file, or its checksum is not the catalogue's.
    """
    target = folder / trace.file_name
    try:
        if is_good(target, trace):
            return target
        if target.exists():
            raise BadInput(
                "the folder has another file of that name",
                where=str(target),
                mend="Move it away, or choose another folder",
                code="trace.in_the_way",
            )
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{trace.file_name}.partial"
        _fetch(f"{archive_url.rstrip('/')}/{trace.path}", partial, trace, progress)
        if not is_good(partial, trace):
            partial.unlink()
            raise UseFallback(
                f"{trace.name}: what the archive sent has another checksum; nothing was kept. "
                "It may have a newer version of the log: fetch it by hand and give its path.",
                code="trace.checksum",
            )
        partial.replace(target)
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror or error})",
            where=str(folder),
            mend="Choose another folder with --folder",
            code="trace.unwritable",
        ) from None
    return target


def _fetch(url: str, partial: Path, trace: Trace, progress: Progress | None) -> None:
    """Append to the partial file until it has the whole size."""
    there = partial.stat().st_size if partial.exists() else 0
    if there >= trace.size_bytes:
        if there == trace.size_bytes:
            return
        partial.unlink()
        there = 0
    if not url.startswith(("http://", "https://")):
        raise BadInput("not a web address", where=url, mend="Give http:// or https://", code="trace.url")
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})  # noqa: S310
    # the scheme was checked just above
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            resumed = answer.status == http.client.PARTIAL_CONTENT
            there = there if resumed else 0
            with partial.open("ab" if resumed else "wb") as out:
                while there <= trace.size_bytes and (block := _read(answer)):
                    out.write(block)
                    there += len(block)
                    if progress is not None:
                        progress(there, trace.size_bytes)
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            _refused(url, error.code)
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise RetryLater(
            f"{url}: {getattr(error, 'reason', error)}. Try again.", code="trace.network"
        ) from None
    if there < trace.size_bytes:
        raise RetryLater(
            f"{url}: the connection ended after {there:,} of {trace.size_bytes:,} bytes. "
            "Try again: it goes on from there.",
            code="trace.truncated",
        )


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Next block. A broken connection gives what came before it; the caller sees the missing bytes."""
    try:
        return answer.read1(_BLOCK)
    except http.client.IncompleteRead as error:
        return error.partial


def _refused(url: str, status: int) -> None:
    """Say what an HTTP error means for the caller."""
    if status in {408, 429} or status >= 500:
        raise RetryLater(
            f"{url}: the server answered {status}. Try again later.", code="trace.server"
        ) from None
    raise UseFallback(
        f"{url}: the server answered {status}. Fetch the log by hand and give its path, "
        "or use --trace synthetic.",
        code="trace.not_found",
    ) from None
