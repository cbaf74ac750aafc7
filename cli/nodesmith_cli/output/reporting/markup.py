"""HTML and SVG from values. Every text is escaped unless it is `Html`, since users of a cluster write names in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

from nodesmith_formats.wording import printable

LONGEST = 253
"""Characters of a name that are shown: as many as Kubernetes allows. Of longer text, the rest is cut."""
_PARAGRAPH = 2_000
_VOID = frozenset({"meta", "br", "hr", "wbr"})
_BOLD = 1.12
"""How much wider bold type is."""
_WIDE, _NARROW, _AVERAGE, _WIDEST = "mwMW@%_&", "iljftr.,:;'|!()[] ", 7.8, 14.0


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def text(value: object, most: int = LONGEST) -> Html:
    """Return a value as HTML text: printable, escaped, and cut to `most` characters; `Html` stays as it is."""
    if isinstance(value, Html):
        return value
    shown = str(value)
    cut = f"{shown[:most]}… ({len(shown):,} characters)" if len(shown) > most else shown
    return Html(escape(printable(_stacked(cut)), quote=True))


def _stacked(shown: str) -> str:
    """Return a text with at most two combining marks in a row: more of them would cover other lines."""
    found, marks = [], 0
    for character in shown:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= 2:
            found.append(character)
    return "".join(found)


def element(tag: str, *content: object, **attributes: object) -> Html:
    """Return an element. `class_` and `aria_label` become `class` and `aria-label`; None omits an attribute."""
    opened = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Html(opened if tag in _VOID else f"{opened}{joined(content)}</{tag}>")


def joined(content: Iterable[object]) -> Html:
    """Return parts of a page one after the other; those that are no `Html` are escaped."""
    return Html("".join(text(paragraph, _PARAGRAPH) for paragraph in content))


def _attribute(name: str, value: object) -> str:
    if value is None:
        return ""
    shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else text(value, _PARAGRAPH)
    return f' {name.rstrip("_").replace("_", "-")}="{shown}"'


def width_of(shown: str) -> float:
    """Estimate how wide a text is in the pictures' 13-pixel type; the estimate is rather too large."""
    return sum(_character(character) for character in shown)


def _character(each: str) -> float:
    if unicodedata.combining(each):
        return 0.0
    if unicodedata.east_asian_width(each) in "WF":
        return _WIDEST
    if each in _WIDE or not each.isascii():
        return 13.0
    if each in _NARROW:
        return 5.2
    return 9.2 if each.isupper() else _AVERAGE


def fitted(shown: str, room: float, *, bold: bool = False) -> str:
    """Return as much of a text as fits into `room` pixels, with an ellipsis if something is cut; "" if nothing fits."""
    room = room / _BOLD if bold else room
    shown = printable(shown[:LONGEST])
    if width_of(shown) <= room:
        return shown
    kept, left = [], room - _WIDEST
    for item in shown:
        left -= _character(item)
        if left < 0:
            break
        kept.append(item)
    return f"{''.join(kept)}…" if kept else ""
