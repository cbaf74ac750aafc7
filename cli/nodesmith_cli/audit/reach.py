"""The nodes that can reach a volume, and the claims that it could serve."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.quantities import whole_units
from nodesmith_cli.audit.reading import REGION, ZONE, Manifest, dig, node_labels, today
from nodesmith_cli.audit.selectors import selects, term_holds

STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""The legacy annotation, which takes precedence over the field storageClassName."""


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
    spec, asked = volume.get("spec") or {}, claim.get("spec") or {}
    annotations = volume["metadata"].get("annotations") or {}
    return (
        dig(volume, "status", "phase") == "Available"
        and not spec.get("claimRef")
        and "deletionTimestamp" not in volume["metadata"]
        and annotations.get(STORAGE_CLASS, spec.get("storageClassName")) == storage["metadata"]["name"]
        and (spec.get("volumeMode") or "Filesystem") == (asked.get("volumeMode") or "Filesystem")
        and set(asked.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and whole_units(dig(spec, "capacity", "storage") or 0)
        >= whole_units(dig(asked, "resources", "requests", "storage") or 0)
        and (
            asked.get("selector") is None
            or selects(asked["selector"], volume["metadata"].get("labels") or {})
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
