"""Validation of the references from NodePools to EC2NodeClasses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith_cli.manifests.validating.findings import Finding
from nodesmith_formats.manifests.manifests import Document


def class_findings(pools_there: Mapping[str, Document], classes: Mapping[str, Document]) -> Iterator[Finding]:
    """Yield a finding for each NodePool whose EC2NodeClass is missing: a warning if the files contain none at all."""
    for document in pools_there.values():
        field = "spec.template.spec.nodeClassRef.name"
        name = _named(document)
        if name and name not in classes:
            hint = did_you_mean(name, frozenset(classes))
            there = hint or f"; found: {', '.join(sorted(classes)) or 'none in these files'}"
            kinds = "EC2NodeClass or AWSNodeTemplate" if document.original else "EC2NodeClass"
            message = f"is {name!r}: no such {kinds}{there}"
            yield Finding(document.fault(message, field), is_error=bool(classes))


def _named(document: Document) -> str:
    spec = document.manifest.get("spec") or {}
    try:
        return str(spec["template"]["spec"]["nodeClassRef"]["name"])
    except (KeyError, TypeError):
        return ""
