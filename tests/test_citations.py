"""What code, tests and pages cite is in the repository: pages, design notes, their rules, the floors."""

from __future__ import annotations

import posixpath
import re
import subprocess
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
HOUSE = PROJECT / "docs" / "designs" / "0001-the-house.md"
OF_THE_SITE = {"mkdocs.yml"}
"""Names pages that its own build makes, and fails for one that is missing (test_docs_site.py)."""
_PAGE = re.compile(r"(?<![\w.:/*-])[\w./-]*\w\.md\b")
"""A file's name with or without folders; neither a pattern (`docs/*.md`) nor part of an address (`https://`)."""
_DESIGN = re.compile(r"\bdocs/designs/(\d{4})\b")
_ITEM = re.compile(r"\b0001,\s+(?:#\s+)?(idea|rule) (\d+)\b")


@pytest.fixture(scope="module")
def tracked() -> frozenset[str]:
    """What a stranger's checkout has."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, check=True, stdout=subprocess.PIPE)
    return frozenset(listed.stdout.decode().split("\0")) - {""}


def texts(tracked: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(tracked):
        path = PROJECT / name
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if b"\0" not in data:
            yield name, data.decode("utf-8", errors="replace")


def missing_pages(name: str, text: str, tracked: Collection[str]) -> list[str]:
    """Pages cited by a file that are neither beside it nor, by the end of their path, anywhere else."""
    folder = posixpath.dirname(name)
    return [
        page
        for page in dict.fromkeys(_PAGE.findall(text))
        if posixpath.normpath(posixpath.join(folder, page)) not in tracked
        and not any(f"/{path}".endswith(f"/{page}") for path in tracked)
    ]


def test_every_page_that_is_cited_is_in_the_repository(tracked: frozenset[str]) -> None:
    cited = [(name, text) for name, text in texts(tracked) if name not in OF_THE_SITE]
    missing = {(name, page) for name, text in cited for page in missing_pages(name, text, tracked)}
    assert not missing


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("(GONE{}, rule 5)", ["GONE{}"]),
        ("``docs/gone{}``: see docs/here{} and here{}", ["docs/gone{}"]),
        ("[a](../docs/here{}#part) [b](../gone/here{})", ["../gone/here{}"]),
        ("docs/*{} and https://example.org/gone{}", []),
    ],
)
def test_a_page_that_is_not_there_is_found(text: str, missing: list[str]) -> None:
    end = ".md"  # apart: this file is looked through as well
    found = missing_pages("tests/some.py", text.replace("{}", end), {f"docs/here{end}"})
    assert found == [page.replace("{}", end) for page in missing]


def test_every_design_that_is_cited_by_number_exists(tracked: frozenset[str]) -> None:
    there = {path.name[:4] for path in HOUSE.parent.glob("*.md")}
    cited = {number for _, text in texts(tracked) for number in _DESIGN.findall(text)}
    assert HOUSE.name[:4] in cited
    assert cited <= there


def items_of(heading: str) -> set[str]:
    """Numbers of the list under a heading of the house."""
    _, _, after = HOUSE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    return set(re.findall(r"^(\d+)\. ", after.partition("\n## ")[0], re.MULTILINE))


def test_every_idea_and_rule_that_is_cited_is_in_the_house(tracked: frozenset[str]) -> None:
    cited = {item for _, text in texts(tracked) for item in _ITEM.findall(text)}
    there = {("idea", number) for number in items_of("Two ideas")}
    there |= {("rule", number) for number in items_of("Rules")}
    assert {kind for kind, _ in cited} == {"idea", "rule"}
    assert cited <= there


@pytest.mark.parametrize(("container", "prefix"), [("advisor", ""), ("advisor.service", r"8\.")])
def test_the_house_has_the_floors_that_import_linter_holds(container: str, prefix: str) -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract["containers"] == [container]
    ]
    held = [set(re.findall(r"\w+", layer)) for layer in reversed(layers)]
    told: list[set[str]] = [set() for _ in held]
    number = rf"^\| {prefix}(\d+) \| `(\w+)` \|"
    rows = re.findall(number, HOUSE.read_text(encoding="utf-8"), re.MULTILINE)
    for floor, package in rows:
        told[int(floor) - 1].add(package)
    assert told == held
