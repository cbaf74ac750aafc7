"""An AWS account furnished for one cluster: network, node role, EKS cluster, and EKS's public images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2 import ec2_backends
from moto.ec2.models.amis import Ami
from moto.eks import eks_backends
from moto.ssm import ssm_backends
from moto.ssm.models import Parameter

from nodesmith.adapters.nodeclasses.imagealiases import alias_parameters
from nodesmith.model.apimachinery.labels import ARCH
from nodesmith.model.nodeclasses.nodeclasses import LATEST
from nodesmith.model.nodeclasses.status import Unresolved

RELEASES = ("20261015", "20261112")
BOTTLEROCKET = "v1.50.0"
_EKS_IMAGES_ACCOUNT = "602401143452"
_VPC_CIDR = "10.0.0.0/16"
_IPV6_BLOCKS = "2600:1f18:0"
_SERVICES: Mapping[str, Mapping[str, str]] = {
    "ipv4": {"serviceIpv4Cidr": "10.100.0.0/16"},
    "ipv6": {"ipFamily": "ipv6", "serviceIpv6Cidr": "fd12:3456:789a::/108"},
}
"""EKS's network configuration of a cluster by IP family."""
_TRUST = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}


@dataclass(frozen=True, slots=True)
class Network:
    """The resources that an EC2NodeClass selects: subnet ids by zone, the nodes' security group, and their VPC."""

    vpc_id: str
    subnets: Mapping[str, str]
    security_group_id: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of the cluster's API server, and the base64 of the CA that signed its certificate."""

    url: str
    ca_bundle: str


def make_network(ec2: Any, cluster: str, zones: Sequence[str], ip_family: str = "ipv4") -> Network:
    """Create a VPC with a security group and one subnet in each zone (at most 16), all with the discovery tag.

    With the IP family ipv6, subnets have addresses of both families.
    """
    tags = {"karpenter.sh/discovery": cluster, f"kubernetes.io/cluster/{cluster}": "shared"}
    vpc = ec2.create_vpc(CidrBlock=_VPC_CIDR)["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnets = {
        zone: ec2.create_subnet(
            VpcId=vpc,
            AvailabilityZone=zone,
            CidrBlock=f"10.0.{number * 16}.0/20",
            TagSpecifications=_tagged("subnet", {"Name": f"{cluster}-{zone}", **tags}),
        )["Subnet"]["SubnetId"]
        for number, zone in enumerate(zones[:16])
    }
    for number, subnet in enumerate(subnets.values()) if ip_family == "ipv6" else ():
        ec2.associate_subnet_cidr_block(SubnetId=subnet, Ipv6CidrBlock=f"{_IPV6_BLOCKS}:{number}::/64")
    group = ec2.create_security_group(
        GroupName=f"{cluster}-node",
        Description="nodes",
        VpcId=vpc,
        TagSpecifications=_tagged("security-group", {"Name": f"{cluster}-node", **tags}),
    )["GroupId"]
    return Network(vpc, subnets, group)


def make_role(iam: Any, name: str) -> str:
    """Create a role that EC2 may assume, unless it exists, and return its ARN."""
    try:
        return str(iam.get_role(RoleName=name)["Role"]["Arn"])
    except iam.exceptions.NoSuchEntityException:
        policy = json.dumps({"Version": "2012-10-17", "Statement": [_TRUST]})
        return str(iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"])


def make_instance_profile(iam: Any, name: str) -> None:
    """Create an instance profile with a role of the same name, unless it exists."""
    make_role(iam, name)
    with suppress(iam.exceptions.EntityAlreadyExistsException):
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def make_cluster(
    eks: Any,
    name: str,
    version: str,
    role_arn: str,
    network: Network,
    endpoint: Endpoint,
    region: str,
    ip_family: str = "ipv4",
) -> None:
    """Create the EKS cluster with `endpoint` as its API server."""
    services = _SERVICES[ip_family]
    eks.create_cluster(
        name=name,
        version=version,
        roleArn=role_arn,
        resourcesVpcConfig={"subnetIds": list(network.subnets.values())},
        # EKS assigns the IPv6 range of services itself.
        kubernetesNetworkConfig={k: v for k, v in services.items() if k != "serviceIpv6Cidr"},
    )
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][region].clusters[name]
    cluster.kubernetes_network_config = dict(services)
    cluster.endpoint = endpoint.url
    cluster.certificate_authority = {"data": endpoint.ca_bundle}


def publish_images(region: str, kubernetes: str) -> None:
    """Publish images for one Kubernetes version in SSM and EC2, as EKS and Bottlerocket do."""
    pins = (f"al2023@v{release}" for release in RELEASES)
    windows = (f"windows{year}@latest" for year in (2019, 2022, 2025))
    other_images = (
        "al2@latest",
        "al2023@latest",
        f"bottlerocket@{BOTTLEROCKET}",
        "bottlerocket@latest",
        *windows,
    )
    for alias in (*pins, *other_images):
        with suppress(Unresolved):  # this Kubernetes version has no image of the family
            publish_alias(region, kubernetes, alias)


def publish_alias(region: str, kubernetes: str, alias: str) -> None:
    """Publish the images behind an alias. Raises Unresolved for an alias that can have no image."""
    parameters = alias_parameters(alias, kubernetes)
    family, _, version = alias.partition("@")
    newest = BOTTLEROCKET if family == "bottlerocket" else f"v{RELEASES[-1]}"
    release = newest if version == LATEST else f"v{version.removeprefix('v')}"
    dated = release.removeprefix("v")
    created_at = datetime.strptime(dated if dated.isdecimal() else RELEASES[-1], "%Y%m%d").replace(tzinfo=UTC)
    for parameter in parameters:
        name = _image_name(family, parameter.path, kubernetes, release)
        arch = next(iter(parameter.serves[0][ARCH].values))
        image_id = register_image(region, name, arch, created_at, _EKS_IMAGES_ACCOUNT, "amazon")
        put_parameter(region, parameter.path, image_id)


def _image_name(family: str, path: str, kubernetes: str, release: str) -> str:
    """Return the name of the image behind a parameter, as its publisher forms it."""
    *_, first, second, third, _ = path.split("/")
    match family:
        case "al2":
            variant = second.removeprefix("amazon-linux-2").lstrip("-")
            return f"amazon-eks-{variant}{'-' * bool(variant)}node-{kubernetes}-{release}"
        case "al2023":
            return f"amazon-eks-node-al2023-{first}-{second}-{kubernetes}-{release}"
        case "bottlerocket":
            return f"bottlerocket-{first}-{second}-{release}"
        case _:
            return f"{third}-{release[1:5]}.{release[5:7]}.{release[7:]}"


def register_image(
    region: str,
    name: str,
    arch: str,
    created_at: datetime,
    owner_id: str = DEFAULT_ACCOUNT_ID,
    owner_alias: str = "",
    *,
    image_id: str = "",
    tags: Mapping[str, str] | None = None,
) -> str:
    """Register an image unless it exists, and return its id; the default id is derived from the name."""
    ec2 = ec2_backends[DEFAULT_ACCOUNT_ID][region]
    image_id = image_id or f"ami-{hashlib.sha256(f'{region}/{name}'.encode()).hexdigest()[:17]}"
    if image_id not in ec2.amis:
        ec2.amis[image_id] = Ami(
            ec2,
            image_id,
            name=name,
            architecture="x86_64" if arch == "amd64" else arch,
            owner_id=owner_id,
            owner_alias=owner_alias or None,
            public=True,
            virtualization_type="hvm",
            root_device_name="/dev/sda1" if name.startswith("Windows") else "/dev/xvda",
            root_device_type="ebs",
            creation_date=created_at.replace(tzinfo=None),
            region_name=f"{region}a",
            tags=dict(tags or {}),
        )
    return image_id


def put_parameter(region: str, path: str, image_id: str) -> None:
    """Set an SSM parameter to an image's id."""
    ssm = ssm_backends[DEFAULT_ACCOUNT_ID][region]
    # PutParameter does not work here: only AWS may write names under /aws.
    ssm._parameters[path] = [  # noqa: SLF001
        Parameter(  # type: ignore[abstract]  # moto's own code instantiates it too
            account_id=DEFAULT_ACCOUNT_ID,
            name=path,
            value=image_id,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=datetime.strptime(RELEASES[-1], "%Y%m%d").replace(tzinfo=UTC),
            version=1,
            data_type="aws:ec2:image",
        )
    ]


def create_resources(
    client: Callable[[str], Any],
    cluster: str,
    region: str,
    zones: Sequence[str],
    version: str,
    endpoint: Endpoint,
    role: str,
    ip_family: str = "ipv4",
) -> Network:
    """Furnish an empty account for one cluster."""
    publish_images(region, version)
    network = make_network(client("ec2"), cluster, zones, ip_family)
    arn = make_role(client("iam"), role)
    make_cluster(client("eks"), cluster, version, arn, network, endpoint, region, ip_family)
    return network


def _tagged(kind: str, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
