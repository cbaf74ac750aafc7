"""Parsing the plan's JSON as untrusted input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from nodesmith_cli.audit.reading.fields import UNREADABLE, Amounts, Manifest, amounts
from nodesmith_cli.audit.violations import Kind, Violation

_NODE_TEXTS = ("name", "nodePool", "instanceType", "zone", "capacityType")
_UNPLACED_TEXTS = ("pod", "reason", "nodePool", "blocking", "fix")
_NUMBERS = ("priceHourly", "lowerBoundHourly", "seconds", "steps")


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A new node of the plan. `labels` are the labels that the plan sets."""

    name: str
    pool: str
    instance_type: str
    instance_types: tuple[str, ...]
    zone: str
    capacity_type: str
    price_hourly: float
    requests: Amounts
    pods: tuple[str, ...]
    labels: Mapping[str, str]


@dataclass(slots=True)
class Plan:
    """The readable parts of the plan. `violations` has the unreadable ones."""

    nodes: list[PlannedNode] = field(default_factory=list)
    existing: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)


def read_plan(raw: Mapping[str, Any]) -> Plan:
    """Parse a plan. Never raises."""
    plan = Plan()
    for number, entry in enumerate(_listed(plan, raw, "nodes")):
        try:
            plan.nodes.append(_node(entry))
        except UNREADABLE as error:
            plan.violations.append(Violation(Kind.FORMAT, f"nodes[{number}]", f"is unreadable: {error!r}"))
    for number, entry in enumerate(_listed(plan, raw, "existing")):
        try:
            plan.existing.append((_text(entry, "node"), _texts(entry, "pods")))
        except UNREADABLE as error:
            plan.violations.append(Violation(Kind.FORMAT, f"existing[{number}]", f"is unreadable: {error!r}"))
    for number, entry in enumerate(_listed(plan, raw, "unplaced")):
        plan.violations += _unplaced_faults(f"unplaced[{number}]", entry)
        if isinstance(entry, Mapping) and isinstance(entry.get("pod"), str):
            plan.unplaced.append(entry["pod"])
    for name in _NUMBERS:
        value = raw.get(name)
        if isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0:
            plan.numbers[name] = float(value)
        else:
            plan.violations.append(Violation(Kind.FORMAT, name, f"is {value!r}, not a number of at least 0"))
    return plan


def _listed(plan: Plan, raw: Mapping[str, Any], name: str) -> Sequence[Any]:
    listed = raw.get(name)
    if isinstance(listed, list):
        return listed
    plan.violations.append(Violation(Kind.FORMAT, name, f"is {listed!r}, not a list"))
    return ()


def _node(entry: Manifest) -> PlannedNode:
    name, pool, instance_type, zone, capacity_type = (_text(entry, field) for field in _NODE_TEXTS)
    return PlannedNode(
        name,
        pool,
        instance_type,
        _texts(entry, "instanceTypes"),
        zone,
        capacity_type,
        float(entry["priceHourly"]),
        amounts(entry["requests"]),
        _texts(entry, "pods"),
        dict(entry.get("labels") or {}),
    )


def _text(entry: Manifest, name: str) -> str:
    value = entry[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}, not a string")
    return value


def _texts(entry: Manifest, name: str) -> tuple[str, ...]:
    values = entry[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} is {values!r}, not a list of strings")
    return tuple(values)


def _unplaced_faults(subject: str, entry: Any) -> Iterator[Violation]:
    if not isinstance(entry, Mapping):
        yield Violation(Kind.FORMAT, subject, f"is {entry!r}, not an object")
        return
    for name in _UNPLACED_TEXTS:
        if not isinstance(entry.get(name), str):
            yield Violation(Kind.FORMAT, subject, f"{name} is {entry.get(name)!r}, not a string")
    if not str(entry.get("reason") or "").strip():
        yield Violation(Kind.REASON, str(entry.get("pod")), "is unplaced without a reason")
