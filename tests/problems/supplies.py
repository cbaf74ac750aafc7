"""What a random problem offers: existing nodes, pending pods, and every node that could be bought."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from tests.problems.drawing import Problem
from tests.problems.kubescheduler import HOSTNAME, Labels, Node, Pod, amount, holds, is_counted, may_run

Manifest = Mapping[str, Any]
ZONE, CAPACITY = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
ARCH, TYPE, NODEPOOL = "kubernetes.io/arch", "node.kubernetes.io/instance-type", "karpenter.sh/nodepool"
KWOK = "karpenter.kwok.sh/instance"
_OVERHEAD = {"cpu": amount("100m"), "memory": amount("10Mi")}


@dataclass(frozen=True, eq=False)
class Config:
    """A node that could be bought: a type of a NodePool with one capacity type, one zone and one set of labels.

    `place` are the values of all labels that some pod refers to; `capacity` counts against its NodePool's limits.
    """

    name: str
    nodepool: str
    kind: str
    node: Node
    capacity: Mapping[str, int]
    price: float
    place: tuple[str, ...]

    @property
    def labels(self) -> Labels:
        """Its labels, except the hostname."""
        return self.node.labels

    @property
    def taints(self) -> Sequence[Manifest]:
        """The taints of its NodePool."""
        return self.node.taints


@dataclass
class Supply:
    """All inputs of a plan. `running` are pods with the number of their node.

    `alike` maps pods that are identical to a scheduler to the same text; `domains` are, by pod and number of its
    spread, the domains in which a node for it could be bought.
    """

    seed: int
    nodes: list[Node]
    running: list[tuple[Pod, int]]
    pending: list[Pod]
    configs: list[Config]
    namespaces: Mapping[str, Labels]
    limits: Mapping[str, Mapping[str, int]]
    least_types: Mapping[str, int]
    alike: Mapping[str, str]
    is_zonal: bool
    domains: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def is_flexible(self, config: Config, among: Iterable[Config]) -> bool:
        """Return whether enough types of its NodePool could replace it, with the same capacity type."""
        least = self.least_types.get(config.nodepool, 1)
        if least < 2:
            return True
        way = config.labels[CAPACITY]
        return (
            len({c.kind for c in among if (c.nodepool, c.labels[CAPACITY]) == (config.nodepool, way)})
            >= least
        )

    def worth_trying(self, configs: Sequence[Config]) -> list[Config]:
        """Return the cheapest of those that are equal in topology, and all of a NodePool with limits.

        If topology binds a node to its zone, only types sold in that zone could replace it.
        """
        kept: dict[object, Config] = {}
        for config in configs:
            zone = config.labels[ZONE] if self.is_zonal else None
            among = [c for c in configs if zone in (None, c.labels[ZONE])]
            if not self.is_flexible(config, among):
                continue
            limited = config.name if config.nodepool in self.limits else ""
            counted = self._accounted(config, among) if limited else config
            kept.setdefault((config.nodepool, config.place, limited), counted)
        return list(kept.values())

    def _accounted(self, config: Config, among: Iterable[Config]) -> Config:
        """Count the largest of the smallest types that minValues requires: any of them may be launched."""
        least, way = self.least_types.get(config.nodepool, 1), config.labels[CAPACITY]
        alike = {
            c.kind: c.capacity
            for c in among
            if (c.nodepool, c.labels[CAPACITY]) == (config.nodepool, way) and c.kind != config.kind
        }
        taken = {
            name: max([amount, *sorted(other.get(name, 0) for other in alike.values())[: least - 1]])
            for name, amount in config.capacity.items()
        }
        return replace(config, capacity=taken)

    def within_limits(self, bought: Sequence[Config]) -> bool:
        """Return whether the nodes together stay within their NodePools' limits."""
        return all(
            sum(c.capacity.get(name, 0) for c in bought if c.nodepool == pool) <= most
            for pool, limits in self.limits.items()
            for name, most in limits.items()
        )


def supply(problem: Problem) -> Supply:
    """Parse a problem."""
    volumes = _Volumes(problem)
    pods = {key_of(m): _pod(m, volumes) for m in problem.of_kind("Pod")}
    daemons = [_daemon(m) for m in problem.of_kind("DaemonSet")]
    nodes = problem.of_kind("Node")
    names = [m["metadata"]["name"] for m in nodes]
    places = {key_of(m): m["spec"].get("nodeName") for m in problem.of_kind("Pod")}
    running = [(pods[key], names.index(name)) for key, name in places.items() if name]
    limits = {m["metadata"]["name"]: m["spec"].get("limits") for m in problem.of_kind("NodePool")}
    given = Supply(
        seed=problem.seed,
        nodes=[_node(m, problem, [p for p, n in running if n == i], daemons) for i, m in enumerate(nodes)],
        running=running,
        pending=[pods[key] for key, name in places.items() if not name],
        configs=sorted(_configs(problem, daemons), key=lambda c: (c.price, c.name)),
        namespaces={m["metadata"]["name"]: m["metadata"]["labels"] for m in problem.of_kind("Namespace")},
        limits={name: {n: amount(q) for n, q in stated.items()} for name, stated in limits.items() if stated},
        least_types={
            m["metadata"]["name"]: max(
                (r.get("minValues", 1) for r in m["spec"]["template"]["spec"]["requirements"]), default=1
            )
            for m in problem.of_kind("NodePool")
        },
        alike={key: _likeness(pod) for key, pod in pods.items()},
        is_zonal=f'"topologyKey": "{ZONE}"' in json.dumps(problem.of_kind("Pod")),
    )
    given.domains = {pod.key: _domains(pod, given.configs) for pod in given.pending}
    return given


def _domains(pod: Pod, configs: Sequence[Config]) -> dict[int, set[str]]:
    """Return the domains of a pod's spreads; nodes that could be bought count as existing, whatever their size."""
    every = pod.spec.get("topologySpreadConstraints") or ()
    return {
        n: {"fresh"}
        if s["topologyKey"] == HOSTNAME
        else {
            c.labels[s["topologyKey"]]
            for c in configs
            if s["topologyKey"] in c.labels and is_counted(pod, s, c.node)
        }
        for n, s in enumerate(every)
    }


def _configs(problem: Problem, daemons: Sequence[Pod]) -> Iterator[Config]:
    looked_at = json.dumps(problem.of_kind("Pod"))
    for pool, kind in product(problem.of_kind("NodePool"), problem.types):
        template = pool["spec"]["template"]
        own = {**(template.get("metadata") or {}).get("labels", {}), NODEPOOL: pool["metadata"]["name"]}
        requirements = template["spec"]["requirements"]
        chosen = [r for r in requirements if r["key"].startswith("example.com/")]
        for offering, values in product(kind["offerings"], product(*(r["values"] for r in chosen))):
            labels = {
                **_labels(kind, offering),
                **own,
                **{r["key"]: v for r, v in zip(chosen, values, strict=True)},
            }
            if not offering["Available"] or not holds(requirements, labels):
                continue
            taints = template["spec"].get("taints") or ()
            mine = [d for d in daemons if may_run(d, labels, taints)]
            whole = {"pods": amount("110")} | {n: amount(q) for n, q in kind["resources"].items()}
            free = {
                n: a - _OVERHEAD.get(n, 0) - sum(d.requests.get(n, 0) for d in mine) for n, a in whole.items()
            }
            if min(free.values()) < 0:
                continue
            node = Node(labels, taints, free, ports=frozenset(port for d in mine for port in d.ports))
            name = "/".join((own[NODEPOOL], kind["name"], labels[ZONE], labels[CAPACITY], *values))
            place = tuple(value for key, value in sorted(labels.items()) if key in looked_at)
            taken = whole | {"nodes": amount("1")}
            yield Config(name, own[NODEPOOL], kind["name"], node, taken, offering["Price"], place)


def _labels(kind: Manifest, offering: Manifest) -> dict[str, str]:
    place = {r["key"]: r["values"][0] for r in offering["Requirements"]}
    return {
        **place,
        TYPE: kind["name"],
        ARCH: kind["architecture"],
        "kubernetes.io/os": "linux",
        f"{KWOK}-cpu": kind["resources"]["cpu"],
    }


def _node(manifest: Manifest, problem: Problem, running: Sequence[Pod], daemons: Sequence[Pod]) -> Node:
    labels, taints = manifest["metadata"]["labels"], manifest["spec"]["taints"]
    mine = [*running, *(d for d in daemons if may_run(d, labels, taints))]
    offered = {n: amount(q) for n, q in manifest["status"]["allocatable"].items()}
    free = {n: a - sum(p.requests.get(n, 0) for p in mine) for n, a in offered.items()}
    counts = [
        m["spec"]["drivers"][0]["allocatable"]["count"]
        for m in problem.of_kind("CSINode")
        if m["metadata"]["name"] == labels[HOSTNAME]
    ]
    return Node(labels, taints, free, min(counts), frozenset(port for p in mine for port in p.ports))


def _daemon(manifest: Manifest) -> Pod:
    template = manifest["spec"]["template"]
    made = {**template, "metadata": {**template["metadata"], "name": "daemon", "namespace": "kube-system"}}
    return _pod(made, None)


def _pod(manifest: Manifest, volumes: _Volumes | None) -> Pod:
    about, spec = manifest["metadata"], manifest["spec"]
    asked = {n: amount(q) for n, q in spec["containers"][0]["resources"]["requests"].items()} | {
        "pods": amount("1")
    }
    claims = [v["persistentVolumeClaim"]["claimName"] for v in spec.get("volumes") or ()]
    reach = volumes.reach(about["namespace"], claims) if volumes else ((),)
    return Pod(key_of(manifest), about["namespace"], about["labels"], asked, spec, reach, len(claims))


class _Volumes:
    """The zones from which claims can be reached."""

    def __init__(self, problem: Problem) -> None:
        self._claims = {key_of(m): m for m in problem.of_kind("PersistentVolumeClaim")}
        self._volumes = {m["metadata"]["name"]: m for m in problem.of_kind("PersistentVolume")}
        self._classes = {m["metadata"]["name"]: m for m in problem.of_kind("StorageClass")}

    def reach(self, namespace: str, claims: Sequence[str]) -> tuple[Sequence[Manifest], ...]:
        """Return the alternatives for a pod with at most one claim."""
        if not claims:
            return ((),)
        spec = self._claims[f"{namespace}/{claims[0]}"]["spec"]
        if "volumeName" in spec:
            terms = self._volumes[spec["volumeName"]]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            return tuple(term["matchExpressions"] for term in terms)
        allowed = self._classes[spec["storageClassName"]].get("allowedTopologies") or ()
        return tuple([{**e, "operator": "In"} for e in t["matchLabelExpressions"]] for t in allowed) or ((),)


def _likeness(pod: Pod) -> str:
    spec = {name: value for name, value in pod.spec.items() if name != "volumes"}
    return json.dumps([pod.namespace, pod.labels, spec, pod.reach, pod.volumes], sort_keys=True)


def key_of(manifest: Manifest) -> str:
    """Return namespace/name."""
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
