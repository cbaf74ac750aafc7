"""Take the pictures of `nodesmith ui` for the documentation, from a local system: `make pictures`."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.browser.scene import Scene, pictured, playing
from tests.patience import eventually
from tests.servers.uipages import browser

FOLDER = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 200_000
_SIZE = {"width": 1200, "height": 860}
_PAGES = (
    ("now", "light", ""),
    ("now", "dark", "-dark"),
    ("why", "light", ""),
    ("next", "light", ""),
    ("proof", "light", ""),
    ("health", "light", ""),
    ("history", "light", ""),
)


def main() -> int:
    """Play the scene, take the pictures, and return the exit status."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as state, playing(Path(state), pictured()) as scene, browser() as chromium:
        _disturb(scene)
        page = _entered(chromium, scene.link, "light")
        root = page.url.rpartition("/")[0]
        eventually(lambda: _bought(page, root), "the savings are computed", 240)
        for name, scheme, suffix in _PAGES:
            page.emulate_media(color_scheme=scheme)
            page.goto(f"{root}/{name}")
            _take(page, f"ui-{name}{suffix}")
        page.emulate_media(color_scheme="light")
        page.goto(f"{root}/why")
        page.locator(".decisions li", has_text="node").filter(has_text="at ").last.locator("a").click()
        page.wait_for_selector("h2:has-text('In words')")
        _take(page, "ui-decision")
    for file in sorted(FOLDER.glob("ui-*.png")):  # the local system's output goes to its log
        print(f"{file.relative_to(FOLDER.parents[1])}: {file.stat().st_size:,} bytes")
    return 0


def _disturb(scene: Scene) -> None:
    """Let pods end, so that moves begin, and have EC2 take a node."""
    scene.scale("web", 12)
    scene.scale("search", 2)
    scene.interrupt(scene.spot_nodes()[0], timedelta(minutes=2))


def _entered(chromium: Any, link: str, scheme: str) -> Any:
    page = chromium.new_context(viewport=_SIZE, color_scheme=scheme, reduced_motion="reduce").new_page()
    page.goto(link)
    return page


def _bought(page: Any, root: str) -> bool:
    page.goto(f"{root}/now")
    return "not computed yet" not in page.inner_text("main")


def _take(page: Any, name: str) -> None:
    file = FOLDER / f"{name}.png"
    page.screenshot(path=file)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{file}: {size:,} bytes, more than {MOST_BYTES:,}")


if __name__ == "__main__":
    sys.exit(main())
