"""The pods that need nodes, and the existing nodes with what ending nodes, claims and moves in progress leave of them.

Provisioning decides about these pods. Disruption places them first, so that its moves do not take their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodesmith.decisions.budgets import is_open
from nodesmith.decisions.nomination import preempting_only
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.scheduling.existing import (
    ExistingNode,
    by_age,
    existing_node_of,
    existing_nodes,
    is_closed,
    is_going,
    nominations,
    outside,
    with_cordoned,
    with_zones_cordoned,
)
from nodesmith.decisions.scheduling.pending import provisionable, unserved
from nodesmith.decisions.termination.evictions import kept
from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot, with_default_spreads


def living_claims(inputs: Inputs) -> list[NodeClaim]:
    """Return the claims that have a node or will have one.

    These are all but those that were given up, and those whose node is not ready in a zone that is shifted away.
    """
    away = inputs.ledger.shifted(inputs.now)
    return outside((c for c in inputs.ledger.claims if c.phase is not Phase.GIVEN_UP), away)


def foreseen(inputs: Inputs) -> Snapshot:
    """Return the snapshot as decisions use it.

    Default spreads apply, only nominations of pods that preempt others count, ending nodes are going away, and nodes in
    zones that are shifted away, or of NodePools that their schedule has closed, take no pods.
    """
    claims = living_claims(inputs)
    observed = _with_pools_cordoned(inputs.snapshot, inputs.now)
    observed = with_zones_cordoned(observed, inputs.ledger.shifted(inputs.now))
    seen = with_default_spreads(observed, inputs.settings.default_spreads)
    return without_ending(preempting_only(seen, claims), claims)


def _with_pools_cordoned(snapshot: Snapshot, now: datetime) -> Snapshot:
    pools = parsed_nodepools(snapshot.nodepools)
    closed = {name for name, pool in pools.items() if not is_open(pool, now)}
    return with_cordoned(snapshot, lambda node: node.labels.get(NODEPOOL) in closed) if closed else snapshot


def without_ending(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Snapshot:
    """Return the snapshot with the Nodes of ending claims marked as being deleted, if it does not show that yet."""
    return without(snapshot, {claim.provider_id for claim in claims if claim.is_ending and claim.provider_id})


def without(snapshot: Snapshot, providers: Collection[str]) -> Snapshot:
    """Return the snapshot with the Nodes of these instances marked as being deleted."""
    if not providers:
        return snapshot
    nodes = tuple(replace(n, deleting=True) if n.provider_id in providers else n for n in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def with_sources_closed(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """Return the snapshot with the source Nodes of moves in progress tainted, if it does not show that yet."""
    sources = ledger.sources
    closed = {claim.provider_id for claim in ledger.claims if claim.name in sources and claim.provider_id}
    if not closed:
        return snapshot

    def seen(node: Node) -> Node:
        if node.provider_id not in closed or is_closed(node):
            return node
        return replace(node, taints=(*node.taints, DISRUPTED))

    return replace(snapshot, nodes=tuple(map(seen, snapshot.nodes)))


@dataclass(frozen=True, slots=True)
class Needs:
    """The pods that need a node (`wanted`), and the others without one, with the reason why nothing is bought for them.

    `going` are the Nodes that are going away; their pods are among `wanted`.
    """

    wanted: Sequence[Pod]
    ignored: Sequence[tuple[Pod, str]]
    going: frozenset[str]


def needs(snapshot: Snapshot, inputs: Inputs) -> Needs:
    """Find the pods that need a node. `snapshot` is the one that is `foreseen`."""
    going = frozenset(node.name for node in snapshot.nodes if is_going(node))
    keeps = kept(snapshot, living_claims(inputs), inputs.now)
    cutoff = inputs.settings.expendable_priority_cutoff
    return Needs(*provisionable(snapshot.pods, going, keeps, cutoff), going)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The existing nodes with their `free` capacity, and which pods still need a place.

    `fresh` are the pods to place now. `waiting` are those that wait for the claims that were bought for them, by which
    `nominated` maps pods to claims; their capacity is already taken.
    """

    free: list[ExistingNode]
    fresh: list[Pod] = field(default_factory=list)
    waiting: list[Pod] = field(default_factory=list)
    nominated: Mapping[str, str] = field(default_factory=dict)


def reserved(snapshot: Snapshot, wanted: Sequence[Pod], inputs: Inputs) -> Reserved:
    """Reserve capacity for moves in progress and for pods that claims were bought for, and return what is left."""
    claims = living_claims(inputs)
    free = existing_nodes(snapshot, claims)
    _keep_for_sources(free, snapshot, inputs.ledger)
    if not wanted:
        return Reserved(free)
    nominated = nominations(claims, inputs.now)
    fresh, waiting = unserved(wanted, nominated)
    waiting, outdone = _reserve(waiting, nominated, claims, free, snapshot)
    return Reserved(free, [*fresh, *outdone], waiting, nominated)


def _keep_for_sources(free: Sequence[ExistingNode], snapshot: Snapshot, ledger: Ledger) -> None:
    """Reserve the capacity that moves have bought for the pods that still run on their sources."""
    coming = ledger.replacements
    if not coming:
        return
    staying = {node.name for node in snapshot.nodes if not is_going(node)}
    elsewhere = {pod.key: pod for pod in snapshot.pods if pod.node in staying and not pod.deleting}
    for claim in ledger.claims:
        existing = (
            existing_node_of(claim, free, snapshot) if claim.name in coming and not claim.is_ending else None
        )
        if existing is None:
            continue
        for pod in filter(None, map(elsewhere.get, claim.nominated)):
            if pod.node != existing.name:
                existing.keep(pod.shape)


def _reserve(
    waiting: Iterable[Pod],
    nominated: Mapping[str, str],
    claims: Sequence[NodeClaim],
    free: Sequence[ExistingNode],
    snapshot: Snapshot,
) -> tuple[list[Pod], list[Pod]]:
    """Reserve the capacity that claims were bought with for the pods they were bought for, oldest first.

    Return the pods that still wait, and the pods whose node is initialized but has no capacity left, because
    kube-scheduler does not know about reservations and gave it to others.
    """
    by_name = {claim.name: claim for claim in claims}
    found: dict[str, ExistingNode | None] = {}
    still: list[Pod] = []
    outdone: list[Pod] = []
    for pod in by_age(waiting):
        claim = by_name[nominated[pod.key]]
        if claim.name not in found:
            found[claim.name] = existing_node_of(claim, free, snapshot)
        existing = found[claim.name]
        if existing is not None and not existing.in_flight and not existing.fits(pod.shape, 1):
            outdone.append(pod)
            continue
        if existing is not None:
            existing.take(pod.shape, 1)
        still.append(pod)
    return still, outdone
