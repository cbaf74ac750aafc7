"""The texts of values on the page: printable, at most a line or two long, and in readable units."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from markupsafe import Markup

from nodesmith_cli.views.top.rows import duration
from nodesmith_formats.prices import HOURS_A_MONTH
from nodesmith_formats.wording import counted, printable

LONGEST = 300
"""Characters of a text that are shown. Names in a cluster are written by its users, who may be hostile."""
_GIB = 2**30


def shown(value: Any) -> Any:
    """Return a value as a template outputs it: control characters escaped, long text cut. Markup stays as it is."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    if isinstance(value, str):
        text = printable(value[: LONGEST + 1])
        return text if len(value) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return value


def url(url_for: Callable[..., str]) -> Callable[..., Markup]:
    """Return `url_for` for templates: its result is escaped, and never cut. Empty arguments are left out."""

    def link(endpoint: str, **parts: Any) -> Markup:
        parameters = {name: value for name, value in parts.items() if value not in ("", None, False)}
        return Markup.escape(url_for(endpoint, **parameters))

    return link


def usd(amount: float) -> str:
    """Return dollars, small amounts with more digits."""
    if not amount:
        return "$0"
    sign, size = ("−" if amount < 0 else ""), abs(amount)
    if size >= 1000:
        return f"{sign}${size:,.0f}"
    return (
        f"{sign}${size:.2f}" if size >= 1 else f"{sign}${size:.3f}" if size >= 0.01 else f"{sign}${size:.4f}"
    )


def a_month(hourly_usd: float) -> str:
    """Return an hourly price as a price for a month of 730 hours."""
    amount = hourly_usd * HOURS_A_MONTH
    return f"{'−' if amount < 0 else ''}${abs(amount):,.0f}"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else "<1 %"


def cpus(milli: int) -> str:
    """Return thousandths of a cpu in cpus."""
    return f"{milli / 1000:,.0f}" if milli >= 10_000 else f"{milli / 1000:g}"


def gib(size: int) -> str:
    """Return bytes in GiB."""
    return f"{size / _GIB:,.0f}" if size >= 10 * _GIB else f"{size / _GIB:.1f}"


def clock(at: datetime | None) -> str:
    """Return a time of day in UTC."""
    return f"{at:%H:%M:%S}" if at else ""


def moment(at: datetime | None) -> str:
    """Return a date and time in UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else ""


def pos(share: float) -> str:
    """Return a position or size in percent, for SVG."""
    return f"{share:.3f}%"


def markup(path: str) -> Markup:
    """Mark text that consists of numbers and letters, such as SVG path data, as safe. It is not cut."""
    return Markup.escape(path)


FILTERS: dict[str, Callable[..., Any]] = {
    "usd": usd,
    "a_month": a_month,
    "percent": percent,
    "cpus": cpus,
    "gib": gib,
    "clock": clock,
    "moment": moment,
    "of": counted,
    "pos": pos,
    "span": duration,
    "markup": markup,
}
