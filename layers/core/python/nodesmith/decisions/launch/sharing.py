"""Equal requests of one commit become one CreateFleet call, as in Karpenter's batcher.

EC2 answers such a call with a set of instances. Which claim gets which instance follows only from the sorted names of
the claims and the sorted ids of the instances, so every run assigns them in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from nodesmith.model.ec2.launches import FleetShare, Instance, LaunchRequest, Override
from nodesmith.model.karpenter.ownership import claim_tags


def shared(requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    """Return the requests in their order, equal ones with their share of a fleet.

    A request without an equal one keeps a call of its own, and so does each request for a capacity block, whose offer
    is for one purchase.
    """
    alike: dict[object, list[str]] = {}
    # Hashing overrides is slow, and nodes that are planned alike share the same tuple, so each tuple is hashed once.
    known: dict[tuple[Override, ...], int] = {}
    numbers: dict[int, int] = {}
    for request in requests:
        rows = request.overrides
        if id(rows) not in numbers:
            numbers[id(rows)] = known.setdefault(rows, len(known))
        alike.setdefault((numbers[id(rows)], _kind(request)), []).append(request.claim)
    shares = {claim: share for claims in alike.values() for claim, share in _shares(sorted(claims))}
    return [replace(request, share=shares.get(request.claim)) for request in requests]


def dealt(share: FleetShare, instances: Sequence[Instance]) -> Instance | None:
    """Return the claim's instance among those that the fleet launched, None if there are too few.

    `instances` must be the complete result of the call: from a part, claims could get each other's instances.
    """
    ordered = sorted(instances, key=lambda instance: instance.id)
    return ordered[share.index] if share.index < len(ordered) else None


def _kind(request: LaunchRequest) -> object:
    if request.reservations == "capacity-block":
        return request.claim
    own = claim_tags(request.claim, request.tags)
    common = tuple(sorted((key, value) for key, value in request.tags.items() if key not in own))
    return request.capacity_type, common, request.reservations, tuple(own), request.context


def _shares(claims: Sequence[str]) -> list[tuple[str, FleetShare]]:
    if len(claims) < 2:
        return []
    fleet = hashlib.sha256("\n".join(claims).encode()).hexdigest()[:20]
    return [(claim, FleetShare(fleet, index, len(claims))) for index, claim in enumerate(claims)]
