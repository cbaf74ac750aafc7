"""The JSON documents of commands that change something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from nodesmith_cli.connecting.checks.findings import Finding
from nodesmith_cli.output.documents import Count, Pod
from nodesmith_cli.sharing.findings import Finding as SharedFinding
from nodesmith_cli.sharing.removalplan import KeptObject
from nodesmith_cli.sharing.waiting import Awaited


class StepRow(TypedDict):
    """A resource, and what a command does or has done to it."""

    object: str
    standing: str
    detail: str


class Connection(TypedDict):
    """A cluster's connection: `nodesmith connect -o json`."""

    cluster: str
    region: str
    state: Literal["planned", "hindered", "waiting", "connected"]
    rows: Sequence[StepRow]
    findings: Sequence[Finding]


class Disconnection(TypedDict):
    """What was removed of a connection: `nodesmith disconnect -o json`."""

    cluster: str
    state: Literal["nodes", "planned", "left", "disconnected"]
    rows: NotRequired[Sequence[StepRow]]
    nodes: NotRequired[Annotated[Sequence[str], "nodes that prevent it"]]


class Doctor(TypedDict):
    """What keeps nodesmith from serving a cluster well: `nodesmith doctor -o json`."""

    cluster: str
    region: str
    findings: Annotated[Sequence[Finding], "the most severe first"]


class Check(TypedDict):
    """What else manages nodes in a cluster: `nodesmith check-cluster -o json`."""

    overlay: Annotated[str, "the folder for kubectl apply -k"]
    findings: Sequence[SharedFinding]


class TakeoverRow(TypedDict):
    """An object that is adopted or released."""

    object: str
    state: str
    detail: str


class Takeover(TypedDict):
    """What was adopted or released: `nodesmith adopt -o json`, `nodesmith release -o json`."""

    cluster: str
    state: Literal["hindered", "planned", "left", "adopted", "released"]
    rows: Sequence[TakeoverRow]
    reason: Annotated[str, "why it could not be completed"]


class RemovalPlan(TypedDict):
    """What would be removed: `nodesmith uninstall --dry-run -o json`."""

    delete: Annotated[Sequence[str], "as Kind/name"]
    keep: Sequence[KeptObject]
    refused: Annotated[Sequence[str], "why nothing is removed"]


class Removal(TypedDict):
    """What was removed: `nodesmith uninstall -o json`."""

    done: bool
    deleted: Annotated[Sequence[str], "as Kind/name"]
    kept: Sequence[KeptObject]
    left: Annotated[Sequence[Awaited], "what should have been deleted"]
    instances: Annotated[Sequence[str], "provider ids of instances that were not terminated"]


class Rollback(TypedDict):
    """The release that functions run: `nodesmith rollback -o json`."""

    release: str
    state: Literal["planned", "switched", "unchanged"]
    functions: Annotated[Mapping[str, int], "the version of each function that changes"]


class Platform(TypedDict):
    """The image for one platform."""

    digest: str
    base: str


class Part(TypedDict):
    """A blob or a manifest."""

    what: str
    digest: str
    size: Annotated[int, "bytes"]
    state: Literal["there", "mounted", "uploaded", "missing"]


class Image(TypedDict):
    """The image that was pushed: `nodesmith image push -o json`."""

    reference: Annotated[str, "by digest"]
    tagged: str
    digest: str
    dryRun: bool
    platforms: Mapping[str, Platform]
    parts: Sequence[Part]


class Version(TypedDict):
    """The release, and the formats that it reads and writes: `nodesmith version -o json`."""

    version: str
    commit: str
    python: str
    formats: Mapping[str, int]


class MigratedField(TypedDict):
    """What became of a field of a node group."""

    field: str
    value: Any
    outcome: str
    became: str
    reason: NotRequired[str]
    remedy: NotRequired[str]


class MigratedGroup(TypedDict):
    """A node group."""

    name: str
    kind: str
    fields: Sequence[MigratedField]


class MigratedPool(TypedDict):
    """A NodePool, and the node groups that it replaces."""

    name: str
    nodeClass: str
    groups: Sequence[MigratedGroup]


class UnplacedPod(TypedDict):
    """A pod that finds no place on the new NodePools."""

    pod: Pod
    node: str
    group: str
    reason: str
    fix: str


class MigratedPods(TypedDict):
    """The pods of the groups, planned on the new NodePools."""

    nodes: Count
    pods: Count
    planned: Annotated[int, "new nodes"]
    unplaced: Sequence[UnplacedPod]


class Migration(TypedDict):
    """Node groups as NodePools: `nodesmith migrate -o json`."""

    nodePools: Sequence[MigratedPool]
    manifests: Sequence[Mapping[str, Any]]
    pods: MigratedPods | None
    problems: Sequence[str]


class Size(TypedDict):
    """The size of a group."""

    min: int
    desired: int
    max: int


class DrainedGroup(TypedDict):
    """A node group that is drained."""

    group: str
    kind: str
    state: str
    instances: Sequence[str]
    nodes: Sequence[str]
    pods: Sequence[str]
    plannedNodes: int | None
    size: Size
    before: Size | None
    messages: Sequence[str]


class Drain(TypedDict):
    """How far node groups are drained: `nodesmith migrate --drain -o json`, also with `--undo` and `--status`."""

    cluster: str
    groups: Sequence[DrainedGroup]
