"""The grants that can cost money or nodes: launching, instance profiles, terminating. The cluster's tags bind them.

The statements are those that Karpenter's users know (its controller policy), less what nodesmith does not call. The
cluster is the session's. IAM knows no variables in the names of keys, so the values of tags bind, and not the tag
`kubernetes.io/cluster/<name>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws

from infra import names
from infra.grants import Conditions, Grant
from infra.sessions import CLUSTER, VPC
from nodesmith.settings import PROFILE_HASH_LENGTH

LAUNCHED = ("fleet", "instance", "volume", "network-interface", "spot-instances-request")
NO_IDS_YET = "ids are EC2's to give; the tags are a condition"
PER_NODECLASS = "one profile per EC2NodeClass and role, made at run time"
NODE_CHOICE = "which images, subnets and groups is for the cluster's EC2NodeClasses to say"
LAUNCHING = ("ec2:CreateFleet", "ec2:RunInstances")
# What EBS asks of whoever launches an instance with a volume that is encrypted with a customer managed key.
EBS_KEY_USES = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


def launch_grants(region: str, node_roles: Sequence[str], nodepool: str = "*") -> list[Grant]:
    """Launch instances that carry the cluster's tags, from templates that carry them, with its node roles.

    `nodepool` is the only one that they may be tagged with, if it is not any.
    They are launched in the cluster's VPC only, which may belong to another account and be shared with this one.
    """
    launched = tuple(names.arn("ec2", f"{kind}/*", region=region) for kind in LAUNCHED)
    templates = (names.arn("ec2", "launch-template/*", region=region),)
    tags = _tagged("Request", nodepool)
    return [
        Grant("LaunchOn", LAUNCHING, _chosen(region), wildcard=NODE_CHOICE),
        _vpc_grant(region),
        Grant("LaunchFromTemplate", LAUNCHING, templates, _tagged("Resource", nodepool), NO_IDS_YET),
        Grant("LaunchTagged", LAUNCHING, launched, tags, NO_IDS_YET),
        Grant("MakeTemplate", ("ec2:CreateLaunchTemplate",), templates, tags, NO_IDS_YET),
        Grant(
            "TagAtLaunch",
            ("ec2:CreateTags",),
            (*launched, *templates),
            _while_creating(tags),
            NO_IDS_YET,
        ),
        pass_role_grant(node_roles),
    ]


def _vpc_grant(region: str) -> Grant:
    """Return the grant to launch into the cluster's VPC: its subnets and security groups, whichever account owns them.

    Subnets and security groups carry `ec2:Vpc`; its value names the account that owns the VPC. New network interfaces
    need no condition of their own: they are in one of these subnets.
    """
    kinds = ("security-group", "subnet")
    return Grant(
        "LaunchInVpc",
        LAUNCHING,
        tuple(names.arn("ec2", f"{kind}/*", region=region, account="*") for kind in kinds),
        {"ArnLike": {"ec2:Vpc": names.arn("ec2", f"vpc/{VPC}", region=region, account="*")}},
        NODE_CHOICE,
    )


def volume_key_grants(region: str, kms_key_arns: Sequence[str]) -> list[Grant]:
    """Return the grants to launch nodes whose volumes are encrypted with these customer managed keys, through EC2 only.

    EBS gives each instance a grant of its own on the key, in the name of whoever launches it.
    """
    if not kms_key_arns:
        return []
    keys, service = tuple(kms_key_arns), {"kms:ViaService": f"ec2.{region}.{Aws.URL_SUFFIX}"}
    for_volumes = {"StringEquals": service, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        Grant("UseVolumeKeys", EBS_KEY_USES, keys, {"StringEquals": service}),
        Grant("GiveVolumeKeys", ("kms:CreateGrant",), keys, for_volumes),
    ]


def tag_grant(region: str) -> Grant:
    """Return the grant to name the instances that nodesmith made for the cluster: their NodeClaim and their Name.

    Instances that one call launched for several NodeClaims get these tags later. No other tag may be changed, so no
    instance can be tagged into the cluster or out of it.
    """
    keys = {"aws:TagKeys": ["Name", "karpenter.sh/nodeclaim"]}
    return Grant(
        "TagInstances",
        ("ec2:CreateTags",),
        (names.arn("ec2", "instance/*", region=region),),
        {**_tagged("Resource"), "ForAllValues:StringEquals": keys},
        NO_IDS_YET,
    )


def terminate_grant(region: str) -> Grant:
    """Return the grant to terminate the instances that nodesmith made for the cluster.

    Karpenter's instances carry all the tags but nodesmith's own.
    """
    instances = (names.arn("ec2", "instance/*", region=region),)
    return Grant("Terminate", ("ec2:TerminateInstances",), instances, _tagged("Resource"), NO_IDS_YET)


def collection_grants(region: str) -> list[Grant]:
    """End and delete what nodesmith made for the cluster: the tag that only it gives is a condition as well.

    What Karpenter made carries all the others.
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
            _tagged("Resource"),
            NO_IDS_YET,
        ),
        Grant(
            "CollectProfiles",
            ("iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"),
            (_made_profiles(region),),
            _profile_tags("Resource", region),
            PER_NODECLASS,
        ),
        _read_profile_grant(region),
        Grant(
            "ListProfiles",
            ("iam:ListInstanceProfiles",),
            ("*",),
            wildcard="IAM's list calls know no resources",
        ),
    ]


def instance_profile_grants(region: str) -> list[Grant]:
    """Make the instance profiles of the cluster's EC2NodeClasses: in the cluster's own path, with its tags.

    Which roles may be put into them says `pass_role_grant`, which is among the grants to launch.
    """
    made = _made_profiles(region)
    return [
        Grant(
            "MakeProfile",
            ("iam:CreateInstanceProfile", "iam:TagInstanceProfile"),
            (made,),
            _profile_tags("Request", region),
            PER_NODECLASS,
        ),
        Grant(
            "FillProfile",
            ("iam:AddRoleToInstanceProfile",),
            (made,),
            _profile_tags("Resource", region),
            PER_NODECLASS,
        ),
        _read_profile_grant(region),
    ]


def _made_profiles(region: str) -> str:
    return names.arn("iam", f"instance-profile/nodesmith/{region}/{CLUSTER}/*")


def _read_profile_grant(region: str) -> Grant:
    """Look at a profile, also at one that is not there: IAM knows the path of what exists only."""
    missing = names.arn("iam", f"instance-profile/{CLUSTER}_{'?' * PROFILE_HASH_LENGTH}")
    resources = (_made_profiles(region), missing)
    return Grant("ReadProfile", ("iam:GetInstanceProfile",), resources, wildcard=PER_NODECLASS)


def node_role(cluster: str) -> str:
    """Name the role that a cluster's nodes may have without being named for the region."""
    return f"KarpenterNodeRole-{cluster}"


def pass_role_grant(node_roles: Sequence[str]) -> Grant:
    """Return the cluster's own role, the named ones, and no others, to instances, and to nothing but instances."""
    return Grant(
        "PassNodeRole",
        ("iam:PassRole",),
        tuple(names.role_arn(role) for role in (node_role(CLUSTER), *node_roles)),
        {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
    )


def _chosen(region: str) -> tuple[str, ...]:
    """What an EC2NodeClass chooses from, wherever it is. ARNs of images and snapshots name no account."""
    foreign = tuple(
        names.arn("ec2", f"{kind}/*", region=region, account="") for kind in ("image", "snapshot")
    )
    shared = names.arn("ec2", "capacity-reservation/*", region=region, account="*")  # others may share theirs
    return (*foreign, shared)


def _tagged(whose: str, nodepool: str = "*") -> Conditions:
    """Require the cluster's tags and a NodePool's, of the request or of the resource.

    Karpenter's instances carry all these tags but nodesmith's own.
    """
    owner = {f"aws:{whose}Tag/{key}": CLUSTER for key in ("eks:eks-cluster-name", "nodesmith.dev/managed-by")}
    return {"StringEquals": owner, "StringLike": {f"aws:{whose}Tag/karpenter.sh/nodepool": nodepool}}


def _profile_tags(whose: str, region: str) -> Conditions:
    owner = {
        f"aws:{whose}Tag/eks:eks-cluster-name": CLUSTER,
        f"aws:{whose}Tag/topology.kubernetes.io/region": region,
    }
    return {"StringEquals": owner, "StringLike": {f"aws:{whose}Tag/karpenter.k8s.aws/ec2nodeclass": "*"}}


def _while_creating(tags: Conditions) -> Conditions:
    """Narrow to tags given in the call that creates: what exists already can not be tagged into the cluster."""
    return _and_equals(tags, {"ec2:CreateAction": ["CreateFleet", "CreateLaunchTemplate", "RunInstances"]})


def _and_equals(tags: Conditions, more: Mapping[str, Any]) -> Conditions:
    return {**tags, "StringEquals": {**tags["StringEquals"], **more}}
