"""Cluster Autoscaler's annotations on pods and Nodes: values that cannot be read, wrong places, and no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith.model.apimachinery.problems import at, did_you_mean, shown
from nodesmith.model.karpenter.conversion.labels import TEMPLATES
from nodesmith.model.kubernetes.podannotations import DAEMON_EVICTION, SCALE_UP_DELAY, scale_up_delay
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_formats.manifests.manifests import Document

_DOMAIN = "cluster-autoscaler.kubernetes.io/"
_SAFE = f"{_DOMAIN}safe-to-evict"
_LOCAL = f"{_DOMAIN}safe-to-evict-local-volumes"
_DISABLED = f"{_DOMAIN}scale-down-disabled"
_OF_PODS = frozenset({SCALE_UP_DELAY, DAEMON_EVICTION, _SAFE, _LOCAL})
_OF_NODES = frozenset({_DISABLED})
_BOOLEAN = frozenset({DAEMON_EVICTION, _SAFE, _DISABLED})


def autoscaler_findings(document: Document) -> Iterator[Finding]:
    """Yield a finding for each of the annotations that has no effect as it is written."""
    kind, manifest = str(document.manifest["kind"]), document.manifest
    own = _annotations(manifest)
    if kind == "Node":
        yield from _of_object(document, "metadata.annotations", own, _OF_NODES)
    elif kind == "Pod":
        yield from _of_object(document, "metadata.annotations", own, _OF_PODS)
    elif kind in TEMPLATES:
        place = f"{TEMPLATES[kind]}.metadata.annotations"
        for key in sorted(_OF_PODS & own.keys()):
            field = at("metadata.annotations", key)
            yield _finding(document, field, own[key], f"has no effect here; write it into {place}")
        template: Any = manifest
        for part in TEMPLATES[kind].split("."):
            template = template.get(part) if isinstance(template, Mapping) else None
        yield from _of_object(document, place, _annotations(template), _OF_PODS)


def _of_object(
    document: Document, place: str, annotations: Mapping[str, Any], known_keys: frozenset[str]
) -> Iterator[Finding]:
    for key in sorted(key for key in annotations if str(key).startswith(_DOMAIN)):
        remedy = _remedy(
            key, annotations[key], known_keys, is_daemon=document.manifest["kind"] == "DaemonSet"
        )
        if remedy:
            yield _finding(document, at(place, key), annotations[key], remedy)


def _remedy(key: str, value: object, known_keys: frozenset[str], *, is_daemon: bool) -> str:
    """Return what would be right, empty if the annotation is."""
    if key not in known_keys:
        hint = (
            did_you_mean(key, known_keys)
            or f"; those with a meaning here are {', '.join(sorted(known_keys))}"
        )
        return f"has no meaning here{hint}"
    if key in _BOOLEAN and value not in ("true", "false"):
        return 'must be "true" or "false"; it is ignored'
    if key == SCALE_UP_DELAY and (not isinstance(value, str) or scale_up_delay(value) is None):
        return "must be a duration such as 5m or 1h30m; it is ignored, and a node is bought at once"
    if key == DAEMON_EVICTION and not is_daemon:
        return "has no effect: it is for pods of DaemonSets"
    if key == _LOCAL:
        return "is not needed: local volumes never keep a pod from eviction here"
    return ""


def _annotations(manifest: Any) -> Mapping[str, Any]:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    raw_annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return raw_annotations if isinstance(raw_annotations, Mapping) else {}


def _finding(document: Document, field: str, value: object, remedy: str) -> Finding:
    return warning(document.fault(f"is {shown(value)}: {remedy}", field))
