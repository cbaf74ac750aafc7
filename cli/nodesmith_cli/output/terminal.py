"""What the tables of several commands share: the console, prices, and bars of use.

rich is imported where something is printed with it: it takes as long as a tenth of `nodesmith plan`.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from nodesmith_formats.prices import HOURS_A_MONTH, Price, estimate_mark

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

ESTIMATE = "~ an estimate: only AWS publishes spot prices and the prices of most regions"
"""Explains the mark of `price_text`."""
WIDTH = 120
"""Characters in a line where there is no terminal to ask."""
_FULL, _EMPTY = "█", "░"


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr, wide enough for the tables if it is not a terminal."""
    from nodesmith_cli.output.safeconsole import SafeConsole

    file = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() else WIDTH
    return SafeConsole(
        file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None
    )


class Messages:
    """A command's output on standard error besides its result; often empty."""

    def __init__(self) -> None:
        self.file: TextIO = sys.stderr

    @cached_property
    def console(self) -> Console:
        """The console on standard error."""
        return console(stderr=True)

    def print(self, line: str, style: str | None = None) -> None:
        """Print a line."""
        self.console.print(line, style=style)


def price_text(price: Price | None, *, per_month: bool = False) -> Text:
    """Format a price; `~` marks an estimate, and `?` stands for an unknown price."""
    from rich.text import Text

    if price is None:
        return Text("?")
    mark = estimate_mark(price.estimated)
    hourly = f"{mark}${price.hourly_usd:.4f}"
    if not per_month:
        return Text(hourly)
    return Text(f"{hourly}/hour | {mark}${price.hourly_usd * HOURS_A_MONTH:,.0f}/month", style="bold green")


def gauge(used: int, room: int, width: int) -> Text:
    """Return a bar and a percentage of use; a `width` of 0 omits the bar."""
    from rich.text import Text

    return Text.assemble(
        bar(used, room, width), f" {fraction(used, room):4.0%}" if width else f"{fraction(used, room):.0%}"
    )


def bar(used: float, room: float, width: int) -> Text:
    """Return a bar of `width` characters, filled by the share that is used."""
    from rich.text import Text

    filled = round(width * min(1.0, max(0.0, fraction(used, room))))
    return Text.assemble((_FULL * filled, "cyan"), (_EMPTY * (width - filled), "dim"))


def fraction(used: float, room: float) -> float:
    """Return the share that is used; 0 of no room."""
    return used / room if room else 0.0
