"""One Chromium and one scene for all tests in a real browser. What pages ask for or complain about is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.scene import Scene, pictured, playing
from tests.servers.uipages import SCREENSHOTS, browser

WIDE, NARROW = (1400, 900), (360, 740)


@dataclass
class Visit:
    """A page in a browser that has followed the link, and what went wrong on it."""

    page: Any
    root: str
    complaints: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def go(self, path: str) -> Any:
        """Open a page of the site, and return it once it is at rest."""
        answer = self.page.goto(f"{self.root}/{path}")
        assert answer.status == 200, f"{path}: {answer.status}"
        self.page.wait_for_function("() => window.htmx && window.Idiomorph")
        return self.page

    def keep(self, name: str) -> None:
        """Keep a picture of the page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


Visitor = Callable[..., Visit]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with playing(tmp_path_factory.mktemp("scene"), pictured()) as played:
        yield played


@pytest.fixture
def visiting(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """Return a function that lets a new browser in by a link. At the end, no page may have complained."""
    visits: list[Visit] = []

    def visit(link: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Visit:
        viewport = {"width": size[0], "height": size[1]}
        context = chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        page = context.new_page()
        page.set_default_timeout(60_000)
        made = Visit(page, link.rpartition("/enter/")[0])
        host = urlsplit(link).netloc
        page.on("console", lambda said: _note(made, said))
        page.on("pageerror", lambda error: made.complaints.append(str(error)))
        page.on("dialog", lambda dialog: made.complaints.append(f"dialog: {dialog.message}"))
        context.on("request", lambda asked: _ask(made, asked.url, host))
        page.goto(link)
        visits.append(made)
        return made

    yield visit
    for each in visits:
        each.page.context.close()
    assert [line for each in visits for line in each.complaints] == []
    assert [url for each in visits for url in each.outside] == []


def _note(visit: Visit, said: Any) -> None:
    if said.type in ("error", "warning"):
        visit.complaints.append(said.text)


def _ask(visit: Visit, url: str, host: str) -> None:
    if urlsplit(url).netloc != host:
        visit.outside.append(url)
