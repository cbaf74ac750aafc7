"""Findings about other software in a cluster, and what to do about it. Pure functions of a survey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from nodesmith.model.karpenter.ownership import nodeclass_group, server_of
from nodesmith_cli.sharing.ownership import AUTO_MODE_CRD, LEASE_HELD, SHARED_CRDS, ClusterOwnership, Manifest
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.wording import some

WHOLE, WITHOUT_SHARED_CRDS = "forwarder/", "overlays/shared-crds/"


class Severity(StrEnum):
    """What a finding requires: nothing, attention, or a change before nodesmith can serve the cluster."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `check` is its machine-readable name. `remedy` is empty if there is nothing to do."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""


def overlay(ownership: ClusterOwnership) -> str:
    """Return the folder for `kubectl apply -k` that does not change the CRDs of other software."""
    return WITHOUT_SHARED_CRDS if ownership.has_foreign_crds else WHOLE


def findings(ownership: ClusterOwnership) -> list[Finding]:
    """Return all findings, the most severe first."""
    found = [
        *_controllers(ownership),
        *_nodeclaims(ownership),
        *_definitions(ownership),
        *_nodepools(ownership),
    ]
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _controllers(ownership: ClusterOwnership) -> Iterator[Finding]:
    is_seen = any(reason == LEASE_HELD for reason in ownership.karpenter)
    for reason in ownership.karpenter:
        about = f"a Karpenter controller is running: it {reason}"
        if is_seen:
            yield Finding(
                "karpenter-controller",
                Severity.WARNING,
                about,
                "nodesmith stands by while Karpenter holds its lease: run `nodesmith adopt` to take its nodes over",
            )
        else:
            yield Finding(
                "karpenter-controller",
                Severity.ERROR,
                f"{about}, without the lease by which nodesmith would notice it",
                "scale Karpenter to zero replicas: it serves the same NodePools as nodesmith, and both would launch "
                "nodes",
            )


def _nodeclaims(ownership: ClusterOwnership) -> Iterator[Finding]:
    if ownership.karpenters_nodeclaims:
        yield Finding(
            "karpenter-nodeclaims",
            Severity.WARNING,
            f"NodeClaims created by Karpenter: {_names(ownership.karpenters_nodeclaims)}",
            "nodesmith neither terminates nor replaces their nodes until `nodesmith adopt` takes them over",
        )


def _definitions(ownership: ClusterOwnership) -> Iterator[Finding]:
    shared = [name for name in SHARED_CRDS if name in ownership.crds]
    if ownership.has_foreign_crds:
        auto_mode = AUTO_MODE_CRD in ownership.crds
        manager = "EKS Auto Mode" if auto_mode else "other software"
        yield Finding(
            "shared-crds",
            Severity.WARNING,
            f"{manager} manages the CRDs {' and '.join(shared or SHARED_CRDS)}",
            f"apply {WITHOUT_SHARED_CRDS}, which omits them: kubectl apply -k {WITHOUT_SHARED_CRDS}",
        )
    helm = [name for name, manager in ownership.crds.items() if manager == "helm"]
    if helm:
        yield Finding(
            "helm-crds",
            Severity.WARNING,
            f"Helm manages the CRDs {some(sorted(helm))}",
            "do not upgrade or uninstall that release while nodesmith serves the cluster: it would change or delete "
            "them",
        )


def _nodepools(ownership: ClusterOwnership) -> Iterator[Finding]:
    for pool in ownership.foreign_nodepools:
        server = server_of(nodeclass_group(pool))
        yield Finding(
            "foreign-nodepool",
            Severity.INFO,
            f"NodePool {name_of(pool)} is served by {server}: nodesmith leaves it, its NodeClaims and its nodes alone",
        )


def _names(manifests: Iterable[Manifest]) -> str:
    return some(sorted(map(name_of, manifests)))
