from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.scheduling.compatibility import type_set
from nodesmith.model.apimachinery.labels import AWS_KEYS, CAPACITY_TYPE, OS, WINDOWS_BUILD, ZONE, ZONE_ID
from nodesmith.model.apimachinery.requirements import Operator, Requirements, requirement
from nodesmith.model.ec2.catalog import Accelerator, Catalog, InstanceFacts, NeuronDevice, Offering
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.instancesettings import NetworkInterface
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings

AL2023 = NodeConfiguration()
PLAIN = InstanceFacts("m9z.large", "amd64", 2, 8192, ("on-demand", "spot"), 3, 10)
CARDS = replace(PLAIN, network_cards=2, efa_interfaces=2, card_interfaces=2)
TWO_ON_CARD_1 = (
    NetworkInterface(0, 0, "interface"),
    NetworkInterface(1, 0, "efa-only"),
    NetworkInterface(1, 1, "interface"),
)
OFFERINGS = (
    Offering("us-east-1b", "on-demand", 0.1, zone_id="use1-az1"),
    Offering("us-east-1a", "spot", 0.05, zone_id="use1-az6"),
    Offering("us-east-1c", "spot", 0.01, available=False),
)


def resolve(
    facts: InstanceFacts,
    configuration: NodeConfiguration = AL2023,
    offerings: tuple[Offering, ...] = OFFERINGS,
) -> InstanceType:
    made_at = datetime(2026, 8, 1, tzinfo=UTC)
    catalog = Catalog.of("us-east-1", made_at, {facts.name: facts}, {facts.name: offerings})
    return instance_types(catalog, configuration)[0]


def aws(one: InstanceType, name: str) -> str | None:
    label = one.labels.get(f"karpenter.k8s.aws/instance-{name}")
    needed = one.requirements[f"karpenter.k8s.aws/instance-{name}"]
    assert needed.values == (frozenset() if label is None else frozenset({label}))
    return label


@pytest.fixture(scope="module")
def embedded() -> dict[str, InstanceType]:
    return {one.name: one for one in instance_types(embedded_catalog(), NodeConfiguration())}


def test_an_m5_large_has_karpenters_labels(embedded: dict[str, InstanceType]) -> None:
    assert embedded["m5.large"].labels == {
        "node.kubernetes.io/instance-type": "m5.large",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "us-east-1",
        "karpenter.k8s.aws/instance-category": "m",
        "karpenter.k8s.aws/instance-generation": "5",
        "karpenter.k8s.aws/instance-family": "m5",
        "karpenter.k8s.aws/instance-size": "large",
        "karpenter.k8s.aws/instance-capability-flex": "false",
        "karpenter.k8s.aws/instance-cpu": "2",
        "karpenter.k8s.aws/instance-cpu-manufacturer": "intel",
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz": "3100",
        "karpenter.k8s.aws/instance-memory": "8192",
        "karpenter.k8s.aws/instance-ebs-bandwidth": "4750",
        "karpenter.k8s.aws/instance-network-bandwidth": "750",
        "karpenter.k8s.aws/instance-hypervisor": "nitro",
        "karpenter.k8s.aws/instance-encryption-in-transit-supported": "false",
    }


def test_every_type_has_a_requirement_for_every_instance_label(
    embedded: dict[str, InstanceType],
) -> None:
    keys = {key for key in AWS_KEYS if "/instance-" in key}
    assert all(keys <= set(one.requirements) for one in embedded.values())


@pytest.mark.parametrize(
    ("name", "category", "generation"),
    [
        ("u-6tb1.56xlarge", "u", "1"),
        ("u7i-12tb.224xlarge", "u", "7"),
        ("im4gn.large", "im", "4"),
        ("inf2.xlarge", "inf", "2"),
        ("c7i-flex.large", "c", "7"),
        ("odd.large", None, None),
    ],
)
def test_category_and_generation_are_read_from_the_name(
    name: str, category: str | None, generation: str | None
) -> None:
    one = resolve(replace(PLAIN, name=name))
    assert (aws(one, "category"), aws(one, "generation")) == (category, generation)
    assert aws(one, "capability-flex") == ("true" if "-flex" in name else "false")


def test_bare_metal_has_an_empty_hypervisor_label(embedded: dict[str, InstanceType]) -> None:
    assert aws(embedded["m5.metal"], "hypervisor") == ""


def test_a_gpu_is_named_in_lower_kebab_case(embedded: dict[str, InstanceType]) -> None:
    p4d = embedded["p4d.24xlarge"]
    assert [aws(p4d, f"gpu-{part}") for part in ("name", "manufacturer", "count", "memory")] == [
        "a100", "nvidia", "8", "40960",
    ]  # fmt: skip
    assert aws(p4d, "local-nvme") == "8000"


def test_types_with_two_kinds_of_gpu_have_no_gpu_labels() -> None:
    one = resolve(replace(PLAIN, gpus=(Accelerator("A", "NVIDIA", 1), Accelerator("B", "NVIDIA", 2))))
    assert aws(one, "gpu-name") is None
    assert one.capacity["nvidia.com/gpu"] == 3


def test_neuron_devices_are_the_accelerator_even_if_ec2_lists_them_twice() -> None:
    listed = (Accelerator("Inferentia", "AWS", 4),)
    one = resolve(
        replace(PLAIN, inference_accelerators=listed, neuron_devices=(NeuronDevice("Inferentia2", 6, 2),))
    )
    assert [aws(one, f"accelerator-{part}") for part in ("name", "manufacturer", "count")] == [
        "inferentia2", "aws", "6",
    ]  # fmt: skip
    other = resolve(replace(PLAIN, inference_accelerators=(Accelerator("Qualcomm AI100", "Qualcomm", 8),)))
    assert aws(other, "accelerator-name") == "qualcomm-ai100"


def test_zones_and_capacity_types_come_from_the_offerings() -> None:
    one = resolve(PLAIN)
    assert one.requirements[ZONE].values == {"us-east-1a", "us-east-1b"}
    assert one.requirements[ZONE_ID].values == {"use1-az6", "use1-az1"}
    assert one.requirements[CAPACITY_TYPE].values == {"spot", "on-demand"}
    assert {ZONE, ZONE_ID, CAPACITY_TYPE}.isdisjoint(one.labels)


def test_available_offerings_are_sorted_by_price() -> None:
    assert resolve(PLAIN).offerings == (OFFERINGS[1], OFFERINGS[0])


def test_a_type_in_a_single_zone_has_no_zone_label() -> None:
    one = resolve(PLAIN, offerings=OFFERINGS[:1])
    assert ZONE not in one.labels
    assert one.requirements[ZONE].values == {"us-east-1b"}


def test_a_type_without_a_price_is_known_but_fits_no_zone(embedded: dict[str, InstanceType]) -> None:
    unpriced = embedded["r9g.large"]
    assert unpriced.offerings == ()
    assert unpriced.requirements[ZONE].operator is Operator.DOES_NOT_EXIST
    assert unpriced.allocatable.pods > 0


@pytest.mark.parametrize(
    ("facts", "configuration"),
    [
        (replace(PLAIN, name="a1.large", arch="arm64"), NodeConfiguration("AL2023")),
        (replace(PLAIN, arch="arm64"), NodeConfiguration("Windows2022")),
        (replace(PLAIN, hypervisor="xen"), NodeConfiguration(connection_tracking=True)),
        (PLAIN, NodeConfiguration(nested_virtualization=True)),
        (PLAIN, NodeConfiguration(network_interfaces=(NetworkInterface(1, 0, "interface"),))),
        (PLAIN, NodeConfiguration(network_interfaces=(NetworkInterface(0, 1, "efa-only"),))),
        (
            replace(PLAIN, ena=False),
            NodeConfiguration(network_interfaces=(NetworkInterface(0, 0, "interface"),)),
        ),
        (replace(CARDS, card_interfaces=1), NodeConfiguration(network_interfaces=TWO_ON_CARD_1)),
        (replace(CARDS, efa_interfaces=0), NodeConfiguration(network_interfaces=TWO_ON_CARD_1)),
        (replace(CARDS, network_cards=1), NodeConfiguration(network_interfaces=TWO_ON_CARD_1)),
        (
            replace(CARDS, name="p6-b300.48xlarge"),
            NodeConfiguration(
                network_interfaces=(NetworkInterface(0, 0, "interface"), NetworkInterface(0, 1, "efa-only"))
            ),
        ),
    ],
)
def test_a_type_that_the_nodeclass_cannot_run_on_has_no_offerings(
    facts: InstanceFacts, configuration: NodeConfiguration
) -> None:
    assert resolve(facts, configuration).offerings == ()


def test_each_card_takes_as_many_interfaces_as_it_has() -> None:
    assert resolve(CARDS, NodeConfiguration(network_interfaces=TWO_ON_CARD_1)).offerings
    full = (*(NetworkInterface(0, n, "interface") for n in range(3)), NetworkInterface(0, 3, "interface"))
    assert resolve(CARDS, NodeConfiguration(network_interfaces=full[:3])).offerings
    assert not resolve(CARDS, NodeConfiguration(network_interfaces=full)).offerings


@pytest.mark.parametrize(("name", "number"), [("p5.48xlarge", 1), ("p6-b300.48xlarge", 0)])
def test_nodes_with_a_public_address_have_one_interface_and_its_efa(name: str, number: int) -> None:
    many = replace(CARDS, name=name, efa_interfaces=16)
    assert resolve(many).capacity.of("vpc.amazonaws.com/efa") == 16
    assert resolve(many, NodeConfiguration(one_interface=True)).capacity.of("vpc.amazonaws.com/efa") == number


def test_a_nodeclass_that_runs_on_any_type_keeps_all_offerings() -> None:
    assert (
        len(resolve(replace(PLAIN, name="a1.large", arch="arm64"), NodeConfiguration("AL2")).offerings) == 2
    )
    nested = replace(PLAIN, nested_virtualization=True)
    assert len(resolve(nested, NodeConfiguration(nested_virtualization=True)).offerings) == 2


def test_windows_families_require_os_and_build_and_linux_families_exclude_the_build() -> None:
    windows = resolve(PLAIN, NodeConfiguration("Windows2019"))
    assert (windows.labels[OS], windows.labels[WINDOWS_BUILD]) == ("windows", "10.0.17763")
    assert resolve(PLAIN).requirements[WINDOWS_BUILD].is_empty


def test_dedicated_tenancy_is_possible_on_every_type(embedded: dict[str, InstanceType]) -> None:
    wanted = Requirements.of(requirement("karpenter.k8s.aws/instance-tenancy", "In", ["dedicated"]))
    assert embedded["m5.large"].requirements.conflict(wanted) is None


def test_a_pod_that_excludes_gpus_is_compatible_with_a_type_without_one(
    embedded: dict[str, InstanceType],
) -> None:
    wanted = Requirements.of(requirement("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist"))
    assert embedded["m5.large"].requirements.conflict(wanted) is None
    assert embedded["p5.48xlarge"].requirements.conflict(wanted) is not None


def test_the_same_arguments_give_the_same_objects_and_other_settings_do_not() -> None:
    catalog = embedded_catalog()
    same = replace(catalog, offerings=dict(catalog.offerings))
    assert instance_types(catalog, NodeConfiguration()) is instance_types(same, NodeConfiguration())
    other = instance_types(catalog, NodeConfiguration(), NodeSettings(reserved_enis=1))
    assert other is not instance_types(catalog, NodeConfiguration())


def test_types_are_sorted_by_name(embedded: dict[str, InstanceType]) -> None:
    assert list(embedded) == sorted(embedded)


def test_types_that_are_resolved_again_have_the_same_set_and_others_have_another() -> None:
    catalog, configuration = embedded_catalog(), NodeConfiguration(ami_family="AL2023")
    first = instance_types(catalog, configuration)
    instance_types.cache_clear()
    again = instance_types(catalog, configuration)
    dense = instance_types(catalog, configuration, NodeSettings(prefix_delegation=True))
    assert again is not first
    assert type_set(again) is type_set(first)
    assert type_set(again) is type_set(again)
    assert type_set(dense) is not type_set(first)
    assert type_set(dense).types == dense
