"""What each constraint costs: the price of the plan with it, less that of the plan without it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nodesmith.decisions.provisioning import Inputs, as_read
from nodesmith.decisions.shadow.fleet import OTHERS
from nodesmith.model.apimachinery.labels import (
    ARCH,
    AWS_KEYS,
    CAPACITY_TYPE,
    DO_NOT_DISRUPT,
    HOSTNAME,
    INSTANCE_TYPE,
    ON_DEMAND,
    SPOT,
    ZONE,
)
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.costs.savings.capacity import KeptNodes, workload_of
from nodesmith_cli.costs.savings.fleet import on_demand_only, reshaped
from nodesmith_cli.costs.savings.repacking import Repacked, repacked

MOST = 12
"""How many constraints are examined if there is time."""
_MOST_PROTECTIONS = 3
"""The same of rules that keep pods where they are."""
LEAST_MONTHLY_USD = 1.0
_HOURS = 730
_TOPOLOGIES = {ZONE: "zone", HOSTNAME: "host"}
_KEYS = {ARCH: "architecture", ZONE: "zone", INSTANCE_TYPE: "instance type", CAPACITY_TYPE: "capacity type"}
_TYPE_KEYS = frozenset({INSTANCE_TYPE, ARCH, *AWS_KEYS})
_PROTECTIONS = frozenset({"DoNotDisrupt", "PodDisruptionBudget", "MultiplePodDisruptionBudgets"})
_STAYING = ("StatefulSet/", "Job/")


@dataclass(frozen=True, slots=True, order=True)
class Constraint:
    """One rule of one workload (`namespace/kind/name`), with the kind of the rule, and its label as `key`."""

    workload: str
    kind: str
    key: str = ""

    @property
    def text(self) -> str:
        """A description: `zone spread on default/Deployment/web`."""
        return f"{self.kind} on {self.workload}"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a constraint. `hourly_usd` is 0 if it is below the planner's precision."""

    constraint: Constraint
    pods: int
    hourly_usd: float


@dataclass(frozen=True, slots=True)
class Costs:
    """The constraints that cost something, the most expensive first; `examined` of `found` were examined."""

    costs: tuple[Cost, ...]
    examined: int
    found: int


def constraints_of(shape: Shape, *, pinned: bool) -> Iterator[Constraint]:
    """Yield the constraints of a shape. A requirement that `pinned` added is none of the workload's own."""
    name = workload_of(shape)
    for spread in shape.spreads:
        if spread.hard:
            where = _TOPOLOGIES.get(spread.topology_key, spread.topology_key)
            yield Constraint(name, f"{where} spread", spread.topology_key)
    for term in shape.affinities:
        if not term.weight:
            where = _TOPOLOGIES.get(term.topology_key, term.topology_key)
            yield Constraint(
                name, f"{where} {'anti-affinity' if term.anti else 'affinity'}", term.topology_key
            )
    keys = {key for term in shape.own_terms for key in term}
    for key in sorted(keys - ({CAPACITY_TYPE} if pinned else set())):
        if key in _KEYS or key in _TYPE_KEYS:
            yield Constraint(name, f"required {_KEYS.get(key, key)}", key)


def without(constraint: Constraint, shape: Shape) -> Shape:
    """Return a shape without one of its constraints."""
    kind, key = constraint.kind, constraint.key
    if kind.startswith("required "):
        return replace(shape, terms=_dropped(shape.terms, key), own_terms=_dropped(shape.own_terms, key))
    if kind.endswith(" spread"):
        spreads = tuple(s for s in shape.spreads if not s.hard or s.topology_key != key)
        return replace(shape, spreads=spreads)
    anti = kind.endswith("anti-affinity")
    terms = tuple(t for t in shape.affinities if t.weight or t.anti != anti or t.topology_key != key)
    return replace(shape, affinities=terms)


def _dropped(terms: Iterable[Requirements], key: str) -> tuple[Requirements, ...]:
    return tuple(
        Requirements.of(*(requirement for name, requirement in term.items() if name != key)) for term in terms
    )


def found_constraints(snapshot: Snapshot, pinned: Collection[str]) -> list[tuple[Constraint, int]]:
    """Return all constraints with the number of their pods, those that bind most requested cpu and memory first."""
    counts: dict[Constraint, int] = {}
    weight: dict[Constraint, float] = {}
    for (shape, is_pinned), number in _shapes(snapshot.pods, pinned).items():
        size = shape.requests.cpu_milli / 100 + shape.requests.memory_bytes / 2**30
        for constraint in set(constraints_of(shape, pinned=is_pinned)):
            counts[constraint] = counts.get(constraint, 0) + number
            weight[constraint] = weight.get(constraint, 0.0) + number * size
    ordered = sorted(counts, key=lambda constraint: (-weight[constraint], constraint))
    return [(constraint, counts[constraint]) for constraint in ordered]


def _shapes(pods: Iterable[Pod], pinned: Collection[str]) -> dict[tuple[Shape, bool], int]:
    counts: dict[tuple[Shape, bool], int] = {}
    for pod in pods:
        if pod.shape.moves:
            key = pod.shape, pod.key in pinned
            counts[key] = counts.get(key, 0) + 1
    return counts


def constraint_costs(
    inputs: Inputs, whole: Repacked, pinned: Collection[str], has_time: Callable[[], bool] = lambda: True
) -> Costs:
    """Return the costs of constraints: the pods are planned again without each of them, as long as there is time.

    A difference that is smaller than the distance of the plan from its lower bound is within the planner's tolerance.
    """
    constraints = found_constraints(inputs.snapshot, pinned)
    least = max(LEAST_MONTHLY_USD / _HOURS, _tolerance(whole))
    costs: list[Cost] = []
    examined = 0
    for constraint, number in constraints[:MOST]:
        if not has_time():
            break
        examined += 1
        relaxed = repacked(replace(inputs, snapshot=_relaxed(inputs.snapshot, constraint)))
        saved = whole.hourly_usd - relaxed.hourly_usd
        costs.append(Cost(constraint, number, saved if saved >= least else 0.0))
    costs.sort(key=lambda cost: (-cost.hourly_usd, cost.constraint))
    return Costs(tuple(costs), examined, len(constraints))


def _tolerance(whole: Repacked) -> float:
    return min(whole.hourly_usd - whole.bound_hourly_usd, 0.005 * whole.hourly_usd)


def _relaxed(snapshot: Snapshot, constraint: Constraint) -> Snapshot:
    change: Any = partial(without, constraint)
    return reshaped(snapshot, lambda pod: change if workload_of(pod.shape) == constraint.workload else None)


def protection_costs(
    inputs: Inputs, constraints: Iterable[KeptNodes], has_time: Callable[[], bool]
) -> list[tuple[KeptNodes, float]]:
    """Return the costs of the rules that keep most nodes: the plan with these nodes kept, less the plan without them.

    The rules are those that keep pods where they are: do-not-disrupt and PodDisruptionBudgets.
    """
    chosen = [constraint for constraint in constraints if constraint.rule in _PROTECTIONS]
    kept = {name: constraint.message for constraint in chosen for name in constraint.nodes}
    if not chosen:
        return []
    base = repacked(inputs, kept).hourly_usd
    costs = []
    for constraint in chosen[:_MOST_PROTECTIONS]:
        if not has_time():
            break
        others = {name: reason for name, reason in kept.items() if name not in constraint.nodes}
        costs.append((constraint, max(0.0, base - repacked(inputs, others).hourly_usd)))
    return sorted(costs, key=lambda item: (-item[1], item[0].rule, item[0].object))


@dataclass(frozen=True, slots=True)
class SpotOption:
    """The plan's cost if `pods` pods on on-demand capacity ran on spot instead. It never counts in the headline."""

    pods: int
    hourly_usd: float


def spot_option(free: Inputs, pinned: Collection[str]) -> SpotOption | None:
    """Plan again with NodePools that allow spot, for the pods that can bear an interruption; None if there are none.

    Pods of StatefulSets and Jobs, single pods, pods annotated do-not-disrupt and those that require on-demand stay.
    """
    numbers: dict[str, int] = {}
    for pod in free.snapshot.pods:
        numbers[workload_of(pod.shape)] = numbers.get(workload_of(pod.shape), 0) + 1
    able = {
        pod.key
        for pod in free.snapshot.pods
        if pod.key in pinned and _bears_interruptions(pod.shape, numbers[workload_of(pod.shape)])
    }
    if not able:
        return None
    pools = tuple(map(_with_spot, free.snapshot.nodepools))
    snapshot = on_demand_only(replace(free.snapshot, nodepools=pools), set(pinned) - able)
    ledger = as_read(free.ledger, snapshot)
    return SpotOption(len(able), repacked(replace(free, snapshot=snapshot, ledger=ledger)).hourly_usd)


def _bears_interruptions(shape: Shape, replicas: int) -> bool:
    movable = shape.moves and not shape.owner.startswith(_STAYING)
    asks = any(CAPACITY_TYPE in term for term in shape.own_terms)
    return (
        movable
        and replicas > 1
        and bool(shape.owner)
        and not asks
        and DO_NOT_DISRUPT not in shape.annotations
    )


def _with_spot(nodepool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a NodePool that allows spot wherever it allows on-demand."""
    pool = parse_nodepool(nodepool).value
    if pool is None or pool.name == OTHERS:
        return nodepool
    template = nodepool["spec"]["template"]
    requirements = [
        {**requirement, "values": sorted({*requirement["values"], SPOT})}
        if requirement.get("key") == CAPACITY_TYPE
        and requirement.get("operator") == "In"
        and ON_DEMAND in requirement["values"]
        else requirement
        for requirement in template["spec"].get("requirements") or ()
    ]
    spec = {**template["spec"], "requirements": requirements}
    return {**nodepool, "spec": {**nodepool["spec"], "template": {**template, "spec": spec}}}
