"""Block device mappings that EC2 would refuse, and the messages that say what is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.launch import launch_obstacle
from nodesmith.decisions.launch.validation import volume_obstacle
from nodesmith.model.nodeclasses.instancesettings import (
    DEFAULT_BLOCK_DEVICES,
    BlockDevice,
    BlockDeviceMapping,
)
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import NODECLASS


def message_for(device: str = "/dev/xvdb", **ebs: Any) -> str:
    """Return the message about one volume, empty for none."""
    obstacle = volume_obstacle((BlockDeviceMapping(device, BlockDevice(**ebs)),))
    return obstacle.message if obstacle else ""


@pytest.mark.parametrize(
    "ebs",
    [
        {"volume_type": "gp3", "volume_size": "1Gi"},
        {"volume_type": "gp3", "volume_size": "1Gi", "iops": 3000},
        {"volume_type": "gp3", "volume_size": "40Gi", "iops": 20_000},
        {"volume_type": "gp3", "volume_size": "160Gi", "iops": 80_000, "throughput": 2000},
        {"volume_type": "gp3", "volume_size": "64T", "throughput": 750},
        {"volume_type": "gp3", "snapshot_id": "snap-1", "iops": 80_000},
        {"volume_type": "io1", "volume_size": "4Gi", "iops": 200},
        {"volume_type": "io1", "volume_size": "16384Gi", "iops": 64_000},
        {"volume_type": "io2", "volume_size": "256Gi", "iops": 256_000},
        {"volume_type": "gp2", "volume_size": "16384Gi"},
        {"volume_type": "st1", "volume_size": "125Gi"},
        {"volume_type": "sc1", "volume_size": "16384Gi"},
        {"volume_type": "standard", "volume_size": "1024Gi"},
        {"volume_size": "20Gi", "iops": 1, "throughput": 1},
        {"volume_type": "gp3", "volume_size": "20Gi", "kms_key_id": "key"},
        {"volume_type": "gp3", "volume_size": "20Gi", "kms_key_id": "key", "encrypted": True},
    ],
    ids=str,
)
def test_volumes_within_the_limits_of_their_type_are_accepted(ebs: dict[str, Any]) -> None:
    assert message_for(**ebs) == ""


@pytest.mark.parametrize(
    ("ebs", "message"),
    [
        (
            {"volume_type": "gp3", "volume_size": "20Gi", "iops": 20_000},
            (
                "ebs.iops is 20,000, but gp3 volumes of 20 GiB have 10,000 at most (500 per GiB): lower it, or set "
                "volumeSize to 40Gi or more"
            ),
        ),
        (
            {"volume_type": "gp3", "volume_size": "500Gi", "iops": 80_001},
            "ebs.iops is 80,001, but gp3 volumes have 3,000 to 80,000",
        ),
        (
            {"volume_type": "gp3", "volume_size": "500Gi", "iops": 2999},
            "ebs.iops is 2,999, but gp3 volumes have 3,000 to 80,000",
        ),
        (
            {"volume_type": "gp3", "volume_size": "20Gi", "throughput": 2001},
            "ebs.throughput is 2,001, but gp3 volumes have 125 to 2,000 MiB/s",
        ),
        (
            {"volume_type": "gp3", "volume_size": "20Gi", "throughput": 124},
            "ebs.throughput is 124, but gp3 volumes have 125 to 2,000 MiB/s",
        ),
        (
            {"volume_type": "gp3", "volume_size": "20Gi", "throughput": 751},
            "ebs.throughput is 751 MiB/s, for which iops must be 3,004 or more, not 3,000 (the default)",
        ),
        (
            {"volume_type": "gp3", "volume_size": "20Gi", "iops": 4000, "throughput": 1001},
            "ebs.throughput is 1,001 MiB/s, for which iops must be 4,004 or more, not 4,000",
        ),
        (
            {"volume_type": "io2", "volume_size": "200Gi", "throughput": 250, "iops": 100},
            "ebs.throughput is 250, but only gp3 volumes have it: leave it out, or use gp3",
        ),
        (
            {"volume_type": "io2", "volume_size": "20Gi"},
            "ebs.iops is missing, but io2 volumes need it: set it, or use gp3",
        ),
        (
            {"volume_type": "io2", "volume_size": "4Gi", "iops": 4001},
            (
                "ebs.iops is 4,001, but io2 volumes of 4 GiB have 4,000 at most (1,000 per GiB): lower it, or set "
                "volumeSize to 5Gi or more"
            ),
        ),
        (
            {"volume_type": "io1", "volume_size": "100Gi", "iops": 5001},
            (
                "ebs.iops is 5,001, but io1 volumes of 100 GiB have 5,000 at most (50 per GiB): lower it, or set "
                "volumeSize to 101Gi or more"
            ),
        ),
        (
            {"volume_type": "io1", "volume_size": "3Gi", "iops": 100},
            "ebs.volumeSize is 3 GiB, but io1 volumes have 4 to 16,384 GiB",
        ),
        (
            {"volume_type": "gp2", "volume_size": "20Gi", "iops": 3000},
            "ebs.iops is 3,000, but gp2 volumes have none: leave it out, or use gp3",
        ),
        (
            {"volume_type": "st1", "volume_size": "124Gi"},
            "ebs.volumeSize is 124 GiB, but st1 volumes have 125 to 16,384 GiB",
        ),
        (
            {"volume_type": "standard", "volume_size": "2T"},
            "ebs.volumeSize is 1,863 GiB, but standard volumes have 1 to 1,024 GiB",
        ),
        (
            {"volume_type": "gp3", "volume_size": "20Gi", "kms_key_id": "key", "encrypted": False},
            "ebs.encrypted is false, but kmsKeyID names a key: leave out one of them",
        ),
    ],
    ids=str,
)
def test_a_volume_that_ebs_does_not_offer_is_named_with_what_it_offers(
    ebs: dict[str, Any], message: str
) -> None:
    assert message_for(**ebs) == f"spec.blockDeviceMappings[0].{message}"


@pytest.mark.parametrize("name", ["iops", "throughput"])
def test_whatever_its_type_a_volume_needs_positive_numbers(name: str) -> None:
    fault = f"spec.blockDeviceMappings[0].ebs.{name} is 0: write a positive number, or leave it out"
    wrong: dict[str, Any] = {name: 0}
    assert message_for(volume_size="20Gi", **wrong) == fault


def test_no_instance_boots_from_a_hard_disk_volume() -> None:
    disk = {"volume_type": "st1", "volume_size": "500Gi"}
    assert "volumeType is st1, from which no instance boots" in message_for("/dev/xvda", **disk)
    assert message_for("/dev/xvdb", **disk) == ""


def test_each_mapping_needs_a_device_name_of_its_own() -> None:
    one, other = (BlockDeviceMapping("/dev/xvda", BlockDevice("20Gi")) for _ in range(2))
    twice, nameless = volume_obstacle((one, other)), volume_obstacle((one, other._replace(device_name="")))
    assert twice is not None
    assert nameless is not None
    assert (twice.reason, twice.field) == (
        "BlockDeviceMappingInvalid",
        "spec.blockDeviceMappings[1].deviceName",
    )
    assert "is /dev/xvda, as in spec.blockDeviceMappings[0]" in twice.message
    assert "spec.blockDeviceMappings[1].deviceName is missing" in nameless.message


def test_the_default_volumes_of_every_family_are_within_the_limits() -> None:
    assert [volume_obstacle(mappings) for mappings in DEFAULT_BLOCK_DEVICES.values()] == [None] * 7


def test_a_nodeclass_with_such_a_volume_cannot_be_launched_from() -> None:
    mapping = BlockDeviceMapping("/dev/xvda", BlockDevice("20Gi", "gp3", iops=20_000))
    obstacle = launch_obstacle(replace(NODECLASS, block_device_mappings=(mapping,)), CLUSTER)
    assert obstacle is not None
    assert obstacle.field == "spec.blockDeviceMappings[0].ebs.iops"
