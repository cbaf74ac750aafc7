"""What is found: a fault, and whether the objects are of no use with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodesmith.model.conversion.converting import KINDS
from nodesmith_cli.local.manifests import Fault

OURS = frozenset(kind for _, kind in KINDS)
"""Karpenter's kinds, of every age."""


class Finding(NamedTuple):
    """One thing to mend (an error) or to think about (a warning)."""

    fault: Fault
    is_error: bool = True

    def __str__(self) -> str:
        return f"{'error' if self.is_error else 'warning'}: {self.fault}"


def warning(fault: Fault) -> Finding:
    """Make a warning."""
    return Finding(fault, is_error=False)


def in_order(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Return findings by file and line, each once."""
    seen = dict.fromkeys(findings)
    files = {finding.fault.file: number for number, finding in reversed(list(enumerate(seen)))}
    return iter(sorted(seen, key=lambda f: (files[f.fault.file], f.fault.line, not f.is_error)))
