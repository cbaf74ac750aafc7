"""Costs by owner: sums of allocations over one of their properties, or over a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.costs.allocations import NANO, Allocation, Kind

UNALLOCATED = "__unallocated__"
"""The group of allocations without the label. OpenCost uses the same name."""
PROPERTIES: Mapping[str, Callable[[Allocation], str]] = {
    "namespace": lambda row: row.owner.namespace,
    "workload": lambda row: f"{row.owner.namespace}/{row.owner.workload}".removesuffix("/"),
    "kind": lambda row: row.owner.kind.value,
    "node": lambda row: row.node,
    "nodepool": lambda row: row.nodepool or UNALLOCATED,
    "instance-type": lambda row: row.instance_type or UNALLOCATED,
    "zone": lambda row: row.zone or UNALLOCATED,
    "capacity-type": lambda row: row.capacity_type or UNALLOCATED,
    "manager": lambda row: row.manager,
}
ALL_LABELS = "label"


@dataclass(frozen=True, slots=True)
class Group:
    """The sums of some allocations, in nano-dollars. `rows` are the allocations."""

    name: str
    rows: tuple[Allocation, ...]

    def sum(self, name: str) -> int:
        """Return the sum of a field."""
        total: int = sum(getattr(row, name) for row in self.rows)
        return total

    def of_daemonsets(self) -> int:
        """Return the cost of DaemonSets and static pods."""
        return sum(row.nano_usd for row in self.rows if row.owner.kind is Kind.DAEMONSET)

    def to_item(self) -> dict[str, object]:
        """Return the sums as JSON data, amounts in whole nano-dollars."""
        names = ("nano_usd", "committed_nano_usd", "cpu_nano_usd", "memory_nano_usd", "gpu_nano_usd")
        return {
            "name": self.name,
            **{name: self.sum(name) for name in names},
            "daemonset_nano_usd": self.of_daemonsets(),
            "estimated": any(row.estimated for row in self.rows),
        }


def grouped(rows: Sequence[Allocation], by: str) -> list[Group]:
    """Return the sums by a property or a label, the most expensive first. Raises Rejected if there is no such label."""
    name_of = PROPERTIES.get(by) or _label(rows, by)
    allocations: dict[str, list[Allocation]] = {}
    for row in rows:
        allocations.setdefault(name_of(row), []).append(row)
    groups = [Group(name, tuple(allocations[name])) for name in sorted(allocations)]
    return sorted(groups, key=lambda group: -group.sum("nano_usd"))


def _label(rows: Iterable[Allocation], by: str) -> Callable[[Allocation], str]:
    label_keys = sorted({key for row in rows for key in row.owner.labels})
    if by not in (*label_keys, ALL_LABELS):
        chosen = (
            f"labels in these rows: {', '.join(label_keys)}" if label_keys else "these rows have no labels"
        )
        hint = did_you_mean(by, [*PROPERTIES, *label_keys])
        raise Rejected(
            f"--by {by[:80]!r}: neither one of {', '.join(PROPERTIES)} nor a label{hint}; {chosen} (the setting"
            " ALLOCATION_LABELS of the cluster's registration chooses them)"
        )

    def named(row: Allocation) -> str:
        if row.owner.kind in {Kind.IDLE, Kind.STOPPED}:
            return row.owner.namespace
        labels = row.owner.labels
        if by != ALL_LABELS:
            return labels.get(by, UNALLOCATED)
        return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or UNALLOCATED

    return named


def in_dollars(nano_usd: int) -> str:
    """Return an amount in US dollars and cents, rounded half away from zero."""
    cents = (abs(nano_usd) + NANO // 200) // (NANO // 100)
    sign = "-" if nano_usd < 0 and cents else ""
    return f"{sign}{cents // 100:,}.{cents % 100:02d}"
