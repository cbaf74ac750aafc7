from __future__ import annotations

from pathlib import Path

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration

GOLDEN = Path(__file__).parents[2] / "golden" / "instance-types.txt"
LINES = [line.split() for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
COLUMNS, ROWS = LINES[0], LINES[1:]
NONE, NOT_TOLD = "-", "*"
SHARES_OF_GPUS = ("g6f.", "gr6f.")
DEVICES = {
    "gpu": "nvidia.com/gpu",
    "neuron": "aws.amazon.com/neuron",
    "neuroncore": "aws.amazon.com/neuroncore",
    "efa": "vpc.amazonaws.com/efa",
    "pod-eni": "vpc.amazonaws.com/pod-eni",
}
LABELS = {
    "clockMhz": "instance-cpu-sustained-clock-speed-mhz",
    "ebsMbps": "instance-ebs-bandwidth",
    "networkMbps": "instance-network-bandwidth",
    "nvmeGb": "instance-local-nvme",
}


def derived(one: InstanceType) -> dict[str, str]:
    """Return the columns of the table for a type, from the catalogue."""
    left, devices = one.allocatable, {name for name in one.capacity if "/" in name}
    assert devices <= set(DEVICES.values()), f"{one.name} has devices that the table has no column for"
    return {
        "type": one.name,
        "cpuMilli": str(left.cpu_milli),
        "memoryMi": f"{left.memory_bytes / 2**20:.10g}",
        "pods": str(left.pods),
        **{column: str(left.of(name) or NONE) for column, name in DEVICES.items()},
        **{column: one.labels.get(f"karpenter.k8s.aws/{name}", NONE) for column, name in LABELS.items()},
    }


@pytest.fixture(scope="module")
def catalogue() -> dict[str, InstanceType]:
    return {one.name: one for one in instance_types(embedded_catalog(), NodeConfiguration())}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_type_matches_karpenters_published_table(
    row: list[str], catalogue: dict[str, InstanceType]
) -> None:
    published = dict(zip(COLUMNS, row, strict=True))
    found = derived(catalogue[published["type"]])
    reported = {column: value for column, value in published.items() if value != NOT_TOLD}
    if published["type"].startswith(SHARES_OF_GPUS):
        reported["gpu"] = "1"  # Karpenter's table shows none
    assert {column: found[column] for column in reported} == reported


def test_all_shapes_of_instance_types_are_in_the_published_table() -> None:
    names = [row[0] for row in ROWS]
    assert len(names) == len(set(names)) > 60
    assert {"metal" in name for name in names} == {True, False}
    assert all(any(row[COLUMNS.index(column)] not in (NONE, NOT_TOLD) for row in ROWS) for column in COLUMNS)
