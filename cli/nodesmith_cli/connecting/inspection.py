"""Reading an account and a cluster, and deriving the problems and the actions. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodesmith.adapters.aws.eks import dns_suffix
from nodesmith.errors import Rejected
from nodesmith_cli.access.awssession import Client
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.checks.findings import Finding, error, of_observed, worst_first
from nodesmith_cli.connecting.checks.network import cni_of, network_findings
from nodesmith_cli.connecting.checks.problems import inside_problems, problems
from nodesmith_cli.connecting.images import image_in_registry
from nodesmith_cli.connecting.manifests import Served, manifests
from nodesmith_cli.connecting.observed import Account, Cluster, ClusterReading
from nodesmith_cli.connecting.reading.apiserver import api_server, refuse_without_rights
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.connecting.reading.cluster import image_of, look_inside, ownership_of
from nodesmith_cli.connecting.request import ConnectRequest, is_observed, registration
from nodesmith_cli.connecting.steps.actions import ReplaceEntry, Row
from nodesmith_cli.connecting.steps.connect import rows
from nodesmith_cli.sharing.findings import Severity


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a command: AWS and its region, credentials, the API server, and time.

    `kubeconfig` and `context` are the options of the command, or empty.
    """

    client: Client
    region: str
    credentials: Callable[[], Any]
    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    kubeconfig: str = ""
    context: str = ""

    def server(self, cluster: Cluster) -> Applier:
        """Return the API server of a cluster. Raises Rejected."""
        return api_server(
            cluster,
            self.region,
            self.credentials,
            self.clock,
            kubeconfig=self.kubeconfig,
            context=self.context,
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state that connect has read, with the problems and actions derived from it."""

    account: Account
    server: Applier
    reading: ClusterReading | None
    findings: Sequence[Finding]
    rows: Sequence[Row]

    @property
    def is_blocked(self) -> bool:
        """True if an error must be fixed first."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def due(self) -> list[Row]:
        """The rows with an action."""
        return [row for row in self.rows if row.action is not None]


def inspect_cluster(
    request: ConnectRequest, environment: Environment, *, is_to_keep_image: bool = False
) -> Inspection:
    """Read account and cluster, and return problems and actions. Changes nothing. Raises Rejected, Transient.

    With `is_to_keep_image`, an installed forwarder may have any image.
    """
    inspection = _look(request, environment, is_to_keep_image=is_to_keep_image)
    if not is_observed(request, inspection.account):
        return inspection
    return replace(inspection, findings=of_observed(inspection.findings, request.cluster))


def _look(request: ConnectRequest, environment: Environment, *, is_to_keep_image: bool) -> Inspection:
    account = AwsReading(environment.client, environment.region).account(request)
    server = environment.server(account.cluster)
    findings_so_far = list(problems(request, account))
    try:
        refuse_without_rights(server, account.cluster, environment.region, account.caller)
    except Rejected as refusal:
        findings_so_far.append(error("kubernetes-rights", f"cluster {request.cluster}", str(refusal)))
        return Inspection(account, server, None, worst_first(findings_so_far), [])
    image = (is_to_keep_image and image_of(server)) or _image(request, environment, server)
    if not image:
        findings_so_far.append(_without_image(account))
    inside = _inside(request, account, server, image, environment.clock())
    if not is_observed(request, account):
        findings_so_far += inside_problems(account, inside)
        findings_so_far += network_findings(cni_of(server), registration(request, account).settings, account)
    planned = rows(request, account, inside)
    findings_so_far += _of_cdk(account, planned)
    return Inspection(account, server, inside, worst_first(findings_so_far), planned)


def _inside(
    request: ConnectRequest, account: Account, server: Applier, image: str, now: datetime
) -> ClusterReading:
    ownership = ownership_of(server, now)
    stack = account.stack
    if stack is None or stack.missing:
        return ClusterReading(ownership)
    registered = registration(request, account)
    served = Served(
        account.cluster.name,
        account.region,
        stack.bucket,
        stack.table_name,
        registered.reached_from,
        image,
        is_observed(request, account),
        registered.settings.get("ALLOCATION_LABELS", ""),
    )
    return look_inside(server, manifests(served, shared_crds=not ownership.has_foreign_crds), ownership)


def _image(request: ConnectRequest, environment: Environment, server: Applier) -> str:
    return request.image or image_in_registry(environment.client) or image_of(server)


def _without_image(account: Account) -> Finding:
    return error(
        "image",
        "image of the forwarder",
        "the repository nodesmith-forwarder of this account and region has none of this version",
        f"nodesmith connect {account.cluster.name} --push {registry_of(account)}/nodesmith-forwarder, or --image IMAGE",
    )


def registry_of(account: Account) -> str:
    """Return the host name of the account's ECR registry."""
    return f"{account.account}.dkr.ecr.{account.region}.{dns_suffix(account.region)}"


def _of_cdk(account: Account, planned: Sequence[Row]) -> Iterator[Finding]:
    """Yield an error if connect would change resources that a CloudFormation stack manages."""
    made = ("registration", "access entry of nodesmith", "Pod Identity association")
    due = [row for row in planned if row.action is not None and row.object.startswith(made)]
    if account.cdk_stack and due:
        command, stack = ".venv/bin/python -m infra.cdk", account.cdk_stack
        remedy = (
            f"change `clusters` in cdk.json, then run {command} deploy {stack}; or remove the cluster there and "
            "destroy the stack"
        )
        if any(isinstance(row.action, ReplaceEntry) for row in due):  # CloudFormation would see no change
            remedy = f"run {command} destroy {stack}, then {command} deploy {stack}"
        names = ", ".join(row.object for row in due)
        detail = f"manages the cluster's AWS resources, but these are missing or differ: {names}"
        yield error("cdk", f"stack {stack}", detail, remedy)
