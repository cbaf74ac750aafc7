"""The parts of reports in HTML: one file without a script and without a request to any host; texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from nodesmith import __version__
from nodesmith_cli.savings.style import STYLE
from nodesmith_formats.wording import printable

_MOST = 50
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def frame(title: str, body: str, footer: str) -> str:
    """Return the HTML file. `title` and `body` are HTML, `footer` is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f"<body>{body}<footer>nodesmith {text(__version__)}, {text(footer)}</footer></body></html>\n"
    )


def section(title: str, content: str) -> str:
    """Return a section. `content` is HTML."""
    return f"<section><h2>{text(title)}</h2>{content}</section>"


def table(title: str, titles: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a section with a table, or nothing if there are no rows."""
    found = list(lines)
    return section(title, rows(titles, found)) if found else ""


def rows(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a table. Columns whose title begins with `#` contain numbers."""
    found = list(lines)
    kinds = [' class="n"' if title.startswith("#") else "" for title in titles]
    head = "".join(
        f'<th scope="col"{kind}>{text(title.lstrip("#"))}</th>'
        for title, kind in zip(titles, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{text(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in found[:_MOST]
    )
    more = len(found) - _MOST
    rest = f"<p class=dim>and {more:,} more: see -o json</p>" if more > 0 else ""
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}"


def text(value: object) -> str:
    """Return a value as HTML text: printable and escaped."""
    return escape(printable(str(value)), quote=True)


def dollars(amount: float) -> str:
    """Return an amount in US dollars, with cents if it is small."""
    return f"${amount:,.0f}" if abs(amount) >= 10 or not amount else f"${amount:,.2f}"
