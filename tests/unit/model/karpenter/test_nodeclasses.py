from copy import deepcopy
from typing import Any

import pytest

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.nodeclasses.instancesettings import (
    DEFAULT_BLOCK_DEVICES,
    DEFAULT_KUBELET,
    GIB,
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    KubeletConfiguration,
    MetadataOptions,
    NetworkInterface,
    write_kubelet,
)
from nodesmith.model.nodeclasses.nodeclasses import (
    AMISelectorTerm,
    CapacityReservationSelectorTerm,
    EC2NodeClass,
    PlacementGroupSelector,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
    parse_nodeclass,
)
from nodesmith.model.schema.fields import ALIAS_FAMILIES

DISCOVERY = {"karpenter.sh/discovery": "demo"}
SMALLEST: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": DISCOVERY}],
        "securityGroupSelectorTerms": [{"tags": DISCOVERY}],
    },
}
FULLEST: dict[str, Any] = {
    "metadata": {"name": "full", "uid": "0-2", "generation": 3, "annotations": {"a": "b"}},
    "spec": {
        "instanceProfile": "profile",
        "amiFamily": "AL2023",
        "amiSelectorTerms": [
            {"id": "ami-1"},
            {"name": "mine-*", "owner": "self", "tags": {"a": "*"}},
            {"ssmParameter": "/a/b"},
        ],
        "subnetSelectorTerms": [{"id": "subnet-1"}, {"tags": DISCOVERY}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}, {"name": "nodes"}, {"tags": DISCOVERY}],
        "capacityReservationSelectorTerms": [
            {"id": "cr-1"},
            {"tags": {"a": "b"}, "ownerID": "123456789012"},
            {"instanceMatchCriteria": "open"},
        ],
        "placementGroupSelector": {"name": "close"},
        "associatePublicIPAddress": False,
        "ipPrefixCount": 2,
        "userData": "echo hello",
        "tags": {"team": "a"},
        "kubelet": {
            "clusterDNS": ["10.100.0.10"],
            "maxPods": 40,
            "podsPerCore": 10,
            "systemReserved": {"cpu": "100m", "memory": "100Mi", "pid": 100},
            "kubeReserved": {"ephemeral-storage": "3Gi"},
            "evictionHard": {"memory.available": "5%"},
            "evictionSoft": {"nodefs.available": "1Gi"},
            "evictionSoftGracePeriod": {"nodefs.available": "1m30s"},
            "evictionMaxPodGracePeriod": 60,
            "imageGCHighThresholdPercent": 85,
            "imageGCLowThresholdPercent": 80,
            "cpuCFSQuota": False,
            "featureGates": {"A": True, "list": [1, {"b": "c"}]},
        },
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "rootVolume": True,
                "ebs": {
                    "volumeSize": "100Gi",
                    "volumeType": "gp3",
                    "encrypted": True,
                    "deleteOnTermination": False,
                    "iops": 4000,
                    "throughput": 300,
                    "kmsKeyID": "key",
                    "snapshotID": "snap-1",
                    "volumeInitializationRate": 200,
                },
            },
            {"deviceName": "/dev/xvdb", "ebs": {"snapshotID": "snap-2"}},
        ],
        "instanceStorePolicy": "RAID0",
        "networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
        ],
        "detailedMonitoring": True,
        "metadataOptions": {"httpProtocolIPv6": "enabled", "httpPutResponseHopLimit": 2},
        "connectionTracking": {"tcpEstablishedTimeout": 60, "udpTimeout": 30},
        "cpuOptions": {"nestedVirtualization": "enabled"},
        "context": "ctx",
    },
}


def with_spec(manifest: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a copy with these fields of the spec set. None removes a field."""
    copy = deepcopy(manifest)
    copy["spec"] = {name: value for name, value in {**copy["spec"], **fields}.items() if value is not None}
    return copy


def parsed(manifest: dict[str, Any]) -> EC2NodeClass:
    found = parse_nodeclass(manifest)
    assert found.problems == ()
    assert found.value is not None
    return found.value


def test_a_minimal_class_gets_the_defaults() -> None:
    nodeclass = parsed(SMALLEST)
    assert nodeclass.ami_family == "AL2023"
    assert nodeclass.metadata_options == MetadataOptions("enabled", "disabled", 1, "required")
    assert nodeclass.kubelet == DEFAULT_KUBELET
    assert nodeclass.block_devices == DEFAULT_BLOCK_DEVICES["AL2023"]
    assert nodeclass.subnet_selector_terms == (SubnetSelectorTerm(FrozenMap(DISCOVERY)),)
    assert nodeclass.root_volume_bytes == 20 * GIB


def test_every_field_is_read() -> None:
    nodeclass = parsed(FULLEST)
    assert nodeclass == EC2NodeClass(
        name="full",
        uid="0-2",
        generation=3,
        annotations={"a": "b"},
        hash=nodeclass.hash,
        digests=nodeclass.digests,
        content=nodeclass.content,
        ami_family="AL2023",
        ami_selector_terms=(
            AMISelectorTerm(id="ami-1"),
            AMISelectorTerm(name="mine-*", owner="self", tags=FrozenMap({"a": "*"})),
            AMISelectorTerm(ssm_parameter="/a/b"),
        ),
        subnet_selector_terms=(SubnetSelectorTerm(id="subnet-1"), SubnetSelectorTerm(FrozenMap(DISCOVERY))),
        security_group_selector_terms=(
            SecurityGroupSelectorTerm(id="sg-1"),
            SecurityGroupSelectorTerm(name="nodes"),
            SecurityGroupSelectorTerm(FrozenMap(DISCOVERY)),
        ),
        capacity_reservation_selector_terms=(
            CapacityReservationSelectorTerm(id="cr-1"),
            CapacityReservationSelectorTerm(FrozenMap({"a": "b"}), owner_id="123456789012"),
            CapacityReservationSelectorTerm(instance_match_criteria="open"),
        ),
        placement_group_selector=PlacementGroupSelector("close"),
        associate_public_ip_address=False,
        ip_prefix_count=2,
        user_data="echo hello",
        instance_profile="profile",
        tags={"team": "a"},
        kubelet=KubeletConfiguration(
            cluster_dns=("10.100.0.10",),
            max_pods=40,
            pods_per_core=10,
            system_reserved=Resources({"cpu": 100, "memory": 100 * 2**20, "pid": 100}),
            kube_reserved=Resources({"ephemeral-storage": 3 * GIB}),
            eviction_hard=FrozenMap({"memory.available": "5%"}),
            eviction_soft=FrozenMap({"nodefs.available": "1Gi"}),
            eviction_soft_grace_period=FrozenMap({"nodefs.available": "1m30s"}),
            eviction_max_pod_grace_period=60,
            image_gc_high_threshold_percent=85,
            image_gc_low_threshold_percent=80,
            cpu_cfs_quota=False,
            other=FrozenMap({"featureGates": FrozenMap({"A": True, "list": (1, FrozenMap({"b": "c"}))})}),
        ),
        block_device_mappings=(
            BlockDeviceMapping(
                "/dev/xvda",
                BlockDevice("100Gi", "gp3", True, False, 4000, 300, "key", "snap-1", 200),
                root_volume=True,
            ),
            BlockDeviceMapping("/dev/xvdb", BlockDevice(snapshot_id="snap-2")),
        ),
        instance_store_policy="RAID0",
        network_interfaces=(NetworkInterface(0, 0, "interface"), NetworkInterface(0, 1, "efa-only")),
        detailed_monitoring=True,
        metadata_options=MetadataOptions("enabled", "enabled", 2, "required"),
        connection_tracking=ConnectionTracking(60, None, 30),
        nested_virtualization="enabled",
        context="ctx",
    )


def test_kubelet_settings_are_hashable_and_are_written_unchanged() -> None:
    kubelet = parsed(FULLEST).kubelet
    assert len({kubelet, parsed(FULLEST).kubelet}) == 1
    written = write_kubelet(kubelet)
    assert written == {
        **FULLEST["spec"]["kubelet"],
        "systemReserved": {"cpu": "100m", "memory": "100Mi", "pid": "100"},
    }
    assert write_kubelet(DEFAULT_KUBELET) == {}


@pytest.mark.parametrize(
    ("alias", "family", "resolved"),
    [
        ("al2@latest", None, "AL2"),
        ("al2023@v20260115", None, "AL2023"),
        ("bottlerocket@v1.20.0", None, "Bottlerocket"),
        ("windows2019@latest", None, "Windows2019"),
        ("windows2022@latest", "Windows2022", "Windows2022"),
        ("windows2025@latest", None, "Windows2025"),
        ("al2023@latest", "Custom", "Custom"),
    ],
)
def test_the_family_is_the_given_one_or_that_of_the_alias(
    alias: str, family: str | None, resolved: str
) -> None:
    manifest = with_spec(SMALLEST, amiSelectorTerms=[{"alias": alias}], amiFamily=family)
    assert parsed(manifest).ami_family == resolved


def volume(device: str, size: str, **more: Any) -> dict[str, Any]:
    return {"deviceName": device, "ebs": {"volumeSize": size}, **more}


@pytest.mark.parametrize(
    ("family", "mappings", "size"),
    [
        ("AL2", [], 20 * GIB),
        ("Bottlerocket", [], 20 * GIB),
        ("Windows2022", [], 50 * GIB),
        ("Custom", [], 20 * GIB),
        ("AL2023", [volume("/dev/xvda", "100Gi")], 100 * GIB),
        ("AL2023", [volume("/dev/sdb", "100Gi")], 20 * GIB),
        ("AL2023", [volume("/dev/xvda", "30Gi"), volume("/dev/sdb", "1T", rootVolume=True)], 10**12),
        ("AL2023", [{"deviceName": "/dev/xvda", "ebs": {"snapshotID": "snap-1"}}], 20 * GIB),
        ("Bottlerocket", [volume("/dev/xvda", "8Gi"), volume("/dev/xvdb", "60Gi")], 60 * GIB),
        ("Custom", [volume("/dev/a", "8Gi"), volume("/dev/b", "9G")], 9 * 10**9),
    ],
)
def test_the_root_volume_is_the_one_that_holds_pods_storage(
    family: str, mappings: list[dict[str, Any]], size: int
) -> None:
    manifest = with_spec(
        SMALLEST, amiFamily=family, amiSelectorTerms=[{"id": "ami-1"}], blockDeviceMappings=mappings
    )
    assert parsed(manifest).root_volume_bytes == size


def test_every_family_has_devices_of_its_own() -> None:
    assert set(DEFAULT_BLOCK_DEVICES) == {*ALIAS_FAMILIES.values(), "Custom"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subnetSelectorTerms": []}, "spec.subnetSelectorTerms is []: must have at least 1 item"),
        ({"subnetSelectorTerms": None}, "spec.subnetSelectorTerms is missing: it is required"),
        (
            {"subnetSelectorTerms": [{}]},
            "spec.subnetSelectorTerms is a list of 1: each term needs one of tags, id",
        ),
        (
            {"subnetSelectorTerms": [{"id": "net-1"}]},
            "spec.subnetSelectorTerms[0].id is 'net-1': must match ^subnet-[0-9a-z]+$, for example subnet-0a1b2c",
        ),
        (
            {"securityGroupSelectorTerms": [{"id": "sg-1", "tags": {"a": "b"}}]},
            (
                "spec.securityGroupSelectorTerms is a list of 1: "
                "id cannot be combined with other fields in a term; remove tags, name"
            ),
        ),
        (
            {"securityGroupSelectorTerms": [{"tags": {"a": ""}}]},
            "spec.securityGroupSelectorTerms[0].tags.a is '': must not be empty",
        ),
        ({"role": None}, "spec.role is missing: exactly one of role and instanceProfile is needed"),
        ({"instanceProfile": "x"}, "spec.role is 'nodes': exactly one of role and instanceProfile is needed"),
        (
            {"amiSelectorTerms": [{"id": "ami-1"}]},
            "spec.amiFamily is missing: amiFamily is needed where no term has an alias",
        ),
        (
            {"amiFamily": "Bottlerocket"},
            "spec.amiFamily is 'Bottlerocket': amiFamily must be the alias's own family, or Custom",
        ),
        (
            {"amiSelectorTerms": [{"alias": "al2023@latest"}, {"id": "ami-1"}]},
            "spec.amiSelectorTerms is a list of 2: a term with alias must be the only one",
        ),
        (
            {"amiSelectorTerms": [{"alias": "windows2022@v1"}]},
            (
                "spec.amiSelectorTerms[0].alias is 'windows2022@v1': must match "
                "^((al2|al2023|bottlerocket)@.+|windows(2019|2022|2025)@latest)$, for example al2023@latest"
            ),
        ),
        (
            {"placementGroupSelector": {}},
            "spec.placementGroupSelector is a map of 0: exactly one of name and id is needed",
        ),
        (
            {"tags": {"karpenter.sh/nodepool": "x"}},
            (
                "spec.tags[karpenter.sh/nodepool] (the key) is 'karpenter.sh/nodepool': "
                "this tag is set automatically, leave it out"
            ),
        ),
        (
            {"blockDeviceMappings": [volume("a", "60000Gi")]},
            "spec.blockDeviceMappings[0].ebs.volumeSize is '60000Gi': must match",
        ),
        (
            {"blockDeviceMappings": [{"ebs": {}}]},
            "spec.blockDeviceMappings[0].ebs is a map of 0: volumeSize or snapshotID is needed",
        ),
        (
            {
                "blockDeviceMappings": [
                    volume("a", "1Gi", rootVolume=True),
                    volume("b", "1Gi", rootVolume=True),
                ]
            },
            "spec.blockDeviceMappings is a list of 2: only one mapping may be the rootVolume",
        ),
        (
            {"networkInterfaces": [{"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "interface"}]},
            "spec.networkInterfaces is a list of 1: one of them must be an interface at card 0, device 0",
        ),
        (
            {"metadataOptions": {"httpTokens": "never"}},
            "spec.metadataOptions.httpTokens is 'never': use one of required, optional",
        ),
        ({"connectionTracking": {}}, "spec.connectionTracking is a map of 0: at least one of"),
        (
            {"kubelet": {"maxPods": "29"}},
            "spec.kubelet.maxPods is '29': must be a whole number, without quotes",
        ),
        (
            {"kubelet": {"evictionHard": {"memory.avail": "5%"}}},
            "spec.kubelet.evictionHard[memory.avail] (the key) is 'memory.avail': use one of memory.available,",
        ),
        (
            {"kubelet": {"evictionSoft": {"memory.available": "5%"}}},
            "spec.kubelet is a map of 1: each signal of evictionSoft needs an entry",
        ),
        (
            {"kubelet": {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}},
            "spec.kubelet.imageGCHighThresholdPercent is 50: imageGCHighThresholdPercent must be greater",
        ),
        ({"kubelet": {"registerWithTaints": []}}, "spec.kubelet.registerWithTaints is []: leave it out"),
        (
            {"kubelet": {"systemReserved": {"memory": "1gb"}}},
            "spec.kubelet.systemReserved.memory is '1gb': must be a quantity, did you mean '1G'?",
        ),
        (
            {"detailedMonitoring": "yes"},
            "spec.detailedMonitoring is 'yes': must be true or false, without quotes",
        ),
    ],
)
def test_invalid_input_is_reported_with_object_field_value_and_remedy(
    fields: dict[str, Any], message: str
) -> None:
    found = parse_nodeclass(with_spec(SMALLEST, **fields))
    assert found.value is None
    assert str(found.fatal[0]).startswith(f"EC2NodeClass/default: {message}")


def test_an_id_with_other_selectors_is_not_fatal_if_another_term_has_none() -> None:
    terms = [{"id": "subnet-1", "tags": {"a": "b"}}, {"id": "subnet-2"}]
    found = parse_nodeclass(with_spec(SMALLEST, subnetSelectorTerms=terms))
    assert found.value is not None
    assert [str(p) for p in found.problems] == [
        (
            "EC2NodeClass/default: spec.subnetSelectorTerms is a list of 2: "
            "id cannot be combined with other fields in a term; remove tags"
        )
    ]


def test_unlisted_kubelet_fields_are_read() -> None:
    parsed = parse_nodeclass(with_spec(SMALLEST, kubelet={"featureGates": {"A": True}}))
    assert parsed.problems == ()
    assert parsed.value is not None
    assert dict(parsed.value.kubelet.other) == {"featureGates": FrozenMap({"A": True})}


def test_deeply_nested_kubelet_data_is_refused() -> None:
    bottomless: Any = "core"
    for _ in range(100_000):
        bottomless = [bottomless]
    found = parse_nodeclass(with_spec(SMALLEST, kubelet={"featureGates": bottomless}))
    assert [p.remedy for p in found.fatal] == ["must be plain data, nested at most 16 levels deep"]


@pytest.mark.parametrize("nonsense", [None, [], "text", 3, {}, {"metadata": {"name": "x"}, "spec": []}])
def test_input_that_is_not_a_manifest_is_explained(nonsense: Any) -> None:
    found = parse_nodeclass(nonsense)
    assert found.value is None
    assert found.fatal


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "others"},
        {"userData": "echo"},
        {"tags": {"a": ""}},
        {"kubelet": {"maxPods": 10}},
        {"blockDeviceMappings": [volume("/dev/xvda", "21Gi")]},
        {"instanceStorePolicy": "RAID0"},
        {"metadataOptions": {"httpTokens": "optional"}},
        {"detailedMonitoring": True},
        {"detailedMonitoring": False},
        {"associatePublicIPAddress": True},
        {"context": "ctx"},
        {"kubelet": {}},
        {"kubelet": {"topologyManagerPolicy": "best-effort"}},
        {"placementGroupSelector": {"name": "x"}},
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        {"connectionTracking": {"udpTimeout": 30}},
        {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
    ],
)
def test_the_hash_changes_with_fields_that_affect_nodes(fields: dict[str, Any]) -> None:
    assert parsed(with_spec(SMALLEST, **fields)).hash != parsed(SMALLEST).hash


@pytest.mark.parametrize(
    "fields",
    [
        {"subnetSelectorTerms": [{"id": "subnet-1"}]},
        {"securityGroupSelectorTerms": [{"id": "sg-1"}]},
        {"capacityReservationSelectorTerms": [{"id": "cr-1"}]},
        {"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2023"},
        {"amiFamily": "AL2023"},
        {"ipPrefixCount": 3},
        {"metadataOptions": {}},
        {"metadataOptions": {"httpTokens": "required"}},
    ],
)
def test_the_hash_ignores_fields_that_do_not_affect_nodes(fields: dict[str, Any]) -> None:
    assert parsed(with_spec(SMALLEST, **fields)).hash == parsed(SMALLEST).hash
