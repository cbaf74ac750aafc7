"""CreateFleet, type instant: interpretation of EC2's responses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodesmith.adapters.aws.calls import DENIED, THROTTLED, UNWELL, plain_code
from nodesmith.model.ec2.launches import (
    NO_SPOT_ROLE,
    VCPU_QUOTAS,
    Instance,
    LaunchOutcome,
    LaunchRequest,
    NoCapacity,
    OfferingKey,
    Override,
    Refused,
    Shortfall,
    SubnetShortfall,
    TemplateMissing,
    Unfulfilled,
)

NO_STOCK = frozenset(
    "InsufficientInstanceCapacity UnfulfillableCapacity Unsupported InsufficientHostCapacity "
    "InsufficientCapacityOnHost InsufficientReservedInstanceCapacity ReservationCapacityExceeded "
    # A reservation that was cancelled, or cannot be used yet or any longer. Other offers are not affected.
    "InvalidCapacityReservationId.NotFound InvalidCapacityReservationState.PendingActivation "
    "InvalidCapacityReservationState.Unavailable".split()
)
_SUBNET = frozenset({"InsufficientFreeAddressesInSubnet", "InvalidSubnetID.NotFound"})
_SUBNET_ID = re.compile(r"\bsubnet-[0-9a-z]+\b")
_DENIED_RESOURCE = re.compile(r"\bon resource: (arn:\S+)")
_QUOTA = VCPU_QUOTAS | {"MaxFleetCountExceeded", "InstanceLimitExceeded", NO_SPOT_ROLE}
_NO_TEMPLATE = frozenset({"InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"})
_REASONS = (
    # (code prefix, part of the message, Karpenter's reason); the first match counts, "" matches anything
    ("", "Invalid IAM Instance Profile", "InstanceProfileNameInvalid"),
    ("InvalidUserData", "", "UserDataSizeLimitExceeded"),
    ("", "User data is limited", "UserDataSizeLimitExceeded"),
    ("InvalidAMIID.Malformed", "", "InvalidAMIID"),
    ("InvalidAMIID", "", "AMINotFound"),
    ("AuthFailure", "image", "AMIAuthorizationFailure"),
    ("", "belong to different networks", "SecurityGroupSubnetVPCMismatch"),
    ("", "Free Tier", "FreeTierIneligible"),
    ("PendingVerification", "", "AccountPendingVerification"),
)


@dataclass(frozen=True, slots=True)
class FleetError:
    """One error of a CreateFleet call. If it names no pool or subnet, `pool` is None or `subnet` is empty."""

    code: str
    message: str
    pool: OfferingKey | None = None
    subnet: str = ""


def fleet_instances(
    request: LaunchRequest, answer: Mapping[str, Any], images: Mapping[str, str], now: datetime
) -> list[Instance]:
    """Return the instances in a response.

    `images` holds image ids by template name. The image id is empty for templates that it lacks. Instances of a shared
    fleet have no claim yet.
    """
    instances: list[Instance] = []
    for fleet in answer.get("Instances") or ():
        override = _override_of(request, fleet, str(fleet.get("InstanceType", "")))
        instances += [
            Instance(
                id=str(instance_id),
                claim="" if request.share else request.claim,
                instance_type=override.instance_type,
                zone=override.zone,
                capacity_type=request.capacity_type,
                image_id=images.get(override.template, ""),
                state="pending",
                launched_at=now,
                subnet_id=override.subnet_id,
                fleet=request.share.fleet if request.share else "",
            )
            for instance_id in fleet.get("InstanceIds") or ()
        ]
    return instances


def fleet_errors(request: LaunchRequest, answer: Mapping[str, Any]) -> list[FleetError]:
    """Return the errors in a response, each with the pool and subnet that it names."""
    errors = [
        FleetError(
            plain_code(str(e.get("ErrorCode", ""))), str(e.get("ErrorMessage", "")), *_about(request, e)
        )
        for e in answer.get("Errors") or ()
    ]
    return [expanded for error in errors for expanded in _of_the_zone(request, error)]


def _of_the_zone(request: LaunchRequest, error: FleetError) -> list[FleetError]:
    """Return an error for every pool that it holds for: a full spread placement group takes no type in its zone."""
    is_full = request.group and error.code in NO_STOCK and "spread" in error.message.lower()
    if error.pool is None or not is_full:
        return [error]
    zone = error.pool.zone
    return [replace(error, pool=pool) for pool in dict.fromkeys(request.offerings()) if pool.zone == zone]


def shortfalls(errors: Iterable[FleetError]) -> tuple[Shortfall, ...]:
    """Return the pools that are short according to the errors, deduplicated and sorted.

    Errors that pass and errors about templates or subnets are ignored.
    """
    handled = _NO_TEMPLATE | _SUBNET
    short = {e.pool: e.code for e in errors if e.pool and not _is_passing(e) and e.code not in handled}
    return tuple(Shortfall(pool, short[pool]) for pool in sorted(short))


def subnet_shortfalls(errors: Iterable[FleetError]) -> tuple[SubnetShortfall, ...]:
    """Return the subnets that have no free address or no longer exist, deduplicated and sorted."""
    short = {e.subnet: e.code for e in errors if e.subnet and e.code in _SUBNET}
    return tuple(SubnetShortfall(subnet, short[subnet]) for subnet in sorted(short))


def call_failure(request: LaunchRequest, error: FleetError) -> LaunchOutcome:
    """Return the outcome of a call that failed as a whole, except for transient errors."""
    if error.code in _NO_TEMPLATE:
        return TemplateMissing(request.claim)
    if error.code in _SUBNET:
        subnets = _SUBNET_ID.findall(error.message) or [o.subnet_id for o in request.overrides]
        full = tuple(SubnetShortfall(subnet, error.code) for subnet in sorted(set(subnets)))
        return NoCapacity(request.claim, (), subnets=full)
    if error.code in NO_STOCK | _QUOTA:
        return _no_capacity(request, [], error.code, quota=error.code in _QUOTA)
    return _refused(request, error)


def unfulfilled(request: LaunchRequest, errors: list[FleetError], launched: int = 0) -> LaunchOutcome:
    """Return the outcome for a claim that a response has no instance for.

    `launched` is the number of instances for other claims. A response without instances and without errors means that
    no pool has capacity. EC2 repeats its response for the same client token, so no outcome retries the call.
    """
    if any(error.code in _NO_TEMPLATE for error in errors):
        return TemplateMissing(request.claim, is_answered=True)
    if errors and not launched and all(_is_refusal(error) for error in errors):
        denied = {error.pool for error in errors if error.code in DENIED and _is_of_type(error)}
        is_each_denied = denied == set(request.offerings())
        return replace(_refused(request, errors[0]), denied=shortfalls(errors) if is_each_denied else ())
    quota = next((error.code for error in errors if error.code in _QUOTA), "")
    short, full = shortfalls(errors), subnet_shortfalls(errors)
    passing = next((error for error in errors if _is_passing(error)), None)
    if passing and not short and not full and not quota:
        return Unfulfilled(request.claim, passing.code, passing.message)
    if launched and not short and not full and not quota:
        message = f"EC2 launched {launched} instances, too few, and named no pool that was short"
        return Unfulfilled(request.claim, "UnfulfillableCapacity", message)
    if quota or not (short or full):
        code = quota or next((e.code for e in errors if e.code in NO_STOCK), "UnfulfillableCapacity")
        return _no_capacity(request, short, code, quota=bool(quota))
    return NoCapacity(request.claim, short, subnets=full)


def _no_capacity(
    request: LaunchRequest, short: Iterable[Shortfall], code: str, *, quota: bool = False
) -> NoCapacity:
    """Return NoCapacity for all pools of the request, each with its code in `short`, or else with `code`."""
    codes = {**dict.fromkeys(request.offerings(), code), **{s.offering: s.code for s in short}}
    return NoCapacity(request.claim, tuple(Shortfall(p, codes[p]) for p in sorted(codes)), quota=quota)


def _refused(request: LaunchRequest, error: FleetError) -> Refused:
    reason = refusal_reason(error.code, error.message)
    return Refused(request.claim, reason, f"{error.code}: {error.message}")


def _is_passing(error: FleetError) -> bool:
    return error.code in THROTTLED | UNWELL


def _is_of_type(error: FleetError) -> bool:
    """Return whether a denial may concern the instance type: not if it names another resource than the instance."""
    resource = _DENIED_RESOURCE.search(error.message)
    return resource is None or ":instance/" in resource[1]


def _is_refusal(error: FleetError) -> bool:
    return not _is_passing(error) and error.code not in NO_STOCK | _QUOTA | _NO_TEMPLATE | _SUBNET


def refusal_reason(code: str, message: str) -> str:
    """Return Karpenter's CreateError reason for an EC2 error."""
    if code in DENIED:
        return "Unauthorized"
    for prefix, part, reason in _REASONS:
        if code.startswith(prefix) and part.lower() in message.lower():
            return reason
    return "LaunchFailed"


def _override_of(request: LaunchRequest, part: Mapping[str, Any], instance_type: str) -> Override:
    override = (part.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
    kind = instance_type or override.get("InstanceType")
    subnet = override.get("SubnetId") or part.get("SubnetId")
    zone = override.get("AvailabilityZone") or part.get("AvailabilityZone")
    fitting = (
        o for o in request.overrides if o.instance_type == kind and (o.subnet_id == subnet or o.zone == zone)
    )
    return next(fitting, None) or Override("", str(kind or ""), str(zone or ""), str(subnet or ""), 0.0)


def _about(request: LaunchRequest, error: Mapping[str, Any]) -> tuple[OfferingKey | None, str]:
    """Return the pool and the subnet that an error names. The pool may be None, the subnet empty."""
    override = _override_of(request, error, "")
    if not override.instance_type or not override.zone:
        return None, override.subnet_id
    return request.pool(override), override.subnet_id
