"""Pending claims that an earlier run left behind: find their instance, ask EC2 again, or give them up.

A run touches a claim only when no other run can still be working on it (`LEASE` is longer than a function may run), and
only after it has marked the claim, so that only one of two concurrent runs continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from nodesmith.decisions.launch import launch_plan, matched
from nodesmith.errors import Conflict, Rejected
from nodesmith.launcheffects import (
    Allowance,
    Settled,
    TypeLookup,
    adopt,
    launch,
    start,
)
from nodesmith.model.ec2.launches import Instance, LaunchRequest, LaunchTemplate, fleet_of, share_of
from nodesmith.model.karpenter.nodeclaims import (
    ATTEMPTED_AT,
    LAUNCH_TIMEOUT,
    TEMPORARILY_UNAVAILABLE,
    NodeClaim,
    Phase,
)
from nodesmith.model.karpenter.nodepools import DEFAULTS, NodePool
from nodesmith.model.kubernetes.provisioningrequests import ROLLED_BACK, is_called_off
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.ports import Cloud, Store

LEASE = timedelta(seconds=75)
_LEASED = frozenset({Phase.PENDING, Phase.STARTING})


def carry_on(
    ledger: Ledger,
    nodepools: Mapping[str, NodePool],
    nodeclasses: Mapping[str, EC2NodeClass],
    types: TypeLookup,
    store: Store,
    cloud: Cloud,
    clock: Callable[[], datetime],
    allowance: Allowance,
) -> Settled:
    """Settle the pending claims whose lease has run out, with at most as many calls as `allowance` permits.

    Claims that another run has marked are left to that run. A claim is given up if it has no instance within its
    NodePool's launch time-out, or if its gang is rolled back. The same is true if its request, which cannot change,
    includes a zone that the cluster is shifted away from. The next decision covers its pods. While calls are short, the
    same is true of a claim whose call EC2 has throttled: one call for its pods and those that have come since does for
    both.
    """
    now = clock()
    pending = [c for c in ledger.claims if c.phase is Phase.PENDING and _is_free(c, now)]
    throttled = _throttled(ledger, pending) if allowance.is_short else set()
    free = [claim for claim in pending if claim.name not in throttled]
    chosen = first_calls(free, allowance.of(len(set(map(call_of, free)))))
    chosen += [claim for claim in pending if claim.name in throttled]
    instances_by_claim = _living_instances(
        chosen, cloud
    )  # before they are marked, so that they are free as soon as EC2 answers again
    marked = [_marked(claim, store, now) for claim in chosen]
    mine = [claim for claim in marked if claim is not None]
    settled = Settled(is_cut=len(chosen) < len(pending))
    if not mine:
        return settled
    again: list[NodeClaim] = []
    for claim in mine:
        instance = instances_by_claim.get(claim.name)
        try:
            if instance is not None:
                adopted = adopt(claim, instance, types, ledger, store, now)
                (settled.launched if adopted else settled.given_up).append(claim.name)
            elif now - claim.created_at >= (timeout := _timeout(claim, nodepools)):
                message = f"no instance within {timeout.total_seconds() / 60:g} minutes"
                store.save(claim.given_up(LAUNCH_TIMEOUT, message, now))
                settled.given_up.append(claim.name)
            elif claim.name in throttled:
                store.save(claim.given_up(TEMPORARILY_UNAVAILABLE, "EC2 throttles calls", now))
                settled.given_up.append(claim.name)
            elif is_called_off(claim.name, ledger.gangs):
                store.save(claim.given_up(ROLLED_BACK, "its ProvisioningRequest is rolled back", now))
                settled.given_up.append(claim.name)
            elif message := _shifted(claim, ledger, now):
                store.save(claim.given_up(TEMPORARILY_UNAVAILABLE, message, now))
                settled.given_up.append(claim.name)
            else:
                again.append(claim)
        except Conflict:
            continue  # another run has settled it meanwhile
    templates = _templates(again, ledger, nodeclasses, types)
    repeated = launch(again, templates, ledger, types, store, cloud, clock, repeated=True)
    return Settled(
        settled.launched + repeated.launched,
        settled.given_up + repeated.given_up,
        repeated.deferred,
        repeated.postponed,
        refused=repeated.refused,
        is_cut=settled.is_cut,
    )


def resume_starts(
    ledger: Ledger,
    store: Store,
    cloud: Cloud,
    clock: Callable[[], datetime],
    allowance: Allowance,
) -> Settled:
    """Start the instances of claims that an earlier run left STARTING, once their lease has run out.

    EC2 leaves an instance that runs already as it is. A claim whose Node has joined is STARTING no longer.
    """
    now = clock()
    free = [c for c in ledger.claims if c.phase is Phase.STARTING and _is_free(c, now)]
    chosen = free[: allowance.of(len(free))]
    mine = [claim for claim in (_marked(c, store, now) for c in chosen) if claim is not None]
    settled = start(mine, ledger, store, cloud, clock)
    settled.is_cut = len(chosen) < len(free)
    return settled


def call_of(claim: NodeClaim) -> str:
    """Return the name of the CreateFleet call that serves a pending claim, like `LaunchRequest.call`."""
    fleet = fleet_of(claim.launch)
    return f"fleet/{fleet}" if fleet else claim.name


def first_calls(claims: Sequence[NodeClaim], calls: int) -> list[NodeClaim]:
    """Return the claims, in their order, that the first `calls` CreateFleet calls serve."""
    allowed = set(list(dict.fromkeys(map(call_of, claims)))[:calls])
    return [claim for claim in claims if call_of(claim) in allowed]


def _living_instances(claims: Sequence[NodeClaim], cloud: Cloud) -> dict[str, Instance]:
    """Return the living instances that EC2 has already launched for claims, by claim name.

    A fleet's instances are assigned only if EC2 shows all that were requested. From a partial list, a claim could get
    the instance of another claim.
    """
    shares = {claim.name: share_of(claim.launch) for claim in claims}
    fleets = {share.fleet for share in shares.values() if share}
    alone = [name for name, share in shares.items() if share is None]
    by_fleet = cloud.fleet_instances(fleets) if fleets else {}
    single = cloud.instances_of(alone) if alone else {}
    instances_by_claim: dict[str, Instance] = {}
    for name, share in shares.items():
        instances: Sequence[Instance] = single.get(name, ())
        if share:
            instances = by_fleet.get(share.fleet, ())
            instance = matched(share, instances) if len(instances) == share.size else None
            instances = [instance] if instance else []
        living = next((instance for instance in instances if instance.is_alive), None)
        if living is not None:
            instances_by_claim[name] = living
    return instances_by_claim


def _throttled(ledger: Ledger, claims: Iterable[NodeClaim]) -> set[str]:
    """Return the claims, bought for pods alone, whose call EC2 has refused without beginning anything."""
    others = {name for gang in ledger.gangs for name in gang.claims}
    others |= {name for move in ledger.moves for name in move.replacements}
    refused = (c for c in claims if c.nominated and c.launch.get(ATTEMPTED_AT) == "")
    return {claim.name for claim in refused if claim.name not in others}


def _timeout(claim: NodeClaim, nodepools: Mapping[str, NodePool]) -> timedelta:
    pool = nodepools.get(claim.nodepool)
    return (pool.options if pool else DEFAULTS).launch_timeout


def _shifted(claim: NodeClaim, ledger: Ledger, now: datetime) -> str:
    """Return which zone of a claim's request the cluster is shifted away from, as a sentence; empty for none."""
    away = ledger.shifted(now)
    if not away or not claim.launch.get("overrides"):
        return ""
    zones = {override.zone for override in LaunchRequest.from_item(claim.name, claim.launch).overrides}
    return next((str(away[zone]) for zone in sorted(zones & away.keys())), "")


def _is_free(claim: NodeClaim, now: datetime) -> bool:
    attempted = claim.launch.get(ATTEMPTED_AT)
    return not attempted or not isinstance(attempted, str) or now - datetime.fromisoformat(attempted) >= LEASE


def leased_until(claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return when the first lease on a pending or starting claim runs out, None if none is leased."""
    attempts = (claim.launch.get(ATTEMPTED_AT) for claim in claims if claim.phase in _LEASED)
    ends = [datetime.fromisoformat(text) + LEASE for text in attempts if text and isinstance(text, str)]
    return min((end for end in ends if end > now), default=None)


def _marked(claim: NodeClaim, store: Store, now: datetime) -> NodeClaim | None:
    try:
        return store.save(claim.leased(now))
    except Conflict:
        return None


def _templates(
    claims: Iterable[NodeClaim],
    ledger: Ledger,
    nodeclasses: Mapping[str, EC2NodeClass],
    types: TypeLookup,
) -> Sequence[LaunchTemplate]:
    """Rebuild the claims' launch templates, omitting those that the current EC2NodeClass would make different."""
    by_name: dict[str, LaunchTemplate] = {}
    for claim in claims:
        request = LaunchRequest.from_item(claim.name, claim.launch)
        names = {override.template for override in request.overrides}
        for template in _rebuilt(claim, request, ledger, nodeclasses, types):
            if template.name in names:
                by_name[template.name] = template
    return [by_name[name] for name in sorted(by_name)]


def _rebuilt(
    claim: NodeClaim,
    request: LaunchRequest,
    ledger: Ledger,
    nodeclasses: Mapping[str, EC2NodeClass],
    types: TypeLookup,
) -> Sequence[LaunchTemplate]:
    nodeclass, status = nodeclasses.get(claim.nodeclass.name), ledger.nodeclasses.get(claim.nodeclass.name)
    if nodeclass is None or status is None or ledger.cluster is None or not ledger.has_read(nodeclass):
        return ()
    kinds = [types(claim, o.instance_type) for o in request.overrides]
    options = [
        (kind, offering)
        for kind, override in zip(kinds, request.overrides, strict=True)
        if kind is not None
        for offering in kind.offerings
        if (offering.zone, offering.capacity_type) == (override.zone, request.capacity_type)
    ]
    try:
        return launch_plan(claim, options, nodeclass, status, ledger.cluster)[1] if options else ()
    except Rejected:
        return ()  # the EC2NodeClass as it is now allows nothing that the claim requested
