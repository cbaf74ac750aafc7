"""The comparison as one HTML file: no script, no request to any host. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from nodesmith import __version__
from nodesmith_cli.savings.charts import Bar, bars
from nodesmith_cli.savings.style import STYLE
from nodesmith_cli.simulating.report import BASELINE, CHANGE
from nodesmith_formats.wording import counted, moment, printable

Report = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MOST = 50
_HEAD = ("#baseline", "#change", "#difference", "#from", "#to")


def page(written: Report) -> str:
    """Return the HTML file. `written` is the report's JSON data."""
    name = _text(written["cluster"] or "cluster")
    figures = written["figures"]
    cards = "".join(_card(item) for item in figures if item["name"] in ("cost", "pods pending", "evictions"))
    costs = [
        Bar(f"{side}, seed {run['seed']}", run["usd"], f"${run['usd']:,.2f}", number)
        for number, side in enumerate((BASELINE, CHANGE))
        for run in written["runs"].get(side, ())
    ]
    sections = "".join(
        (
            _table("Figures", ("", *_HEAD), (_row(_label(each), each) for each in figures)),
            f"<section><h2>Cost of each seed</h2>{bars('Cost of each seed', costs)}</section>",
            *(_parts(written, kind) for kind in ("nodepools", "workloads")),
            _list("Changed", written["changes"] or ["nothing"]),
            _list("Left out and assumed", written["told"]),
            _recorded(written["recorded"]),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{name}: what would be different</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{name}: what would be different</h1><p>{_text(_about(written))}</p></header>"
        f"<div class=cards>{cards}</div>{sections}</main>"
        f"<footer>nodesmith {_text(__version__)}; a simulation, not a bill</footer></body></html>\n"
    )


def _about(written: Report) -> str:
    times = f"{moment(written['from'])} to {moment(written['until'])}"
    return f"{times}, {counted(written['pods'], 'pod')}. Intervals: {written['interval']}."


def _card(item: Report) -> str:
    shown = item["difference"] if "difference" in item else item[BASELINE]
    sign = "+" if "difference" in item and shown > 0 else ""
    unit = "$" if item["unit"] == "USD" else item["unit"]
    note = f"{_number(item['low'])} to {_number(item['high'])}" if "low" in item else "baseline"
    return (
        f"<div class=card><h2>{_text(item['name'])}</h2><p class=big>{sign}{_number(shown)}"
        f"<small> {_text(unit)}</small></p><p class=dim>{_text(note)}</p></div>"
    )


def _label(item: Report) -> str:
    return f"{item['name']}, {item['unit']}" if item["unit"] else item["name"]


def _parts(written: Report, kind: str) -> str:
    rows = [
        _row(f"{item['name']}: {measure}", compared)
        for item in written[kind][:_MOST]
        for measure, compared in item.items()
        if measure != "name"
    ]
    return _table({"nodepools": "NodePools", "workloads": "Workloads"}[kind], ("", *_HEAD), rows)


def _row(label: str, item: Report) -> Sequence[str]:
    return label, *(_number(item.get(key)) for key in (BASELINE, CHANGE, "difference", "low", "high"))


def _recorded(recorded: Report | None) -> str:
    if recorded is None:
        return ""
    lines = [f"nodesmith's nodes cost ${recorded['usd']:,.2f}", f"{recorded['decisions']:,} decisions"]
    if recorded["repeated"]:
        lines.append(f"{recorded['repeated']:,} made again, of which {len(recorded['differences'])} differ")
    return _list("Recorded", [*lines, *recorded["differences"][:_MOST]])


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<section><h2>{title}</h2><ul>{items}</ul></section>" if lines else ""


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    classes = ["n" if name.startswith("#") else "" for name in head]
    top = "".join(f"<th class='{c}'>{_text(n.lstrip('#'))}</th>" for n, c in zip(head, classes, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td class='{c}'>{_text(cell)}</td>" for cell, c in zip(row, classes, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<section><h2>{title}</h2><div class=scroll><table><tr>{top}</tr>{body}</table></div></section>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _text(text: object) -> str:
    return escape(printable(str(text)), quote=True)
