"""Pods of random problems: their requests, their node constraints, and their rules about other pods."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.builders import expression

Manifest = dict[str, Any]
ZONE, HOSTNAME, CAPACITY = (
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "karpenter.sh/capacity-type",
)
ARCH, RACK, TEAM = "kubernetes.io/arch", "example.com/rack", "example.com/team"
_KEYS = (ZONE, ZONE, ZONE, HOSTNAME, HOSTNAME, HOSTNAME, CAPACITY, RACK)
_APPS = ("a", "b", "c")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(slots=True)
class Drawn:
    """The pods of one problem as they are drawn, and their volumes."""

    dice: random.Random
    zones: Sequence[str]
    types: Sequence[str]
    soft: bool
    _claims: list[Manifest] = field(default_factory=list)

    def running(self, node: Manifest) -> Iterator[Manifest]:
        """Yield a few small pods that run on a node, some of which repel others."""
        name = node["metadata"]["name"]
        for number in range(self.dice.choice((0, 1, 2))):
            spec: Manifest = {"nodeName": name, "tolerations": [{"operator": "Exists"}]}
            if self.dice.random() < 0.2:
                term = self._term()
                spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [term]}}
            app, namespace = self.dice.choice(_APPS), self.dice.choice(("default", "default", "other"))
            pod = _pod(f"{name}-{number}", namespace, {"app": app}, {"cpu": "100m", "memory": "128Mi"}, spec)
            yield {**pod, "status": {"phase": "Running"}}

    def shape(self, number: int) -> Callable[[int], Manifest]:
        """Draw what identical pods have in common; return a function that makes the n-th of them."""
        dice = self.dice
        requests = {
            "cpu": dice.choice(("100m", "250m", "500m", "800m", "1", "1500m", "3")),
            "memory": dice.choice(("64Mi", "256Mi", "512Mi", "1Gi", "3Gi")),
        }
        if dice.random() < 0.06:
            requests["example.com/gpu"] = "1"
        labels = {"app": dice.choice(_APPS), "version": dice.choice(("1", "2"))}
        namespace = dice.choice(("default", "default", "default", "other"))
        spec = self._spec(labels)
        ports = (
            [{"containerPort": 80, "hostPort": dice.choice((80, 80, 8080))}] if dice.random() < 0.08 else []
        )
        volume = dice.random() < 0.12

        def one(index: int) -> Manifest:
            name = f"pod-{number}-{index}"
            pod = _pod(name, namespace, labels, requests, dict(spec))
            if ports:
                pod["spec"]["containers"][0]["ports"] = ports
            if volume:
                self._claims += _claimed(dice, f"data-{name}", namespace, self.zones)
                pod["spec"]["volumes"] = [
                    {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
                ]
            return pod

        return one

    def volumes(self) -> list[Manifest]:
        """Return the StorageClasses, and the claims and volumes of all pods drawn so far."""
        return [_storageclass("anywhere", []), _storageclass("first-zone", [self.zones[0]]), *self._claims]

    def _spec(self, labels: dict[str, str]) -> Manifest:
        dice = self.dice
        spec: Manifest = {}
        if dice.random() < 0.2:
            spec["nodeSelector"] = dice.choice(
                (
                    {ZONE: dice.choice(self.zones)},
                    {ARCH: "amd64"},
                    {ARCH: "arm64"},
                    {CAPACITY: "on-demand"},
                    {TEAM: "red"},
                )
            )
        if dice.random() < 0.4:
            spec["tolerations"] = dice.choice(
                (
                    [{"operator": "Exists"}],
                    [{"key": "dedicated", "operator": "Exists"}],
                    [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}],
                )
            )
        affinity = {
            k: v for k, v in (("nodeAffinity", self._node_affinity()), *self._pod_affinities(labels)) if v
        }
        if affinity:
            spec["affinity"] = affinity
        spreads = [self._spread(labels) for _ in range(dice.choice((0, 0, 0, 1, 1, 2)))]
        if spreads:
            keys: dict[Any, Manifest] = {(s["topologyKey"], s["whenUnsatisfiable"]): s for s in spreads}
            spec["topologySpreadConstraints"] = list(keys.values())
        return spec

    def _node_affinity(self) -> Manifest:
        dice = self.dice
        found: Manifest = {}
        if dice.random() < 0.2:
            terms = [{"matchExpressions": self._expressions()} for _ in range(dice.choice((1, 2)))]
            found[_REQUIRED] = {"nodeSelectorTerms": terms}
        if self.soft and dice.random() < 0.2:
            found[_PREFERRED] = [
                {"weight": dice.choice((1, 50)), "preference": {"matchExpressions": self._expressions()}}
            ]
        return found

    def _expressions(self) -> list[Manifest]:
        dice = self.dice
        return [
            dice.choice(
                (
                    expression(ZONE, dice.choice(("In", "NotIn")), dice.choice(self.zones)),
                    expression(CAPACITY, "In", dice.choice(("spot", "on-demand"))),
                    expression(ARCH, "NotIn", "arm64"),
                    expression(TEAM, dice.choice(("Exists", "DoesNotExist"))),
                    expression(TEAM, "NotIn", "red"),
                    expression("node.kubernetes.io/instance-type", "NotIn", dice.choice(self.types)),
                )
            )
            for _ in range(dice.choice((1, 1, 2)))
        ]

    def _pod_affinities(self, labels: dict[str, str]) -> list[tuple[str, Manifest]]:
        dice = self.dice
        found = []
        for kind, chance in (("podAffinity", 0.12), ("podAntiAffinity", 0.2)):
            rules: Manifest = {}
            if dice.random() < chance:
                rules[_REQUIRED] = [self._term(labels)]
            if self.soft and dice.random() < chance:
                rules[_PREFERRED] = [{"weight": dice.choice((1, 100)), "podAffinityTerm": self._term(labels)}]
            found.append((kind, rules))
        return found

    def _term(self, labels: dict[str, str] | None = None) -> Manifest:
        dice = self.dice
        term = {"topologyKey": dice.choice(_KEYS), "labelSelector": self._selector(labels)}
        if dice.random() < 0.2:
            term |= dice.choice(
                (
                    {"namespaces": ["other"]},
                    {"namespaces": ["default", "other"]},
                    {"namespaceSelector": {}},
                    {"namespaceSelector": {"matchLabels": {"team": "two"}}},
                )
            )
        return term

    def _selector(self, labels: dict[str, str] | None) -> Manifest:
        dice = self.dice
        app = labels["app"] if labels and dice.random() < 0.7 else dice.choice(_APPS)
        if dice.random() < 0.15:
            return {"matchExpressions": [expression("app", "In", app, "c")]}
        return {"matchLabels": {"app": app}}

    def _spread(self, labels: dict[str, str]) -> Manifest:
        dice = self.dice
        hard = not self.soft or dice.random() < 0.6
        found: Manifest = {
            "topologyKey": dice.choice(_KEYS),
            "maxSkew": dice.choice((1, 1, 2)),
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": self._selector(labels),
        }
        if hard and dice.random() < 0.1:
            found["minDomains"] = 2
        if dice.random() < 0.1:
            found["nodeTaintsPolicy"] = "Honor"
        if dice.random() < 0.1:
            found["nodeAffinityPolicy"] = "Ignore"
        if dice.random() < 0.1:
            found["matchLabelKeys"] = ["version"]
        return found


def pods(drawn: Drawn, count: int, most_shapes: int) -> list[Manifest]:
    """Draw `count` pods of at most `most_shapes` shapes."""
    shapes = [drawn.shape(number) for number in range(min(count, drawn.dice.randint(1, most_shapes)))]
    makers = shapes + [drawn.dice.choice(shapes) for _ in range(count - len(shapes))]
    return [maker(index) for index, maker in enumerate(makers)]


def _pod(name: str, namespace: str, labels: Manifest, requests: Manifest, spec: Manifest) -> Manifest:
    containers = [{"name": "c", "image": "registry.example/app:1", "resources": {"requests": requests}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": containers, **spec},
    }


def _storageclass(name: str, zones: Sequence[str]) -> Manifest:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else []
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": topologies,
    }


def _claimed(dice: random.Random, name: str, namespace: str, zones: Sequence[str]) -> list[Manifest]:
    """Return a claim: bound to a volume in some zone, or not yet bound."""
    claim: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    if dice.random() < 0.5:
        claim["spec"]["storageClassName"] = dice.choice(("anywhere", "first-zone"))
        return [{**claim, "status": {"phase": "Pending"}}]
    claim["spec"] |= {"storageClassName": "anywhere", "volumeName": f"pv-{name}"}
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    terms = [{"matchExpressions": [expression(ZONE, "In", dice.choice(zones))]}]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": "anywhere",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
            "claimRef": {"name": name, "namespace": namespace},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
        "status": {"phase": "Bound"},
    }
    return [{**claim, "status": {"phase": "Bound"}}, volume]
