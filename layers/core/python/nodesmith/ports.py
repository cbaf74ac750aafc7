"""The ports: external systems as the core sees them. Tests replace nothing else.

Every call may raise Transient, after which it can be repeated. A lack of capacity is a result, never an exception.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import (
    Instance,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    OfferingKey,
    StartRefusal,
)
from nodesmith.model.ec2.notices import Notice
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.functions import Concern, Heartbeat, Hint
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import Eviction, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.commitments import CommitmentBook, Commitments
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import Handover, Ledger, Pause
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.region import Scarcity
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus

if TYPE_CHECKING:
    from nodesmith.observation.observed import ConvertedManifests


class Store(Protocol):
    """The ledger of one cluster (DynamoDB). Reads are strongly consistent."""

    def load(self) -> Ledger:
        """Return the cluster's ledger."""

    def commit(
        self,
        version: int,
        claims: Sequence[NodeClaim],
        decision: str,
        move: Move | None = None,
        gang: Gang | None = None,
        changed: Sequence[NodeClaim] = (),
    ) -> None:
        """Write new claims, and the move or gang that they belong to, in one transaction, and increment the version.

        It also notes the launches, and what the cluster takes of limits that clusters share. A move or gang of revision
        0 is new. Raises Conflict if the version or another revision has changed, if a new claim's name is taken, or if
        a limit does not allow it: that of launches, or one that clusters share.
        """

    def save_shares(self) -> None:
        """Write what the cluster takes now of the limits that clusters share, unless that is written already."""

    def save(self, claim: NodeClaim) -> NodeClaim:
        """Write a claim, and return it with its new revision. Raises Conflict if its revision has changed."""

    def forget(self, claim: NodeClaim) -> None:
        """Remove an ended claim, and keep its departure. Raises Conflict if its revision has changed."""

    def take_lock(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Take the lock that lets one run of a concern work at a time. Return False while another run holds it.

        That run is notified when it releases the lock. It expires at `until`, so a dead run does not block others.
        """

    def release_lock(self, concern: Concern, until: datetime) -> bool:
        """Release the lock that expires at `until`, if it is still held. Return True if other runs were refused it."""

    def take_calls(self, wanted: int, now: datetime) -> int:
        """Take CreateFleet calls from the region's budget, and return how many were granted."""

    def record_scarcity(self, scarcity: Scarcity, now: datetime) -> None:
        """Record what EC2 lacks, for all clusters of the region."""

    def pause(self, pause: Pause | None) -> None:
        """Pause voluntary disruption; None resumes it."""

    def hand_over(self, handover: Handover) -> None:
        """Write who serves the cluster from now on: Karpenter or nodesmith."""

    def save_zonal_shifts(self, shifts: Sequence[ZonalShift]) -> None:
        """Write the zonal shifts of the cluster, replacing the previous ones."""

    def save_move(self, move: Move) -> Move:
        """Write a move, and return it with its new revision. A move of revision 0 is new.

        Raises Conflict if its revision has changed.
        """

    def forget_move(self, move: Move) -> None:
        """Remove a move that is over. Raises Conflict if its revision has changed."""

    def save_gang(self, gang: Gang) -> Gang:
        """Write a gang, and return it with its new revision. Raises Conflict if its revision has changed."""

    def forget_gang(self, gang: Gang) -> None:
        """Remove a gang that is over. Raises Conflict if its revision has changed."""

    def existing_claims(self, claims: Collection[str]) -> Collection[str]:
        """Return the names of those of `claims` that are in the ledger. Cheaper than `load`."""

    def save_nodeclass(self, status: NodeClassStatus) -> None:
        """Write the resolved status of an EC2NodeClass."""

    def forget_nodeclass(self, name: str) -> None:
        """Remove the resolved status of an EC2NodeClass that is gone."""

    def save_contents(self, contents: Mapping[str, str]) -> None:
        """Write content hashes, by `Kind/name`, of objects that were read from the API server."""

    def forget_contents(self, keys: Collection[str]) -> None:
        """Remove the content hashes of objects that are gone. `keys` are `Kind/name`."""

    def save_cluster(self, cluster: ClusterInfo) -> None:
        """Write what a new node must know about the cluster."""

    def save_unavailable(self, offerings: Mapping[OfferingKey, Backoff]) -> None:
        """Write back-offs of offerings."""

    def save_subnet_backoffs(self, subnets: Mapping[str, Backoff]) -> None:
        """Write back-offs of subnets, by id."""

    def save_risks(self, risks: Mapping[OfferingKey, Risk]) -> None:
        """Write the risks of pools, replacing their previous ones."""

    def save_drain_time(self, nodepool: str, drain_time: DrainTime) -> None:
        """Write a NodePool's drain time, replacing the previous one."""

    def clear_unavailable(self, offerings: Collection[OfferingKey]) -> None:
        """Remove the back-offs of offerings that have capacity again."""

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        """Write a NodePool's back-off; None removes it."""

    def save_move_backoff(self, kind: MoveKind, backoff: Backoff | None) -> None:
        """Write the back-off of a NodePool's moves for one reason; None removes it."""

    def save_health(self, nodepool: str, health: RegistrationHealth) -> None:
        """Write a NodePool's registration health. Raises Conflict if its revision has changed."""

    def learned(self) -> Mapping[Boot, Offered]:
        """Return what nodes have been observed to offer, in all clusters of the account. It may be slightly old."""

    def learn(self, offered: Mapping[Boot, Offered]) -> None:
        """Write what nodes have been observed to offer, replacing the entries of the same types and images."""

    def forget_health(self, nodepool: str) -> None:
        """Remove the registration health of a NodePool that is gone."""


class CommitmentStore(Protocol):
    """The commitments of a region, and what its clusters use of them (DynamoDB)."""

    def load(self) -> Commitments:
        """Return the commitments and the clusters' reports; NO_COMMITMENTS if none have been read."""

    def report(self, found: Commitments) -> None:
        """Write the reports. Raises Conflict if another cluster has reported since these were read."""

    def keep(self, book: CommitmentBook) -> None:
        """Write what was read of commitments, replacing what was known."""


class Cloud(Protocol):
    """EC2 and related AWS services, for one cluster."""

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        """Create these launch templates unless they exist."""

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        """Request one instance for each request, idempotent by the claim's name. Return the outcomes in order.

        Requests that share a fleet are one call, which is idempotent by the fleet's name for any subset of its claims.
        `repeated` is True if an earlier call for the same requests may have succeeded.
        """

    def instances_of(
        self, claims: Collection[str], known: Mapping[str, str] = ...
    ) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances with these claims' tags, including terminated ones, by claim; no entry if none.

        `known` is claim → instance id. It finds instances that do not have their claim's tag yet.
        """

    def fleet_instances(self, fleets: Collection[str]) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances of shared fleets, including terminated ones, by fleet; no entry if none.

        For some seconds after their launch, EC2 may not return all of them.
        """

    def tag(self, instance: str, tags: Mapping[str, str]) -> None:
        """Add tags to one of nodesmith's instances (by id). Do nothing if it is gone."""

    def owned_instances(self) -> Sequence[Instance]:
        """Return all running instances with the tags of this cluster and of nodesmith, whatever their claim."""

    def living(self, instances: Collection[str]) -> Collection[str]:
        """Return the ids of those of `instances` that are not terminated, whichever software launched them."""

    def notices(self, instances: Collection[str]) -> Sequence[Notice]:
        """Return notices about these instances (by id) from their state in EC2.

        They concern instances that are gone, are ending, or have a scheduled change.
        """

    def owned(self, kind: OwnedKind) -> Sequence[Owned]:
        """Return the resources of a kind that nodesmith created for this cluster.

        Volumes and network interfaces are included if they are not attached, except volumes that must outlive nodes.
        """

    def remove(self, owned: Owned) -> None:
        """Delete a resource that `Cloud.owned` returned, unless it is gone. Raises Transient also if it is in use."""

    def terminate(self, instances: Collection[str]) -> None:
        """Terminate instances by id, unless they are gone or ending.

        Raises Transient, after all have been tried, if EC2 refuses to terminate any.
        """

    def stop(self, instance: str) -> None:
        """Stop an instance by id, unless it is gone, ending or stopped. Raises Transient."""

    def start(self, instances: Collection[str]) -> Mapping[str, StartRefusal]:
        """Start stopped instances by id. Return those that do not start, or of which that is not known.

        An instance that runs is left as it is. One that cannot be started does not keep others from starting.
        """

    def cluster_info(self) -> ClusterInfo:
        """Return what new nodes need to join the cluster."""

    def zonal_shifts(self, now: datetime) -> Sequence[ZonalShift] | None:
        """Return the zonal shifts of the cluster that are in effect; None if they cannot be read. Never raises."""

    def resolve(
        self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime, pools: Sequence[Requirements] = ()
    ) -> NodeClassStatus:
        """Resolve selectors, images and instance profile, which is created if needed. Conditions show any faults.

        `pools` are the requirements of the NodePools that use it: dry runs ask for what these may launch.
        """


class Cluster(Protocol):
    """The Kubernetes API server. All calls are idempotent.

    Decisions read the cluster from snapshots. This port only reads what a launch or its end must not take from one.
    """

    def nodepools_and_nodeclasses(self) -> ConvertedManifests:
        """Return all NodePools and EC2NodeClasses, reduced as in a snapshot, with those of older APIs converted."""

    def nodeclaim(self, name: str) -> Mapping[str, Any] | None:
        """Return a NodeClaim, reduced as in a snapshot, or None if it does not exist."""

    def has_node(self, name: str, provider_id: str) -> bool:
        """Return whether a Node of this name belongs to the instance with this provider id."""

    def apply_nodeclaim(self, manifest: Mapping[str, Any], *, create: bool = True) -> None:
        """Apply the NodeClaim object and its status. If the object is missing, create it only if `create` is True."""

    def delete_nodeclaim(self, name: str) -> None:
        """Delete a NodeClaim object and remove nodesmith's finalizer. Do nothing if it is gone."""

    def request_deletion(self, kind: str, name: str, provider_id: str = "") -> None:
        """Request the deletion of a NodeClaim or Node, unless it is gone. nodesmith's finalizer keeps it terminating.

        A Node with another provider id is left alone; an empty `provider_id` means any.
        """

    def release_node(self, name: str, provider_id: str) -> Sequence[str]:
        """Delete a Node whose instance is done, and remove nodesmith's finalizer.

        Return the finalizers that still hold it, empty once it is gone. A Node with another provider id is left alone
        and counts as gone; an empty `provider_id` means a Node without one.
        """

    def register_node(self, name: str, patch: NodePatch) -> bool:
        """Apply a patch to a Node in one write. Return False if it is gone, or its name now belongs to another Node."""

    def nominate(self, node: str, pods: Sequence[str]) -> None:
        """Nominate a Node for pods (namespace/name) that are neither gone, bound nor nominated already.

        Raises Transient after trying all pods.
        """

    def clear_nominations(self, node: str, pods: Sequence[str]) -> None:
        """Clear `status.nominatedNodeName` of pods (namespace/name) if it names this Node.

        Pods that are gone, bound, or not nominated for it are left unchanged. Raises Transient after trying all pods.
        """

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Evict pods as far as their PodDisruptionBudgets allow. Return the results by `namespace/name`.

        A pod that has ended, or is bound to another node, is Gone. Raises Transient after all pods have been tried.
        """

    def delete_pods(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Delete pods with at most this grace, whatever their PodDisruptionBudgets. Return results like `evict`."""

    def merge_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Merge into the status of one of Karpenter's objects or a CapacityBuffer. Do nothing if it is gone.

        Conditions are merged by type, and keep their lastTransitionTime while their status is the same.
        """

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Merge annotations into those of a NodePool or EC2NodeClass. Do nothing if it is gone."""

    def karpenter_runs(self) -> bool:
        """Return whether a Karpenter controller in the cluster holds its leader election lease."""

    def release_nodeclass(self, name: str) -> None:
        """Remove Karpenter's finalizer from an EC2NodeClass if it is being deleted."""

    def publish(self, events: Sequence[ObjectEvent]) -> None:
        """Publish Events. Repeating an Event updates its time. Raises Transient after all have been tried."""


class Blobs(Protocol):
    """Objects by key (S3)."""

    def get(self, key: str) -> bytes | None:
        """Return an object, or None if it does not exist."""

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing any existing one."""


class Catalogs(Protocol):
    """The catalogue of one region (in S3)."""

    @property
    def region(self) -> str: ...

    def latest(self) -> Catalog:
        """Return the stored catalogue, or the embedded one if none is stored. Raises Rejected if neither is usable."""

    def write(self, catalog: Catalog) -> None:
        """Store the catalogue."""


class Hints(Protocol):
    """Messages that wake a concern."""

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Wake a concern, no earlier than after `delay_seconds` (0–900)."""


NONE_THERE = ""
"""The version of an object that does not exist"""


@dataclass(frozen=True, slots=True)
class Version:
    """An object as read. `data` is None if the object is still the version that the caller knows."""

    tag: str
    data: bytes | None


class VersionedBlobs(Protocol):
    """Objects by key (S3). Each write creates a new version."""

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = ...) -> Version:
        """Read an object unless it is still the version `known`. A missing object has the tag NONE_THERE.

        Raises Rejected for an object of more than `largest_bytes`.
        """

    def replace(self, key: str, data: bytes, known: str) -> str:
        """Write an object if it is still the version `known`. Return its new version. Raises Conflict otherwise."""


class Heartbeats(Protocol):
    """The heartbeats of one cluster's forwarder (DynamoDB). Every call may raise Transient, Rejected."""

    def write_heartbeat(self, at: datetime, changed: datetime) -> None:
        """Write a heartbeat. `changed` is when the last snapshot was taken that was written because of a change."""

    def last(self) -> Heartbeat | None:
        """Return the newest heartbeat, or None if there is none. It may be a second out of date."""
