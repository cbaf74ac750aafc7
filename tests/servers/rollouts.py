"""A custom resource with the scale subresource that creates its pods through ReplicaSets, as Argo Rollouts does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUP, VERSION, KIND = "argoproj.io", "argoproj.io/v1alpha1", "Rollout"
REFERENCE = {"apiGroup": GROUP, "kind": KIND, "name": "web"}
"""The scalableRef of a CapacityBuffer."""


def definition() -> dict[str, Any]:
    """Return the CRD."""
    names = {"kind": KIND, "listKind": f"{KIND}List", "plural": "rollouts", "singular": "rollout"}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rollouts.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def rollout(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Rollout with the name and the spec of a Deployment."""
    return {**deployment, "apiVersion": VERSION, "kind": KIND}


def replicaset(rollout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ReplicaSet that Argo Rollouts creates for a Rollout of the cluster."""
    about, spec = rollout["metadata"], rollout["spec"]
    owner = {
        "apiVersion": VERSION,
        "kind": KIND,
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"{about['name']}-1", "namespace": "default", "ownerReferences": [owner]},
        "spec": {each: spec[each] for each in ("replicas", "selector", "template")},
    }
