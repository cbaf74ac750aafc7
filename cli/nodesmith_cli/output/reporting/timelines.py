"""Nodes on one time scale: when each is on its way, serves, and is drained. A drain or an interruption as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodesmith_cli.output.reporting.charts import WIDTH, svg_image
from nodesmith_cli.output.reporting.markup import Html, element, fitted, joined
from nodesmith_formats.wording import counted

_LABEL, _ROW, _BAR, _HEAD, _KEY = 170, 38, 14, 26, 28
_MOST, _TICKS = 60, 4
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """One node, in seconds since the picture's start; `what` is its caption.

    `since` is the time of its launch, `ready` when it became ready, `leaving` when its first pod left, `until` when it
    was gone; None if that has not happened.
    """

    name: str
    what: str = ""
    since: float = 0.0
    ready: float = 0.0
    leaving: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that concerns all nodes, such as the one when EC2 takes an instance."""

    at: float
    what: str


def timeline(title: str, spans: Sequence[NodeSpan], longest: float, marks: Sequence[Mark] = ()) -> Html:
    """Return a row for each node, from 0 to `longest` seconds."""
    scale, shown = (WIDTH - _LABEL - 10) / max(longest, 1.0), spans[:_MOST]
    bottom = _HEAD + _ROW * len(shown)
    parts = [_axis(scale, longest, bottom)]
    parts += [_bar(span, _HEAD + n * _ROW, scale, longest) for n, span in enumerate(shown)]
    parts += [_mark(mark, scale, bottom) for mark in marks if 0 <= mark.at <= longest]
    parts.append(_key(bottom + 18, len(spans) - len(shown)))
    return svg_image(title, _alternative_text(spans, marks), bottom + _KEY, parts)


def _axis(scale: float, longest: float, bottom: float) -> Html:
    step = next((candidate for candidate in _STEPS if longest / candidate <= _TICKS + 2), _STEPS[-1])
    parts: list[Html] = []
    for n in range(min(int(longest / step), 200) + 1):
        x = _LABEL + n * step * scale
        parts.append(element("path", class_="axis", d=f"M{x:.1f} {_HEAD - 6}V{bottom:.0f}"))
        anchor = "end" if x > WIDTH - 30 else "middle"
        parts.append(element("text", _time(n * step), class_="v s", x=x, y=14, text_anchor=anchor))
    return joined(parts)


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _bar(span: NodeSpan, top: float, scale: float, longest: float) -> Html:
    end = longest if span.until is None else min(span.until, longest)
    leaving = end if span.leaving is None else min(max(span.leaving, span.since), end)
    ready = min(max(span.ready, span.since), leaving)
    spans = (("coming", span.since, ready), ("serving", ready, leaving), ("leaving", leaving, end))
    parts = [element("text", fitted(span.name, _LABEL - 14), x=0, y=top + 13)]
    for name, start, until in spans:
        if until > start:
            x, width = _LABEL + start * scale, max((until - start) * scale, 2.0)
            parts.append(element("rect", class_=name, x=x, y=top + 2, width=width, height=_BAR, rx=2))
    parts.append(element("text", fitted(span.what, WIDTH - _LABEL), class_="v s", x=_LABEL, y=top + 29))
    return joined(parts)


def _mark(mark: Mark, scale: float, bottom: float) -> Html:
    x = _LABEL + mark.at * scale
    anchor, at = ("end", x - 5) if x > WIDTH * 2 / 3 else ("start", x + 5)
    line = element("path", class_="edge", stroke_dasharray="4 3", d=f"M{x:.1f} {_HEAD - 6}V{bottom:.0f}")
    room = at - _LABEL if anchor == "end" else WIDTH - at
    named = element("text", fitted(mark.what, room), class_="v s", x=at, y=bottom - 3, text_anchor=anchor)
    return joined((line, named))


def _key(top: float, more: int) -> Html:
    parts: list[Html] = []
    for n, (name, what) in enumerate(
        (("coming", "on its way"), ("serving", "serves"), ("leaving", "its pods leave"))
    ):
        x = _LABEL + n * 130
        parts.append(element("rect", class_=name, x=x, y=top - 10, width=14, height=12, rx=2))
        parts.append(element("text", what, class_="v s", x=x + 22, y=top))
    if more > 0:
        legend = f"and {counted(more, 'more node')}"
        parts.append(element("text", legend, class_="v s", x=WIDTH, y=top, text_anchor="end"))
    return joined(parts)


def _alternative_text(spans: Sequence[NodeSpan], marks: Sequence[Mark]) -> str:
    texts = [f"{fitted(span.name, 300)} {fitted(span.what, 500)}".strip() for span in spans[:12]]
    texts += [f"and {len(spans) - 12} more"] if len(spans) > 12 else []
    texts += [f"{mark.what} at {_time(mark.at)}" for mark in marks]
    return "; ".join(texts) or "no nodes"
