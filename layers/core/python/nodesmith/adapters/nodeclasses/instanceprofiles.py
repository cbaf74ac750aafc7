"""The instance profiles that nodesmith creates from the role of an EC2NodeClass."""

from __future__ import annotations

import hashlib
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import DENIED, error_code, error_message
from nodesmith.model.apimachinery.labels import NODECLASS, REGION
from nodesmith.model.karpenter.ownership import CLUSTER_TAG, owned_tag, tag_list
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import Unresolved
from nodesmith.settings import PROFILE_HASH_LENGTH


def profile_name(nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Return the name of the profile for a NodeClass's role.

    Another role has another profile, so that existing nodes keep theirs.
    """
    identity = "\0".join((region, cluster, nodeclass.uid or nodeclass.name, _bare(nodeclass.role)))
    return f"{cluster}_{hashlib.sha256(identity.encode()).hexdigest()[:PROFILE_HASH_LENGTH]}"


def profile_path(cluster: str, region: str) -> str:
    """Return the IAM path of all profiles of a cluster. Each EC2NodeClass has a subpath named after its uid."""
    return f"/nodesmith/{region}/{cluster}/"


def ensure_profile(iam: Any, nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Create a tagged profile that holds the NodeClass's role, if it does not exist, and return its name.

    Raises Unresolved if the role does not exist or nodesmith may not use it.
    """
    name, role = profile_name(nodeclass, cluster, region), _bare(nodeclass.role)
    if not role:
        raise Unresolved(
            "RoleNotFound", f"spec.role {nodeclass.role!r} names no role: name an IAM role of this account"
        )
    try:
        held = _role_in(iam, name, nodeclass, cluster, region)
        if not held:
            iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    except ClientError as error:
        code = error_code(error)
        if code in DENIED:
            remedy = "let nodesmith's role create instance profiles and pass this role, or set spec.instanceProfile"
            raise Unresolved("Unauthorized", f"role {role}: {error_message(error)}: {remedy}") from error
        if code in {"NoSuchEntity", "ValidationError"}:
            remedy = "name an IAM role of this account"
            raise Unresolved(
                "RoleNotFound", f"spec.role {nodeclass.role!r}: {error_message(error)}: {remedy}"
            ) from error
        if code == "LimitExceeded":
            # Another run has just added the role. A profile holds only one.
            return name
        raise
    if held and held != role:
        raise Unresolved(
            "RoleMismatch",
            f"instance profile {name} holds role {held} instead of {role}: somebody else has changed it; run aws iam "
            f"remove-role-from-instance-profile --instance-profile-name {name} --role-name {held}",
        )
    return name


def _role_in(iam: Any, name: str, nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Return the role that the profile holds. Create the profile if it does not exist; it holds no role yet."""
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
    """Return a role name without its path, as IAM accepts and returns it."""
    return role.rpartition("/")[2]
