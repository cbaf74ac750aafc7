"""What a shell or Terraform should have filled in, as in the commands of Karpenter's guide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodesmith.model.schema.reports import at
from nodesmith_cli.local.manifests import Document
from nodesmith_cli.validating.findings import Finding, warning

_PLACEHOLDER = re.compile(r"\$\{[\w.\[\]-]+\}|<[A-Za-z][\w -]*>")
_SCRIPTS = frozenset({"userData"})
"""Fields of which such words may be a part."""


def placeholder_findings(document: Document) -> Iterator[Finding]:
    """Yield which fields of one of Karpenter's objects hold a name where its value was to be."""
    for field, text in _texts(document.manifest.get("spec"), "spec"):
        found = _PLACEHOLDER.search(text)
        if found:
            yield warning(document.fault(f"holds {found[0]}, which nobody has filled in", field))


def _texts(value: object, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _SCRIPTS:
                yield from _texts(inner, at(field, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{field}[{number}]")
