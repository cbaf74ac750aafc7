"""nodesmith's annotations on workloads: values that cannot be read, wrong places, and no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith.model.apimachinery.problems import at, did_you_mean, shown
from nodesmith.model.karpenter.conversion.labels import TEMPLATES
from nodesmith.model.kubernetes.podannotations import SPLITS, split_fault
from nodesmith.model.policies import NODE_SURCHARGE, read_surcharge
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_formats.manifests.manifests import Document

_DOMAIN = "nodesmith.dev/"
_OF_DAEMONSETS = frozenset({NODE_SURCHARGE})
_OF_PODS = SPLITS
_ANNOTATIONS = "metadata.annotations"


def placement_findings(document: Document) -> Iterator[Finding]:
    """Yield a finding for each annotation of a workload that has no effect as it is written."""
    kind, manifest = str(document.manifest["kind"]), document.manifest
    if kind != "Pod" and kind not in TEMPLATES:
        return
    own = _annotations(manifest)
    here = _OF_PODS if kind == "Pod" else _OF_DAEMONSETS if kind == "DaemonSet" else frozenset[str]()
    place = f"{TEMPLATES[kind]}.metadata.annotations" if kind in TEMPLATES else ""
    for key, value in sorted(own.items()):
        yield from _finding(document, at(_ANNOTATIONS, key), key, value, here, place)
    template: Any = manifest
    for part in TEMPLATES[kind].split(".") if place else ():
        template = template.get(part) if isinstance(template, Mapping) else None
    for key, value in sorted(_annotations(template).items()) if place else ():
        yield from _finding(document, at(place, key), key, value, _OF_PODS, _ANNOTATIONS)


def _finding(
    document: Document, field: str, key: str, value: object, here: frozenset[str], elsewhere: str
) -> Iterator[Finding]:
    if not key.startswith(_DOMAIN):
        return
    remedy = _remedy(key, value) if key in here else _misplaced(document, key, elsewhere)
    if remedy:
        yield warning(document.fault(f"is {shown(value)}: {remedy}", field))


def _misplaced(document: Document, key: str, elsewhere: str) -> str:
    if key in _OF_DAEMONSETS:
        if document.manifest["kind"] == "DaemonSet":
            return f"has no effect here; write it into {elsewhere}"
        return "has no effect: it is for NodePools and DaemonSets"
    if key in _OF_PODS:
        return f"has no effect here; write it into {elsewhere}"
    hint = did_you_mean(key, _OF_DAEMONSETS | _OF_PODS)
    return f"not an annotation of nodesmith{hint}; it has no effect" if hint else ""


def _remedy(key: str, value: object) -> str:
    """Return what would be right, empty if the annotation is."""
    if key == NODE_SURCHARGE:
        try:
            read_surcharge(value if isinstance(value, str) else "")
        except ValueError as error:
            return str(error)
    return split_fault(key, value) if key in _OF_PODS else ""


def _annotations(manifest: Any) -> Mapping[str, Any]:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    raw_annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return (
        {str(key): value for key, value in raw_annotations.items()}
        if isinstance(raw_annotations, Mapping)
        else {}
    )
