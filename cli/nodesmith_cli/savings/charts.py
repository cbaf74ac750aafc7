"""Bar charts as inline SVG. Every chart has a text alternative, and stands beside a table with the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABEL, _VALUE, _ROW, _BAR = 720, 270, 90, 30, 18
_PER_CHARACTER = 7.0
_STACK_HEIGHT, _KEY_ROW = 34, 20
_COLOURS = 5
"""The number of colours that the page's style defines for charts, as c0, c1, …"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its length in any unit, its value as text, and the number of its colour."""

    label: str
    length: float
    value: str
    colour: int = 0


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Return horizontal bars, one a row, the longest as wide as the chart."""
    longest = max((row.length for row in rows), default=0.0) or 1.0
    room, height = _WIDTH - _LABEL - _VALUE, _ROW * len(rows) + 4
    parts = [_row(row, n * _ROW, room * max(0.0, row.length) / longest) for n, row in enumerate(rows)]
    return _svg(title, _told(rows), height, "".join(parts))


def _row(row: Bar, top: int, width: float) -> str:
    middle = top + _ROW // 2
    return (
        f'<text x="{_LABEL - 10}" y="{middle + 5}" text-anchor="end">{escape(_cut(row.label, _LABEL))}</text>'
        f'<rect class="c{row.colour % _COLOURS}" x="{_LABEL}" y="{middle - _BAR // 2}" rx="3"'
        f' width="{max(width, 1.0):.1f}" height="{_BAR}"/>'
        f'<text class="v" x="{_LABEL + max(width, 1.0) + 8:.1f}" y="{middle + 5}">{escape(row.value)}</text>'
    )


def stack(title: str, rows: Sequence[Bar]) -> str:
    """Return one bar that is divided in proportion, with a key below it."""
    whole = sum(max(0.0, row.length) for row in rows) or 1.0
    parts, left = [], 0.0
    for row in rows:
        width = _WIDTH * max(0.0, row.length) / whole
        parts.append(
            f'<rect class="c{row.colour % _COLOURS}" x="{left:.1f}" y="0" width="{width:.1f}"'
            f' height="{_STACK_HEIGHT}"/>'
        )
        left += width
    for n, row in enumerate(rows):
        top = _STACK_HEIGHT + 10 + n * _KEY_ROW
        parts.append(
            f'<rect class="c{row.colour % _COLOURS}" x="0" y="{top}" width="12" height="12" rx="2"/>'
            f'<text x="20" y="{top + 11}">{escape(f"{row.label}: {row.value}")}</text>'
        )
    return _svg(title, _told(rows), _STACK_HEIGHT + 14 + _KEY_ROW * len(rows), "".join(parts))


def _told(rows: Sequence[Bar]) -> str:
    return "; ".join(f"{row.label} {row.value}" for row in rows)


def _cut(text: str, width: int) -> str:
    most = int((width - 10) / _PER_CHARACTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _svg(title: str, told: str, height: int, content: str) -> str:
    alternative = escape(f"{title}: {told}", quote=True)
    return (
        f'<svg role="img" aria-label="{alternative}" viewBox="0 0 {_WIDTH} {height}">'
        f"<title>{escape(title)}</title>{content}</svg>"
    )
