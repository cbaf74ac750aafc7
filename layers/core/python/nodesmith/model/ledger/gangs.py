"""Gang: what is done for one ProvisioningRequest, as the ledger holds it until the request shows how it ended.

A gang gets all of its nodes or none. Its NodeClaims are committed together with it. It is provisioned only when every
one of its nodes is ready; until then everything that was bought for it can be given back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.quantities import Resources

Places = Mapping[str, tuple[int, ...]]
"""NodeClaim, or Node without a NodeClaim, by name → pods that have room there, by pod set."""


class GangStage(StrEnum):
    """The stage of a gang, see `ONWARD`."""

    WAITING = "Waiting"
    """There is no room now, and it is tried again."""
    LAUNCHING = "Launching"
    """Room is reserved, and the nodes that are part of it are committed. They may be on their way."""
    PROVISIONED = "Provisioned"
    """Every node is ready. The room is kept for its pods until `booked_until`."""
    ROLLING_BACK = "RollingBack"
    """It does not get all of its room. What was bought for it ends."""
    FAILED = "Failed"
    EXPIRED = "Expired"
    """The room is no longer kept."""
    REVOKED = "Revoked"
    """Nodes were lost while the room was kept, and there are no others."""


ONWARD: Mapping[GangStage, frozenset[GangStage]] = {
    GangStage.WAITING: frozenset({GangStage.LAUNCHING, GangStage.FAILED}),
    GangStage.LAUNCHING: frozenset({GangStage.PROVISIONED, GangStage.ROLLING_BACK}),
    GangStage.ROLLING_BACK: frozenset({GangStage.WAITING, GangStage.FAILED}),
    GangStage.PROVISIONED: frozenset({GangStage.EXPIRED, GangStage.REVOKED}),
    GangStage.FAILED: frozenset(),
    GangStage.EXPIRED: frozenset(),
    GangStage.REVOKED: frozenset(),
}
"""Stage → the stages that may follow it. From the last three it is forgotten."""
_OVER = frozenset({GangStage.FAILED, GangStage.EXPIRED, GangStage.REVOKED})
_KEEPS = frozenset({GangStage.LAUNCHING, GangStage.PROVISIONED})


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang. `id` is the request's uid, `request` its namespace/name. `sets` is what a pod of each set requests.

    `reason` is the reason of the condition that tells the stage, and `message` its message.
    """

    id: str
    request: str
    stage: GangStage
    stage_since: datetime
    created_at: datetime
    sets: tuple[Resources, ...] = ()
    claims: tuple[str, ...] = ()
    """NodeClaims that were bought for it."""
    places: Places = field(default_factory=dict)
    purchases: int = 0
    """How many decisions have bought for it since it last waited."""
    bought_at: datetime | None = None
    """When the first of these was made."""
    failures: int = 0
    """How often it got no room."""
    retry_at: datetime | None = None
    booked_until: datetime | None = None
    reason: str = ""
    message: str = ""
    revision: int = 0
    """Number of writes to the ledger: the optimistic lock."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done for it."""
        return self.stage in _OVER

    @property
    def was_provisioned(self) -> bool:
        """Whether all of its room has been there."""
        return self.booked_until is not None

    def keeps_room(self, now: datetime) -> bool:
        """Return whether room is kept for its pods."""
        return self.stage in _KEEPS and (self.booked_until is None or now < self.booked_until)

    def at(self, stage: GangStage, now: datetime, **changes: Any) -> Gang:
        """Return the gang in its next stage. Raises ValueError if no step leads there."""
        if stage not in ONWARD[self.stage]:
            raise ValueError(f"gang of {self.request}: no step leads from {self.stage} to {stage}")
        return replace(self, stage=stage, stage_since=now, **changes)


ROLLED_BACK = "ProvisioningRequestRolledBack"
"""The cause of the end of claims that were bought for a gang which did not get all of its room."""


def is_called_off(claim: str, gangs: tuple[Gang, ...]) -> bool:
    """Return whether a NodeClaim was bought for a gang that is rolled back."""
    return any(gang.stage is GangStage.ROLLING_BACK and claim in gang.claims for gang in gangs)


_TIMES = ("bought_at", "retry_at", "booked_until")


def to_item(gang: Gang) -> dict[str, Any]:
    """Write a gang as JSON data."""
    moments = {name: at.isoformat() for name in _TIMES if (at := getattr(gang, name)) is not None}
    return {
        "id": gang.id,
        "request": gang.request,
        "stage": gang.stage.value,
        "stage_since": gang.stage_since.isoformat(),
        "created_at": gang.created_at.isoformat(),
        "sets": [dict(sorted(each.items())) for each in gang.sets],
        "claims": list(gang.claims),
        "places": {name: list(gang.places[name]) for name in sorted(gang.places)},
        "purchases": gang.purchases,
        "failures": gang.failures,
        "reason": gang.reason,
        "message": gang.message,
        "revision": gang.revision,
        **moments,
    }


def from_item(item: Mapping[str, Any]) -> Gang:
    """Read what `to_item` wrote."""
    return Gang(
        id=item["id"],
        request=item["request"],
        stage=GangStage(item["stage"]),
        stage_since=datetime.fromisoformat(item["stage_since"]),
        created_at=datetime.fromisoformat(item["created_at"]),
        sets=tuple(Resources({name: int(amount) for name, amount in each.items()}) for each in item["sets"]),
        claims=tuple(item["claims"]),
        places={name: tuple(map(int, counts)) for name, counts in item["places"].items()},
        purchases=int(item["purchases"]),
        failures=int(item["failures"]),
        reason=item["reason"],
        message=item["message"],
        revision=int(item["revision"]),
        **{name: datetime.fromisoformat(item[name]) for name in _TIMES if item.get(name)},
    )
