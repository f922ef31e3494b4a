"""What README and docs say exists: links, commands, settings, make targets, reasons, pictures."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
import typer
import typer.main

from advisor.config import check as find_mistakes
from advisor.config import load
from advisor.config.definitions import RETIRED, by_key, section_models
from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Mode
from advisor.model.errors import BadInput
from advisor.testing.ec2 import Ec2Emulator
from benchmarks.commands import bench
from tests.commands import app

PROJECT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/designs/*.md", "ansible/*.md")
    for path in PROJECT.glob(pattern)
)
DESIGNS = [page for page in PAGES if "designs" in page.parts]
USAGE_ERROR = typer.BadParameter.__mro__[1]
"""click's, or that of the copy that typer brings along."""
_FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_RUN_AS = re.compile(r"^(?:\$ )?(?=advisor |make )")
_AS_THE_SERVICE = re.compile(r'su -s /bin/sh advisor -c "([^"]*)"')


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    return _FENCE.sub("", text_of(page))


def named(values: list[Any]) -> Any:
    return pytest.mark.parametrize(
        ("page", "value"), values, ids=[f"{page.name}:{value}" for page, value in values]
    )


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in _LINK.findall(prose_of(page)):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def code_of(page: Path) -> Iterator[str]:
    """Lines of fenced blocks, continued ones joined, and inline code."""
    for block in _FENCE.findall(text_of(page)):
        yield from block.replace("\\\n", " ").splitlines()
    yield from _INLINE.findall(prose_of(page))


def commands(word: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for line in code_of(page):
            for part in re.split(r"\s+(?:&&|\||>)\s+", _AS_THE_SERVICE.sub(r"\1", line)):
                command = _RUN_AS.sub("", part.strip())
                if command.startswith(f"{word} ") and "..." not in command:
                    yield page, command


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as the usual forges make them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@named(list(links()))
def test_link_leads_somewhere(page: Path, value: str) -> None:
    path, _, anchor = unquote(value).partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.exists()
    if anchor:
        assert anchor in anchors(target)


@functools.cache
def the_command() -> Any:
    return typer.main.get_command(app)


def parse(arguments: list[str]) -> None:
    """Parse as `advisor` would and run nothing; a command named alone, in a sentence, may lack arguments."""
    command = the_command()
    context = command.make_context("advisor", [], resilient_parsing=True)
    while hasattr(command, "get_command") and arguments:
        name = arguments.pop(0)
        if name in ("--help", "--version"):
            return
        found = command.get_command(context, name)
        if found is None:
            raise LookupError(name)
        command = found
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    if arguments:
        with suppress(BadInput):  # understood, but the log or file it names is not here
            command.make_context(command.name, arguments, parent=context.parent)


@named(list(dict.fromkeys(commands("advisor"))))
def test_command_is_understood(page: Path, value: str) -> None:
    parse(shlex.split(value, comments=True)[1:])


@pytest.mark.parametrize("wrong", ["frobnicate", "config frobnicate", "why 12 --sense", "ledger --sense 7d"])
def test_wrong_commands_are_not_understood(wrong: str) -> None:
    with pytest.raises((LookupError, USAGE_ERROR)):
        parse(wrong.split())


def test_tests_and_benchmarks_that_measure_something_exist() -> None:
    tests = [word for _, value in commands("pytest") for word in value.split() if word.startswith("tests/")]
    names = [value.split()[3] for _, value in commands("python -m benchmarks")]
    assert min(len(tests), len(names)) >= 2
    assert [path for path in tests if not (PROJECT / path).exists()] == []
    assert set(names) <= {command.name for command in bench.registered_commands}


@named(list(dict.fromkeys(commands("make"))))
def test_make_target_exists(page: Path, value: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of(PROJECT / "Makefile"), re.MULTILINE))
    wanted = [word for word in shlex.split(value, comments=True)[1:] if "=" not in word]
    assert wanted
    assert set(wanted) <= targets


def settings_named() -> Iterator[tuple[Path, str]]:
    sections = "|".join(section_models())
    pattern = re.compile(rf"(?<!-)\b((?:{sections})\.[a-z][a-z_0-9]*)\b(?!\()")
    files = ("toml", "md", "lua", "py", "log", "sock", "conf", "json", "service")
    for page in PAGES:
        if "designs" in page.parts:
            continue
        for code in code_of(page):
            for key in pattern.findall(code):
                section, _, name = key.partition(".")
                is_python = section == "ec2" and hasattr(Ec2Emulator, name)  # the emulator of testing.md
                if name not in files and key not in set(Reason) and not is_python:
                    yield page, key


@named(list(dict.fromkeys(settings_named())))
def test_setting_exists(page: Path, value: str) -> None:
    assert value in by_key() or (page.name == "CHANGELOG.md" and value in RETIRED)


def toml_blocks() -> list[tuple[Path, str]]:
    return [
        (page, block)
        for page in PAGES
        for block in re.findall(r"^```toml\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize(("page", "block"), toml_blocks())
def test_settings_shown_can_be_loaded(page: Path, block: str, tmp_path: Path) -> None:
    path = tmp_path / "advisor.toml"
    path.write_text(block, encoding="utf-8")
    assert not [finding for finding in find_mistakes(load(path, {}), None) if finding.severity == "error"]


def reasons_named() -> Iterator[tuple[Path, str]]:
    pattern = re.compile(r"\b((?:rule|turnaround)\.[a-z_]+)\b")
    for page in PAGES:
        for code in code_of(page):
            for reason in pattern.findall(code):
                yield page, reason


@named(list(dict.fromkeys(reasons_named())))
def test_reason_exists(page: Path, value: str) -> None:
    assert value in set(Reason)


def metrics_named() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for name in re.findall(r"`advisor_((?!programs|hook|submit)[a-z_]+)`", prose_of(page)):
            yield page, name


@named(list(dict.fromkeys(metrics_named())))
def test_metric_exists(page: Path, value: str) -> None:
    sources = [text_of(path) for path in (PROJECT / "advisor" / "service").rglob("*.py")]
    quoted = value.removeprefix("serve_").removesuffix("_total")
    pattern = re.compile(rf'"(?:advisor_)?(?:serve_)?{quoted}"')
    assert any(pattern.search(source) for source in sources)


def named_in_code(pattern: str) -> list[tuple[Path, str]]:
    found = [(page, code) for page in PAGES for code in _INLINE.findall(prose_of(page))]
    return list(dict.fromkeys((page, code) for page, code in found if re.fullmatch(pattern, code)))


@named(named_in_code(r"[\w./-]+/\w+\.(?:py|lua)"))
def test_source_file_exists(page: Path, value: str) -> None:
    folders = ("", "advisor", "advisor/service", "tests/service", "tests/service/cloud")
    assert any((PROJECT / folder / value).is_file() for folder in folders)


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`(f\d\d_\w*[a-z])`", text_of(PROJECT / "docs" / "faults.md"))))
)
def test_test_of_a_fault_exists(name: str) -> None:
    tests = (PROJECT / "tests").rglob("test_*.py")
    assert any(f"def test_{name}(" in text_of(path) for path in tests)


@named(named_in_code(r"advisor(?:\.(?!toml)\w+)+"))
def test_module_exists(page: Path, value: str) -> None:
    path = PROJECT / value.replace(".", "/")
    module = path.parent.with_suffix(".py")  # the last name may be one of a module's
    is_in_module = module.is_file() and re.search(rf"\b{path.name}\b", text_of(module)) is not None
    assert path.is_dir() or path.with_suffix(".py").is_file() or is_in_module


def test_glossary_has_at_most_forty_words_each_once() -> None:
    words = re.findall(r"^- \*\*([^*]+)\*\*: ", text_of(PROJECT / "docs" / "glossary.md"), re.MULTILINE)
    assert 30 <= len(words) <= 40
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("page", DESIGNS, ids=lambda page: page.name)
def test_design_page_is_of_two_screens_and_its_lines_can_be_compared(page: Path) -> None:
    lines = text_of(page).splitlines()
    assert len(lines) <= (140 if page.name.startswith("0001") else 100)
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


def test_design_pages_are_numbered_once_each() -> None:
    numbers = [page.name[:4] for page in DESIGNS]
    assert numbers == [f"{number:04}" for number in range(1, len(DESIGNS) + 1)]
    assert all(text_of(page).startswith(f"# {page.name[:4]} ") for page in DESIGNS)


def test_picture_is_well_formed_and_says_what_it_shows() -> None:
    pictures = sorted((PROJECT / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ET.parse(picture).getroot()
        assert root.find("{http://www.w3.org/2000/svg}desc") is not None
        assert "viewBox" in root.attrib


def test_every_page_for_admins_is_linked_from_the_readme() -> None:
    linked = {target.partition("#")[0] for page, target in links() if page.name == "README.md"}
    for page in (PROJECT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in linked


@pytest.mark.parametrize(
    "page", [PROJECT / "README.md", PROJECT / "docs" / "install.md"], ids=lambda page: page.name
)
def test_day_one_25_the_commands_of_an_installation_need_no_sudo(page: Path) -> None:
    assert not [line for line in code_of(page) if line.lstrip("$ ").startswith("sudo ")]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("troubleshoot.md", "nothing is launched until it is known what was spent"),
        ("troubleshoot.md", "others can write"),
        ("troubleshoot.md", "the snapshot of the cluster is too old"),
        ("troubleshoot.md", "learning and the ledger pause"),
        ("first-week.md", "Its wait here is not known"),
        ("operate.md", "Its wait here is not known"),
    ],
)
def test_a_message_that_a_page_quotes_is_one_of_ours(page: str, message: str) -> None:
    assert message in text_of(PROJECT / "docs" / page)
    assert any(message in text_of(module) for module in (PROJECT / "advisor").rglob("*.py"))


def test_a_heading_that_a_message_names_is_there() -> None:
    found = [
        (page, heading)
        for module in (PROJECT / "advisor").rglob("*.py")
        for page, _, heading in re.findall(r"docs/([\w-]+\.md),\s(['\"])([A-Z][^'\"]+)\2", text_of(module))
    ]
    assert len(found) > 5
    assert [one for one in found if f"# {one[1]}\n" not in text_of(PROJECT / "docs" / one[0])] == []


def test_the_step_that_stops_all_moves_clears_the_modes_of_partitions() -> None:
    settings = load(None, {}).settings.cluster
    acting = settings.model_copy(update={"modes": {"onprem": Mode.ACT}, "default_mode": Mode.SHADOW})
    assert acting.moves_jobs, "default_mode alone stops nothing where a partition has a mode of its own"
    (row,) = re.findall(
        r"^\| keep advising, move nothing \|.*$", text_of(PROJECT / "docs/operate.md"), re.MULTILINE
    )
    assert "'cluster.modes={}'" in row


def test_a_path_that_a_message_names_is_a_setting() -> None:
    found = set[str]()
    for module in (PROJECT / "advisor").rglob("*.py"):
        for line in text_of(module).splitlines():
            if re.search(r"""["'][^"']*\bpaths\.[a-z_]+[^"'(]*["']""", line):
                found |= set(re.findall(r"\bpaths\.[a-z_]+", line.replace("settings.paths", "")))
    assert len(found) > 3
    assert found <= by_key().keys()
