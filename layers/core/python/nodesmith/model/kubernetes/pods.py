"""Pods: their requests by kube-scheduler's rules, and what differs between pods of one shape.

Requests follow kube-scheduler (k8s.io/component-helpers, resource.PodRequests). The requests of containers and
restartable init containers (sidecars) are added. An ordinary init container needs its own requests plus those of the
sidecars that start before it. The larger of both counts. Pod-level requests replace the sum, and pod-level limits are
used for resources that no container requests. The runtime class's overhead is added. While a container is resized in
place, the larger of its requested and its allocated resources counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nodesmith.model.apimachinery.resources import NOTHING, PODS, Resources, parse_resources, total

if TYPE_CHECKING:
    from nodesmith.model.kubernetes.shapes import Shape

Manifest = Mapping[str, Any]
_ONE_POD = Resources({PODS: 1})


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `key` is `namespace/name`, and `node` is the name of the node that it is bound to, or empty.

    `unschedulable` is kube-scheduler's verdict: PodScheduled has the reason Unschedulable. `nominated_node` is the node
    on which kube-scheduler has reserved room for a pod that is not bound yet, mostly by preempting others. `deleting`
    is True if the pod has a deletionTimestamp, and `deletion_at` is that timestamp: when its grace period ends.
    `started_at` (status.startTime) is set if a decision depends on it. `ready` is the pod's Ready condition.
    `startup_minutes` is how long the pod takes to become ready if that is long, see `observation.reduction.startups`.
    `refusal` is why no node fits this pod; `Shape.refusal` is the same for all pods of its shape.
    """

    key: str
    shape: Shape
    created_at: datetime
    node: str = ""
    unschedulable: bool = False
    nominated_node: str = ""
    deleting: bool = False
    refusal: str = ""
    deletion_at: datetime | None = None
    started_at: datetime | None = None
    ready: bool = True
    startup_minutes: int = 0


def pod_requests(spec: Manifest, container_statuses: Sequence[Manifest] = ()) -> Resources:
    """Return the resources that a pod uses on a node, including the pod itself (`pods: 1`). Raises QuantityError."""
    allocated = {
        str(status.get("name")): _allocated(status)
        for status in container_statuses
        if status.get("allocatedResources") or (status.get("resources") or {}).get("requests")
    }
    containers = total([_container(c, allocated) for c in spec.get("containers") or ()])
    effective = _with_init_containers(containers, spec.get("initContainers") or (), allocated)
    own = spec.get("resources") or {}
    limits, requests = parse_resources(own.get("limits")), parse_resources(own.get("requests"))
    effective = Resources({**limits.amounts, **effective.amounts, **requests.amounts})
    return effective + parse_resources(spec.get("overhead")) + _ONE_POD


def _with_init_containers(
    containers: Resources, init_containers: Sequence[Manifest], allocated: Mapping[str, Resources]
) -> Resources:
    sidecars, peak = NOTHING, NOTHING
    for container in init_containers:
        needed = _container(container, allocated)
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars + needed
            peak = peak.at_least(sidecars)
        else:
            peak = peak.at_least(sidecars + needed)
    return (containers + sidecars).at_least(peak)


def _container(container: Manifest, allocated: Mapping[str, Resources]) -> Resources:
    return _requests(container.get("resources") or {}).at_least(
        allocated.get(container.get("name", ""), NOTHING)
    )


def _requests(resources: Manifest) -> Resources:
    """Return the requests. A limit without a request counts as the request, which is the API server's default."""
    return Resources(
        {
            **parse_resources(resources.get("limits")).amounts,
            **parse_resources(resources.get("requests")).amounts,
        }
    )


def _allocated(status: Manifest) -> Resources:
    actual = parse_resources((status.get("resources") or {}).get("requests"))
    return parse_resources(status.get("allocatedResources")).at_least(actual)
