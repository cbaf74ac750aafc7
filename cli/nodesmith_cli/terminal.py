"""What the tables of several commands share: the console, prices, and bars of use."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from nodesmith_formats.prices import HOURS_A_MONTH, Price

ESTIMATE = "~ an estimate: only AWS publishes spot prices and the prices of most regions"
"""Explains the mark of `price_text`."""
WIDTH = 120
"""Characters in a line where there is no terminal to ask."""
_FULL, _EMPTY = "█", "░"


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr, wide enough for the tables if it is not a terminal."""
    file = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() else WIDTH
    return Console(
        file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None
    )


def price_text(price: Price | None, *, per_month: bool = False) -> Text:
    """Format a price; `~` marks an estimate, and `?` stands for an unknown price."""
    if price is None:
        return Text("?")
    mark = "~" if price.estimated else ""
    hourly = f"{mark}${price.hourly_usd:.4f}"
    if not per_month:
        return Text(hourly)
    return Text(f"{hourly}/hour | {mark}${price.hourly_usd * HOURS_A_MONTH:,.0f}/month", style="bold green")


def gauge(used: int, room: int, width: int) -> Text:
    """Return a bar and a percentage of use; a `width` of 0 omits the bar."""
    return Text.assemble(
        bar(used, room, width), f" {fraction(used, room):4.0%}" if width else f"{fraction(used, room):.0%}"
    )


def bar(used: int, room: int, width: int) -> Text:
    """Return a bar of `width` characters, filled by the share that is used."""
    filled = round(width * min(1.0, fraction(used, room)))
    return Text.assemble((_FULL * filled, "cyan"), (_EMPTY * (width - filled), "dim"))


def fraction(used: int, room: int) -> float:
    """Return the share that is used; 0 of no room."""
    return used / room if room else 0.0
