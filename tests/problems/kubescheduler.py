"""kube-scheduler's filters for random problems, implemented independently from its documentation.

It supports only the manifests that `drawing` generates: one container per pod, one term per required pod affinity,
volumes by claim. Amounts are in thousandths, so that cpu and memory are both integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

Manifest = Mapping[str, Any]
Labels = Mapping[str, str]
HOSTNAME = "kubernetes.io/hostname"
_UNITS = {
    "m": Decimal("0.001"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "": Decimal(1),
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, eq=False)
class Pod:
    """One pod. `reach` are the alternatives that its volumes allow, each a list of expressions on node labels."""

    key: str
    namespace: str
    labels: Labels
    requests: Mapping[str, int]
    spec: Manifest
    reach: tuple[Sequence[Manifest], ...] = ((),)
    volumes: int = 0

    @property
    def ports(self) -> set[int]:
        """The host ports that it uses."""
        found = (p for c in self.spec["containers"] for p in c.get("ports") or ())
        return {p["hostPort"] for p in found if p.get("hostPort")}

    def terms(self, kind: str) -> Sequence[Manifest]:
        """Return the required terms of podAffinity or podAntiAffinity."""
        rules = (self.spec.get("affinity") or {}).get(kind) or {}
        return rules.get(_REQUIRED) or ()


@dataclass(eq=False)
class Node:
    """One node: its free resources before pods come, and how many volumes it may attach (None: any number)."""

    labels: Labels
    taints: Sequence[Manifest]
    free: Mapping[str, int]
    attachable: int | None = None
    ports: frozenset[int] = frozenset()


@dataclass
class Cluster:
    """Nodes, and pods with the number of their node. `namespaces` are labels by name."""

    nodes: list[Node]
    namespaces: Mapping[str, Labels]
    bound: list[tuple[Pod, int]] = field(default_factory=list)


@lru_cache(maxsize=4096)
def amount(text: str) -> int:
    """Parse a quantity, in thousandths."""
    unit = next(u for u in _UNITS if text.endswith(u))
    return int(Decimal(text.removesuffix(unit)) * _UNITS[unit] * 1000)


def may_run(pod: Pod, labels: Labels, taints: Iterable[Manifest]) -> bool:
    """Return whether labels, taints and volumes allow the pod on a node, whatever its free resources."""
    return tolerates(pod, taints) and _selects(pod, labels) and any(holds(each, labels) for each in pod.reach)


def tolerates(pod: Pod, taints: Iterable[Manifest]) -> bool:
    """Return whether the pod tolerates all taints."""
    tolerations = pod.spec.get("tolerations") or ()
    return all(
        taint["effect"] == "PreferNoSchedule" or any(_tolerated(taint, each) for each in tolerations)
        for taint in taints
    )


def fits(pods: Sequence[Pod], node: Node) -> bool:
    """Return whether a node has the resources, ports and attachments for these pods together."""
    names = {name for pod in pods for name in pod.requests}
    ports = [port for pod in pods for port in pod.ports]
    volumes = sum(pod.volumes for pod in pods)
    return (
        all(sum(p.requests.get(name, 0) for p in pods) <= node.free.get(name, 0) for name in names)
        and len(ports) == len({*ports} - node.ports)
        and (node.attachable is None or volumes <= node.attachable)
    )


def admits(cluster: Cluster, pod: Pod, host: int, domains: Mapping[int, Iterable[str]]) -> bool:
    """Return whether pod affinities and spreads allow the pod on a node now.

    `domains` are, by number of a spread constraint, further domains that count although they have no node yet.
    """
    near = _near_enough(cluster, pod, host) and _far_enough(cluster, pod, host)
    return near and is_even(cluster, pod, host, domains)


def is_even(cluster: Cluster, pod: Pod, host: int, domains: Mapping[int, Iterable[str]]) -> bool:
    """Return whether the pod's spreads allow it on a node now; `domains` as for `admits`."""
    return all(
        _even_enough(cluster, pod, host, spread, domains.get(number, ()))
        for number, spread in enumerate(pod.spec.get("topologySpreadConstraints") or ())
        if spread["whenUnsatisfiable"] == "DoNotSchedule"
    )


def repels(pod: Pod, other: Pod, namespaces: Mapping[str, Labels]) -> list[str]:
    """Return the topology keys over which the pod repels another."""
    return [t["topologyKey"] for t in pod.terms("podAntiAffinity") if _looks_at(pod, t, other, namespaces)]


def _near_enough(cluster: Cluster, pod: Pod, host: int) -> bool:
    for term in pod.terms("podAffinity"):
        key = term["topologyKey"]
        here = cluster.nodes[host].labels.get(key)
        if here is None:
            return False
        wanted = [n for other, n in cluster.bound if _looks_at(pod, term, other, cluster.namespaces)]
        wanted = [n for n in wanted if key in cluster.nodes[n].labels]
        if not wanted and _looks_at(pod, term, pod, cluster.namespaces):
            continue
        if not any(cluster.nodes[n].labels[key] == here for n in wanted):
            return False
    return True


def _far_enough(cluster: Cluster, pod: Pod, host: int) -> bool:
    labels = cluster.nodes[host].labels
    return not any(
        key in labels and cluster.nodes[n].labels.get(key) == labels[key]
        for other, n in cluster.bound
        for key in (*repels(pod, other, cluster.namespaces), *repels(other, pod, cluster.namespaces))
    )


def _even_enough(cluster: Cluster, pod: Pod, host: int, spread: Manifest, further: Iterable[str]) -> bool:
    key = spread["topologyKey"]
    here = cluster.nodes[host].labels.get(key)
    if here is None:
        return False
    looked_at = [n for n, node in enumerate(cluster.nodes) if is_counted(pod, spread, node)]
    counts = dict.fromkeys([*further, *(cluster.nodes[n].labels[key] for n in looked_at)], 0)
    for other, n in cluster.bound:
        if n in looked_at and _counts(pod, spread, other):
            counts[cluster.nodes[n].labels[key]] += 1
    fewest = min(counts.values(), default=0) if len(counts) >= spread.get("minDomains", 1) else 0
    skew: int = counts.get(here, 0) + _counts(pod, spread, pod) - fewest
    return skew <= int(spread["maxSkew"])


def is_counted(pod: Pod, spread: Manifest, node: Node) -> bool:
    """Return whether a pod's spread counts a node: it has the keys of all spreads, and the pod may run on it.

    Every existing node has a hostname, and every new one will.
    """
    hard = [s for s in pod.spec["topologySpreadConstraints"] if s["whenUnsatisfiable"] == "DoNotSchedule"]
    return (
        {s["topologyKey"] for s in hard} <= {*node.labels, HOSTNAME}
        and (spread.get("nodeAffinityPolicy") == "Ignore" or _selects(pod, node.labels))
        and (spread.get("nodeTaintsPolicy") != "Honor" or tolerates(pod, node.taints))
    )


def _counts(pod: Pod, spread: Manifest, other: Pod) -> bool:
    keys = [k for k in spread.get("matchLabelKeys") or () if k in pod.labels]
    return (
        other.namespace == pod.namespace
        and _selected(spread["labelSelector"], other.labels)
        and all(other.labels.get(k) == pod.labels[k] for k in keys)
    )


def _looks_at(pod: Pod, term: Manifest, other: Pod, namespaces: Mapping[str, Labels]) -> bool:
    named = set(term.get("namespaces") or ())
    chosen = term.get("namespaceSelector")
    if chosen is not None:
        named |= {name for name, labels in namespaces.items() if _selected(chosen, labels)}
    elif not named:
        named = {pod.namespace}
    return other.namespace in named and _selected(term["labelSelector"], other.labels)


def _selects(pod: Pod, labels: Labels) -> bool:
    wanted = pod.spec.get("nodeSelector") or {}
    required = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    terms = required["nodeSelectorTerms"] if required else [{"matchExpressions": []}]
    return all(labels.get(k) == v for k, v in wanted.items()) and any(
        holds(t["matchExpressions"], labels) for t in terms
    )


def _selected(selector: Manifest, labels: Labels) -> bool:
    same = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    return same and holds(selector.get("matchExpressions") or (), labels)


def holds(expressions: Iterable[Manifest], labels: Labels) -> bool:
    """Return whether labels meet all expressions."""
    return all(_holds(each, labels.get(each["key"])) for each in expressions)


def _holds(expression: Manifest, value: str | None) -> bool:
    values: Sequence[str] = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise AssertionError(f"unknown operator in {expression}")


def _tolerated(taint: Manifest, toleration: Manifest) -> bool:
    return (
        toleration.get("key") in {None, "", taint["key"]}
        and toleration.get("effect") in {None, "", taint["effect"]}
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
    )
