"""The Cloud port on EC2 and the services that it depends on, and a Cloud that measures calls as Karpenter does.

Importing this module costs only what a launch needs. The code that resolves NodeClasses (SSM, IAM, EKS) is imported on
first use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.config import Config
from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import THROTTLED, error_code, error_message, transient_errors
from nodesmith.adapters.ec2.fleetcalls import FleetCalls, Templates
from nodesmith.adapters.ec2.instances import (
    LIVING,
    current_notices,
    describe_filter,
    described,
    ours,
    parts,
    start,
    stop,
    terminate,
)
from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.commands import Owned, OwnedKind
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
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.ownership import CLUSTER_TAG, FLEET_TAG, NODECLAIM_TAG, tag_list
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus
from nodesmith.ports import Cloud
from nodesmith.settings import Settings

if TYPE_CHECKING:
    from nodesmith.adapters.aws.eks import ClusterShifts
    from nodesmith.adapters.nodeclasses.nodeclasses import DryRuns


PARALLEL_CALLS = 16
EC2_CONFIG = Config(
    # The queue retries with the same client token, after looking up the instances. A retry here would only delay the
    # other calls.
    retries={"mode": "standard", "total_max_attempts": 1},
    connect_timeout=3,
    read_timeout=30,
    max_pool_connections=PARALLEL_CALLS,
)
"""Configuration of the `ec2` client that is passed to AwsCloud."""

T = TypeVar("T")
R = TypeVar("R")


class AwsCloud:
    """The Cloud of one cluster.

    `client` returns the boto3 client of a service (ec2, ssm, iam, eks) and is called on first use. `executor` returns
    an executor with the given number of workers, on which calls run in parallel.
    """

    def __init__(
        self,
        client: Callable[[str], Any],
        settings: Settings,
        now: Callable[[], datetime],
        executor: Callable[[int], Executor] = ThreadPoolExecutor,
    ) -> None:
        self._executor = executor
        self._client = client
        self._settings = settings
        self._now = now
        self._templates = Templates(client, now)
        self._dry_runs: DryRuns | None = None
        self._shifts: ClusterShifts | None = None
        self._fleets = FleetCalls(client, settings.cluster_name, self._templates, now, self._looked_up)

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        """Create the launch templates that this process has not created recently.

        Raises Transient after all have been tried. If EC2 rejects a template, launches that name it are refused. If it
        throttles the call, the template is taken to exist, as nearly always when many clusters buy nodes at once: if it
        does not, the launch says so.
        """
        unknown = [template for template in templates if not self._templates.is_known(template.name)]
        delays = [delay for delay in self._in_parallel(self._templates.create, unknown) if delay]
        for delay in delays:
            if delay.code not in THROTTLED:
                raise delay

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        """Request one instance per launch request, in one call for requests that share a fleet.

        Never raises for an error that EC2 returns.
        """
        return self._fleets.launch(requests, self._in_parallel, repeated=repeated)

    def instances_of(
        self, claims: Collection[str], known: Mapping[str, str] = MappingProxyType({})
    ) -> Mapping[str, tuple[Instance, ...]]:
        """Return this cluster's instances that carry the tags of these claims, by claim. Raises Transient.

        `known` holds instance ids by claim. If no instance carries a claim's tag, it is looked up by its known id.
        """
        by_claim: dict[str, tuple[Instance, ...]] = {}
        for instance in self._tagged(NODECLAIM_TAG, claims):
            by_claim[instance.claim] = (*by_claim.get(instance.claim, ()), instance)
        untagged = {known[name]: name for name in claims if known.get(name) and name not in by_claim}
        for ids in parts(untagged):
            for instance in described(self._client("ec2"), describe_filter("instance-id", *ids)):
                name = untagged[instance.id]
                by_claim[name] = (replace(instance, claim=name),)
        return by_claim

    def fleet_instances(self, fleets: Collection[str]) -> Mapping[str, tuple[Instance, ...]]:
        """Return the instances of shared fleets that EC2 already shows, by fleet. Raises Transient."""
        by_fleet: dict[str, tuple[Instance, ...]] = {}
        for instance in self._tagged(FLEET_TAG, fleets):
            by_fleet[instance.fleet] = (*by_fleet.get(instance.fleet, ()), instance)
        return by_fleet

    def tag(self, instance: str, tags: Mapping[str, str]) -> None:
        """Write tags on one of our instances, by id. Raises Transient.

        An instance that EC2 no longer knows is ignored.
        """
        try:
            with transient_errors("ec2:CreateTags"):
                self._client("ec2").create_tags(Resources=[instance], Tags=tag_list(tags))
        except ClientError as error:
            code = error_code(error)
            if code != "InvalidInstanceID.NotFound":
                raise Transient(f"ec2:CreateTags {instance}: {code}: {error_message(error)}", code) from error

    def owned_instances(self) -> list[Instance]:
        """Return the living instances that carry all tags that IAM requires for termination. Raises Transient."""
        tagged = *ours(self._settings.cluster_name), describe_filter("tag-key", NODEPOOL)
        return list(described(self._client("ec2"), *tagged, LIVING))

    def living(self, instances: Collection[str]) -> frozenset[str]:
        """Return the ids that belong to living instances, regardless of their owner.

        Ids that EC2 does not know are left out. Raises Transient.
        """
        alive_ids: set[str] = set()
        for ids in parts(instances):
            alive = described(self._client("ec2"), describe_filter("instance-id", *ids), LIVING)
            alive_ids |= {instance.id for instance in alive}
        return frozenset(alive_ids)

    def notices(self, instances: Collection[str]) -> list[Notice]:
        """Return notices derived from EC2's own state of these instances. Raises Transient.

        There are none for an instance that EC2 does not know.
        """
        if not instances:
            return []
        return current_notices(
            self._client("ec2"), self._settings.cluster_name, frozenset(instances), self._now()
        )

    def owned(self, kind: OwnedKind) -> list[Owned]:
        """Return the resources of one kind that nodesmith created for this cluster. Raises Transient."""
        from nodesmith.adapters.ownedresources import listed

        return listed(kind, self._client, self._settings)

    def remove(self, owned: Owned) -> None:
        """Delete a resource that `owned` returned. One that is already gone is ignored. Raises Transient."""
        from nodesmith.adapters.ownedresources import remove

        remove(owned, self._client)

    def terminate(self, instances: Collection[str]) -> None:
        """Terminate instances by id. Instances that EC2 no longer knows are ignored.

        After all have been tried, raises Transient if EC2 refuses to terminate one because it is protected or lacks our
        tags.
        """
        terminate(self._client("ec2"), instances)

    def stop(self, instance: str) -> None:
        """Stop an instance by id, unless it is gone, ending or stopped. Raises Transient."""
        stop(self._client("ec2"), instance)

    def start(self, instances: Collection[str]) -> Mapping[str, StartRefusal]:
        """Start stopped instances by id. Return those that do not start, or of which that is not known.

        One call starts all of them: EC2's rate limit allows few. If it is refused, for whichever of them, each gets a
        call of its own, which changes nothing for those that have started.
        """
        ids, ec2 = sorted(set(instances)), self._client("ec2")
        together = start(ec2, ids)
        if together is None or together.passes or len(ids) == 1:
            return dict.fromkeys(ids, together) if together else {}
        refusals = self._in_parallel(lambda id_: start(ec2, [id_]), ids)
        return {id_: refusal for id_, refusal in zip(ids, refusals, strict=True) if refusal}

    def cluster_info(self) -> ClusterInfo:
        """Describe the cluster from the settings, and from EKS for values that they lack.

        Raises Transient, or Rejected that names the missing or invalid setting.
        """
        from nodesmith.adapters.aws.eks import cluster_info

        return cluster_info(self._client, self._settings)

    def resolve(
        self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime, pools: Sequence[Requirements] = ()
    ) -> NodeClassStatus:
        """Resolve a NodeClass. Missing parts become conditions of the returned status. Raises Transient."""
        from nodesmith.adapters.nodeclasses.nodeclasses import DryRuns, resolve

        if self._dry_runs is None:
            self._dry_runs = DryRuns(self._client, self._settings, self._now)
        check = partial(self._dry_runs.check, pools=pools)
        return resolve(self._client, self._settings, nodeclass, cluster, now, check)

    def zonal_shifts(self, now: datetime) -> tuple[ZonalShift, ...] | None:
        """Return the zonal shifts in effect; None if they cannot be read, as in an isolated VPC. Never raises."""
        if self._settings.isolated_vpc:
            return None
        from nodesmith.adapters.aws.eks import ClusterShifts

        if self._shifts is None:
            self._shifts = ClusterShifts(self._client, self._settings.cluster_name)
        return self._shifts.read(now)

    def _in_parallel(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Run `work` on all items and return the results in order. A single item runs without a thread."""
        if len(items) < 2:
            return [work(item) for item in items]
        self._client("ec2")  # boto3 sessions cannot create clients from several threads at once
        with self._executor(min(PARALLEL_CALLS, len(items))) as pool:
            return list(pool.map(work, items))

    def _tagged(self, key: str, values: Collection[str]) -> Iterator[Instance]:
        """Yield this cluster's instances whose tag `key` has one of these values."""
        cluster = describe_filter(f"tag:{CLUSTER_TAG}", self._settings.cluster_name)
        for chunk in parts(values):
            yield from described(self._client("ec2"), cluster, describe_filter(f"tag:{key}", *chunk))

    def _looked_up(self, request: LaunchRequest) -> Sequence[Instance]:
        """Return the instances that a request already has: its whole fleet, or its claim's living instances."""
        if request.share:
            return self.fleet_instances([request.share.fleet]).get(request.share.fleet, ())
        return [i for i in self.instances_of([request.claim]).get(request.claim, ()) if i.is_alive]


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

    def owned(self, kind: OwnedKind) -> Sequence[Owned]:
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
        self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime, pools: Sequence[Requirements] = ()
    ) -> NodeClassStatus:
        """Resolve an EC2NodeClass to the AWS resources that it selects."""
        return self._cloud.resolve(nodeclass, cluster, now, pools)

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
