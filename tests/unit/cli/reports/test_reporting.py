"""The pictures and the frame of HTML reports: what they show, that names stay text, and that colours have contrast."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import fsum

import pytest

from nodesmith_cli.output.reporting.charts import Bar, bars, stack
from nodesmith_cli.output.reporting.fleetmap import Kind, fleet_map
from nodesmith_cli.output.reporting.flows import Box, Column, Link, flow
from nodesmith_cli.output.reporting.frame import Card, page, section, table
from nodesmith_cli.output.reporting.markup import Html, element, fitted, text, width_of
from nodesmith_cli.output.reporting.pricescales import Choice, price_scale
from nodesmith_cli.output.reporting.style import DARK, LIGHT, SHAPE_ON, TEXT_ON
from nodesmith_cli.output.reporting.timelines import NodeSpan, timeline

MARKUP = '<script>alert("x")</script>\x1b[31m'
LONG = "x" * 10_000
RIGHT_TO_LEFT = "\u202eשלום عالم"
ZALGO = "a" + "\u0301" * 50
HOSTILE = (MARKUP, LONG, RIGHT_TO_LEFT, ZALGO)

PICTURES: dict[str, Callable[[str], Html]] = {
    "bars": lambda name: bars(name, [Bar(name, 1, name)]),
    "stack": lambda name: stack(name, [Bar(name, 1, name)]),
    "fleet": lambda name: fleet_map(name, [Kind(name, name, name, 2, 1.5)]),
    "timeline": lambda name: timeline(name, [NodeSpan(name, name)], 60),
    "flow": lambda name: flow(
        name,
        [Column(name, (Box("a", name, (name,)),)), Column(name, (Box("b", name, (name,)),))],
        [Link("a", "b", 1)],
    ),
    "ladder": lambda name: price_scale(name, [Choice(name, 1, (1, 2), name)]),
    "table": lambda name: table((name,), [(name,)], name),
    "page": lambda name: page(name, name, [Card(name, name, name, (name,))], [section(name, name)], name),
}


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", HOSTILE, ids=("markup", "long", "right-to-left", "combining"))
def test_names_are_shown_as_text_and_are_cut(picture: str, name: str) -> None:
    drawn = PICTURES[picture](name)

    assert "<script" not in drawn
    assert "\x1b" not in drawn
    assert "\u202e" not in drawn
    assert "\u0301" * 3 not in drawn
    assert "x" * 2_001 not in drawn


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=("light", "dark"))
@pytest.mark.parametrize(("pairs", "least"), [(TEXT_ON, 4.5), (SHAPE_ON, 3.0)], ids=("text", "shapes"))
def test_colours_have_the_contrast_that_readers_need(
    tokens: dict[str, str], pairs: tuple[tuple[str, str], ...], least: float
) -> None:
    low = {pair: contrast(*(tokens[name] for name in pair)) for pair in pairs}

    assert {pair: round(found, 2) for pair, found in low.items() if found < least} == {}


def test_light_and_dark_define_the_same_variables() -> None:
    assert LIGHT.keys() == DARK.keys()


def test_areas_of_tiles_are_in_proportion_to_prices() -> None:
    kinds = [Kind("a", f"m5.{n}", "spot", n, n * 1.0) for n in range(1, 6)]

    drawn = fleet_map("Fleet", kinds)

    tiles = re.findall(r'<title>(\d+) × [^<]*</title><rect[^>]* width="([\d.]+)" height="([\d.]+)"', drawn)
    areas = {int(count): (float(width) + 3) * (float(height) + 3) for count, width, height in tiles}
    whole = fsum(areas.values())
    assert {count: round(15 * area / whole, 1) for count, area in areas.items()} == {
        n: n for n in range(1, 6)
    }


def test_a_fleet_of_many_kinds_stays_one_readable_picture() -> None:
    kinds = [Kind(f"zone-{n % 20}", f"type-{n}", "on-demand", 3, 0.1 + n) for n in range(2_000)]

    drawn = fleet_map("Fleet", kinds)

    assert "12 more zones" in drawn
    assert "more kinds" in drawn
    assert len(drawn) < 100_000


def test_nodes_without_a_price_are_counted_in_the_text_alternative() -> None:
    drawn = fleet_map("Fleet", [Kind("a", "m5.large", "spot", 1, 0.1), Kind("a", "x9.odd", "", 4, 0.0)])

    assert "4 nodes without a known price" in drawn
    assert "4 × x9.odd" not in drawn


def test_a_timeline_shows_each_phase_of_a_node_where_it_happened() -> None:
    drawn = timeline("Drain", [NodeSpan("n", "gone", since=10, ready=20, leaving=30, until=40)], 50)

    spans = {
        name: (float(x), float(width))
        for name, x, width in re.findall(
            r'class="(coming|serving|leaving)" x="([\d.]+)" y="28" width="([\d.]+)"', drawn
        )
    }
    scale = spans["serving"][1] / 10
    assert {name: round(width / scale) for name, (_, width) in spans.items()} == {
        "coming": 10,
        "serving": 10,
        "leaving": 10,
    }
    assert spans["coming"][0] < spans["serving"][0] < spans["leaving"][0]


def test_a_flow_keeps_pending_pods_and_folds_the_lightest_boxes() -> None:
    pods = tuple(Box(f"p{n}", f"app-{n}", weight=float(n)) for n in range(1, 31))
    nodes = (
        Box("node", "3 nodes", weight=400, kind="spot"),
        Box("none", "pending", weight=65, kind="pending"),
    )
    links = [Link(box.key, "none" if box.weight < 10 else "node", box.weight) for box in pods]

    drawn = flow("Decision", [Column("Pods", pods), Column("Nodes", nodes)], links)

    assert "22 more" in drawn
    assert ">pending<" in drawn
    assert "app-30" in drawn


def test_text_that_is_fitted_is_no_wider_than_its_room() -> None:
    for shown in ("MMMMMMMMMMMM", "iiiiiiiiii", "漢字漢字漢字漢字", "W" * 300):
        assert width_of(fitted(shown, 60)) <= 60
    assert fitted("short", 60) == "short"


def test_a_table_ends_before_the_page_becomes_too_large() -> None:
    drawn = table(("Name", "#Price"), [("n" * 250, n) for n in range(2_000)], "Nodes")

    assert len(drawn) < 230_000
    assert "more: see -o json" in drawn


def test_html_is_escaped_once() -> None:
    assert element("p", element("b", "1 < 2"), "&") == "<p><b>1 &lt; 2</b>&amp;</p>"
    assert text(Html("<b>")) == "<b>"


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it."""
    light, dark = sorted(map(luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return fsum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
