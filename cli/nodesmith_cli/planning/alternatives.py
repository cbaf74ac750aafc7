"""The alternatives to a plan: the prices of other plans for the same pods, and what constraints add to the price."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nodesmith.decisions.provisioning import Inputs, Plan, as_read
from nodesmith.model.apimachinery.labels import ARCH, CAPACITY_TYPE, ON_DEMAND, SPOT
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.costs.savings.capacity import workload_of
from nodesmith_cli.costs.savings.constraints import found_constraints, without
from nodesmith_cli.costs.savings.fleet import reshaped
from nodesmith_cli.planning.deciding import planned

_SECONDS = 5.0
MOST = 12
"""How many constraints are examined if there is time."""
_CHOICES = (
    ("on-demand capacity only", CAPACITY_TYPE, ON_DEMAND),
    ("spot capacity only", CAPACITY_TYPE, SPOT),
    ("x86 processors only", ARCH, "amd64"),
    ("Arm processors only", ARCH, "arm64"),
)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another plan: the difference, its price in USD an hour, and for how many more pods it finds a node.

    `workload` is empty if the difference concerns all pods. `more` is negative if fewer pods get a node.
    """

    difference: str
    hourly_usd: float
    more: int = 0
    workload: str = ""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Other choices for all pods, and plans without one constraint each: `examined` of `possible` ones."""

    choices: tuple[Alternative, ...] = ()
    relaxed: tuple[Alternative, ...] = ()
    examined: int = 0
    possible: int = 0


def for_seconds(seconds: float) -> Callable[[], bool]:
    """Return a function that is True until this process has used `seconds` more of CPU time.

    Other programs on the machine affect CPU time less than they affect the clock.
    """
    end = time.process_time() + seconds
    return lambda: time.process_time() < end


def alternatives_of(inputs: Inputs) -> Alternatives:
    """Repeat the decision for a record's inputs, and return the alternatives that fit into the time."""
    began = time.process_time()
    plan = planned(inputs)
    return alternatives(inputs, plan, for_seconds(_SECONDS - (time.process_time() - began)))


def alternatives(inputs: Inputs, plan: Plan, has_time: Callable[[], bool]) -> Alternatives:
    """Decide again with other choices and without each constraint of pending pods, as long as there is time."""
    pending = replace(inputs.snapshot, pods=tuple(p for p in inputs.snapshot.pods if p.unschedulable))
    if not plan.nodes and not plan.unplaced:
        return Alternatives()
    choices = tuple(_choices(inputs, plan, has_time))
    constraints = found_constraints(pending, ())
    relaxed: list[Alternative] = []
    for constraint, _ in constraints[:MOST]:
        if not has_time():
            break
        change: Any = partial(without, constraint)
        snapshot = _changed(inputs.snapshot, change, constraint.workload)
        relaxed.append(_alternative(constraint.kind, snapshot, inputs, plan, constraint.workload))
    return Alternatives(choices, tuple(relaxed), len(relaxed), len(constraints))


def _choices(inputs: Inputs, plan: Plan, has_time: Callable[[], bool]) -> Iterator[Alternative]:
    """Yield the plans with one choice for all pods. Those that place fewer pods are no alternatives."""
    for difference, key, value in _CHOICES:
        if not has_time():
            return
        change: Any = partial(_narrowed, Requirement(key, frozenset((value,))))
        alternative = _alternative(difference, _changed(inputs.snapshot, change), inputs, plan)
        if alternative.more >= 0 and alternative.hourly_usd > 0:
            yield alternative


def _alternative(
    difference: str, snapshot: Snapshot, inputs: Inputs, plan: Plan, workload: str = ""
) -> Alternative:
    other = planned(replace(inputs, snapshot=snapshot, ledger=as_read(inputs.ledger, snapshot)))
    return Alternative(difference, other.price_hourly_usd, _lacking(plan) - _lacking(other), workload)


def _lacking(plan: Plan) -> int:
    return sum(len(group.pods) for group in plan.unplaced)


def _changed(snapshot: Snapshot, change: Any, workload: str = "") -> Snapshot:
    """Return the snapshot with the shapes of pending pods changed, or only those of one workload."""

    def change_of(pod: Any) -> Any:
        is_meant = pod.unschedulable and pod.shape.moves
        return change if is_meant and workload in {"", workload_of(pod.shape)} else None

    return reshaped(snapshot, change_of)


def _narrowed(requirement: Requirement, shape: Shape) -> Shape:
    return replace(
        shape,
        terms=tuple(term.adding(requirement) for term in shape.terms),
        own_terms=tuple(term.adding(requirement) for term in shape.own_terms),
    )
