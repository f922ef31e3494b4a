"""The documentation site, built as `make docs` does: strictly, whole, with nothing from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
MD = ".md"
_FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


def build(folder: Path, config: Path = PROJECT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", folder],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


class Fetched(HTMLParser):
    """What a browser fetches for a page, and the page's text outside of code."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.text: list[str] = []
        self._code = 0
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code += tag in ("code", "pre", "script")
        address = dict(attrs).get(_FETCHED.get(tag, ""))
        if address and dict(attrs).get("rel") not in ("next", "prev", "canonical"):
            self.addresses.append(address)

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("code", "pre", "script")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.text.append(data)


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    for page in (PROJECT / "docs").rglob("*.md"):
        assert (site / page.relative_to(PROJECT / "docs")).with_suffix(".html").is_file(), page
    for name in ("index", "changelog", "contributing", "ansible"):
        assert (site / f"{name}.html").is_file()


def test_a_browser_fetches_nothing_from_the_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    fetched = {address for page in pages for address in Fetched(page).addresses}
    assert any(address.endswith("how-it-works.svg") for address in fetched)
    assert not [address for address in fetched if re.match(r"(https?:)?//", address)]
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:", sheet.read_text(encoding="utf-8")), sheet


def test_lists_and_tables_are_rendered_as_such(site: Path) -> None:
    for page in sorted(site.rglob("*.html")):
        text = "".join(Fetched(page).text)
        assert "|---" not in text, page
        assert not re.search(r"^- \S", text, re.MULTILINE), page


@pytest.mark.parametrize("link", [f"gone{MD}", "glossary.md#gone", "../pyproject.toml"])
def test_a_broken_link_is_an_error(link: str, tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "glossary.md").write_text(f"# Glossary\n[gone]({link})\n", encoding="utf-8")
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n  - Overview")[0]
    config = tmp_path / "mkdocs.yml"
    text = text.replace("docs_dir: docs", f"docs_dir: {pages}")
    text = text.replace("tools/mkdocs_pages.py", str(PROJECT / "tools" / "mkdocs_pages.py"))
    config.write_text(text + "nav:\n  - glossary.md\n", encoding="utf-8")
    done = build(tmp_path / "site", config)
    assert done.returncode != 0
    assert link.removeprefix("../").partition("#")[0] in done.stderr
