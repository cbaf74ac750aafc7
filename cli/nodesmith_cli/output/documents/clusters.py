"""The JSON documents about a cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from nodesmith_cli.output.documents import CapacityType, Count, Estimated, Hourly, Pod, Price, Seconds, Time


class OfferedFault(TypedDict):
    """A fault that can be started."""

    name: str
    does: str
    services: Annotated[Sequence[str], "the services that it can hit"]
    shows: Annotated[str, "where its effect shows"]


class Faults(TypedDict):
    """The faults that a local system can have: `nodesmith chaos list -o json`."""

    faults: Sequence[OfferedFault]


class StartedFault(TypedDict):
    """A fault of a local system, and what has become of it."""

    name: str
    kind: str
    service: str
    functions: Annotated[Sequence[str], "those that it affects; empty for all"]
    share: Annotated[float, "the share of calls that it affects"]
    startedAt: Time
    endsAt: Time
    state: Literal["active", "recovering", "recovered"]
    secondsLeft: Seconds
    hits: Annotated[int, "calls, invocations, reads, messages or instances that it has hit"]
    recoverySeconds: Annotated[float | None, "from its end until all was well; null before that"]
    waitsFor: Annotated[str, "what recovery waits for"]


class Chaos(TypedDict):
    """The faults of a local system: `nodesmith chaos start`, `status` and `stop` with `-o json`."""

    faults: Sequence[StartedFault]


class BufferStatus(TypedDict):
    """A CapacityBuffer."""

    name: str
    pods: Count
    ready: bool
    message: str
    sizedBy: NotRequired[str]


class Warm(TypedDict):
    """Stopped instances, those that are being prepared, and what the stopped ones cost."""

    stopped: Count
    preparing: Count
    stoppedHourly: Hourly


class Interruption(TypedDict):
    """A node that EC2 takes."""

    name: str
    nodeClaim: str
    instanceId: str | None
    cause: str
    phase: str
    deadline: Time | None
    secondsLeft: int | None
    waitsFor: str | None


class Disruption(TypedDict):
    """A node that nodesmith removes."""

    name: str
    nodeClaim: str | None
    reason: str | None
    phase: str | None
    waitsFor: str | None


class CommitmentPool(TypedDict):
    """Commitments that pay for the same instances."""

    name: str
    kind: str
    commitments: Sequence[str]
    hourly: Hourly
    amount: str
    unused: str
    utilization: float | None
    ends: Time
    endingSoon: Annotated[Mapping[str, str], "when each of those that end soon ends"]


class Commitments(TypedDict):
    """The use of Savings Plans and Reserved Instances."""

    readAt: Time
    isOld: bool
    pools: Sequence[CommitmentPool]
    coverage: Annotated[float | None, "the part of the on-demand price that commitments pay"]
    uncoveredHourly: Hourly
    faults: Sequence[str]


class SpendingLimit(TypedDict):
    """A SpendingLimit and its use, or why it cannot be read."""

    name: str
    fault: NotRequired[str]
    resource: NotRequired[str]
    used: NotRequired[str]
    percent: NotRequired[int]
    since: NotRequired[str]
    clusters: NotRequired[Sequence[str] | None]


class Status(TypedDict):
    """A cluster's nodes and pods, and what is in progress: `nodesmith status -o json`."""

    nodes: Count
    notReady: Count
    coming: Annotated[int, "nodes that start"]
    ending: Annotated[int, "nodes that terminate"]
    pods: Count
    pending: Count
    standby: Annotated[str | None, "why nodesmith stands by"]
    paused: Annotated[str | None, "the pause of disruption"]
    limits: Sequence[str]
    zonalShifts: Sequence[str]
    nodeOverlays: Count
    leftOut: Annotated[Mapping[str, str], "NodeOverlays that do not apply, and why"]
    foreignNodePools: Annotated[Mapping[str, str], "NodePools of other software, and its name"]
    capacityBuffers: Sequence[BufferStatus]
    warmCapacity: Warm
    heldForBuffers: Annotated[Sequence[str], "nodes that only CapacityBuffers keep"]
    heldHourly: Hourly
    heldEstimated: Annotated[bool, "whether heldHourly contains estimated prices"]
    interruptions: Annotated[Sequence[Interruption], "by deadline, the nearest first"]
    disruptions: Sequence[Disruption]
    snapshotAt: Time
    snapshotAgeSeconds: int
    commitments: NotRequired[Commitments]
    spendingLimits: NotRequired[Sequence[SpendingLimit]]
    spendingLimitsUnknown: NotRequired[Annotated[str, "why SpendingLimits are not known"]]


class PodSeen(TypedDict):
    """A pod in a snapshot."""

    outcome: Literal["gone", "bound", "ignored", "pending"]
    reason: str | None
    node: str | None
    at: Time
    ageSeconds: int


class PodReport(TypedDict):
    """What blocks a pod, or where it goes: `nodesmith explain pod NAME -o json`."""

    pod: Pod
    outcome: Literal["bought", "fits", "waits", "unplaced", "ignored", "bound", "pending"]
    reason: str | None
    blocking: Annotated[str | None, "the requirement in the way"]
    fix: Annotated[str | None, "what would help"]
    nodeClaim: str | None
    nodePool: str | None
    instanceType: str | None
    zone: str | None
    capacityType: CapacityType | None
    priceHourly: Price
    phase: Annotated[str | None, "how far its node is"]
    message: Annotated[str | None, "what its node waits for"]
    node: str | None
    priceEstimated: Estimated
    listPriceHourly: Price
    overlays: Sequence[str] | None
    instanceTypes: Sequence[str] | None
    zones: Sequence[str] | None
    decision: Annotated[str | None, "the id of the decision that mentions it"]
    at: Time | None
    ageSeconds: int | None
    decisionsLookedAt: int | str
    seen: PodSeen | None


class Obstacle(TypedDict):
    """What would block the termination of a node."""

    reason: str
    message: str
    on: str | None
    fix: str | None


class WaitingNode(Obstacle):
    """What the termination of a node waits for."""

    since: Time
    seconds: int
    cost: Annotated[float | None, "what the node has cost meanwhile, in USD"]


class Staying(TypedDict):
    """Why a node stays."""

    reason: str
    message: str
    on: str | None
    leaves: str | None
    since: Time | None
    seconds: int | None
    cost: Annotated[float | None, "what the node has cost meanwhile, in USD"]


class Covered(TypedDict):
    """Which part of the nodes of a type and zone commitments pay for."""

    share: float
    running: float
    by: Mapping[str, float]


class NodeReport(TypedDict):
    """What a node is, waits for, or stays for: `nodesmith explain node NAME -o json`."""

    node: str | None
    nodeClaim: str | None
    nodePool: str | None
    servedBy: Annotated[str | None, "the other software that serves its NodePool"]
    instanceId: str | None
    instanceType: str | None
    zone: str | None
    capacityType: CapacityType | None
    priceHourly: Price
    priceEstimated: Estimated
    phase: str | None
    phaseSince: Time | None
    ready: bool | None
    createdAt: Time
    ageSeconds: int
    pods: Count
    ending: bool
    cause: str | None
    staying: Staying | None
    deadline: Time | None
    waiting: WaitingNode | None
    obstacles: Sequence[Obstacle]
    snapshotAt: Time
    snapshotAgeSeconds: int
    commitments: NotRequired[Covered]


class Gauge(TypedDict):
    """How much of a resource is requested and used."""

    requested: int
    allocatable: int
    used: int | None


class TopNode(TypedDict):
    """A node of the live view."""

    name: str
    group: str
    managedBy: str
    instanceType: str
    zone: str
    capacityType: str
    priceHourly: Price
    priceEstimated: Estimated
    cpu: Annotated[Gauge, "thousandths of a core"]
    memory: Annotated[Gauge, "bytes"]
    pods: Gauge
    gpus: Gauge
    ageSeconds: float
    state: str
    detail: str
    secondsLeft: float | None
    cordoned: bool


class TopPod(TypedDict):
    """A pending pod of the live view."""

    name: Pod
    ageSeconds: float
    reason: str
    owner: str


class Top(TypedDict):
    """A cluster at one moment: `nodesmith top -o json`, which writes one document a line."""

    schemaVersion: Literal[1]
    context: str
    isCurrent: bool
    hourly: Hourly
    unpricedNodes: Count
    lowerBoundHourly: float | None
    paused: str | None
    pods: Count
    nodes: Sequence[TopNode]
    pending: Sequence[TopPod]
    budgetWindows: Sequence[str]
    notes: Sequence[str]
