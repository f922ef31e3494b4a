"""Compiled code without a folder for numba's cache, and with the cache of an older release."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import NumbaError

import advisor
from advisor.arrays import Floats
from advisor.compiled import compiled, compiled_in_place
from advisor.simulate.heap import sort_values

PACKAGE = Path(advisor.__file__).resolve().parent
SCRIPT = """
import importlib
import pkgutil
import numba
import advisor
from advisor.simulate import heap

try:
    numba.njit(cache=True)(heap.heap_push.py_func)
except RuntimeError as error:
    assert "no locator available" in str(error), error
else:
    raise SystemExit("numba has found a folder: this test shows nothing")

for module in pkgutil.walk_packages(advisor.__path__, "advisor."):
    if not module.name.startswith(("advisor.history.migrations", "advisor.testing")):
        importlib.import_module(module.name)
print(advisor.__file__)
"""


def test_every_module_can_be_imported_where_numba_has_no_folder_for_its_cache(tmp_path: Path) -> None:
    copy = tmp_path / "advisor"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        (folder / "__pycache__").touch()  # a file where numba would make a folder: also root cannot
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": os.devnull,
        "XDG_CACHE_HOME": os.devnull,
        "NUMBA_CACHE_DIR": f"{os.devnull}/numba",
    }
    done = subprocess.run(
        (sys.executable, "-c", SCRIPT),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(copy / "__init__.py")


RELEASE = """
from typing import NamedTuple
from advisor.compiled import compiled

class {name}(NamedTuple):
    number: float

@compiled
def double(what: {name}) -> float:
    return 2.0 * what.number

print(double({name}(2.0)), len(double.stats.cache_hits))
"""


def test_the_cache_of_a_release_with_other_class_names_is_written_anew(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = []
    for name in ("Known", "Known", "Knowledge", "Knowledge"):
        (tmp_path / "release.py").write_text(RELEASE.format(name=name))
        os.utime(tmp_path / "release.py", (1e9, 1e9 + len(name)))
        done = subprocess.run(
            (sys.executable, "-c", "import release"),
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["4.0 0", "4.0 1", "4.0 0", "4.0 1"]


def test_one_compiled_function_alone_has_a_sort_of_numbas() -> None:
    """Several that are cached by different processes may be linked to one another, and crash."""
    modules = [path for path in PACKAGE.rglob("*.py") if "\n@compiled" in path.read_text(encoding="utf-8")]
    assert len(modules) > 20
    found = []
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            names = {one.id for one in function.decorator_list if isinstance(one, ast.Name)}
            if names & {"compiled", "compiled_in_place"}:
                words = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
                found += [function.name] if words & {"sort", "argsort", "median", "quantile"} else []
    assert found == ["_order"]


@compiled
def _ones(count: int) -> Floats:
    return np.ones(count)


@compiled_in_place
def _add_ones(values: Floats) -> None:
    values += _ones(len(values))


@compiled_in_place
def _with_ones(count: int) -> Floats:
    return np.ones(count)


def test_a_function_that_makes_no_array_may_call_one_that_does() -> None:
    values = np.zeros(3)
    _add_ones(values)  # compiles `_ones` for its sake
    assert values.tolist() == [1.0, 1.0, 1.0]


def test_a_function_that_makes_an_array_after_all_is_not_compiled() -> None:
    with pytest.raises(NumbaError):
        _with_ones(3)


@given(st.lists(st.floats(allow_nan=False)))
def test_values_are_sorted(values: list[float]) -> None:
    found = np.array(values, np.float64)
    sort_values(found)
    assert found.tolist() == sorted(values)
