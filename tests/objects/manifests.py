"""Valid manifests as users write them. Arguments set the fields that matter to the scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodesmith.model.apimachinery.labels import ZONE
from tests import builders

Manifest = dict[str, Any]
_OF_OTHERS = {"events", "k9s"}
"""Folders of examples for CloudFormation and for k9s."""


def examples_for_kubernetes(folder: Path) -> list[Path]:
    """Return the files of the examples that a cluster accepts, without the one that shows mistakes."""
    found = (each for each in folder.rglob("*.yaml") if each.name != "mistakes.yaml")
    return sorted(each for each in found if each.relative_to(folder).parts[0] not in _OF_OTHERS)


def nodeclass(cluster: str, name: str = "default", **spec: Any) -> Manifest:
    """Return an EC2NodeClass that selects the cluster's subnets and security groups."""
    selector = [{"tags": {"karpenter.sh/discovery": cluster}}]
    fields = {
        "role": f"KarpenterNodeRole-{cluster}",
        "subnetSelectorTerms": selector,
        "securityGroupSelectorTerms": selector,
        **spec,
    }
    return _named(builders.nodeclass_manifest(name, **fields))


def nodepool(name: str = "default", **fields: Any) -> Manifest:
    """Return a NodePool. Keywords are those of the unit tests' builder."""
    return _named(builders.nodepool_manifest(name, **fields))


def nodeclaim(name: str, *requirements: Mapping[str, Any], **spec: Any) -> Manifest:
    """Return a NodeClaim as a user creates it; keywords are further fields of its spec."""
    return _named(builders.nodeclaim_manifest(requirements, name, **spec))


def pod(
    name: str, cpu: str = "1", memory: str = "64Mi", *, labels: Mapping[str, str] | None = None, **spec: Any
) -> Manifest:
    """Return a pod without a controller that would recreate it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels or {"app": name})},
        "spec": _pod_spec(cpu, memory, spec),
    }


def deployment(name: str, replicas: int, cpu: str = "1", memory: str = "64Mi", **spec: Any) -> Manifest:
    """Return a Deployment whose pods carry the label app=NAME."""
    return _workload("apps/v1", "Deployment", name, cpu, memory, spec, {"replicas": replicas})


def replicaset(name: str, replicas: int, cpu: str = "1", memory: str = "64Mi", **spec: Any) -> Manifest:
    """Return a ReplicaSet whose pods carry the label app=NAME."""
    return _workload("apps/v1", "ReplicaSet", name, cpu, memory, spec, {"replicas": replicas})


def taking(made: Manifest, *, start_seconds: float, stop_seconds: float) -> Manifest:
    """Return a workload whose pods take the given seconds to become ready and to stop."""
    annotations = {
        "local.nodesmith/start-seconds": f"{start_seconds:g}",
        "local.nodesmith/stop-seconds": f"{stop_seconds:g}",
    }
    template = made["spec"]["template"]
    template = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    return {**made, "spec": {**made["spec"], "template": template}}


def daemonset(name: str, cpu: str = "100m", memory: str = "32Mi", **spec: Any) -> Manifest:
    """Return a DaemonSet that runs on every node, whatever its taints."""
    everywhere = {"tolerations": [{"operator": "Exists"}], **spec}
    return _workload("apps/v1", "DaemonSet", name, cpu, memory, everywhere, {})


def mutations(name: str, patch: str, rule: Mapping[str, Any], **matched: Any) -> list[Manifest]:
    """Return an admission policy with a JSONPatch expression for what a resource rule selects, and its binding.

    Keywords are further match constraints.
    """
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], **rule}],
            **matched,
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    return [
        {**api, "kind": "MutatingAdmissionPolicy", "spec": policy},
        {**api, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}},
    ]


def owned_by(kind: str, name: str, uid: str) -> Manifest:
    """Return the reference to the NodePool or NodeClaim that owns an object."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "blockOwnerDeletion": True,
    }


def budget(app: str, name: str = "", **spec: Any) -> Manifest:
    """Return a PodDisruptionBudget for an app's pods, by default with the app's name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name or app, "namespace": "default"},
        "spec": {**spec, "selector": {"matchLabels": {"app": app}}},
    }


def zone_spread(app: str, when: str = "DoNotSchedule") -> list[Manifest]:
    """Return a constraint that spreads a Deployment's pods over zones."""
    selector = {"matchLabels": {"app": app}}
    return [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selector}]


def taint(key: str, value: str, effect: str = "NoSchedule") -> Mapping[str, str]:
    """Return a taint as written in manifests."""
    return {"key": key, "value": value, "effect": effect}


def requirement(key: str, *values: str) -> Mapping[str, Any]:
    """Return a requirement that the key's value is one of `values`."""
    return {"key": key, "operator": "In", "values": list(values)}


def _workload(
    api_version: str,
    kind: str,
    name: str,
    cpu: str,
    memory: str,
    pod_spec: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> Manifest:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(cpu, memory, pod_spec)}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "selector": {"matchLabels": labels}, "template": template},
    }


def _pod_spec(cpu: str, memory: str, fields: Mapping[str, Any]) -> Manifest:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {"terminationGracePeriodSeconds": 0, "containers": [container], **fields}


def _named(manifest: Mapping[str, Any]) -> Manifest:
    """Keep only the name of the metadata, since the API server sets the rest."""
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}


def many_kinds(pods: int, kinds: int) -> Sequence[Manifest]:
    """Return Deployments of `kinds` sizes, `pods` pods in total: plain, spread, selecting or tolerating."""
    each, rest = divmod(pods, kinds)
    found = []
    for number in range(kinds):
        name = f"kind-{number:02}"
        habits: list[Mapping[str, Any]] = [
            {},
            {"topologySpreadConstraints": zone_spread(name)},
            {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
            {"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}},
            {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
        ]
        cpu, memory = f"{100 * (1 + number % 9)}m", f"{128 * (1 + number % 7)}Mi"
        count = each + (number < rest)
        found.append(deployment(name, count, cpu, memory, **habits[number % len(habits)]))
    return found
