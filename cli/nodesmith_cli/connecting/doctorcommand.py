"""The implementation of `nodesmith doctor`: the checks of connect, and the health of a connected cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nodesmith.errors import Rejected
from nodesmith.model.ledger.commitments import EXPIRING
from nodesmith.registration import parameter_name, read_registration
from nodesmith_cli.connecting import printing
from nodesmith_cli.connecting.checks.capacity import QuotaReading, quota_findings, subnet_findings
from nodesmith_cli.connecting.checks.findings import Finding, error, info, of_observed, warning, worst_first
from nodesmith_cli.connecting.checks.rights import rights_findings
from nodesmith_cli.connecting.checks.workloads import budget_findings, budgets_of, pool_findings
from nodesmith_cli.connecting.inspection import Environment, Inspection, inspect_cluster
from nodesmith_cli.connecting.reading.cluster import forwarders_pods
from nodesmith_cli.connecting.request import ConnectRequest, is_observed, readable, registration
from nodesmith_cli.connecting.steps.actions import ResourceState
from nodesmith_cli.connecting.waiting import (
    FRESH,
    Snapshots,
    SnapshotVersion,
    log_of_observation,
    missing_because,
)
from nodesmith_cli.costs.commitments import commitments_of
from nodesmith_cli.costs.limits import NEARLY_PERCENT, limit_lines, limit_reports, read_region
from nodesmith_cli.output.printing import IS_TEXT, WIDE, print_report
from nodesmith_cli.sharing.findings import Severity
from nodesmith_formats.decisions.records import Bucket
from nodesmith_formats.kubernetes.objects import is_true
from nodesmith_formats.wording import span

FINE, FOUND = 0, 1


def doctor(cluster: str, environment: Environment, output: str) -> int:
    """Check a cluster, and print the findings. Returns 0 if there is nothing to fix, else 1.

    Raises Rejected, Transient.
    """
    request = ConnectRequest(cluster, observes=None)
    with printing.working("examining the account and the cluster"):
        seen = inspect_cluster(request, environment, is_to_keep_image=True)
        further = list(_further(request, seen, environment))
        if is_observed(request, seen.account):
            further = of_observed(further, cluster)
        findings = worst_first([*seen.findings, *further])
    if output in IS_TEXT and findings:
        printing.print_rows([], findings, is_wide=output == WIDE)
    else:
        report = {"cluster": cluster, "region": environment.region, "findings": printing.as_items(findings)}
        names = dict.fromkeys(finding.object for finding in findings)
        print_report(report, [f"no problems found in {cluster}"], output, names=names, schema="doctor")
    return FOUND if any(finding.severity is not Severity.INFO for finding in findings) else FINE


def _further(request: ConnectRequest, inspection: Inspection, environment: Environment) -> Iterator[Finding]:
    account = inspection.account
    parameter = account.parameter if account.parameter is not None else account.watched
    if parameter is None:
        yield error(
            "registration",
            f"registration {parameter_name(request.cluster)}",
            "does not exist: the cluster is not served",
            f"nodesmith connect {request.cluster}",
        )
    else:
        is_watched = account.parameter is None
        yield from _registration(
            request.cluster, parameter, parameter_name(request.cluster, observed=is_watched)
        )
        yield from _disconnected(request.cluster, inspection)
    yield from subnet_findings(account)
    yield from quota_findings(QuotaReading(environment.client, environment.region).quotas(), account.region)
    if inspection.reading is None:
        return
    yield from budget_findings(budgets_of(inspection.server))
    yield from pool_findings(inspection.reading.ownership, account.region)
    if parameter is None:
        return
    yield from rights_findings(
        inspection.server, [obj.manifest for obj in inspection.reading.objects], request.cluster
    )
    if account.stack is not None and account.stack.bucket:
        snapshots = Snapshots(environment.client, account.stack.bucket, request.cluster)
        reached_from = registration(request, account).reached_from
        yield from _forwarder(inspection, snapshots.newest(), reached_from, environment.clock())
        yield from _commitments(environment, account.stack.bucket)
        yield from _spending_limits(environment)


def _commitments(environment: Environment, bucket: str) -> Iterator[Finding]:
    """Yield what could not be read of commitments, and those that end soon."""
    book, now = (
        commitments_of(environment.region, Bucket(environment.client("s3"), bucket)).book,
        environment.clock(),
    )
    for fault in book.faults:
        remedy = (
            "give the catalog function the right, or correct commitments in cdk.json; see docs/commitments.md"
        )
        yield warning("commitments", "commitments of the account", f"cannot be read: {fault}", remedy)
    for commitment in book.commitments:
        if now < commitment.ends <= now + EXPIRING:
            yield info(
                "commitments",
                f"{commitment.kind} {commitment.id}",
                f"ends at {commitment.ends:%Y-%m-%d %H:%M} UTC",
            )


def _spending_limits(environment: Environment) -> Iterator[Finding]:
    """Yield how much of each SpendingLimit is used: a warning from 80 % on."""
    region, why_not = read_region(environment.client("dynamodb"))
    if region is None:
        remedy = "let the caller read it (dynamodb:BatchGetItem)"
        yield warning("limits", "SpendingLimits", f"cannot be read: {why_not}", remedy)
        return
    for report in limit_reports(region, environment.clock()):
        (line,) = limit_lines([report])
        message = line.removeprefix(report["name"]).removeprefix(":").strip()
        if "fault" in report:
            yield warning(
                "limits", report["name"], message, "write its SSM parameter again; see docs/limits.md"
            )
        elif report["percent"] >= NEARLY_PERCENT:
            remedy = "raise the limit, or see which nodes cost the most: nodesmith status"
            yield warning("limits", report["name"], message, remedy)
        else:
            yield info("limits", report["name"], message)


def _registration(cluster: str, text: str, name: str) -> Iterator[Finding]:
    try:
        read_registration(cluster, text)
    except Rejected as fault:
        where = f"registration {name}"
        if readable(cluster, text) is None:
            remedy = f"nodesmith connect {cluster}, which rewrites it"
            yield error("registration", where, str(fault), remedy)
        else:
            remedy = "a later version may have written it: update nodesmith, or remove it from the parameter"
            yield warning("registration", where, str(fault), remedy)


def _disconnected(cluster: str, inspection: Inspection) -> Iterator[Finding]:
    """Yield an error for each resource that connect would create or change."""
    for row in inspection.due:
        state = "is missing" if row.standing is ResourceState.MADE else "differs from this release"
        detail = f"{state}: {row.detail}" if row.detail else state
        yield error("connection", row.object, detail, f"nodesmith connect {cluster}")


def _forwarder(
    inspection: Inspection, snapshot: SnapshotVersion | None, reached_from: str, now: datetime
) -> Iterator[Finding]:
    bucket = "snapshot of the cluster"
    log = log_of_observation(reached_from)
    if snapshot is None:
        yield error("snapshot", bucket, "none has been written", f"check the observation function: {log}")
    elif now - snapshot.at > FRESH:
        age = span(round((now - snapshot.at).total_seconds()))
        detail = f"the newest is {age} old: neither the forwarder nor the observation function updates it"
        yield error("snapshot", bucket, detail, f"check the observation function: {log}")
    if inspection.reading is not None and inspection.reading.image and not is_running(inspection):
        *causes, remedy = missing_because(inspection.server, reached_from)
        yield warning("forwarder", "forwarder", "; ".join(causes) or "has no pod", remedy)


def is_running(inspection: Inspection) -> bool:
    """Return whether a pod of the forwarder is ready."""
    return any(is_true(pod, "Ready") for pod in forwarders_pods(inspection.server))
