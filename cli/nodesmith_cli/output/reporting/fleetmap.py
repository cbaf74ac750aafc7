"""A fleet as a map of zones and instance types: each tile is a kind of node, and its area is what these nodes cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from nodesmith_cli.output.reporting.charts import WIDTH, svg_image
from nodesmith_cli.output.reporting.markup import Html, element, fitted, joined, width_of
from nodesmith_formats.wording import counted

_GUTTER, _HEIGHT, _LEAST_BAND, _GAP, _KEY = 150, 330, 46, 8, 30
_LEAST_HEIGHT, _PER_KIND = 90.0, 36.0
_MOST_TILES, _MOST_ZONES, _LEAST_SHARE, _LEAST_PART = 24, 8, 0.004, 5.0
SOLD = ("spot", "on-demand", "reserved")
"""The capacity types that have a colour; all others share one."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes of one kind: their zone, instance type and capacity type, how many, and what all of them cost an hour."""

    zone: str
    instance_type: str
    sold: str
    nodes: int
    hourly_usd: float


@dataclass(frozen=True, slots=True)
class _Tile:
    kind: Kind
    x: float
    y: float
    width: float
    height: float


def fleet_map(title: str, kinds: Iterable[Kind]) -> Html:
    """Return a band for each zone, divided into tiles. Nodes without a price are counted, but have no tile."""
    found = sorted(kinds, key=lambda kind: (-kind.hourly_usd, kind.zone, kind.instance_type, kind.sold))
    priced = [kind for kind in found if kind.hourly_usd > 0]
    zones = _zones(priced)
    whole = fsum(kind.hourly_usd for kind in priced) or 1.0
    tall = min(float(_HEIGHT), _LEAST_HEIGHT + _PER_KIND * len(priced))
    parts, top = [], 0.0
    for zone, members in zones:
        share = fsum(kind.hourly_usd for kind in members) / whole
        height = max(float(_LEAST_BAND), tall * share)
        parts.append(_band(zone, members, top, height))
        top += height + _GAP
    parts.append(_key(top + 14, sorted({class_of(kind.sold) for kind in priced})))
    return svg_image(title, _alternative_text(found, zones), top + _KEY, parts)


def class_of(sold: str) -> str:
    """Return the class of a capacity type's colour."""
    return sold if sold in SOLD else "other"


def _zones(kinds: Sequence[Kind]) -> list[tuple[str, list[Kind]]]:
    """Return the kinds of each zone, by name; beyond the limit, the cheapest zones are shown as one."""
    by_zone: dict[str, list[Kind]] = {}
    for kind in kinds:
        by_zone.setdefault(kind.zone or "unknown zone", []).append(kind)
    dearest = sorted(by_zone, key=lambda zone: -fsum(kind.hourly_usd for kind in by_zone[zone]))
    rest = [kind for zone in dearest[_MOST_ZONES:] for kind in by_zone[zone]]
    shown = [(zone, by_zone[zone]) for zone in sorted(dearest[:_MOST_ZONES])]
    return [*shown, (f"{len(dearest) - _MOST_ZONES} more zones", rest)] if rest else shown


def _band(zone: str, kinds: Sequence[Kind], top: float, height: float) -> Html:
    price, nodes = fsum(kind.hourly_usd for kind in kinds), sum(kind.nodes for kind in kinds)
    tiles = _squarified(_folded(kinds, price), float(_GUTTER), top, float(WIDTH - _GUTTER), height)
    return joined(
        (
            element("text", fitted(zone, _GUTTER - 12, bold=True), class_="b", x=0, y=top + 16),
            element("text", f"{counted(nodes, 'node')}, ${price:,.2f}/h", class_="v s", x=0, y=top + 33),
            *map(_drawn, tiles),
        )
    )


def _folded(kinds: Sequence[Kind], price: float) -> list[Kind]:
    """Return the kinds with a tile of their own, and one for all that are too small."""
    large = [kind for kind in kinds if kind.hourly_usd >= _LEAST_SHARE * price][:_MOST_TILES]
    rest = kinds[len(large) :]
    if not rest:
        return large
    spent = fsum(kind.hourly_usd for kind in rest)
    more = Kind(rest[0].zone, f"{len(rest)} more kinds", "", sum(kind.nodes for kind in rest), spent)
    return sorted((*large, more), key=lambda kind: -kind.hourly_usd)


def _squarified(kinds: Sequence[Kind], x: float, y: float, width: float, height: float) -> list[_Tile]:
    """Divide a rectangle in proportion to prices into nearly square tiles (Bruls, Huizing and van Wijk, 2000)."""
    tiles: list[_Tile] = []
    left, spent = list(kinds), fsum(kind.hourly_usd for kind in kinds)
    while left:
        side, area = min(width, height), width * height
        row = _row(left, side, area / spent)
        cost = fsum(kind.hourly_usd for kind in row)
        deep, along = area * (cost / spent) / side, 0.0
        for kind in row:
            long = side * kind.hourly_usd / cost
            at = (x, y + along, deep, long) if height <= width else (x + along, y, long, deep)
            tiles.append(_Tile(kind, *at))
            along += long
        x, y, width, height = (
            (x + deep, y, max(width - deep, 1e-6), height)
            if height <= width
            else (x, y + deep, width, max(height - deep, 1e-6))
        )
        left, spent = left[len(row) :], max(spent - cost, 1e-9)
    return tiles


def _row(kinds: Sequence[Kind], side: float, scale: float) -> Sequence[Kind]:
    """Return the first kinds, whose tiles are the least oblong if they share one row."""
    best, number = _oblong(kinds[:1], side, scale), 1
    while number < len(kinds) and (further := _oblong(kinds[: number + 1], side, scale)) <= best:
        best, number = further, number + 1
    return kinds[:number]


def _oblong(row: Sequence[Kind], side: float, scale: float) -> float:
    areas = [kind.hourly_usd * scale for kind in row]
    whole = fsum(areas)
    return max(max(side**2 * area / whole**2, whole**2 / (side**2 * area)) for area in areas)


def _drawn(tile: _Tile) -> Html:
    kind, width, height = tile.kind, max(tile.width - 3, 1.0), max(tile.height - 3, 1.0)
    name = f"{kind.nodes:,} × {kind.instance_type}" if kind.sold else kind.instance_type
    hourly = f"${kind.hourly_usd:,.2f}/h"
    price = f"{kind.sold}, {hourly}" if kind.sold else hourly
    parts = [
        element("title", f"{name}, {price}"),
        element("rect", class_=class_of(kind.sold), x=tile.x, y=tile.y, width=width, height=height, rx=4),
        *_cuts(tile, width, height),
    ]
    for n, (lines, style) in enumerate((((name, kind.instance_type), "b"), ((price, hourly), "s"))):
        fits = [line for line in lines if 1.1 * width_of(line) <= width - 14 and height >= 22 + 17 * n]
        if fits:
            parts.append(element("text", fits[0], class_=style, x=tile.x + 8, y=tile.y + 18 + 17 * n))
    return element("g", *parts)


def _cuts(tile: _Tile, width: float, height: float) -> list[Html]:
    """Return the lines between the nodes of a tile, if there is room to see them."""
    number, is_wide = tile.kind.nodes, width >= height
    part = max(width, height) / number
    if number < 2 or part < _LEAST_PART or not tile.kind.sold:
        return []
    ends = [part * n for n in range(1, number)]
    lines = (
        f"M{tile.x + at:.1f} {tile.y + height - 6:.1f}v6"
        if is_wide
        else f"M{tile.x + width - 6:.1f} {tile.y + at:.1f}h6"
        for at in ends
    )
    return [element("path", class_="edge", d="".join(lines))]


def _key(top: float, classes: Sequence[str]) -> Html:
    parts: list[Html] = []
    for n, name in enumerate(classes):
        x = _GUTTER + n * 130
        parts.append(element("rect", class_=name, x=x, y=top - 11, width=14, height=13, rx=3))
        parts.append(element("text", name.replace("-", " "), class_="v s", x=x + 22, y=top))
    legend = "area: price; marks: nodes"
    parts.append(element("text", legend, class_="v s", x=WIDTH, y=top, text_anchor="end"))
    return joined(parts)


def _alternative_text(kinds: Sequence[Kind], zones: Sequence[tuple[str, Sequence[Kind]]]) -> str:
    texts = [
        f"{zone} {counted(sum(kind.nodes for kind in members), 'node')} at "
        f"${fsum(kind.hourly_usd for kind in members):,.2f} an hour"
        for zone, members in zones
    ]
    free = sum(kind.nodes for kind in kinds if kind.hourly_usd <= 0)
    texts += [f"{counted(free, 'node')} without a known price"] if free else []
    return "; ".join(texts) or "no nodes"
