"""ProvisioningRequest: room for groups of pods, all of it or none (`autoscaling.x-k8s.io`, v1 and v1beta1); and gangs.

The API is Cluster Autoscaler's, and so are the classes and the conditions. nodesmith serves the same two classes under
its own domain as well, so that requests can name which of two autoscalers they are for.

A gang is what is done for one request, as the ledger holds it until the request shows how it ended. It gets all of its
nodes or none. Its NodeClaims are committed together with it. It is provisioned only when every one of its nodes is
ready; until then everything that was bought for it can be given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.problems import did_you_mean, shown
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.times import parse_time

GROUP = "autoscaling.x-k8s.io"
KIND = "ProvisioningRequest"
CHECK_CAPACITY, ATOMIC_SCALE_UP = "check-capacity", "best-effort-atomic-scale-up"
OWN_DOMAIN = "nodesmith.dev"
SHARED_CLASSES = (f"{CHECK_CAPACITY}.{GROUP}", f"{ATOMIC_SCALE_UP}.{GROUP}")
OWN_CLASSES = (f"{CHECK_CAPACITY}.{OWN_DOMAIN}", f"{ATOMIC_SCALE_UP}.{OWN_DOMAIN}")
CLASSES = (*SHARED_CLASSES, *OWN_CLASSES)
MOST_POD_SETS, MOST_PODS_OF_SET = 32, 16_384
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
"""The annotation of pods that take the room of a request in their namespace."""
CONSUMED_EARLIER = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
"""Its older name."""
NO_RETRY, VALID_FOR = "noRetry", "ValidUntilSeconds"
"""Parameters: whether a request fails as soon as there is no room; for how long it is retried."""
LONGEST_VALID = 7 * 24 * 3600
"""Cluster Autoscaler's limit on how long a request is retried, in seconds."""
ACCEPTED, PROVISIONED, FAILED = "Accepted", "Provisioned", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
CONDITIONS = (ACCEPTED, PROVISIONED, FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED)


@dataclass(frozen=True, slots=True)
class PodSet:
    """A group of `count` pods like the PodTemplate of this name in the request's namespace."""

    template: str
    count: int


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """One request. `conditions` are the types of the conditions that it shows as true.

    `faults` say, each in a sentence with the field, what was found and what would be right, why it cannot be served.
    `is_deleted` is True once it has a deletionTimestamp.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime
    class_name: str
    pod_sets: tuple[PodSet, ...] = ()
    parameters: Mapping[str, str] = NO_ITEMS
    conditions: frozenset[str] = frozenset()
    shown: tuple[tuple[str, str, str, str], ...] = ()
    """Its conditions as type, status, reason and message."""
    generation: int = 0
    faults: tuple[str, ...] = ()
    is_deleted: bool = False
    lacking: int | None = None
    """For a group of pods (see `podgroups`), which exists in the snapshot only: how many of its pods lack a node."""

    @property
    def is_pod_group(self) -> bool:
        """Whether it stands for a group of pods, and is no object of the cluster."""
        return self.lacking is not None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_check(self) -> bool:
        """Whether it asks for room on nodes that are there, and nothing may be bought for it."""
        return self.class_name.startswith(f"{CHECK_CAPACITY}.")

    @property
    def is_over(self) -> bool:
        """Whether it shows a condition after which nothing more is done for it."""
        return not self.conditions.isdisjoint({FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED})

    @property
    def fails_at_once(self) -> bool:
        """Whether it fails when there is no room, rather than wait for room.

        A request that may buy waits only if it says for how long: otherwise Kueue retries with a new one, and the quota
        that its workload holds is free for others until then.
        """
        if self.is_check:
            return self.parameters.get(NO_RETRY, "").lower() == "true"
        return VALID_FOR not in self.parameters

    @property
    def valid_seconds(self) -> float:
        """How long after its creation it is retried."""
        stated = _seconds(self.parameters.get(VALID_FOR, ""))
        return LONGEST_VALID if stated is None else min(stated, LONGEST_VALID)

    def is_served(self, *, shared: bool) -> bool:
        """Return whether nodesmith serves its class. `shared` is whether it serves Cluster Autoscaler's names too."""
        return self.class_name in (CLASSES if shared else OWN_CLASSES)


def parse_request(manifest: Mapping[str, Any]) -> ProvisioningRequest:
    """Read a request from the snapshot. What cannot be served becomes `faults`.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    rows = tuple(
        (str(c["type"]), str(c["status"]), str(c.get("reason", "")), str(c.get("message", "")))
        for c in conditions
    )
    faults = tuple(request_faults(spec))
    return ProvisioningRequest(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        created_at=parse_time(metadata["creationTimestamp"]),
        class_name=str(spec.get("provisioningClassName", "")),
        pod_sets=() if faults else tuple(map(_pod_set, spec["podSets"])),
        parameters=FrozenMap({str(k): str(v) for k, v in (spec.get("parameters") or {}).items()}),
        conditions=frozenset(type_ for type_, status, *_ in rows if status == "True"),
        shown=rows,
        generation=int(metadata.get("generation") or 0),
        faults=faults,
        is_deleted="deletionTimestamp" in metadata,
    )


def _pod_set(raw: Mapping[str, Any]) -> PodSet:
    return PodSet(str(raw["podTemplateRef"]["name"]), int(raw["count"]))


def request_faults(spec: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is wrong with the spec of a request of a known class, each in a sentence."""
    pod_sets = spec.get("podSets")
    if not isinstance(pod_sets, list | tuple) or not pod_sets:
        yield f"spec.podSets is {shown(pod_sets)}: name at least one PodTemplate and a count"
        return
    if len(pod_sets) > MOST_POD_SETS:
        yield f"spec.podSets has {len(pod_sets)} items: at most {MOST_POD_SETS} are allowed, use several requests"
        return
    for number, pod_set in enumerate(pod_sets):
        yield from _faults_of_set(f"spec.podSets[{number}]", pod_set)
    parameters = spec.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        yield f"spec.parameters is {shown(parameters)}: write a map of names to texts"
        return
    valid = parameters.get(VALID_FOR)
    if valid is not None and _seconds(str(valid)) is None:
        yield f"spec.parameters.{VALID_FOR} is {shown(valid)}: write seconds, such as '600'"


def _faults_of_set(path: str, pod_set: object) -> Iterable[str]:
    raw: Mapping[str, Any] = pod_set if isinstance(pod_set, Mapping) else {}
    reference = raw.get("podTemplateRef")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    if not isinstance(name, str) or not name:
        yield f"{path}.podTemplateRef.name is {shown(name)}: write the name of a PodTemplate in the same namespace"
    count = raw.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_PODS_OF_SET:
        yield f"{path}.count is {shown(count)}: write a number from 1 to {MOST_PODS_OF_SET:,}"


def class_fault(class_name: str) -> str:
    """Return a sentence on a class that nodesmith does not serve; empty for one that it serves."""
    if class_name in CLASSES:
        return ""
    hint = did_you_mean(class_name, CLASSES) or f": nodesmith serves {', '.join(CLASSES)}"
    return f"spec.provisioningClassName is {shown(class_name)}{hint}"


def _seconds(text: str) -> float | None:
    """Read a number of seconds. Return None for text that is none, or negative."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def title(key: str) -> str:
    """Return a request's kind and name for messages: `ProvisioningRequest default/train`, `PodGroup default/train`."""
    namespace, _, name = key.partition("/")
    kind, slash, short_name = name.partition("/")
    return f"{kind} {namespace}/{short_name}" if slash else f"{KIND} {key}"


def consumed(annotations: Mapping[str, str], namespace: str) -> str:
    """Return the key (namespace/name) of the request whose room a pod takes; empty for none."""
    name = annotations.get(CONSUMES, "")
    return f"{namespace}/{name}" if name else ""


def with_consumption(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return a pod's annotations with the older annotation of consumption under its present name."""
    if CONSUMED_EARLIER not in annotations or annotations.get(CONSUMES):
        return annotations
    return {**annotations, CONSUMES: annotations[CONSUMED_EARLIER]}


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

    `reason` and `message` are those of the condition that shows the stage.
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

    def is_due(self, now: datetime) -> bool:
        """Whether a decision has something to do for it."""
        match self.stage:
            case GangStage.WAITING:
                return self.retry_at is None or self.retry_at <= now
            case GangStage.LAUNCHING:
                return True
            case GangStage.PROVISIONED:
                return self.keeps_room(now)
            case _:
                return False

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


def gang_item(gang: Gang) -> dict[str, Any]:
    """Write a gang as JSON data."""
    moments = {name: at.isoformat() for name in _TIMES if (at := getattr(gang, name)) is not None}
    return {
        "id": gang.id,
        "request": gang.request,
        "stage": gang.stage.value,
        "stage_since": gang.stage_since.isoformat(),
        "created_at": gang.created_at.isoformat(),
        "sets": [dict(sorted(requests.items())) for requests in gang.sets],
        "claims": list(gang.claims),
        "places": {name: list(gang.places[name]) for name in sorted(gang.places)},
        "purchases": gang.purchases,
        "failures": gang.failures,
        "reason": gang.reason,
        "message": gang.message,
        "revision": gang.revision,
        **moments,
    }


def read_gang(item: Mapping[str, Any]) -> Gang:
    """Read what `gang_item` wrote."""
    return Gang(
        id=item["id"],
        request=item["request"],
        stage=GangStage(item["stage"]),
        stage_since=datetime.fromisoformat(item["stage_since"]),
        created_at=datetime.fromisoformat(item["created_at"]),
        sets=tuple(
            Resources({name: int(amount) for name, amount in requests.items()}) for requests in item["sets"]
        ),
        claims=tuple(item["claims"]),
        places={name: tuple(map(int, counts)) for name, counts in item["places"].items()},
        purchases=int(item["purchases"]),
        failures=int(item["failures"]),
        reason=item["reason"],
        message=item["message"],
        revision=int(item["revision"]),
        **{name: datetime.fromisoformat(item[name]) for name in _TIMES if item.get(name)},
    )
