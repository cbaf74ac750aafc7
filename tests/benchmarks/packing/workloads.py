"""Pods by recipe, as manifests. Every recipe is seeded: the same arguments give the same pods on any machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.packing.traces import Ask
from tests.builders import anti_affinity, spread

Manifest = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_CPU, _MEMORY = (100, 250, 500, 1000, 1500), (100, 256, 512, 1024, 2048, 4096)
_LETTERS = "abcdefg"
_SMALL = (
    (100, 128),
    (100, 256),
    (250, 512),
    (250, 2048),
    (500, 512),
    (500, 1024),
    (1000, 2048),
    (1000, 4096),
)
_LARGE = (
    (2000, 4096),
    (2000, 8192),
    (4000, 16384),
    (8000, 16384),
    (8000, 30517),
    (12500, 57344),
    (16500, 51200),
)


def pod(
    name: str, cpu_milli: int, memory_mib: int, labels: dict[str, str] | None = None, **spec: Any
) -> Manifest:
    """Return a pod with one container; keywords are fields of its spec."""
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    containers = [{"name": "c", "image": "registry.example/app:1", "resources": {"requests": requests}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": containers, **spec},
    }


def asked(asks: Sequence[Ask], name: str = "pod") -> list[Manifest]:
    """Return the pods of a trace, in the order of its table."""
    return [
        pod(f"{name}-{line:02d}-{number:04d}", cpu, memory)
        for line, (cpu, memory, count) in enumerate(asks)
        for number in range(count)
    ]


def waves(asks: Sequence[Ask], count: int = 10, seed: int = 3) -> list[list[Manifest]]:
    """Return the pods of a trace in random order, divided into `count` waves."""
    pods = asked(asks)
    random.Random(seed).shuffle(pods)  # noqa: S311
    return [pods[wave::count] for wave in range(count)]


def diverse(count: int, seed: int = 1) -> list[Manifest]:
    """Return the pods of Karpenter's own benchmark: five kinds, a fifth each, and generic pods for the remainder."""
    dice = random.Random(seed)  # noqa: S311
    kinds = ["generic", ZONE, HOSTNAME, "affinity", "anti-affinity"]
    return [
        _diverse(
            f"diverse-{number:05d}",
            kinds[number // (count // 5)] if number < count // 5 * 5 else "generic",
            dice,
        )
        for number in range(count)
    ]


def _diverse(name: str, kind: str, dice: random.Random) -> Manifest:
    cpu, memory, letter = dice.choice(_CPU), dice.choice(_MEMORY), dice.choice(_LETTERS)
    match kind:
        case "affinity":
            term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"my-affinity": letter}}}
            own = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            return pod(name, cpu, memory, {"my-affinity": letter}, affinity=own)
        case "anti-affinity":
            return pod(name, cpu, memory, {"app": "nginx"}, affinity=anti_affinity("nginx"))
        case "generic":
            return pod(name, cpu, memory, {"my-label": letter})
    constraints = spread(kind, hard=True)
    constraints[0]["labelSelector"] = {"matchLabels": {"my-label": dice.choice(_LETTERS)}}
    return pod(name, cpu, memory, {"my-label": letter}, topologySpreadConstraints=constraints)


def preferences(count: int = 4000, seed: int = 1) -> list[Manifest]:
    """Return identical pods that prefer a zone and anti-affinity to each other, without requiring either."""
    dice = random.Random(seed)  # noqa: S311
    cpu, memory = dice.choice(_CPU), dice.choice(_MEMORY)
    selects = {"labelSelector": {"matchLabels": {"app": "nginx"}}}
    preference = "preferredDuringSchedulingIgnoredDuringExecution"
    there = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["test-zone-1"]}]}
    affinity = {
        "nodeAffinity": {preference: [{"weight": 1, "preference": there}]},
        "podAntiAffinity": {
            preference: [
                {"weight": 10, "podAffinityTerm": {"topologyKey": ZONE, **selects}},
                {"weight": 1, "podAffinityTerm": {"topologyKey": HOSTNAME, **selects}},
            ]
        },
    }
    return [pod(f"wishful-{n:04d}", cpu, memory, {"app": "nginx"}, affinity=affinity) for n in range(count)]


def distinct(count: int = 5000, seed: int = 1) -> list[Manifest]:
    """Return pods with distinct requests: 50m to 4 cpu, 64 MiB to 16 GiB, no constraints."""
    dice = random.Random(seed)  # noqa: S311
    asks = [(50 + number * 3950 // count, dice.randint(64, 16384)) for number in range(count)]
    dice.shuffle(asks)
    return [pod(f"own-{n:04d}", cpu, memory) for n, (cpu, memory) in enumerate(asks)]


def deployments(count: int = 150, seed: int = 1) -> list[Manifest]:
    """Return the pods of Deployments with odd requests, as a VerticalPodAutoscaler sets them, one to ten pods each.

    A third of them have anti-affinity to themselves, a third spread over hostnames, and a quarter of all over zones.
    """
    dice = random.Random(seed)  # noqa: S311
    found: list[Manifest] = []
    for number in range(count):
        cpu = dice.choice((50, *_CPU[:4], 2000)) + dice.randint(0, 49)
        memory, app = dice.choice((64, 128, *_MEMORY[1:])) + dice.randint(0, 63), f"app-{number}"
        spec: dict[str, Any] = {"affinity": anti_affinity(app)} if number % 3 == 1 else {}
        spreads = [*(spread(HOSTNAME, hard=True, app=app) if number % 3 == 0 else ())]
        spreads += spread(ZONE, hard=True, app=app) if number % 4 == 0 else []
        if spreads:
            spec["topologySpreadConstraints"] = spreads
        pods = dice.choice((1, 2, 2, 3, 3, 3, 5, 10))
        found += [owned(pod(f"{app}-{n}", cpu, memory, {"app": app}, **spec), app) for n in range(pods)]
    return found


def replicas(count: int = 10_000) -> list[Manifest]:
    """Return the pods of three Deployments, as a cluster shows them.

    The Deployments have a half, three tenths and a fifth of the pods.
    """
    shares = (
        ("web", 250, 512, count // 2),
        ("api", 500, 1024, count * 3 // 10),
        ("worker", 1000, 4096, count // 5),
    )
    return [
        owned(pod(f"{app}-{n:05d}", cpu, memory, {"app": app}), app)
        for app, cpu, memory, mine in shares
        for n in range(mine)
    ]


def owned(manifest: Manifest, app: str) -> Manifest:
    """Make a ReplicaSet the owner of a pod, and return the pod."""
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"uid-{app}", "controller": True}
    ]
    return manifest


def small_batches(count: int = 1000, seed: int = 11) -> list[tuple[Ask, ...]]:
    """Draw everyday batches: 1 to 6 shapes, 1 to 50 pods in all, small or large or mixed."""
    dice = random.Random(seed)  # noqa: S311
    return [_small_batch(dice) for _ in range(count)]


def _small_batch(dice: random.Random) -> tuple[Ask, ...]:
    asks = dice.choice((_SMALL, _SMALL, _LARGE, _SMALL + _LARGE))
    shapes = dice.sample(asks, dice.randint(1, 6))
    pods = dice.randint(len(shapes), 50)
    cuts = sorted(dice.sample(range(1, pods), len(shapes) - 1))
    counts = [end - start for start, end in zip([0, *cuts], [*cuts, pods], strict=True)]
    return tuple((cpu, memory, n) for (cpu, memory), n in zip(shapes, counts, strict=True))
