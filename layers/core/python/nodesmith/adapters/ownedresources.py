"""Resources other than instances that nodesmith creates for a cluster: instance profiles, and listing and removing all.

They are found by nodesmith's tags, or in IAM by nodesmith's path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from typing import Any, assert_never

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import (
    DENIED,
    as_transient,
    error_code,
    error_message,
    rows,
    transient_errors,
)
from nodesmith.adapters.ec2.instances import describe_filter, ours
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.labels import NODECLASS, REGION
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.karpenter.ownership import (
    CLUSTER_TAG,
    KEEP_VOLUMES_TAG,
    NODECLAIM_TAG,
    owned_tag,
    tag_list,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import Unresolved
from nodesmith.settings import PROFILE_HASH_LENGTH, Settings

Client = Callable[[str], Any]
Description = dict[str, Any]
_GONE = frozenset(
    "InvalidLaunchTemplateId.NotFound InvalidLaunchTemplateName.NotFoundException InvalidVolume.NotFound "
    "InvalidNetworkInterfaceID.NotFound NoSuchEntity".split()
)


def listed(kind: OwnedKind, client: Client, settings: Settings) -> list[Owned]:
    """Return the cluster's resources of one kind. Raises Transient, also for a denied call."""
    made_by_us = ours(settings.cluster_name)
    detached = [*made_by_us, describe_filter("status", "available")]
    with as_transient(f"listing of kind {kind}"):
        match kind:
            case OwnedKind.LAUNCH_TEMPLATE:
                interfaces = rows(
                    client("ec2"), "describe_launch_templates", "LaunchTemplates", Filters=made_by_us
                )
                return [_template(template) for template in interfaces]
            case OwnedKind.VOLUME:
                volumes = rows(client("ec2"), "describe_volumes", "Volumes", Filters=detached)
                return [_volume(volume) for volume in volumes if KEEP_VOLUMES_TAG not in _tags(volume)]
            case OwnedKind.NETWORK_INTERFACE:
                call, key = "describe_network_interfaces", "NetworkInterfaces"
                interfaces = rows(client("ec2"), call, key, Filters=detached)
                return [
                    Owned(kind, interface["NetworkInterfaceId"], claim=_claim(interface))
                    for interface in interfaces
                ]
            case OwnedKind.INSTANCE_PROFILE:
                return list(_profiles(client, settings))
            case _:
                assert_never(kind)


def remove(owned: Owned, client: Client) -> None:
    """Delete one resource. One that is already gone is ignored.

    Raises Transient, also if the resource is in use or nodesmith lacks the permission.
    """
    try:
        with transient_errors(f"deletion of {owned.kind} {owned.id}"):
            _remove(owned, client)
    except ClientError as error:
        code = error_code(error)
        if code not in _GONE:
            message = f"{code}: {error_message(error)}"
            raise Transient(f"deletion of {owned.kind} {owned.id}: {message}", code) from error


def _remove(owned: Owned, client: Client) -> None:
    match owned.kind:
        case OwnedKind.LAUNCH_TEMPLATE:
            client("ec2").delete_launch_template(LaunchTemplateId=owned.id)
        case OwnedKind.VOLUME:
            client("ec2").delete_volume(VolumeId=owned.id)
        case OwnedKind.NETWORK_INTERFACE:
            client("ec2").delete_network_interface(NetworkInterfaceId=owned.id)
        case OwnedKind.INSTANCE_PROFILE:
            iam, name = client("iam"), {"InstanceProfileName": owned.id}
            # IAM does not delete a profile that holds a role. After a crash the role may already have been removed.
            for role in iam.get_instance_profile(**name)["InstanceProfile"]["Roles"]:
                iam.remove_role_from_instance_profile(**name, RoleName=role["RoleName"])
            iam.delete_instance_profile(**name)
        case _:
            assert_never(owned.kind)


def _profiles(client: Client, settings: Settings) -> Iterator[Owned]:
    if settings.isolated_vpc:  # IAM is unreachable, so no profile was created
        return
    prefix = profile_path(settings.cluster_name, settings.region)
    for profile in rows(client("iam"), "list_instance_profiles", "InstanceProfiles", PathPrefix=prefix):
        # The path proves ownership, so check it here instead of relying on the filter alone.
        if profile["Path"].startswith(prefix):
            yield _profile(profile, profile["Path"].removeprefix(prefix).strip("/"))


def _profile(profile: Description, owner_uid: str) -> Owned:
    name, made_at = profile["InstanceProfileName"], profile["CreateDate"].astimezone(UTC)
    return Owned(OwnedKind.INSTANCE_PROFILE, name, name, made_at, owner_uid=owner_uid)


def _template(template: Description) -> Owned:
    id_, name = template["LaunchTemplateId"], template["LaunchTemplateName"]
    return Owned(OwnedKind.LAUNCH_TEMPLATE, id_, name, template["CreateTime"].astimezone(UTC))


def _volume(volume: Description) -> Owned:
    made_at = volume["CreateTime"].astimezone(UTC)
    return Owned(OwnedKind.VOLUME, volume["VolumeId"], created_at=made_at, claim=_claim(volume))


def _claim(resource: Description) -> str:
    return _tags(resource).get(NODECLAIM_TAG, "")


def _tags(resource: Description) -> dict[str, str]:
    tags = resource.get("TagSet") or resource.get("Tags") or ()  # network interfaces have a TagSet
    return {tag["Key"]: tag["Value"] for tag in tags}


def profile_name(nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Return the name of the profile for a NodeClass's role.

    Another role has another profile, so that existing nodes keep theirs.
    """
    identity = "\0".join((region, cluster, nodeclass.uid or nodeclass.name, bare_role_name(nodeclass.role)))
    return f"{cluster}_{hashlib.sha256(identity.encode()).hexdigest()[:PROFILE_HASH_LENGTH]}"


def profile_path(cluster: str, region: str) -> str:
    """Return the IAM path of all profiles of a cluster. Each EC2NodeClass has a subpath named after its uid."""
    return f"/nodesmith/{region}/{cluster}/"


def ensure_profile(iam: Any, nodeclass: EC2NodeClass, cluster: str, region: str) -> str:
    """Create a tagged profile that holds the NodeClass's role, if it does not exist, and return its name.

    Raises Unresolved if the role does not exist or nodesmith may not use it.
    """
    name, role = profile_name(nodeclass, cluster, region), bare_role_name(nodeclass.role)
    if not role:
        raise Unresolved(
            "RoleNotFound", f"spec.role {nodeclass.role!r} names no role: name an IAM role of this account"
        )
    try:
        current_role = _role_in(iam, name, nodeclass, cluster, region)
        if not current_role:
            iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    except ClientError as error:
        code = error_code(error)
        if code in DENIED:
            remedy = "let nodesmith's role create instance profiles and pass this role, or set spec.instanceProfile"
            raise Unresolved("Unauthorized", f"role {role}: {error_message(error)}: {remedy}") from error
        if code == "ValidationError" and (tag := _tag_that_iam_refuses(nodeclass.tags)) is not None:
            raise Unresolved(
                "TagValidationFailed",
                f"spec.tags[{tag!r}]: the tags are also put on an instance profile, and IAM allows only letters, "
                "digits, spaces and _ . : / = + - @ in them: rewrite this one, or set spec.instanceProfile",
            ) from error
        if code in {"NoSuchEntity", "ValidationError"}:
            remedy = "name an IAM role of this account"
            raise Unresolved(
                "RoleNotFound", f"spec.role {nodeclass.role!r}: {error_message(error)}: {remedy}"
            ) from error
        if code == "LimitExceeded" and error.operation_name == "AddRoleToInstanceProfile":
            # Another run has just added the role. A profile holds only one.
            return name
        if code == "LimitExceeded":
            remedy = "delete instance profiles, ask AWS for a higher quota, or set spec.instanceProfile"
            raise Unresolved(code, f"role {role}: {error_message(error)}: {remedy}") from error
        raise
    if current_role and current_role != role:
        raise Unresolved(
            "RoleMismatch",
            f"instance profile {name} holds role {current_role} instead of {role}: somebody else has changed it; "
            f"run aws iam remove-role-from-instance-profile --instance-profile-name {name} --role-name {current_role}",
        )
    return name


def _tag_that_iam_refuses(tags: Mapping[str, str]) -> str | None:
    """Return the key of the first tag that IAM's pattern for tags excludes, None if there is none.

    EC2 allows any character.
    """
    from unicodedata import category  # only after a refusal

    def fits(text: str) -> bool:
        return all(character in "_.:/=+-@" or category(character)[0] in "LZN" for character in text)

    return next((key for key in sorted(tags) if not fits(key) or not fits(tags[key])), None)


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


def bare_role_name(role: str) -> str:
    """Return a role name without its path, as IAM accepts and returns it."""
    return role.rpartition("/")[2]
