"""Checks of CreateFleet: sizes, and parameters that depend on the type of fleet and of capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.refusals import Refusal, require

Parameters = Mapping[str, Any]
_ONLY_INSTANT = {
    "SpotOptions": ("SingleInstanceType", "SingleAvailabilityZone", "MinTargetCapacity"),
    "OnDemandOptions": (
        "SingleInstanceType",
        "SingleAvailabilityZone",
        "MinTargetCapacity",
        "CapacityReservationOptions",
    ),
}
_ONLY_MAINTAIN = ("ExcessCapacityTerminationPolicy", "ReplaceUnhealthyInstances")
_TAGGED = {
    "instant": frozenset({"fleet", "instance", "volume", "network-interface"}),
    "request": frozenset({"fleet"}),
    "maintain": frozenset({"fleet"}),
}


def check_fleet(asked: Parameters) -> None:
    """Raise Refusal for a CreateFleet request that EC2 does not accept."""
    kind = str(asked.get("Type") or "maintain")
    configs = asked.get("LaunchTemplateConfigs") or ()
    check_token(limits.CLIENT_TOKEN, asked)
    if kind != "instant":
        overrides = sum(len(config.get("Overrides") or ()) for config in configs)
        require(limits.FLEET_OVERRIDES, overrides, "Overrides across all launch templates")
    for config in configs:
        _check_named(config.get("LaunchTemplateSpecification") or {})
    _check_target(asked)
    _check_options(kind, asked)
    for specification in asked.get("TagSpecifications") or ():
        tagged = specification.get("ResourceType")
        if tagged not in _TAGGED[kind]:
            raise Refusal(
                "InvalidParameterValue", f"'{tagged}' is not a valid taggable resource type of {kind} fleets."
            )


def check_token(limit: limits.Limit, asked: Parameters) -> None:
    """Raise Refusal for a client token that is too long or not ASCII."""
    token = str(asked.get("ClientToken") or "")
    require(limit, len(token), "ClientToken")
    if not token.isascii():
        raise Refusal(limit.code, "ClientToken must be ASCII.")


def _check_named(template: Parameters) -> None:
    if ("LaunchTemplateId" in template) == ("LaunchTemplateName" in template):
        raise Refusal(
            "InvalidParameterCombination", "Name a launch template either by its id or by its name."
        )
    if not template.get("Version"):
        raise Refusal("MissingParameter", "You must specify a launch template version.")


def _check_target(asked: Parameters) -> None:
    target = asked["TargetCapacitySpecification"]
    require(limits.FLEET_TARGET, int(target["TotalTargetCapacity"]), "TotalTargetCapacity")
    parts = [target[part] for part in ("OnDemandTargetCapacity", "SpotTargetCapacity") if target.get(part)]
    if sum(map(int, parts)) > int(target["TotalTargetCapacity"]):
        raise Refusal("InvalidParameterValue", "The parts of the target capacity exceed TotalTargetCapacity.")


def _check_options(kind: str, asked: Parameters) -> None:
    market = asked["TargetCapacitySpecification"].get("DefaultTargetCapacityType")
    reserved = asked.get("ReservedCapacityOptions")
    if market == "capacity-block" and (asked.get("OnDemandOptions") or asked.get("SpotOptions")):
        raise _combination("OnDemandOptions and SpotOptions", "DefaultTargetCapacityType capacity-block")
    if reserved and (market != "reserved-capacity" or kind != "instant"):
        raise _combination(
            "ReservedCapacityOptions", "anything but reserved-capacity in fleets of type instant"
        )
    if kind == "instant" and (asked.get("SpotOptions") or {}).get("MaintenanceStrategies"):
        raise _combination("MaintenanceStrategies", "Type instant")
    if kind == "instant" and (asked.get("ValidFrom") or asked.get("ValidUntil")):
        raise _combination("ValidFrom and ValidUntil", "Type instant")
    if kind != "maintain" and any(asked.get(name) for name in _ONLY_MAINTAIN):
        raise _combination(" and ".join(_ONLY_MAINTAIN), f"Type {kind}")
    if kind != "instant":
        for options, names in _ONLY_INSTANT.items():
            if any((asked.get(options) or {}).get(name) for name in names):
                raise _combination(f"{', '.join(names)} of {options}", f"Type {kind}")


def _combination(what: str, other: str) -> Refusal:
    return Refusal("InvalidParameterCombination", f"{what} cannot be used with {other}.")
