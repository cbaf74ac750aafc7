"""Quantities as Kubernetes parses them: exact, and rounded up when converted to whole units.

Grammar (apimachinery, resource.Quantity): a signed decimal number followed by a binary suffix (Ki … Ei), a decimal
suffix (n u m k M G T P E) or a decimal exponent (e3, E-2). `1E` is an exa-unit, `1E3` an exponent.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_GRAMMAR = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,3})?", re.ASCII
)
_BINARY = {f"{prefix}i": Fraction(1024 ** (power + 1)) for power, prefix in enumerate("KMGTPE")}
_DECIMAL = {
    suffix: Fraction(10) ** exponent
    for suffix, exponent in {
        "n": -9,
        "u": -6,
        "m": -3,
        "k": 3,
        "M": 6,
        "G": 9,
        "T": 12,
        "P": 15,
        "E": 18,
    }.items()
}
_SCALES = {**_BINARY, **_DECIMAL}
_LIKELY = {"kb": "k", "mb": "M", "gb": "G", "tb": "T", "kib": "Ki", "mib": "Mi", "gib": "Gi", "tib": "Ti"}
_LIKELY |= {"g": "G", "t": "T", "ki": "Ki", "mi": "Mi", "gi": "Gi", "ti": "Ti"}
LONGEST_QUANTITY = 64
_MAX_VALUE = 2**63 - 1  # Kubernetes caps every quantity at an int64


class QuantityError(ValueError):
    """A value that is not a Kubernetes quantity. The message shows the value and the `remedy`."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found} is not a quantity, {remedy}")
        self.remedy = remedy


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """Return the exact value of `text` in base units (cores, bytes, counts).

    Raises QuantityError, with a suggestion for common misspellings (`1gb` → `1G`).
    """
    match = _GRAMMAR.fullmatch(text) if len(text) <= LONGEST_QUANTITY else None
    if match is None:
        raise QuantityError(repr(text[:LONGEST_QUANTITY]), _suggestion(text))
    number, suffix = match.groups()
    return Fraction(number) * _scale(suffix or "")


def whole_units(value: object, *, per_unit: int = 1) -> int:
    """Return `value` (text or number, as in manifests) in whole units, rounded away from zero as in Kubernetes.

    `per_unit` is the number of target units in a base unit: 1000 for milli-cores. Raises QuantityError.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise QuantityError(f"a {type(value).__name__}", "write text such as '500m' or '2Gi'")
    if isinstance(value, int):
        return _rounded(Fraction(value) * per_unit)
    return _read(value if isinstance(value, str) else repr(value), per_unit)


@lru_cache(maxsize=4096)  # the few amounts in a cluster recur again and again
def _read(text: str, per_unit: int) -> int:
    return _rounded(parse_quantity(text) * per_unit)


def _rounded(exact: Fraction) -> int:
    size = min(_MAX_VALUE, -(-abs(exact.numerator) // exact.denominator))
    return size if exact >= 0 else -size


def cpu_milli(value: object) -> int:
    """Return a cpu quantity in milli-cores: `'1.5'` → 1500, `'100m'` → 100, `'1n'` → 1."""
    return whole_units(value, per_unit=1000)


def format_cpu(milli: int) -> str:
    """Write milli-cores in canonical form: 1500 → `1500m`, 2000 → `2`."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(amount: int) -> str:
    """Write bytes with the largest binary suffix that divides them: 2147483648 → `2Gi`, 1000 → `1000`."""
    for suffix, scale in reversed(_BINARY.items()):
        if amount and amount % scale.numerator == 0:
            return f"{amount // scale.numerator}{suffix}"
    return str(amount)


def _scale(suffix: str) -> Fraction:
    if suffix in _SCALES:
        return _SCALES[suffix]
    return Fraction(10) ** int(suffix[1:]) if suffix else Fraction(1)


def _suggestion(text: str) -> str:
    match = re.fullmatch(r"\s*([+-]?[\d.]+)\s*([A-Za-z]+)\s*", text[:LONGEST_QUANTITY])
    likely = match and _LIKELY.get(match.group(2).lower())
    if match and likely:
        return f"did you mean '{match.group(1)}{likely}'?"
    return "write a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi"
