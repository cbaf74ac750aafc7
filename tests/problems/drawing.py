"""Random problems that mix every kind of constraint: a small catalogue, NodePools, a cluster and pending pods.

A seed identifies a problem permanently, so a failure can be reported by its number. Most draws are plain, and each rare
feature is frequent enough that any two of them meet within a few hundred problems.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nodesmith.model.ec2.catalog import Catalog
from nodesmith_formats.catalogfiles import read_catalog_file
from tests.builders import NOW, expression, nodepool_manifest
from tests.problems.drawnpods import Drawn, pods
from tests.problems.rarities import with_rarities

Manifest = dict[str, Any]
ZONE, ARCH, CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/arch", "karpenter.sh/capacity-type"
TYPE, RACK, TEAM = "node.kubernetes.io/instance-type", "example.com/rack", "example.com/team"
GPU = "example.com/gpu"
ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")


@dataclass(frozen=True, slots=True)
class Mix:
    """How large problems may be, and what they leave out: preferences, and features that change which plan is best."""

    most_pods: int = 8
    most_shapes: int = 4
    most_types: int = 6
    soft: bool = True
    weights: bool = True
    rare: bool = False
    """Whether pods have rare features, see `rarities`."""


SMALL = Mix(soft=False, weights=False)
"""For brute force: with preferences or NodePool weights, the cheapest plan would not be the right one."""
LARGE = Mix(most_pods=60, most_shapes=12)
RARE = Mix(most_pods=16, most_shapes=6, rare=True)


@dataclass(frozen=True)
class Problem:
    """One problem. `types` are the entries of its catalogue, in Karpenter's KWOK format."""

    seed: int
    types: tuple[Manifest, ...]
    manifests: tuple[Manifest, ...]

    @cached_property
    def catalog(self) -> Catalog:
        """The parsed catalogue."""
        found, problems = read_catalog_file(json.dumps(self.types).encode(), NOW)
        assert not problems, problems[0]
        return found

    def of_kind(self, kind: str) -> list[Manifest]:
        """Return the objects of a kind."""
        return [m for m in self.manifests if m["kind"] == kind]


def draw(seed: int, mix: Mix = SMALL) -> Problem:
    """Return the problem with this seed."""
    dice = random.Random(seed)  # noqa: S311
    zones = ZONES[: dice.choice((1, 2, 3, 3))]
    types = [_type(dice, number, zones) for number in range(dice.randint(1, mix.most_types))]
    nodepools = [
        _nodepool(dice, f"pool-{n}", types[0]["name"], zones, mix)
        for n in range(dice.choice((1, 1, 2, 2, 3)))
    ]
    daemons = [_daemonset(dice, n, types[0]["name"]) for n in range(dice.choice((0, 0, 1, 2)))]
    nodes = [_node(dice, n, zones) for n in range(dice.choice((0, 0, 1, 2, 3)))]
    drawn = Drawn(dice, zones, [t["name"] for t in types], mix.soft)
    running = [pod for node in nodes for pod in drawn.running(node)]
    waiting = pods(drawn, dice.randint(1, mix.most_pods), mix.most_shapes)
    others = [
        _namespace("default", "one"),
        _namespace("other", "two"),
        *drawn.volumes(),
        *_csinodes(dice, nodes),
    ]
    objects = (*others, *nodepools, *daemons, *nodes, *running, *waiting)
    return Problem(seed, tuple(types), tuple(with_rarities(seed, objects)) if mix.rare else objects)


def _type(dice: random.Random, number: int, zones: Sequence[str]) -> Manifest:
    cpu = dice.choice((1, 2, 2, 4, 4, 8))
    gibibytes = cpu * dice.choice((1, 2, 2, 4, 8))
    resources = {"cpu": str(cpu), "memory": f"{gibibytes}Gi", "pods": str(dice.choice((3, 4, 8, 30, 110)))}
    if dice.random() < 0.15:
        resources[GPU] = str(dice.choice((1, 2)))
    price = round((0.04 * cpu + 0.005 * gibibytes) * dice.uniform(0.7, 1.3), 4)
    sold = [zone for zone in zones if dice.random() < 0.85] or [dice.choice(zones)]
    offers = [_offering(dice, zone, "on-demand", price) for zone in sold]
    if dice.random() < 0.6:
        offers += [_offering(dice, zone, "spot", round(price * dice.uniform(0.3, 0.7), 4)) for zone in sold]
    return {
        "name": f"t{number}-{cpu}x{gibibytes}",
        "architecture": dice.choice(("amd64", "amd64", "amd64", "arm64")),
        "operatingSystems": ["linux"],
        "resources": resources,
        "offerings": offers,
    }


def _offering(dice: random.Random, zone: str, capacity: str, price: float) -> Manifest:
    requirements = [expression(CAPACITY, "In", capacity), expression(ZONE, "In", zone)]
    return {"Price": price, "Available": dice.random() < 0.93, "Requirements": requirements}


def _nodepool(dice: random.Random, name: str, kind: str, zones: Sequence[str], mix: Mix) -> Manifest:
    requirements = [
        expression(
            CAPACITY, "In", *dice.choice((("spot", "on-demand"), ("on-demand",), ("spot", "on-demand")))
        )
    ]
    if dice.random() < 0.2:
        requirements.append(expression(ZONE, dice.choice(("In", "NotIn")), dice.choice(zones)))
    if dice.random() < 0.5:
        requirements.append(
            expression(ARCH, "In", *dice.choice((("amd64",), ("amd64", "arm64"), ("arm64",))))
        )
    if dice.random() < 0.15:
        requirements.append(expression(TYPE, "NotIn", kind))
    if dice.random() < 0.15:
        requirements.append(expression(TEAM, "In", "red", "blue"))
    if dice.random() < 0.1:
        requirements.append(expression(TYPE, "Exists", minValues=2))
    return nodepool_manifest(
        name,
        requirements=requirements,
        weight=dice.choice((1, 10)) if mix.weights and dice.random() < 0.3 else None,
        limits=_limits(dice, mix) if dice.random() < 0.25 else None,
        labels={RACK: name[-1]} if dice.random() < 0.5 else None,
        taints=_taints(dice, mix) if dice.random() < 0.25 else (),
        startup_taints=[{"key": "example.com/starting", "effect": "NoSchedule"}]
        if dice.random() < 0.1
        else (),
    )


def _limits(dice: random.Random, mix: Mix) -> dict[str, str]:
    scale = max(1, mix.most_pods // 8)
    return dice.choice(
        (
            {"cpu": str(dice.choice((4, 8, 16)) * scale)},
            {"memory": f"{dice.choice((8, 16, 32)) * scale}Gi"},
            {"nodes": str(dice.choice((1, 2, 3)) * scale)},
        )
    )


def _taints(dice: random.Random, mix: Mix = LARGE) -> list[dict[str, str]]:
    effect = dice.choice(
        ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule" if mix.soft else "NoSchedule")
    )
    return [{"key": "dedicated", "value": dice.choice(("batch", "web")), "effect": effect}]


def _daemonset(dice: random.Random, number: int, kind: str) -> Manifest:
    name = f"agent-{number}"
    spec: Manifest = {
        "containers": [
            {
                "name": "c",
                "image": "registry.example/agent:1",
                "resources": {"requests": {"cpu": dice.choice(("50m", "100m", "250m")), "memory": "64Mi"}},
            }
        ],
        "tolerations": dice.choice(([], [{"operator": "Exists"}])),
    }
    if dice.random() < 0.25:
        spec["nodeSelector"] = dice.choice(({ARCH: "amd64"}, {CAPACITY: "spot"}, {TYPE: kind}))
    if dice.random() < 0.2:
        spec["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _node(dice: random.Random, number: int, zones: Sequence[str]) -> Manifest:
    name, zone, cpu = f"node-{number}", dice.choice(zones), dice.choice((1, 2, 4))
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        ARCH: "amd64",
        ZONE: zone,
        CAPACITY: dice.choice(("spot", "on-demand")),
    }
    labels |= dice.choice(({}, {RACK: "0"}, {TEAM: "red"}))
    offered = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": str(dice.choice((4, 8, 30)))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": f"aws:///{zone}/i-{number:017x}",
            "taints": _taints(dice) if dice.random() < 0.15 else [],
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _csinodes(dice: random.Random, nodes: Sequence[Manifest]) -> list[Manifest]:
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": node["metadata"]["name"]},
            "spec": {
                "drivers": [
                    {
                        "name": "ebs.csi.aws.com",
                        "nodeID": node["metadata"]["name"],
                        "topologyKeys": [ZONE],
                        "allocatable": {"count": dice.choice((1, 2, 25))},
                    }
                ]
            },
        }
        for node in nodes
    ]


def _namespace(name: str, team: str) -> Manifest:
    labels = {"kubernetes.io/metadata.name": name, "team": team}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
