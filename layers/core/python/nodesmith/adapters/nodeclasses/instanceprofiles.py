"""The instance profile that gives nodes their role: taken as named, or made from the role and kept."""

from __future__ import annotations

import hashlib
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.errors import DENIED, error_code, error_message
from nodesmith.adapters.nodeclasses.unresolved import Unresolved
from nodesmith.model.apimachinery.labels import NODECLASS, REGION
from nodesmith.model.karpenter.instancetags import CLUSTER_TAG, owned_tag, tag_list
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.settings import PROFILE_HASH_LENGTH


def profile_name(nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Name the profile of a NodeClass's role. A changed role is another profile: nodes of the old one keep theirs."""
    identity = "\0".join((region, cluster, nodeclass.uid or nodeclass.name, _bare(nodeclass.role)))
    return f"{cluster}_{hashlib.sha256(identity.encode()).hexdigest()[:PROFILE_HASH_LENGTH]}"


def profile_path(cluster: str, region: str) -> str:
    """Return the path under which all profiles of a cluster are, one folder per EC2NodeClass, by its uid."""
    return f"/nodesmith/{region}/{cluster}/"


def ensure_profile(iam: Any, nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Return the name of a profile that holds the NodeClass's role, made and tagged if need be. Idempotent.

    Raises Unresolved for a role that does not exist, or that we may not use.
    """
    name, role = profile_name(nodeclass, cluster, region), _bare(nodeclass.role)
    if not role:
        raise Unresolved(
            "RoleNotFound", f"spec.role {nodeclass.role!r} names no role: name an IAM role of this account"
        )
    try:
        if _role_in(iam, name, nodeclass, cluster, region) != role:
            iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    except ClientError as error:
        code = error_code(error)
        if code in DENIED:
            remedy = (
                "let nodesmith's role make instance profiles and pass this role, or set spec.instanceProfile"
            )
            raise Unresolved("Unauthorized", f"role {role}: {error_message(error)}: {remedy}") from error
        if code in {"NoSuchEntity", "ValidationError"}:
            remedy = "name an IAM role of this account"
            raise Unresolved(
                "RoleNotFound", f"spec.role {nodeclass.role!r}: {error_message(error)}: {remedy}"
            ) from error
        if code == "LimitExceeded":
            # Somebody beside us has just put the role in: a profile holds one.
            return name
        raise
    return name


def _role_in(iam: Any, name: str, nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """The role that the profile holds, empty when it is new."""
    try:
        profile = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    except ClientError as error:
        if error_code(error) != "NoSuchEntity":
            raise
        _create(iam, name, nodeclass, cluster, region)
        return ""
    return next((str(role["RoleName"]) for role in profile["Roles"]), "")


def _create(iam: Any, name: str, nodeclass: EC2NodeClass, cluster: str, region: str) -> None:
    tags = {
        **nodeclass.tags,
        owned_tag(cluster): "owned",
        CLUSTER_TAG: cluster,
        NODECLASS: nodeclass.name,
        REGION: region,
    }
    path = f"{profile_path(cluster, region)}{nodeclass.uid or nodeclass.name}/"
    try:
        iam.create_instance_profile(InstanceProfileName=name, Path=path, Tags=tag_list(tags))
    except ClientError as error:
        if error_code(error) != "EntityAlreadyExists":
            raise


def _bare(role: str) -> str:
    """IAM takes and gives role names without their path."""
    return role.rpartition("/")[2]
