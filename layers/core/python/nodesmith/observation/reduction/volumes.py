"""Reduce volumes, claims and StorageClasses to what determines where a pod that mounts them may run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.labels import normalised
from nodesmith.model.apimachinery.requirements import Selector, parse_selector
from nodesmith.model.apimachinery.resources import whole_units
from nodesmith.model.ec2.attachablevolumes import EBS_DRIVER
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.volumeterms import topology_terms, volume_terms

_CLASS = "volume.beta.kubernetes.io/storage-class"  # older than the field, but takes precedence over it
_IS_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_IS_DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_IN_TREE_EBS = "kubernetes.io/aws-ebs"  # handled by the CSI driver since Kubernetes 1.25


@dataclass(frozen=True, slots=True)
class Storage:
    """What an unbound claim requests or a free volume offers. `storage_class` is None if a claim names none."""

    storage_class: str | None
    storage_bytes: int
    access_modes: tuple[str, ...]
    volume_mode: str
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ReducedClaim:
    """A PersistentVolumeClaim. `key` is `namespace/name`. `asks` is None once the claim is bound to `volume`.

    `controller` is the uid of its controller. `selected_node` is the node for which the scheduler wants the volume
    created. `single` is True if only one pod at a time may use it (ReadWriteOncePod).
    """

    key: str
    volume: str = ""
    asks: Storage | None = None
    controller: str = ""
    selected_node: str = ""
    lost: bool = False
    deleting: bool = False
    single: bool = False


class Mount(NamedTuple):
    """A claim that a pod mounts. `key` is `namespace/name`. `template` is an ephemeral volume's claim, else None."""

    key: str
    template: ReducedClaim | None = None


@dataclass(frozen=True, slots=True)
class ReducedVolume:
    """A PersistentVolume. `terms` are the nodes from which it can be reached (see `volumeterms`).

    `claim` is the claim that it is bound to or reserved for, empty if it is free for any. `offers` is None unless a
    claim can still be bound to it. `driver` is the CSI driver that attaches it, empty if there is none.
    """

    name: str
    terms: str
    claim: str = ""
    offers: Storage | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""


@dataclass(frozen=True, slots=True)
class ReducedClass:
    """A StorageClass. `waits` is True for WaitForFirstConsumer.

    `provisions` is True if it creates volumes, `terms` are the nodes for which it does, and `driver` is the CSI driver
    of these volumes.
    """

    name: str
    waits: bool
    provisions: bool
    terms: str
    created: str = ""
    is_default: bool = False
    driver: str = ""


def reduce_claim(manifest: Manifest) -> ReducedClaim:
    """Reduce a PersistentVolumeClaim. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    owners = (owner for owner in metadata.get("ownerReferences") or () if owner.get("controller"))
    volume = str(spec.get("volumeName") or "")
    is_bound = volume and _IS_BOUND in annotations
    return ReducedClaim(
        key=f"{metadata['namespace']}/{metadata['name']}",
        volume=volume,
        asks=None if is_bound else _asked(spec, annotations),
        controller=next((str(owner["uid"]) for owner in owners), ""),
        selected_node=sys.intern(str(annotations.get(_SELECTED_NODE) or "")),
        lost=(manifest.get("status") or {}).get("phase") == "Lost",
        deleting="deletionTimestamp" in metadata,
        single="ReadWriteOncePod" in _modes(spec),
    )


def mounts(pod_metadata: Manifest, volumes: Sequence[Manifest]) -> tuple[Mount, ...]:
    """Return the claims of a pod's volumes. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    namespace, found = pod_metadata["namespace"], []
    for volume in volumes:
        claim, ephemeral = volume.get("persistentVolumeClaim"), volume.get("ephemeral")
        if claim:
            found.append(Mount(f"{namespace}/{claim['claimName']}"))
        elif ephemeral:
            template = ephemeral.get("volumeClaimTemplate") or {}
            about = {"namespace": namespace, "name": f"{pod_metadata['name']}-{volume['name']}"}
            annotations = (template.get("metadata") or {}).get("annotations")
            claim = reduce_claim(
                {"metadata": {**about, "annotations": annotations}, "spec": template.get("spec")}
            )
            found.append(Mount(claim.key, claim))
    return tuple(found)


def _asked(spec: Manifest, annotations: Mapping[str, str]) -> Storage:
    requests = (spec.get("resources") or {}).get("requests") or {}
    name = annotations.get(_CLASS, spec.get("storageClassName"))
    return Storage(
        storage_class=None if name is None else str(name),
        storage_bytes=whole_units(requests.get("storage") or 0),
        access_modes=_modes(spec),
        volume_mode=str(spec.get("volumeMode") or "Filesystem"),
        selector=parse_selector(spec.get("selector")),
    )


def reduce_volume(manifest: Manifest) -> ReducedVolume:
    """Reduce a PersistentVolume. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    phase, owner = (manifest.get("status") or {}).get("phase"), spec.get("claimRef") or {}
    is_free = phase == "Available" or (owner and phase in (None, "Pending"))
    offers = _offered(metadata, spec) if is_free and "deletionTimestamp" not in metadata else None
    return ReducedVolume(
        name=str(metadata["name"]),
        terms=volume_terms(manifest),
        claim=f"{owner.get('namespace')}/{owner.get('name')}" if owner else "",
        offers=offers,
        labels={normalised(k): str(v) for k, v in (metadata.get("labels") or {}).items()} if offers else {},
        driver=_driver(spec),
    )


def _driver(spec: Manifest) -> str:
    csi = spec.get("csi") or {}
    return EBS_DRIVER if spec.get("awsElasticBlockStore") else sys.intern(str(csi.get("driver") or ""))


def _offered(metadata: Manifest, spec: Manifest) -> Storage:
    annotations = metadata.get("annotations") or {}
    return Storage(
        storage_class=str(annotations.get(_CLASS, spec.get("storageClassName") or "")),
        storage_bytes=whole_units((spec.get("capacity") or {}).get("storage") or 0),
        access_modes=_modes(spec),
        volume_mode=str(spec.get("volumeMode") or "Filesystem"),
    )


def _modes(spec: Manifest) -> tuple[str, ...]:
    return tuple(sorted(map(str, spec.get("accessModes") or ())))


def reduce_class(manifest: Manifest) -> ReducedClass:
    """Reduce a StorageClass. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    metadata: Any = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    provisioner = str(manifest.get("provisioner") or _NO_PROVISIONER)
    return ReducedClass(
        name=str(metadata["name"]),
        waits=manifest.get("volumeBindingMode") == "WaitForFirstConsumer",
        provisions=provisioner != _NO_PROVISIONER,
        terms=topology_terms(manifest.get("allowedTopologies")),
        created=str(metadata.get("creationTimestamp") or ""),
        is_default=any(annotations.get(name) == "true" for name in _IS_DEFAULT),
        driver=EBS_DRIVER if provisioner == _IN_TREE_EBS else provisioner,
    )
