"""The current state, measured as Karpenter does: nodes and their pods, NodePools, conditions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from platform import machine
from typing import Any

from nodesmith import __version__
from nodesmith.decisions.budgets import allowed
from nodesmith.model.apimachinery.labels import INITIALIZED, NODEPOOL, REGISTERED
from nodesmith.model.apimachinery.quantities import CPU, QuantityError, Resources, parse_resources, total
from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_HOUR, LIMIT_USD_PER_MONTH, parsed_nodepools
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.kubernetes.pods import pod_requests
from nodesmith.model.kubernetes.shapereading import parse_shape
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.metrics.metrics import Labels, labelled
from nodesmith.model.policies import MICRO, USD_PER_HOUR, USD_PER_MONTH, read_usd
from nodesmith.observation.observed import UNREADABLE, Observed, ending_nodes
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith_forwarder.metrics.conditions import condition_gauges
from nodesmith_forwarder.metrics.exposition import Family
from nodesmith_forwarder.metrics.objects import is_true, moment

_NODE_LABEL_KEYS = (
    NODEPOOL,
    "karpenter.sh/capacity-type",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-size",
)
"""Labels of a Node that appear in its series, each under the last part of its name in snake case."""
_POD_NODE_LABEL_KEYS = {
    "nodepool": NODEPOOL,
    "zone": "topology.kubernetes.io/zone",
    "arch": "kubernetes.io/arch",
    "capacity_type": "karpenter.sh/capacity-type",
    "instance_type": "node.kubernetes.io/instance-type",
}
_GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names that Go, and so Karpenter, uses for architectures with another name in the kernel."""
_MILLI = 1000


def gauges(observed: Observed, now: datetime) -> Iterator[Family]:
    """Yield the gauges of what the watches show."""
    nodepools = [pool for pool in observed.nodepools if not is_foreign(pool)]
    yield from _node_gauges(observed, now)
    yield from _nodepool_gauges(nodepools)
    yield _gauge("cluster_state_node_count", "Number of Nodes.", {(): len(observed.nodes)})
    pending = sum(pod.is_provisionable for pod in observed.pods)
    yield _gauge(
        "scheduler_queue_depth", "Pods waiting for a node.", {labelled(controller="provisioner"): pending}
    )
    yield from condition_gauges(observed, now)
    yield from _budget_gauges(nodepools, observed, now)
    yield from _pod_gauges(observed, now)
    built = labelled(version=__version__, goarch=_GO_NAMES.get(machine(), machine()))
    yield _gauge("build_info", "The running version and its architecture; always 1.", {built: 1})


def _gauge(name: str, text: str, series: Mapping[Labels, float]) -> Family:
    return Family(name, "gauge", text, series)


def _node_gauges(observed: Observed, now: datetime) -> Iterator[Family]:
    pods: dict[str, list[ReducedPod]] = {}
    for pod in observed.pods:
        pods.setdefault(pod.node, []).append(pod)
    allocatable_series: dict[Labels, float] = {}
    overhead, requested, daemon_requests, ages = (
        dict(allocatable_series),
        dict(allocatable_series),
        dict(allocatable_series),
        dict(allocatable_series),
    )
    limited, limited_daemons = dict(allocatable_series), dict(allocatable_series)
    requested_totals: Counter[str] = Counter()
    allocatable_totals: Counter[str] = Counter()
    for node in observed.nodes:
        name, status = node["metadata"]["name"], node.get("status") or {}
        labels = _node_labels(node)
        allocatable = _parse_amounts(status.get("allocatable"))
        node_pods = pods.get(name, ())
        requests = total([_requests(pod.shape) for pod in node_pods])
        daemon_pods = [pod for pod in node_pods if pod.owner_kind == "DaemonSet"]
        for series, amounts in (
            (allocatable_series, allocatable),
            (overhead, _parse_amounts(status.get("capacity")) - allocatable),
            (requested, requests),
            (daemon_requests, total([_requests(pod.shape) for pod in daemon_pods])),
            (limited, total([_limits(pod.limits) for pod in node_pods])),
            (limited_daemons, total([_limits(pod.limits) for pod in daemon_pods])),
        ):
            series.update({(*labels, ("resource_type", r)): value for r, value in _values(amounts)})
        allocatable_totals.update(dict(_values(allocatable)))
        requested_totals.update(dict(_values(requests)))
        created_at = moment(node, "creationTimestamp")
        if created_at is not None:
            ages[labels] = (now - created_at).total_seconds()
    yield _gauge(
        "nodes_allocatable",
        "The allocatable resources of Nodes, in cores, bytes or counts.",
        allocatable_series,
    )
    yield _gauge("nodes_system_overhead", "The capacity of Nodes that is not allocatable.", overhead)
    yield _gauge(
        "nodes_total_pod_requests", "The requests of pods on Nodes, including those of DaemonSets.", requested
    )
    yield _gauge("nodes_total_daemon_requests", "The requests of DaemonSets' pods on Nodes.", daemon_requests)
    yield _gauge(
        "nodes_total_pod_limits", "The limits of pods on Nodes, including those of DaemonSets.", limited
    )
    text = "The limits of DaemonSets' pods on Nodes."
    yield _gauge("nodes_total_daemon_limits", text, limited_daemons)
    yield _gauge("nodes_current_lifetime_seconds", "The age of Nodes.", ages)
    shares = {
        labelled(resource_type=r): 100 * requested_totals[r] / amount
        for r, amount in allocatable_totals.items()
        if amount > 0
    }
    yield _gauge(
        "cluster_utilization_percent", "The requests of pods, as a percentage of what is allocatable.", shares
    )


def _nodepool_gauges(nodepools: Iterable[Mapping[str, Any]]) -> Iterator[Family]:
    usage: dict[Labels, float] = {}
    limits: dict[Labels, float] = {}
    for pool in nodepools:
        name = pool["metadata"]["name"]
        used, allowed = (pool.get("status") or {}).get("resources"), (pool.get("spec") or {}).get("limits")
        for series, amounts in ((usage, used), (limits, allowed)):
            for resource, value in _values(_parse_amounts(amounts)):
                series[labelled(nodepool=name, resource_type=resource)] = value
        annotations = pool["metadata"].get("annotations") or {}
        for key, resource in ((LIMIT_USD_PER_HOUR, USD_PER_HOUR), (LIMIT_USD_PER_MONTH, USD_PER_MONTH)):
            with suppress(ValueError):
                if key in annotations:
                    limits[labelled(nodepool=name, resource_type=resource)] = (
                        read_usd(annotations[key]) / MICRO
                    )
    yield _gauge("nodepools_usage", "The resources of the nodes of NodePools.", usage)
    yield _gauge("nodepools_limit", "The limits of NodePools.", limits)


def _budget_gauges(
    nodepools: Iterable[Mapping[str, Any]], observed: Observed, now: datetime
) -> Iterator[Family]:
    """Yield the disruptions that budgets allow, and the nodes that count against them, by Karpenter's reasons."""
    ending = ending_nodes(observed.nodes, observed.nodeclaims)
    initialized: Counter[str] = Counter()
    disrupted: Counter[str] = Counter()
    for node in observed.nodes:
        labels = node["metadata"].get("labels") or {}
        if INITIALIZED in labels:
            initialized[labels.get(NODEPOOL, "")] += 1
            is_disrupted = node["metadata"]["name"] in ending or not is_true(node, "Ready")
            disrupted[labels.get(NODEPOOL, "")] += is_disrupted
    allowed_series: dict[Labels, float] = {}
    consuming: dict[Labels, float] = {}
    for name, pool in parsed_nodepools(tuple(nodepools)).items():
        for reason in Reason:
            labels = labelled(nodepool=name, reason=reason)
            limit = allowed(pool.disruption.budgets, reason.budgeted, initialized[name], 0, now)
            allowed_series[labels] = (
                0 if pool.disruption.fault else initialized[name] if limit is None else limit
            )
            consuming[labels] = disrupted[name]
    yield _gauge(
        "nodepools_allowed_disruptions",
        "How many nodes budgets allow to be disrupted at once.",
        allowed_series,
    )
    text = "Nodes that are being disrupted or are not Ready."
    yield _gauge("nodepools_nodes_consuming_budgets", text, consuming)


def _pod_gauges(observed: Observed, now: datetime) -> Iterator[Family]:
    nodes = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in observed.nodes}
    states: dict[Labels, float] = {}
    unbound: dict[Labels, float] = {}
    for pod in observed.pods:
        node_labels = nodes.get(pod.node, {})
        of_node = {label: str(node_labels.get(key, "")) for label, key in _POD_NODE_LABEL_KEYS.items()}
        states[
            labelled(
                name=pod.name,
                namespace=pod.namespace,
                owner=_owner(pod),
                node=pod.node,
                scheduled=_bool_text(bool(pod.node)),
                phase=pod.phase,
                ready=_bool_text(pod.ready),
                managed=_bool_text(_is_managed(node_labels)),
                **of_node,
            )
        ] = 1
        if not pod.node and not _is_gated(pod):
            labels = labelled(name=pod.name, namespace=pod.namespace)
            unbound[labels] = now.timestamp() - pod.created
    yield _gauge("pods_state", "Running and pending pods, with their location; always 1.", states)
    yield _gauge("pods_unbound_time_seconds", "How long pods have been waiting for a node.", unbound)


@lru_cache(maxsize=4096)
def _owner_of(shape: str) -> str:
    metadata = json.loads(shape).get("metadata") or {}
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("name"):
            group = "v1" if owner["kind"] == "ReplicationController" else "apps/v1"
            kind = f"{owner['kind'].lower()}s"
            return f"/apis/{group}/namespaces/{metadata['namespace']}/{kind}/{owner['name']}"
    return ""


@lru_cache(maxsize=4096)
def _has_gates(shape: str) -> bool:
    return bool((json.loads(shape).get("spec") or {}).get("schedulingGates"))


def _is_gated(pod: ReducedPod) -> bool:
    """Return whether kube-scheduler does not even consider a pod yet."""
    try:
        return _has_gates(pod.shape)
    except UNREADABLE:
        return False


def _owner(pod: ReducedPod) -> str:
    try:
        return _owner_of(pod.shape)
    except UNREADABLE:
        return ""


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _is_managed(node_labels: Mapping[str, Any]) -> bool:
    """Return whether a Node belongs to a NodeClaim. That of a user's NodeClaim has no NodePool."""
    return NODEPOOL in node_labels or REGISTERED in node_labels


def _node_labels(node: Mapping[str, Any]) -> Labels:
    labels = node["metadata"].get("labels") or {}
    shown = {key.rpartition("/")[2].replace("-", "_"): str(labels.get(key, "")) for key in _NODE_LABEL_KEYS}
    managed = _bool_text(_is_managed(labels))
    return labelled(node_name=node["metadata"]["name"], managed=managed, **shown)


@lru_cache(maxsize=4096)  # identical pods share one text
def _requests(shape: str) -> Resources:
    try:
        return parse_shape(json.loads(shape)).requests
    except UNREADABLE:
        return Resources({})


@lru_cache(maxsize=4096)
def _limits(text: str) -> Resources:
    try:
        return pod_requests(json.loads(text) if text else {})
    except UNREADABLE:
        return Resources({})


def _parse_amounts(resource_list: Any) -> Resources:
    """Parse a resource list; a list that cannot be parsed counts as empty."""
    try:
        return parse_resources(resource_list if isinstance(resource_list, Mapping) else {})
    except QuantityError:
        return Resources({})


def _values(amounts: Resources) -> Iterator[tuple[str, float]]:
    """Yield amounts as Karpenter does: cpu in cores, all others unchanged."""
    for resource, amount in amounts.items():
        yield resource, amount / _MILLI if resource == CPU else float(amount)
