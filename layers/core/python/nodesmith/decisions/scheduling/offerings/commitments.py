"""Savings Plans and Reserved Instances: what of them is unused, which offers they pay for, and what a node then costs.

AWS decides each hour which instances a commitment pays for; `applied` repeats its rules. A purchase that unused
commitments pay for adds nothing to the bill. Templates carry the on-demand offers a second time for each pool of
commitments that is not used up, at no price, and what is left of the pool as a `SharedLimit` among their limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from math import floor
from typing import Any

from nodesmith.decisions.scheduling.offerings.options import TypeOption, TypeOptions
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import SharedLimit
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import ON_DEMAND, OS, RESERVED, TENANCY
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.catalog import Catalog, Offering
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.commitments import CommitmentKind, CommitmentPool, Usage
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.instancesettings import WINDOWS_FAMILIES

USE_SHARE: Mapping[CommitmentKind, float] = {
    CommitmentKind.ZONAL: 0.0025,
    CommitmentKind.REGIONAL: 0.005,
    CommitmentKind.EC2_INSTANCE: 0.0075,
    CommitmentKind.COMPUTE: 0.01,
}
"""The cost of using commitments in decisions, as a share of the price. If they pay for two plans, the one that leaves
more of them to others wins. Commitments that fewer instances can use are used first."""
_ROUNDING = 1e-6
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Applied:
    """What commitments pay for, of this usage at these on-demand prices.

    `left` is what is unused, by pool, and `paid` the instances by type, zone and pool.

    `uncovered_hourly_usd` is the on-demand price of all that they do not pay for, and `covered_hourly_usd` of the rest.
    """

    pools: tuple[CommitmentPool, ...]
    usage: Usage
    prices: Mapping[_Key, float]
    left: Mapping[str, int]
    paid: Mapping[_Key, Mapping[str, float]]
    uncovered_hourly_usd: float
    covered_hourly_usd: float

    def share_of(self, instance_type: str, zone: str) -> float:
        """Return which part of the instances of a type in a zone commitments pay for."""
        running = self.usage.get((instance_type, zone), 0.0)
        paid = sum(self.paid.get((instance_type, zone), {}).values())
        return min(1.0, paid / running) if running else 0.0


def applied(pools: Sequence[CommitmentPool], usage: Usage, prices: Mapping[_Key, float]) -> Applied:
    """Apply commitments to what runs, by AWS's rules.

    Zonal Reserved Instances come first, then regional ones from the smallest size up, then EC2 Instance Savings Plans,
    then Compute Savings Plans. Of Savings Plans, the highest discount on the on-demand price comes first, then the
    lowest rate. `prices` are the on-demand prices by type and zone.
    """
    amounts_left = {pool.name: float(pool.amount) for pool in pools}
    remaining = {key: count for key, count in sorted(usage.items()) if count > 0}
    paid: dict[_Key, dict[str, float]] = {}
    for kind in CommitmentKind:
        alike = [pool for pool in pools if pool.kind is kind]
        pairs = [
            (_rank(pool, key, prices), key, pool) for pool in alike for key in remaining if pool.use(*key)
        ]
        for _, key, pool in sorted(pairs, key=lambda pair: (pair[0], pair[1], pair[2].name)):
            number = min(remaining[key], amounts_left[pool.name] / pool.use(*key))
            if number > 0:
                remaining[key] -= number
                amounts_left[pool.name] -= number * pool.use(*key)
                by_pool = paid.setdefault(key, {})
                by_pool[pool.name] = by_pool.get(pool.name, 0.0) + number
    uncovered = sum(count * prices.get(key, 0.0) for key, count in remaining.items())
    total = sum(count * prices.get(key, 0.0) for key, count in usage.items())
    whole_left = {name: max(0, floor(amount + _ROUNDING)) for name, amount in amounts_left.items()}
    return Applied(tuple(pools), usage, prices, whole_left, paid, uncovered, max(0.0, total - uncovered))


def _rank(pool: CommitmentPool, key: _Key, prices: Mapping[_Key, float]) -> tuple[float, float]:
    """Return what orders the instances to which commitments of one kind apply."""
    use, price = pool.use(*key), prices.get(key, 0.0)
    if not pool.kind.is_plan:
        return 0.0, float(use)
    return (use / 1_000_000 / price if price else 1.0), float(use)


_DEFAULT_RESERVATION = "default"
_RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type"


def usage_of(claims: Iterable[NodeClaim]) -> dict[tuple[str, str], float]:
    """Return what these claims' instances are billed as. A claim that is not launched counts as its first choice."""
    usage: dict[tuple[str, str], float] = {}
    for claim in claims:
        if not _is_billed_on_demand(claim):
            continue
        kind, zone = claim.instance_type, claim.zone
        overrides: Any = claim.launch.get("overrides")
        if claim.phase is Phase.PENDING and overrides:
            _, kind, zone, *_ = overrides[0]
        if kind and zone:
            usage[str(kind), str(zone)] = usage.get((str(kind), str(zone)), 0.0) + 1
    return usage


def _is_billed_on_demand(claim: NodeClaim) -> bool:
    if claim.phase in {Phase.GIVEN_UP, Phase.TERMINATED} or claim.instance_gone_at is not None:
        return False
    if claim.labels.get(OS) == "windows" or claim.labels.get(TENANCY) == "dedicated":
        return False
    in_reservation = claim.labels.get(_RESERVATION_TYPE) == _DEFAULT_RESERVATION
    return claim.capacity_type == ON_DEMAND or (claim.capacity_type == RESERVED and in_reservation)


@lru_cache(maxsize=4)
def on_demand_prices(catalog: Catalog) -> Mapping[_Key, float]:
    """Return the on-demand prices of Linux on shared hardware, by type and zone."""
    return {
        (name, offering.zone): offering.price_hourly_usd
        for name, offered in catalog.offerings.items()
        for offering in offered
        if offering.capacity_type == ON_DEMAND
    }


def applied_now(ledger: Ledger, catalog: Catalog, now: datetime) -> Applied | None:
    """Return what commitments pay for now, with the cluster's own claims as they are; None if there are none."""
    commitments, cluster = ledger.commitments, ledger.cluster
    pools = commitments.book.pools(now)
    if not pools or cluster is None:
        return None
    usage = dict(commitments.others(cluster.name, now))
    for key, count in usage_of(ledger.claims).items():
        usage[key] = usage.get(key, 0.0) + count
    return applied(pools, usage, on_demand_prices(catalog))


def committed(template: Template, commitments: Applied | None) -> Template:
    """Return the template with the offers that unused commitments pay for, if there are any."""
    if commitments is None or template.nodeclass.ami_family in WINDOWS_FAMILIES:
        return template
    unused = tuple(pool for pool in commitments.pools if commitments.left[pool.name] > 0)
    offers = _committed(template.type_options, unused)
    if not len(offers):
        return template
    names = {offering.commitment for _, offering in offers.offers}
    limits = {SharedLimit.of_commitments(name).name: commitments.left[name] for name in sorted(names)}
    return replace(template, committed=offers, remaining=Resources({**template.remaining, **limits}))


@lru_cache(maxsize=32)
def _committed(type_options: TypeOptions, pools: tuple[CommitmentPool, ...]) -> TypeOptions:
    """Return the on-demand offers once for each pool that pays for them. Cached, because pools seldom change."""
    offers: list[tuple[TypeOption, Offering]] = []
    for type_option, offering in type_options.offers:
        if offering.capacity_type != ON_DEMAND or offering.dedicated:
            continue
        for pool in pools:
            use = pool.use(type_option.type.name, offering.zone)
            if use:
                offers.append((type_option, _paid_for(offering, pool, use)))
    offers.sort(
        key=lambda offer: (offer[1].cost_hourly_usd, offer[0].type.name, offer[1].zone, offer[1].commitment)
    )
    return TypeOptions(offers)


def _paid_for(offering: Offering, pool: CommitmentPool, use: int) -> Offering:
    """Return an offering as a pool of commitments pays for it. A plan's own rate says what it uses up.

    No NodeOverlay sets this price.
    """
    listed = offering.paid_hourly_usd
    consumed = use / 1_000_000 if pool.kind.is_plan else listed
    return replace(
        offering,
        price_hourly_usd=0.0,
        risk_hourly_usd=consumed * USE_SHARE[pool.kind],
        overlay="",
        listed_hourly_usd=listed,
        commitment=pool.name,
        commitment_use=use,
    )


@dataclass(frozen=True, slots=True)
class Running:
    """An on-demand node: its name, type, zone and price, and which part of it its pods request."""

    name: str
    instance_type: str
    zone: str
    price_hourly_usd: float
    share_used: float


def marginal_prices(nodes: Iterable[Running], commitments: Applied) -> dict[str, float]:
    """Return what ending each of these on-demand nodes would save, by name.

    Commitments are paid for in any case, so a node that they pay for saves nothing, unless they can pay for another one
    instead. Together, nodes save at most what is not paid for by commitments. Those that are used least come first:
    they are the best to end.
    """
    before, budget = commitments.uncovered_hourly_usd, commitments.uncovered_hourly_usd
    saved: dict[_Key, float] = {}
    price_of: dict[str, float] = {}
    for node in sorted(nodes, key=lambda one: (one.share_used, one.name)):
        key = node.instance_type, node.zone
        if key not in saved:
            running = commitments.usage.get(key, 0.0)
            after = applied(commitments.pools, {**commitments.usage, key: running - 1}, commitments.prices)
            saved[key] = max(0.0, before - after.uncovered_hourly_usd) if running >= 1 else 0.0
        price_of[node.name] = price = min(node.price_hourly_usd, saved[key], budget)
        budget -= price
    return price_of
