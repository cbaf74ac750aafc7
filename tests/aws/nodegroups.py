"""Thirty node groups of all kinds, as AWS shows them, and clients that serve them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from nodesmith_cli.migration.nodegroups.fields import UNKNOWN, FieldReport

Json = dict[str, Any]
CLUSTER, REGION, VERSION = "web", "us-east-1", "1.34"
ACCOUNT = "111122223333"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
SUBNETS = {f"subnet-{n}0": zone for n, zone in enumerate(ZONES)}
AT = datetime(2026, 1, 2, tzinfo=UTC)
BOOTSTRAP = (
    "#!/bin/bash\nset -ex\nyum install -y amazon-ssm-agent\n/etc/eks/bootstrap.sh web \\\n"
    "  --b64-cluster-ca Q0E= --apiserver-endpoint https://example.invalid \\\n"
    "  --kubelet-extra-args '--node-labels=team=data,tier=batch "
    "--register-with-taints=dedicated=batch:NoSchedule --max-pods=58'\n"
)
NODE_CONFIG = """---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: web
    apiServerEndpoint: https://example.invalid
    certificateAuthority: Q0E=
    cidr: 10.100.0.0/16
  kubelet:
    config:
      maxPods: 42
      registerWithTaints:
        - {key: arm, value: "yes", effect: NoSchedule}
    flags:
      - --node-labels=team=web,arch=arm
      - --v=3
"""
TOML = """[settings.kubernetes]
cluster-name = "web"
max-pods = 29
[settings.kubernetes.node-labels]
team = "edge"
[settings.kubernetes.node-taints]
edge = ["true:NoSchedule"]
[settings.host-containers.admin]
enabled = true
"""
POWERSHELL = (
    "<powershell>\nWrite-Host hello\n"
    '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"\n'
    "& $EKSBootstrapScriptFile -EKSClusterName web -KubeletExtraArgs '--node-labels=os=win "
    "--register-with-taints=os=windows:NoSchedule' 3>&1\n</powershell>\n"
)
IMAGES: dict[str, Json] = {
    "ami-0a2023": {
        "Name": "amazon-eks-node-al2023-arm64-standard-1.34-v20260112",
        "Architecture": "arm64",
        "ImageOwnerAlias": "amazon",
    },
    "ami-0old": {
        "Name": "amazon-eks-node-al2023-x86_64-standard-1.33-v20251212",
        "Architecture": "x86_64",
        "ImageOwnerAlias": "amazon",
    },
    "ami-0b0ttle": {
        "Name": "bottlerocket-aws-k8s-1.34-x86_64-v1.50.0-0abcdef",
        "Architecture": "x86_64",
        "ImageOwnerAlias": "amazon",
    },
    "ami-0w1n": {
        "Name": "Windows_Server-2022-English-Core-EKS_Optimized-1.34-2026.01.12",
        "Architecture": "x86_64",
        "ImageOwnerAlias": "amazon",
        "Platform": "windows",
    },
    "ami-0g0lden": {"Name": "golden-al2-2026-01", "Architecture": "x86_64"},
}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def managed(name: str, **fields: Any) -> Json:
    """Return a managed node group as DescribeNodegroup shows it."""
    shown: Json = {
        "nodegroupName": name,
        "nodegroupArn": f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup/{CLUSTER}/{name}/1",
        "clusterName": CLUSTER,
        "version": VERSION,
        "releaseVersion": f"{VERSION}.2-20260112",
        "createdAt": AT,
        "modifiedAt": AT,
        "status": "ACTIVE",
        "capacityType": "ON_DEMAND",
        "scalingConfig": {"minSize": 0, "maxSize": 5, "desiredSize": 2},
        "instanceTypes": ["m5.large"],
        "subnets": list(SUBNETS),
        "amiType": "AL2023_x86_64_STANDARD",
        "nodeRole": f"arn:aws:iam::{ACCOUNT}:role/NodeRole",
        "labels": {},
        "resources": {"autoScalingGroups": [{"name": f"eks-{name}"}]},
        "diskSize": 40,
        "health": {"issues": []},
        "updateConfig": {"maxUnavailable": 1},
        "tags": {"team": "platform"},
    }
    whole = {**shown, **fields}
    return {name: value for name, value in whole.items() if value is not None}


def with_template(name: str, data: Json, **fields: Any) -> Json:
    """Return a managed node group with a launch template of its own."""
    reference = {"name": f"lt-{name}", "version": "3", "id": f"lt-{name}"}
    return managed(name, launchTemplate=reference, diskSize=None, **fields) | {"data": data}


def scaling(name: str, data: Json, tags: Mapping[str, str] | None = None, **fields: Any) -> Json:
    """Return a self-managed Auto Scaling group as DescribeAutoScalingGroups shows it, with its template's data."""
    given = {f"kubernetes.io/cluster/{CLUSTER}": "owned", **(tags or {})}
    shown: Json = {
        "AutoScalingGroupName": name,
        "AutoScalingGroupARN": f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:{name}",
        "LaunchTemplate": {"LaunchTemplateId": f"lt-{name}", "Version": "$Latest"},
        "MinSize": 0,
        "MaxSize": 4,
        "DesiredCapacity": 1,
        "DefaultCooldown": 300,
        "AvailabilityZones": list(ZONES),
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 0,
        "Instances": [{"InstanceId": f"i-{name}", "InstanceType": "m5.large"}],
        "CreatedTime": AT,
        "VPCZoneIdentifier": ",".join(SUBNETS),
        "Tags": [{"Key": k, "Value": v, "PropagateAtLaunch": True} for k, v in given.items()],
        "TerminationPolicies": ["Default"],
        "NewInstancesProtectedFromScaleIn": False,
        "ServiceLinkedRoleARN": "arn:aws:iam::111122223333:role/aws-service-role/autoscaling",
        "data": {
            "IamInstanceProfile": {"Name": "nodes"},
            "SecurityGroupIds": ["sg-0a"],
            "ImageId": "ami-0a2023",
            "InstanceType": "m7g.large",
            **data,
        },
    }
    whole = {**shown, **fields}
    return {name: value for name, value in whole.items() if value is not None}


def mixed(name: str, overrides: list[Json], **distribution: Any) -> Json:
    """Return the fields of a group's mixed-instances policy."""
    template = {"LaunchTemplateId": f"lt-{name}", "Version": "$Default"}
    policy = {
        "LaunchTemplate": {"LaunchTemplateSpecification": template, "Overrides": overrides},
        "InstancesDistribution": {"SpotAllocationStrategy": "price-capacity-optimized", **distribution},
    }
    return {"LaunchTemplate": None, "MixedInstancesPolicy": policy}


NODE_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def thirty() -> list[Json]:
    """Return thirty groups: every kind that the guide names, each once."""
    requirements = {
        "VCpuCount": {"Min": 2, "Max": 8},
        "MemoryMiB": {"Min": 4096},
        "CpuManufacturers": ["intel", "amd"],
        "MemoryGiBPerVCpu": {"Min": 3.5, "Max": 8.5},
        "ExcludedInstanceTypes": ["m5.*", "d*"],
        "InstanceGenerations": ["current"],
        "BareMetal": "excluded",
        "BurstablePerformance": "excluded",
        "SpotMaxPricePercentageOverLowestPrice": 100,
    }
    reservation = {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0block"},
    }
    options = {
        "HttpTokens": "optional",
        "HttpPutResponseHopLimit": 3,
        "HttpEndpoint": "enabled",
        "InstanceMetadataTags": "enabled",
    }
    volumes = [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {
                "VolumeSize": 80,
                "VolumeType": "gp3",
                "Iops": 4000,
                "Throughput": 250,
                "Encrypted": True,
                "KmsKeyId": "alias/nodes",
                "DeleteOnTermination": True,
            },
        },
        {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
    ]
    interface = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": False,
        "Groups": ["sg-0b", "sg-0c"],
        "ConnectionTrackingSpecification": {"UdpTimeout": 40},
    }
    return [
        managed("on-demand"),
        managed("spot", capacityType="SPOT", instanceTypes=["m5.large", "m5a.large", "m6i.large"]),
        managed("zone-a", subnets=["subnet-00"], labels={"zonal": "yes"}),
        managed("zone-b", subnets=["subnet-10"], labels={"zonal": "yes"}),
        managed(
            "zone-c",
            subnets=["subnet-20"],
            labels={"zonal": "yes"},
            scalingConfig={"minSize": 1, "maxSize": 9, "desiredSize": 1},
        ),
        managed(
            "fixed", scalingConfig={"minSize": 3, "maxSize": 3, "desiredSize": 3}, instanceTypes=["c6i.large"]
        ),
        managed(
            "labelled",
            labels={
                "team": "web",
                "alpha.eksctl.io/nodegroup-name": "labelled",
                "kubernetes.io/arch": "amd64",
            },
        ),
        managed(
            "tainted",
            taints=[
                {"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"},
                {"key": "slow", "effect": "PREFER_NO_SCHEDULE"},
            ],
        ),
        managed(
            "gpu",
            amiType="AL2023_x86_64_NVIDIA",
            instanceTypes=["g5.xlarge"],
            taints=[{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE"}],
        ),
        managed("neuron", amiType="AL2023_x86_64_NEURON", instanceTypes=["inf2.xlarge"]),
        managed("arm", amiType="AL2023_ARM_64_STANDARD", instanceTypes=["m7g.large", "c7g.large"]),
        managed("bottlerocket", amiType="BOTTLEROCKET_x86_64", releaseVersion="1.50.0-0abcdef"),
        managed(
            "fips",
            amiType="BOTTLEROCKET_ARM_64_FIPS",
            releaseVersion="1.50.0-0abcdef",
            instanceTypes=["m7g.large"],
        ),
        managed(
            "windows",
            amiType="WINDOWS_CORE_2022_x86_64",
            diskSize=100,
            taints=[{"key": "os", "value": "windows", "effect": "NO_SCHEDULE"}],
        ),
        managed("amazon-linux-2", amiType="AL2_x86_64", version="1.32", releaseVersion="1.32.3-20250801"),
        managed(
            "lagging",
            version="1.33",
            releaseVersion="1.33.5-20251101",
            updateConfig={"maxUnavailablePercentage": 33, "updateStrategy": "MINIMAL"},
        ),
        managed(
            "repaired",
            nodeRepairConfig={"enabled": True, "maxUnhealthyNodeThresholdCount": 2},
            warmPoolConfig={"enabled": True, "minSize": 2},
        ),
        managed("reachable", remoteAccess={"ec2SshKey": "admins", "sourceSecurityGroups": ["sg-0d"]}),
        with_template(
            "volumes",
            {
                "BlockDeviceMappings": volumes,
                "MetadataOptions": options,
                "Monitoring": {"Enabled": True},
                "KeyName": "admins",
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": [{"Key": "cost", "Value": "web"}]}
                ],
            },
        ),
        with_template(
            "network",
            {
                "NetworkInterfaces": [interface],
                "Placement": {"GroupName": "near", "Tenancy": "default"},
                "EbsOptimized": True,
                "DisableApiTermination": False,
            },
        ),
        with_template(
            "custom",
            {"ImageId": "ami-0g0lden", "UserData": encoded(BOOTSTRAP)},
            amiType="CUSTOM",
            releaseVersion=None,
        ),
        with_template(
            "script",
            {
                "UserData": encoded("#!/bin/bash\necho hello\n"),
                "CreditSpecification": {"CpuCredits": "unlimited"},
                "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 1},
            },
        ),
        with_template(
            "block",
            {
                "CapacityReservationSpecification": reservation,
                "InstanceMarketOptions": {"MarketType": "capacity-block"},
                "InstanceType": "p5.48xlarge",
            },
            capacityType="CAPACITY_BLOCK",
            instanceTypes=None,
            amiType="AL2023_x86_64_NVIDIA",
        ),
        scaling(
            "nodeadm", {"UserData": encoded(NODE_CONFIG)}, MaxInstanceLifetime=604800, CapacityRebalance=True
        ),
        scaling("rocket", {"ImageId": "ami-0b0ttle", "InstanceType": "m5.large", "UserData": encoded(TOML)}),
        scaling("win", {"ImageId": "ami-0w1n", "InstanceType": "m5.xlarge", "UserData": encoded(POWERSHELL)}),
        scaling(
            "mixed",
            {"ImageId": "ami-0old", "InstanceType": "m5.large"},
            **mixed(
                "mixed",
                [
                    {"InstanceType": "m5.large", "WeightedCapacity": "1"},
                    {"InstanceType": "m5.xlarge", "WeightedCapacity": "2"},
                ],
                OnDemandBaseCapacity=1,
                OnDemandPercentageAboveBaseCapacity=25,
                SpotMaxPrice="0.2",
            ),
        ),
        scaling(
            "attributes",
            {"ImageId": "resolve:ssm:/web/ami", "InstanceType": None, "UserData": encoded(NODE_CONFIG)},
            **mixed(
                "attributes", [{"InstanceRequirements": requirements}], OnDemandPercentageAboveBaseCapacity=0
            ),
        ),
        scaling(
            "tagged",
            {"KeyName": "admins", "SecurityGroupIds": None, "SecurityGroups": ["nodes"]},
            {
                "Name": "node",
                f"{NODE_TEMPLATE}/label/team": "tagged",
                f"{NODE_TEMPLATE}/taint/team": "tagged:NoSchedule",
                f"{NODE_TEMPLATE}/resources/example.com/dongle": "2",
                f"{NODE_TEMPLATE}/autoscaling-options/scaledownunneededtime": "30m",
                f"{NODE_TEMPLATE}/autoscaling-options/scaledownutilizationthreshold": "0.3",
            },
            TargetGroupARNs=["arn:aws:elasticloadbalancing:us-east-1:111122223333:targetgroup/web/1"],
            WarmPoolConfiguration={"MinSize": 1, "PoolState": "Stopped"},
        ),
        scaling(
            "dedicated",
            {
                "Placement": {"Tenancy": "dedicated", "PartitionNumber": 2, "GroupName": "parts"},
                "EnclaveOptions": {"Enabled": True},
                "LicenseSpecifications": [
                    {"LicenseConfigurationArn": "arn:aws:license-manager::111122223333:lic-1"}
                ],
                "HibernationOptions": {"Configured": False},
            },
        ),
    ]


@dataclass(slots=True)
class Clients:
    """Serves groups as EKS, EC2 and EC2 Auto Scaling do. `denied` are the IAM actions that are refused."""

    groups: list[Json] = field(default_factory=thirty)
    denied: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """the launch templates that no longer exist"""
    asked: list[str] = field(default_factory=list)

    def __call__(self, service: str) -> Clients:
        assert service in ("eks", "ec2", "autoscaling")
        return self

    def get_paginator(self, operation: str) -> Any:
        subnets = [{"SubnetId": id_, "AvailabilityZone": zone} for id_, zone in SUBNETS.items()]
        pages: dict[str, Json] = {
            "list_nodegroups": {"nodegroups": [each["nodegroupName"] for each in self._managed()]},
            "describe_auto_scaling_groups": {"AutoScalingGroups": [_bare(each) for each in self._own()]},
            "describe_subnets": {"Subnets": subnets},
        }
        actions = {
            "list_nodegroups": "eks:ListNodegroups",
            "describe_auto_scaling_groups": "autoscaling:DescribeAutoScalingGroups",
            "describe_subnets": "ec2:DescribeSubnets",
        }

        class Paginator:
            @staticmethod
            def paginate(**_: Any) -> Iterable[Json]:
                self._ask(actions[operation])
                return [pages[operation]]

        return Paginator()

    def describe_cluster(self, name: str) -> Json:
        vpc = {"vpcId": "vpc-0a", "clusterSecurityGroupId": "sg-0c1u57e7"}
        return {"cluster": {"name": name, "version": VERSION, "status": "ACTIVE", "resourcesVpcConfig": vpc}}

    def describe_nodegroup(self, clusterName: str, nodegroupName: str) -> Json:  # noqa: N803 (AWS's names)
        assert clusterName == CLUSTER
        self._ask("eks:DescribeNodegroup")
        found = [_bare(g) for g in self._managed() if g["nodegroupName"] == nodegroupName]
        if not found:
            code = "ResourceNotFoundException"
            raise ClientError({"Error": {"Code": code, "Message": "gone"}}, "DescribeNodegroup")
        return {"nodegroup": found[0]}

    def describe_launch_template_versions(
        self,
        LaunchTemplateId: str,  # noqa: N803 (AWS's names)
        Versions: list[str],  # noqa: N803
    ) -> Json:
        assert len(Versions) == 1
        self._ask("ec2:DescribeLaunchTemplateVersions")
        if LaunchTemplateId in self.gone:
            code = "InvalidLaunchTemplateId.NotFound"
            raise ClientError({"Error": {"Code": code, "Message": "gone"}}, "DescribeLaunchTemplateVersions")
        for group in self.groups:
            if f"lt-{group.get('AutoScalingGroupName') or group.get('nodegroupName')}" == LaunchTemplateId:
                data = {name: value for name, value in group["data"].items() if value is not None}
                return {"LaunchTemplateVersions": [{"LaunchTemplateData": data}]}
        raise AssertionError(LaunchTemplateId)

    def describe_launch_configurations(self, LaunchConfigurationNames: list[str]) -> Json:  # noqa: N803 (AWS's names)
        found = [
            g["configuration"]
            for g in self.groups
            if g.get("LaunchConfigurationName") in LaunchConfigurationNames
        ]
        return {"LaunchConfigurations": found}

    def describe_images(self, Filters: list[Json]) -> Json:  # noqa: N803 (AWS's names)
        self._ask("ec2:DescribeImages")
        return {"Images": [{"ImageId": i, **IMAGES[i]} for i in Filters[0]["Values"] if i in IMAGES]}

    def describe_capacity_reservations(self, Filters: list[Json]) -> Json:  # noqa: N803 (AWS's names)
        shown = {"InstanceType": "p5.48xlarge", "AvailabilityZone": ZONES[0], "TotalInstanceCount": 2}
        found = [{"CapacityReservationId": id_, **shown} for id_ in Filters[0]["Values"]]
        return {"CapacityReservations": found}

    def _managed(self) -> Iterator[Json]:
        return (each for each in self.groups if "nodegroupName" in each)

    def _own(self) -> Iterator[Json]:
        return (each for each in self.groups if "AutoScalingGroupName" in each)

    def _ask(self, action: str) -> None:
        self.asked.append(action)
        if action in self.denied:
            raise ClientError(
                {"Error": {"Code": "AccessDeniedException", "Message": "no"}}, action.partition(":")[2]
            )


def _bare(group: Json) -> Json:
    return {name: value for name, value in group.items() if name not in ("data", "configuration")}


def unaccounted(fields: Iterable[FieldReport]) -> list[str]:
    """Return the fields that the account names only because nothing knows them."""
    return [each.field for each in fields if each.explanation == UNKNOWN]
