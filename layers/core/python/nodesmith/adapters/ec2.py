"""EC2 and what stands around it, as the Cloud port.

Importing this module costs only what a launch needs: resolving NodeClasses (SSM, IAM, EKS) is imported when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.awserrors import error_code, error_message, is_passing, transient_errors
from nodesmith.adapters.fleetanswers import FleetError, failure, fleet_errors, fleet_instance, shortfalls
from nodesmith.adapters.fleets import fleet_request
from nodesmith.adapters.launchtemplates import Templates
from nodesmith.decisions.launch.tags import CLUSTER_TAG, MANAGED_BY_TAG, NODECLAIM_TAG, owned_tag
from nodesmith.errors import Transient
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.labels import NODEPOOL, ON_DEMAND, RESERVED, SPOT
from nodesmith.model.launches import (
    Deferred,
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    TemplateMissing,
)
from nodesmith.model.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclassstatus import ClusterInfo, NodeClassStatus
from nodesmith.settings import Settings

PARALLEL_CALLS = 16
_FILTER_VALUES = 200
_TEMPLATE_ID_TAG = "aws:ec2launchtemplate:id"
"""EC2 puts it on whatever it launches from a template."""
EC2_CONFIG = Config(
    # The queue retries, with the same client token and after a look: a retry in here would only hold up the others.
    retries={"mode": "standard", "total_max_attempts": 1},
    connect_timeout=3,
    read_timeout=30,
    max_pool_connections=PARALLEL_CALLS,
)
"""For the client `ec2` that AwsCloud is given."""

T = TypeVar("T")
R = TypeVar("R")
Filter = dict[str, Any]


def _filter(name: str, values: list[str]) -> Filter:
    return {"Name": name, "Values": values}


_LIVING = _filter("instance-state-name", ["pending", "running", "stopping", "stopped"])


class AwsCloud:
    """The Cloud of one cluster. `client` gives the boto3 client of a service (ec2, ssm, iam, eks) when first needed."""

    def __init__(
        self,
        client: Callable[[str], Any],
        settings: Settings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._settings = settings
        self._now = now
        self._templates = Templates(client, now)

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        """Make the launch templates that this process has not lately made. Raises Transient after all have been tried.

        One that EC2 will not have refuses the launches that name it.
        """
        unknown = [template for template in templates if not self._templates.is_known(template.name)]
        delays = [delay for delay in self._in_parallel(self._templates.create, unknown) if delay]
        if delays:
            raise delays[0]

    def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        """Ask for one instance per request. Never raises for what EC2 answers."""
        return self._in_parallel(self._launch, requests)

    def instances_of(self, claims: Collection[str]) -> Mapping[str, tuple[Instance, ...]]:
        """Give the instances that carry these claims' tags in this cluster, by claim. Raises Transient."""
        found: dict[str, tuple[Instance, ...]] = {}
        ours = _filter(f"tag:{CLUSTER_TAG}", [self._settings.cluster_name])
        for names in _parts(claims):
            for instance in self._described([ours, _filter(f"tag:{NODECLAIM_TAG}", names)]):
                found[instance.claim] = (*found.get(instance.claim, ()), instance)
        return found

    def owned_instances(self) -> list[Instance]:
        """Give the living instances that carry every tag by which IAM lets us end them. Raises Transient."""
        return list(self._described([*self._ours(), _filter("tag-key", [NODEPOOL]), _LIVING]))

    def living(self, instances: Collection[str]) -> frozenset[str]:
        """Say which of these ids are living instances, anybody's; one that EC2 does not know is none."""
        found: set[str] = set()
        for ids in _parts(instances):
            found |= {instance.id for instance in self._described([_filter("instance-id", ids), _LIVING])}
        return frozenset(found)

    def owned(self, kind: Kind) -> list[Owned]:
        """Give what we made of a kind for this cluster. Raises Transient."""
        from nodesmith.adapters.owned import listed

        return listed(kind, self._client, self._settings, self._ours())

    def remove(self, owned: Owned) -> None:
        """Delete what `owned` gave; gone already is fine. Raises Transient."""
        from nodesmith.adapters.owned import remove

        remove(owned, self._client)

    def terminate(self, instances: Collection[str]) -> None:
        """Terminate instances by id; one that EC2 does not know any more is fine.

        Raises Transient, when all have been tried, for one that EC2 will not end: protected, or without our tags.
        """
        ids = sorted(set(instances))
        if not ids:
            return
        try:
            with transient_errors("ec2:TerminateInstances"):
                self._client("ec2").terminate_instances(InstanceIds=ids)
        except ClientError as error:
            if len(ids) > 1:
                self._terminate_singly(ids)
            elif error_code(error) != "InvalidInstanceID.NotFound":
                why = f"{error_code(error)}: {error_message(error)}"
                raise Transient(f"ec2:TerminateInstances {ids[0]}: {why}", error_code(error)) from error

    def _terminate_singly(self, ids: Sequence[str]) -> None:
        """EC2 refuses the whole call for one id that it does not know, or will not end."""
        failures: list[str] = []
        for one in ids:
            try:
                self.terminate([one])
            except Transient as error:
                failures.append(str(error))
        if failures:
            raise Transient("; ".join(failures))

    def cluster_info(self) -> ClusterInfo:
        """Describe the cluster, settings first, EKS for the rest. Raises Transient, or Rejected naming the setting."""
        from nodesmith.adapters.clusters import cluster_info

        return cluster_info(self._client, self._settings)

    def resolve(self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime) -> NodeClassStatus:
        """Resolve a NodeClass; what is missing is a condition of the answer. Raises Transient."""
        from nodesmith.adapters.nodeclasses import resolve

        return resolve(self._client, self._settings, nodeclass, cluster, now)

    def _in_parallel(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Work on all items, answers in their order; a single one needs no thread."""
        if len(items) < 2:
            return [work(item) for item in items]
        self._client("ec2")  # boto3 sessions make no clients for several threads at once
        with ThreadPoolExecutor(min(PARALLEL_CALLS, len(items))) as pool:
            return list(pool.map(work, items))

    def _launch(self, request: LaunchRequest) -> LaunchOutcome:
        refused = self._templates.refusal(request)
        if refused:
            return refused
        try:
            answer = self._client("ec2").create_fleet(**fleet_request(request, self._settings.cluster_name))
        except (ClientError, BotoCoreError) as error:
            code, message = error_code(error), error_message(error)
            if is_passing(error):
                return Deferred(request.claim, code, message)
            if not isinstance(error, ClientError):
                raise
            return self._failed(request, [FleetError(code, message)])
        return self._outcome(request, answer)

    def _outcome(self, request: LaunchRequest, answer: Mapping[str, Any]) -> LaunchOutcome:
        errors = fleet_errors(request, answer)
        instance = fleet_instance(request, answer, self._templates.images, self._now())
        if instance is None and errors:
            return self._failed(request, errors)
        if instance is None or not instance.image_id:
            # An answer repeated for a known client token may name nothing, and a template made by an earlier process
            # hides its image: the instance itself knows.
            instance = self._seen(request) or instance
        if instance is None:
            return failure(request, [])
        return Launched(request.claim, instance, shortfalls(errors))

    def _seen(self, request: LaunchRequest) -> Instance | None:
        try:
            found = self.instances_of([request.claim]).get(request.claim, ())
        except Transient:
            return None
        return next((instance for instance in found if instance.is_alive), None)

    def _failed(self, request: LaunchRequest, errors: list[FleetError]) -> LaunchOutcome:
        outcome = failure(request, errors)
        if isinstance(outcome, TemplateMissing):
            self._templates.forget(request)
        return outcome

    def _ours(self) -> list[Filter]:
        """The filters that find what is this cluster's and made by us."""
        cluster = self._settings.cluster_name
        tags = {CLUSTER_TAG: cluster, MANAGED_BY_TAG: cluster, owned_tag(cluster): "owned"}
        return [_filter(f"tag:{key}", [value]) for key, value in tags.items()]

    def _described(self, filters: list[Filter]) -> Iterator[Instance]:
        with transient_errors("ec2:DescribeInstances"):
            paginator = self._client("ec2").get_paginator("describe_instances")
            for page in paginator.paginate(Filters=filters, PaginationConfig={"PageSize": 1000}):
                for reservation in page["Reservations"]:
                    yield from map(_instance, reservation["Instances"])


def _parts(values: Collection[str]) -> Iterator[list[str]]:
    """Give the values in order, as many at a time as one filter takes."""
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _FILTER_VALUES):
        yield ordered[start : start + _FILTER_VALUES]


def _capacity_type(described: Mapping[str, Any]) -> str:
    """Only an instance that may run in its reservation alone is reserved: an open one takes in whoever fits."""
    if described.get("InstanceLifecycle") == SPOT:
        return SPOT
    preference = (described.get("CapacityReservationSpecification") or {}).get(
        "CapacityReservationPreference"
    )
    reserved = described.get("CapacityReservationId") and preference == "capacity-reservations-only"
    return RESERVED if reserved else ON_DEMAND


def _instance(described: Mapping[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}
    return Instance(
        id=described["InstanceId"],
        claim=tags.get(NODECLAIM_TAG, ""),
        instance_type=described["InstanceType"],
        zone=described["Placement"]["AvailabilityZone"],
        capacity_type=_capacity_type(described),
        image_id=described["ImageId"],
        state=described["State"]["Name"],
        launched_at=described["LaunchTime"].astimezone(UTC),
        subnet_id=described.get("SubnetId", ""),
        state_reason=described.get("StateReason", {}).get("Message", ""),
        template_id=tags.get(_TEMPLATE_ID_TAG, ""),
        instance_profile=described.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
    )
