"""Random schedules, durations, quantities and label selectors, some of which are invalid."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.goparsers import Case

_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_ODD_SCHEDULES = (
    "@daily @hourly @weekly @monthly @yearly @annually @midnight @reboot ?|?|?|?|? 0|0|?|*|MON 0|9|*|*|7 0|0|L|*|* "
    "0|0|*|*|1#2 0|0|31|2|* 0|22-2|*|*|* 0|0|*|jan-MAR|sun-mon */100|*|*|*|* */0|*|*|*|* *|*|*/1|*|1 *|*|1,*|*|1 "
    "60|*|*|*|* 0|0|0|*|* 0|0|*|13|* 1-0|*|*|*|* -1|*|*|*|* 0-59/61|*|*|*|* 5|4|3|2 R|R|*|*|*"
).split()
_BINARY, _DECIMAL = "Ki Mi Gi Ti Pi Ei".split(), "n u m k M G T P E".split()
_EXPONENTS, _ODD_SUFFIXES = "e3 E2 e-3 E-2 e+1".split(), "K ki KB e E+ i b mi".split()


def drawn(random: Random, of_a_kind: int) -> list[Case]:
    """Draw so many cases of each kind, and all odd schedules."""
    draws: dict[str, Callable[[Random], Any]] = {
        "schedule": _schedule,
        "duration": _duration,
        "quantity": _quantity,
        "selector": _selector,
    }
    odd = [Case("schedule", _until(random, text.replace("|", " "))) for text in _ODD_SCHEDULES]
    return odd + [Case(kind, draw(random)) for kind, draw in draws.items() for _ in range(of_a_kind)]


def _schedule(random: Random) -> dict[str, str]:
    return _until(random, " ".join(_field(random, *limits) for limits in _FIELDS))


def _until(random: Random, schedule: str) -> dict[str, str]:
    day = f"20{random.randint(24, 35)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    return {"schedule": schedule, "until": f"{day}T{random.randint(0, 23):02}:{random.randint(0, 59):02}:20Z"}


def _field(random: Random, low: int, high: int) -> str:
    first = random.randint(low, high)
    last = random.randint(first, high)
    step = random.randint(1, 5)
    some = ",".join(str(random.randint(low, high)) for _ in range(3))
    written = (f"*/{step}", f"{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"{first}/{step}", some)
    return "*" if random.random() < 0.35 else random.choice(written)


def _duration(random: Random) -> str:
    return "".join(
        f"{random.randint(0, 10 ** random.randint(1, 4))}{_fraction(random, 20)}"
        f"{random.choice('ns us µs ms s m h'.split())}"
        for _ in range(random.randint(1, 3))
    )


def _fraction(random: Random, most: int) -> str:
    digits = "".join(random.choice("0123456789") for _ in range(random.randint(0, most)))
    return f".{digits}" if random.random() < 0.5 else ""


def _quantity(random: Random) -> str:
    """Draw an amount that fits an int64 in thousandths, because Go's results overflow beyond.

    A suffix without a number is not drawn: Go reads it as 0, and nodesmith refuses it.
    """
    number = f"{random.choice(['', '+'])}{random.randint(0, 8)}{_fraction(random, 10)}"
    larger = f"{random.randint(0, 10**6)}{_fraction(random, 6)}"
    odd = random.choice(["1_0", "inf", "\uff11", " 1", "1 ", "0x1", "--1"])
    pairs = (
        (number, ["", *_DECIMAL[:-2], *_BINARY[:-2], *_EXPONENTS]),
        (larger, ["", *_DECIMAL[:5], *_BINARY[:2], *_EXPONENTS]),
        (number, _ODD_SUFFIXES),
        (odd, ["", "Ki"]),
    )
    text, suffixes = random.choices(pairs, (5, 5, 1, 1))[0]
    return text + random.choice(suffixes)


def _selector(random: Random) -> dict[str, Any]:
    selector: dict[str, Any] = {}
    if random.random() < 0.5:
        selector["matchLabels"] = _labels(random, 0.3)
    if random.random() < 0.8:
        selector["matchExpressions"] = [_expression(random) for _ in range(random.randint(0, 3))]
    return {"selector": None if random.random() < 0.02 else selector, "labels": _labels(random, 0.6)}


def _labels(random: Random, share: float) -> dict[str, str]:
    return {key: random.choice("xyz") for key in "abc" if random.random() < share}


def _expression(random: Random) -> dict[str, Any]:
    operator = random.choice("In NotIn Exists DoesNotExist".split())
    values = [random.choice("xyz") for _ in range(random.randint(1, 3))] if "In" in operator else None
    expression = {"key": random.choice("abc"), "operator": operator}
    return {**expression, "values": values} if values else expression
