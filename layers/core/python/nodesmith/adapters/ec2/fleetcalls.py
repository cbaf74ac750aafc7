"""CreateFleet for one cluster, type instant, and the launch templates that its calls refer to.

Equal requests share a call, whose instances are distributed to their claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.calls import (
    THROTTLED,
    SessionFailed,
    error_code,
    error_message,
    is_passing,
    plain_code,
)
from nodesmith.adapters.ec2.fleetanswers import (
    NO_STOCK,
    FleetError,
    call_failure,
    fleet_errors,
    fleet_instances,
    refusal_reason,
    shortfalls,
    subnet_shortfalls,
    unfulfilled,
)
from nodesmith.decisions.launch.fleets import matched
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.launches import (
    Deferred,
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    Refused,
    TemplateMissing,
    Unfulfilled,
)
from nodesmith.model.karpenter.ownership import FLEET_TAG, claim_tags, tag_list

_ENOUGH_THROTTLED = 2
"""Throttled calls after which the rest of a batch is skipped, because those would be throttled as well."""

Calls = Sequence[Sequence[LaunchRequest]]
Parallel = Callable[
    [Callable[[Sequence[LaunchRequest]], list[LaunchOutcome]], Calls], list[list[LaunchOutcome]]
]


@dataclass(slots=True)
class _Batch:
    """The calls of one `launch`. Threads count without a lock, because being off by one does not matter."""

    throttled: int = 0


@dataclass(frozen=True, slots=True)
class FleetCalls:
    """CreateFleet calls of one cluster. `looked_up` returns the instances that a claim or fleet already has."""

    client: Callable[[str], Any]
    cluster: str
    templates: Templates
    now: Callable[[], datetime]
    looked_up: Callable[[LaunchRequest], Sequence[Instance]]

    def launch(
        self, requests: Sequence[LaunchRequest], parallel: Parallel, *, repeated: bool = False
    ) -> list[LaunchOutcome]:
        """Return an outcome for each request, in order. Never raises for an error that EC2 returns.

        `repeated` is True if EC2 may already have answered an earlier call for the same requests.
        """
        calls: dict[str, list[LaunchRequest]] = {}
        for request in requests:
            calls.setdefault(request.call, []).append(request)
        batch = _Batch()
        answered = parallel(lambda alike: self._call(alike, batch, repeated=repeated), list(calls.values()))
        outcomes = {outcome.claim: outcome for answered_batch in answered for outcome in answered_batch}
        return [outcomes[request.claim] for request in requests]

    def _call(self, alike: Sequence[LaunchRequest], batch: _Batch, *, repeated: bool) -> list[LaunchOutcome]:
        """Make one call for requests that share it."""
        request = alike[0]
        if batch.throttled >= _ENOUGH_THROTTLED:
            reason = "not requested: EC2 throttled other calls of the same batch"
            return [Deferred(r.claim, "RequestLimitExceeded", reason, nothing_begun=True) for r in alike]
        if self.templates.refusal(request):
            return [refused for r in alike if (refused := self.templates.refusal(r))]
        try:
            answer = self.client("ec2").create_fleet(**fleet_request(request, self.cluster))
        except (ClientError, BotoCoreError) as error:
            code, message = error_code(error), error_message(error)
            if is_passing(error) and plain_code(code) not in NO_STOCK:  # which EC2 answers with status 500
                batch.throttled += code in THROTTLED
                thrown_out = code in THROTTLED or isinstance(error, SessionFailed)
                return [Deferred(r.claim, code, message, nothing_begun=thrown_out) for r in alike]
            if not isinstance(error, ClientError):
                raise
            failed = FleetError(plain_code(code), message)
            return [self._forgetting(r, call_failure(r, failed)) for r in alike]
        return self._outcomes(alike, answer, repeated=repeated)

    def _outcomes(
        self, alike: Sequence[LaunchRequest], answer: Mapping[str, Any], *, repeated: bool
    ) -> list[LaunchOutcome]:
        """Return the outcomes of requests that share a response."""
        first, errors = alike[0], fleet_errors(alike[0], answer)
        instances: Sequence[Instance] = fleet_instances(first, answer, self.templates.images, self.now())
        names_nothing = not instances and not errors
        if names_nothing or not all(instance.image_id for instance in instances):
            # A repeated response for a known client token may be empty, and the image of a template that another
            # process created is unknown. DescribeInstances has both.
            instances = self._described(first, instances)
        if names_nothing and not instances and repeated:
            message = "EC2 repeated its response without an instance or an error"
            return [Unfulfilled(request.claim, "UnfulfillableCapacity", message) for request in alike]
        return [self._outcome(request, instances, errors) for request in alike]

    def _outcome(
        self, request: LaunchRequest, instances: Sequence[Instance], errors: list[FleetError]
    ) -> LaunchOutcome:
        instance = matched(request.share, instances) if request.share else next(iter(instances), None)
        if instance is None:
            return self._forgetting(request, unfulfilled(request, errors, len(instances)))
        return Launched(request.claim, instance, shortfalls(errors), subnet_shortfalls(errors))

    def _described(self, request: LaunchRequest, of_fleet: Sequence[Instance]) -> Sequence[Instance]:
        """Return the instances in a response, with the details that EC2 already shows.

        If the response names none, return the instances that EC2 shows. A shared fleet's are returned only if all of
        them are shown.
        """
        try:
            described = self.looked_up(request)
        except Transient:
            return of_fleet
        by_id = {instance.id: instance for instance in described}
        if of_fleet:
            return [replace(by_id[i.id], claim=i.claim) if i.id in by_id else i for i in of_fleet]
        return described if not request.share or len(described) == request.share.size else ()

    def _forgetting(self, request: LaunchRequest, outcome: LaunchOutcome) -> LaunchOutcome:
        """Return the outcome. If EC2 does not know a launch template, first forget the request's templates."""
        if isinstance(outcome, TemplateMissing):
            self.templates.forget(request)
        return outcome


_MARKETS = {
    "default": ON_DEMAND,
    "capacity-block": "capacity-block",
    "interruptible": "reserved-capacity",
}
"""DefaultTargetCapacityType by type of reservation"""


def fleet_request(request: LaunchRequest, cluster: str) -> dict[str, Any]:
    """Return CreateFleet's arguments. The same claim or fleet always has the same client token."""
    configs: dict[str, list[dict[str, Any]]] = {}
    for override, priority in zip(request.overrides, _priorities(request), strict=True):
        configs.setdefault(override.template, []).append(
            {
                "InstanceType": override.instance_type,
                "SubnetId": override.subnet_id,
                "AvailabilityZone": override.zone,
                **priority,
            }
        )
    return {
        "Type": "instant",
        "ClientToken": client_token(cluster, request.call),
        **({"Context": request.context} if request.context else {}),
        "LaunchTemplateConfigs": [
            {
                # A template's name is the hash of its content, so use version 1 and no version that was added later.
                "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "1"},
                "Overrides": overrides,
            }
            for name, overrides in configs.items()
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.share.size if request.share else 1,
            "DefaultTargetCapacityType": _MARKETS.get(request.reservations, request.capacity_type),
        },
        **_strategy(request),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(_tags(request))}
            for kind in ("fleet", "instance", "volume", "network-interface")
        ],
    }


def _tags(request: LaunchRequest) -> dict[str, str]:
    """Return the tags of all resources that the call creates. Calls that claims share omit a claim's own tags."""
    if request.share is None:
        return dict(request.tags)
    own_tags = claim_tags(request.claim, request.tags)
    common = {key: value for key, value in request.tags.items() if key not in own_tags}
    return {**common, FLEET_TAG: request.share.fleet}


def _priorities(request: LaunchRequest) -> list[dict[str, float]]:
    """Return each override's priority if NodeOverlays set prices: 0 for the cheapest by these; equal ones share one.

    Where these prices are the same, those of AWS decide.
    """
    if not request.is_overlaid:
        return [{} for _ in request.overrides]
    prices = [(override.price_hourly_usd, override.paid_hourly_usd) for override in request.overrides]
    ranks = {price: float(rank) for rank, price in enumerate(sorted(set(prices)))}
    return [{"Priority": ranks[price]} for price in prices]


def _strategy(request: LaunchRequest) -> dict[str, Any]:
    """Return the options that select among overrides. As in Karpenter, a capacity block has no strategy.

    EC2 does not know the prices of NodeOverlays, so it follows the priorities of overrides.
    """
    if request.capacity_type == SPOT:
        spot = "capacity-optimized-prioritized" if request.is_overlaid else "price-capacity-optimized"
        return {"SpotOptions": {"AllocationStrategy": spot}}
    match request.reservations:
        case "interruptible":
            kinds = ["interruptible-capacity-reservation"]
            return {"ReservedCapacityOptions": {"ReservationTypes": kinds}}
        case "capacity-block":
            return {}
        case _:
            strategy = "prioritized" if request.is_overlaid else "lowest-price"
            return {"OnDemandOptions": {"AllocationStrategy": strategy}}


def client_token(cluster: str, call: str) -> str:
    """Return the idempotency token of a call, unique to the cluster: 64 ASCII characters, EC2's limit."""
    return hashlib.sha256(f"{cluster}/{call}".encode()).hexdigest()


_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_TRUSTED = timedelta(minutes=30)
"""How long a template is assumed to exist. Garbage collection keeps unused templates for longer."""


class Templates:
    """Creates launch templates and remembers their images, and EC2's reason for those that it rejected."""

    def __init__(self, client: Callable[[str], Any], now: Callable[[], datetime]) -> None:
        self.images: dict[str, str] = {}
        """image id by name of each template that was created or found to exist"""
        self._client = client
        self._now = now
        self._made_at: dict[str, datetime] = {}
        self._refused: dict[str, tuple[str, str]] = {}

    def is_known(self, name: str) -> bool:
        """Return whether a template was recently created or found to exist."""
        return name in self.images and self._now() - self._made_at[name] < _TRUSTED

    def create(self, template: LaunchTemplate) -> Transient | None:
        """Create a template. Return the Transient to raise if it must be retried, else None.

        A template of the same name has the same content, so an existing one counts as created.
        """
        tags = [{"ResourceType": "launch-template", "Tags": tag_list(template.tags)}]
        try:
            self._client("ec2").create_launch_template(
                LaunchTemplateName=template.name, LaunchTemplateData=template.data, TagSpecifications=tags
            )
        except (ClientError, BotoCoreError) as error:
            code, message = error_code(error), error_message(error)
            if is_passing(error):
                return Transient(f"ec2:CreateLaunchTemplate {template.name}: {code}: {message}", code)
            if not isinstance(error, ClientError):
                raise
            if code != _EXISTS:
                self._refused[template.name] = refusal_reason(code, message), f"{code}: {message}"
                return None
        self._refused.pop(template.name, None)
        self.images[template.name] = str(template.data.get("ImageId", ""))
        self._made_at[template.name] = self._now()
        return None

    def refusal(self, request: LaunchRequest) -> Refused | None:
        """Return the outcome of a request that names a template that EC2 rejected, or None if it names none."""
        refused = (self._refused.get(override.template) for override in request.overrides)
        reason = next((refusal for refusal in refused if refusal), None)
        return Refused(request.claim, *reason) if reason else None

    def forget(self, request: LaunchRequest) -> None:
        """Forget a request's templates, because EC2 does not know one of them."""
        for override in request.overrides:
            self.images.pop(override.template, None)
