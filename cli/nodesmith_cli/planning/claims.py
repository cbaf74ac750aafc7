"""A cluster's NodeClaims in the form of the ledger: existing and in-flight nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.karpenter.nodeclaimobjects import parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith_formats.nodeclaims import with_warm_state

_REACHED = {"Launched": Phase.LAUNCHED, "Registered": Phase.REGISTERED, "Initialized": Phase.INITIALIZED}
"""Conditions in the order in which a NodeClaim reaches them."""


def claims(manifests: Iterable[Mapping[str, Any]], now: datetime) -> tuple[NodeClaim, ...]:
    """Return the NodeClaims of existing and in-flight nodes, sorted by name. Skips those being deleted."""
    return tuple(sorted(_claims(manifests, now), key=lambda claim: claim.name))


def _claims(manifests: Iterable[Mapping[str, Any]], now: datetime) -> Iterator[NodeClaim]:
    for manifest in manifests:
        if is_foreign(manifest):
            continue
        claim = parse_nodeclaim(manifest, now).value
        if claim is None or manifest["metadata"].get("deletionTimestamp"):
            continue
        status: Mapping[str, Any] = manifest.get("status") or {}
        held = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
        phase = next((p for name, p in reversed(_REACHED.items()) if name in held), Phase.PENDING)
        conditions = {c.get("type"): c for c in status.get("conditions") or ()}
        reason = str(conditions.get("Registered", {}).get("reason") or "")
        found = replace(
            claim,
            phase=phase,
            reason=reason if phase is Phase.LAUNCHED else "",
            annotations=FrozenMap(manifest["metadata"].get("annotations")),
            node_name=str(status.get("nodeName") or ""),
            provider_id=str(status.get("providerID") or ""),
            instance_type=claim.labels.get(INSTANCE_TYPE, ""),
            zone=claim.labels.get(ZONE, ""),
            capacity_type=claim.labels.get(CAPACITY_TYPE, ""),
            capacity=parse_resources(status.get("capacity")),
            allocatable=parse_resources(status.get("allocatable")),
        )
        yield with_warm_state(found)
