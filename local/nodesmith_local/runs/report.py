"""The outcome of a local run: nodes with prices and pods, pending pods with reasons, and the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, parse_resources, total
from nodesmith.model.kubernetes.pods import pod_requests
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_formats.prices import Price, PriceOf
from nodesmith_local.runs.timeline import Entry, View, condition


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. `pods` are `namespace/name`, including those of DaemonSets."""

    name: str
    nodepool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: Price | None
    requested: Resources
    allocatable: Resources
    pods: tuple[str, ...]
    ready: bool

    def to_json(self) -> dict[str, Any]:
        """Return a node as `nodesmith local run -o json` prints it; CPU is in cores."""
        return {
            "name": self.name,
            "nodePool": self.nodepool,
            "instanceType": self.instance_type,
            "zone": self.zone,
            "capacityType": self.capacity_type,
            "priceHourly": self.price.hourly_usd if self.price else None,
            "priceEstimated": self.price.estimated if self.price else None,
            "cpuRequested": self.requested.cpu_milli / 1000,
            "cpuAllocatable": self.allocatable.cpu_milli / 1000,
            "pods": list(self.pods),
        }


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a cluster and its history. `problems` are findings about objects, ready to print."""

    nodes: tuple[NodeReport, ...]
    pending: tuple[PendingPod, ...]
    timeline: tuple[Entry, ...] = ()
    problems: tuple[str, ...] = ()
    running: int = 0
    """Running pods, out of all bound ones."""

    @property
    def price(self) -> Price:
        """The price of all nodes together, as far as it is known."""
        known_prices = [node.price for node in self.nodes if node.price]
        return Price(sum(p.hourly_usd for p in known_prices), any(p.estimated for p in known_prices))

    @property
    def bound(self) -> int:
        """Pods that have a node."""
        return sum(len(node.pods) for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `nodesmith local run -o json` prints it. Prices are in dollars, times in RFC 3339."""
        return {
            "nodes": [node.to_json() for node in self.nodes],
            "pendingPods": [{"name": pod.name, "reason": pod.reason} for pod in self.pending],
            "priceHourly": round(self.price.hourly_usd, 6),
            "problems": list(self.problems),
            "timeline": [
                {"at": _time(e.at), "what": e.what, "object": e.object, "detail": e.detail}
                for e in self.timeline
            ],
        }


def build_report(
    pods: Iterable[View],
    nodes: Iterable[View],
    *,
    price_of: PriceOf,
    reasons: Mapping[str, str],
    timeline: tuple[Entry, ...] = (),
    problems: tuple[str, ...] = (),
) -> Report:
    """Build a report from a cluster's objects.

    `reasons` are nodesmith's own, by pod; other pending pods get the scheduler's.
    """
    alive = [pod for pod in pods if _phase(pod) not in {"Succeeded", "Failed"}]
    by_node: dict[str, list[View]] = {}
    for pod in alive:
        by_node.setdefault(str(pod["spec"].get("nodeName") or ""), []).append(pod)
    waiting = sorted(by_node.pop("", []), key=pod_key)
    return Report(
        nodes=tuple(
            _node(node, by_node.get(str(node["metadata"]["name"]), []), price_of)
            for node in sorted(nodes, key=_node_order)
        ),
        pending=tuple(PendingPod(pod_key(p), reasons.get(pod_key(p)) or _verdict(p)) for p in waiting),
        timeline=timeline,
        problems=problems,
        running=sum(_phase(pod) == "Running" for pod in alive),
    )


def _phase(pod: View) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _node_order(node: View) -> tuple[str, str]:
    return str((node["metadata"].get("labels") or {}).get(ZONE) or ""), str(node["metadata"]["name"])


def _node(node: View, pods: list[View], price_of: PriceOf) -> NodeReport:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    capacity_type, instance_type = labels.get(CAPACITY_TYPE, ""), labels.get(INSTANCE_TYPE, "")
    zone = labels.get(ZONE, "")
    return NodeReport(
        name=str(node["metadata"]["name"]),
        nodepool=labels.get(NODEPOOL, ""),
        instance_type=instance_type,
        zone=zone,
        capacity_type=capacity_type,
        price=price_of(labels),
        requested=total([pod_requests(pod["spec"]) for pod in pods]) if pods else NOTHING,
        allocatable=parse_resources((node.get("status") or {}).get("allocatable")),
        pods=tuple(sorted(pod_key(pod) for pod in pods)),
        ready=condition(node, "Ready").get("status") == "True",
    )


def _verdict(pod: View) -> str:
    scheduled = condition(pod, "PodScheduled")
    return str(scheduled.get("message") or scheduled.get("reason") or "not considered yet")


def _time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
