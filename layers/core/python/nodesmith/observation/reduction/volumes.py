"""Reduce volumes, claims, StorageClasses and CSINodes to what determines where a pod that mounts volumes may run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.labels import HOSTNAME, REGION, ZONE, normalised
from nodesmith.model.apimachinery.quantities import whole_units
from nodesmith.model.apimachinery.requirements import (
    Requirement,
    Requirements,
    Selector,
    contradiction,
    parse_selector,
    requirement,
)
from nodesmith.model.ec2.capacity import EBS_DRIVER
from nodesmith.model.kubernetes.pods import Manifest

# The nodes from which a volume can be reached: alternative node requirements, as text that volumes can share.
# `ANYWHERE` is no restriction. Any other text is canonical JSON: a list of alternatives, each a list of
# Kubernetes' `matchExpressions`. One alternative must hold; without any (`NOWHERE`), no node fits.
ANYWHERE, NOWHERE = "", "[]"
_VALUES_IN_LABEL = "__"
_MOST_ALTERNATIVES = 64
"""A pod with many volumes keeps only the first alternatives. Then fewer nodes are tried, but never a wrong one."""


def volume_terms(manifest: Manifest) -> str:
    """Return the terms of a PersistentVolume: its node affinity and zone labels (kube-scheduler: VolumeZone).

    As in Karpenter, the hostname of local and hostPath volumes is ignored. Raises ValueError, TypeError or
    AttributeError for content that no API server accepts.
    """
    spec = manifest.get("spec") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    ignored = {HOSTNAME} if spec.get("local") or spec.get("hostPath") else set()
    labelled = _label_zones(manifest["metadata"].get("labels") or {})
    if required is None:
        return _text([labelled]) if labelled else ANYWHERE
    terms = (_node_term(term) for term in required.get("nodeSelectorTerms") or () if any(term.values()))
    relevant = [
        Requirements({key: r for key, r in term.items() if key not in ignored}) for term in terms if term
    ]
    return _text(_compatible(relevant, [labelled]))


def topology_terms(topologies: Iterable[Manifest] | None) -> str:
    """Return the terms of a StorageClass's allowedTopologies: where it may create volumes."""
    terms = [
        Requirements.of(*(requirement(str(e["key"]), "In", map(str, e["values"])) for e in expressions))
        for topology in topologies or ()
        if (expressions := topology.get("matchLabelExpressions"))
    ]
    return _text(terms) if terms else ANYWHERE


def node_terms(node_name: str) -> str:
    """Return the terms that allow only one node."""
    return _text([Requirements.from_labels({HOSTNAME: node_name})])


def either(texts: Iterable[str]) -> str:
    """Return the union of texts: what any of them allows. Without texts, it allows nothing."""
    distinct = sorted(set(texts))
    if ANYWHERE in distinct:
        return ANYWHERE
    return _text(term for text in distinct for term in read_terms(text))


@lru_cache(maxsize=4096)
def common_terms(text: str, other: str) -> str:
    """Return the terms of nodes from which two volumes can both be reached."""
    if ANYWHERE in (text, other) or text == other:
        return text or other
    return _text(_compatible(read_terms(text), read_terms(other)))


@lru_cache(maxsize=4096)
def read_terms(text: str) -> tuple[Requirements, ...]:
    """Return the alternatives in a text."""
    terms = (_node_term({"matchExpressions": term}) for term in json.loads(text or "[[]]"))
    return tuple(term for term in terms if term is not None)


def _compatible(terms: Iterable[Requirements], others: Iterable[Requirements]) -> list[Requirements]:
    others = tuple(others)
    combined = (_met((*term.values(), *other.values())) for term in terms for other in others)
    return [term for term in combined if term is not None]


def _met(parts: Sequence[Requirement]) -> Requirements | None:
    """Return the intersection of all parts, None if nothing satisfies them."""
    return None if contradiction(parts) else Requirements.of(*parts)


def _node_term(term: Manifest) -> Requirements | None:
    # matchFields only support metadata.name.
    by_name = ({**field, "key": HOSTNAME} for field in term.get("matchFields") or ())
    expressions = (*(term.get("matchExpressions") or ()), *by_name)
    return _met(
        [requirement(str(e["key"]), str(e["operator"]), map(str, e.get("values") or ())) for e in expressions]
    )


def _label_zones(labels: Mapping[str, str]) -> Requirements:
    return Requirements.of(
        *(
            requirement(key, "In", value.split(_VALUES_IN_LABEL))
            for key, value in labels.items()
            if normalised(key) in (ZONE, REGION)
        )
    )


def _text(terms: Iterable[Requirements]) -> str:
    written = {json.dumps(list(_expressions(term)), separators=(",", ":")) for term in terms}
    if "[]" in written:
        return ANYWHERE
    return sys.intern(f"[{','.join(sorted(written)[:_MOST_ALTERNATIVES])}]")


def _expressions(term: Requirements) -> Iterator[dict[str, object]]:
    for key in sorted(term):
        expected = term[key]
        bounds = {"Gte": expected.gte, "Lte": expected.lte}
        limits = [(name, [str(bound)]) for name, bound in bounds.items() if bound is not None]
        for operator, values in _plain(expected, bounded=bool(limits)) + limits:
            yield {"key": key, "operator": operator, **({"values": values} if values else {})}


def _plain(expected: Requirement, *, bounded: bool) -> list[tuple[str, list[str]]]:
    return [] if bounded and not expected.values else [(str(expected.operator), sorted(expected.values))]


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
    """A PersistentVolumeClaim. `key` is `namespace/name`. `requested_storage` is None once the claim is bound to
    `volume`.

    `controller` is the uid of its controller. `selected_node` is the node for which the scheduler wants the volume
    created. `single` is True if only one pod at a time may use it (ReadWriteOncePod).
    """

    key: str
    volume: str = ""
    requested_storage: Storage | None = None
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
    """A PersistentVolume. `terms` are the nodes from which it can be reached (see `ANYWHERE`).

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
        requested_storage=None if is_bound else _storage(spec, annotations),
        controller=next((str(owner["uid"]) for owner in owners), ""),
        selected_node=sys.intern(str(annotations.get(_SELECTED_NODE) or "")),
        lost=(manifest.get("status") or {}).get("phase") == "Lost",
        deleting="deletionTimestamp" in metadata,
        single="ReadWriteOncePod" in _modes(spec),
    )


def mounts(pod_metadata: Manifest, volumes: Sequence[Manifest]) -> tuple[Mount, ...]:
    """Return the claims of a pod's volumes. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    namespace, found_mounts = pod_metadata["namespace"], []
    for volume in volumes:
        claim, ephemeral = volume.get("persistentVolumeClaim"), volume.get("ephemeral")
        if claim:
            found_mounts.append(Mount(f"{namespace}/{claim['claimName']}"))
        elif ephemeral:
            template = ephemeral.get("volumeClaimTemplate") or {}
            about = {"namespace": namespace, "name": f"{pod_metadata['name']}-{volume['name']}"}
            annotations = (template.get("metadata") or {}).get("annotations")
            claim = reduce_claim(
                {"metadata": {**about, "annotations": annotations}, "spec": template.get("spec")}
            )
            found_mounts.append(Mount(claim.key, claim))
    return tuple(found_mounts)


def _storage(spec: Manifest, annotations: Mapping[str, str]) -> Storage:
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


@dataclass(frozen=True, slots=True)
class ReducedCsiNode:
    """The CSI drivers on a node. `limits` is driver → maximum number of volumes, None if the driver states no limit."""

    name: str
    limits: Mapping[str, int | None]


def reduce_csi_node(manifest: Manifest) -> ReducedCsiNode:
    """Reduce a CSINode. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    counts = {
        str(driver["name"]): (driver.get("allocatable") or {}).get("count")
        for driver in (manifest.get("spec") or {}).get("drivers") or ()
    }
    limits = {name: None if count is None else int(count) for name, count in counts.items()}
    return ReducedCsiNode(str(manifest["metadata"]["name"]), limits)
