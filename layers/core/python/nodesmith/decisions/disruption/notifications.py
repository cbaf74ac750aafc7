"""Events about moves and about nodes that stay, with Karpenter's reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodesmith.decisions.disruption.proposals import BUDGET, NOT_YET, Blocker, Proposals
from nodesmith.model.karpenter.disruption import BALANCED
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.ledger.moves import Move, Reason

_CONSOLIDATION_ONLY = frozenset({"ConsolidateAfter", "Labels", "Policy", "Price", "Static"})
"""Rules that keep a node from consolidation only."""
_PASSING = frozenset({"Ending", "Moving", "NoNode", "Nominated", "NotInitialized"})
"""Rules that apply only for a moment: they are reported after all others."""
_UNTOLD = frozenset({NOT_YET, "Resting"})
"""Rules without an Event: the condition Consolidatable shows them, or an Event reported them when they began."""


def of_proposal(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Return Events that nodes may be consolidated, with the saving."""
    if move.reason is Reason.DRIFTED:
        return []
    return list(_both(sources, "ConsolidationCandidate", f"proposed: {move.why}"))


def of_approval(move: Move, sources: Iterable[NodeClaim], pools: Mapping[str, NodePool]) -> list[ObjectEvent]:
    """Return Events that a consolidation passed its validation, for nodes of NodePools with the policy Balanced."""
    if move.reason is Reason.DRIFTED:
        return []
    balanced = {name for name, pool in pools.items() if pool.disruption.consolidation_policy == BALANCED}
    weighed = (claim for claim in sources if claim.nodepool in balanced)
    return list(_both(weighed, "ConsolidationApproved", f"validated: {move.why}"))


def of_launches(move: Move) -> list[ObjectEvent]:
    """Return Events that a move's replacements are being launched."""
    message = f"launched to replace {', '.join(move.sources)}: {move.reason}"
    return [ObjectEvent("NodeClaim", name, "DisruptionLaunching", message) for name in move.replacements]


def of_waiting(move: Move, names: Iterable[str]) -> list[ObjectEvent]:
    """Return Events about the replacements that a move waits for."""
    message = f"waiting for this to be ready before disrupting {', '.join(move.sources)}"
    return [ObjectEvent("NodeClaim", name, "DisruptionWaitingReadiness", message) for name in names]


def of_ends(move: Move, claims: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Return Events that nodes are disrupted now."""
    return list(_both(claims, "DisruptionTerminating", f"disrupted: {move.reason}: {move.why}"))


def of_abandoning(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Return Events with the reason why the sources of an abandoned move stay."""
    reason = "DisruptionBlocked" if move.reason is Reason.DRIFTED else "ConsolidationRejected"
    return list(_both(sources, reason, f"it stays: {move.why}"))


def of_staying(found: Proposals, claims: Sequence[NodeClaim]) -> list[ObjectEvent]:
    """Return Events with the reason why nodes stay, those that stay only for a moment last."""
    lasting = {name: one for name, one in found.blocked.items() if one.rule not in _PASSING}
    passing = {name: one for name, one in found.blocked.items() if one.rule in _PASSING}
    needed = [
        event
        for claim in claims
        if claim.name in found.needed
        for event in _both([claim], "Unconsolidatable", found.needed[claim.name])
    ]
    return [*_of_blocked(lasting, claims), *needed, *_of_blocked(passing, claims)]


def _of_blocked(blocked: Mapping[str, Blocker], claims: Iterable[NodeClaim]) -> list[ObjectEvent]:
    found: list[ObjectEvent] = []
    for claim in claims:
        blocker = blocked.get(claim.name)
        if blocker is None or blocker.rule in _UNTOLD:
            continue
        if blocker.rule == BUDGET:
            found.append(ObjectEvent("NodePool", claim.nodepool, "DisruptionBlocked", blocker.message))
        reason = "Unconsolidatable" if blocker.rule in _CONSOLIDATION_ONLY else "DisruptionBlocked"
        found += _both([claim], reason, f"{blocker.message} ({blocker.object})")
    return found


def _both(claims: Iterable[NodeClaim], reason: str, message: str) -> Iterator[ObjectEvent]:
    for claim in claims:
        yield ObjectEvent("NodeClaim", claim.name, reason, message)
        if claim.node_name:
            yield ObjectEvent("Node", claim.node_name, reason, message)
