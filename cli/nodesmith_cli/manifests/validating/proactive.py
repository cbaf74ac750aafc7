"""The annotation for proactive scale-up: values that mean nothing, and places where it has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith.model.apimachinery.problems import at, did_you_mean, shown
from nodesmith.model.kubernetes.podannotations import PROACTIVE
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_formats.manifests.manifests import Document

_LEFT_OUT = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job"})
_NEAR = PROACTIVE.rpartition("-scale-up")[0]


def proactive_findings(document: Document) -> Iterator[Finding]:
    """Yield a finding if the annotation, or one that looks like it, has no effect as it is written."""
    metadata: Any = document.manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    for key, value in sorted((annotations if isinstance(annotations, Mapping) else {}).items()):
        if str(key).startswith(_NEAR):
            remedy = _remedy(str(key), value, str(document.manifest["kind"]))
            if remedy:
                yield warning(
                    document.fault(f"is {shown(value)}: {remedy}", at("metadata.annotations", str(key)))
                )


def _remedy(key: str, value: object, kind: str) -> str:
    """Return what would be right, empty if the annotation is."""
    if key != PROACTIVE:
        return f"has no meaning{did_you_mean(key, {PROACTIVE})}"
    if kind == "Namespace":
        return "" if value in ("true", "false") else 'must be "true" or "false"; the namespace is left out'
    if kind not in _LEFT_OUT:
        return "has no effect here; write it onto the Namespace"
    if value == "true":
        return (
            'has no effect here; write it onto the Namespace. A workload can only be left out, with "false"'
        )
    return "" if value == "false" else 'must be "false", which leaves the workload out; it is ignored'
