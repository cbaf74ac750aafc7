"""What is said of moves and of nodes that stay, as Events with Karpenter's reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nodesmith.decisions.disruption.proposals import BUDGET, Blocker
from nodesmith.model.moves import Move, Reason
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.objectevents import ObjectEvent

_CONSOLIDATION_ONLY = frozenset({"ConsolidateAfter", "Labels", "Policy", "Price", "Static"})
"""Rules that keep a node from consolidation only."""
_UNTOLD = frozenset({"Ending", "Moving", "NoNode", "Nominated", "NotInitialized", "Resting"})
"""Rules that say nothing that does not show anyway, or was said when it began."""


def of_proposal(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Say that nodes may be consolidated, and what for."""
    if move.reason is Reason.DRIFTED:
        return []
    return list(_both(sources, "ConsolidationCandidate", f"proposed: {move.why}"))


def of_approval(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Say that a consolidation was looked at again and stands."""
    if move.reason is Reason.DRIFTED:
        return []
    return list(_both(sources, "ConsolidationApproved", f"it stands: {move.why}"))


def of_launches(move: Move) -> list[ObjectEvent]:
    """Say that a move's replacements are on their way."""
    message = f"launched to replace {', '.join(move.sources)}: {move.reason}"
    return [ObjectEvent("NodeClaim", name, "DisruptionLaunching", message) for name in move.replacements]


def of_waiting(move: Move, names: Iterable[str]) -> list[ObjectEvent]:
    """Say which replacements are waited for."""
    message = f"{', '.join(move.sources)} go on until this is ready"
    return [ObjectEvent("NodeClaim", name, "DisruptionWaitingReadiness", message) for name in names]


def of_ends(move: Move, claims: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Say that nodes are disrupted now."""
    return list(_both(claims, "DisruptionTerminating", f"disrupted: {move.reason}: {move.why}"))


def of_abandoning(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Say why nodes that were to be disrupted stay."""
    reason = "DisruptionBlocked" if move.reason is Reason.DRIFTED else "ConsolidationRejected"
    return list(_both(sources, reason, f"it stays: {move.why}"))


def of_blocked(blocked: Mapping[str, Blocker], claims: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Say why nodes are not disrupted."""
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
