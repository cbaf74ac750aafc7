"""Amounts of resources, such as the requests of a pod or the capacity of a node.

All amounts are integers: `cpu` in milli-cores, `memory` and `ephemeral-storage` in bytes, everything else in counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodesmith.model.apimachinery.quantities import cpu_milli, format_bytes, format_cpu, whole_units

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
        return all(amount >= 0 and amount <= room.of(name) for name, amount in self.amounts.items() if amount)


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
