"""Pods as an audit reads them: their requests, scheduling constraints and state."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nodesmith_cli.audit.reading.fields import (
    UNREADABLE,
    Amounts,
    Manifest,
    add_to,
    amounts,
    dig,
    largest,
    plus,
)
from nodesmith_cli.audit.reading.selectors import refusals, selects

Port: TypeAlias = tuple[str, int, str]  # protocol, number, address (empty for all)
_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 (compared with, not listened on)
_POD_LEVEL = ("cpu", "memory", "hugepages-")
_OVER = ("Succeeded", "Failed")
_DAEMON_TOLERATIONS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""The tolerations that the DaemonSet controller adds. Pods with hostNetwork also tolerate network-unavailable."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `placing` is equal for pods with the same node constraints. `fault` is why it is unreadable, or empty.

    `owner` is `kind/name` of its controller. `node` is the node it is bound to, `nominated` its nominated node.
    """

    key: str
    namespace: str
    labels: Mapping[str, str]
    spec: Manifest
    needs: Amounts = field(default_factory=dict)
    ports: frozenset[Port] = frozenset()
    placing: str = ""
    owner: str = ""
    node: str = ""
    nominated: str = ""
    deleting: bool = False
    gated: bool = False
    fault: str = ""

    @property
    def is_daemon(self) -> bool:
        return self.owner.startswith("DaemonSet/")

    @property
    def is_mirror(self) -> bool:
        """True for the mirror pod of a static pod."""
        return self.owner.startswith("Node/")


def read_pods(manifests: Iterable[Manifest]) -> Iterator[Pod]:
    """Yield all pods that have not finished."""
    for manifest in manifests:
        if dig(manifest, "status", "phase") not in _OVER:
            yield _pod(manifest)


def daemon_pod(daemonset: Manifest) -> Pod:
    """Return the pod that a DaemonSet runs on each matching node."""
    about, template = daemonset["metadata"], daemonset["spec"]["template"]
    spec = dict(template["spec"])
    given = [*_DAEMON_TOLERATIONS]
    if spec.get("hostNetwork"):
        given.append(("node.kubernetes.io/network-unavailable", "NoSchedule"))
    own = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in given]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *own]
    namespace = about.get("namespace") or "default"
    owner = {"kind": "DaemonSet", "name": about["name"], "controller": True}
    inner = {"name": about["name"], "namespace": namespace, "labels": dig(template, "metadata", "labels")}
    return _pod({"metadata": {**inner, "ownerReferences": [owner]}, "spec": spec})


def _pod(manifest: Manifest) -> Pod:
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    namespace = metadata.get("namespace") or "default"
    key = f"{namespace}/{metadata['name']}"
    labels = {str(k): str(v) for k, v in (metadata.get("labels") or {}).items()}
    owners = (
        o for o in metadata.get("ownerReferences") or () if o.get("controller") or o.get("kind") == "Node"
    )
    owner = next((f"{o['kind']}/{o['name']}" for o in owners), "")
    node = spec.get("nodeName") or ""
    try:
        needs, ports = pod_needs(spec, status.get("containerStatuses") or ()), frozenset(_ports(spec))
        _try(spec)
    except UNREADABLE as error:
        return Pod(key, namespace, labels, spec, owner=owner, node=node, fault=str(error))
    affinity = dig(spec, "affinity", "nodeAffinity")
    placing = json.dumps([spec.get("nodeSelector"), affinity, spec.get("tolerations")], sort_keys=True)
    return Pod(
        key,
        namespace,
        labels,
        spec,
        needs,
        ports,
        sys.intern(placing),
        owner,
        node,
        "" if node else status.get("nominatedNodeName") or "",
        "deletionTimestamp" in metadata,
        bool(spec.get("schedulingGates")),
    )


def _try(spec: Manifest) -> None:
    """Evaluate every rule once. Raises the exceptions in UNREADABLE if one is invalid."""
    refusals(spec, {}, [{"key": "any", "effect": "NoSchedule"}], None)
    for constraint in spec.get("topologySpreadConstraints") or ():
        int(constraint.get("maxSkew") or 1), int(constraint.get("minDomains") or 1), constraint["topologyKey"]
        selects(constraint.get("labelSelector"), {})
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in dig(spec, "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution") or ():
            selects(term.get("labelSelector"), {}), selects(term.get("namespaceSelector"), {})
            term["topologyKey"].strip()


def pod_needs(spec: Manifest, statuses: Sequence[Manifest] = ()) -> Amounts:
    """Return a pod's requests as kube-scheduler computes them, including 1 of `pods`.

    This is the sum of containers and sidecars, or the peak of the init containers if that is larger. Pod-level requests
    replace it, and overhead is added. For a container that is being resized, the larger amount counts.
    """
    held = {status.get("name"): status for status in statuses}
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _container_needs(container, held)
        moment = plus(running, own)
        if container.get("restartPolicy") == "Always":
            running = moment
        peak = largest(peak, moment)
    for container in spec.get("containers") or ():
        running = plus(running, _container_needs(container, held))
    whole = largest(peak, running)
    pod_level = spec.get("resources") or {}
    for name, amount in amounts(pod_level.get("limits")).items():
        if name.startswith(_POD_LEVEL):
            whole.setdefault(name, amount)
    whole |= {n: a for n, a in amounts(pod_level.get("requests")).items() if n.startswith(_POD_LEVEL)}
    add_to(whole, amounts(spec.get("overhead")))
    return {**{name: amount for name, amount in whole.items() if amount}, "pods": 1}


def needs_of(pods: Iterable[Pod]) -> Amounts:
    """Return the sum of the pods' requests."""
    total: Amounts = {}
    for pod in pods:
        add_to(total, pod.needs)
    return total


def _container_needs(container: Manifest, requirements: Mapping[Any, Manifest]) -> Amounts:
    """Return a container's requests. A limit without a request counts as one, as in the API server's defaults."""
    resources = container.get("resources") or {}
    resource_requests = {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}
    status = requirements.get(container.get("name")) or {}
    allocated = amounts(status.get("allocatedResources"))
    return largest(largest(resource_requests, allocated), amounts(dig(status, "resources", "requests")))


def _ports(spec: Manifest) -> Iterator[Port]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (spec.get("hostNetwork") and port.get("containerPort"))
            if number:
                address = port.get("hostIP") or ""
                open_to = "" if address in _ALL_ADDRESSES else address
                yield port.get("protocol") or "TCP", int(number), open_to


def port_clashes(pods: Iterable[Pod]) -> Iterator[tuple[str, int, str, str]]:
    """Yield every host port that two of these pods use: protocol, number and both pods, the later one last."""
    takers: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for pod in pods:
        for protocol, number, address in sorted(pod.ports):
            others = takers.setdefault((protocol, number), [])
            for at, key in others:
                if key != pod.key and (not address or not at or at == address):
                    yield protocol, number, key, pod.key
            others.append((address, pod.key))


def finds_port_taken(pods: Sequence[Pod], resident: Iterable[Pod]) -> bool:
    """Return whether one of these pods uses a host port of another one, or of a resident pod."""
    keys = {pod.key for pod in pods if pod.ports}
    return bool(keys) and any(later in keys for *_, later in port_clashes((*resident, *pods)))
