"""Findings: a fault, and whether it is an error or a warning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodesmith.model.karpenter.conversion.converting import KINDS
from nodesmith.model.schema.nodepools import NODE_OVERLAY
from nodesmith_formats.manifests.manifests import Fault

OURS = frozenset((*(kind for _, kind in KINDS), NODE_OVERLAY.name))
"""Karpenter's kinds, of every API version."""


class Finding(NamedTuple):
    """A fault that must be fixed (an error) or reviewed (a warning)."""

    fault: Fault
    is_error: bool = True

    def __str__(self) -> str:
        return f"{'error' if self.is_error else 'warning'}: {self.fault}"


def warning(fault: Fault) -> Finding:
    """Return a warning."""
    return Finding(fault, is_error=False)


def in_order(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Return findings sorted by file and line, without duplicates."""
    seen = dict.fromkeys(findings)
    files = {finding.fault.file: number for number, finding in reversed(list(enumerate(seen)))}
    return iter(sorted(seen, key=lambda f: (files[f.fault.file], f.fault.line, not f.is_error)))
