"""Static NodePools have as many nodes as `spec.replicas` says: the missing ones are bought, surplus ones removed.

Karpenter leaves the zone to the provider; here each node goes where the NodePool has the fewest nodes, and among such
zones to reserved capacity, then to the cheapest. Surplus nodes go in Karpenter's order: claims without a Node, then
empty nodes, then nodes without do-not-disrupt, then by the number of pods that have to move; among equals the zone with
the most nodes comes first, and there the newest node outside of reserved capacity. A node with room that is kept for a
ProvisioningRequest counts as one with do-not-disrupt. Disruption budgets do not apply; the nodes are drained as usual.
Outside the windows of its schedule a NodePool has no nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from nodesmith.decisions.budgets import closed_obstacle, is_open
from nodesmith.decisions.provisioning.nodepools.tiers import (
    parsed_nodeclasses,
    pool_obstacle,
    template_of,
    why_on_trial,
)
from nodesmith.decisions.provisioning.plan import Inputs, PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import claim_name, planned_node
from nodesmith.decisions.provisioning.purchase.flexibility import affordable, for_no_pods, offers_for_no_pods
from nodesmith.decisions.provisioning.purchase.packingproblem import Offer, pairs
from nodesmith.decisions.scheduling.existing import zone_of
from nodesmith.decisions.scheduling.offerings.quotas import RemainingQuotas, usages
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.evictions import refuses_disruption
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT, RESERVED
from nodesmith.model.commands import End
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool, parsed_nodepools
from nodesmith.model.snapshot import Snapshot

SCALED_DOWN = "ScaledDown"
"""The cause of these terminations."""


def replicas(
    inputs: Inputs, quotas: RemainingQuotas | None = None
) -> tuple[list[PlannedNode], dict[str, str]]:
    """Return the nodes that static NodePools lack, and by NodePool the reason why it gets none.

    `quotas` are what is left of quotas, if nodes have been planned before.
    """
    quotas = quotas or left_of(inputs)
    nodes: list[PlannedNode] = []
    refused: dict[str, str] = {}
    static = {n: p for n, p in parsed_nodepools(inputs.snapshot.nodepools).items() if p.is_static}
    doubles = inputs.ledger.doubles
    for name, pool in sorted(static.items()):
        if not is_open(pool, inputs.now):
            continue
        claims = [c for c in inputs.ledger.claims if c.nodepool == name and c.phase is not Phase.GIVEN_UP]
        mine = [c for c in claims if c.name not in doubles]
        try:
            lacking = _lacking(pool, mine, len(claims))
            nodes += planned(pool, lacking, mine, inputs, quotas) if lacking else ()
        except Rejected as error:
            refused[name] = str(error)
    return nodes, refused


def _lacking(pool: NodePool, mine: Sequence[NodeClaim], total: int) -> int:
    """Return how many nodes to buy. Ending nodes do not serve any more, but they count for the limit.

    So do the replacements of nodes that still serve. `total` counts them, but they are not in `mine`. Raises Rejected
    if the limit is below the replicas.
    """
    if pool.replicas is None or pool.deleting:
        return 0
    serving = sum(not claim.is_ending for claim in mine)
    missing, limit = pool.replicas - serving, pool.limits.get(NODES)
    if limit is None:
        return max(0, missing)
    if missing > 0 and limit <= serving == total:
        has = f"it has {serving} node{'s' * (serving != 1)} and spec.replicas is {pool.replicas}"
        raise Rejected(f"{has}, but limits.nodes is {limit}: raise limits.nodes, or lower spec.replicas")
    return max(0, min(missing, limit - total))


def planned(
    pool: NodePool, lacking: int, mine: Sequence[NodeClaim], inputs: Inputs, quotas: RemainingQuotas
) -> Iterator[PlannedNode]:
    """Yield `lacking` planned nodes in addition to `mine`, or fewer if `quotas` leave fewer, and charge these.

    Raises Rejected, before the first node, with what stands in the way.
    """
    nodeclasses = parsed_nodeclasses(inputs.snapshot)
    obstacle, cluster = pool_obstacle(pool, nodeclasses, inputs.ledger, inputs.now), inputs.ledger.cluster
    if obstacle or cluster is None:
        raise Rejected(obstacle or "the cluster is not known yet")
    nodeclass = nodeclasses[pool.nodeclass.name]
    template = template_of(
        pool, nodeclass, inputs.snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now
    )
    by_zone = _by_zone(template)
    if not by_zone:
        raise Rejected(template.obstacle or "no offering that it allows is available now")
    on_trial = bool(why_on_trial(pool, inputs.ledger))
    counts = Counter(zone_of(claim) for claim in mine if not claim.is_ending)
    number = 1 if on_trial else lacking
    for index in range(number):
        within = {
            zone: affordable(quotas, template, by_zone[zone], number - index) for zone in sorted(by_zone)
        }
        options_by_zone = {
            zone: for_no_pods(offers, inputs.settings.min_values_policy, has_zone=True)
            for zone, offers in within.items()
            if offers
        }
        open_zones = [zone for zone, options in options_by_zone.items() if options.offers]
        if not open_zones:
            if not index:
                refusal = next((options.refusal for options in options_by_zone.values()), "")
                raise Rejected(refusal or quotas.obstacle(template, pairs(chain(*by_zone.values()))))
            return
        zone = min(open_zones, key=lambda z: (counts[z], *_cost(options_by_zone[z].offers[0].offering), z))
        counts[zone] += 1
        quotas.take(template, pairs(options_by_zone[zone].offers))
        name = claim_name(pool.name, inputs.decision, index)
        yield planned_node(options_by_zone[zone], (), (), name, inputs.decision, cluster, inputs.now)


def left_of(inputs: Inputs, reserved: Iterable[str] = ()) -> RemainingQuotas:
    """Return what is left of all quotas; `reserved` is what other planned nodes take of reservations, by id."""
    return RemainingQuotas(usages(inputs.snapshot, inputs.ledger, inputs.settings, inputs.now), reserved)


def _by_zone(template: Template) -> dict[str, tuple[Offer, ...]]:
    """Return the offers in each zone, reserved capacity and then the cheapest first, exotic types last."""
    by_zone: dict[str, list[Offer]] = {}
    for offer in sorted(offers_for_no_pods(template, template.choices), key=_price):
        by_zone.setdefault(offer.offering.zone, []).append(offer)
    return {zone: tuple(offers) for zone, offers in by_zone.items()}


def _price(offer: Offer) -> tuple[bool, bool, float, str]:
    return (offer.is_exotic, *_cost(offer.offering), offer.type_option.type.name)


def _cost(offering: Offering) -> tuple[bool, float]:
    """Return the order of what a node costs: reserved capacity is paid for in any case, whatever its price is."""
    return offering.capacity_type != RESERVED, offering.cost_hourly_usd


@dataclass(frozen=True, slots=True)
class _Load:
    """What runs on a Node: the number of pods that would have to move, and whether do-not-disrupt protects it."""

    pods: int = 0
    is_protected: bool = False


def surplus(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    now: datetime,
    ends: Iterable[End] = (),
    booked: Collection[str] = (),
) -> list[End]:
    """Return the terminations that begin now besides `ends`, by NodePool.

    `booked` are the claims with room that is kept for ProvisioningRequests.
    """
    static = {
        name: pool.replicas if is_open(pool, now) else 0
        for name, pool in pools.items()
        if pool.replicas is not None
    }
    if not static:
        return []
    going = {end.claim.name for end in ends}
    serving = [
        c
        for c in claims
        if c.nodepool in static and not c.is_ending and c.phase is not Phase.GIVEN_UP and c.name not in going
    ]
    counts = Counter(claim.nodepool for claim in serving)
    too_many = {name: counts[name] - count for name, count in static.items() if counts[name] > count}
    if not too_many:
        return []
    loads, manifests = _loads(snapshot, now), {str(m["metadata"]["name"]): m for m in snapshot.nodeclaims}
    surplus_ends = []
    for name in sorted(too_many):
        reason = closed_obstacle(pools[name], now) or f"replicas is {static[name]}"
        message = f"NodePool {name} has {counts[name]} nodes and {reason}"
        mine = [claim for claim in serving if claim.nodepool == name]
        for claim in _least_loaded(mine, loads, booked, too_many[name]):
            deadline = deadline_of(claim, manifests.get(claim.name), now)
            surplus_ends.append(End(claim.terminating(SCALED_DOWN, message, now, deadline)))
    return surplus_ends


def _least_loaded(
    mine: Sequence[NodeClaim], loads: Mapping[str, _Load], booked: Collection[str], count: int
) -> list[NodeClaim]:
    remaining, ending = list(mine), []
    for _ in range(count):
        zones = Counter(claim.zone for claim in remaining)

        def rank(claim: NodeClaim, zones: Counter[str] = zones) -> tuple[object, ...]:
            load = loads.get(claim.node_name, _Load()) if claim.node_name else _Load()
            is_node, is_booked = bool(claim.node_name), claim.name in booked
            newest = -claim.created_at.timestamp()
            return (
                is_node,
                load.pods > 0 or is_booked,
                load.is_protected or is_booked,
                load.pods,
                -zones[claim.zone],
                claim.capacity_type == RESERVED,
                newest,
                claim.name,
            )

        ending.append(min(remaining, key=rank))
        remaining.remove(ending[-1])
    return ending


def _loads(snapshot: Snapshot, now: datetime) -> dict[str, _Load]:
    moving: Counter[str] = Counter()
    protected = {node.name for node in snapshot.nodes if node.annotations.get(DO_NOT_DISRUPT) == "true"}
    for pod in snapshot.pods:
        if pod.node and not pod.deleting:
            moving[pod.node] += pod.shape.moves
            if refuses_disruption(pod, now):
                protected.add(pod.node)
    return {node.name: _Load(moving[node.name], node.name in protected) for node in snapshot.nodes}
