"""A Cloud that measures the duration and the failures of its calls, as Karpenter does for its CloudProvider."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ec2.launches import (
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    StartRefusal,
)
from nodesmith.model.ec2.notices import Notice
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.functions.hints import Concern
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.metrics import Metrics
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus
from nodesmith.ports import Cloud

CONTROLLERS: Mapping[Concern, str] = {
    Concern.PROVISIONING: "provisioner",
    Concern.DISRUPTION: "disruption",
    Concern.LIFECYCLE: "nodeclaim.lifecycle",
    Concern.TERMINATION: "node.termination",
    Concern.GARBAGECOLLECTION: "nodeclaim.garbagecollection",
    Concern.INTERRUPTION: "interruption",
}
"""Karpenter's name for the controller that corresponds to a concern"""
_UNKNOWN = ""
"""Karpenter's label value for an error that it has no name for"""
_PROVIDER = "aws"


class MeasuredCloud:
    """A Cloud that delegates to `cloud` and records metrics under the name of a controller.

    Methods map to those of Karpenter's CloudProvider: `launch` is Create, `terminate` is Delete, `owned_instances` is
    List, and instance lookups are Get. Other calls are delegated without being measured.
    """

    def __init__(self, cloud: Cloud, metrics: Metrics, controller: str) -> None:
        self._cloud, self._metrics, self._controller = cloud, metrics, controller

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        """Ensure that these launch templates exist."""
        self._cloud.ensure_templates(templates)

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        """Request one instance per launch request. Each counts as a call, as in Karpenter, even if they share one."""
        with self._measured("Create", len(requests)):
            outcomes = self._cloud.launch(requests, repeated=repeated)
        for outcome in outcomes:
            if not isinstance(outcome, Launched):
                is_short = isinstance(outcome, NoCapacity)
                self._failed("Create", "InsufficientCapacityError" if is_short else _UNKNOWN)
        return outcomes

    def instances_of(
        self,
        claims: Collection[str],
        known: Mapping[str, str] = FrozenMap(),
    ) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances that carry the tags of these claims, by claim."""
        with self._measured("Get"):
            return self._cloud.instances_of(claims, known)

    def fleet_instances(self, fleets: Collection[str]) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances of shared fleets, by fleet."""
        with self._measured("Get"):
            return self._cloud.fleet_instances(fleets)

    def tag(self, instance: str, tags: Mapping[str, str]) -> None:
        """Write tags on one of our instances."""
        self._cloud.tag(instance, tags)

    def owned_instances(self) -> Sequence[Instance]:
        """Return all living instances of this cluster."""
        with self._measured("List"):
            return self._cloud.owned_instances()

    def living(self, instances: Collection[str]) -> Collection[str]:
        """Return the ids of those of these instances that are living."""
        with self._measured("Get"):
            return self._cloud.living(instances)

    def notices(self, instances: Collection[str]) -> Sequence[Notice]:
        """Return notices derived from EC2's own state of these instances."""
        return self._cloud.notices(instances)

    def owned(self, kind: Kind) -> Sequence[Owned]:
        """Return the resources of one kind that nodesmith created for this cluster."""
        return self._cloud.owned(kind)

    def remove(self, owned: Owned) -> None:
        """Delete a resource that `owned` returned."""
        self._cloud.remove(owned)

    def terminate(self, instances: Collection[str]) -> None:
        """Terminate instances. Each counts as one call, as in Karpenter, although they share one."""
        with self._measured("Delete", len(instances)):
            self._cloud.terminate(instances)

    def stop(self, instance: str) -> None:
        """Stop an instance."""
        self._cloud.stop(instance)

    def start(self, instances: Collection[str]) -> Mapping[str, StartRefusal]:
        """Start stopped instances, each in a call of its own."""
        return self._cloud.start(instances)

    def cluster_info(self) -> ClusterInfo:
        """Describe the cluster that new nodes join."""
        return self._cloud.cluster_info()

    def resolve(
        self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime, *, dedicated: bool = False
    ) -> NodeClassStatus:
        """Resolve an EC2NodeClass to the AWS resources that it selects."""
        return self._cloud.resolve(nodeclass, cluster, now, dedicated=dedicated)

    def zonal_shifts(self, now: datetime) -> Sequence[ZonalShift] | None:
        """Return the zonal shifts of the cluster that are in effect; None if they cannot be read."""
        return self._cloud.zonal_shifts(now)

    @contextmanager
    def _measured(self, method: str, times: int = 1) -> Iterator[None]:
        if not times:
            yield
            return
        about = {"controller": self._controller, "method": method, "provider": _PROVIDER}
        try:
            with self._metrics.timed("cloudprovider_duration_seconds", times, **about):
                yield
        except (Transient, Rejected):
            self._failed(method, _UNKNOWN)
            raise

    def _failed(self, method: str, error: str) -> None:
        self._metrics.count(
            "cloudprovider_errors_total",
            controller=self._controller,
            method=method,
            provider=_PROVIDER,
            error=error,
        )
