"""Reading a cluster's node groups, Auto Scaling groups and their launch templates from AWS. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.errors import NodesmithError
from nodesmith_cli.access.awssession import Denied, asking, if_there
from nodesmith_cli.connecting.observed import Cluster
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.migration.nodegroups.groups import (
    NODEGROUP,
    SCALING_GROUP,
    TEMPLATE,
    Found,
    Group,
    GroupContext,
    Kind,
    MachineImage,
)

_AUTOSCALER_TAG = "k8s.io/cluster-autoscaler/"
_OWNED_TAG = "kubernetes.io/cluster/"
OTHERS_TAGS = frozenset({"eks:nodegroup-name", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name"})
"""Tags of Auto Scaling groups and instances that EKS or Karpenter manages."""
_GONE = frozenset(
    "InvalidLaunchTemplateId.NotFound InvalidLaunchTemplateId.VersionNotFound InvalidLaunchTemplateId.Malformed "
    "InvalidLaunchTemplateName.NotFoundException InvalidLaunchTemplateName.MalformedException".split()
)
_UNKNOWN_IMAGES = frozenset({"InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable"})
_USABLE = ("ACTIVE", "UPDATING", "DEGRADED")
_BATCH = 100
_ARCHES = {"x86_64": "amd64", "arm64": "arm64"}


def tags_of_cluster(cluster: str) -> list[str]:
    """Return the tags of which an Auto Scaling group of a cluster has at least one."""
    return [f"{_AUTOSCALER_TAG}{cluster}", f"{_OWNED_TAG}{cluster}"]


class GroupReading(AwsReading):
    """Reads groups. `denied` collects the calls that the caller may not make, `problems` everything else."""

    def __init__(self, client: Callable[[str], Any], region: str) -> None:
        super().__init__(client, region)
        self.problems: list[str] = []

    def groups_of(self, name: str) -> Found:
        """Return the groups of a cluster, sorted by kind and name. Raises Rejected if the cluster does not exist."""
        cluster = self.cluster(name)
        groups = [*self._managed(cluster.name), *self._self_managed(cluster.name)]
        groups.sort(key=lambda group: (group.kind, group.name))
        around = self._around(cluster, groups)
        return Found(tuple(groups), around, (*dict.fromkeys((*self.denied, *self.problems)),))

    def _managed(self, cluster: str) -> Iterator[Group]:
        def names() -> list[str]:
            return sorted(rows(self.client("eks"), "list_nodegroups", "nodegroups", clusterName=cluster))

        for name in self.ask("eks:ListNodegroups", f"cluster/{cluster}", names, list[str]()):
            yield self._managed_group(cluster, name)

    def _managed_group(self, cluster: str, name: str) -> Group:
        def read() -> Mapping[str, Any] | None:
            call = self.client("eks").describe_nodegroup
            described = if_there(lambda: call(clusterName=cluster, nodegroupName=name))
            return None if described is None else described["nodegroup"]

        fields, reason = self._tried("eks:DescribeNodegroup", f"nodegroup/{cluster}/{name}", read)
        if fields is None:
            return Group(Kind.MANAGED, name, {NODEGROUP: {}}, obstacle=reason or "it no longer exists")
        group = Group(Kind.MANAGED, name, {NODEGROUP: _plain(fields)})
        status = str(fields.get("status") or "")
        if status not in _USABLE:
            return replace(group, obstacle=f"its status is {status}: run the command again when it is ACTIVE")
        if not fields.get("launchTemplate"):
            return group
        return self._with_template(group, fields["launchTemplate"])

    def _self_managed(self, cluster: str) -> Iterator[Group]:
        keys = tags_of_cluster(cluster)

        def read() -> list[Mapping[str, Any]]:
            filters, scaling = [{"Name": "tag-key", "Values": keys}], self.client("autoscaling")
            return [*rows(scaling, "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters)]

        described = self.ask("autoscaling:DescribeAutoScalingGroups", "*", read, list[Mapping[str, Any]]())
        for fields in sorted(described, key=lambda each: str(each["AutoScalingGroupName"])):
            tags = {tag["Key"] for tag in fields.get("Tags") or ()}
            if tags.isdisjoint(OTHERS_TAGS):
                yield self._self_managed_group(fields)

    def _self_managed_group(self, fields: Mapping[str, Any]) -> Group:
        instances = frozenset(instance["InstanceId"] for instance in fields.get("Instances") or ())
        shown = {name: value for name, value in _plain(fields).items() if name != "Instances"}
        group = Group(Kind.SELF_MANAGED, fields["AutoScalingGroupName"], {SCALING_GROUP: shown}, instances)
        if fields.get("Status"):
            return replace(group, obstacle=f"its status is {fields['Status']}")
        if fields.get("LaunchConfigurationName"):
            return self._with_configuration(group, fields["LaunchConfigurationName"])
        mixed = (fields.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
        template = fields.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification")
        if not template:
            return replace(group, obstacle="it has no launch template")
        return self._with_template(group, template)

    def _with_template(self, group: Group, named: Mapping[str, Any]) -> Group:
        """Return the group with the data of its launch template's version, as EKS or Auto Scaling names it."""
        id_ = str(named.get("id") or named.get("LaunchTemplateId") or "")
        name = str(named.get("name") or named.get("LaunchTemplateName") or "")
        version = str(named.get("version") or named.get("Version") or "$Default")
        wanted = {"LaunchTemplateId": id_} if id_ else {"LaunchTemplateName": name}

        def read() -> Mapping[str, Any] | None:
            try:
                answer = self.client("ec2").describe_launch_template_versions(**wanted, Versions=[version])
            except ClientError as error:
                if error_code(error) not in _GONE:
                    raise
                return None
            versions = answer["LaunchTemplateVersions"]
            return versions[0]["LaunchTemplateData"] if versions else None

        data, reason = self._tried(
            "ec2:DescribeLaunchTemplateVersions", f"launch-template/{id_ or name}", read
        )
        if data is None:
            gone = f"version {version} of its launch template {name or id_} is gone: create it again"
            return replace(group, obstacle=reason or gone)
        return replace(group, sources={**group.sources, TEMPLATE: _plain(data)})

    def _with_configuration(self, group: Group, name: str) -> Group:
        def read() -> Mapping[str, Any] | None:
            call = self.client("autoscaling").describe_launch_configurations
            described = call(LaunchConfigurationNames=[name])["LaunchConfigurations"]
            return described[0] if described else None

        fields, reason = self._tried(
            "autoscaling:DescribeLaunchConfigurations", f"launchConfiguration/{name}", read
        )
        if fields is None:
            return replace(
                group, obstacle=reason or f"its launch configuration {name} is gone: create it again"
            )
        return replace(group, sources={**group.sources, TEMPLATE: as_template(_plain(fields))})

    def _tried(
        self, action: str, resource: str, read: Callable[[], Mapping[str, Any] | None]
    ) -> tuple[Mapping[str, Any] | None, str]:
        """Return what `read` returns, or None with the reason why there is no answer."""
        try:
            with asking(action, resource):
                return read(), ""
        except Denied as error:
            self.denied.append(str(error))
            return None, str(error)
        except NodesmithError as error:
            self.problems.append(str(error))
            return None, str(error)

    def _around(self, cluster: Cluster, groups: Iterable[Group]) -> GroupContext:
        zones, defaults = self._subnets(cluster)
        images = self._images(
            sorted({id_ for group in groups if (id_ := image_id(group)).startswith("ami-")})
        )
        return GroupContext(
            cluster.name,
            cluster.version,
            cluster.security_group,
            embedded_catalog(self.region),
            zones,
            defaults,
            images,
            self._reservations(sorted({id_ for group in groups for id_ in _reservation_ids(group)})),
        )

    def _subnets(self, cluster: Cluster) -> tuple[dict[str, str], dict[str, str]]:
        def read() -> list[Mapping[str, Any]]:
            filters = [{"Name": "vpc-id", "Values": [cluster.vpc_id]}]
            return [*rows(self.client("ec2"), "describe_subnets", "Subnets", Filters=filters)]

        described = self.ask("ec2:DescribeSubnets", "*", read, list[Mapping[str, Any]]())
        zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in described}
        usual = {
            subnet["AvailabilityZone"]: subnet["SubnetId"]
            for subnet in described
            if subnet.get("DefaultForAz")
        }
        return zones, usual

    def _images(self, ids: list[str]) -> dict[str, MachineImage]:
        """Return the images that exist. A filter, unlike a list of ids, does not fail for one that does not."""
        machine_images: dict[str, MachineImage] = {}
        for start in range(0, len(ids), _BATCH):
            filters = [{"Name": "image-id", "Values": ids[start : start + _BATCH]}]

            def read(filters: list[Any] = filters) -> list[Mapping[str, Any]]:
                try:
                    images: list[Mapping[str, Any]] = self.client("ec2").describe_images(Filters=filters)[
                        "Images"
                    ]
                except ClientError as error:
                    if error_code(error) not in _UNKNOWN_IMAGES:
                        raise
                    return []
                return images

            for image in self.ask("ec2:DescribeImages", "*", read, list[Mapping[str, Any]]()):
                machine_images[image["ImageId"]] = _image(image)
        return machine_images

    def _reservations(self, ids: list[str]) -> dict[str, Mapping[str, Any]]:
        """Return capacity reservations as in the status of an EC2NodeClass. All of their instances count as free."""

        def read() -> list[Mapping[str, Any]]:
            filters = [{"Name": "capacity-reservation-id", "Values": ids[:_BATCH]}]
            call = self.client("ec2").describe_capacity_reservations
            described: list[Mapping[str, Any]] = call(Filters=filters)["CapacityReservations"]
            return described

        action = "ec2:DescribeCapacityReservations"
        listed = self.ask(action, "*", read, list[Mapping[str, Any]]()) if ids else []
        return {reservation["CapacityReservationId"]: _reservation(reservation) for reservation in listed}


def _reservation_ids(group: Group) -> Iterator[str]:
    for source in (TEMPLATE, SCALING_GROUP):
        wanted = (group.sources.get(source) or {}).get("CapacityReservationSpecification") or {}
        target = wanted.get("CapacityReservationTarget") or {}
        one = target.get("CapacityReservationId")
        yield from (*([one] if one else ()), *(target.get("CapacityReservationIds") or ()))


def _reservation(described: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": described["CapacityReservationId"],
        "instanceType": described["InstanceType"],
        "availabilityZone": described["AvailabilityZone"],
        "availableInstanceCount": int(described.get("TotalInstanceCount") or 0),
        "reservationType": str(described.get("ReservationType") or "default"),
        "instanceMatchCriteria": str(described.get("InstanceMatchCriteria") or "targeted"),
    }


def image_id(group: Group) -> str:
    """Return the AMI in the launch template, an id or resolve:ssm:…; empty if there is none."""
    return str((group.sources.get(TEMPLATE) or {}).get("ImageId") or "")


def _image(described: Mapping[str, Any]) -> MachineImage:
    arch = _ARCHES.get(str(described.get("Architecture")), "")
    alias = str(described.get("ImageOwnerAlias") or "")
    return MachineImage(
        described["ImageId"],
        str(described.get("Name") or ""),
        arch,
        alias,
        str(described.get("Platform") or ""),
    )


def as_template(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a launch configuration with the field names of a launch template. Other fields keep their names."""
    fields = dict(configuration)
    made: dict[str, Any] = {}
    if groups := fields.pop("SecurityGroups", None):
        ids = [group for group in groups if str(group).startswith("sg-")]
        made["SecurityGroupIds"], made["SecurityGroups"] = ids, [g for g in groups if g not in ids]
    if (profile := fields.pop("IamInstanceProfile", None)) is not None:
        made["IamInstanceProfile"] = {"Arn" if str(profile).startswith("arn:") else "Name": profile}
    if (monitoring := fields.pop("InstanceMonitoring", None)) is not None:
        made["Monitoring"] = monitoring
    if (tenancy := fields.pop("PlacementTenancy", None)) is not None:
        made["Placement"] = {"Tenancy": tenancy}
    if (address := fields.pop("AssociatePublicIpAddress", None)) is not None:
        groups = made.pop("SecurityGroupIds", [])
        made["NetworkInterfaces"] = [
            {"DeviceIndex": 0, "AssociatePublicIpAddress": address, "Groups": groups}
        ]
    if price := fields.pop("SpotPrice", None):
        made["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"MaxPrice": price}}
    return {
        name: value
        for name, value in {**fields, **made}.items()
        if value not in ("", [], None) and not name.startswith("LaunchConfiguration")
    }


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as plain data, without the metadata of the response."""
    return {str(name): value for name, value in fields.items() if name != "ResponseMetadata"}
