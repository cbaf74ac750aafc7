"""Volumes: the nodes that can reach them, and the number that a node can attach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.quantities import whole_units
from nodesmith_cli.audit.reading.fields import REGION, ZONE, Manifest, dig, node_labels, today
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.selectors import selects, term_holds

STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""The legacy annotation, which takes precedence over the field storageClassName."""
_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED = "volume.kubernetes.io/selected-node"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_EBS = "ebs.csi.aws.com"
_MIGRATED = {"kubernetes.io/aws-ebs": _EBS}


def reaches(volume: Manifest, labels: Mapping[str, str], node_name: str | None) -> bool:
    """Return whether a node can reach a volume, by the volume's node affinity and zone labels."""
    required = dig(volume, "spec", "nodeAffinity", "required")
    if required and not any(
        term_holds(t, labels, node_name) for t in required.get("nodeSelectorTerms") or ()
    ):
        return False
    zoned = node_labels(volume["metadata"].get("labels"))
    return all(
        labels.get(key) in zoned[key].split("__") for key in (ZONE, REGION) if key in zoned and key in labels
    )


def is_kept_for(volume: Manifest, key: str) -> bool:
    """Return whether a volume is reserved for a claim (namespace/name)."""
    owner = dig(volume, "spec", "claimRef")
    return bool(owner) and f"{owner.get('namespace')}/{owner.get('name')}" == key


def could_serve(volume: Manifest, claim: Manifest, storage: Manifest) -> bool:
    """Return whether a volume is available, and satisfies a claim of this StorageClass."""
    spec, claim_spec = volume.get("spec") or {}, claim.get("spec") or {}
    annotations = volume["metadata"].get("annotations") or {}
    return (
        dig(volume, "status", "phase") == "Available"
        and not spec.get("claimRef")
        and "deletionTimestamp" not in volume["metadata"]
        and annotations.get(STORAGE_CLASS, spec.get("storageClassName")) == storage["metadata"]["name"]
        and (spec.get("volumeMode") or "Filesystem") == (claim_spec.get("volumeMode") or "Filesystem")
        and set(claim_spec.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and whole_units(dig(spec, "capacity", "storage") or 0)
        >= whole_units(dig(claim_spec, "resources", "requests", "storage") or 0)
        and (
            claim_spec.get("selector") is None
            or selects(claim_spec["selector"], volume["metadata"].get("labels") or {})
        )
    )


def allows_topology(topology: Manifest, labels: Mapping[str, str]) -> bool:
    """Return whether one of a StorageClass's allowedTopologies covers a node."""
    return all(labels.get(today(e["key"])) in e["values"] for e in topology["matchLabelExpressions"])


def try_volume(volume: Manifest) -> None:
    """Evaluate a PersistentVolume once. Raises the exceptions in UNREADABLE, like the functions below."""
    reaches(volume, {}, None)
    could_serve(volume, {}, volume)


def try_claim(claim: Manifest) -> None:
    """Evaluate a PersistentVolumeClaim once."""
    str(claim["metadata"]["name"])
    set(dig(claim, "spec", "accessModes") or ())
    whole_units(dig(claim, "spec", "resources", "requests", "storage") or 0)


def try_class(storage_class: Manifest) -> None:
    """Evaluate a StorageClass once."""
    dict(storage_class["metadata"].get("annotations") or {})
    for topology in storage_class.get("allowedTopologies") or ():
        all(e["key"] and e["values"] for e in topology.get("matchLabelExpressions") or ())


class Claim(NamedTuple):
    """A claim that a pod mounts. `manifest` is None if neither the claim nor a template exists."""

    key: str
    manifest: Manifest | None


class Volumes:
    """PersistentVolumes, their claims and classes, and the attach limits of nodes."""

    def __init__(self, kinds: Mapping[str, Sequence[Manifest]]) -> None:
        self._claims = {_key(manifest): manifest for manifest in kinds.get("PersistentVolumeClaim", ())}
        self._volumes = {
            manifest["metadata"]["name"]: manifest for manifest in kinds.get("PersistentVolume", ())
        }
        self._classes = {manifest["metadata"]["name"]: manifest for manifest in kinds.get("StorageClass", ())}
        self.limits = {
            manifest["metadata"]["name"]: attachable(manifest) for manifest in kinds.get("CSINode", ())
        }
        """The number of attachable volumes, by node and driver."""

    def claims(self, pod: Pod) -> Iterator[Claim]:
        """Yield the claims of a pod's volumes."""
        for volume in pod.spec.get("volumes") or ():
            name = dig(volume, "persistentVolumeClaim", "claimName")
            if name:
                key = f"{pod.namespace}/{name}"
                yield Claim(key, self._claims.get(key))
            elif volume.get("ephemeral"):
                key = f"{pod.key}-{volume['name']}"
                template = dig(volume, "ephemeral", "volumeClaimTemplate") or {}
                yield Claim(key, self._claims.get(key, template))

    def refusal(self, claim: Claim, labels: Mapping[str, str], node_name: str | None) -> str:
        """Return the reason why a node cannot reach a claim's existing or future volume, or an empty string."""
        manifest = claim.manifest
        if manifest is None:
            return f"claim {claim.key} does not exist"
        if dig(manifest, "metadata", "deletionTimestamp") or dig(manifest, "status", "phase") == "Lost":
            return f"claim {claim.key} is lost or being deleted"
        volume = self._bound_to(manifest)
        if volume is not None:
            return "" if reaches(volume, labels, node_name) else f"the volume of {claim.key} is not reachable"
        if dig(manifest, "spec", "volumeName"):
            return f"claim {claim.key} names a volume that it is not bound to"
        return self._unbound_refusal(claim.key, manifest, labels, node_name)

    def _bound_to(self, claim: Manifest) -> Manifest | None:
        if _BOUND not in (dig(claim, "metadata", "annotations") or {}):
            return None
        return self._volumes.get(dig(claim, "spec", "volumeName"))

    def _unbound_refusal(
        self, key: str, claim: Manifest, labels: Mapping[str, str], node_name: str | None
    ) -> str:
        storage = self._class_of(claim)
        if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return f"claim {key} is not bound, and its StorageClass does not wait for a pod"
        selected = (dig(claim, "metadata", "annotations") or {}).get(_SELECTED)
        if selected and selected != node_name:
            return f"the volume of claim {key} is being provisioned for node {selected}"
        reserved = [v for v in self._volumes.values() if is_kept_for(v, key)]
        free = reserved or [v for v in self._volumes.values() if could_serve(v, claim, storage)]
        if any(reaches(volume, labels, node_name) for volume in free):
            return ""
        if reserved or storage.get("provisioner") in (None, "", _NO_PROVISIONER):
            return f"no available volume for claim {key} is reachable"
        topologies = [t for t in storage.get("allowedTopologies") or () if t.get("matchLabelExpressions")]
        if topologies and not any(allows_topology(topology, labels) for topology in topologies):
            return f"the StorageClass of claim {key} provisions no volumes there"
        return ""

    def _class_of(self, claim: Manifest) -> Manifest | None:
        annotations = dig(claim, "metadata", "annotations") or {}
        name = annotations.get(STORAGE_CLASS, dig(claim, "spec", "storageClassName"))
        if name is not None:
            return self._classes.get(name)
        defaults = [c for c in self._classes.values() if _is_default(c)]
        return max(defaults, key=lambda c: str(c["metadata"].get("creationTimestamp") or ""), default=None)

    def attached(self, claim: Claim) -> tuple[str, str] | None:
        """Return the driver and the identity of a claim's volume, or None if it does not count as an attachment."""
        if claim.manifest is None:
            return None
        volume = self._bound_to(claim.manifest)
        if volume is None:
            provisioner = str((self._class_of(claim.manifest) or {}).get("provisioner") or "")
            if provisioner in ("", _NO_PROVISIONER):
                return None
            return _MIGRATED.get(provisioner, provisioner), claim.key
        disk = dig(volume, "spec", "awsElasticBlockStore")
        if disk:
            return _EBS, str(disk["volumeID"])
        csi = dig(volume, "spec", "csi")
        return (str(csi["driver"]), str(csi["volumeHandle"])) if csi else None

    def is_unbound(self, claim: Claim) -> bool:
        """Return whether the first pod that mounts the claim determines the place of its volume."""
        return claim.manifest is not None and self._bound_to(claim.manifest) is None

    def is_exclusive(self, claim: Claim) -> bool:
        """Return whether only one pod at a time can mount the claim."""
        modes: Any = dig(claim.manifest, "spec", "accessModes") or ()
        return "ReadWriteOncePod" in modes


def _is_default(storage_class: Manifest) -> bool:
    return bool((storage_class["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true")


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata'].get('namespace') or 'default'}/{manifest['metadata']['name']}"


def attachable(csinode: Manifest) -> dict[str, int]:
    """Return the number of volumes a node can attach, by driver. Raises the exceptions in UNREADABLE."""
    return {
        driver["name"]: int(driver["allocatable"]["count"])
        for driver in dig(csinode, "spec", "drivers") or ()
        if dig(driver, "allocatable", "count") is not None
    }
