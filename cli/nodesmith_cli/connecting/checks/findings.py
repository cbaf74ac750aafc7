"""Findings of connect and doctor: their severity, object, and the command that fixes the problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nodesmith_cli.sharing.findings import Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `check` is its machine-readable name. `remedy` is empty if there is nothing to do."""

    check: str
    severity: Severity
    object: str
    found: str
    remedy: str = ""


def error(check: str, object: str, found: str, remedy: str = "") -> Finding:  # noqa: A002 (the field's name)
    """Return a finding that must be fixed before nodesmith can serve the cluster."""
    return Finding(check, Severity.ERROR, object, found, remedy)


def warning(check: str, object: str, found: str, remedy: str = "") -> Finding:  # noqa: A002
    """Return a finding that needs attention."""
    return Finding(check, Severity.WARNING, object, found, remedy)


def info(check: str, object: str, found: str) -> Finding:  # noqa: A002
    """Return a finding that needs no action."""
    return Finding(check, Severity.INFO, object, found)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted by severity, the worst first. The sort is stable."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def of_observed(findings: Iterable[Finding], cluster: str) -> list[Finding]:
    """Return the findings with remedies that leave the cluster observed: connect alone would have it served."""
    served = f"nodesmith connect {cluster}"
    return [
        replace(finding, remedy=finding.remedy.replace(served, f"{served} --observe")) for finding in findings
    ]
