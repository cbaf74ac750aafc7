"""`nodesmith ui` in a real browser, on a local system in which EC2 interrupts nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from nodesmith.observation.mirror import PODS
from tests.browser.conftest import NARROW, WIDE, Visit, Visitor
from tests.browser.scene import Scene
from tests.objects.savingsclusters import node, pod
from tests.patience import eventually
from tests.servers.uipages import kept_of, served

PAGES = ("now", "why", "next", "proof", "health", "history")
HOSTILE = (
    '"><script>alert(1)</script><img src=x onerror=alert(1)> ' + "א" * 200 + "\u202egnp.exe " + "W" * 10_000
)
_SHIFTS = """() => new Promise(done => {
  let sum = 0;
  new PerformanceObserver(list => { for (const each of list.getEntries()) sum += each.value; })
    .observe({type: "layout-shift", buffered: true});
  setTimeout(() => done(sum), 100);
})"""


@pytest.fixture(scope="module")
def busy(scene: Scene) -> Scene:
    """Return the scene while EC2 interrupts two spot nodes and a Deployment has grown."""
    victims = scene.spot_nodes()[:2]
    assert len(victims) == 2, "the scene has too few spot nodes"
    for each in victims:
        scene.interrupt(each)
    scene.scale("search", 6)
    return scene


def link(scene: Scene) -> str:
    """Return a link that was not followed yet."""
    return scene.links[-1] if scene.links else scene.link


def shown(visit: Visit, text: str, seconds: float = 60) -> None:
    """Wait until the page shows a text, without loading it again."""
    eventually(lambda: text in visit.page.inner_text("body"), text, seconds)


def test_an_interruption_appears_on_the_page_without_loading_it_again(busy: Scene, visiting: Visitor) -> None:
    visit = visiting(link(busy))
    page = visit.go("now")
    page.locator("input[type=search]").focus()
    before = page.locator("input[type=search]").bounding_box()["y"]
    busy.interrupt(busy.spot_nodes()[-1])
    shown(visit, "interrupted")
    assert page.evaluate("document.activeElement.type") == "search"
    assert page.locator("input[type=search]").bounding_box()["y"] == pytest.approx(before, abs=60)
    assert page.evaluate(_SHIFTS) < 0.25
    visit.keep("now-interrupted")


def test_each_of_the_six_questions_is_answered_on_screen(busy: Scene, visiting: Visitor) -> None:
    visit = visiting(link(busy))
    expected = {
        "now": ("an hour", "Fleet"),
        "why": ("label 'team' does not have known values",),
        "next": ("its budget of 0",),
        "proof": ("All on demand", "Purchases compared with the cheapest possible"),
        "health": (),
        "history": ("The fleet at this time",),
    }

    def answers(name: str) -> bool:
        """Return whether a page shows its answers. What they need may not have been read yet."""
        said = visit.go(name).inner_text("main")
        return all(answer in said for answer in expected[name])

    for name in PAGES:
        eventually(partial(answers, name), f"the answers of {name}")
        visit.keep(f"{name}-light-1400")
    eventually(lambda: visit.go("now").locator("svg.tiles a").count() > 3, "tiles of nodes")
    heat = "table.heat td.h:not(.l0)"
    eventually(lambda: visit.go("health").locator(heat).count() > 0, "a time at which functions ran")


def test_a_pending_pod_a_node_and_a_decision_are_explained(busy: Scene, visiting: Visitor) -> None:
    visit = visiting(link(busy))
    page = visit.go("why")
    page.locator(".reason a", has_text="reports").first.click()  # the only pods that never get a node
    page.wait_for_selector("h2:has-text('State and Events')")
    assert "Why it waits" in page.inner_text("main")
    visit.go("why").locator(".decisions a").first.click()
    page.wait_for_selector("h2:has-text('In words')")
    assert "inputs" in page.inner_text("main")
    page = _compared(visit)
    page.evaluate("htmx.config.timeout = 50")  # a comparison may take longer than refreshing
    page.locator("#others a").click()
    page.wait_for_selector("#others:not(:has(a.action))")
    assert "Alternatives with their price" in page.inner_text("#others")
    visit.keep("decision-alternatives")
    visit.go(f"node/{busy.lasting_node()}").locator("a.action").click()
    page.wait_for_selector("pre")
    assert "age" in page.inner_text("pre")


def test_the_scrubber_goes_back_in_time_by_keyboard(busy: Scene, visiting: Visitor) -> None:
    visit = visiting(link(busy))
    page = visit.go("history")
    latest = page.inner_text("#moment-at")
    page.locator("#at").focus()
    page.keyboard.press("Home")
    eventually(lambda: page.inner_text("#moment-at") != latest, "an earlier moment")

    def is_announced() -> bool:
        """Return whether screen readers are told the moment that is shown."""
        said = page.locator("#at").get_attribute("aria-valuetext")
        return bool(said == page.locator("#moment").get_attribute("data-label"))

    eventually(is_announced, "the slider says its moment")
    visit.keep("history-at-the-beginning")


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", WIDE), ("light", NARROW)])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    busy: Scene, visiting: Visitor, scheme: str, size: tuple[int, int]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    visit = visiting(link(busy), size, scheme)
    details = [*_details(visit), f"node/{busy.lasting_node()}"]
    found: list[str] = []
    for path in (*PAGES, *details):
        page = visit.go(path)
        found += [
            f"{path}: {each['id']}: {each['nodes'][0]['html'][:300]}"
            for each in Axe().run(page).response["violations"]
        ]
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{path}: {wide} pixels wide"] if wide > size[0] else []
        visit.keep(f"{path.split('/')[0]}-{scheme}-{size[0]}")
    assert found == []


def _compared(visit: Visit) -> Any:
    """Go to the oldest listed purchase whose snapshot is stored. A run that fails does not store it."""
    bought = visit.go("why").locator(".decisions li", has_text="hour for").locator("a").all()
    for path in [each.get_attribute("href") for each in bought][::-1]:
        page = visit.go(str(path).lstrip("/"))
        if page.locator("#others a.action").count():
            return page
    raise AssertionError("no purchase can be compared with other plans")


def _details(visit: Visit) -> list[str]:
    """Return the paths of the pages of a pod and of a decision that bought nodes."""
    page = visit.go("why")
    bought = page.locator(".decisions li", has_text="hour for").last.locator("a")
    links = [page.locator(".reason a").first.get_attribute("href"), bought.get_attribute("href")]
    return [str(each).lstrip("/") for each in links]


def test_everything_is_reached_by_keyboard_and_shows_its_focus(busy: Scene, visiting: Visitor) -> None:
    visit = visiting(link(busy))
    page = visit.go("why")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page = visit.go("now")
    reached: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => { const e = document.activeElement, s = getComputedStyle(e);
            const bg = e.querySelector?.(".bg");
            const ring = s.outlineStyle !== "none" || (bg && getComputedStyle(bg).strokeWidth === "3px");
            return [e.tagName, (e.textContent || e.name || "").trim().slice(0, 40), Boolean(ring)]; }"""
        )
        assert focused[2], f"no focus is visible on {focused}"
        reached.append(focused[1])
        if focused[0] == "INPUT":
            break
    assert reached[0] == "Skip to the content"
    assert {"Why", "Health", "History", "Pause"} <= {each.split(" ")[0] for each in reached}
    page.keyboard.type("spot")
    page.keyboard.press("Enter")
    page.wait_for_url("**/now?q=spot*")
    assert "on-demand" not in page.inner_text("#table tbody")


def test_what_is_looked_at_stays_in_place_when_something_above_it_appears_or_goes(visiting: Visitor) -> None:
    kept = kept_of([node(f"n-{n}") for n in range(30)], clock=lambda: datetime.now(UTC))
    with served(kept) as address:
        page = visiting(address).go("now")
        field, row = page.locator("input[type=search]"), page.locator("#table tbody tr").nth(12)
        field.focus()
        before = field.bounding_box()["y"]
        kept.sampler.fleet.put(PODS, [pod(f"waiting-{n}", "") for n in range(6)])
        page.wait_for_selector("h2:has-text('Pods that wait')")
        assert field.bounding_box()["y"] == pytest.approx(before, abs=2)
        page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 900); }")
        before = row.bounding_box()["y"]
        kept.sampler.fleet.keep_only(PODS, set())
        page.wait_for_selector("h2:has-text('Pods that wait')", state="detached")
        assert row.bounding_box()["y"] == pytest.approx(before, abs=2)


def test_refreshing_pauses_on_request(busy: Scene, visiting: Visitor) -> None:
    visit = visiting(link(busy))
    page = visit.go("now")
    page.click("#pause")
    page.wait_for_function("() => !document.querySelector('.htmx-request')")  # a refresh that had begun
    at = page.inner_text("#clock time")
    page.wait_for_timeout(6_500)
    assert page.inner_text("#clock time") == at
    page.click("#pause")
    eventually(lambda: page.inner_text("#clock time") != at, "refreshing goes on")


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_hostile_names_are_text_and_the_layout_holds(visiting: Visitor, size: tuple[int, int]) -> None:
    labels = {
        "karpenter.sh/nodepool": HOSTILE,
        "node.kubernetes.io/instance-type": HOSTILE,
        "topology.kubernetes.io/zone": HOSTILE,
    }
    waiting = pod(HOSTILE, "")
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": HOSTILE}],
    }
    nodes = [node(HOSTILE[:1000], labels=labels), node("مرحبا-بالعالم"), node("plain")]
    with served(kept_of(nodes, [waiting, pod("p", "plain")], name=HOSTILE)) as address:
        visit = visiting(address, size)
        for name in PAGES:
            page = visit.go(name)
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name
            assert page.locator("img, script:not([src])").count() == 0
        page = visit.go("now")
        assert "<script>alert(1)" in page.inner_text("main")
        assert page.locator(".bar").bounding_box()["height"] < 120
        visit.keep(f"hostile-{size[0]}")


def test_a_lost_connection_is_reported(visiting: Visitor) -> None:
    with served(kept_of([node("plain")])) as address:
        visit = visiting(address)
        page = visit.go("now")
        page.context.set_offline(True)
        eventually(lambda: page.locator("#lost").is_visible(), "the message")
        assert "What is shown is old" in page.inner_text("#lost")
        page.context.set_offline(False)
        eventually(lambda: not page.locator("#lost").is_visible(), "the message goes away")
    visit.complaints.clear()  # the browser reports the failed request


def test_an_answer_that_takes_too_long_is_reported(visiting: Visitor) -> None:
    with served(kept_of([node("plain")])) as address:
        visit = visiting(address)
        page = visit.go("now")
        page.route("**/now*", lambda _: None)  # never answered
        page.evaluate("htmx.config.timeout = 50")
        eventually(lambda: page.locator("#lost").is_visible(), "the message")
        assert "did not answer in time" in page.inner_text("#lost")
        page.unroute("**/now*")
        page.evaluate("htmx.config.timeout = 20000")
        eventually(lambda: not page.locator("#lost").is_visible(), "the message goes away")
    visit.complaints.clear()  # htmx reports the request that took too long


def test_a_page_without_the_cookie_shows_nothing(busy: Scene, chromium: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(busy.link.rpartition("/enter/")[0] + "/now")
    assert answer.status == 403
    assert "Open the link" in page.inner_text("body")
    context.close()
