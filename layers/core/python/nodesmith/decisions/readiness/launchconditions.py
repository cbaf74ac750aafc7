"""What the objects of NodePools and EC2NodeClasses show: conditions and Events about launches, and hashes.

An EC2NodeClass is at fault if launches fail again and again for a reason that lies in it. Events and statuses say what
would help. `to_resolve` returns the EC2NodeClasses that are due to be resolved again.

Drift compares only hashes of one version. When the hashing rules change, claims get the hashes that their objects have
under the new rules, since nothing about their nodes has changed. A claim that had drifted before keeps its old hashes,
and therefore its drift, because it is unknown whether it would still be drifted (Karpenter's rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from nodesmith.decisions.scheduling.offerings.options import Usage
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ZONE, ZONE_ID
from nodesmith.model.apimachinery.problems import ObjectEvent, shortened
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.times import first
from nodesmith.model.ec2.zonalshifts import SHIFTED, ZonalShift
from nodesmith.model.hashes import (
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
    hash_in_cluster,
    stated_hash,
)
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.breakers import RESET_HINT
from nodesmith.model.ledger.learned import RegistrationHealth
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.limits.quotas import SPENDING_LIMIT, amount_in_words, used_in_words
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import NO_PAST, ClusterInfo, NodeClassStatus, StatusCondition

LAUNCHES = "LaunchHealthy"
"""The condition of EC2NodeClasses whose launches have failed. It does not affect Ready: launches are still tried."""
MANY = 3
"""How many failures are more than bad luck."""
_ENA = "elastic network adapter"
_REMEDIES = {
    "InstanceProfileNameInvalid": "check that spec.role or spec.instanceProfile exists and is named correctly",
    "UserDataSizeLimitExceeded": "shorten spec.userData: EC2 accepts 16 KiB",
    "InvalidAMIID": "correct spec.amiSelectorTerms",
    "AMINotFound": "correct spec.amiSelectorTerms: an image that they select does not exist any more",
    "AMIAuthorizationFailure": "share the image of spec.amiSelectorTerms with this account",
    "SecurityGroupSubnetVPCMismatch": "select subnets and security groups of the same VPC",
    "Unauthorized": "let nodesmith pass spec.role, and use what the EC2NodeClass selects",
}
"""What to do, by Karpenter's reasons for refused launches that lie in the EC2NodeClass."""


def launch_fault(
    nodeclass: str, pools: Iterable[NodePool], health: Mapping[str, RegistrationHealth]
) -> StatusCondition | None:
    """Return a condition that names the fault of an EC2NodeClass, None unless its launches have failed often.

    `health` is the current registration health of NodePools by name. The latest launches of all NodePools that use the
    EC2NodeClass count.
    """
    failing = [
        pool_health
        for pool in sorted(pools, key=lambda pool: pool.name)
        if pool.nodeclass.name == nodeclass
        and (pool_health := health.get(pool.name)) is not None
        and pool_health.failures
        and remedy(pool_health.reason, pool_health.message)
    ]
    failures = sum(pool_health.failures for pool_health in failing)
    if failures < MANY:
        return None
    last = failing[-1]
    message = f"{failures} of its latest launches failed, the last with {last.message}: "
    return StatusCondition(
        LAUNCHES, "False", last.reason, shortened(message + remedy(last.reason, last.message))
    )


def remedy(reason: str, message: str) -> str:
    """Return what to change in the EC2NodeClass after a refused launch; empty if the reason does not lie in it."""
    if _ENA in message.lower():
        return (
            "select an image in spec.amiSelectorTerms that is registered with ENA support (EnaSupport), or keep the "
            "NodePools to instance types without it"
        )
    if reason == "LaunchFailed" and message.startswith("Invalid"):
        return "correct the field of the EC2NodeClass that EC2 names"
    return _REMEDIES.get(reason, "")


def shown(fault: StatusCondition | None, manifest: Mapping[str, Any]) -> list[StatusCondition]:
    """Return the condition to show: the fault, or that it is over; nothing if there never was one."""
    if fault is not None:
        return [fault]
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    was_shown = any(condition.get("type") == LAUNCHES for condition in conditions)
    return [StatusCondition(LAUNCHES, "True", LAUNCHES)] if was_shown else []


def reaches(pool: NodePool, status: NodeClassStatus | None, shift: ZonalShift) -> bool:
    """Return whether nodes of the NodePool could be launched in the zone: it allows it, and there is a subnet."""
    if status is None or not any(subnet.zone == shift.zone for subnet in status.subnets):
        return False
    pairs = ((ZONE, shift.zone), (ZONE_ID, shift.zone_id))
    return all(
        pool.requirements[key].allows(value) for key, value in pairs if value and key in pool.requirements
    )


def announcements(
    shifts: Sequence[ZonalShift], pools: Iterable[NodePool], statuses: Mapping[str, NodeClassStatus]
) -> list[ObjectEvent]:
    """Return the Events, with Karpenter's reasons, about the changes that have not been announced."""
    new = [shift for shift in shifts if not shift.announced]
    return [
        _event(pool, shift)
        for pool in sorted(pools, key=lambda pool: pool.name)
        for shift in new
        if pool.uid and reaches(pool, statuses.get(pool.nodeclass.name), shift)
    ]


def _event(pool: NodePool, shift: ZonalShift) -> ObjectEvent:
    if shift.ended:
        zone_text = f"zone {shift.zone} ({shift.zone_id})"
        message = f"the {shift.kind} away from {zone_text} has ended: nodes may be launched there"
        return ObjectEvent("NodePool", pool.name, "ZonalShiftCleared", message)
    message = f"no node is launched or voluntarily disrupted: {shift}"
    return ObjectEvent("NodePool", pool.name, "ZonalShiftActive", message, warning=True)


def shift_condition(
    pool: NodePool,
    status: NodeClassStatus | None,
    shifts: Iterable[ZonalShift],
    manifest: Mapping[str, Any],
    now: datetime,
) -> list[StatusCondition]:
    """Return whether a NodePool can reach a zone that is shifted away from; nothing if it never could.

    This does not affect Ready.
    """
    reached = [shift for shift in shifts if shift.holds(now) and reaches(pool, status, shift)]
    if reached:
        message = shortened("; ".join(map(str, reached)))
        return [StatusCondition(SHIFTED, "True", "ZonalShiftActive", message)]
    current = (manifest.get("status") or {}).get("conditions") or ()
    was_shown = any(condition.get("type") == SHIFTED for condition in current)
    return [StatusCondition(SHIFTED, "False", "ZonalShiftCleared")] if was_shown else []


def requirements_by_nodeclass(pools: Iterable[NodePool]) -> dict[str, list[Requirements]]:
    """Return the requirements of the NodePools that use an EC2NodeClass, ordered by NodePool, by its name."""
    by_name: dict[str, list[Requirements]] = {}
    for pool in sorted(pools, key=lambda pool: pool.name):
        by_name.setdefault(pool.nodeclass.name, []).append(pool.requirements)
    return by_name


NEAR_LIMIT = "NearLimit"
"""The condition of NodePools and CapacityQuotas of which at least 80 % is used. It does not affect Ready."""
_NEAR_PERCENT, _WHOLE_PERCENT = 80, 100
_EVENT_REASONS = {_NEAR_PERCENT: "LimitNearlyReached", _WHOLE_PERCENT: "LimitReached"}


def limit_condition(
    usages: Sequence[Usage], manifest: Mapping[str, Any], kind: str, owner: str
) -> list[StatusCondition]:
    """Return how near the limits of quotas are, as a condition of this type; nothing if they never were near.

    `owner` is the object's own name among quotas. The message names the others.
    """
    findings = [
        (percent, _use_in_words(usage, name, "" if usage.quota.owner == owner else f"{usage.quota.owner}: "))
        for usage in usages
        for name, percent in _percents(usage).items()
        if percent >= _NEAR_PERCENT
    ]
    closed = (
        usage.quota for usage in usages if usage.quota.fault and usage.quota.owner.startswith(SPENDING_LIMIT)
    )
    findings += [(_WHOLE_PERCENT, f"{quota.owner} allows nothing: {quota.fault}") for quota in closed]
    if not findings:
        current = (manifest.get("status") or {}).get("conditions") or ()
        was_shown = any(condition.get("type") == kind for condition in current)
        return [StatusCondition(kind, "False", "BelowLimit")] if was_shown else []
    reached = _WHOLE_PERCENT if max(findings)[0] >= _WHOLE_PERCENT else _NEAR_PERCENT
    message = shortened("; ".join(sentence for _, sentence in findings))
    return [StatusCondition(kind, "True", _EVENT_REASONS[reached], message)]


def _use_in_words(usage: Usage, name: str, prefix: str) -> str:
    used, limit = usage.used.of(name), usage.quota.limits[name]
    if not limit and not used:
        return f"{prefix}closed by a limit of {amount_in_words(name, limit)}"
    return f"{prefix}{used_in_words(name, used, limit)} used"


def _percents(usage: Usage) -> dict[str, int]:
    """Return how much of each limit is used, in percent rounded down; a limit of 0 is always reached."""
    if usage.quota.fault:
        return {}
    limits = sorted(usage.quota.limits.items())
    return {n: usage.used.of(n) * 100 // limit if limit else _WHOLE_PERCENT for n, limit in limits}


def limit_events(
    kind: str, name: str, manifest: Mapping[str, Any], conditions: Iterable[StatusCondition]
) -> list[ObjectEvent]:
    """Return the Events about limits that are nearly or wholly used, unless the object shows that already."""
    current = (manifest.get("status") or {}).get("conditions") or ()
    reasons = {str(condition.get("type")): condition.get("reason") for condition in current}
    return [
        ObjectEvent(kind, name, condition.reason, condition.message, warning=True)
        for condition in conditions
        if condition.status == "True" and reasons.get(condition.type) != condition.reason
    ]


BOUGHT_IN_VAIN = "NodesBoughtInVain"
"""The condition of NodePools whose breaker has tripped. It does not affect Ready."""


def breaker_condition(
    health: RegistrationHealth | None, manifest: Mapping[str, Any], now: datetime
) -> list[StatusCondition]:
    """Return whether nodes of a NodePool were bought in vain, and what waits for that; nothing if they never were."""
    tripped = [breaker for breaker in (health.launches, health.moves) if breaker.is_tripped] if health else []
    if tripped:
        message = shortened("; ".join((*(breaker.message(now) for breaker in tripped), RESET_HINT)))
        return [
            StatusCondition(BOUGHT_IN_VAIN, "True", str(tripped[0].main_failure or "NodesTried"), message)
        ]
    current = (manifest.get("status") or {}).get("conditions") or ()
    was_shown = any(condition.get("type") == BOUGHT_IN_VAIN for condition in current)
    return [StatusCondition(BOUGHT_IN_VAIN, "False", "NodesUsed")] if was_shown else []


def breaker_events(
    name: str, manifest: Mapping[str, Any], conditions: Iterable[StatusCondition]
) -> list[ObjectEvent]:
    """Return the Events about a breaker that trips, trips again or closes, unless the object shows that already."""
    current = (manifest.get("status") or {}).get("conditions") or ()
    previous: Mapping[str, Any] = next((c for c in current if c.get("type") == BOUGHT_IN_VAIN), {})
    for condition in conditions:
        if condition.status == "True" and previous.get("message") != condition.message:
            return [ObjectEvent("NodePool", name, BOUGHT_IN_VAIN, condition.message, warning=True)]
        if condition.status == "False" and previous.get("status") == "True":
            return [
                ObjectEvent("NodePool", name, "LaunchesResumed", "its breaker was reset, or nodes are used")
            ]
    return []


MOST_AT_ONCE = 200
"""The most claims that get new hashes in one run: each takes a write, and none is urgent."""


RESOLVE_AGAIN = timedelta(minutes=5)
RESOLVE_AGAIN_SOON = timedelta(minutes=1)
"""The interval if something is missing, or for what others may use, too: capacity reservations, placement groups."""


_MOST_PAST = 8


def with_past(
    status: NodeClassStatus, nodeclass: EC2NodeClass, cluster: ClusterInfo, ledger: Ledger
) -> NodeClassStatus:
    """Return a resolution with what is needed to name the fields by which its nodes differ from it.

    These are digests of its own fields and, as far as they are known, of those that living claims were launched from.
    """
    ca_bundle, before = cluster.ca_bundle, ledger.nodeclasses.get(status.name)
    known = before.past if before is not None else NO_PAST
    # A claim may have been bought from the last resolution since the ledger was read.
    last = hash_in_cluster(before.hash, ca_bundle) if before is not None else ""
    launched = {claim.nodeclass_hash for claim in ledger.claims if claim.nodeclass.name == status.name}
    kept = [hash_ for hash_ in sorted(known) if hash_ in launched or hash_ == last][:_MOST_PAST]
    own = {nodeclass.hash_in(ca_bundle): FrozenMap(nodeclass.digests_in(ca_bundle))}
    return replace(status, past=FrozenMap({**{hash_: known[hash_] for hash_ in kept}, **own}))


def to_resolve(nodeclasses: Iterable[EC2NodeClass], ledger: Ledger, now: datetime) -> list[EC2NodeClass]:
    """Return the EC2NodeClasses whose resolution is missing, based on other content, or old."""
    due: list[EC2NodeClass] = []
    for nodeclass in sorted(nodeclasses, key=lambda n: n.name):
        status = ledger.nodeclasses.get(nodeclass.name)
        if status is None or status.content != nodeclass.content:
            due.append(nodeclass)
            continue
        if now >= _resolve_again_at(nodeclass, status):
            due.append(nodeclass)
    return due


def next_resolution(
    nodeclasses: Iterable[EC2NodeClass], statuses: Mapping[str, NodeClassStatus]
) -> datetime | None:
    """Return when the first of the EC2NodeClasses must be resolved again, None if none has a status."""
    pairs = ((nodeclass, statuses.get(nodeclass.name)) for nodeclass in nodeclasses)
    return first(_resolve_again_at(nodeclass, status) for nodeclass, status in pairs if status is not None)


def _resolve_again_at(nodeclass: EC2NodeClass, status: NodeClassStatus) -> datetime:
    counted = status.placement_group is not None or nodeclass.capacity_reservation_selector_terms
    changes = not status.is_ready or bool(counted)
    return status.resolved_at + (RESOLVE_AGAIN_SOON if changes else RESOLVE_AGAIN)


class Statement(NamedTuple):
    """Annotations that an object lacks."""

    kind: str
    name: str
    annotations: Mapping[str, str]


def unstated(
    manifest: Mapping[str, Any], parsed: NodePool | EC2NodeClass | None, ca_bundle: str
) -> Statement | None:
    """Return the hash annotations that an object lacks, None if it has them or is invalid.

    `ca_bundle` is the cluster's, in base64.
    """
    match parsed:
        case NodePool():
            kind, expected = "NodePool", stated_hash(NODEPOOL_HASH, parsed.hash, NODEPOOL_HASH_VERSION)
        case EC2NodeClass():
            in_cluster = parsed.hash_in(ca_bundle)
            kind, expected = "EC2NodeClass", stated_hash(NODECLASS_HASH, in_cluster, NODECLASS_HASH_VERSION)
        case _:
            return None
    says = manifest["metadata"].get("annotations") or {}
    if all(says.get(name) == value for name, value in expected.items()):
        return None
    return Statement(kind, parsed.name, expected)


def rehashed(
    claims: Iterable[NodeClaim],
    pools: Mapping[str, NodePool],
    nodeclasses: Mapping[str, EC2NodeClass],
    ca_bundle: str,
) -> list[NodeClaim]:
    """Return the claims whose hashes have another version, with hashes of the current one, at most `MOST_AT_ONCE`.

    A hash whose NodePool or EC2NodeClass is missing or invalid stays as it is until that changes.
    """
    living = (claim for claim in claims if claim.phase in HOLDING)
    renewed = (
        (claim, _renewed(claim, pools.get(claim.nodepool), nodeclasses.get(claim.nodeclass.name), ca_bundle))
        for claim in living
    )
    return list(islice((after for before, after in renewed if after != before), MOST_AT_ONCE))


def _renewed(
    claim: NodeClaim, pool: NodePool | None, nodeclass: EC2NodeClass | None, ca_bundle: str
) -> NodeClaim:
    """Return a claim with hashes of the current version. A drifted claim keeps its old hashes, which then differ."""
    if pool and claim.nodepool_hash_version != NODEPOOL_HASH_VERSION:
        stated = claim.nodepool_hash if claim.drift else pool.hash
        claim = replace(claim, nodepool_hash=stated, nodepool_hash_version=NODEPOOL_HASH_VERSION)
    if nodeclass and claim.nodeclass_hash_version != NODECLASS_HASH_VERSION:
        stated = claim.nodeclass_hash if claim.drift else nodeclass.hash_in(ca_bundle)
        claim = replace(claim, nodeclass_hash=stated, nodeclass_hash_version=NODECLASS_HASH_VERSION)
    return claim
