"""NodePools with the EC2NodeClasses that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodesmith.model.apimachinery.spelling import did_you_mean
from nodesmith_cli.local.manifests import Document
from nodesmith_cli.validating.findings import Finding


def class_findings(pools_there: Mapping[str, Document], classes: Mapping[str, Document]) -> Iterator[Finding]:
    """Yield which NodePools name an EC2NodeClass that is not there; a cluster may hold it where the files hold none."""
    for document in pools_there.values():
        field = "spec.template.spec.nodeClassRef.name"
        name = _named(document)
        if name and name not in classes:
            hint = did_you_mean(name, frozenset(classes))
            there = hint or f", there is {', '.join(sorted(classes)) or 'none in these files'}"
            kinds = "EC2NodeClass or AWSNodeTemplate" if document.was else "EC2NodeClass"
            message = f"is {name!r}: no such {kinds}{there}"
            yield Finding(document.fault(message, field), is_error=bool(classes))


def _named(document: Document) -> str:
    spec = document.manifest.get("spec") or {}
    try:
        return str(spec["template"]["spec"]["nodeClassRef"]["name"])
    except (KeyError, TypeError):
        return ""
