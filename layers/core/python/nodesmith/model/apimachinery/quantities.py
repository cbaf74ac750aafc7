"""Quantities as Kubernetes parses them, and amounts of resources, such as the requests of a pod.

Grammar (apimachinery, resource.Quantity): a signed decimal number followed by a binary suffix (Ki … Ei), a decimal
suffix (n u m k M G T P E) or a decimal exponent (e3, E-2). `1E` is an exa-unit, `1E3` an exponent. Amounts are
integers, rounded up: `cpu` in milli-cores, `memory` and `ephemeral-storage` in bytes, everything else in counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
NODES = "nodes"
"""The limit on a number of nodes. All other limits are resources."""
_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})


@dataclass(frozen=True, slots=True)
class Resources(Mapping[str, int]):
    """A resource list. A resource that is not listed counts as 0 in `of` and in arithmetic.

    Lists are equal if all amounts are equal; a zero counts as absent. They are hashable and have no order.
    """

    amounts: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.amounts)

    def __len__(self) -> int:
        return len(self.amounts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resources):
            return False
        return self.amounts == other.amounts or self.nonzero() == other.nonzero()

    def __hash__(self) -> int:
        amounts = self.amounts if all(self.amounts.values()) else self.nonzero()
        return hash(frozenset(amounts.items()))

    def of(self, name: str) -> int:
        """Return the amount of `name`, 0 if it is not listed."""
        return self.amounts.get(name, 0)

    @property
    def cpu_milli(self) -> int:
        return self.of(CPU)

    @property
    def memory_bytes(self) -> int:
        return self.of(MEMORY)

    @property
    def pods(self) -> int:
        return self.of(PODS)

    def nonzero(self) -> dict[str, int]:
        return {name: amount for name, amount in self.amounts.items() if amount}

    def __add__(self, other: Resources) -> Resources:
        return Resources({n: self.of(n) + other.of(n) for n in {**self.amounts, **other.amounts}})

    def __sub__(self, other: Resources) -> Resources:
        return Resources({n: self.of(n) - other.of(n) for n in {**self.amounts, **other.amounts}})

    def times(self, count: int) -> Resources:
        return Resources({name: amount * count for name, amount in self.amounts.items()})

    def at_least(self, other: Resources) -> Resources:
        """Return the element-wise maximum."""
        return Resources({n: max(self.of(n), other.of(n)) for n in {**self.amounts, **other.amounts}})

    def fits_in(self, room: Resources) -> bool:
        """Return whether every non-zero amount is available in `room`. A negative total never fits."""
        available = room.amounts
        for name, amount in self.amounts.items():  # noqa: SIM110 a generator takes twice as long
            if amount and not 0 < amount <= available.get(name, 0):
                return False
        return True

    def times_in(self, room: Resources, limit: int) -> int:
        """Return how many times, at most `limit`, these amounts fit in `room` together."""
        available = room.amounts
        for name, amount in self.amounts.items():
            if amount:
                times = available.get(name, 0) // amount if amount > 0 else 0
                if times < limit:
                    limit = times
        return max(0, limit)


NOTHING = Resources({})


def total(parts: Iterator[Resources] | list[Resources] | tuple[Resources, ...]) -> Resources:
    """Return the sum of resource lists."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.amounts.items():
            sums[name] = sums.get(name, 0) + amount
    return Resources(sums)


def parse_amount(name: str, value: object) -> int:
    """Read one quantity in the unit of its resource. Raises QuantityError."""
    return cpu_milli(value) if name == CPU else whole_units(value)


def parse_resources(quantities: Mapping[str, object] | None) -> Resources:
    """Read a manifest's resource list (`{"cpu": "500m"}`). Raises QuantityError on the first bad quantity."""
    return Resources({name: parse_amount(name, value) for name, value in (quantities or {}).items()})


def format_amount(name: str, amount: int) -> str:
    """Write an amount in Kubernetes' format."""
    if name == CPU:
        return format_cpu(amount)
    return format_bytes(amount) if name in _BYTES or name.startswith("hugepages-") else str(amount)


def format_resources(resources: Resources) -> dict[str, str]:
    """Write a resource list as in a manifest, with sorted names."""
    return {name: format_amount(name, resources[name]) for name in sorted(resources)}


def amount_text(name: str, amount: int) -> str:
    """Return an amount as it reads in a sentence: cpu in cores, so that amounts in one sentence compare."""
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".") if name == CPU else format_amount(name, amount)


def amounts_text(resources: Resources) -> str:
    """Return resources as they read in a sentence, by name."""
    return ", ".join(f"{amount_text(n, resources[n])} {n}" for n in sorted(resources))


_GIB, _MANY_BYTES = 2**30, 10 * 2**30


def rounded_up_text(name: str, amount: int) -> str:
    """Return an amount to raise a limit to: bytes in whole GiB, cpu in whole cores."""
    unit = {CPU: 1000, MEMORY: _GIB, EPHEMERAL_STORAGE: _GIB}.get(name, 1)
    return amount_text(name, -(-amount // unit) * unit)


def rounded_down_text(name: str, amount: int) -> str:
    """Return an amount that something offers: whole GiB if there are many, to be readable."""
    unit = _GIB if name in {MEMORY, EPHEMERAL_STORAGE} and amount >= _MANY_BYTES else 1
    return amount_text(name, amount // unit * unit)
