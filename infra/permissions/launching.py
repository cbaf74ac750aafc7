"""The grants that can cost money or nodes: launch, instance profiles, terminate. The cluster's tags restrict them.

The statements follow Karpenter's controller policy, without the calls that nodesmith does not make. The cluster is the
session's. IAM allows no variables in condition keys, so the values of tags restrict the grants, and not the tag
`kubernetes.io/cluster/<name>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws

from infra import names
from infra.permissions.grants import Conditions, Grant
from infra.permissions.sessions import CLUSTER, VPC
from nodesmith.registration import default_node_role
from nodesmith.settings import PROFILE_HASH_LENGTH

LAUNCHED = ("fleet", "instance", "volume", "network-interface", "spot-instances-request")
NO_IDS_YET = "EC2 chooses the ids; the tags are a condition"
PER_NODECLASS = "one profile per EC2NodeClass and role, created at run time"
NODE_CHOICE = "the cluster's EC2NodeClasses choose the images, subnets and groups"
LAUNCHING = ("ec2:CreateFleet", "ec2:RunInstances")
# The actions that EBS requires of a launch with a volume that is encrypted with a customer managed key.
EBS_KEY_USES = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


def launch_grants(
    region: str, node_roles: Sequence[str], nodepool: str = "*", *, starts: bool = False
) -> list[Grant]:
    """Launch instances with the cluster's tags, from templates with the cluster's tags, with its node roles.

    `nodepool` restricts the NodePool in their tags; by default any is allowed. With `starts`, instances that have been
    launched so may also be started. Both are in one statement, since a role's statements may have 10,240 characters: a
    launch has no instance that already has tags.
    Instances launch only in the cluster's VPC, which may belong to another account that shares it with this one.
    """
    launched = tuple(names.arn("ec2", f"{kind}/*", region=region) for kind in LAUNCHED)
    templates = (names.arn("ec2", "launch-template/*", region=region),)
    tags = _has_tags("Request", nodepool)
    return [
        Grant("LaunchOn", LAUNCHING, _selectable_arns(region), wildcard=NODE_CHOICE),
        _vpc_grant(region),
        Grant(
            "LaunchFrom",
            (*LAUNCHING, "ec2:StartInstances") if starts else LAUNCHING,
            (*templates, names.arn("ec2", "instance/*", region=region)) if starts else templates,
            _has_tags("Resource", nodepool),
            NO_IDS_YET,
        ),
        Grant("Tagged", LAUNCHING, launched, tags, NO_IDS_YET),
        Grant("Template", ("ec2:CreateLaunchTemplate",), templates, tags, NO_IDS_YET),
        Grant(
            "TagNew",
            ("ec2:CreateTags",),
            (*launched, *templates),
            _while_creating(tags),
            NO_IDS_YET,
        ),
        pass_role_grant(node_roles),
    ]


def _vpc_grant(region: str) -> Grant:
    """Return the grant to launch into the cluster's VPC: its subnets and security groups, whichever account owns them.

    Subnets and security groups have the condition key `ec2:Vpc`; its value names the account that owns the VPC. New
    network interfaces need no condition of their own: they are in one of these subnets.
    """
    kinds = ("security-group", "subnet")
    return Grant(
        "InVpc",
        LAUNCHING,
        tuple(names.arn("ec2", f"{kind}/*", region=region, account="*") for kind in kinds),
        {"ArnLike": {"ec2:Vpc": names.arn("ec2", f"vpc/{VPC}", region=region, account="*")}},
        NODE_CHOICE,
    )


def volume_key_grants(region: str, kms_key_arns: Sequence[str]) -> list[Grant]:
    """Return the grants to launch nodes whose volumes are encrypted with these customer managed keys, through EC2 only.

    EBS creates a KMS grant on the key for each instance, in the name of the principal that launches it.
    """
    if not kms_key_arns:
        return []
    keys, service = tuple(kms_key_arns), {"kms:ViaService": f"ec2.{region}.{Aws.URL_SUFFIX}"}
    for_volumes = {"StringEquals": service, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        Grant("UseKeys", EBS_KEY_USES, keys, {"StringEquals": service}),
        Grant("GiveKeys", ("kms:CreateGrant",), keys, for_volumes),
    ]


def tag_grant(region: str) -> Grant:
    """Return the grant to tag the instances that nodesmith launched for the cluster with their NodeClaim and Name.

    Instances that one call launched for several NodeClaims get these tags after the launch. No other tag may be
    changed, so no instance can be tagged into or out of the cluster.
    """
    keys = {"aws:TagKeys": ["Name", "karpenter.sh/nodeclaim"]}
    return Grant(
        "TagInstances",
        ("ec2:CreateTags",),
        (names.arn("ec2", "instance/*", region=region),),
        {**_has_tags("Resource"), "ForAllValues:StringEquals": keys},
        NO_IDS_YET,
    )


def terminate_grant(region: str) -> Grant:
    """Return the grant to terminate the instances that nodesmith launched for the cluster.

    Karpenter's instances carry all of these tags except nodesmith's own.
    """
    instances = (names.arn("ec2", "instance/*", region=region),)
    return Grant("Terminate", ("ec2:TerminateInstances",), instances, _has_tags("Resource"), NO_IDS_YET)


def stop_grant(region: str) -> Grant:
    """Return the grant to stop the instances that nodesmith launched for the cluster: warm capacity."""
    instances = (names.arn("ec2", "instance/*", region=region),)
    return Grant("Stop", ("ec2:StopInstances",), instances, _has_tags("Resource"), NO_IDS_YET)


def collection_grants(region: str) -> list[Grant]:
    """Terminate and delete the cluster's resources. The tag that only nodesmith sets is also a condition.

    Karpenter's resources carry all the other tags.
    """
    kinds = ("instance", "launch-template", "network-interface", "volume")
    actions = (
        "ec2:DeleteLaunchTemplate",
        "ec2:DeleteNetworkInterface",
        "ec2:DeleteVolume",
        "ec2:TerminateInstances",
    )
    return [
        Grant(
            "Collect",
            actions,
            tuple(names.arn("ec2", f"{kind}/*", region=region) for kind in kinds),
            _has_tags("Resource"),
            NO_IDS_YET,
        ),
        Grant(
            "CollectProfiles",
            ("iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"),
            (_cluster_profiles(region),),
            _profile_tags("Resource", region),
            PER_NODECLASS,
        ),
        _read_profile_grant(region),
        Grant(
            "ListProfiles",
            ("iam:ListInstanceProfiles",),
            ("*",),
            wildcard="IAM's list calls support no resource-level permissions",
        ),
    ]


def instance_profile_grants(region: str) -> list[Grant]:
    """Make the instance profiles of the cluster's EC2NodeClasses: in the cluster's own path, with its tags.

    `pass_role_grant`, which is among the launch grants, restricts the roles that they may hold.
    """
    profiles = _cluster_profiles(region)
    return [
        Grant(
            "MakeProfile",
            ("iam:CreateInstanceProfile", "iam:TagInstanceProfile"),
            (profiles,),
            _profile_tags("Request", region),
            PER_NODECLASS,
        ),
        Grant(
            "FillProfile",
            ("iam:AddRoleToInstanceProfile",),
            (profiles,),
            _profile_tags("Resource", region),
            PER_NODECLASS,
        ),
        _read_profile_grant(region),
    ]


def _cluster_profiles(region: str) -> str:
    return names.arn("iam", f"instance-profile/nodesmith/{region}/{CLUSTER}/*")


def _read_profile_grant(region: str) -> Grant:
    """Read a profile, including one that does not exist: IAM knows the path only of existing profiles."""
    missing = names.arn("iam", f"instance-profile/{CLUSTER}_{'?' * PROFILE_HASH_LENGTH}")
    resources = (_cluster_profiles(region), missing)
    return Grant("ReadProfile", ("iam:GetInstanceProfile",), resources, wildcard=PER_NODECLASS)


def pass_role_grant(node_roles: Sequence[str]) -> Grant:
    """Return the grant to pass the cluster's own role and the named ones, no others, to instances and nothing else."""
    return Grant(
        "PassRole",
        ("iam:PassRole",),
        tuple(names.role_arn(role) for role in (default_node_role(CLUSTER), *node_roles)),
        {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
    )


def _selectable_arns(region: str) -> tuple[str, ...]:
    """Return the ARNs that an EC2NodeClass may choose from in any account. Image and snapshot ARNs name no account."""
    foreign = tuple(
        names.arn("ec2", f"{kind}/*", region=region, account="") for kind in ("image", "snapshot")
    )
    kinds = "capacity-reservation", "placement-group"  # other accounts may share theirs
    shared = tuple(names.arn("ec2", f"{kind}/*", region=region, account="*") for kind in kinds)
    return (*foreign, *shared)


def _has_tags(target: str, nodepool: str = "*") -> Conditions:
    """Require the cluster's tags and a NodePool's, on the request or on the resource (`target`).

    Karpenter's instances carry all of these tags except nodesmith's own.
    """
    owner = {
        f"aws:{target}Tag/{key}": CLUSTER for key in ("eks:eks-cluster-name", "nodesmith.dev/managed-by")
    }
    return {"StringEquals": owner, "StringLike": {f"aws:{target}Tag/karpenter.sh/nodepool": nodepool}}


def _profile_tags(target: str, region: str) -> Conditions:
    owner = {
        f"aws:{target}Tag/eks:eks-cluster-name": CLUSTER,
        f"aws:{target}Tag/topology.kubernetes.io/region": region,
    }
    return {"StringEquals": owner, "StringLike": {f"aws:{target}Tag/karpenter.k8s.aws/ec2nodeclass": "*"}}


def _while_creating(tags: Conditions) -> Conditions:
    """Restrict the grant to tags set by the creating call: no existing resource can be tagged into the cluster."""
    return _and_equals(tags, {"ec2:CreateAction": ["CreateFleet", "CreateLaunchTemplate", "RunInstances"]})


def _and_equals(tags: Conditions, keys: Mapping[str, Any]) -> Conditions:
    return {**tags, "StringEquals": {**tags["StringEquals"], **keys}}
