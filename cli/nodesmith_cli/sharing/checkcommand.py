"""The implementation of `nodesmith check-cluster`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith_cli.output.printing import print_report
from nodesmith_cli.output.progress import progress
from nodesmith_cli.sharing.findings import Finding, Severity, findings, overlay
from nodesmith_cli.sharing.ownership import read_ownership

OK, ERRORS = 0, 1


def check_cluster(server: ApiServer, output: str, now: datetime) -> int:
    """Print what other software manages; return 1 if something must change. Raises Transient, Rejected."""
    with progress("reading the cluster", key="survey"):
        ownership = read_ownership(server, now)
    found, folder = findings(ownership), overlay(ownership)
    report = {"overlay": folder, "findings": [asdict(finding) for finding in found]}
    print_report(report, _lines(found, folder), output, schema="check")
    return ERRORS if any(finding.severity is Severity.ERROR for finding in found) else OK


def _lines(all_findings: Sequence[Finding], folder: str) -> Iterator[str]:
    for finding in all_findings:
        yield f"{finding.severity:<8} {finding.message}"
        if finding.remedy:
            yield f"         {finding.remedy}"
    if not all_findings:
        yield "no other software serves NodePools in this cluster"
    yield f"to install or update: kubectl apply -k {folder}"
