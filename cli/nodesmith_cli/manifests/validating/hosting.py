"""Whether NodePools can host the pods: a plan for one pod of each workload, without limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.observation.podgroups import APIS
from nodesmith_cli.manifests.validating.findings import Finding
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import Manifests, read_manifests
from nodesmith_cli.planning.report import plan_json
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_formats.manifests.manifests import Document
from nodesmith_formats.manifests.places import region_of

_COUNTS = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}


def inputs_of(documents: Sequence[Document], region: str) -> tuple[Inputs, Manifests]:
    """Return the inputs of a decision on one pod of each workload. Raises Rejected if there is no NodePool.

    Groups of pods are left out: one pod is not as many as must be bound at once.
    """
    manifests = read_manifests(
        (), [_one_pod(workload) for workload in documents if not _is_pod_group(workload)]
    )
    catalog = embedded_catalog(region or region_of(document.manifest for document in documents))
    return plan_inputs(manifests, catalog), manifests


def hosting_findings(
    inputs: Inputs, manifests: Manifests, documents: Sequence[Document]
) -> Iterator[Finding]:
    """Yield a finding for each workload whose pods no NodePool can host."""
    places = {
        pod_key(entry.manifest): entry for entry in manifests.documents if entry.manifest["kind"] == "Pod"
    }
    whole = {(entry.file, entry.number): entry for entry in documents}
    for unplaced in plan_json(decide(inputs))["unplaced"]:
        pod = places.get(unplaced["pod"])
        if pod is None or unplaced["reason"].startswith("opted out"):
            continue
        document = whole.get((pod.file, pod.number), pod)
        fix = "" if unplaced["reason"].endswith(unplaced["fix"]) else f"; {unplaced['fix']}"
        yield Finding(document.fault(f"no NodePool can host its pods: {unplaced['reason']}{fix}"))


def _is_pod_group(document: Document) -> bool:
    group = str(document.manifest["apiVersion"]).rpartition("/")[0]
    return (document.manifest["kind"], group) in APIS


def _one_pod(document: Document) -> Document:
    """Reduce a workload to one pod, and remove the limits of a NodePool, which are checked separately."""
    manifest, kind = document.manifest, str(document.manifest["kind"])
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return document
    if kind == "NodePool":
        return replace(
            document, manifest={**manifest, "spec": {n: v for n, v in spec.items() if n != "limits"}}
        )
    count = _COUNTS.get(kind)
    is_several = count and isinstance(spec.get(count), int) and spec[count] > 1
    return replace(document, manifest={**manifest, "spec": {**spec, count: 1}}) if is_several else document
