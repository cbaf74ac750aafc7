"""The frame of every report: one HTML file without script or any request, light and dark, printable on A4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodesmith import __version__
from nodesmith_cli.output.reporting.markup import LONGEST, Html, element, joined, text
from nodesmith_cli.output.reporting.style import style_sheet

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The content security policy of a report: its own style, and nothing else."""
MOST_ROWS = 500
_MOST_CHARACTERS = 200_000
"""Of one table, so that a page with long names stays below 1 MB."""
_TITLE = 120
_LINE, _LINES, _SHORT = 500, 400, 16
_SENTENCE, _WORDS = 1_000, 5


@dataclass(frozen=True, slots=True)
class Card:
    """A figure that a reader looks for first: its name, its value, the unit, and notes below."""

    name: str
    value: str
    unit: str = ""
    notes: tuple[str, ...] = ()


def page(title: str, lead: str, cards: Sequence[Card], sections: Iterable[Html], made: str) -> Html:
    """Return the whole file. `lead` says in a sentence what the report is about, `made` when and from what it is."""
    content = joined(sections)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", text(title, _TITLE)),
        element("style", Html(style_sheet())),
    )
    top = element(
        "header",
        element("p", _LOGO, "nodesmith", class_="brand"),
        element("h1", text(title, _TITLE)),
        element("p", lead, class_="lead"),
        class_="top",
    )
    main = element("main", _cards(cards), content)
    made_by = element("footer", f"nodesmith {__version__}. {made}")
    return Html(f'<!doctype html>\n<html lang="en">{head}{element("body", top, main, made_by)}</html>\n')


def _cards(cards: Sequence[Card]) -> Html:
    return element("dl", *map(_card, cards), class_="cards") if cards else Html("")


def _card(card: Card) -> Html:
    unit = [element("small", card.unit)] if card.unit else []
    value = element("dd", card.value, *unit, class_="big")
    notes = [element("dd", note, class_="dim" if n else None) for n, note in enumerate(card.notes)]
    return element("div", element("dt", card.name), value, *notes, class_="card")


def section(title: str, *content: object) -> Html:
    """Return a part of the page under a title; nothing if it has no content."""
    shown = joined(item for item in content if item)
    return element("section", element("h2", title), shown) if shown else Html("")


def paragraph(shown: object, class_: str | None = None) -> Html:
    """Return a paragraph; the classes `dim`, `note`, `good`, `warn` and `bad` exist."""
    return element("p", shown, class_=class_)


def figure(drawn: Html, caption: str = "", name: str = "") -> Html:
    """Return a picture, which scrolls if the window is narrow. `name` is what a screen reader calls that region."""
    captions = [element("figcaption", caption)] if caption else []
    return element("figure", scrolling(drawn, name or "Picture"), *captions)


def items(shown: Iterable[object]) -> Html:
    """Return a list; nothing if it is empty."""
    found = [element("li", item) for item in shown]
    return element("ul", *found) if found else Html("")


def preformatted(shown: str) -> Html:
    """Return text with its lines as they are, such as a manifest."""
    return element("pre", *(joined((text(line, _LINE), Html("\n"))) for line in shown.splitlines()[:_LINES]))


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], name: str = "Table") -> Html:
    """Return a table, or nothing without rows. Columns whose title begins with `#` contain numbers."""
    found = list(rows)
    if not found:
        return Html("")
    kinds = ["n" if title.startswith("#") else None for title in titles]
    head = joined(
        element("th", title.lstrip("#"), scope="col", class_=kind)
        for title, kind in zip(titles, kinds, strict=True)
    )
    body, number = _rows(found, kinds)
    more = len(found) - number
    rest = paragraph(f"and {more:,} more: see -o json", "dim") if more else Html("")
    drawn = element("table", element("thead", element("tr", head)), element("tbody", body))
    return joined((scrolling(drawn, name), rest))


def _rows(rows: Sequence[Sequence[object]], kinds: Sequence[str | None]) -> tuple[Html, int]:
    """Return the rows that the limits allow, and their number."""
    written, length = [], 0
    for row in rows[:MOST_ROWS]:
        cells = (_cell(_shown(cell), kind) for cell, kind in zip(row, kinds, strict=True))
        line = element("tr", joined(cells))
        length += len(line.encode())
        if length > _MOST_CHARACTERS:
            break
        written.append(line)
    return joined(written), len(written)


def _shown(cell: object) -> Html:
    """Return the text of a cell. A sentence may be longer than a name."""
    is_sentence = not isinstance(cell, Html) and str(cell)[:LONGEST].count(" ") > _WORDS
    return text(cell, _SENTENCE if is_sentence else LONGEST)


def _cell(content: Html, kind: str | None) -> Html:
    """Return a cell. Short words, such as instance types, stay on one line."""
    return element("td", content, class_=kind or ("k" if len(content) <= _SHORT else None))


def scrolling(content: Html, name: str) -> Html:
    """Return content that may be wider than the window; the keyboard reaches it and scrolls it."""
    return element("div", content, class_="scroll", tabindex=0, role="group", aria_label=name)


_LOGO = Html(
    '<svg viewBox="0 0 16 16" aria-hidden="true"><rect class="c1" x="0" y="0" width="7" height="7" rx="1.5"/>'
    '<rect class="c2" x="9" y="0" width="7" height="7" rx="1.5"/><rect class="c0" x="0" y="9" width="7" height="7"'
    ' rx="1.5"/><rect class="c3" x="9" y="9" width="7" height="7" rx="1.5"/></svg>'
)
