"""Bars and a divided bar as inline SVG. Each has a text alternative, and stands beside a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodesmith_cli.output.reporting.markup import Html, element, fitted, joined, width_of

WIDTH = 840
"""The width of all pictures, in the units of their viewBox; a page scales them."""
COLOURS = 5
"""The number of colours that the style sheet defines for charts, as c0, c1, …"""
_LABEL, _ROW, _BAR, _GAP = 250, 32, 18, 10
_STACK_HEIGHT, _KEY_ROW = 34, 22
_TOLD = 12


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its length in any unit, its value as text, and the number of its colour."""

    label: str
    length: float
    value: str
    colour: int = 0


def bars(title: str, rows: Sequence[Bar]) -> Html:
    """Return horizontal bars, one a row; the longest takes the room that its value leaves."""
    longest = max((row.length for row in rows), default=0.0) or 1.0
    value = max((width_of(row.value) for row in rows), default=0.0)
    room = max(WIDTH - _LABEL - value - _GAP, WIDTH / 4)
    parts = [_row(row, n * _ROW, room * max(0.0, row.length) / longest) for n, row in enumerate(rows)]
    return svg_image(title, _alternative_text(rows), _ROW * len(rows) + 2, parts)


def _row(row: Bar, top: int, width: float) -> Html:
    middle, long = top + _ROW // 2, max(width, 1.5)
    named = element("text", fitted(row.label, _LABEL - 12), x=_LABEL - 12, y=middle + 5, text_anchor="end")
    drawn = element(
        "rect", class_=color_class(row.colour), x=_LABEL, y=middle - _BAR // 2, rx=3, width=long, height=_BAR
    )
    valued = element("text", row.value, class_="v", x=_LABEL + long + 8, y=middle + 5)
    return joined((named, drawn, valued))


def stack(title: str, rows: Sequence[Bar]) -> Html:
    """Return one bar that is divided in proportion, with a key below it."""
    whole = sum(max(0.0, row.length) for row in rows) or 1.0
    parts, left = [], 0.0
    for n, row in enumerate(rows):
        width, top = WIDTH * max(0.0, row.length) / whole, _STACK_HEIGHT + 12 + n * _KEY_ROW
        share = f"{row.label}: {row.value} ({max(0.0, row.length) / whole:.0%})"
        name = color_class(row.colour)
        parts += [
            element("rect", class_=name, x=left, y=0, width=max(width - 1, 0.5), height=_STACK_HEIGHT),
            element("rect", class_=name, x=0, y=top, width=13, height=13, rx=2),
            element("text", fitted(share, WIDTH - 24), x=22, y=top + 11),
        ]
        left += width
    return svg_image(title, _alternative_text(rows), _STACK_HEIGHT + 14 + _KEY_ROW * len(rows), parts)


def color_class(number: int) -> str:
    """Return the class of a chart's colour."""
    return f"c{number % COLOURS}"


def _alternative_text(rows: Sequence[Bar]) -> str:
    more = f"; and {len(rows) - _TOLD} more" if len(rows) > _TOLD else ""
    return "; ".join(f"{fitted(row.label, 400)} {row.value}" for row in rows[:_TOLD]) + more


def svg_image(title: str, description: str, height: float, content: Sequence[Html]) -> Html:
    """Return an SVG image with a title and a text alternative, which states what the picture shows."""
    return element(
        "svg",
        element("title", title),
        *content,
        role="img",
        aria_label=f"{title}: {description}",
        viewBox=f"0 0 {WIDTH} {height:.0f}",
    )
