"""`make check` looks pinned releases up in the list of known vulnerabilities (tools/audit_dependencies)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "audit_dependencies"
FLAW = {"id": "PYSEC-2026-1", "fix_versions": ["2.0"]}


def audit(folder: Path, answer: str) -> subprocess.CompletedProcess[str]:
    """Run the tool with a pip-audit that gives this answer."""
    package = folder / "pip_audit"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"print({answer!r})")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        (sys.executable, TOOL), env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": [FLAW]}], 1, "a 1: PYSEC-2026-1, mended in 2.0"),
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 dependencies audited, 0 vulnerabilities known"),
        ([{"name": "a", "version": "1", "skip_reason": "not found"}], 0, "1 could not be looked up"),
    ],
)
def test_a_known_vulnerability_fails_the_check(
    tmp_path: Path, packages: list[dict[str, Any]], code: int, words: str
) -> None:
    done = audit(tmp_path, json.dumps({"dependencies": packages}))
    assert (done.returncode, words in done.stdout) == (code, True), done.stdout + done.stderr


def test_without_an_index_nothing_is_claimed(tmp_path: Path) -> None:
    done = audit(tmp_path, "")
    assert done.returncode == 0
    assert "not audited" in done.stdout


def test_pip_audit_itself_reads_the_constraints() -> None:
    """The real one, whatever the package index serves."""
    done = subprocess.run((sys.executable, TOOL), capture_output=True, text=True, check=False)
    assert "dependencies" in done.stdout
