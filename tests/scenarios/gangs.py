"""ProvisioningRequests in the small world, the controller that creates their pods once there is room, and stories.

`gang_report` counts, over all stories and crashes, the gangs that got only a part of their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.provisioningrequests import (
    CONSUMES,
    FAILED,
    PROVISIONED,
    SHARED_CLASSES,
    GangStage,
)
from tests import builders
from tests.scenarios.crashes import Story, crashes, throttled
from tests.smallworld.laws import true_of
from tests.smallworld.world import World

CHECK, ATOMIC = SHARED_CLASSES
_SMALL = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
Manifest = dict[str, Any]


def request_manifest(
    name: str = "job",
    *counts: int,
    class_name: str = ATOMIC,
    created_at: datetime = builders.NOW,
    parameters: Mapping[str, str] | None = None,
    namespace: str = "default",
) -> Manifest:
    """Return a request with a pod set for each count; the first refers to PodTemplate NAME-0."""
    sets = [
        {"podTemplateRef": {"name": f"{name}-{n}"}, "count": count} for n, count in enumerate(counts or (3,))
    ]
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{namespace}-{name}",
            "generation": 1,
            "creationTimestamp": format_time(created_at),
        },
        "spec": {
            "provisioningClassName": class_name,
            "podSets": sets,
            **({"parameters": dict(parameters)} if parameters else {}),
        },
    }


_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
REQUEST_CRD: Manifest = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "provisioningrequests.autoscaling.x-k8s.io"},
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "names": {"kind": "ProvisioningRequest", "plural": "provisioningrequests"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": version,
                "served": True,
                "storage": version == "v1",
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": _ANY},
            }
            for version in ("v1", "v1beta1")
        ],
    },
}
"""A CRD with Cluster Autoscaler's names, which accepts any content."""


def template_manifest(name: str = "job-0", cpu: str = "3", namespace: str = "default") -> Manifest:
    """Return a PodTemplate."""
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"namespace": namespace, "name": name, "generation": 1},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "busybox", "resources": resources}]},
        },
    }


def ask(world: World, name: str = "job", *counts: int, cpu: str = "3", **fields: Any) -> None:
    """Create a request and its PodTemplates."""
    for number in range(len(counts or (3,))):
        template = template_manifest(f"{name}-{number}", cpu)
        world.cluster.podtemplates[f"default/{name}-{number}"] = template
    made = request_manifest(name, *counts, **{"created_at": world.now, **fields})
    world.cluster.requests[f"default/{name}"] = made


@dataclass(slots=True)
class JobController:
    """Creates the pods of each request once it shows that there is room, and watches that a gang is never partial."""

    cpu: str = "3"

    def __call__(self, world: World) -> None:
        """Look at every request."""
        for key, request in world.cluster.requests.items():
            name, shown = request["metadata"]["name"], true_of(request)
            counts = [each["count"] for each in request["spec"]["podSets"]]
            if PROVISIONED in shown and f"{name}-0-0" not in world.wanted:
                world.harm += _partial(world, key)
                self._create(world, name, counts)
            if FAILED in shown:
                world.harm += [each for each in _left_over(world, key) if each not in world.harm]

    def _create(self, world: World, name: str, counts: Iterable[int]) -> None:
        for number, count in enumerate(counts):
            for pod in range(count):
                world.add(f"{name}-{number}-{pod}", cpu=self.cpu)
                world.annotate(f"{name}-{number}-{pod}", {CONSUMES: name})


def _partial(world: World, key: str) -> list[str]:
    gangs = [gang for gang in world.store.gangs.values() if gang.request == key]
    claims = [world.store.claims.get(name) for gang in gangs for name in gang.claims]
    ready = [claim is not None and claim.phase is Phase.INITIALIZED for claim in claims]
    return [] if all(ready) else [f"partial gang {key}: {ready.count(True)} of {len(ready)} nodes are ready"]


def _left_over(world: World, key: str) -> list[str]:
    gangs = [gang for gang in world.store.gangs.values() if gang.request == key]
    names = {name for gang in gangs if gang.stage is GangStage.FAILED for name in gang.claims}
    return [f"partial gang {key}: {name} is left of it" for name in sorted(names)]


def _asked(*counts: int, before: Callable[[World], None] | None = None) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.controllers.append(JobController())
        ask(world, "job", *counts)
        if before is not None:
            before(world)

    return prepare


def _two_in_stock(world: World) -> None:
    world.cloud.stock = {"*": 2}
    world.mishaps.append((timedelta(minutes=8), lambda w: w.cloud.stock.clear()))


def _spot_short(world: World) -> None:
    world.cloud.stock = {"spot *": 2}


def _throttled(world: World) -> None:
    world.cloud.script = [throttled, throttled]


def _one_dies(world: World) -> None:
    def die(w: World) -> None:
        alive = w.cloud.alive()
        if alive:
            w.cloud.become(alive[0].id, "terminated")

    world.mishaps.append((timedelta(seconds=20), die))


def _deleted(world: World) -> None:
    world.mishaps.append((timedelta(seconds=25), lambda w: w.cluster.requests.clear()))


_POOL = builders.nodepool_manifest(requirements=_SMALL)
_FIRST: Mapping[str, Mapping[str, Any]] = {"first": {"cpu": "3"}}
"""A pod beside the request, so that a story is not over before it begins."""

GANGS: tuple[Story, ...] = (
    Story("a gang of three", _FIRST, _asked(3), nodepool=_POOL, exact=False),
    Story("a gang with two pod sets", _FIRST, _asked(2, 1), nodepool=_POOL, exact=False),
    Story(
        "a gang for which EC2 has two of three nodes",
        _FIRST,
        _asked(4, before=_two_in_stock),
        nodepool=_POOL,
        exact=False,
    ),
    Story(
        "a gang for which spot is short", _FIRST, _asked(3, before=_spot_short), nodepool=_POOL, exact=False
    ),
    Story("a gang throttled twice", _FIRST, _asked(3, before=_throttled), nodepool=_POOL, exact=False),
    Story("a gang that loses a node", _FIRST, _asked(3, before=_one_dies), nodepool=_POOL, exact=False),
    Story("a gang whose request is deleted", _FIRST, _asked(3, before=_deleted), nodepool=_POOL, exact=False),
)


@dataclass(frozen=True, slots=True)
class GangReport:
    """How many boundaries had a function killed, and how many gangs were partial then."""

    points: int
    partials: int
    violations: int


def gang_report(sample: int = 24) -> GangReport:
    """Kill at sampled boundaries of every story, and count partial gangs and other violations."""
    points, partials, others = 0, 0, 0
    for story in GANGS:
        for fatal, found in crashes(story, sample):
            points += len(fatal)
            partials += sum("partial gang" in each for each in found)
            others += sum("partial gang" not in each for each in found)
    return GangReport(points, partials, others)
