"""Every field of EC2NodeClass v1 has an effect: on the launch request, on allocatable, or on the status.

`EFFECTS` says for each field what it changes, and `ELSEWHERE` names the test of a field whose effect takes an account.
Both are compared with the CRD, so a field without a test of its effect fails.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.decisions.launch import launch_plan
from nodesmith.model.apimachinery.frozen import NO_ITEMS
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import Image
from tests import builders
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, status
from tests.objects.nodeclassfields import schemas

ROOT = Path(__file__).parents[4]
MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, slots=True)
class Launched:
    """What a NodeClass makes of one instance type: the CreateFleet call, the launch template, and the type."""

    fleet: Mapping[str, Any]
    template: Mapping[str, Any]
    kind: InstanceType

    @property
    def user_data(self) -> str:
        return base64.b64decode(self.template["UserData"]).decode()

    @property
    def kubelet(self) -> Mapping[str, Any]:
        """The kubelet's configuration in nodeadm's NodeConfig, which comes last."""
        *_, last = Parser().parsestr(self.user_data).walk()
        config: Mapping[str, Any] = json.loads(str(last.get_payload()))["spec"]["kubelet"]["config"]
        return config


def launched(instance_type: str = "m5d.large", **spec: Any) -> Launched:
    """Launch a node of a type with a NodeClass that has these fields."""
    nodeclass = builders.nodeclass(**spec)
    types = instance_types(embedded_catalog(), NodeConfiguration.of(nodeclass))
    kind = next(each for each in types if each.name == instance_type)
    offering = Offering("us-east-1a", "on-demand", 1.0)
    resolved = status(nodeclass, images=(Image("ami-any"),))
    request, (template,) = launch_plan(CLAIM, [(kind, offering)], nodeclass, resolved, CLUSTER)
    return Launched(fleet_request(request, CLUSTER.name), template.data, kind)


Look = Callable[[Launched], object]


@dataclass(frozen=True, slots=True)
class Effect:
    """A value of a field, and what is seen with and without it. `spec` are other fields that it needs."""

    field: Mapping[str, Any]
    look: Look
    without: object
    with_it: object
    spec: Mapping[str, Any] = NO_ITEMS
    instance_type: str = "m5d.large"


def volume(**fields: Any) -> dict[str, Any]:
    """Return a spec with one volume of 100 GiB that has these fields."""
    ebs = {"volumeSize": "100Gi", "volumeType": "gp3", **fields}
    return {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": ebs}]}


def ebs(name: str) -> Look:
    return lambda seen: seen.template["BlockDeviceMappings"][0]["Ebs"].get(name)


def interface(name: str) -> Look:
    return lambda seen: seen.template["NetworkInterfaces"][0].get(name)


def tracking(name: str) -> Look:
    return lambda seen: (
        seen.template["NetworkInterfaces"][0].get("ConnectionTrackingSpecification", {}).get(name)
    )


def metadata(name: str) -> Look:
    return lambda seen: seen.template["MetadataOptions"][name]


def left(name: str) -> Look:
    return lambda seen: seen.kind.allocatable.of(name)


def reserved(name: str) -> Look:
    return lambda seen: seen.kind.overhead.of(name)


def kubelet(name: str) -> Look:
    return lambda seen: seen.kubelet.get(name)


def cards(seen: Launched) -> list[tuple[int, int, str]]:
    found = seen.template["NetworkInterfaces"]
    return [(each["NetworkCardIndex"], each["DeviceIndex"], each["InterfaceType"]) for each in found]


def fleet_tags(seen: Launched) -> list[bool]:
    """Return for each kind of resource that CreateFleet tags whether it carries the tag `team`."""
    return [{"Key": "team", "Value": "a"} in each["Tags"] for each in seen.fleet["TagSpecifications"]]


FIRST = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
SOFT = {"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "2m"}}
TWO_VOLUMES = [
    {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}},
    {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "100Gi"}},
]
PLAIN_STORAGE = 17 * GIB
EFFECTS: dict[str, Effect] = {
    "associatePublicIPAddress": Effect(
        {"associatePublicIPAddress": False}, interface("AssociatePublicIpAddress"), None, False
    ),
    "ipPrefixCount": Effect({"ipPrefixCount": 2}, interface("Ipv4PrefixCount"), None, 2),
    "amiFamily": Effect(
        {"amiFamily": "Custom"},
        lambda seen: seen.user_data.startswith("MIME"),
        True,
        False,
        {"userData": "#!/bin/sh\n"},
    ),
    "userData": Effect(
        {"userData": "#!/bin/sh\necho hello\n"}, lambda seen: "echo hello" in seen.user_data, False, True
    ),
    "tags": Effect({"tags": {"team": "a"}}, fleet_tags, [False] * 4, [True] * 4),
    "kubelet.clusterDNS[]": Effect(
        {"kubelet": {"clusterDNS": ["169.254.20.10", "10.100.0.10"]}},
        kubelet("clusterDNS"),
        ["10.100.0.10"],
        ["169.254.20.10", "10.100.0.10"],
    ),
    "kubelet.maxPods": Effect({"kubelet": {"maxPods": 12}}, left("pods"), 29, 12),
    "kubelet.podsPerCore": Effect({"kubelet": {"podsPerCore": 5}}, left("pods"), 29, 10),
    "kubelet.systemReserved": Effect(
        {"kubelet": {"systemReserved": {"cpu": "100m", "ephemeral-storage": "1Gi"}}},
        lambda seen: (seen.kind.allocatable.cpu_milli, left("ephemeral-storage")(seen)),
        (1930, PLAIN_STORAGE),
        (1830, PLAIN_STORAGE - GIB),
    ),
    "kubelet.kubeReserved": Effect(
        {"kubelet": {"kubeReserved": {"memory": "1Gi"}}}, reserved("memory"), 674 * MIB, 1124 * MIB
    ),
    "kubelet.evictionHard": Effect(
        {"kubelet": {"evictionHard": {"memory.available": "300Mi", "nodefs.available": "20%"}}},
        lambda seen: (reserved("memory")(seen), left("ephemeral-storage")(seen)),
        (674 * MIB, PLAIN_STORAGE),
        (874 * MIB, 15 * GIB),
    ),
    "kubelet.evictionSoft": Effect(
        {"kubelet": SOFT}, kubelet("evictionSoft"), None, {"memory.available": "5%"}
    ),
    "kubelet.evictionSoftGracePeriod": Effect(
        {"kubelet": SOFT}, kubelet("evictionSoftGracePeriod"), None, {"memory.available": "2m"}
    ),
    "kubelet.evictionMaxPodGracePeriod": Effect(
        {"kubelet": {"evictionMaxPodGracePeriod": 60}}, kubelet("evictionMaxPodGracePeriod"), None, 60
    ),
    "kubelet.imageGCHighThresholdPercent": Effect(
        {"kubelet": {"imageGCHighThresholdPercent": 80}}, kubelet("imageGCHighThresholdPercent"), None, 80
    ),
    "kubelet.imageGCLowThresholdPercent": Effect(
        {"kubelet": {"imageGCLowThresholdPercent": 70}}, kubelet("imageGCLowThresholdPercent"), None, 70
    ),
    "kubelet.cpuCFSQuota": Effect({"kubelet": {"cpuCFSQuota": False}}, kubelet("cpuCFSQuota"), None, False),
    "blockDeviceMappings[].deviceName": Effect(
        {"blockDeviceMappings": [{"deviceName": "/dev/sdf", "ebs": {"volumeSize": "20Gi"}}]},
        lambda seen: [each["DeviceName"] for each in seen.template["BlockDeviceMappings"]],
        ["/dev/xvda"],
        ["/dev/sdf"],
    ),
    "blockDeviceMappings[].rootVolume": Effect(
        {"blockDeviceMappings": [TWO_VOLUMES[0], {**TWO_VOLUMES[1], "rootVolume": True}]},
        left("ephemeral-storage"),
        PLAIN_STORAGE,
        89 * GIB,
        {"blockDeviceMappings": TWO_VOLUMES},
    ),
    "blockDeviceMappings[].ebs.deleteOnTermination": Effect(
        volume(deleteOnTermination=False),
        lambda seen: (
            ebs("DeleteOnTermination")(seen),
            {"Key": "nodesmith.dev/keep-volumes", "Value": "true"}
            in seen.fleet["TagSpecifications"][1]["Tags"],
        ),
        (None, False),
        (False, True),
    ),
    "blockDeviceMappings[].ebs.encrypted": Effect(
        volume(encrypted=False), ebs("Encrypted"), None, False, volume()
    ),
    "blockDeviceMappings[].ebs.iops": Effect(volume(iops=4000), ebs("Iops"), None, 4000),
    "blockDeviceMappings[].ebs.kmsKeyID": Effect(volume(kmsKeyID="key"), ebs("KmsKeyId"), None, "key"),
    "blockDeviceMappings[].ebs.snapshotID": Effect(
        volume(snapshotID="snap-1"), ebs("SnapshotId"), None, "snap-1"
    ),
    "blockDeviceMappings[].ebs.throughput": Effect(volume(throughput=500), ebs("Throughput"), None, 500),
    "blockDeviceMappings[].ebs.volumeInitializationRate": Effect(
        volume(snapshotID="snap-1", volumeInitializationRate=200),
        ebs("VolumeInitializationRate"),
        None,
        200,
    ),
    "blockDeviceMappings[].ebs.volumeSize": Effect(
        volume(),
        lambda seen: (ebs("VolumeSize")(seen), left("ephemeral-storage")(seen)),
        (20, PLAIN_STORAGE),
        (100, 89 * GIB),
    ),
    "blockDeviceMappings[].ebs.volumeType": Effect(volume(volumeType="gp2"), ebs("VolumeType"), "gp3", "gp2"),
    "instanceStorePolicy": Effect(
        {"instanceStorePolicy": "RAID0"},
        lambda seen: (seen.kind.capacity.of("ephemeral-storage"), '"strategy": "RAID0"' in seen.user_data),
        (20 * GIB, False),
        (75 * 10**9, True),
    ),
    "networkInterfaces[].networkCardIndex": Effect(
        {"networkInterfaces": [FIRST, {**FIRST, "networkCardIndex": 1, "deviceIndex": 1}]},
        cards,
        [(0, 0, "interface")],
        [(0, 0, "interface"), (1, 1, "interface")],
        instance_type="p5.48xlarge",
    ),
    "networkInterfaces[].deviceIndex": Effect(
        {"networkInterfaces": [FIRST, {**FIRST, "deviceIndex": 1}]},
        cards,
        [(0, 0, "interface")],
        [(0, 0, "interface"), (0, 1, "interface")],
    ),
    "networkInterfaces[].interfaceType": Effect(
        {"networkInterfaces": [FIRST, {**FIRST, "deviceIndex": 1, "interfaceType": "efa-only"}]},
        lambda seen: (cards(seen)[-1], left("vpc.amazonaws.com/efa")(seen), left("pods")(seen)),
        ((0, 0, "interface"), 32, 100),
        ((0, 1, "efa-only"), 1, 51),
        instance_type="p5.48xlarge",
    ),
    "detailedMonitoring": Effect(
        {"detailedMonitoring": True}, lambda seen: seen.template["Monitoring"]["Enabled"], False, True
    ),
    "metadataOptions.httpEndpoint": Effect(
        {"metadataOptions": {"httpEndpoint": "disabled"}}, metadata("HttpEndpoint"), "enabled", "disabled"
    ),
    "metadataOptions.httpProtocolIPv6": Effect(
        {"metadataOptions": {"httpProtocolIPv6": "enabled"}},
        metadata("HttpProtocolIpv6"),
        "disabled",
        "enabled",
    ),
    "metadataOptions.httpPutResponseHopLimit": Effect(
        {"metadataOptions": {"httpPutResponseHopLimit": 2}}, metadata("HttpPutResponseHopLimit"), 1, 2
    ),
    "metadataOptions.httpTokens": Effect(
        {"metadataOptions": {"httpTokens": "optional"}}, metadata("HttpTokens"), "required", "optional"
    ),
    "connectionTracking.tcpEstablishedTimeout": Effect(
        {"connectionTracking": {"tcpEstablishedTimeout": 3600}}, tracking("TcpEstablishedTimeout"), None, 3600
    ),
    "connectionTracking.udpStreamTimeout": Effect(
        {"connectionTracking": {"udpStreamTimeout": 90}}, tracking("UdpStreamTimeout"), None, 90
    ),
    "connectionTracking.udpTimeout": Effect(
        {"connectionTracking": {"udpTimeout": 45}}, tracking("UdpTimeout"), None, 45
    ),
    "cpuOptions.nestedVirtualization": Effect(
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        lambda seen: seen.template.get("CpuOptions"),
        None,
        {"NestedVirtualization": "enabled"},
        instance_type="m8i.large",
    ),
    "context": Effect({"context": "context-1"}, lambda seen: seen.fleet.get("Context"), None, "context-1"),
}
_RESOLVING = "tests/integration/ec2/test_resolving_nodeclasses.py"
_RESERVATIONS = "tests/unit/adapters/nodeclasses/test_capacity_reservations.py"
_IMAGES = f"{_RESOLVING}::test_images_are_selected_by_id_name_tags_and_parameter"
_SUBNETS = f"{_RESOLVING}::test_subnets_are_selected_by_tag_tag_key_and_id"
_GROUPS = f"{_RESOLVING}::test_security_groups_are_selected_by_tag_name_and_id"
_QUERIES = f"{_RESERVATIONS}::test_each_id_is_described_separately_and_other_terms_by_their_filters"
_PLACEMENT = "tests/contract/aws/test_placement_groups.py::test_a_group_is_found_by_name_and_by_id"
ELSEWHERE = {
    "subnetSelectorTerms[].tags": _SUBNETS,
    "subnetSelectorTerms[].id": _SUBNETS,
    "securityGroupSelectorTerms[].tags": _GROUPS,
    "securityGroupSelectorTerms[].id": _GROUPS,
    "securityGroupSelectorTerms[].name": _GROUPS,
    "capacityReservationSelectorTerms[].tags": _QUERIES,
    "capacityReservationSelectorTerms[].id": _QUERIES,
    "capacityReservationSelectorTerms[].ownerID": _QUERIES,
    "capacityReservationSelectorTerms[].instanceMatchCriteria": _QUERIES,
    "placementGroupSelector.name": _PLACEMENT,
    "placementGroupSelector.id": _PLACEMENT,
    "amiSelectorTerms[].alias": f"{_RESOLVING}::test_an_alias_yields_one_image_for_each_kind_of_instance",
    "amiSelectorTerms[].tags": _IMAGES,
    "amiSelectorTerms[].id": _IMAGES,
    "amiSelectorTerms[].name": _IMAGES,
    "amiSelectorTerms[].owner": _IMAGES,
    "amiSelectorTerms[].ssmParameter": _IMAGES,
    "role": f"{_RESOLVING}::test_a_tagged_profile_is_created_for_a_role",
    "instanceProfile": f"{_RESOLVING}::test_a_users_own_profile_is_used_without_calling_iam",
}
"""Field → the test of its effect on the status, in another file."""


def test_every_field_of_the_schema_has_a_test_of_its_effect() -> None:
    assert sorted({*EFFECTS, *ELSEWHERE}) == sorted(schemas())
    assert EFFECTS.keys().isdisjoint(ELSEWHERE)


@pytest.mark.parametrize("named", sorted(set(ELSEWHERE.values())))
def test_a_test_that_the_table_names_exists(named: str) -> None:
    file, _, name = named.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted(EFFECTS))
def test_a_field_has_its_effect(path: str) -> None:
    effect = EFFECTS[path]
    before = launched(effect.instance_type, **effect.spec)
    after = launched(effect.instance_type, **{**effect.spec, **effect.field})
    assert (effect.look(before), effect.look(after)) == (effect.without, effect.with_it)
    assert effect.without != effect.with_it


def test_every_field_of_the_kubelet_beyond_the_schemas_reaches_it_unchanged() -> None:
    more = {"featureGates": {"A": True}, "containerLogMaxSize": "50Mi"}
    assert more.items() <= launched(kubelet=more).kubelet.items()


@pytest.mark.parametrize(
    ("spec", "runs", "does_not_run"),
    [
        ({"connectionTracking": {"udpTimeout": 45}}, "m5.large", "m4.large"),
        ({"cpuOptions": {"nestedVirtualization": "enabled"}}, "m8i.large", "m5.large"),
        ({"networkInterfaces": [FIRST, {**FIRST, "networkCardIndex": 1}]}, "p5.48xlarge", "m5.large"),
        ({"networkInterfaces": [FIRST, {**FIRST, "deviceIndex": 1}]}, "m5.large", "m4.large"),
    ],
    ids=str,
)
def test_only_types_that_support_a_field_are_offered(
    spec: dict[str, Any], runs: str, does_not_run: str
) -> None:
    types = instance_types(embedded_catalog(), NodeConfiguration.of(builders.nodeclass(**spec)))
    offered = {each.name for each in types if each.offerings}
    assert runs in offered
    assert does_not_run not in offered


def test_in_regions_whose_ec2_lacks_the_option_metadata_over_ipv6_is_left_out() -> None:
    kind = launched().kind
    for zone, has_option in (("us-iso-east-1a", False), ("us-isob-east-1a", False), ("us-east-1a", True)):
        nodeclass = builders.nodeclass()
        subnets = tuple(replace(each, zone=zone) for each in status(nodeclass).subnets)
        resolved = replace(status(nodeclass), subnets=subnets)
        offering = Offering(zone, "on-demand", 1.0)
        _, (template,) = launch_plan(CLAIM, [(kind, offering)], nodeclass, resolved, CLUSTER)
        assert ("HttpProtocolIpv6" in template.data["MetadataOptions"]) is has_option
