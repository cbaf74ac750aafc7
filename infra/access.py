"""Who may speak with whose API server, and for whom the forwarder speaks."""

from __future__ import annotations

from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import names
from infra.grants import attach
from infra.permissions import Scope, metrics_reading_grant, send_grant, write_grant
from nodesmith.settings import WOKEN, snapshot_key

# As forwarder/ names them.
FORWARDER_NAMESPACE = "nodesmith"
FORWARDER_SERVICE_ACCOUNT = "nodesmith-forwarder"


def access_entry(scope: Construct, cluster: str, role: iam.IRole, group: str) -> None:
    """Let a function's role into the API server, as a member of one group; RBAC says what that group may do."""
    eks.CfnAccessEntry(
        scope,
        "AccessEntry",
        cluster_name=cluster,
        principal_arn=role.role_arn,
        kubernetes_groups=[group],
        type="STANDARD",
    )


def forwarder_access(construct: Construct, scope: Scope) -> iam.Role:
    """Make the forwarder's role and give it to its service account.

    It writes one object, wakes its own queues, and reads what the functions have counted for Prometheus.
    """
    role = iam.Role(construct, "Forwarder", assumed_by=_forwarder(scope))
    snapshot = write_grant(scope.region, snapshot_key(scope.cluster))
    attach(role, [snapshot, send_grant(scope, *WOKEN), metrics_reading_grant(scope)])
    eks.CfnPodIdentityAssociation(
        construct,
        "ForwarderIdentity",
        cluster_name=scope.cluster,
        namespace=FORWARDER_NAMESPACE,
        service_account=FORWARDER_SERVICE_ACCOUNT,
        role_arn=role.role_arn,
    )
    return role


def _forwarder(scope: Scope) -> iam.IPrincipal:
    """The forwarder's pod and no other, by the tags that EKS Pod Identity puts on the session."""
    tags = {
        "eks-cluster-arn": names.cluster_arn(scope.region, scope.cluster),
        "eks-cluster-name": scope.cluster,
        "kubernetes-namespace": FORWARDER_NAMESPACE,
        "kubernetes-service-account": FORWARDER_SERVICE_ACCOUNT,
    }
    conditions = {"StringEquals": {f"aws:RequestTag/{key}": value for key, value in tags.items()}}
    return iam.ServicePrincipal("pods.eks.amazonaws.com", conditions=conditions).with_session_tags()
