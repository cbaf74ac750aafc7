"""The launch templates of instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodesmith.decisions.launch import launch_plan
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.nodeclasses.instancesettings import (
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    MetadataOptions,
    NetworkInterface,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, options, plan, status


def data(nodeclass: EC2NodeClass = NODECLASS, capacity_type: str = "spot") -> dict[str, Any]:
    _, (template,) = plan(nodeclass=nodeclass, capacity_type=capacity_type)
    return dict(template.data)


def test_the_metadata_service_accepts_only_imdsv2_over_one_hop_by_default() -> None:
    assert data()["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "disabled",
        "HttpPutResponseHopLimit": 1,
        "HttpTokens": "required",
        "InstanceMetadataTags": "disabled",
    }
    reported = MetadataOptions("enabled", "enabled", 2, "optional")
    assert data(replace(NODECLASS, metadata_options=reported))["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "enabled",
        "HttpPutResponseHopLimit": 2,
        "HttpTokens": "optional",
        "InstanceMetadataTags": "disabled",
    }


def test_without_mappings_of_its_own_a_nodeclass_gets_its_familys_encrypted_gp3_volume() -> None:
    (root,) = data()["BlockDeviceMappings"]
    assert root["DeviceName"] == "/dev/xvda"
    assert root["Ebs"].items() >= {"VolumeSize": 20, "VolumeType": "gp3", "Encrypted": True}.items()


def test_volume_sizes_are_rounded_up_to_whole_gibibytes() -> None:
    sizes = {"20Gi": 20, "100G": 94, "1T": 932, "1Ti": 1024}
    for written, whole in sizes.items():
        mapping = BlockDeviceMapping("/dev/xvda", BlockDevice(written))
        (found,) = data(replace(NODECLASS, block_device_mappings=(mapping,)))["BlockDeviceMappings"]
        assert found == {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": whole}}


def test_every_setting_of_a_volume_reaches_ec2() -> None:
    volume = BlockDevice("50Gi", "io2", True, False, 4000, 250, "key-1", "snap-1", 150)
    mapping = BlockDeviceMapping("/dev/sdb", volume, root_volume=True)
    (found,) = data(replace(NODECLASS, block_device_mappings=(mapping,)))["BlockDeviceMappings"]
    assert found["Ebs"] == {
        "VolumeSize": 50,
        "VolumeType": "io2",
        "Encrypted": True,
        "DeleteOnTermination": False,
        "Iops": 4000,
        "Throughput": 250,
        "KmsKeyId": "key-1",
        "SnapshotId": "snap-1",
        "VolumeInitializationRate": 150,
    }


def test_one_interface_carries_all_security_groups() -> None:
    (interface,) = data()["NetworkInterfaces"]
    assert interface == {
        "NetworkCardIndex": 0,
        "DeviceIndex": 0,
        "InterfaceType": "interface",
        "Groups": ["sg-nodes"],
    }


def test_a_public_address_is_requested_or_denied_only_if_the_nodeclass_specifies_it() -> None:
    for wanted in (True, False):
        (interface,) = data(replace(NODECLASS, associate_public_ip_address=wanted))["NetworkInterfaces"]
        assert interface["AssociatePublicIpAddress"] is wanted


def test_interfaces_of_the_nodeclass_are_taken_as_they_are_and_efa_only_ones_have_no_addresses() -> None:
    wanted = (NetworkInterface(1, 0, "efa-only"), NetworkInterface(0, 0, "interface"))
    nodeclass = replace(NODECLASS, network_interfaces=wanted, associate_public_ip_address=False)
    offered = options(["p5.48xlarge", "m5.large"])
    _, templates = launch_plan(CLAIM, offered, nodeclass, status(nodeclass), CLUSTER)
    first, second = templates[0].data["NetworkInterfaces"]
    assert (first["NetworkCardIndex"], first["InterfaceType"]) == (0, "interface")
    assert "AssociatePublicIpAddress" not in first, "EC2 knows the field for a single interface only"
    assert second == {
        "NetworkCardIndex": 1,
        "DeviceIndex": 0,
        "InterfaceType": "efa-only",
        "Groups": ["sg-nodes"],
    }


def test_connection_tracking_and_prefixes_are_settings_of_the_interface() -> None:
    tracking = ConnectionTracking(3600, None, 45)
    (interface,) = data(replace(NODECLASS, connection_tracking=tracking, ip_prefix_count=2))[
        "NetworkInterfaces"
    ]
    assert interface["ConnectionTrackingSpecification"] == {"TcpEstablishedTimeout": 3600, "UdpTimeout": 45}
    assert interface["Ipv4PrefixCount"] == 2


def test_in_an_ipv6_cluster_every_interface_has_a_primary_ipv6_address() -> None:
    cluster = replace(CLUSTER, ip_family="ipv6", service_cidr="fd00::/108")
    nodeclass = replace(NODECLASS, ip_prefix_count=1)
    _, (template,) = launch_plan(CLAIM, options(["m5.large"]), nodeclass, status(), cluster)
    (interface,) = template.data["NetworkInterfaces"]
    assert (interface["PrimaryIpv6"], interface["Ipv6AddressCount"], interface["Ipv6PrefixCount"]) == (
        True,
        1,
        1,
    )
    assert "Ipv4PrefixCount" not in interface


def test_monitoring_is_basic_by_default() -> None:
    assert data()["Monitoring"] == {"Enabled": False}
    assert data(replace(NODECLASS, detailed_monitoring=True))["Monitoring"] == {"Enabled": True}


def test_nested_virtualization_is_a_cpu_option() -> None:
    assert "CpuOptions" not in data()
    _, (template,) = plan("m8i.large", nodeclass=replace(NODECLASS, nested_virtualization="enabled"))
    assert template.data["CpuOptions"] == {"NestedVirtualization": "enabled"}


def test_a_claim_that_rules_out_shared_hardware_gets_dedicated_tenancy() -> None:
    key = "karpenter.k8s.aws/instance-tenancy"
    assert "Placement" not in data()
    for values, dedicated in ((["dedicated"], True), (["default", "dedicated"], False), (["default"], False)):
        claim = replace(CLAIM, requirements=Requirements.of(requirement(key, "In", values)))
        _, (template,) = plan(claim=claim)
        assert template.data.get("Placement") == ({"Tenancy": "dedicated"} if dedicated else None)


def test_interfaces_are_tagged_and_spot_requests_only_for_spot() -> None:
    kinds = [spec["ResourceType"] for spec in data()["TagSpecifications"]]
    assert kinds == ["network-interface", "spot-instances-request"]
    kinds = [spec["ResourceType"] for spec in data(capacity_type="on-demand")["TagSpecifications"]]
    assert kinds == ["network-interface"]
    tags = {tag["Key"]: tag["Value"] for tag in data()["TagSpecifications"][0]["Tags"]}
    assert tags["kubernetes.io/cluster/express"] == "owned"
    assert "karpenter.sh/nodeclaim" not in tags


def test_the_instance_profile_is_the_resolved_one() -> None:
    assert data()["IamInstanceProfile"] == {"Name": "express_profile"}
