"""The pages in a real Chromium: both widths, both colours, by keyboard, with measured contrast."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from advisor.cli.context import loaded_settings, settings_of
from advisor.service.admin.curves import keep
from advisor.web.gate import COOKIE
from advisor.web.links import Links
from advisor.web.persons import Person, Role
from advisor.web.run import configuration, listen
from advisor.web.site import Site
from advisor.web.whatif_runs import WhatIfRuns
from tests.web.conftest import ADMIN, COMMAND, HOSTILE
from tests.web.test_tune import make_curves

pytestmark = pytest.mark.slow

PAGES = ("/", "/tune?budget.usd=300", "/tune/review?budget.usd=300", "/accuracy", "/decisions", "/jobs/11")
PAGES += ("/ledger", "/money", "/nodes", "/portfolio", "/whatif", "/signin")
WAIT = 200_000.0
"""Milliseconds, for a busy machine."""
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
           "--disable-sync", "--no-first-run")  # fmt: skip
# all visible text: its colour, what lies behind it (the first opaque background above), and its size
TEXTS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("script,noscript,option,meter")) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || box.right < 0) continue;
    const style = getComputedStyle(element);
    let behind = element, back = "";
    while (behind) {
      back = getComputedStyle(behind).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(back)) break;
      behind = behind.parentElement;
    }
    const colour = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const text = walker.currentNode.textContent.trim().slice(0, 40);
    found.push([text, colour, back, parseFloat(style.fontSize)]);
  }
  return found;
}"""


def luminance(colour: str) -> float:
    """Relative luminance of a colour (WCAG 2.2)."""
    parts = [float(number) / 255.0 for number in re.findall(r"[\d.]+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21.0)
    assert contrast("rgb(118, 118, 118)", "rgb(255, 255, 255)") == pytest.approx(4.54, abs=0.01)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(OPTIONS), timeout=WAIT
        )
        yield found
        found.close()


@pytest.fixture
def site(config: Path) -> Iterator[tuple[Site, str]]:
    """The pages, served, and where; with curves and a budget."""
    config.write_text(config.read_text() + "[budget]\nusd = 200.0\n[web]\nport = 0\n")
    keep(config.parent / "state", make_curves())
    made = Site(settings_of(config), lambda: loaded_settings(config), WhatIfRuns(COMMAND))
    listening = listen(made.first.web)
    server = uvicorn.Server(configuration(made))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield made, f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


def opened(browser: Browser, site: tuple[Site, str], person: Person | None = ADMIN, **options: Any) -> Page:
    """A page of a browser that has signed in."""
    context = browser.new_context(base_url=site[1], **options)
    context.set_default_timeout(WAIT)
    if person is not None:
        context.add_cookies([{"name": COOKIE, "value": site[0].gate.open(person), "url": site[1]}])
    return context.new_page()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_in_both_widths(browser: Browser, site: tuple[Site, str], scheme: Any) -> None:
    page = opened(browser, site, color_scheme=scheme)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"{page.url}: a script ran: {dialog.message}"))
    for path in PAGES:
        page.goto(path)
        page.wait_for_function(
            "() => [...document.querySelectorAll('.plot')].every((one) => one.querySelector('svg'))"
        )
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                faults.append(f"{path} at {width}: {wide} wide")
        for text, colour, back, size in page.evaluate(TEXTS):
            ratio = contrast(colour, back)
            if ratio < (3.0 if size >= 24 else 4.5):
                faults.append(f"{path}: {text!r} {colour} on {back}: {ratio:.2f}")
        for plot in page.query_selector_all(".plot"):
            words = plot.get_attribute("aria-label") or ""
            if plot.get_attribute("role") != "img" or len(words) < 40:
                faults.append(f"{path}: a plot without words: {words!r}")
            if page.query_selector("figure details table tbody tr") is None:
                faults.append(f"{path}: a plot without its table")
    assert faults == []
    page.context.close()


def test_what_a_telephone_shows_of_an_outcome_is_not_cut(browser: Browser, site: tuple[Site, str]) -> None:
    page = opened(browser, site, viewport={"width": 390, "height": 900})
    page.goto("/jobs/11")
    assert page.get_by_text("predicted", exact=True).is_visible()
    cut = page.eval_on_selector_all(".narrow", "(all) => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert cut
    assert max(cut) <= 0
    page.context.close()


def test_the_lines_of_plots_stand_out(browser: Browser, site: tuple[Site, str]) -> None:
    for scheme in ("light", "dark"):
        page = opened(browser, site, color_scheme=scheme)
        page.goto("/tune?budget.usd=300")
        page.wait_for_selector(".plot svg .point")
        back = page.eval_on_selector(".plot", "(one) => getComputedStyle(one).backgroundColor")
        marks = page.eval_on_selector_all(
            ".plot .scatterlayer .point", "(all) => all.map((one) => getComputedStyle(one).fill)"
        )
        assert len(marks) > 2
        assert min(contrast(mark, back) for mark in marks) >= 3.0
        page.context.close()


def test_a_link_lets_in_and_no_script_can_read_the_cookie(browser: Browser, site: tuple[Site, str]) -> None:
    page = opened(browser, site, None)
    assert page.goto("/ledger").status == 401  # type: ignore[union-attr]
    assert page.goto("/signin?link=guessed").status == 200  # type: ignore[union-attr]
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This link lets nobody in").wait_for()
    token = Links(site[0].settings().paths.state).make(Person("ann", Role.USER), time.time() + 6000.0)
    page.goto(f"/signin?link={token}")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/decisions")
    assert page.evaluate("document.cookie") == ""
    (cookie,) = [one for one in page.context.cookies() if one["name"] == COOKIE]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.goto("/jobs/11").status == 403  # type: ignore[union-attr]
    assert page.goto("/jobs/12").status == 200  # type: ignore[union-attr]
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/signin")
    assert page.goto("/jobs/12").status == 401  # type: ignore[union-attr]
    page.context.close()


def test_a_script_in_a_jobs_name_is_text(browser: Browser, site: tuple[Site, str]) -> None:
    page = opened(browser, site)
    ran: list[str] = []
    page.on("dialog", lambda dialog: ran.append(dialog.message))
    page.goto("/jobs/11")
    assert HOSTILE.partition("\x1b")[0] in page.inner_text("main")
    assert page.query_selector("main script") is None
    assert ran == []
    page.context.close()


def test_tuning_by_keyboard_alone(browser: Browser, site: tuple[Site, str]) -> None:
    page = opened(browser, site)
    page.goto("/tune")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "budget.usd"
    page.keyboard.press("Control+A")
    page.keyboard.type("300")
    page.get_by_text("With these values a month would have cost 270.00 USD").wait_for()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    while page.evaluate("document.activeElement.textContent") != "Review the change":
        page.keyboard.press("Tab")
        assert page.evaluate(outline) != "none", "where the keyboard is can be seen"
    page.keyboard.press("Enter")
    page.get_by_text("+usd = 300.0").wait_for()
    while page.evaluate("document.activeElement.name") != "reason":
        page.keyboard.press("Tab")
    page.keyboard.type("deadline week")
    page.keyboard.press("Enter")
    page.get_by_role("cell", name="deadline week").wait_for()
    assert site[0].load().settings.budget.usd == 300.0
    page.get_by_role("link", name="Undo change 1").click()
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("cell", name="undo of change 1").wait_for()
    assert site[0].load().settings.budget.usd == 200.0
    page.context.close()
