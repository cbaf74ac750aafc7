"""Candidates: the nodes that may be disrupted now, the rule that keeps every other node, and condition Consolidatable.

The rules are Karpenter's. A pod that may not be evicted now (do-not-disrupt, or a PodDisruptionBudget that allows no
eviction) protects its node from all disruption. The exception is drift of a node with a terminationGracePeriod, because
that ends the node in any case.

A node is consolidatable if no pod has come or gone for as long as the NodePool's consolidateAfter. The rule ignores the
consolidation policy: it also holds for nodes that other rules keep. The condition is written when it changes, and
removed when it no longer holds. Nodes of static NodePools are never consolidated.

The snapshot knows the time of the last pod event from the pods themselves, except for pods that have gone: the
forwarder forgets those when it restarts. The time in the NodeClaim (`status.lastPodEventTime`) survives a restart and
comes back with the next snapshot. One write per burst is enough, after the node has become quiet: while pods come and
go, nothing depends on the last of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest
from math import fsum

from nodesmith.decisions.budgets import loop_obstacle, paused
from nodesmith.decisions.disruption.costs import (
    harm_of,
    lost_usd,
    moving,
    overlaid_price,
    saved_by_ending,
    startups,
    unpriced,
)
from nodesmith.decisions.disruption.proposals import NOT_YET, Blocker, without_nodepool
from nodesmith.decisions.provisioning.clusterstate import without_ending
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.scheduling.demands import is_expendable
from nodesmith.decisions.scheduling.existing import is_closed, is_going, nominations
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.decisions.termination.evictions import Allowances, must_go, refuses_disruption
from nodesmith.decisions.termination.waiting import guarded, protected
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, INSTANCE_TYPE, ZONE
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.karpenter.disruption import WHEN_EMPTY
from nodesmith.model.karpenter.nodeclaimobjects import (
    CONSOLIDATABLE,
    ObjectCondition,
    shown_pod_event,
    shown_status,
)
from nodesmith.model.karpenter.nodeclaims import COMING, WARM, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.podannotations import surcharge_of
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.breakers import MOST_IN_VAIN
from nodesmith.model.snapshot import Snapshot

_YOUNG = COMING | WARM


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A node that may be disrupted. `pods` are those that would need another node, `eviction_cost` is their total.

    `lost_usd` is the other cost of moving them: repeated work of Jobs, and slow starts. `held` is a blocker that
    protects the pods for now. If there is a terminationGracePeriod, it blocks everything except drift. `unpriced` is
    the reason why the node's price is unknown, or empty.
    """

    claim: NodeClaim
    node: Node
    pool: NodePool
    pods: tuple[Pod, ...]
    price_hourly_usd: float
    eviction_cost: float
    lost_usd: float = 0.0
    held: Blocker | None = None
    unpriced: str = ""

    @property
    def name(self) -> str:
        """Name of the claim."""
        return self.claim.name


class CandidateSelection:
    """Which nodes of a cluster may be disrupted now, or only the nodes of the claims named in `only`.

    `moving` are the claims that are part of a move already.
    """

    def __init__(
        self, inputs: Inputs, moving: Iterable[str] = (), only: Collection[str] | None = None
    ) -> None:
        self.now, self.catalog = inputs.now, inputs.catalog
        pools = parsed_nodepools(inputs.snapshot.nodepools)
        self.pools = {name: pool for name, pool in pools.items() if inputs.ledger.has_read(pool)}
        self._valid, self._named = pools.keys(), {m["metadata"]["name"] for m in inputs.snapshot.nodepools}
        self.allowances = Allowances(inputs.snapshot.budgets)
        self.candidates: list[Candidate] = []
        self.blocked: dict[str, Blocker] = {}
        self._cutoff = inputs.settings.expendable_priority_cutoff
        self._moving, self._snapshot = frozenset(moving), inputs.snapshot
        self._resting, self._ledger = inputs.ledger.abandoned_by_source, inputs.ledger
        self._begun = inputs.ledger.sources
        self._paused = paused(inputs.ledger, inputs.snapshot, inputs.now)
        self._shifted = inputs.ledger.shifted(inputs.now)
        self._overlays = overlays_of(inputs.snapshot, inputs.catalog, inputs.settings)
        self._saved = saved_by_ending(inputs)
        self._pods, self._startups = by_node(inputs.snapshot.pods), startups(inputs.snapshot.pods)
        self._awaiting, self._booked = _awaiting(inputs), inputs.ledger.booked(inputs.now)
        surcharges = {
            (daemonset.namespace, daemonset.owner): surcharge_of(daemonset)
            for daemonset in inputs.snapshot.daemonsets
        }
        self._surcharges = {key: surcharge for key, surcharge in surcharges.items() if surcharge}
        self._claims = sorted(inputs.ledger.claims, key=lambda claim: claim.name)
        for claim in self._claims:
            if claim.phase is Phase.GIVEN_UP or (only is not None and claim.name not in only):
                continue
            verdict = self._examined(claim, inputs.snapshot.node_of(claim))
            if isinstance(verdict, Blocker):
                self.blocked[claim.name] = verdict
            else:
                self.candidates.append(verdict)

    def blocked_totals(self, policy: str) -> Iterator[tuple[str, float, float]]:
        """Yield NodePool, price and eviction cost of each blocked node that is not ending.

        Only NodePools with this policy count.
        """
        pools = {name for name, pool in self.pools.items() if pool.disruption.consolidation_policy == policy}
        for claim in self._claims if pools else ():
            node = self._snapshot.node_of(claim) if claim.name in self.blocked else None
            if node is not None and claim.nodepool in pools and not claim.is_ending:
                price = self._price(claim, node, self.pools[claim.nodepool])
                yield claim.nodepool, price, harm_of(moving(self._pods.get(node.name, ())))

    def _examined(self, claim: NodeClaim, node: Node | None) -> Candidate | Blocker:
        on = f"NodeClaim/{claim.name}"
        if claim.name in self._moving:
            return Blocker("Moving", on, "it is already part of a move")
        if claim.name in self._resting:
            reason = self._resting[claim.name].message
            return Blocker("Resting", on, f"a move of it was abandoned recently: {reason}")
        if claim.is_ending or (node is not None and (is_going(node) or is_closed(node))):
            return Blocker("Ending", on, "it is already being deleted or disrupted")
        if claim.phase in _YOUNG:
            return Blocker("NotInitialized", on, f"it is not initialized yet: its phase is {claim.phase}")
        if node is None:
            return Blocker("NoNode", on, "it has no Node")
        if claim.name in self._awaiting or node.name in self._awaiting:
            return Blocker(
                "Nominated",
                f"Node/{node.name}",
                "pods that have no node yet, or whose node is terminating, are nominated for it",
            )
        if node.annotations.get(DO_NOT_DISRUPT) == "true":
            return Blocker("DoNotDisrupt", f"Node/{node.name}", f"it is annotated {DO_NOT_DISRUPT}=true")
        if claim.zone in self._shifted or self._paused is not None or claim.name in self._booked:
            return self._suspended(claim)
        pool = self.pools.get(claim.nodepool)
        if pool is None:
            return without_nodepool(claim, self._valid, self._named)
        return self._candidate(claim, node, pool)

    def _suspended(self, claim: NodeClaim) -> Blocker:
        shift, on = self._shifted.get(claim.zone), f"NodeClaim/{claim.name}"
        if claim.name in self._booked:
            return Blocker("Booked", on, "room on its node is kept for a ProvisioningRequest")
        return Blocker("ZonalShift", on, str(shift)) if shift else Blocker("Paused", on, str(self._paused))

    def _candidate(self, claim: NodeClaim, node: Node, pool: NodePool) -> Candidate | Blocker:
        pods_there = self._pods.get(node.name, ())
        all_pods = [pod for pod in pods_there if not is_expendable(pod.shape, self._cutoff)]
        blocker = holder(all_pods, self.allowances, self.now)
        if blocker is not None and claim.termination_grace_period is None:
            return blocker
        pods = moving(all_pods)
        may_loop = (pods or claim.removals_before >= MOST_IN_VAIN) and claim.name not in self._begun
        if may_loop and (obstacle := loop_obstacle(claim, self._ledger, self.now)):
            return Blocker("Loop", f"NodePool/{pool.name}", obstacle)
        price = self._price(claim, node, pool)
        loss = lost_usd(pods, node, price, self.now, self._startups)
        unknown = unpriced(claim, node, self.catalog)
        return Candidate(claim, node, pool, pods, price, harm_of(pods), loss, blocker, unknown)

    def _price(self, claim: NodeClaim, node: Node, pool: NodePool) -> float:
        price = overlaid_price(claim, node, self.catalog, self._overlays, pool)
        price = min(price, self._saved.get(claim.name, price))
        return price + pool.node_surcharge_hourly_usd + self._surcharge_of_daemons(node)

    def _surcharge_of_daemons(self, node: Node) -> float:
        if not self._surcharges:
            return 0.0
        running = {(pod.shape.namespace, pod.shape.owner) for pod in self._pods.get(node.name, ())}
        return fsum(surcharge for key, surcharge in self._surcharges.items() if key in running)


def by_node(pods: Iterable[Pod]) -> Mapping[str, list[Pod]]:
    """Return the pods of every node, by the node's name."""
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node:
            pods_by_node.setdefault(pod.node, []).append(pod)
    return pods_by_node


def holder(pods: Iterable[Pod], allowances: Allowances, now: datetime) -> Blocker | None:
    """Return the rule that keeps a node's pods where they are now; None if all of them may be evicted in turn.

    Any pod can carry do-not-disrupt, including DaemonSet and static pods. PodDisruptionBudgets apply to the pods that
    would be evicted; those that never allow an eviction are reported first.
    """
    active = [pod for pod in pods if not pod.deleting]
    refusing = sorted((pod for pod in active if refuses_disruption(pod, now)), key=lambda pod: pod.key)
    waiting = protected(refusing, now, now) if refusing else None
    if waiting is not None:
        return Blocker("DoNotDisrupt", waiting.on, waiting.message)
    if not allowances.are_limited:
        return None
    shared = _shared_claim(active, allowances)
    if shared is not None:
        return shared
    unevictable = [pod for pod in active if not allowances.permits(pod) and must_go(pod.shape)]
    first = min(unevictable, key=lambda pod: (not allowances.never_allow(pod), pod.key), default=None)
    if first is not None:
        waiting = guarded([first], Allowances(allowances.guards(first.shape)), now)
        if waiting is not None:
            return Blocker(waiting.reason, waiting.on, waiting.message)
    return None


def _shared_claim(pods: Iterable[Pod], allowances: Allowances) -> Blocker | None:
    """Return the first ResourceClaim that several pods of a node share, one of them with a PodDisruptionBudget.

    Its devices stay allocated until the last of these pods is gone, so the successor of the first cannot start, and the
    budget does not let the others go before it has.
    """
    users: dict[str, list[Pod]] = {}
    for pod in pods:
        for claim in pod.shape.claims:
            if claim.key:
                users.setdefault(claim.key, []).append(pod)
    for key, sharers in sorted(users.items()):
        if len(sharers) > 1 and any(allowances.guards(pod.shape) for pod in sharers):
            reason = "share its devices, and a PodDisruptionBudget keeps them from leaving at once"
            message = f"{len(sharers)} pods {reason}"
            return Blocker("SharedResourceClaim", f"ResourceClaim/{key}", message)
    return None


def consolidation_blocker(candidate: Candidate, now: datetime) -> Blocker | None:
    """Return what keeps a candidate from consolidation, whether it is empty or not; None if nothing does."""
    pool, node = candidate.pool, candidate.node
    on = f"NodePool/{pool.name}"
    if candidate.held is not None:
        return candidate.held
    if pool.is_static:
        return Blocker("Static", on, "its NodePool has spec.replicas and keeps that number of nodes")
    after = pool.disruption.consolidate_after_seconds
    if after is None:
        return Blocker("ConsolidateAfter", on, "its NodePool has consolidateAfter: Never")
    if candidate.pods:
        missing = [key for key in (INSTANCE_TYPE, CAPACITY_TYPE, ZONE) if not node.labels.get(key)]
        if missing:
            return Blocker("Labels", f"Node/{node.name}", f"it has no label {missing[0]}")
        if pool.disruption.consolidation_policy == WHEN_EMPTY:
            return Blocker("Policy", on, "its NodePool consolidates empty nodes only, and it has pods")
        if candidate.unpriced:
            message = f"{candidate.unpriced}: whether it can be replaced for less is unknown"
            return Blocker("Price", f"Node/{node.name}", message)
    at = quiet_since(candidate.claim, node) + timedelta(seconds=after)
    if now < at:
        message = f"pods came or went less than consolidateAfter {pool.disruption.consolidate_after} ago"
        return Blocker(NOT_YET, on, f"{message}: it may be consolidated from {at:%H:%M:%S} UTC")
    return None


def quiet_since(claim: NodeClaim, node: Node) -> datetime:
    """Return when a pod last came to a node or left it, or when the node was initialized if that is later."""
    moments = node.last_pod_event_at, claim.initialized_at
    return max((at for at in moments if at is not None), default=claim.phase_since)


def is_settling(claim: NodeClaim, node: Node, pool: NodePool | None, now: datetime) -> bool:
    """Return whether a node's pods have come or gone within consolidateAfter.

    Such a node takes no pods of disrupted nodes.
    """
    after = pool.disruption.consolidate_after_seconds if pool is not None else None
    if not after or pool is None or pool.is_static:
        return False
    return now < quiet_since(claim, node) + timedelta(seconds=after)


def _awaiting(inputs: Inputs) -> frozenset[str]:
    """Return the names of claims and Nodes that pods without a node, or on a node that ends, are nominated for."""
    snapshot: Snapshot = inputs.snapshot
    nominated = nominations(inputs.ledger.claims, inputs.now)
    leaving = {node.name for node in without_ending(snapshot, inputs.ledger.claims).nodes if is_going(node)}
    displaced = [pod for pod in snapshot.pods if (pod.node in leaving if pod.node else not pod.deleting)]
    claims = {nominated[pod.key] for pod in displaced if pod.key in nominated}
    return frozenset(claims | {pod.nominated_node for pod in displaced if pod.nominated_node})


MOST_AT_ONCE = 50
"""The most NodeClaims written in one run; the oldest changes among the others come first in the next."""
QUIET = timedelta(seconds=10)
"""A node's last pod event is written after this time without another one; Karpenter writes no more often either."""
MOST_STAMPS_AT_ONCE = 50
"""The most NodeClaims in one run; the others follow in the next."""


@dataclass(frozen=True, slots=True)
class Consolidatable:
    """The conditions to write by NodeClaim, oldest first, and the next moment at which one changes.

    `left` is the number of due conditions that must wait for the next pass.
    """

    due: Mapping[str, ObjectCondition]
    next_at: datetime | None
    left: int = 0


def consolidatable(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    now: datetime,
    most: int = MOST_AT_ONCE,
) -> Consolidatable:
    """Compare the conditions that NodeClaims show with what holds now; return at most `most` conditions to write.

    NodeClaims without a valid NodePool stay as they are.
    """
    due: list[tuple[datetime, str, ObjectCondition]] = []
    coming: list[datetime] = []
    for claim, at, current in _states(claims, snapshot, pools):
        if at is not None and at > now:
            coming.append(at)
        holds = at is not None and at <= now
        since = at if at is not None and holds else now
        if current != ("True" if holds else ""):
            due.append(
                (since, claim.name, ObjectCondition(CONSOLIDATABLE, str(holds), since, CONSOLIDATABLE, ""))
            )
    chosen = nsmallest(most, due, key=lambda entry: entry[:2])
    conditions = {name: condition for _, name, condition in chosen}
    return Consolidatable(conditions, min(coming, default=None), len(due) - len(chosen))


def next_consolidatable_change(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> datetime | None:
    """Return the first moment after `now` at which a node becomes consolidatable, None if none ever does."""
    return first_after(now, (at for _, at, _ in _states(claims, snapshot, pools)))


def _states(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool]
) -> Iterator[tuple[NodeClaim, datetime | None, str]]:
    """Yield initialized claims, each with when it is consolidatable (None for never) and the status that it shows."""
    manifests = snapshot.shown_nodeclaims()
    for claim in claims:
        pool, manifest = pools.get(claim.nodepool), manifests.get(claim.name)
        if claim.phase is not Phase.INITIALIZED or pool is None or manifest is None:
            continue
        if (node := snapshot.node_of(claim)) is None:
            continue
        after = None if pool.is_static else pool.disruption.consolidate_after_seconds
        at = None if after is None else quiet_since(claim, node) + timedelta(seconds=after)
        yield claim, at, shown_status(manifest, CONSOLIDATABLE)


def to_stamp(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """Return the times that must be written, by NodeClaim; nodes that have been quiet the longest come first."""
    manifests = snapshot.shown_nodeclaims()
    due: list[tuple[datetime, str]] = []
    for claim in claims:
        node, manifest = snapshot.node_of(claim), manifests.get(claim.name)
        at = node.last_pod_event_at if node is not None else None
        if at is None or manifest is None or claim.is_ending or now - at < QUIET:
            continue
        written = shown_pod_event(manifest)
        if written is None or at > written:
            due.append((at, claim.name))
    return {name: at for at, name in nsmallest(MOST_STAMPS_AT_ONCE, due)}
