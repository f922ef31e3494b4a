"""Every module is imported by a command, and every name of a module is used by something other than tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from advisor.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
_BY_ALEMBIC = "advisor.history.migrations"
_DOUBLES = "advisor.testing"


@cache
def trees() -> dict[str, ast.Module]:
    """Module to its syntax tree, of the package and of the benchmarks."""
    files = [*ROOT.glob("advisor/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return {
        name.removesuffix(".__init__"): ast.parse(file.read_text(encoding="utf-8"))
        for name, file in names.items()
    }


def texts(tree: ast.Module) -> Iterator[str]:
    """Strings that may name something: in tables of modules, annotations and calls of getattr."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value


def imported(tree: ast.Module) -> set[str]:
    """Modules that a module imports, at its top or later, or names in a string."""
    found = set(texts(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found & trees().keys()


def test_every_module_is_reached_from_a_command() -> None:
    reached: set[str] = set()
    ahead = {"advisor.cli.main"}
    while ahead:
        module = ahead.pop()
        reached.add(module)
        ahead |= {*imported(trees()[module]), module.rpartition(".")[0] or module} - reached
    package = {module for module in trees() if module.startswith("advisor")}
    others = {module for module in package if module.startswith((_BY_ALEMBIC, _DOUBLES))}
    assert package - reached - others == set()


def defined(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines: classes, constants, and functions that are not commands of typer."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            decorators = " ".join(ast.dump(one) for one in node.decorator_list)
            if "'command'" not in decorators and "'callback'" not in decorators:
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for one in targets if isinstance(one, ast.Name))


def test_every_name_of_a_module_is_used_outside_tests() -> None:
    elsewhere: set[str] = set()
    own: dict[str, set[str]] = {}
    for module, tree in trees().items():
        own[module] = {word for text in texts(tree) for word in re.findall(r"\w+", text)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                own[module].add(node.id)
            elif isinstance(node, ast.Attribute):
                elsewhere.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                elsewhere.update(f"{node.module}.{one.name}" for one in node.names)
    for module in COMMANDS:  # `advisor.cli.main` finds the function of a command by its module's name
        elsewhere.add(f"{module}.{module.rpartition('.')[2].rpartition('_')[2]}")
    unused = [
        f"{module}.{name}"
        for module, tree in trees().items()
        if not module.startswith((_BY_ALEMBIC, _DOUBLES))
        for name in defined(tree)
        if not name.startswith("__")
        and name not in own[module]
        and not elsewhere & {name, f"{module}.{name}"}
    ]
    assert unused == []
