"""Random schedules, durations, quantities, label selectors and YAML scalars, some of which are invalid."""

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
_ODD_SCALARS = (
    "y Y n N yes Yes YES no NO yEs on ON off Off true True TRUE tRUE false t f ~ null Null NULL nULL nil "
    "0 -0 +0 00 07 08 012 -012 0o17 0O17 -0o17 0o8 0x1F 0X1F -0x1f 0xg 0b11 -0b11 0b2 1_000 _1 1_ 1__0 0x_1 1e3 1E3 "
    "1e+3 1e-3 1.5e3 1e 1e+ .5 -.5 +.5 5. 5.e1 . .. .e1 1.2.3 1_0.5 .inf -.inf +.Inf .INF .nan .NaN inf nan "
    "Infinity 12:30 190:20:30 1:2 -1:30 1:60 2001-01-01 2001-1-1 2001-01-01T00:00:00Z 9223372036854775807 "
    "9223372036854775808 -9223372036854775808 18446744073709551615 123456789012345678901234567890 = << 1Gi 100m 1,000"
).split()
_BINARY, _DECIMAL = "Ki Mi Gi Ti Pi Ei".split(), "n u m k M G T P E".split()
_EXPONENTS, _ODD_SUFFIXES = "e3 E2 e-3 E-2 e+1".split(), "K ki KB e E+ i b mi".split()


def drawn(random: Random, of_a_kind: int) -> list[Case]:
    """Draw so many cases of each kind, and all odd schedules and scalars."""
    draws: dict[str, Callable[[Random], Any]] = {
        "schedule": _schedule,
        "duration": _duration,
        "quantity": _quantity,
        "selector": _selector,
        "yaml": _scalar,
    }
    odd = [Case("schedule", _until(random, text.replace("|", " "))) for text in _ODD_SCHEDULES]
    odd += [Case("yaml", text) for text in _ODD_SCALARS]
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


def _scalar(random: Random) -> str:
    """Draw a text that looks like a number, a truth value or neither."""
    return "".join(random.choice("00123789abefonxyEX._+-") for _ in range(random.randint(1, 5)))
