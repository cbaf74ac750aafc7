"""The JSON documents of plans and of recorded decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from nodesmith_cli.output.documents import CapacityType, Count, Hourly, Pod, Pods, Seconds, Stored, Time


class PlannedNode(TypedDict):
    """A node to launch."""

    name: str
    nodePool: str
    instanceType: Annotated[str, "the cheapest of its options"]
    instanceTypes: Annotated[Sequence[str], "its options in this zone"]
    zone: str
    capacityType: CapacityType
    priceHourly: Hourly
    listPriceHourly: NotRequired[Annotated[float, "AWS's price, if an overlay or a commitment changes it"]]
    overlay: NotRequired[Annotated[str, "the NodeOverlay that sets the price"]]
    surchargeHourly: NotRequired[Hourly]
    commitment: NotRequired[Annotated[str, "the commitment that pays for it"]]
    labels: Mapping[str, str]
    requests: Annotated[Mapping[str, str], "by resource, as quantities"]
    pods: Pods
    forBuffers: NotRequired[Annotated[bool, "whether only CapacityBuffers need it"]]
    forGang: NotRequired[
        Annotated[bool, "whether a ProvisioningRequest or PodGroup needs it; lowerBoundHourly leaves it out"]
    ]
    stoppedHourly: NotRequired[Annotated[float, "what it costs once it is stopped, USD an hour"]]


class Existing(TypedDict):
    """An existing node that takes pods."""

    node: str
    pods: Pods


class Unplaced(TypedDict):
    """A pod that stays pending."""

    pod: Pod
    reason: str
    nodePool: str
    blocking: Annotated[str, "the requirement in the way"]
    fix: Annotated[str, "what would help"]


class Start(TypedDict):
    """A stopped instance that starts."""

    name: str
    buffer: str
    pods: Pods


class HeldForBuffer(TypedDict):
    """A node that only CapacityBuffers keep."""

    node: str
    buffers: Sequence[str]
    priceHourly: Hourly


class BufferRoom(TypedDict):
    """The room of one CapacityBuffer, counted in pods."""

    buffer: str
    wanted: Annotated[int, "what the buffer asks for"]
    count: Annotated[int, "as much of it as the caps allow"]
    ready: Annotated[int, "pods with room on nodes"]
    launching: Annotated[int, "pods with room on nodes that do not run yet"]
    bought: Annotated[int, "pods for which nodes are bought"]
    reason: Annotated[str, "why the rest has no room"]
    stopped: NotRequired[Annotated[int, "stopped instances"]]
    warming: NotRequired[Annotated[int, "instances that are being prepared"]]


class PlanBuffers(TypedDict):
    """The room of CapacityBuffers, and what it costs."""

    rooms: Sequence[BufferRoom]
    held: Sequence[HeldForBuffer]
    heldHourly: Hourly
    heldEstimated: Annotated[bool, "whether heldHourly contains estimated prices"]
    toLaunchHourly: Hourly
    toLaunchEstimated: Annotated[bool, "whether toLaunchHourly contains estimated prices"]


class Plan(TypedDict):
    """Which nodes would be launched for the pending pods: `nodesmith plan -o json`."""

    nodes: Sequence[PlannedNode]
    existing: Sequence[Existing]
    unplaced: Sequence[Unplaced]
    priceHourly: Hourly
    lowerBoundHourly: Hourly
    surchargeHourly: NotRequired[Hourly]
    costLowerBoundHourly: NotRequired[Hourly]
    nodesLowerBound: NotRequired[int]
    seconds: Annotated[float, "processor time of the decision"]
    steps: Annotated[int, "steps of the search"]
    starts: NotRequired[Sequence[Start]]
    capacityBuffers: NotRequired[PlanBuffers]


class Source(TypedDict):
    """A node that a move removes."""

    node: str
    nodeClaim: str
    nodePool: str
    instanceType: str
    zone: str
    capacityType: CapacityType
    priceHourly: Hourly


class Move(TypedDict):
    """Nodes that would be removed, and what replaces them."""

    reason: str
    sources: Sequence[Source]
    replacements: Sequence[PlannedNode]
    destinations: Annotated[Mapping[str, str], "the node of each pod"]
    savingHourly: Hourly
    savingEstimated: Annotated[bool, "whether a price that it follows from is an estimate"]
    evictionCost: Annotated[float, "the sum of Karpenter's eviction costs of its pods"]
    worth: Annotated[float, "USD that it is worth"]
    message: str


class Stays(TypedDict):
    """A node that stays, with the rule that keeps it."""

    node: str
    nodeClaim: str
    rule: str
    object: str
    message: str


class Moves(TypedDict):
    """Which nodes would be removed or replaced: `nodesmith plan --consolidate -o json`."""

    moves: Annotated[Sequence[Move], "in the order in which they would start"]
    kept: Sequence[Stays]
    budgets: Annotated[
        Sequence[Mapping[str, str | int | None]], "nodes that may be disrupted now, by NodePool and reason"
    ]
    nodes: Count
    priceHourly: Hourly
    priceEstimated: Annotated[bool, "whether the price of a node is an estimate"]
    savingHourly: Hourly
    savingEstimated: Annotated[bool, "whether a price that a saving follows from is an estimate"]
    savingYearly: Annotated[float, "USD a year"]
    evictionCost: float
    isFinished: bool
    seconds: Seconds
    steps: int


class SnapshotRef(TypedDict):
    """The snapshot that a decision was made from."""

    sha256: str
    takenAt: Time


class CatalogRef(TypedDict):
    """The catalogue that a decision was made with."""

    region: str
    ref: str


class DecisionInputs(TypedDict):
    """What a decision was made from."""

    snapshot: SnapshotRef
    catalog: CatalogRef
    ledger: Annotated[Mapping[str, Any], "the ledger, as it is stored"]
    settings: Annotated[Mapping[str, Any], "settings of nodes, by name"]
    tried: NotRequired[Sequence[Any]]


class DecidedNode(TypedDict):
    """A node that is bought."""

    claim: Annotated[Mapping[str, Any], "its NodeClaim, as it is stored"]
    launch: Annotated[Mapping[str, Any], "the request for CreateFleet, as it is stored"]
    templates: Annotated[Sequence[str], "launch templates"]
    priceHourlyUsd: Hourly
    listPriceHourlyUsd: NotRequired[Hourly]
    commitment: NotRequired[str]
    surchargeHourlyUsd: NotRequired[Hourly]
    estimated: bool


class DecidedMove(TypedDict):
    """Nodes that are removed, and what replaces them."""

    reason: str
    sources: Sequence[str]
    replacements: Sequence[DecidedNode]
    savingHourlyUsd: Hourly
    evictionCost: float
    worthUsd: float
    message: str


class UnplacedPods(TypedDict):
    """Pods that stay pending for the same reason."""

    pods: Pods
    reason: str
    nodePool: str
    blocking: str
    fix: str


class DecisionPlan(TypedDict):
    """What was decided. It depends on the inputs only."""

    nodes: Sequence[DecidedNode]
    placed: Annotated[Mapping[str, Sequence[str]], "pods by the existing node that takes them"]
    waiting: Annotated[Mapping[str, str], "the NodeClaim that each pod waits for"]
    unplaced: Sequence[UnplacedPods]
    ignored: Sequence[UnplacedPods]
    obstacles: Annotated[Mapping[str, str], "why NodePools cannot be used"]
    problems: Sequence[str]
    priceHourlyUsd: Hourly
    boundHourlyUsd: Annotated[float, "a lower bound on the price, USD an hour"]
    steps: int
    surchargeHourlyUsd: NotRequired[Hourly]
    costBoundHourlyUsd: NotRequired[Hourly]
    fewestNodes: NotRequired[int]
    weights: NotRequired[
        Annotated[
            Literal["kept", "disregarded"],
            "if NodePools differ in weight: whether the bound on the price holds for plans that prefer NodePools as "
            "their weights demand, or for all plans",
        ]
    ]
    limits: NotRequired[
        Annotated[
            Literal["disregarded"],
            "if the plan takes much of what limits leave: the bound on the price does not count limits",
        ]
    ]
    starts: NotRequired[Sequence[Stored]]
    rooms: NotRequired[Sequence[BufferRoom]]
    forthcoming: NotRequired[Sequence[Stored]]
    moves: NotRequired[Annotated[Sequence[DecidedMove], "for a decision about disruption"]]


Decision = TypedDict(
    "Decision",
    {
        "$schema": NotRequired[Annotated[str, "the address of this schema"]],
        "format": Literal["nodesmith-decision"],
        "version": Literal[1],
        "id": Annotated[str, "sorts by time"],
        "concern": str,
        "cluster": str,
        "at": Time,
        "superseded": NotRequired[Annotated[bool, "whether another run decided first"]],
        "inputsHash": str,
        "inputs": DecisionInputs,
        "again": NotRequired[Annotated[Sequence[str], "moves that were decided again"]],
        "lookedAt": NotRequired[Annotated[Mapping[str, str], "when each node was looked at before"]],
        "plan": DecisionPlan,
        "durationsMs": Mapping[str, float],
    },
)
Decision.__doc__ = (
    "A decision, as it is recorded: `nodesmith explain decision -o json`, and the stored records."
)
