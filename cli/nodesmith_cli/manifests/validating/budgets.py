"""PodDisruptionBudgets that never allow a disruption, so that their nodes are never drained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from nodesmith.observation.decoding import UNREADABLE
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_cli.planning.manifests import stamped
from nodesmith_formats.manifests.manifests import Document

_REPLICATED = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})


def budget_findings(documents: Sequence[Document]) -> Iterator[Finding]:
    """Check each budget together with the workloads in the files that it covers."""
    for document in documents:
        if document.manifest["kind"] != "PodDisruptionBudget":
            continue
        try:
            yield from _findings(document, documents)
        except UNREADABLE as error:
            yield Finding(document.fault(f"cannot be read: {error}", "spec"))


def _findings(document: Document, documents: Sequence[Document]) -> Iterator[Finding]:
    manifest = stamped(document).manifest
    bare = parse_budget(manifest)
    expected = sum(
        _replicas(workload, bare) for workload in documents if workload.manifest["kind"] in _REPLICATED
    )
    budget = parse_budget({**manifest, "status": {"expectedPods": expected}})
    if not budget.never_allows:
        return
    field = "spec.maxUnavailable" if budget.max_unavailable else "spec.minAvailable"
    amount = budget.max_unavailable or budget.min_available or "missing"
    of = f" of {expected} pods" if expected and not budget.max_unavailable else ""
    message = f"is {amount}{of}: no pod can ever be evicted, so its node is never drained; allow one"
    yield warning(document.fault(message, field))


def _replicas(document: Document, budget: PodDisruptionBudget) -> int:
    """Return how many pods of a workload the budget covers. Raises the exceptions in UNREADABLE."""
    manifest = stamped(document).manifest
    spec: Mapping[str, Any] = manifest.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if manifest["metadata"].get("namespace") != budget.namespace or budget.selector is None:
        return 0
    return int(spec.get("replicas", 1)) if budget.selector.matches(labels) else 0
