"""Successive plans: each plan finds the nodes of those before it, with their pods on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    NODEPOOL,
    REGISTERED,
    ZONE,
)
from nodesmith.model.apimachinery.quantities import format_resources
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests.problems.planning import Planned, planned

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Followed:
    """The totals of all waves. `manifests` and `plan` are those of the last wave."""

    price_hourly_usd: float
    nodes: int
    unplaced: frozenset[str]
    manifests: tuple[Manifest, ...]
    plan: Planned


def in_waves(waves: Iterable[Sequence[Manifest]], nodepool: Manifest, catalog: Catalog) -> Followed:
    """Plan one wave of pods after the other; each node that is bought joins, and each pod with a node runs."""
    types = _types(catalog)
    there: list[Manifest] = []
    price, nodes, unplaced = 0.0, 0, set[str]()
    for number, wave in enumerate(waves):
        manifests = [nodepool, *there, *wave]
        made = planned(manifests, catalog)
        price, nodes, unplaced = (
            price + made.price_hourly_usd,
            nodes + len(made.plan["nodes"]),
            unplaced | set(made.unplaced),
        )
        joined = [(f"wave-{number}-{index:03d}", bought) for index, bought in enumerate(made.plan["nodes"])]
        there += [joining(name, bought, types[bought["instanceType"]]) for name, bought in joined]
        hosts = {pod: name for name, bought in joined for pod in bought["pods"]}
        hosts |= {pod: node["node"] for node in made.plan["existing"] for pod in node["pods"]}
        there += [running(pod, hosts[key]) for pod in wave if (key := _key(pod)) in hosts]
    return Followed(price, nodes, frozenset(unplaced), tuple(manifests), made)


def joining(name: str, bought: Manifest, kind: InstanceType) -> Manifest:
    """Return the Node that a planned node becomes once it is ready."""
    labels = {
        **kind.labels,
        NODEPOOL: bought["nodePool"],
        ZONE: bought["zone"],
        CAPACITY_TYPE: bought["capacityType"],
        HOSTNAME: name,
        REGISTERED: "true",
        INITIALIZED: "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///{bought['zone']}/i-{name}"},
        "status": {
            "capacity": format_resources(kind.capacity),
            "allocatable": format_resources(kind.allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def running(pod: Manifest, node: str) -> Manifest:
    """Return a pod as it runs on a node."""
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def _key(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


@lru_cache(maxsize=4)
def _types(catalog: Catalog) -> dict[str, InstanceType]:
    return {one.name: one for one in instance_types(catalog, NodeConfiguration())}
