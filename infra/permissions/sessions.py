"""Sessions: to work for a cluster, a function assumes its own role again, with the cluster's name as a session tag.

IAM substitutes the tags of the calling session in the statements, so one role serves all clusters while each session
reaches one. Without a session, a function reads registrations and messages, and can change nothing in any cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aws_cdk import aws_iam as iam

from infra import names
from infra.permissions.grants import Conditions, Grant
from nodesmith.registration import CANARY_PARAMETER, CLUSTER_TAG, PARAMETERS, VPC_TAG
from nodesmith.settings import CANARY_ALIAS, DEAD_LETTER_QUEUE_NAME, QUEUE_NAME, TALKING

CLUSTER = f"${{aws:PrincipalTag/{CLUSTER_TAG}}}"
"""IAM replaces this with the cluster of the calling session. Without a session, a statement matches nothing."""
VPC = f"${{aws:PrincipalTag/{VPC_TAG}}}"
"""IAM replaces this with the id of the VPC of that cluster's nodes."""
FORWARDERS_CLUSTER = "${aws:PrincipalTag/eks-cluster-name}"
"""The same for the forwarder, whose sessions EKS Pod Identity tags."""
_MARK = f"aws:PrincipalTag/{CLUSTER_TAG}"
IN_SESSION: Conditions = {"Null": {_MARK: "false"}}
OUTSIDE: Conditions = {"Null": {_MARK: "true"}}
_REQUESTED: Conditions = {
    "StringLike": {f"aws:RequestTag/{CLUSTER_TAG}": "?*", f"aws:RequestTag/{VPC_TAG}": "vpc-*"},
    "ForAllValues:StringEquals": {"aws:TagKeys": [CLUSTER_TAG, VPC_TAG]},
}
_POLLING = ("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")


def in_session(grants: Iterable[Grant]) -> list[Grant]:
    """Restrict grants to the session of a cluster.

    A grant that names the session's cluster matches nothing outside one and gets no condition: IAM limits policy size.
    """
    return [grant if _names_cluster(grant) else grant.with_conditions(IN_SESSION) for grant in grants]


def outside_sessions(grants: Iterable[Grant]) -> list[Grant]:
    """Restrict grants to the function itself and to Lambda; no cluster's session has them."""
    return [grant.with_conditions(OUTSIDE) for grant in grants]


def own_grants(role_arn: str, region: str, paths: Iterable[str] = (PARAMETERS,)) -> list[Grant]:
    """Read registrations and start a session for a cluster: the own permissions of every cluster concern's function."""
    registrations = tuple(names.arn("ssm", f"parameter{path}/*", region=region) for path in paths)
    canaries = names.arn("ssm", f"parameter{CANARY_PARAMETER}", region=region)
    return [
        Grant("WorkForCluster", ("sts:AssumeRole", "sts:TagSession"), (role_arn,)),
        Grant(
            "Registrations",
            ("ssm:GetParameters",),
            (*registrations, canaries),
            wildcard="each cluster has its own parameter",
        ),
    ]


def poll_grant(region: str) -> Grant:
    """Receive messages from the region's queue, which Lambda does on the function's behalf."""
    return Grant("Poll", _POLLING, (names.queue_arn(region, QUEUE_NAME),))


def wake_grant(
    region: str, vpcs: Sequence[str], *concerns: str, itself: tuple[str, str] | None = None
) -> Grant:
    """Invoke the functions of these concerns, also those in the region's VPCs: a cluster may be reached from any.

    A function that calls API servers invokes others that do so only in its own place: it serves no other clusters.
    `itself` is a concern and the VPC of its function, which may hand clusters to a release of itself on trial.
    """
    places = [itself[1]] if itself is not None and itself[0] in TALKING else ["", *vpcs]
    arns = [
        names.function_arn(region, concern, vpc)
        for concern in concerns
        for vpc in (places if concern in TALKING else [""])
    ]
    if itself is not None:
        arns.append(names.function_arn(region, *itself, CANARY_ALIAS))
    return Grant("Wake", ("lambda:InvokeFunction",), tuple(arns))


def send_grant(region: str, *, delays: bool) -> Grant:
    """Send events that a function failed on for good, as Lambda does on its behalf; `delays` adds the waiting queue."""
    queues = (DEAD_LETTER_QUEUE_NAME, QUEUE_NAME) if delays else (DEAD_LETTER_QUEUE_NAME,)
    return Grant("Send", ("sqs:SendMessage",), tuple(names.queue_arn(region, queue) for queue in queues))


def trust_itself(role: iam.Role, role_arn: str) -> None:
    """Let the role start sessions of itself, each named after and tagged with one cluster. No session starts another.

    A condition identifies the role, because a role cannot be a principal before it exists. The session name is a
    condition of AssumeRole only: IAM does not document it for TagSession, and both actions must be allowed.
    """
    itself: Conditions = {"ArnEquals": {"aws:PrincipalArn": role_arn}, **OUTSIDE, **_REQUESTED}
    session_name = {"StringEquals": {"sts:RoleSessionName": f"${{aws:RequestTag/{CLUSTER_TAG}}}"}}
    document = role.assume_role_policy
    assert document is not None  # noqa: S101 - a role that was not imported has one
    for action, conditions in (("sts:AssumeRole", {**itself, **session_name}), ("sts:TagSession", itself)):
        statement = iam.PolicyStatement(
            actions=[action],
            principals=[iam.AccountRootPrincipal()],
            conditions={operator: dict(keys) for operator, keys in conditions.items()},
        )
        document.add_statements(statement)


def _names_cluster(grant: Grant) -> bool:
    """Return whether a grant matches only in the session of a cluster: by all its resources, or by a condition."""
    expected = [values for keys in grant.conditions.values() for values in keys.values()]
    lists = [values if isinstance(values, list) else [values] for values in expected]
    return any(all(CLUSTER in str(value) for value in values) for values in (grant.resources, *lists))
