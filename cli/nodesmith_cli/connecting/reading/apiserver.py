"""Reaching the API server of the named EKS cluster, and of no other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from nodesmith.adapters.aws.eks import EksToken
from nodesmith.adapters.kubernetes.apiserver import connect
from nodesmith.errors import Rejected, Transient
from nodesmith_cli.access.kubeconfigs import configuration, connection, has_current_context
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.observed import Cluster

PATIENCE_SECONDS = 30.0
_READ_SECONDS = 15.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_POLICY = "eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def api_server(
    cluster: Cluster,
    region: str,
    credentials: Callable[[], Any],
    clock: Callable[[], datetime],
    *,
    kubeconfig: str = "",
    context: str = "",
) -> Applier:
    """Return a cluster's API server: through the given kubeconfig, a matching current context, or an EKS token.

    Raises Rejected if the given kubeconfig is for another API server.
    """
    if kubeconfig or context:
        server = configuration(kubeconfig, context)
        if not is_same(server.host, cluster.endpoint):
            option = f"--kubeconfig {kubeconfig}" if kubeconfig else f"--context {context}"
            raise Rejected(
                f"{option} is for the API server {server.host}, but cluster {cluster.name} in {region} has "
                f"{cluster.endpoint}: run `aws eks update-kubeconfig --region {region} --name {cluster.name}`, "
                "or omit the option"
            )
        return Applier(connection(server), PATIENCE_SECONDS)
    if has_current_context():
        current = None
        with suppress(Rejected):  # this context was not requested
            current = configuration("", "")
        if current is not None and is_same(current.host, cluster.endpoint):
            return Applier(connection(current), PATIENCE_SECONDS)
    token = EksToken(credentials(), cluster.name, region, clock)
    return Applier(connect(cluster.endpoint, cluster.ca_bundle, token), PATIENCE_SECONDS)


def is_same(host: str, endpoint: str) -> bool:
    """Return whether two URLs point to the same API server."""
    ours, theirs = urlsplit(host.strip()), urlsplit(endpoint.strip())
    return (ours.hostname, ours.port or 443) == (theirs.hostname, theirs.port or 443) and bool(ours.hostname)


def refuse_without_rights(server: Applier, cluster: Cluster, region: str, caller: str) -> None:
    """Raise Rejected unless the API server is reachable and the caller has full access to it."""
    review = {"spec": {"resourceAttributes": {"group": "*", "resource": "*", "verb": "*"}}}
    try:
        status, response = server.ask("POST", _REVIEWS, review, read_seconds=_READ_SECONDS)
    except Transient as error:
        private = "" if cluster.is_public else " Its endpoint is private: run this command inside its VPC."
        raise Rejected(f"the API server of {cluster.name} cannot be reached: {error}.{private}") from None
    if status < 300 and (response.get("status") or {}).get("allowed"):
        return
    name = f"aws eks --region {region}"
    principal = principal_of(caller)
    how = "does not know you" if status == 401 else "does not give you full access"
    raise Rejected(
        f"cluster {cluster.name} {how}, {principal}: ask an administrator to run `{name} create-access-entry "
        f"--cluster-name {cluster.name} --principal-arn {principal}` and `{name} associate-access-policy "
        f"--cluster-name {cluster.name} --principal-arn {principal} --access-scope type=cluster --policy-arn "
        f"{principal.partition(':iam:')[0]}:{_POLICY}`"
    )


def principal_of(caller: str) -> str:
    """Return the role ARN of an assumed-role session, as access entries use it. The role's path is unknown."""
    head, _, rest = caller.partition(":assumed-role/")
    return f"{head.replace(':sts:', ':iam:')}:role/{rest.partition('/')[0]}" if rest else caller
