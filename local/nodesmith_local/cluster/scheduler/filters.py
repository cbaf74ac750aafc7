"""Hard scheduling rules for a pod on a node, in kube-scheduler's order and with its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

from nodesmith_formats.kubernetes.objects import View, dig, labels_of
from nodesmith_local.cluster.podfacts import node_matches, tolerates
from nodesmith_local.cluster.scheduler.needs import Port
from nodesmith_local.cluster.scheduler.podcounts import NodeRoom, PodCounts, required_terms, term_namespaces
from nodesmith_local.cluster.scheduler.queue import Waiting

Filter: TypeAlias = Callable[[NodeRoom], str]  # returns the reason against the node, or ""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def static_reason(pod: View, node: View) -> str:
    """Return the reason against a node that does not depend on other pods: cordon, taints, selectors, node affinity."""
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or ()
    if dig(node, "spec", "unschedulable") and not tolerates(tolerations, _UNSCHEDULABLE):
        return "node(s) were unschedulable"
    for taint in dig(node, "spec", "taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return "" if node_matches(spec, node) else "node(s) didn't match Pod's node affinity/selector"


def resource_reasons(waiting: Waiting, room: NodeRoom, reserved: Collection[Waiting]) -> list[str]:
    """Return the reasons against a node's free host ports and resources; every resource that is short is listed.

    Room is reserved for the pods in `reserved`.
    """
    used_ports = frozenset[Port]().union(*(other.ports for other in reserved))
    if any(room.ports[port] > 0 or port in used_ports for port in waiting.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = []
    for name, amount in waiting.needs.items():
        used = room.used.get(name, 0) + sum(other.needs.get(name, 0) for other in reserved)
        if used + amount > room.allocatable.get(name, 0):
            short.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return short


def social_filters(pod: View, census: PodCounts) -> Iterator[Filter]:
    """Yield the filters that depend on other pods' places, built for the census as it is now."""
    for constraint in spread_constraints(pod, "DoNotSchedule"):
        yield _spread_filter(pod, constraint, census)
    for existing_term in census.aversions_to(pod):
        counts = census.by_topology(existing_term.holders, existing_term.topology_key)
        yield _blocked(
            counts, existing_term.topology_key, "node(s) didn't satisfy existing pods anti-affinity rules"
        )
    for term in required_terms(pod, "podAntiAffinity"):
        group = census.group(term_namespaces(term, pod), term.get("labelSelector"), with_leaving=True)
        counts = census.by_topology(group.on_node, term["topologyKey"])
        yield _blocked(counts, term["topologyKey"], "node(s) didn't match pod anti-affinity rules")
    yield from _affinity_filters(pod, census)


def spread_constraints(pod: View, action: str) -> list[View]:
    """Return the pod's topology spread constraints with this whenUnsatisfiable."""
    constraints = dig(pod, "spec", "topologySpreadConstraints") or ()
    return [constraint for constraint in constraints if constraint.get("whenUnsatisfiable") == action]


def spread_selector(pod: View, constraint: View) -> View:
    """Return the constraint's selector, narrowed by its matchLabelKeys to the pod's own values."""
    selector: View = constraint.get("labelSelector") or {"matchExpressions": [{"key": "", "operator": "In"}]}
    keys = [key for key in constraint.get("matchLabelKeys") or () if key in labels_of(pod)]
    if not keys:
        return selector
    own = {key: labels_of(pod)[key] for key in keys}
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}


def spread_counts(pod: View, constraint: View, census: PodCounts) -> tuple[Counter[str], bool]:
    """Return the number of matching pods by domain, and whether the pod itself matches.

    Only domains that count for the constraint are included.
    """
    key = constraint["topologyKey"]
    namespace = frozenset((pod["metadata"]["namespace"],))
    group = census.group(namespace, spread_selector(pod, constraint))
    counts: Counter[str] = Counter()
    for room in census.rooms.values():
        value = room.labels.get(key)
        if value is not None and _counts(pod, constraint, room.node):
            counts[value] += group.on_node.get(room.name, 0)
    return counts, group.matches(labels_of(pod))


def _counts(pod: View, constraint: View, node: View) -> bool:
    """Return whether a node's domain counts, by nodeAffinityPolicy (default Honor) and nodeTaintsPolicy (Ignore)."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_matches(pod["spec"], node):
        return False
    if constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore":
        return True
    tolerations = pod["spec"].get("tolerations") or ()
    taints = dig(node, "spec", "taints") or ()
    return all(tolerates(tolerations, taint) for taint in taints if taint.get("effect") != "PreferNoSchedule")


def _spread_filter(pod: View, constraint: View, census: PodCounts) -> Filter:
    key, skew = constraint["topologyKey"], int(constraint.get("maxSkew", 1))
    counts, own = spread_counts(pod, constraint, census)
    enough = len(counts) >= int(constraint.get("minDomains") or 1)
    least = min(counts.values(), default=0) if enough else 0

    def reason(room: NodeRoom) -> str:
        value = room.labels.get(key)
        if value is None:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        if counts[value] + own - least > skew:
            return "node(s) didn't match pod topology spread constraints"
        return ""

    return reason


def _blocked(counts: Mapping[str, int], key: str, reason: str) -> Filter:
    occupied = {value for value, count in counts.items() if count > 0}
    return lambda room: reason if room.labels.get(key) in occupied else ""


def _affinity_filters(pod: View, census: PodCounts) -> Iterator[Filter]:
    message = "node(s) didn't match pod affinity rules"
    for term in required_terms(pod, "podAffinity"):
        key = term["topologyKey"]
        group = census.group(term_namespaces(term, pod), term.get("labelSelector"), with_leaving=True)
        occupied = {value for value, count in census.by_topology(group.on_node, key).items() if count > 0}
        # The first pod of a group with affinity to itself may go to any domain of the label.
        first = not any(group.on_node.values()) and group.takes(pod)

        def reason(room: NodeRoom, key: str = key, occupied: set[str] = occupied, first: bool = first) -> str:
            value = room.labels.get(key)
            return "" if value is not None and (first or value in occupied) else message

        yield reason
