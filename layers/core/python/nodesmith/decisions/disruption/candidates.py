"""Candidates: the nodes that may be disrupted now, and for every other the one rule that keeps it.

Rules are Karpenter's. What nobody may evict now (do-not-disrupt, a PodDisruptionBudget that allows none) keeps a node
from all disruption, but not from drift where its NodePool's terminationGracePeriod ends it in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.disruption.costs import harm_of, lost_usd, moving, price_of, startups, unpriced
from nodesmith.decisions.disruption.proposals import NOT_YET, Blocker
from nodesmith.decisions.provisioning.decide import Inputs, without_ending
from nodesmith.decisions.scheduling.nodes.existing import is_closed, is_going, nominations
from nodesmith.decisions.termination.draining import must_go
from nodesmith.decisions.termination.protection import Allowances, refuses_disruption
from nodesmith.decisions.termination.waiting import guarded, protected
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, INSTANCE_TYPE, ZONE
from nodesmith.model.karpenter.disruption import WHEN_EMPTY
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot

_YOUNG = frozenset({Phase.PENDING, Phase.LAUNCHED, Phase.REGISTERED})


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A node that may be disrupted. `pods` are those that would need another node, `harm` what evicting them costs.

    `lost_usd` is what moving them costs beside that, where they begin anew, or are slow to be at work.
    `held` is a rule that keeps its pods where they are, though not for ever: it may be drifted away, no more.
    `unpriced` is why nobody knows what it costs; empty where it is known.
    """

    claim: NodeClaim
    node: Node
    pool: NodePool
    pods: tuple[Pod, ...]
    price_hourly_usd: float
    harm: float
    lost_usd: float = 0.0
    held: Blocker | None = None
    unpriced: str = ""

    @property
    def name(self) -> str:
        """The claim's."""
        return self.claim.name


class Survey:
    """One look at which nodes of a cluster may be disrupted, or at `only` some claims' of them.

    `moving` are claims that some move has already.
    """

    def __init__(
        self, inputs: Inputs, moving: Iterable[str] = (), only: Collection[str] | None = None
    ) -> None:
        self.now, self.catalog = inputs.now, inputs.catalog
        pools = parsed_nodepools(inputs.snapshot.nodepools)
        self.pools = {name: pool for name, pool in pools.items() if inputs.ledger.has_read(pool)}
        self.allowances = Allowances(inputs.snapshot.budgets)
        self.candidates: list[Candidate] = []
        self.blocked: dict[str, Blocker] = {}
        self._moving, self._snapshot = frozenset(moving), inputs.snapshot
        self._resting, self._paused = inputs.ledger.resting, inputs.ledger.paused
        self._pods, self._startups = by_node(inputs.snapshot.pods), startups(inputs.snapshot.pods)
        self._awaiting = _awaiting(inputs)
        self._claims = sorted(inputs.ledger.claims, key=lambda claim: claim.name)
        for claim in self._claims:
            if claim.phase is Phase.GIVEN_UP or (only is not None and claim.name not in only):
                continue
            found = self._look(claim, inputs.snapshot.node_of(claim))
            if isinstance(found, Blocker):
                self.blocked[claim.name] = found
            else:
                self.candidates.append(found)

    def kept(self, policy: str) -> Iterator[tuple[str, float, float]]:
        """Yield NodePool, price and harm of each node that is no candidate, nor ends, where NodePools have a policy."""
        pools = {name for name, pool in self.pools.items() if pool.disruption.consolidation_policy == policy}
        for claim in self._claims if pools else ():
            node = self._snapshot.node_of(claim) if claim.name in self.blocked else None
            if node is not None and claim.nodepool in pools and not claim.is_ending:
                price = (
                    price_of(claim, node, self.catalog) + self.pools[claim.nodepool].node_surcharge_hourly_usd
                )
                yield claim.nodepool, price, harm_of(moving(self._pods.get(node.name, ())))

    def _look(self, claim: NodeClaim, node: Node | None) -> Candidate | Blocker:
        on = f"NodeClaim/{claim.name}"
        if claim.name in self._moving:
            return Blocker("Moving", on, "it is part of a move already")
        if claim.name in self._resting:
            why = self._resting[claim.name].why
            return Blocker("Resting", on, f"a move of it was abandoned a little while ago: {why}")
        if claim.is_ending or (node is not None and (is_going(node) or is_closed(node))):
            return Blocker("Ending", on, "it is being deleted or disrupted already")
        if claim.phase in _YOUNG:
            return Blocker("NotInitialized", on, f"it is not initialized yet: it is {claim.phase}")
        if node is None:
            return Blocker("NoNode", on, "it has no Node")
        if claim.name in self._awaiting or node.name in self._awaiting:
            return Blocker(
                "Nominated",
                f"Node/{node.name}",
                "pods that have no node yet, or whose node ends, are to come to it",
            )
        if node.annotations.get(DO_NOT_DISRUPT) == "true":
            return Blocker("DoNotDisrupt", f"Node/{node.name}", f"it is annotated {DO_NOT_DISRUPT}=true")
        if self._paused is not None:
            return Blocker("Paused", on, str(self._paused))
        pool = self.pools.get(claim.nodepool)
        if pool is None:
            message = f"its NodePool {claim.nodepool!r} is not there, or readiness has yet to read it"
            return Blocker("NodePool", f"NodePool/{claim.nodepool}", message)
        return self._candidate(claim, node, pool)

    def _candidate(self, claim: NodeClaim, node: Node, pool: NodePool) -> Candidate | Blocker:
        all_pods = self._pods.get(node.name, ())
        held = holder(all_pods, self.allowances, self.now)
        if held is not None and claim.termination_grace_period is None:
            return held
        pods = moving(all_pods)
        surcharge = pool.node_surcharge_hourly_usd
        price = price_of(claim, node, self.catalog) + surcharge
        lost = lost_usd(pods, node, price, self.now, self._startups)
        unknown = unpriced(claim, node, self.catalog)
        return Candidate(claim, node, pool, pods, price, harm_of(pods), lost, held, unknown)


def by_node(pods: Iterable[Pod]) -> Mapping[str, list[Pod]]:
    """Return the pods of every node, by its name."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node:
            found.setdefault(pod.node, []).append(pod)
    return found


def holder(pods: Iterable[Pod], allowances: Allowances, now: datetime) -> Blocker | None:
    """Return the rule that keeps a node's pods where they are now; None where all may be evicted, one after the other.

    Any pod may ask for it, a DaemonSet's and a static one, too; budgets count for those that would be evicted, and
    first those that never allow it.
    """
    active = [pod for pod in pods if not pod.deleting]
    asking = sorted((pod for pod in active if refuses_disruption(pod, now)), key=lambda pod: pod.key)
    waiting = protected(asking, now, now) if asking else None
    if waiting is not None:
        return Blocker("DoNotDisrupt", waiting.on, waiting.message)
    if not allowances.are_limited:
        return None
    kept = [pod for pod in active if must_go(pod.shape) and not allowances.permits(pod)]
    first = min(kept, key=lambda pod: (not allowances.are_unschedulable(pod), pod.key), default=None)
    if first is not None:
        waiting = guarded([first], Allowances(allowances.guards(first.shape)), now)
        if waiting is not None:
            return Blocker(waiting.reason, waiting.on, waiting.message)
    return None


def consolidation_blocker(candidate: Candidate, now: datetime) -> Blocker | None:
    """Return what keeps a candidate from being consolidated, be it empty or not; None where nothing does."""
    pool, node = candidate.pool, candidate.node
    on = f"NodePool/{pool.name}"
    if candidate.held is not None:
        return candidate.held
    if pool.is_static:
        return Blocker("Static", on, "its NodePool has spec.replicas: it keeps as many nodes as that says")
    after = pool.disruption.consolidate_after_seconds
    if after is None:
        return Blocker("ConsolidateAfter", on, "its NodePool has consolidateAfter: Never")
    if candidate.pods:
        missing = [key for key in (INSTANCE_TYPE, CAPACITY_TYPE, ZONE) if not node.labels.get(key)]
        if missing:
            return Blocker("Labels", f"Node/{node.name}", f"it has no label {missing[0]}")
        if pool.disruption.consolidation_policy == WHEN_EMPTY:
            return Blocker("Policy", on, "its NodePool lets go of empty nodes only, and it has pods")
        if candidate.unpriced:
            message = f"{candidate.unpriced}: whether it can be had for less is not known"
            return Blocker("Price", f"Node/{node.name}", message)
    at = quiet_since(candidate.claim, node) + timedelta(seconds=after)
    if now < at:
        message = f"pods came or went less than consolidateAfter {pool.disruption.consolidate_after} ago"
        return Blocker(NOT_YET, on, f"{message}: it may be consolidated from {at:%H:%M:%S} UTC on")
    return None


def quiet_since(claim: NodeClaim, node: Node) -> datetime:
    """Return when a pod last came to a node or went, or when it was ready for the first."""
    moments = node.last_pod_event_at, claim.initialized_at
    return max((at for at in moments if at is not None), default=claim.phase_since)


def is_settling(claim: NodeClaim, node: Node, pool: NodePool | None, now: datetime) -> bool:
    """Return whether a node's pods have lately come or gone, so that it is no destination for those of others."""
    after = pool.disruption.consolidate_after_seconds if pool is not None else None
    if not after or pool is None or pool.is_static:
        return False
    return now < quiet_since(claim, node) + timedelta(seconds=after)


def _awaiting(inputs: Inputs) -> frozenset[str]:
    """Name the claims bought for pods that have no node, or whose node ends, and the Nodes such are nominated for."""
    snapshot: Snapshot = inputs.snapshot
    bought = nominations(inputs.ledger.claims, inputs.now)
    going = {node.name for node in without_ending(snapshot, inputs.ledger.claims).nodes if is_going(node)}
    displaced = [pod for pod in snapshot.pods if (pod.node in going if pod.node else not pod.deleting)]
    claims = {bought[pod.key] for pod in displaced if pod.key in bought}
    return frozenset(claims | {pod.nominated_node for pod in displaced if pod.nominated_node})
