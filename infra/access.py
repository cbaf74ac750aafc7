"""Access to API servers: which functions may call which cluster's, and which role the forwarder has."""

from __future__ import annotations

from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import names
from infra.functions.concerns import CLUSTER_CONCERNS
from infra.permissions.clusters import Scope, forwarder_grants
from infra.permissions.grants import make_role

# The names that forwarder/ uses.
FORWARDER_NAMESPACE = "nodesmith"
FORWARDER_SERVICE_ACCOUNT = "nodesmith-forwarder"


def access_entries(scope: Construct, region: str, cluster: str, vpc: str) -> None:
    """Grant the functions that call the API server access to it, as users that RBAC binds; `vpc` is where they run."""
    for concern in CLUSTER_CONCERNS:
        if concern.calls_api_server:
            eks.CfnAccessEntry(
                scope,
                f"AccessEntry-{concern.name}",
                cluster_name=cluster,
                principal_arn=names.own_role_arn(concern.name, region, vpc),
                username=concern.kubernetes_user,
                type="STANDARD",
            )


def forwarder_identity(scope: Construct, region: str, cluster: str) -> None:
    """Associate the forwarder's service account in a cluster with the forwarder's role."""
    eks.CfnPodIdentityAssociation(
        scope,
        "ForwarderIdentity",
        cluster_name=cluster,
        namespace=FORWARDER_NAMESPACE,
        service_account=FORWARDER_SERVICE_ACCOUNT,
        role_arn=names.own_role_arn("forwarder", region),
    )


def forwarder_role(scope: Construct, grant_scope: Scope) -> iam.Role:
    """Make the role that all forwarders of a region share; each session reaches only its own cluster's items."""
    name = names.role_name("forwarder", grant_scope.region)
    return make_role(scope, "Forwarder", name, _forwarders(grant_scope.region), forwarder_grants(grant_scope))


def _forwarders(region: str) -> iam.IPrincipal:
    """Return the forwarder's pods in this account's clusters and no others, by the tags that EKS puts on sessions."""
    pods = {
        "aws:RequestTag/kubernetes-namespace": FORWARDER_NAMESPACE,
        "aws:RequestTag/kubernetes-service-account": FORWARDER_SERVICE_ACCOUNT,
    }
    clusters = {"aws:RequestTag/eks-cluster-arn": names.cluster_arn(region, "*")}
    conditions = {"StringEquals": pods, "ArnLike": clusters}
    return iam.ServicePrincipal("pods.eks.amazonaws.com", conditions=conditions).with_session_tags()
