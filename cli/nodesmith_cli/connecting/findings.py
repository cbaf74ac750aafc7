"""What is found wrong, by connect and doctor: how bad, at which object, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nodesmith_cli.sharing.findings import Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `check` names it for programs, `remedy` is empty where nothing need be done."""

    check: str
    severity: Severity
    object: str
    found: str
    remedy: str = ""


def error(check: str, object: str, found: str, remedy: str = "") -> Finding:  # noqa: A002 (the field's name)
    """Make a finding that has to be mended before nodesmith serves the cluster."""
    return Finding(check, Severity.ERROR, object, found, remedy)


def warning(check: str, object: str, found: str, remedy: str = "") -> Finding:  # noqa: A002
    """Make a finding to think about."""
    return Finding(check, Severity.WARNING, object, found, remedy)


def info(check: str, object: str, found: str, remedy: str = "") -> Finding:  # noqa: A002
    """Make a finding that asks for nothing."""
    return Finding(check, Severity.INFO, object, found, remedy)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Order findings by severity, otherwise as they came."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))
