"""EC2 and what stands around it, as the Cloud port.

Importing this module costs only what a launch needs: resolving NodeClasses (SSM, IAM, EKS) is imported when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.awserrors import THROTTLED, error_code, error_message, is_passing, plain_code
from nodesmith.adapters.fleetanswers import (
    FleetError,
    call_failure,
    fleet_errors,
    fleet_instance,
    shortfalls,
    unfulfilled,
)
from nodesmith.adapters.fleets import fleet_request
from nodesmith.adapters.instances import LIVING, described, ours, parts, terminate, where
from nodesmith.adapters.launchtemplates import Templates
from nodesmith.decisions.launch.tags import CLUSTER_TAG, NODECLAIM_TAG
from nodesmith.errors import Transient
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.labels import NODEPOOL
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
from nodesmith.model.notices import Notice
from nodesmith.settings import Settings

PARALLEL_CALLS = 16
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


class AwsCloud:
    """The Cloud of one cluster. `client` gives the boto3 client of a service (ec2, ssm, iam, eks) when first needed."""

    def __init__(self, client: Callable[[str], Any], settings: Settings, now: Callable[[], datetime]) -> None:
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
        cluster = where(f"tag:{CLUSTER_TAG}", self._settings.cluster_name)
        for names in parts(claims):
            for instance in described(self._client("ec2"), cluster, where(f"tag:{NODECLAIM_TAG}", *names)):
                found[instance.claim] = (*found.get(instance.claim, ()), instance)
        return found

    def owned_instances(self) -> list[Instance]:
        """Give the living instances that carry every tag by which IAM lets us end them. Raises Transient."""
        tagged = *ours(self._settings.cluster_name), where("tag-key", NODEPOOL)
        return list(described(self._client("ec2"), *tagged, LIVING))

    def living(self, instances: Collection[str]) -> frozenset[str]:
        """Say which of these ids are living instances, anybody's; one that EC2 does not know is none."""
        found: set[str] = set()
        for ids in parts(instances):
            alive = described(self._client("ec2"), where("instance-id", *ids), LIVING)
            found |= {instance.id for instance in alive}
        return frozenset(found)

    def notices(self, instances: Collection[str]) -> list[Notice]:
        """Say what EC2's own state tells of these instances; of one it does not know, nothing. Raises Transient."""
        from nodesmith.adapters.sweeping import told

        if not instances:
            return []
        return told(self._client("ec2"), self._settings.cluster_name, frozenset(instances), self._now())

    def owned(self, kind: Kind) -> list[Owned]:
        """Give what we made of a kind for this cluster. Raises Transient."""
        from nodesmith.adapters.owned import listed

        return listed(kind, self._client, self._settings)

    def remove(self, owned: Owned) -> None:
        """Delete what `owned` gave; gone already is fine. Raises Transient."""
        from nodesmith.adapters.owned import remove

        remove(owned, self._client)

    def terminate(self, instances: Collection[str]) -> None:
        """Terminate instances by id; one that EC2 does not know any more is fine.

        Raises Transient, when all have been tried, for one that EC2 will not end: protected, or without our tags.
        """
        terminate(self._client("ec2"), instances)

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
                return Deferred(request.claim, code, message, nothing_begun=code in THROTTLED)
            if not isinstance(error, ClientError):
                raise
            return self._forgetting(request, call_failure(request, FleetError(plain_code(code), message)))
        return self._outcome(request, answer)

    def _outcome(self, request: LaunchRequest, answer: Mapping[str, Any]) -> LaunchOutcome:
        errors = fleet_errors(request, answer)
        instance = fleet_instance(request, answer, self._templates.images, self._now())
        if instance is None and errors:
            return self._forgetting(request, unfulfilled(request, errors))
        if instance is None or not instance.image_id:
            # An answer repeated for a known client token may name nothing, and a template made by an earlier process
            # hides its image: the instance itself knows.
            instance = self._seen(request) or instance
        if instance is None:
            return unfulfilled(request, [])
        return Launched(request.claim, instance, shortfalls(errors))

    def _seen(self, request: LaunchRequest) -> Instance | None:
        try:
            found = self.instances_of([request.claim]).get(request.claim, ())
        except Transient:
            return None
        return next((instance for instance in found if instance.is_alive), None)

    def _forgetting(self, request: LaunchRequest, outcome: LaunchOutcome) -> LaunchOutcome:
        """Stop believing in launch templates that EC2 does not know."""
        if isinstance(outcome, TemplateMissing):
            self._templates.forget(request)
        return outcome
