"""A decision as a picture: columns of boxes, such as workloads, shapes of pods and nodes, with bands between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nodesmith_cli.output.reporting.charts import WIDTH, svg_image
from nodesmith_cli.output.reporting.markup import Html, element, fitted

_BOX, _GAP, _HEAD, _LINE = 228, 12, 28, 17
_LEAST, _SPREAD, _MOST = 30, 260, 9


@dataclass(frozen=True, slots=True)
class Box:
    """One box: `key` names it in links, `weight` is its number of pods, `kind` its colour (spot, pending, …)."""

    key: str
    title: str
    lines: tuple[str, ...] = ()
    weight: float = 1.0
    kind: str = "other"


@dataclass(frozen=True, slots=True)
class Link:
    """A band from a box to one in the next column; `weight` is its number of pods."""

    source: str
    target: str
    weight: float


@dataclass(frozen=True, slots=True)
class Column:
    """A column of boxes under a title. The heaviest are drawn, and the rest as one box."""

    title: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    box: Box
    x: float
    y: float
    height: float


def flow(title: str, columns: Sequence[Column], links: Iterable[Link]) -> Html:
    """Return the picture of two or three columns. Keys of boxes are unique in the whole picture."""
    columns, links = _folded(columns, list(links))
    places = _placed(columns)
    height = max((place.y + place.height for place in places.values()), default=float(_HEAD)) + 6
    parts = [*_titles(columns), *_bands(links, places), *(_drawn(place) for place in places.values())]
    description = "; ".join(
        f"{column.title}: "
        + ", ".join(fitted(f"{box.title} {' '.join(box.lines)}", 700) for box in column.boxes)
        for column in columns
    )
    return svg_image(title, description, height, parts)


def _folded(columns: Sequence[Column], links: Sequence[Link]) -> tuple[list[Column], list[Link]]:
    """Replace the lightest boxes of long columns by one box, and lead their links to it."""
    renamed: dict[str, str] = {}
    shown = [_shortened(number, column, renamed) for number, column in enumerate(columns)]
    weights: dict[tuple[str, str], float] = {}
    for link in links:
        ends = renamed.get(link.source, link.source), renamed.get(link.target, link.target)
        weights[ends] = weights.get(ends, 0.0) + link.weight
    return shown, [Link(source, target, weight) for (source, target), weight in weights.items()]


def _shortened(number: int, column: Column, renamed: dict[str, str]) -> Column:
    ordered = sorted(column.boxes, key=lambda box: (box.kind == "pending", -box.weight))
    if len(ordered) <= _MOST:
        return replace(column, boxes=tuple(ordered))
    waiting = [box for box in ordered if box.kind == "pending"][:2]
    others = [box for box in ordered if box not in waiting]
    kept, rest = others[: _MOST - 1 - len(waiting)], others[_MOST - 1 - len(waiting) :]
    key = f"rest-{number}"
    renamed.update({box.key: key for box in rest})
    weight = sum(box.weight for box in rest)
    more = Box(key, f"{len(rest):,} more", (f"{weight:,.0f} pods",), weight)
    return replace(column, boxes=(*kept, more, *waiting))


def _placed(columns: Sequence[Column]) -> dict[str, _Place]:
    heaviest = max((sum(box.weight for box in column.boxes) for column in columns), default=1.0) or 1.0
    tall = {
        box.key: max(float(_LEAST + _LINE * len(box.lines)), _SPREAD * box.weight / heaviest)
        for column in columns
        for box in column.boxes
    }
    sums = [sum(tall[box.key] + _GAP for box in column.boxes) for column in columns]
    step = (WIDTH - _BOX) / max(1, len(columns) - 1)
    places: dict[str, _Place] = {}
    for number, column in enumerate(columns):
        y = _HEAD + (max(sums) - sums[number]) / 2
        for box in column.boxes:
            places[box.key] = _Place(box, number * step + 1, y, tall[box.key])
            y += tall[box.key] + _GAP
    return places


def _titles(columns: Sequence[Column]) -> list[Html]:
    step = (WIDTH - _BOX) / max(1, len(columns) - 1)
    return [
        element("text", column.title, class_="v b", x=number * step + 1, y=14)
        for number, column in enumerate(columns)
    ]


def _bands(links: Sequence[Link], places: Mapping[str, _Place]) -> list[Html]:
    """Return the bands, which share the side of a box in proportion to their weights and in the order of the boxes."""
    known = [link for link in links if link.source in places and link.target in places]
    out: dict[str, float] = {}
    into: dict[str, float] = {}
    for link in known:
        out[link.source] = out.get(link.source, 0.0) + link.weight
        into[link.target] = into.get(link.target, 0.0) + link.weight
    starts = {key: place.y for key, place in places.items()}
    ends = dict(starts)
    fragments: list[Html] = []
    for link in sorted(known, key=lambda each: (places[each.source].y, places[each.target].y)):
        source, target = places[link.source], places[link.target]
        thick = source.height * link.weight / (out[link.source] or 1.0)
        thin = target.height * link.weight / (into[link.target] or 1.0)
        fragments.append(_band(source, starts[link.source], thick, target, ends[link.target], thin))
        starts[link.source] += thick
        ends[link.target] += thin
    return fragments


def _band(source: _Place, y0: float, thick: float, target: _Place, y1: float, thin: float) -> Html:
    x0, x1 = source.x + _BOX, target.x
    middle = (x0 + x1) / 2
    return element(
        "path",
        class_="flow",
        d=f"M{x0:.1f} {y0:.1f}C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        f"V{y1 + thin:.1f}C{middle:.1f} {y1 + thin:.1f} {middle:.1f} {y0 + thick:.1f} {x0:.1f} {y0 + thick:.1f}Z",
    )


def _drawn(place: _Place) -> Html:
    box, lines = place.box, (place.box.title, *place.box.lines)
    top = place.y + (place.height - _LINE * len(lines)) / 2 + 13
    return element(
        "g",
        element("title", fitted("; ".join(lines), 2_000)),
        element("rect", class_=box.kind, x=place.x, y=place.y, width=_BOX - 2, height=place.height, rx=6),
        *(
            element(
                "text",
                fitted(line, _BOX - 22, bold=not n),
                class_="s" if n else "b",
                x=place.x + 10,
                y=top + _LINE * n,
            )
            for n, line in enumerate(lines)
        ),
    )
