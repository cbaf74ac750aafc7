"""The pages of `nodesmith ui` in Chromium: how fast the first one of a large cluster is, and what axe finds in all.

The time is from the request to the largest paint. axe looks at HTML reports as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from nodesmith_cli.views.ui.pages.kept import PageData
from tests.benchmarks.figures import Figure
from tests.objects.savingsclusters import karpenter, node, pod
from tests.servers.uipages import browser, kept_of, served
from tests.unit.cli.reports.test_report_pages import PAGES

_KINDS = ("m5.large", "m5.xlarge", "m5.2xlarge")
_ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_PODS_ON_A_NODE, _PENDING = 20, 200
_REPEATS = 5
_SMALL = 12
_PATHS = ("now", "why", "next", "proof", "health", "history")
_LAST_PAINT = """() => new Promise(done => {
  new PerformanceObserver(list => {
    const entries = list.getEntries();
    const [page] = performance.getEntriesByType("navigation");
    setTimeout(() => done(Math.max(entries[entries.length - 1].startTime, page.loadEventEnd)), 50);
  }).observe({type: "largest-contentful-paint", buffered: true});
})"""


def figures(*, nodes: int = 5_000) -> list[Figure]:
    """Measure the first view five times, each in a new browser context and with a new look at the fleet."""
    kept = _kept(nodes)
    with served(kept) as link, browser() as chromium:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(link)
        times = [page.evaluate(_LAST_PAINT) / 1000]
        root, cookies = page.url, context.cookies()
        times += [_first_view(chromium, root, cookies) for _ in range(_REPEATS)]
    size = f"{nodes:,} nodes, {nodes * _PODS_ON_A_NODE + _PENDING:,} pods"
    note = f"{size}; the very first view {times[0]:.2f} s, the slowest {max(times):.2f} s"
    return [Figure("ui-first-view-s", median(times), "s", 1, note), _axe_findings()]


def _axe_findings() -> Figure:
    """Count what axe finds in the pages of a small cluster, and in a report of each kind, in light and dark."""
    from axe_playwright_python.sync_playwright import Axe

    found, looks = 0, 0
    with TemporaryDirectory() as folder, browser() as chromium:
        reports = {kind: Path(folder) / f"{kind}.html" for kind in PAGES}
        for kind, file in reports.items():
            file.write_text(PAGES[kind](_SMALL), encoding="utf-8")
        for scheme in ("light", "dark"):
            with served(_kept(_SMALL)) as link:
                page = chromium.new_context(color_scheme=scheme, reduced_motion="reduce").new_page()
                page.goto(link)
                root = link.rpartition("/enter/")[0]
                for url in [*(f"{root}/{path}" for path in _PATHS), *(f.as_uri() for f in reports.values())]:
                    answer = page.goto(url)
                    assert answer, url
                    assert answer.ok, url
                    found += len(Axe().run(page).response["violations"])
                    looks += 1
                page.context.close()
    note = f"{len(_PATHS)} pages and {len(reports)} kinds of reports, in light and dark: {looks} looks"
    return Figure("axe-findings", found, "violations", 0, note)


def _kept(nodes: int) -> PageData:
    manifests, pods = [_node(n) for n in range(nodes)], list(_pods(nodes))
    return kept_of(manifests, pods, name="benchmark", clock=lambda: datetime.now(UTC))


def _first_view(chromium: Any, root: str, cookies: Any) -> float:
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.add_cookies(cookies)
    page = context.new_page()
    page.wait_for_timeout(1_100)  # so that the server's last look is too old
    page.goto(root)
    shown: float = page.evaluate(_LAST_PAINT)
    assert "nodes, $" in page.locator("h1").inner_text()
    context.close()
    return shown / 1000


def _node(number: int) -> dict[str, Any]:
    sold = "spot" if number % 3 else "on-demand"
    kind, zone = _KINDS[number % 7 % 3], _ZONES[number % 3]
    return node(
        f"ip-10-0-{number // 250}-{number % 250}.ec2.internal",
        kind,
        zone=zone,
        labels=karpenter("default", sold),
    )


def _pods(nodes: int) -> Iterator[dict[str, Any]]:
    for number in range(nodes * _PODS_ON_A_NODE):
        name = number % nodes
        yield pod(
            f"web-{number}", f"ip-10-0-{name // 250}-{name % 250}.ec2.internal", cpu="150m", memory="400Mi"
        )
    for number in range(_PENDING):
        yield pod(f"waiting-{number}", "")
