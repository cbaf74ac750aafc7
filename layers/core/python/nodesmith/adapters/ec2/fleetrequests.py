"""CreateFleet, type instant: arguments for one claim, or for several claims with equal requests."""

from __future__ import annotations

import hashlib
from typing import Any

from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.karpenter.ownership import FLEET_TAG, claim_tags, tag_list

_MARKETS = {
    "default": ON_DEMAND,
    "capacity-block": "capacity-block",
    "interruptible": "reserved-capacity",
}
"""DefaultTargetCapacityType by type of reservation"""


def fleet_request(request: LaunchRequest, cluster: str) -> dict[str, Any]:
    """Return CreateFleet's arguments. The same claim or fleet always has the same client token."""
    configs: dict[str, list[dict[str, str]]] = {}
    for override in request.overrides:
        configs.setdefault(override.template, []).append(
            {
                "InstanceType": override.instance_type,
                "SubnetId": override.subnet_id,
                "AvailabilityZone": override.zone,
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
    own = claim_tags(request.claim, request.tags)
    common = {key: value for key, value in request.tags.items() if key not in own}
    return {**common, FLEET_TAG: request.share.fleet}


def _strategy(request: LaunchRequest) -> dict[str, Any]:
    """Return the options that select among overrides. As in Karpenter, a capacity block has no strategy."""
    if request.capacity_type == SPOT:
        return {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}
    match request.reservations:
        case "interruptible":
            kinds = ["interruptible-capacity-reservation"]
            return {"ReservedCapacityOptions": {"ReservationTypes": kinds}}
        case "capacity-block":
            return {}
        case _:
            return {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}


def client_token(cluster: str, call: str) -> str:
    """Return the idempotency token of a call, unique to the cluster: 64 ASCII characters, EC2's limit."""
    return hashlib.sha256(f"{cluster}/{call}".encode()).hexdigest()
