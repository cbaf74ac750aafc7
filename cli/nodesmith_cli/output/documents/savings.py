"""The JSON document of `nodesmith savings`.

A command that adds a member to its document adds a line here. Members that may be missing are NotRequired, and those
that may be unknown can be null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from nodesmith_cli.output.documents import CapacityType, Count, Hourly, Monthly, Percent, Time


class Money(TypedDict):
    """An amount by the hour and by the month."""

    hourly: Hourly
    monthly: Monthly


class Saving(Money):
    """What the nodes would cost, and what that saves."""

    savingMonthly: Monthly
    savingPercent: Percent
    nodes: Count


class Now(Money):
    """What the nodes cost now."""

    estimatedMonthly: Annotated[float, "the part that is an estimate, USD a month"]
    nodes: Count


class Repacked(Saving):
    """What a plan for all pods at once would cost."""

    estimatedMonthly: Monthly
    ofWhichSpotMonthly: Annotated[float, "what spot saves that NodePools allow already, USD a month"]


class Reachable(Saving):
    """What the cluster would cost after the moves that are allowed now."""

    moves: Count
    evictions: Count
    isFinished: Annotated[bool, "whether there was time for all moves"]


class SavingsCluster(TypedDict):
    """The cluster that was read."""

    context: Annotated[str, "the context of the kubeconfig"]
    region: str
    readAt: Time
    nodes: Count
    pricedNodes: Count
    pods: Count
    pendingPods: Count
    selector: Annotated[str, "the label selector of the nodes that the report is about; empty for all"]


class Prices(TypedDict):
    """Where the prices come from."""

    catalogue: Annotated[str, "the date of the on-demand prices"]
    spot: Annotated[str, "EC2 or estimates"]
    currency: str
    hoursAMonth: int


class Owner(TypedDict):
    """The nodes of one group of one software."""

    software: str
    group: str
    nodes: Count
    unpriced: Count
    monthly: Monthly
    canTakeOver: Annotated[bool, "whether nodesmith can manage these nodes"]


class Kind(TypedDict):
    """The nodes of one type in one zone."""

    zone: str
    instanceType: str
    capacityType: CapacityType
    nodes: Count
    hourly: Annotated[float, "USD an hour, of all of them"]


class SavingsPools(TypedDict):
    """The NodePools that the plan uses."""

    areAssumed: bool
    names: Sequence[str]
    leftAlone: Annotated[Sequence[str], "NodePools that other software serves"]
    manifests: Annotated[Sequence[Mapping[str, Any]], "the assumed NodePools and their EC2NodeClass"]


class Unknown(TypedDict):
    """A node without a known price."""

    node: str
    owner: str
    reason: str


class Spending(TypedDict):
    """What the nodes are paid for."""

    podsMonthly: Monthly
    daemonSetsMonthly: Monthly
    unrequestedCpuMonthly: Monthly
    unrequestedMemoryMonthly: Monthly
    unrequestedAcceleratorsMonthly: Monthly


class HeldNodes(TypedDict):
    """A rule that keeps nodes."""

    rule: str
    object: str
    message: str
    nodes: Count
    names: Annotated[Sequence[str], "the first of these nodes"]
    monthly: Monthly
    unrequestedMonthly: Annotated[float, "what no pod requests of them, USD a month"]


class Protection(HeldNodes):
    """A rule that protects pods, with what it costs."""

    costMonthly: Monthly


class Kept(TypedDict):
    """A node that stays, and why."""

    node: str
    reason: str


class Family(TypedDict):
    """A family of instance types."""

    family: str
    capacityType: CapacityType
    nodes: Count
    monthly: Monthly
    cheapestType: str
    savingMonthly: Monthly


class SpotOption(TypedDict):
    """What more spot would save."""

    pods: Count
    furtherSavingMonthly: Monthly


class WorkloadCost(TypedDict):
    """A workload, with what its pods request, use and cost."""

    workload: str
    pods: Count
    requests: Annotated[Mapping[str, str], "by resource, as quantities"]
    used: Annotated[Mapping[str, str] | None, "by resource, as quantities; null if it is unknown"]
    monthly: Monthly
    unusedMonthly: Monthly


class Oversized(TypedDict):
    """Workloads that request more than they use."""

    isKnown: bool
    reason: Annotated[str, "why usage is not known"]
    monthly: Monthly
    workloads: Sequence[WorkloadCost]


class Alike(TypedDict):
    """Nodes of one kind."""

    kind: str
    count: int


class SavingMove(TypedDict):
    """A move that would save money."""

    reason: str
    removed: Sequence[Alike]
    nodes: Annotated[Sequence[str], "the nodes that would be removed"]
    launched: Sequence[Alike]
    pods: Count
    savingMonthly: Monthly


class ConstraintCost(TypedDict):
    """What a constraint of a workload costs."""

    workload: str
    constraint: str
    key: str
    pods: Count
    monthly: Monthly


class Constraints(TypedDict):
    """What constraints cost, and how many were examined of those found."""

    costs: Sequence[ConstraintCost]
    examined: Count
    found: Count


class Missing(TypedDict):
    """A kind of object that could not be read."""

    kind: str
    reason: str
    meaning: Annotated[str, "what the report lacks because of this"]


class Savings(TypedDict):
    """What a cluster costs and what it would cost: `nodesmith savings -o json`."""

    schemaVersion: Literal[1]
    cluster: SavingsCluster
    prices: Prices
    now: Now
    repacked: Repacked
    reachable: Reachable
    lowerBound: Money
    owners: Sequence[Owner]
    fleet: Sequence[Kind]
    nodePools: SavingsPools
    unknown: Sequence[Unknown]
    spending: Spending
    kept: Sequence[HeldNodes]
    protections: Sequence[Protection]
    unplaceable: Sequence[Kept]
    families: Sequence[Family]
    spotOption: SpotOption | None
    daemonSets: Sequence[WorkloadCost]
    oversized: Oversized
    moves: Sequence[SavingMove]
    constraints: Constraints
    missing: Sequence[Missing]
    faults: Annotated[Sequence[str], "objects that could not be used"]
    caveats: Annotated[Sequence[str], "what the reader must know to judge the figures"]
