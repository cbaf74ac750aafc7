"""The first view of `nodesmith ui` for a large cluster, in Chromium: from the request to the largest paint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

from tests.benchmarks.figures import Figure
from tests.savingsclusters import karpenter, node, pod
from tests.uipages import browser, kept_of, served

_KINDS = ("m5.large", "m5.xlarge", "m5.2xlarge")
_ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_PODS_ON_A_NODE, _PENDING = 20, 200
_REPEATS = 5
_LAST_PAINT = """() => new Promise(done => {
  new PerformanceObserver(list => {
    const entries = list.getEntries();
    const [page] = performance.getEntriesByType("navigation");
    setTimeout(() => done(Math.max(entries[entries.length - 1].startTime, page.loadEventEnd)), 50);
  }).observe({type: "largest-contentful-paint", buffered: true});
})"""


def figures(*, nodes: int = 5_000) -> list[Figure]:
    """Measure the first view five times, each in a new browser context and with a new look at the fleet."""
    kept = kept_of(
        [_node(n) for n in range(nodes)],
        list(_pods(nodes)),
        name="benchmark",
        clock=lambda: datetime.now(UTC),
    )
    with served(kept) as link, browser() as chromium:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(link)
        times = [page.evaluate(_LAST_PAINT) / 1000]
        root, cookies = page.url, context.cookies()
        times += [_first_view(chromium, root, cookies) for _ in range(_REPEATS)]
    size = f"{nodes:,} nodes, {nodes * _PODS_ON_A_NODE + _PENDING:,} pods"
    note = f"{size}; the very first view {times[0]:.2f} s, the slowest {max(times):.2f} s"
    return [Figure("ui-first-view-s", median(times), "s", 1, note)]


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
