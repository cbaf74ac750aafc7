"""The JSON documents of what happened, or would have happened, over a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from nodesmith_cli.output.documents import CapacityType, Count, Estimated, Hourly, Nano, Pod, Price, Time, Usd


class RunNode(TypedDict):
    """A node of a local run."""

    name: str
    nodePool: str
    instanceType: str
    zone: str
    capacityType: CapacityType
    priceHourly: Price
    priceEstimated: Estimated
    cpuRequested: Annotated[float, "cores"]
    cpuAllocatable: Annotated[float, "cores"]
    pods: Sequence[str]


class RunPod(TypedDict):
    """A pod without a node."""

    name: Pod
    reason: str


class Entry(TypedDict):
    """Something that happened."""

    at: Time
    what: str
    object: str
    detail: str


class Run(TypedDict):
    """A local run: `nodesmith local run -o json`."""

    nodes: Sequence[RunNode]
    pendingPods: Sequence[RunPod]
    priceHourly: Hourly
    problems: Sequence[str]
    timeline: Sequence[Entry]


class Compared(TypedDict):
    """A figure of both sides, and the interval of their difference."""

    baseline: float | None
    change: float | None
    difference: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]


class Figure(Compared):
    """A figure of a simulation."""

    name: str
    unit: str


class SimulatedPool(TypedDict):
    """What a NodePool costs on both sides."""

    name: str
    usd: Compared
    nodeHours: Compared


class SimulatedWorkload(TypedDict):
    """What a workload costs on both sides."""

    name: str
    usd: Compared
    pendingSeconds: Compared
    evictions: Compared
    pods: Compared


Simulation = TypedDict(
    "Simulation",
    {
        "cluster": str,
        "source": str,
        "from": Time,
        "until": Time,
        "hours": float,
        "pods": Count,
        "seeds": int,
        "interval": Annotated[str, "what low and high are"],
        "changes": Sequence[str],
        "notes": Annotated[Sequence[str], "what the reader must know"],
        "recorded": Annotated[Mapping[str, Any] | None, "what the records say, and whether a replay agrees"],
        "figures": Sequence[Figure],
        "nodepools": Sequence[SimulatedPool],
        "workloads": Sequence[SimulatedWorkload],
        "reasons": Annotated[Mapping[str, Mapping[str, int]], "why pods have no node, by side"],
        "runs": Annotated[Mapping[str, Sequence[Mapping[str, Any]]], "the outcome of each seed, by side"],
    },
)
Simulation.__doc__ = "What would have happened: `nodesmith simulate -o json`."


class Side(TypedDict):
    """One side of an observed cluster: what it is, or what it would be."""

    usd: Usd
    spotUsd: Usd
    nodes: Annotated[float, "nodes on average"]
    pendingSeconds: int
    evictions: Count
    launches: Count
    unplacedSeconds: int
    lowerBoundUsd: float | None


class ObservedTotal(TypedDict):
    """All sides over a span of time."""

    observedHours: float
    unpricedNodes: float
    actual: Side
    nodesmith: Side
    karpenter: Side


class ObservedDay(ObservedTotal):
    """All sides on one day."""

    date: str


class Agreement(TypedDict):
    """How well a shadow tells the cluster."""

    shadow: str
    differencePercent: float | None


Effect = TypedDict(
    "Effect", {"if": str, "usd": Usd, "savingUsd": Usd, "pendingSeconds": int, "evictions": int}
)
Effect.__doc__ = "nodesmith's side under another assumption."


class Assumption(TypedDict):
    """An assumption, and how much depends on it."""

    what: str
    value: str
    source: str
    sensitivity: Sequence[Effect]


class ShadowAudit(TypedDict):
    """Where nodesmith's shadow has pods, checked against their rules."""

    pods: Count
    violations: Sequence[str]


class Shadow(TypedDict):
    """An observed cluster beside its shadows: `nodesmith shadow -o json`."""

    cluster: str
    startedAt: Time
    lookedAt: Time
    days: Sequence[ObservedDay]
    total: ObservedTotal
    agreement: Agreement
    assumptions: Sequence[Assumption]
    simplified: Sequence[str]
    faults: Sequence[str]
    nodes: Annotated[Mapping[str, int], "nodes of each shadow"]
    audit: ShadowAudit | None


class CostGroup(TypedDict):
    """What the pods of one group have cost."""

    name: str
    nano_usd: Nano
    committed_nano_usd: Annotated[int, "the part that commitments have paid already"]
    cpu_nano_usd: Nano
    memory_nano_usd: Nano
    gpu_nano_usd: Nano
    daemonset_nano_usd: Nano
    estimated: bool


Costs = TypedDict(
    "Costs",
    {
        "cluster": str,
        "month": str,
        "by": str,
        "from": Time,
        "to": Time,
        "nano_usd": Nano,
        "groups": Sequence[CostGroup],
    },
)
Costs.__doc__ = "What nodes have cost in a month, by owner: `nodesmith ledger -o json`."
