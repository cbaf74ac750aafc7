"""HTML reports in a real browser: accessible, in the window and on paper, and without any request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.reports.test_report_pages import PAGES

SCREENSHOTS = Path("build") / "screenshots"
WIDTHS = (360, 1100)
_PICTURED = {
    "decision": 30,
    "demo": 12,
    "moves": 12,
    "nodepools": 3,
    "moved": 12,
    "decisions": 12,
    "lines": 12,
}
_WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
_OUTSIDE = """() => [...document.querySelectorAll("svg[viewBox] text")].filter(each => {
  const view = each.closest("svg").viewBox.baseVal, box = each.getBBox();
  return box.x < -2 || box.x + box.width > view.width + 2;
}).map(each => each.textContent)"""


@pytest.fixture
def reader(chromium: Any) -> Any:
    """Return a Chromium that opens reports as a reader does, from files."""
    return chromium


def opened(
    reader: Any, folder: Path, kind: str, *, width: int = 1100, scheme: str = "light", nodes: int = 0
) -> Any:
    """Return a report's page. Requests other than that for the file, and complaints, are in its list `faults`."""
    file = folder / f"{kind}.html"
    file.write_text(PAGES[kind](nodes or _PICTURED[kind]), encoding="utf-8")
    page = reader.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.faults = []
    page.on("request", lambda asked: asked.url == file.as_uri() or page.faults.append(asked.url))
    page.on("console", lambda reported: page.faults.append(reported.text))
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_in_a_report(reader: Any, tmp_path: Path, kind: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-not-found,import-untyped,unused-ignore]

    page = opened(reader, tmp_path, kind, scheme=scheme)
    found = Axe().run(page)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"report-{kind}-{scheme}.png", full_page=True)

    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found.response["violations"]] == []
    assert page.faults == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", PAGES)
def test_hostile_names_leave_the_layout_as_it_is(reader: Any, tmp_path: Path, kind: str, width: int) -> None:
    page = opened(reader, tmp_path, kind, width=width)

    assert not page.evaluate(_WIDER)
    assert page.evaluate(_OUTSIDE) == []
    assert page.evaluate("document.querySelectorAll('script').length") == 0
    assert page.faults == []


@pytest.mark.parametrize("kind", PAGES)
def test_a_report_prints_on_a4(reader: Any, tmp_path: Path, kind: str) -> None:
    page = opened(reader, tmp_path, kind, scheme="dark")
    page.emulate_media(media="print")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 680, "height": 960})  # A4 less its margins
    assert not page.evaluate(_WIDER)
    printed = page.pdf(path=SCREENSHOTS / f"report-{kind}.pdf", prefer_css_page_size=True)
    assert b"/MediaBox [0 0 594.95996 841.91998]" in printed or b"/MediaBox [0 0 595" in printed


def test_the_keyboard_reaches_every_part_that_scrolls(reader: Any, tmp_path: Path) -> None:
    page = opened(reader, tmp_path, "decision", width=360)
    scrolling = page.locator(".scroll").count()
    reached = set()
    for _ in range(scrolling + 2):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("[...document.querySelectorAll('.scroll')].indexOf(document.activeElement)")
        )

    assert reached - {-1} == set(range(scrolling))
