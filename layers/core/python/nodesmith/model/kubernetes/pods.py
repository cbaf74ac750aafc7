"""Pods: what they request by the scheduler's rules, and the little that differs between pods of one shape.

Requests follow kube-scheduler (k8s.io/component-helpers, resource.PodRequests): containers and restartable init
containers (sidecars) add up, an ordinary init container needs what it asks plus the sidecars started before it, the
larger of both counts. Pod-level requests replace the sum, and pod-level limits stand in for what no container asks for.
The runtime class's overhead comes on top. While a container is resized in place, the larger of what is asked for and
what is allocated counts.
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
    """One pod: `key` is `namespace/name`, `node` the name of the node it is bound to or empty.

    `unschedulable` is the scheduler's own verdict (PodScheduled has the reason Unschedulable); `nominated_node` where
    it has promised room to a pod that is not bound yet, mostly by preempting others; `deleting` that it has a
    deletionTimestamp, and `deletion_at` what it says: when its grace ends. `started_at` (status.startTime) is given
    where a decision counts from it, `ready` is the pod's Ready condition.
    `startup_minutes` is how long it took to be at work, where that is noteworthy, see `observation.startups`.
    `refusal` is why no node will do for this very pod, see `Shape.refusal` for those of its kind.
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
    """Return what a pod takes from a node, itself (`pods: 1`) included. Raises QuantityError."""
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
    """Return the requests; a limit without a request is the request, as the API server defaults it."""
    return Resources(
        {
            **parse_resources(resources.get("limits")).amounts,
            **parse_resources(resources.get("requests")).amounts,
        }
    )


def _allocated(status: Manifest) -> Resources:
    actual = parse_resources((status.get("resources") or {}).get("requests"))
    return parse_resources(status.get("allocatedResources")).at_least(actual)
