"""The grants that can cost money or nodes: launching, instance profiles, terminating. The cluster's tags bind them.

The statements are those that Karpenter's users know (its controller policy), less what nodesmith does not call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra import names
from infra.grants import Grant

CREATED = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
NO_IDS_YET = "ids are EC2's to give; the tags are a condition"
NODE_CHOICE = "which images, subnets and groups is for the cluster's EC2NodeClasses to say"

Conditions = Mapping[str, Mapping[str, object]]


def launch_grants(cluster: str, region: str, node_roles: Sequence[str]) -> list[Grant]:
    """Launch instances that carry the cluster's tags, from templates that carry them, with the named node roles."""
    created = tuple(names.arn("ec2", f"{kind}/*", region=region) for kind in CREATED)
    tags = _tagged("Request", cluster)
    return [
        Grant("LaunchOn", ("ec2:CreateFleet", "ec2:RunInstances"), _chosen(region), wildcard=NODE_CHOICE),
        Grant(
            "LaunchFromTemplate",
            ("ec2:CreateFleet", "ec2:RunInstances"),
            (names.arn("ec2", "launch-template/*", region=region),),
            _tagged("Resource", cluster),
            NO_IDS_YET,
        ),
        Grant(
            "LaunchTagged",
            ("ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:RunInstances"),
            created,
            tags,
            NO_IDS_YET,
        ),
        Grant("TagAtLaunch", ("ec2:CreateTags",), created, _while_creating(tags), NO_IDS_YET),
        pass_role_grant(node_roles),
    ]


def terminate_grant(cluster: str, region: str) -> Grant:
    """End instances that carry the cluster's tags, and those of a NodePool."""
    instances = (names.arn("ec2", "instance/*", region=region),)
    return Grant(
        "Terminate", ("ec2:TerminateInstances",), instances, _tagged("Resource", cluster), NO_IDS_YET
    )


def instance_profile_grants(cluster: str, region: str, node_roles: Sequence[str]) -> list[Grant]:
    """Make the instance profiles of the cluster's EC2NodeClasses: in the cluster's own path, with its tags."""
    made = names.arn("iam", f"instance-profile/nodesmith/{region}/{cluster}/*")
    missing = names.arn("iam", f"instance-profile/{cluster}_*")  # IAM knows the path of what exists only
    why = "one profile per EC2NodeClass and role, made at run time"
    return [
        Grant(
            "MakeProfile",
            ("iam:CreateInstanceProfile", "iam:TagInstanceProfile"),
            (made,),
            _profile_tags("Request", cluster, region),
            why,
        ),
        Grant(
            "FillProfile",
            ("iam:AddRoleToInstanceProfile",),
            (made,),
            _profile_tags("Resource", cluster, region),
            why,
        ),
        Grant("ReadProfile", ("iam:GetInstanceProfile",), (made, missing), wildcard=why),
        pass_role_grant(node_roles),
    ]


def pass_role_grant(node_roles: Sequence[str]) -> Grant:
    """Give the named roles, and no others, to instances, and to nothing but instances."""
    return Grant(
        "PassNodeRole",
        ("iam:PassRole",),
        tuple(names.role_arn(role) for role in node_roles),
        {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
    )


def _chosen(region: str) -> tuple[str, ...]:
    """What an EC2NodeClass chooses from. ARNs of images and snapshots name no account."""
    foreign = tuple(
        names.arn("ec2", f"{kind}/*", region=region, account="") for kind in ("image", "snapshot")
    )
    shared = names.arn("ec2", "capacity-reservation/*", region=region, account="*")  # others may share theirs
    return (
        *foreign,
        shared,
        *(names.arn("ec2", f"{kind}/*", region=region) for kind in ("security-group", "subnet")),
    )


def _tagged(whose: str, cluster: str) -> Conditions:
    """Require the cluster's tags, of the request or of the resource."""
    owner = {
        f"aws:{whose}Tag/kubernetes.io/cluster/{cluster}": "owned",
        f"aws:{whose}Tag/eks:eks-cluster-name": cluster,
    }
    return {"StringEquals": owner, "StringLike": {f"aws:{whose}Tag/karpenter.sh/nodepool": "*"}}


def _profile_tags(whose: str, cluster: str, region: str) -> Conditions:
    owner = {
        f"aws:{whose}Tag/kubernetes.io/cluster/{cluster}": "owned",
        f"aws:{whose}Tag/eks:eks-cluster-name": cluster,
        f"aws:{whose}Tag/topology.kubernetes.io/region": region,
    }
    return {"StringEquals": owner, "StringLike": {f"aws:{whose}Tag/karpenter.k8s.aws/ec2nodeclass": "*"}}


def _while_creating(tags: Conditions) -> Conditions:
    """Narrow to tags given in the call that creates: what exists already can not be tagged into the cluster."""
    creating = {"ec2:CreateAction": ["CreateFleet", "CreateLaunchTemplate", "RunInstances"]}
    return {**tags, "StringEquals": {**tags["StringEquals"], **creating}}
