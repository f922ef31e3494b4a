"""Pages of the documentation site that lie outside docs/, and links between them (a hook of mkdocs).

README, CHANGELOG, CONTRIBUTING and the Ansible role's page stand where their readers look for them. Here they
become pages of the site, and relative links are turned from paths in the repository into pages. A link to a
file that is no page of the site is a warning, and with `strict` an error. Lists and tables that follow a
paragraph without an empty line, which GitHub renders and Python-Markdown does not, get one.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
MD = ".md"
OUTSIDE = {
    "README.md": f"index{MD}",
    "CHANGELOG.md": f"changelog{MD}",
    "CONTRIBUTING.md": f"contributing{MD}",
    "ansible/README.md": f"ansible{MD}",
    "ansible/roles/burst_advisor/defaults/main.yml": "ansible-defaults.yml",
    "LICENSE": "license.txt",
}
"""Path in the repository, and in the site."""

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)([^)\s]*\))")
_ROW = re.compile(r"\|")
_ITEM = re.compile(r"[-*] |\d+\. ")
_FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
log = logging.getLogger("mkdocs.plugins.burst_advisor")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links from paths in the repository into paths in the site; set lists and tables apart."""
    name = page.file.src_uri
    path = next((path for path, target in OUTSIDE.items() if target == name), f"docs/{name}")
    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _in_site(link, path, name), part) for part in parts[::2]]
    parts[::2] = [_set_apart(part) for part in parts[::2]]
    return "".join(parts)


def _set_apart(text: str) -> str:
    """Put an empty line before each list and each table."""
    lines: list[str] = []
    before = "paragraph"
    for line in text.split("\n"):
        kind = "table" if _ROW.match(line) else "list" if _ITEM.match(line) else "paragraph"
        if line.startswith(" ") and before == "list":
            kind = "list"  # goes on with the item
        if kind not in ("paragraph", before):
            lines.append("")
        lines.append(line)
        before = kind if line else "paragraph"
    return "\n".join(lines)


def _in_site(link: re.Match[str], path: str, name: str) -> str:
    before, target, after = link.groups()
    if re.match(r"[a-z]+:", target):
        return link.group()
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    page = OUTSIDE.get(wanted, wanted.removeprefix("docs/"))
    if page == wanted:
        log.warning("%s links to %s, which is no page of the site", path, wanted)
        return link.group()
    return before + posixpath.relpath(page, posixpath.dirname(name) or ".") + after
