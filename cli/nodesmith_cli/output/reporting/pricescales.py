"""Alternatives with their price: for each choice, every offering as a mark on one scale of prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodesmith_cli.output.reporting.charts import WIDTH, svg_image
from nodesmith_cli.output.reporting.markup import Html, element, fitted, joined

_LABEL, _ROW, _HEAD, _MOST, _TICKS = 250, 50, 26, 12, 4


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice: what was chosen at which price, the prices of all that would have done, and a note on them."""

    label: str
    chosen: float
    prices: tuple[float, ...]
    note: str = ""


def price_scale(title: str, choices: Sequence[Choice]) -> Html:
    """Return a row for each choice, from 0 to the highest price; the chosen price is the large mark."""
    shown = choices[:_MOST]
    highest = max((price for row in shown for price in (row.chosen, *row.prices)), default=0.0) or 1.0
    scale, bottom = (WIDTH - _LABEL - 40) / highest, _HEAD + _ROW * len(shown)
    parts = [_axis(scale, highest, bottom)]
    parts += [_row(row, _HEAD + n * _ROW, scale) for n, row in enumerate(shown)]
    more = len(choices) - len(shown)
    if more:
        parts.append(element("text", f"and {more:,} more choices", class_="v s", x=0, y=bottom + 14))
    description = "; ".join(f"{fitted(row.label, 400)} at {money(row.chosen)}, {row.note}" for row in shown)
    return svg_image(title, description or "no choices", bottom + (22 if more else 4), parts)


def money(amount: float) -> str:
    """Format an amount of dollars: cents for large ones, four digits for prices an hour."""
    return f"${amount:,.2f}" if abs(amount) >= 10 else f"${amount:,.4f}"


def _axis(scale: float, highest: float, bottom: float) -> Html:
    parts: list[Html] = []
    for n in range(_TICKS + 1):
        price = highest * n / _TICKS
        x = _LABEL + price * scale
        parts.append(element("path", class_="axis", d=f"M{x:.1f} {_HEAD - 6}V{bottom:.0f}"))
        shown = f"{money(price)}/h" if n else "0"
        parts.append(element("text", shown, class_="v s", x=x, y=14, text_anchor="middle"))
    return joined(parts)


def _row(choice: Choice, top: float, scale: float) -> Html:
    y, prices = top + 15, sorted({round(price, 4) for price in choice.prices})
    ticks = "".join(f"M{_LABEL + price * scale:.1f} {y - 6:.1f}v12" for price in prices[:400])
    low, high = (min((*prices, choice.chosen)), max((*prices, choice.chosen)))
    span = f"M{_LABEL + low * scale:.1f} {y:.1f}H{_LABEL + high * scale:.1f}"
    return joined(
        (
            element("text", fitted(choice.label, _LABEL - 22, bold=True), class_="b", x=0, y=y + 5),
            element("path", class_="edge", d=span + ticks),
            element("circle", class_="c2", cx=_LABEL + choice.chosen * scale, cy=y, r=7),
            element("text", fitted(choice.note, WIDTH - 4), class_="v s", x=0, y=y + 24),
        )
    )
