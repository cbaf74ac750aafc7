"""Problems in the cluster's own objects: PodDisruptionBudgets, NodePools and EC2NodeClasses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.decisions.readiness.launchconditions import BOUGHT_IN_VAIN
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.karpenter.ownership import nodeclass_name
from nodesmith.model.kubernetes.evictions import parse_budget
from nodesmith.observation.observed import UNREADABLE
from nodesmith_cli.connecting.checks.findings import Finding, error, warning
from nodesmith_cli.sharing.ownership import ClusterOwnership, Manifest, listed
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.manifests.manifests import Document

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def budget_findings(budgets: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each PodDisruptionBudget that never allows an eviction, so that nodes are never drained."""
    for manifest in budgets:
        name = f"PodDisruptionBudget {manifest['metadata'].get('namespace', '')}/{name_of(manifest)}"
        try:
            budget = parse_budget(manifest)
        except UNREADABLE as fault:
            yield warning("budget", name, f"cannot be read: {fault}")
            continue
        if not (budget.never_allows and budget.expected_pods):
            continue
        what = (
            f"maxUnavailable {budget.max_unavailable}"
            if budget.max_unavailable
            else f"minAvailable {budget.min_available or 'missing'} of {budget.expected_pods} pods"
        )
        namespace = manifest["metadata"].get("namespace", "default")
        command = f"kubectl -n {namespace} edit poddisruptionbudget {name_of(manifest)}: allow one"
        yield warning("budget", name, f"{what}: no pod can ever be evicted", command)


def budgets_of(server: ApiServer) -> tuple[Manifest, ...]:
    """Return the cluster's PodDisruptionBudgets. Raises Transient, Rejected."""
    return listed(server, BUDGETS)


def pool_findings(ownership: ClusterOwnership, region: str) -> Iterator[Finding]:
    """Yield findings about NodePools that cannot launch nodes, and EC2NodeClasses that are not ready."""
    classes = {name_of(manifest): manifest for manifest in ownership.nodeclasses}
    for name, nodeclass in classes.items():
        yield from _unready(f"EC2NodeClass {name}", nodeclass)
    sound = []
    for pool in ownership.nodepools:
        yield from _in_vain(pool)
        named = nodeclass_name(pool)
        if named in classes or (
            named and any(name_of(nodetemplate) == named for nodetemplate in ownership.nodetemplates)
        ):
            sound.append(pool)
            continue
        hint = did_you_mean(named, classes) or f"; existing: {', '.join(sorted(classes)) or 'none'}"
        detail = f"its EC2NodeClass {named!r} does not exist{hint}"
        yield error("nodepool", f"NodePool {name_of(pool)}", detail, f"kubectl edit nodepool {name_of(pool)}")
    if sound:
        yield from _unbuyable(sound, ownership.nodeclasses, region)


def _in_vain(pool: Manifest) -> Iterator[Finding]:
    for condition in (pool.get("status") or {}).get("conditions") or ():
        if condition.get("type") == BOUGHT_IN_VAIN and condition.get("status") == "True":
            remedy = (
                f"kubectl describe nodepool {name_of(pool)}, and see the runbook NodesmithNodesBoughtInVain"
            )
            yield error("nodepool", f"NodePool {name_of(pool)}", str(condition.get("message")), remedy)


def _unready(name: str, manifest: Manifest) -> Iterator[Finding]:
    conditions = {c.get("type"): c for c in (manifest.get("status") or {}).get("conditions") or ()}
    ready = conditions.get("Ready")
    if ready is None or ready.get("status") == "True":
        return
    causes = [c for c in conditions.values() if c.get("status") == "False" and c.get("type") != "Ready"] or [
        ready
    ]
    message = "; ".join(str(c.get("message") or c.get("reason") or c.get("type")) for c in causes)
    remedy = f"kubectl describe ec2nodeclass {name_of(manifest)}: its conditions say what is wrong"
    yield error("nodeclass", name, f"is not ready: {message}", remedy)


def _unbuyable(pools: Iterable[Manifest], classes: Iterable[Manifest], region: str) -> Iterator[Finding]:
    """Yield the errors of `nodesmith validate`: requirements without instance types, limits that allow no node."""
    from nodesmith_cli.manifests.validating.command import check

    documents = [
        *(_document("karpenter.sh/v1", "NodePool", pool, number) for number, pool in enumerate(pools)),
        *(
            _document("karpenter.k8s.aws/v1", "EC2NodeClass", nodeclass, number)
            for number, nodeclass in enumerate(classes)
        ),
    ]
    for finding in check(documents, region):
        if finding.is_error:
            fault = finding.fault
            detail = f"{fault.field} {fault.message}" if fault.field else fault.message
            yield error(
                "nodepool",
                fault.object.replace("/", " ", 1),
                detail,
                "run nodesmith validate on its manifest",
            )


def _document(version: str, kind: str, manifest: Mapping[str, Any], number: int) -> Document:
    return Document({"apiVersion": version, "kind": kind, **_written(manifest)}, "cluster", number)


def _written(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object without the fields that the API server adds."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k in ("name", "labels", "annotations")}
    return {"metadata": metadata, "spec": manifest.get("spec") or {}}
