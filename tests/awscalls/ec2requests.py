"""EC2 and IAM requests as IAM sees them: a launch is many actions on many resources, with old and new tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2 import ec2_backends
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.iam import iam_backends
from moto.iam.models import InstanceProfile

from tests.awscalls.requests import Call, Request

_LAUNCHING = ("ec2:CreateFleet", "ec2:RunInstances")
_INSTANCES = {"iam:PassedToService": "ec2.amazonaws.com"}
_TEMPLATE = re.compile(r"LaunchTemplateConfigs\.\d+\.LaunchTemplateSpecification\.LaunchTemplateName")
_SUBNET = re.compile(r"LaunchTemplateConfigs\.\d+\.Overrides\.\d+\.SubnetId")
_INTERFACE_SUBNET = re.compile(r"NetworkInterface\.\d+\.SubnetId")
_INSTANCE = re.compile(r"InstanceId\.\d+")
_DELETIONS = {
    "DeleteLaunchTemplate": ("launch-template", "LaunchTemplateId"),
    "DeleteNetworkInterface": ("network-interface", "NetworkInterfaceId"),
    "DeleteVolume": ("volume", "VolumeId"),
}


def ec2(request: Request) -> Iterator[Call]:
    """Yield the calls in a request to EC2."""
    match request.operation:
        case "CreateLaunchTemplate":
            yield from _creations(request, "CreateLaunchTemplate")
        case "CreateFleet":
            yield from _creations(request, "CreateFleet")
            yield from _launch(request)
        case "RunInstances":
            yield from _creations(request, "RunInstances")
            yield from _run(request)
        case "StartInstances" | "StopInstances" | "TerminateInstances" as operation:
            for id_ in _named(request, _INSTANCE):
                yield Call(f"ec2:{operation}", request.arn(f"instance/{id_}"), _resource_tags(request, id_))
        case operation if operation in _DELETIONS:
            kind, parameter = _DELETIONS[operation]
            id_ = request.parameters.get(parameter, "")
            yield Call(f"ec2:{operation}", request.arn(f"{kind}/{id_}"), _resource_tags(request, id_))
        case operation if operation.startswith("Describe"):
            yield Call(f"ec2:{operation}", "*")
        case operation:
            yield Call(f"ec2:{operation}")


def iam(request: Request) -> Iterator[Call]:
    """Yield the calls in a request to IAM. A profile's ARN contains its path, which only an existing profile has."""
    asked = request.parameters
    name, path = asked.get("InstanceProfileName", ""), asked.get("Path", "/")
    profile = _profile(name)
    match request.operation:
        case "CreateInstanceProfile":
            tags = {f"aws:RequestTag/{key}": value for key, value in _tags(asked, "Tags.member").items()}
            for action in (
                ("CreateInstanceProfile", "TagInstanceProfile") if tags else ("CreateInstanceProfile",)
            ):
                yield Call(f"iam:{action}", _iam_arn(f"instance-profile{path}{name}"), tags)
        case "AddRoleToInstanceProfile" if profile:
            tags = {f"aws:ResourceTag/{tag['Key']}": tag["Value"] for tag in profile.tags}
            yield Call(
                "iam:AddRoleToInstanceProfile", _iam_arn(f"instance-profile{profile.path}{name}"), tags
            )
            yield Call("iam:PassRole", _iam_arn(f"role/{asked['RoleName']}"), _INSTANCES)
        case "RemoveRoleFromInstanceProfile" | "DeleteInstanceProfile" as operation if profile:
            tags = {f"aws:ResourceTag/{tag['Key']}": tag["Value"] for tag in profile.tags}
            yield Call(f"iam:{operation}", _iam_arn(f"instance-profile{profile.path}{name}"), tags)
        case "ListInstanceProfiles":
            yield Call("iam:ListInstanceProfiles", "*")
        case "GetInstanceProfile":
            where = profile.path if profile else "/"
            yield Call("iam:GetInstanceProfile", _iam_arn(f"instance-profile{where}{name}"))
        case operation:
            yield Call(f"iam:{operation}")


def _creations(request: Request, operation: str) -> Iterator[Call]:
    """Yield the calls that create resources with their tags; a fleet runs instances on its caller's behalf."""
    asked, number = request.parameters, 1
    while kind := asked.get(f"TagSpecification.{number}.ResourceType"):
        tags = _tags(asked, f"TagSpecification.{number}.Tag")
        context = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
        runs = operation == "CreateFleet" and kind != "fleet"
        action = "RunInstances" if runs else operation
        yield Call(f"ec2:{action}", request.arn(f"{kind}/new"), context)
        yield Call("ec2:CreateTags", request.arn(f"{kind}/new"), {**context, "ec2:CreateAction": action})
        number += 1


def _launch(request: Request) -> Iterator[Call]:
    """Yield the calls on what a fleet launches from and into, and on the role that its instances get.

    CreateFleet itself covers subnets and launch templates; RunInstances, on its caller's behalf, covers everything.
    """
    subnets = ec2_backends[DEFAULT_ACCOUNT_ID][request.region].subnets
    for id_ in _named(request, _SUBNET):
        subnet = next((of_zone[id_] for of_zone in list(subnets.values()) if id_ in of_zone), None)
        for action in _LAUNCHING:
            yield Call(action, request.arn(f"subnet/{id_}"), _in_vpc(request, subnet))
    for name in _named(request, _TEMPLATE):
        template = _template(request, name)
        if template is None:
            continue  # the fleet fails because of it
        for action in _LAUNCHING:
            tags = _resource_tags(request, template.id)
            yield Call(action, request.arn(f"launch-template/{template.id}"), tags)
        yield from _as_the_template_says(request, template.latest_version().data)


def _run(request: Request) -> Iterator[Call]:
    """Yield the calls of RunInstances when only a launch template and interfaces are named."""
    subnets = ec2_backends[DEFAULT_ACCOUNT_ID][request.region].subnets
    for id_ in _named(request, _INTERFACE_SUBNET):
        subnet = next((of_zone[id_] for of_zone in list(subnets.values()) if id_ in of_zone), None)
        yield Call("ec2:RunInstances", request.arn(f"subnet/{id_}"), _in_vpc(request, subnet))
    template = _template(request, request.parameters.get("LaunchTemplate.LaunchTemplateName", ""))
    if template is not None:
        arn = request.arn(f"launch-template/{template.id}")
        yield Call("ec2:RunInstances", arn, _resource_tags(request, template.id))
        yield from _as_the_template_says(request, template.latest_version().data)


def _as_the_template_says(request: Request, data: Mapping[str, Any]) -> Iterator[Call]:
    backend = ec2_backends[DEFAULT_ACCOUNT_ID][request.region]
    if image := data.get("ImageId", ""):
        yield Call("ec2:RunInstances", request.arn(f"image/{image}", account=""))
    if group := data.get("Placement", {}).get("GroupId", ""):
        yield Call("ec2:RunInstances", request.arn(f"placement-group/{group}"))
    interfaces = data.get("NetworkInterfaces", [])
    for id_ in [
        *data.get("SecurityGroupIds", []),
        *(g for each in interfaces for g in each.get("Groups", [])),
    ]:
        group = backend.get_security_group_from_id(id_)
        yield Call("ec2:RunInstances", request.arn(f"security-group/{id_}"), _in_vpc(request, group))
    used = _profile(data.get("IamInstanceProfile", {}).get("Name", ""))
    for role in used.roles if used else ():
        yield Call("iam:PassRole", role.arn, _INSTANCES)


def _in_vpc(request: Request, resource: Any) -> dict[str, str]:
    """Return the condition keys of a subnet or security group; none if it does not exist."""
    if resource is None:
        return {}
    vpc = f"arn:aws:ec2:{request.region}:{DEFAULT_ACCOUNT_ID}:vpc/{resource.vpc_id}"
    return {"ec2:Vpc": vpc, **_resource_tags(request, resource.id)}


def _template(request: Request, name: str) -> LaunchTemplate | None:
    backend = ec2_backends[DEFAULT_ACCOUNT_ID][request.region]
    return backend.launch_templates.get(backend.launch_template_name_to_ids.get(name, ""))


def _profile(name: str) -> InstanceProfile | None:
    profiles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].instance_profiles
    return next((profile for profile in list(profiles.values()) if profile.name == name), None)


def _resource_tags(request: Request, id_: str) -> dict[str, str]:
    tags = ec2_backends[DEFAULT_ACCOUNT_ID][request.region].tags.get(id_, {})
    return {f"aws:ResourceTag/{key}": value for key, value in list(tags.items())}


def _named(request: Request, parameter: re.Pattern[str]) -> list[str]:
    return sorted({value for key, value in request.parameters.items() if parameter.fullmatch(key)})


def _tags(asked: Mapping[str, str], prefix: str) -> dict[str, str]:
    tags, number = {}, 1
    while (key := asked.get(f"{prefix}.{number}.Key")) is not None:
        tags[key] = asked.get(f"{prefix}.{number}.Value", "")
        number += 1
    return tags


def _iam_arn(resource: str) -> str:
    return f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:{resource}"
