"""What can be bought: general-purpose EC2 on demand, spot and on-demand of all types, and 400 made-up types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from nodesmith.decisions.shadow.karpenter import Kind
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ZONE
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_formats.catalogfiles import read_catalog_file
from tests.builders import NOW, ZONES, catalog, expression, nodepool_manifest

Manifest = dict[str, Any]
AWS = "karpenter.k8s.aws/instance"
FAKE_PRICE = 0.3147483648
"""of 1 cpu and 2 GiB, USD an hour: 0.1 per cpu and 0.1 per 10⁹ bytes"""
_BARE_METAL = ("metal", "metal-12xl", "metal-16xl", "metal-24xl", "metal-32xl", "metal-48xl", "metal-96xl")
_LATER = ("m8idb", "m8idn", "r8idb", "r8idn")


def on_demand_cmr() -> Manifest:
    """Return the NodePool for which the bounds of the openb traces were computed.

    It allows 592 types: x86 of families c, m and r, generation 3 or later, not metal. Those in `_LATER` are newer.
    """
    return nodepool_manifest(
        requirements=[
            expression(CAPACITY_TYPE, "In", "on-demand"),
            expression("kubernetes.io/arch", "In", "amd64"),
            expression(f"{AWS}-category", "In", "c", "m", "r"),
            expression(f"{AWS}-generation", "Gt", "2"),
            expression(f"{AWS}-size", "NotIn", *_BARE_METAL),
            expression(f"{AWS}-family", "NotIn", *_LATER),
        ]
    )


def everything() -> Manifest:
    """Return a NodePool that may buy every type that its images boot on, spot or on-demand."""
    return nodepool_manifest(requirements=[expression(CAPACITY_TYPE, "In", "spot", "on-demand")])


def anything_fake() -> Manifest:
    """Return a NodePool without requirements."""
    return nodepool_manifest(requirements=[])


def kinds(nodepool: Manifest) -> list[Kind]:
    """Return the types of the embedded catalogue that the NodePool may buy in `ZONES`, each at its lowest price."""
    pool = parse_nodepool(nodepool).value
    assert pool is not None
    found: list[Kind] = []
    for one in instance_types(embedded(), NodeConfiguration()):
        prices = [
            o.price_hourly_usd
            for o in one.offerings
            if o.zone in ZONES
            and pool.requirements.allow_labels({**one.labels, ZONE: o.zone, CAPACITY_TYPE: o.capacity_type})
        ]
        if prices:
            offered = one.allocatable
            found.append(Kind(one.name, (offered.cpu_milli, offered.memory_bytes, offered.pods), min(prices)))
    return found


def embedded() -> Catalog:
    """Return the catalogue that ships in the package, for us-east-1."""
    return catalog()


@lru_cache(maxsize=4)
def fake_types(count: int = 400) -> Catalog:
    """Return types i = 1…count, in Karpenter's KWOK format: i cpu, 2i GiB, 10i pods; spot in two of three zones."""
    found, problems = read_catalog_file(json.dumps([_fake(i) for i in range(1, count + 1)]).encode(), NOW)
    assert not problems
    return found


def _fake(size: int) -> Manifest:
    made = fake_type(size, FAKE_PRICE * size, ("test-zone-1", "test-zone-2", "test-zone-3"))
    spot = [_offering("spot", f"test-zone-{zone}", FAKE_PRICE * size) for zone in (1, 2)]
    return {**made, "name": f"fake-it-{size - 1}", "offerings": [*spot, *made["offerings"]]}


def fake_type(cpu: int, price: float, zones: Sequence[str]) -> Manifest:
    """Return a type with `cpu` cpus, twice as many GiB and ten times as many pods, on demand in these zones."""
    return {
        "name": f"fake-{cpu}",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": str(cpu), "memory": f"{2 * cpu}Gi", "pods": str(10 * cpu)},
        "offerings": [_offering("on-demand", zone, price) for zone in zones],
    }


def _offering(way: str, zone: str, price: float) -> Manifest:
    requirements = [expression(CAPACITY_TYPE, "In", way), expression(ZONE, "In", zone)]
    return {"Price": price, "Available": True, "Requirements": requirements}
