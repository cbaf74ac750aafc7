"""The outside, as the core sees it. Adapters and fakes satisfy these Protocols; nothing else is mocked.

Every call may raise Transient (ask again later). No capacity is an answer, never an exception.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import Instance, LaunchOutcome, LaunchRequest, LaunchTemplate, OfferingKey
from nodesmith.model.ec2.notices import Notice
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.evictions import Eviction, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.ledger.backoffs import Backoff
from nodesmith.model.ledger.draintimes import DrainTime
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.pauses import Pause
from nodesmith.model.ledger.registrationhealth import RegistrationHealth
from nodesmith.model.ledger.risks import Risk
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus

if TYPE_CHECKING:  # it converts objects of older APIs, which few functions do
    from nodesmith.observation.olderversions import Todays


class Store(Protocol):
    """The ledger of one cluster (DynamoDB). Reads are strongly consistent."""

    def load(self) -> Ledger:
        """Read everything known of the cluster."""

    def commit(
        self, version: int, claims: Sequence[NodeClaim], decision: str, move: Move | None = None
    ) -> None:
        """Write new claims, and the move that they are part of, all or none, and move the version on.

        Raises Conflict when the version is no longer `version`, a claim of that name exists, or the move's revision
        has moved; a move of revision 0 is new.
        """

    def save(self, claim: NodeClaim) -> NodeClaim:
        """Write a claim's progress; give it with its new revision. Raises Conflict when its revision has moved."""

    def forget(self, claim: NodeClaim) -> None:
        """Remove a claim that has ended; its end is kept as a departure. Raises Conflict when its revision moved."""

    def take_lock(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Begin what one run does at a time; False while another's turn lasts, who is then told (`release_lock`).

        It is over at `until`: who dies in its turn holds up nobody for longer.
        """

    def release_lock(self, concern: Concern, until: datetime) -> bool:
        """End the turn that was to last `until`, if it still does; True where others were turned away meanwhile."""

    def pause(self, pause: Pause | None) -> None:
        """Note that no node is disrupted that could as well go on; None lets it begin again."""

    def save_move(self, move: Move) -> Move:
        """Write a move's progress; give it with its new revision. One of revision 0 is new.

        Raises Conflict when its revision has moved.
        """

    def forget_move(self, move: Move) -> None:
        """Remove a move that is over. Raises Conflict when its revision has moved."""

    def known(self, claims: Collection[str]) -> Collection[str]:
        """Return those of these claims, by name, that the ledger holds: cheaper than to read it all."""

    def save_nodeclass(self, status: NodeClassStatus) -> None:
        """Write what an EC2NodeClass resolved to."""

    def forget_nodeclass(self, name: str) -> None:
        """Remove the resolution of an EC2NodeClass that is gone."""

    def save_contents(self, contents: Mapping[str, str]) -> None:
        """Write content hashes of objects by `Kind/name`, as the API server was found to have them."""

    def forget_contents(self, keys: Collection[str]) -> None:
        """Remove the content hashes of objects (`Kind/name`) that are gone."""

    def save_cluster(self, cluster: ClusterInfo) -> None:
        """Write what a new node must know of the cluster."""

    def save_unavailable(self, offerings: Mapping[OfferingKey, Backoff]) -> None:
        """Write back-offs of offerings."""

    def save_subnet_backoffs(self, subnets: Mapping[str, Backoff]) -> None:
        """Write back-offs of subnets, by id."""

    def save_risks(self, risks: Mapping[OfferingKey, Risk]) -> None:
        """Write what pools' interruptions come to, replacing what was known of these pools."""

    def save_drain_time(self, nodepool: str, drain_time: DrainTime) -> None:
        """Write how long drains of a NodePool's nodes took, replacing what was known."""

    def clear_unavailable(self, offerings: Collection[OfferingKey]) -> None:
        """Forget the back-offs of offerings that had capacity again."""

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        """Write a NodePool's back-off, or clear it with None."""

    def save_move_backoff(self, kind: MoveKind, backoff: Backoff | None) -> None:
        """Write the back-off of a NodePool's moves for one reason, or clear it with None."""

    def save_health(self, nodepool: str, health: RegistrationHealth) -> None:
        """Write whether a NodePool's nodes join. Raises Conflict when its revision has moved."""

    def learned(self) -> Mapping[Boot, Offered]:
        """Read what nodes have been seen to offer, in all clusters of the account; a little old, perhaps."""

    def learn(self, offered: Mapping[Boot, Offered]) -> None:
        """Write what nodes have been seen to offer, replacing what was known of the same type and image."""

    def forget_health(self, nodepool: str) -> None:
        """Remove what is known of a NodePool that is gone."""


class Cloud(Protocol):
    """EC2, and what stands around it, for one cluster."""

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        """Make sure that these launch templates exist."""

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        """Ask for one instance per request, idempotent by the claim's name; one outcome per request, in order.

        Requests that share a fleet are one call, idempotent by the fleet's name, whichever of its claims are named.
        `repeated` says that an earlier call for the same requests may have been answered.
        """

    def instances_of(
        self, claims: Collection[str], known: Mapping[str, str] = ...
    ) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances that carry these claims' tags, dead ones too, by claim; none → no entry.

        `known` are ids of instances by claim: an instance that does not carry its claim's tag yet is found by its id.
        """

    def fleet_instances(self, fleets: Collection[str]) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances of shared fleets, dead ones too, by fleet; none → no entry.

        EC2 may not show all of them for some seconds after their launch.
        """

    def tag(self, instance: str, tags: Mapping[str, str]) -> None:
        """Write tags on one of our instances (by id); gone is fine."""

    def owned_instances(self) -> Sequence[Instance]:
        """Return all living instances that carry the tags of this cluster and of nodesmith, whatever their claim."""

    def living(self, instances: Collection[str]) -> Collection[str]:
        """Return which of these instances (by id) live, whoever made them."""

    def notices(self, instances: Collection[str]) -> Sequence[Notice]:
        """Return what EC2's own state tells of these instances (by id).

        Who is gone, going, or to be changed at a date.
        """

    def owned(self, kind: Kind) -> Sequence[Owned]:
        """Return what we made of a kind for this cluster; of volumes and interfaces those attached to nothing.

        Volumes that are to outlive their nodes are left out.
        """

    def remove(self, owned: Owned) -> None:
        """Delete what `owned` gave; gone already is fine. Raises Transient too for what is still in use."""

    def terminate(self, instances: Collection[str]) -> None:
        """Terminate instances by id; one that is gone or going is fine.

        Raises Transient, when all have been tried, for those that EC2 will not end.
        """

    def cluster_info(self) -> ClusterInfo:
        """Describe the cluster that new nodes join."""

    def resolve(self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime) -> NodeClassStatus:
        """Resolve selectors, images and the instance profile (made if need be); what is missing is a condition."""


class Cluster(Protocol):
    """The Kubernetes API server. All calls are idempotent.

    Decisions read the cluster from snapshots. Only what a launch must not take from a snapshot is read from here.
    """

    def nodepools_and_nodeclasses(self) -> Todays:
        """Read all NodePools and EC2NodeClasses, those of older APIs converted: reduced as in a snapshot."""

    def nodeclaim(self, name: str) -> Mapping[str, Any] | None:
        """Read a NodeClaim, reduced as in a snapshot; None where there is none."""

    def apply_nodeclaim(self, manifest: Mapping[str, Any], *, create: bool = True) -> None:
        """Make the NodeClaim object and its status as given. Where it is missing, it is created, or left so."""

    def delete_nodeclaim(self, name: str) -> None:
        """Delete a NodeClaim object and lift our finalizer; gone already is fine."""

    def request_deletion(self, kind: str, name: str, provider_id: str = "") -> None:
        """Begin to delete a NodeClaim or Node object: our finalizer keeps it, and Kubernetes shows it as terminating.

        Gone, or terminating already, is fine. A Node of another provider id is left alone; empty means any.
        """

    def release_node(self, name: str, provider_id: str) -> Sequence[str]:
        """Let go of a Node whose instance we have finished with: it is deleted, and our finalizer lifted.

        Return the finalizers that hold it still; none, and it is gone. A Node of another provider id is left alone, and
        counts as gone; empty means one that has none.
        """

    def register_node(self, name: str, patch: NodePatch) -> bool:
        """Bring a Node in line with its claim in one write; False when it is gone, or its name another's by now."""

    def nominate(self, node: str, pods: Sequence[str]) -> None:
        """Set `status.nominatedNodeName` of pods (namespace/name) to a Node.

        Pods that are gone, bound, or nominated already by whomever are left as they are. Raises Transient when the
        others have been tried.
        """

    def clear_nominations(self, node: str, pods: Sequence[str]) -> None:
        """Clear `status.nominatedNodeName` of pods (namespace/name) where it names this Node.

        Pods that are gone, bound, or not nominated for it are left as they are. Raises Transient when the others have
        been tried.
        """

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Evict pods, as far as their disruption budgets allow; gives what became of each, by `namespace/name`.

        A pod that has ended, or is bound to another node than the one named, is Gone. Raises Transient when the
        others have been tried.
        """

    def delete_pods(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Delete pods whatever their disruption budgets say, by the grace named; answers as `evict` does.

        One that is ending already may have its grace shortened, never prolonged.
        """

    def merge_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Merge into the status of one of Karpenter's objects; gone is fine.

        Conditions are merged by type, and keep their lastTransitionTime while their status is the same.
        """

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Merge annotations into a NodePool's or EC2NodeClass's; gone is fine."""

    def karpenter_runs(self) -> bool:
        """Whether a Karpenter controller of the cluster holds its leader election's lease."""

    def release_nodeclass(self, name: str) -> None:
        """Lift Karpenter's finalizer from an EC2NodeClass that is being deleted; any other is left as it is."""

    def publish(self, events: Sequence[ObjectEvent]) -> None:
        """Publish Events; the same one again moves its time. Raises Transient when the others have been tried."""


class Blobs(Protocol):
    """Objects by key (S3)."""

    def get(self, key: str) -> bytes | None:
        """Read an object, None when there is none."""

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing what was there."""


class Catalogs(Protocol):
    """The catalogue of one region (in S3)."""

    @property
    def region(self) -> str: ...

    def latest(self) -> Catalog:
        """Read it, the embedded one where none is stored. Raises Rejected when there is nothing usable."""

    def write(self, catalog: Catalog) -> None:
        """Store it."""


class Hints(Protocol):
    """The queues that wake a concern (SQS)."""

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Wake a concern, at the earliest after `delay_seconds` (0–900)."""
