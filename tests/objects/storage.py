"""PersistentVolumes, claims, StorageClasses, and pods that mount volumes, as the API server shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import Mirror, WatchedKind, observed
from tests.builders import NOW
from tests.smallworld.world import pod_manifest

Manifest = dict[str, Any]
CREATED = "2026-11-20T09:00:00Z"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
ZONE = "topology.kubernetes.io/zone"


def claim(
    name: str,
    *,
    bound_to: str = "",
    annotations: Mapping[str, str] | None = None,
    owner_uid: str = "",
    phase: str = "",
    storage: str = "10Gi",
    **spec: Any,
) -> Manifest:
    """Return a PersistentVolumeClaim in the namespace default, with StorageClass gp3 unless `spec` names another."""
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if bound_to else {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner_uid, "controller": True}
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage}},
        "storageClassName": "gp3",
        **({"volumeName": bound_to} if bound_to else {}),
        **spec,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {**bound, **(annotations or {})},
            "ownerReferences": [owner] if owner_uid else [],
        },
        "spec": {field: value for field, value in asked.items() if value is not None},
        "status": {"phase": phase or ("Bound" if bound_to else "Pending")},
    }


def volume(
    name: str,
    *zones: str,
    key: str = EBS_ZONE,
    claim: str = "",
    phase: str = "Bound",
    labels: Mapping[str, str] | None = None,
    storage: str = "10Gi",
    **spec: Any,
) -> Manifest:
    """Return a PersistentVolume, reachable only from the given zones; `claim` (namespace/name) is its claim."""
    namespace, _, owner = claim.partition("/")
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(zones)}]}
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "capacity": {"storage": storage},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
            **({"claimRef": {"namespace": namespace, "name": owner}} if claim else {}),
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zones else {}),
            **spec,
        },
        "status": {"phase": phase},
    }


def storage_class(
    name: str = "gp3",
    *,
    mode: str = "WaitForFirstConsumer",
    provisioner: str = "ebs.csi.aws.com",
    allowed: Sequence[Mapping[str, Sequence[str]]] = (),
    is_default: bool = False,
    created: str = CREATED,
) -> Manifest:
    """Return a StorageClass; `allowed` are its allowedTopologies as values by key."""
    topologies = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]}
        for term in allowed
    ]
    default = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {
        "metadata": {"name": name, "annotations": default, "creationTimestamp": created},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **({"allowedTopologies": topologies} if topologies else {}),
    }


def mounting(*claims: str) -> list[Manifest]:
    """Return the volumes of a pod that mounts these claims."""
    return [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(claims)]


def pod_with(*claims: str, name: str = "web-0", **spec: Any) -> Manifest:
    """Return a pending pod that mounts these claims."""
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return pod_manifest(name, containers=[container], volumes=mounting(*claims), **spec)


def attachment(volume: str, node: str, *, name: str = "") -> Manifest:
    """Return the VolumeAttachment of a PersistentVolume to a node, or of an inline volume if `volume` is empty."""
    source: dict[str, Any] = (
        {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": {"capacity": {}}}
    )
    return {
        "metadata": {"name": name or f"csi-{volume}-{node}"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": source},
        "status": {"attached": True},
    }


def as_decided(kinds: Mapping[WatchedKind, Iterable[Manifest]]) -> Snapshot:
    """Return a cluster with these manifests as a decision sees it."""
    mirrors = [Mirror(kind) for kind in kinds]
    for mirror, manifests in zip(mirrors, kinds.values(), strict=True):
        for manifest in manifests:
            mirror.put(manifest)
        assert mirror.problems == {}
    return decode(encode("c", NOW, observed(mirrors)))
