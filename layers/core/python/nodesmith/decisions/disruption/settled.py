"""Settled: a cluster that has been looked at and has not changed since, of which nothing new is to be learned.

Most passes find nothing to do, and a large cluster takes seconds to look at. So each pass says when it has looked at
each claim, NodePool and EC2NodeClass; while nothing has happened since, the next one ends at once. What no time stands
on (a budget's schedule, a protection that has run out) is noticed when it is looked at again, some minutes later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.model.nodeclaims import Phase

LOOKED_AT_LEAST = timedelta(minutes=5)
"""So often everything is looked at, whether or not it has changed (Karpenter's figure)."""
_COARSE = timedelta(seconds=2)
"""Kubernetes' times are whole seconds, and clocks differ."""


def is_settled(inputs: Inputs, looked_at: Mapping[str, datetime]) -> bool:
    """Tell whether everything was looked at lately, and after the last change."""
    if not looked_at:
        return False
    latest = min(looked_at.values())
    if not inputs.now - LOOKED_AT_LEAST < latest:
        return False
    if any(name not in looked_at for name in marks(inputs)):
        return False
    return all(at + _COARSE < latest for at in _changes(inputs) if at is not None)


def marks(inputs: Inputs) -> Iterator[str]:
    """Name what there is to look at: claims, and NodePools and EC2NodeClasses in each of their generations."""
    for claim in inputs.ledger.claims:
        if claim.phase is not Phase.GIVEN_UP:
            yield claim.name
    for kind, manifests in (
        ("NodePool", inputs.snapshot.nodepools),
        ("EC2NodeClass", inputs.snapshot.nodeclasses),
    ):
        for manifest in manifests:
            metadata: Mapping[str, Any] = manifest.get("metadata") or {}
            yield f"{kind}/{metadata.get('name')}/{metadata.get('generation')}"


def _changes(inputs: Inputs) -> Iterator[datetime | None]:
    """Give the times at which anything is known to have changed."""
    snapshot, ledger = inputs.snapshot, inputs.ledger
    yield inputs.catalog.made_at
    for claim in ledger.claims:
        yield claim.phase_since
        yield claim.drifted_at
    for move in ledger.moves:
        yield move.stage_since
    for node in snapshot.nodes:
        yield node.created_at
        yield node.last_pod_event_at
    for pod in snapshot.pods:
        yield pod.created_at
        yield pod.started_at
