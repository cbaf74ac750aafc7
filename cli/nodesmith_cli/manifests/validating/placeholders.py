"""Placeholders that a shell or Terraform should have replaced, as in the commands of Karpenter's guide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodesmith.model.apimachinery.problems import at
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_formats.manifests.manifests import Document

_PLACEHOLDER = re.compile(r"\$\{[\w.\[\]-]+\}|<[A-Za-z][\w -]*>")
_SCRIPTS = frozenset({"userData"})
"""Fields that may contain such text."""


def placeholder_findings(document: Document) -> Iterator[Finding]:
    """Yield a warning for each field of a Karpenter object that contains an unreplaced placeholder."""
    for field, text in _texts(document.manifest.get("spec"), "spec"):
        match = _PLACEHOLDER.search(text)
        if match:
            yield warning(document.fault(f"contains the unreplaced placeholder {match[0]}", field))


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
