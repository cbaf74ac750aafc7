"""The next steps of all claims in their order, the claims whose instances must be checked, and the Nodes that are held.

A new Node is held for its DaemonSets' pods until they are bound, if its NodePool requests it. kube-scheduler guarantees
no order: other pods may fill a node first, and a DaemonSet's pod then stays pending or preempts them. A held Node is
cordoned. The pods of every DaemonSet tolerate that, by tolerations that Kubernetes adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.disruption import expiration
from nodesmith.decisions.disruption.candidates import next_consolidatable_change
from nodesmith.decisions.lifecycle.stages import (
    check,
    end,
    initialize,
    initialize_again,
    is_unmarked,
    lacks_registration_label,
    register,
)
from nodesmith.decisions.lifecycle.warmcapacity import CHECKED, prepare, warm_step
from nodesmith.decisions.provisioning.nodeclaims import unclaimed
from nodesmith.decisions.scheduling.existing import awaited_daemons, to_clear, to_nominate
from nodesmith.decisions.termination.evictions import protected_until
from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.commands import (
    ClearNominations,
    Command,
    Dismiss,
    End,
    Forget,
    Nominate,
    Open,
    Register,
    Show,
)
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaimobjects import CONSISTENT, DELETED, conditions_of, marks_of
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim, Phase, tags_due
from nodesmith.model.karpenter.nodepools import DEFAULTS, NodePool, Options, parsed_nodepools
from nodesmith.model.karpenter.ownership import owner_uid
from nodesmith.model.kubernetes.devices import REQUESTED_DRIVERS
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Manifest, Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

INSTANCE_CHECK_AFTER = timedelta(minutes=1)
"""The age from which the instance of a claim without a Node is checked."""
_UNDER_WAY = frozenset({Phase.LAUNCHED, Phase.WARMING, Phase.STOPPING, Phase.STARTING, Phase.GIVEN_UP})
REPAIRED_AT_ONCE = 500
"""The most Nodes in service that one look repairs: after an upgrade, all of them may lack something."""


def to_name(claims: Iterable[NodeClaim], snapshot: Snapshot) -> list[str]:
    """Return the names of the claims that have a Node but whose private DNS name is not known yet."""
    return sorted(claim.name for claim in claims if _is_unnamed(claim) and snapshot.nodes_of(claim))


def _is_unnamed(claim: NodeClaim) -> bool:
    """Return whether the private DNS name that identifies a claim's Node is still unknown."""
    return claim.phase is Phase.LAUNCHED and not claim.private_dns_name


def to_check(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> list[str]:
    """Return the names of the claims whose Node should exist, or did, so that EC2 is asked for their instance."""
    return sorted(
        claim.name
        for claim in claims
        if claim.phase in CHECKED
        or (
            claim.phase in HOLDING
            and (_is_unnamed(claim) or not snapshot.nodes_of(claim))
            and now - claim.phase_since >= INSTANCE_CHECK_AFTER
        )
    )


def next_steps(
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    instances: Mapping[str, tuple[Instance, ...]],
    checked: Iterable[str],
    now: datetime,
) -> list[Command]:
    """Return the commands to carry out, in order. Claims that are as they should be need none.

    First come the nominations of all claims, then the opening of Nodes to all pods: kube-scheduler would otherwise put
    nominated pods onto any open Node. After that comes the next step of each claim, by claim name. `instances` are
    those found for the claims in `checked`.
    """
    manifests = snapshot.shown_nodeclaims()
    looked_at = frozenset(checked)
    owners = {owner_uid(manifest) for manifest in snapshot.nodepools}
    unaware, misled = to_nominate(claims, snapshot.pods, now), to_clear(claims, snapshot, now)
    pools, held_for = parsed_nodepools(snapshot.nodepools), awaited(claims, snapshot, now)
    nominations: list[Command] = []
    openings: list[Command] = []
    mended: list[Command] = []
    commands: list[Command] = []
    for stored in sorted(claims, key=lambda c: c.name):
        claim = _owned(stored, owners, manifests)
        if claim.name in misled:
            nominations.append(ClearNominations(claim, claim.node_name, misled[claim.name]))
        own_instances = instances.get(claim.name, ())
        dead = claim.name in looked_at and not any(i.is_alive for i in own_instances)
        claim = _with_dns_name(claim, own_instances)
        nodes = () if dead and _is_unnamed(claim) else snapshot.nodes_of(claim)
        ending = end(claim, own_instances, now) if dead else None
        present = claim.name in manifests
        if _was_withdrawn(claim, present, snapshot):
            commands.append(End(claim.terminating(DELETED, "its NodeClaim has been deleted", now)))
            continue
        pool, daemonsets = pools.get(claim.nodepool), held_for.get(claim.name, ())
        options = pool.options if pool else DEFAULTS
        drivers = _unpublished(claim, nodes, snapshot)
        command = _next_step(
            claim,
            nodes,
            snapshot.impostors_of(claim),
            ending,
            own_instances,
            snapshot,
            options,
            daemonsets,
            now,
            drivers,
        )
        if isinstance(command, Forget) and claim.is_by_hand and present:
            command = Dismiss(claim)
        joined = len(nodes) == 1 and claim.node_name in {"", nodes[0].name}
        if joined and claim.name in unaware and not _stays_closed(claim, command):
            nominations.append(Nominate(claim, nodes[0].name, unaware[claim.name]))
        opening = _opening(claim, nodes, command)
        if opening is not None:
            openings.append(opening)
        elif is_unmarked(claim, nodes, manifests.get(claim.name)):
            mended.append(Open(claim, nodes[0].name))
        if command is None and _is_stale(claim, manifests.get(claim.name)) and not _is_last(claim, manifests):
            command = Show(claim)
        if command is not None:
            commands.append(command)
    return nominations + openings + mended[:REPAIRED_AT_ONCE] + commands


def _unpublished(claim: NodeClaim, nodes: Sequence[Node], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the drivers that have not published the devices of a claim's Node yet.

    A snapshot has no devices while no pod claims any: then nothing waits for them.
    """
    drivers = claim.annotations.get(REQUESTED_DRIVERS)
    if not drivers or snapshot.devices is None or len(nodes) != 1:
        return ()
    return tuple(sorted({*drivers.split(",")} - snapshot.devices.published(nodes[0].name)))


def _opening(claim: NodeClaim, nodes: Sequence[Node], command: Command | None) -> Open | None:
    """Return the command that opens a Node to pods if it registers, or if its kubelet has created it again."""
    if isinstance(command, Register):
        return Open(replace(claim, held_until=command.claim.held_until), nodes[0].name)
    return Open(claim, nodes[0].name) if lacks_registration_label(claim, nodes) else None


def _owned(claim: NodeClaim, owners: set[str], manifests: Mapping[str, object]) -> NodeClaim:
    """Return the claim without its owner if its NodePool is gone.

    Kubernetes deletes an object with a missing owner at once. That is right for a claim that the cluster has never
    shown: it would have been deleted with its NodePool. Any other claim has been deleted already, or must stay
    (`kubectl delete --cascade=orphan`).
    """
    keep = claim.nodepool_uid in owners or claim.name not in manifests
    return claim if keep else replace(claim, nodepool_uid="")


def _was_withdrawn(claim: NodeClaim, present: bool, snapshot: Snapshot) -> bool:
    """Return whether a user has deleted the object before it had nodesmith's finalizer, so that the claim must end."""
    if not claim.is_by_hand or present or claim.is_ending or claim.phase is Phase.GIVEN_UP:
        return False
    return snapshot.taken_at > claim.created_at


def _with_dns_name(claim: NodeClaim, instances: Sequence[Instance]) -> NodeClaim:
    """Return the claim with its instance's private DNS name, if EC2 returned it and it was unknown."""
    name = next((i.private_dns_name for i in instances if i.id == claim.instance_id), "")
    return replace(claim, private_dns_name=name) if name and _is_unnamed(claim) else claim


def _stays_closed(claim: NodeClaim, command: Command | None) -> bool:
    """Return whether the Node is still held after this run, so that nominated pods would fail to schedule."""
    return is_held(command.claim if command is not None else claim)


def _next_step(
    claim: NodeClaim,
    nodes: Sequence[Node],
    impostors: Sequence[Node],
    ending: Command | None,
    instances: Sequence[Instance],
    snapshot: Snapshot,
    options: Options,
    daemonsets: Sequence[str],
    now: datetime,
    drivers: Sequence[str],
) -> Command | None:
    match claim.phase:
        case Phase.WARMING | Phase.STOPPING | Phase.STOPPED:
            return ending or warm_step(claim, nodes, instances, snapshot, options, now)
        case Phase.LAUNCHED if claim.is_warm and nodes:
            return prepare(claim, nodes, now)
        case Phase.LAUNCHED | Phase.STARTING:
            return ending if ending and not nodes else register(claim, nodes, impostors, options, now)
        case Phase.REGISTERED:
            return ending or initialize(claim, nodes, daemonsets, now, drivers)
        case Phase.INITIALIZED if len(nodes) == 1:
            return ending or initialize_again(claim, nodes[0]) or check(claim, nodes[0])
        case Phase.INITIALIZED:
            return ending
        case Phase.GIVEN_UP:
            return Forget(claim)
        case Phase.PENDING:
            return None
        case Phase.TERMINATING | Phase.DRAINED | Phase.DETACHED | Phase.TERMINATED:
            return None  # termination handles these


def _is_last(claim: NodeClaim, manifests: Mapping[str, object]) -> bool:
    """Return whether a claim is ending and its object is gone, so that it need not be shown again."""
    return claim.is_ending and claim.name not in manifests


def _is_stale(claim: NodeClaim, manifest: Manifest | None) -> bool:
    """Return whether the NodeClaim object differs from the ledger, or lacks its labels or finalizer."""
    if manifest is None:
        return True
    metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
    own_conditions, shown_conditions = list(conditions_of(claim)), _conditions(status)
    holding = {
        condition.type: (condition.status, condition.reason)
        for condition in own_conditions
        if not condition.is_over
    }
    # Older versions did not write it, and it is added with the next write.
    if CONSISTENT not in shown_conditions:
        holding.pop(CONSISTENT, None)
    if not holding.items() <= shown_conditions.items():  # other controllers may write further conditions
        return True
    if any(condition.is_over and condition.type in shown_conditions for condition in own_conditions):
        return True
    if (status.get("providerID") or "") != claim.provider_id:
        return True
    if not marks_of(claim).items() <= (metadata.get("labels") or {}).items():
        return True
    return not metadata.get("deletionTimestamp") and TERMINATION_FINALIZER not in (
        metadata.get("finalizers") or ()
    )


def _conditions(status: Manifest) -> dict[str, tuple[str, str]]:
    return {
        str(c.get("type")): (str(c.get("status")), str(c.get("reason")))
        for c in status.get("conditions") or ()
        if isinstance(c, Mapping)
    }


def is_held(claim: NodeClaim) -> bool:
    """Return whether a claim's Node is cordoned for its DaemonSets. Initialization ends that."""
    return claim.phase is Phase.REGISTERED and claim.held_until is not None


def awaited(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> dict[str, tuple[str, ...]]:
    """Return the DaemonSets (namespace/name) whose pods held Nodes wait for, by claim name; none after `held_until`."""
    held_claims = {
        c.node_name: c for c in claims if is_held(c) and c.held_until is not None and now < c.held_until
    }
    if not held_claims:
        return {}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node in held_claims:
            pods.setdefault(pod.node, []).append(pod)
    daemonsets_by_claim: dict[str, tuple[str, ...]] = {}
    for node in snapshot.nodes:
        claim = held_claims.get(node.name)
        if claim is not None and node.provider_id == claim.provider_id:
            missing = awaited_daemons(node, claim, pods.get(node.name, ()), snapshot.daemonsets)
            names = {f"{daemonset.namespace}/{daemonset.owner.partition('/')[2]}" for daemonset in missing}
            daemonsets_by_claim[claim.name] = tuple(sorted(names))
    return daemonsets_by_claim


def next_change(
    ledger: Ledger, snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> datetime | None:
    """Return when time alone gives lifecycle something to do; None for never.

    That is `now` while a claim depends on EC2 or on time alone. Other moments are those at which nodes may expire or
    become consolidatable, and at which the protection of pods ends. `pools` are the valid NodePools by name.
    """
    if unclaimed(snapshot, ledger.claims) or any(_is_under_way(claim, snapshot) for claim in ledger.claims):
        return now
    node_names = {claim.node_name for claim in ledger.claims if claim.node_name}
    moments = [
        expiration.next_change(ledger, snapshot, pools, now),
        next_consolidatable_change(ledger.claims, snapshot, pools, now),
        *(protected_until(pod) for pod in snapshot.pods if pod.node in node_names),
    ]
    return first_after(now, moments)


def _is_under_way(claim: NodeClaim, snapshot: Snapshot) -> bool:
    if claim.phase in _UNDER_WAY or is_held(claim):
        return True
    if claim.instance_id and tags_due(claim):
        return True
    return claim.phase in {Phase.REGISTERED, Phase.INITIALIZED} and not snapshot.nodes_of(claim)
