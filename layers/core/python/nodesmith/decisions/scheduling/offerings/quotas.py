"""What quotas still allow: what counts against them, which offers they apply to, and what to say once one is reached.

A quota is a limit like those of a NodePool, only over nodes that labels select. Templates carry what is left of each
quota as a `SharedLimit` among their limits.

Nodes count from the commit of their intent until they are gone, also those that others bought. A node that is not
launched yet counts with the most that it may become, wherever it may match. Prices count as planned; those of nodes
that nodesmith did not buy are not known and do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.scheduling.offerings.options import TypeOption, Usage
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import (
    SharedLimit,
    reservation_limit,
    shared_limit,
    used_up,
)
from nodesmith.decisions.scheduling.offerings.templates import Template, template_labels
from nodesmith.model.apimachinery.labels import DECIDED, INITIALIZED, REGISTERED
from nodesmith.model.apimachinery.quantities import NODES, NOTHING, Resources
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.pods import Reason
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.region import Region, Spending
from nodesmith.model.ledger.spending import (
    LEAST_HORIZON_SECONDS,
    Counted,
    counted_claims,
    counted_spent,
    month_end,
    seconds_left,
)
from nodesmith.model.limits.quotas import (
    ACCOUNT,
    CAPACITY_QUOTA,
    CLUSTER,
    SPENDING_LIMIT,
    Quota,
    amount_in_words,
    quotas_of,
    used_in_words,
)
from nodesmith.model.limits.spendinglimits import SpendingLimit
from nodesmith.model.policies import LAUNCHES_PER_HOUR, USD_PER_HOUR, USD_PER_MONTH, NodeSettings
from nodesmith.model.snapshot import Snapshot

_LATER = {REGISTERED: "true", INITIALIZED: "true"}
"""The labels that every node gets once it has joined."""
_NEAR = 5
"""A limit of launches is part of plans once less than one in so many is left. Before, only commits hold it."""


def usages(snapshot: Snapshot, ledger: Ledger, settings: NodeSettings, now: datetime) -> tuple[Usage, ...]:
    """Return what counts against each quota."""
    pools = parsed_nodepools(snapshot.nodepools)
    quotas = quotas_of(snapshot.quotas, pools.values(), settings.cluster_limits)
    spending = ledger.spending
    own_limits = spending.region.own_limits if spending.region is not None else ()
    computed: list[Usage] = []
    if quotas:
        counted = list(_counted(snapshot, ledger, now))
        computed += [_usage(quota, counted, now) for quota in quotas]
    if own_limits and spending.region is not None:
        counted = [*counted_claims(ledger.claims, now), *counted_spent(spending.spent, now)]
        computed += [_of_limit(limit, counted, spending.region, now) for limit in own_limits]
    return tuple(_with_launches(computed, spending, now))


def exceeded(
    claims: Sequence[NodeClaim], snapshot: Snapshot, ledger: Ledger, settings: NodeSettings, now: datetime
) -> str:
    """Return which quota these further claims would exceed, in a sentence; empty if none."""
    before = usages(snapshot, ledger, settings, now)
    together = replace(ledger, claims=(*ledger.claims, *claims)) if before else ledger
    for was, would_be in zip(before, usages(snapshot, together, settings, now), strict=True):
        for name, limit in sorted(was.quota.limits.items()):
            launches = len(claims) if name == LAUNCHES_PER_HOUR else 0
            if was.used.of(name) < would_be.used.of(name) + launches > limit:
                amounts = used_in_words(name, was.used.of(name), limit)
                return f"its replacements would exceed the limit of {was.quota.owner}: {amounts} used"
    return ""


def _counted(snapshot: Snapshot, ledger: Ledger, now: datetime) -> Iterator[Counted]:
    def further(claim: NodeClaim) -> Mapping[str, str]:
        node = snapshot.node_of(claim)
        return node.labels if node is not None else {}

    claimed = {claim.provider_id for claim in ledger.claims if claim.provider_id}
    yield from counted_claims(ledger.claims, now, further)
    yield from counted_spent(ledger.spending.spent, now)
    others = {node.provider_id or node.name: node for node in snapshot.nodes}
    for provider_id, node in others.items():
        if provider_id not in claimed:
            yield Counted(node.labels, node.capacity, since=node.created_at)


def _usage(quota: Quota, counted: Sequence[Counted], now: datetime) -> Usage:
    mine = [entry for entry in counted if entry.meets(quota.requirements)]
    used = {name: sum(entry.amount(name) for entry in mine) for name in sorted(quota.limits)}
    since = max((entry.since for entry in mine if entry.since is not None), default=None)
    return Usage(quota, Resources(used), since, seconds_left(now), sum(entry.micro_usd for entry in mine))


def _of_limit(limit: SpendingLimit, counted: Sequence[Counted], region: Region, now: datetime) -> Usage:
    """Return what counts against a limit that clusters share.

    While it is not known what a cluster takes of it, nothing is left.
    """
    own_usage, others = _usage(limit.quota, counted, now), region.others(limit).values()
    if uncounted := region.uncounted(limit):
        fault = f"what cluster {' and '.join(uncounted[:3])} takes of it is not known yet"
        closed = replace(limit.quota, limits=Resources({NODES: 0}), fault=fault, remedy=_UNCOUNTED)
        return replace(own_usage, quota=limit.quota if limit.quota.fault else closed)
    rate = sum(report.micro_usd for report in others)
    used_elsewhere = {USD_PER_HOUR: rate, USD_PER_MONTH: sum(report.in_month(now) for report in others)}
    used = {name: amount + used_elsewhere.get(name, 0) for name, amount in own_usage.used.items()}
    return replace(own_usage, used=Resources(used), rate=own_usage.rate + rate)


_UNCOUNTED = "wait a few minutes, and see that readiness runs for that cluster (`nodesmith doctor`)"


def _with_launches(computed: Sequence[Usage], spending: Spending, now: datetime) -> Iterator[Usage]:
    """Yield usages with the launches of the last hour, where few are left.

    Plans are made faster without that limit. A plan that exceeds it is cut, and the next one is made with it.
    """
    region, by_owner = spending.region, {usage.quota.owner: usage for usage in computed}
    limits = [(CLUSTER, spending.launches, spending.most_launches)]
    if region is not None:
        limits.append((ACCOUNT, region.launches, region.most_launches))
    for owner, launches, limit in limits:
        used = launches.recent(now)
        if (limit - used) * _NEAR > limit:
            continue
        usage = by_owner.get(owner) or Usage(Quota(owner), NOTHING, None, seconds_left(now))
        quota = replace(usage.quota, limits=Resources({**usage.quota.limits, LAUNCHES_PER_HOUR: limit}))
        since = max(filter(None, (usage.since, launches.since(now))), default=None)
        amounts = Resources({**usage.used, LAUNCHES_PER_HOUR: used})
        by_owner[owner] = replace(usage, quota=quota, used=amounts, since=since)
    yield from by_owner.values()


def limited(template: Template, all_usages: Iterable[Usage]) -> Template:
    """Return the template with the quotas that its nodes may count against."""
    mine: list[Usage] = []
    limits: dict[str, int] = {}
    for usage in all_usages:
        requirements = _open_requirements(usage.quota.requirements, template)
        if requirements is not None:
            mine.append(usage)
            names = ((n, SharedLimit(usage.quota.owner, n, requirements).name) for n in usage.quota.limits)
            limits.update((name, usage.left(resource)) for resource, name in names)
    if not mine:
        return template
    return replace(template, remaining=Resources({**template.remaining, **limits}), usages=tuple(mine))


def _open_requirements(selector: Requirements, template: Template) -> Requirements | None:
    """Return what a type and an offering must still meet for a node of the template to be selected; None if none is."""
    labels, open_requirements = {**_LATER, **template_labels(template.pool)}, []
    for key, requirement in selector.items():
        value, offered = labels.get(key), template.requirements.get(key)
        if value is not None:
            if not requirement.allows(value):
                return None
        elif key in DECIDED:
            open_requirements.append(requirement)
        elif not (requirement.tolerates_absence or (offered is not None and offered.intersects(requirement))):
            return None
    return Requirements.of(*open_requirements)


def on_nodepool(pool: NodePool, all_usages: Iterable[Usage]) -> tuple[Usage, ...]:
    """Return the quotas that nodes of a NodePool may count against, except those that are objects of the cluster."""
    labels = {**_LATER, **template_labels(pool)}
    node = Counted(labels, open=pool.requirements, is_open=True)
    others = (usage for usage in all_usages if not usage.quota.owner.startswith(f"{CAPACITY_QUOTA.name} "))
    return tuple(usage for usage in others if node.meets(usage.quota.requirements))


def limited_nodepools(
    owners: Iterable[str], snapshot: Snapshot, ledger: Ledger, settings: NodeSettings, now: datetime
) -> dict[str, list[str]]:
    """Return the names of the NodePools that each of these quotas limits, of those that are no objects."""
    limiting = {owner for owner in owners if owner in (CLUSTER, ACCOUNT) or owner.startswith(SPENDING_LIMIT)}
    if not limiting:
        return {}
    of_owners = [usage for usage in usages(snapshot, ledger, settings, now) if usage.quota.owner in limiting]
    pools = parsed_nodepools(snapshot.nodepools)
    return {
        usage.quota.owner: [name for name in sorted(pools) if on_nodepool(pools[name], (usage,))]
        for usage in of_owners
    }


_LIMIT_OF = "limit of "
_TOGETHER = "quotas together"
_SOON = timedelta(seconds=5)
_OF_OTHERS = timedelta(minutes=2)
"""How often a cluster looks whether others take less of a limit that keeps its pods without a node."""


def limit_owner(reason: Reason) -> str:
    """Return the owner of the quota that keeps pods without a node, as `NodePool web`; empty for other reasons."""
    return reason.blocking.removeprefix(_LIMIT_OF) if reason.blocking.startswith(_LIMIT_OF) else ""


def freed_at(
    reasons: Iterable[Reason], all_usages: Iterable[Usage], ledger: Ledger, now: datetime
) -> datetime | None:
    """Return when quotas that refuse pods may leave more; None if none refuses any, or only a change of it helps.

    That is soon while nodes are launched, since they may count less, and later if launches, other clusters or the month
    are in the way.
    """
    refusals = list(reasons)
    owners = set(map(limit_owner, refusals)) - {""}
    by_owner = {usage.quota.owner: usage for usage in all_usages}
    if any(reason.blocking == _TOGETHER for reason in refusals):
        owners |= by_owner.keys()
    spending, moments = ledger.spending, list[datetime | None]()
    if any(owner in by_owner and USD_PER_MONTH in by_owner[owner].quota.limits for owner in owners):
        moments.append(month_end(now))
    if owners and any(claim.phase is Phase.PENDING for claim in ledger.claims):
        moments.append(now + _SOON)
    if CLUSTER in owners:
        moments.append(spending.launches.freed_at(now))
    if ACCOUNT in owners and spending.region is not None:
        moments.append(spending.region.launches.freed_at(now))
    if any(owner.startswith(SPENDING_LIMIT) for owner in owners):
        moments.append(now + _OF_OTHERS)
    return min(filter(None, moments), default=None)


class RemainingQuotas:
    """What quotas and capacity reservations leave for nodes planned one after another, without a packing problem.

    `reserved` has the reservation's id for each planned node that is already to take one of its free instances.
    """

    def __init__(self, all_usages: Iterable[Usage], reserved: Iterable[str] = ()) -> None:
        self._left = {
            (usage.quota.owner, name): usage.left(name) for usage in all_usages for name in usage.quota.limits
        }
        self._reserved = Counter(reserved)

    def narrowed(
        self, template: Template, offers: Sequence[tuple[InstanceType, Offering]], nodes: int = 1
    ) -> list[tuple[InstanceType, Offering]]:
        """Return the offers, cheapest first, that leave the quotas enough for `nodes` nodes at the first one's cost.

        They are of one capacity type and one reservation: those of the cheapest that is left. Empty if none is.
        """
        limits, free = _quotas(template), self._free(template)

        def is_affordable(kind: InstanceType, offering: Offering) -> bool:
            if offering.reservation and free.get(reservation_limit(offering.reservation), 0) <= 0:
                return False
            return all(s.cost(kind, offering) <= self._left[s.key] for s in limits)

        affordable = [offer for offer in offers if is_affordable(*offer)]
        if not affordable:
            return []
        ceilings = [(s, max(s.cost(*affordable[0]), self._left[s.key] // nodes)) for s in limits]
        market = _sold_as(affordable[0][1])
        alike = (offer for offer in affordable if _sold_as(offer[1]) == market)
        return [offer for offer in alike if all(s.cost(*offer) <= ceiling for s, ceiling in ceilings)]

    def take(self, template: Template, offers: Sequence[tuple[InstanceType, Offering]]) -> None:
        """Charge one node that may become any of these offers."""
        for shared in _quotas(template):
            self._left[shared.key] -= max(shared.cost(*offer) for offer in offers)
        self._reserved.update({offering.reservation for _, offering in offers} - {""})

    def obstacle(self, template: Template, offers: Sequence[tuple[InstanceType, Offering]]) -> str:
        """Return why not even one node is left, and what helps, in a sentence."""
        remaining = {
            **template.remaining,
            **{shared.name: self._left[shared.key] for shared in _quotas(template)},
        }
        offerings = (offering for _, offering in offers)
        stop = _obstacle(replace(template, remaining=Resources(remaining)), offers) or used_up(
            offerings, self._free(template)
        )
        message, _, fix = stop or ("", "", "")
        return f"{message}; {fix}" if fix else message

    def _free(self, template: Template) -> dict[str, int]:
        """Return how many instances of reservations are left, by the names of their limits."""
        reserved = {reservation_limit(name): number for name, number in self._reserved.items()}
        return {name: amount - reserved.get(name, 0) for name, amount in template.reservations.items()}


def _sold_as(offering: Offering) -> tuple[str, str]:
    return offering.capacity_type, offering.reservation


def _quotas(template: Template) -> list[SharedLimit]:
    """Return what is left of quotas among a template's limits, in order of name."""
    shared = map(shared_limit, sorted(template.remaining))
    return [limit for limit in shared if limit is not None and not limit.is_of_commitments]


def obstacle(
    template: Template, offers: Iterable[tuple[TypeOption, Offering]]
) -> tuple[str, str, str] | None:
    """Return why quotas stop all offers, the quota in the way, and what helps; None if an offer is allowed."""
    return _obstacle(template, [(type_option.type, offering) for type_option, offering in offers])


def _obstacle(
    template: Template, offers: Sequence[tuple[InstanceType, Offering]]
) -> tuple[str, str, str] | None:
    remaining = template.remaining
    limits = {shared.name: shared for shared in _quotas(template)}
    costs = [{name: shared.cost(*offer) for name, shared in limits.items()} for offer in offers]
    if not costs or any(all(cost[name] <= remaining[name] for name in limits) for cost in costs):
        return None
    least = {name: min(cost[name] for cost in costs) for name in limits}
    stops = [(limits[name], remaining[name], least[name]) for name in limits if least[name] > remaining[name]]
    if not stops:
        owners = sorted({shared.owner for shared in limits.values()})
        return (
            f"{' and '.join(owners)} together leave no room for a suitable node",
            _TOGETHER,
            "",
        )
    by_owner = {usage.quota.owner: usage for usage in template.usages}
    explained = [
        _explained(by_owner[shared.owner], shared.resource, room, most) for shared, room, most in stops
    ]
    first, _, fix = explained[0]
    return " and ".join(dict.fromkeys(message for _, message, _ in explained)), first, fix


def sentences(template: Template) -> Iterator[str]:
    """Yield what each quota of a template allows and what counts against it: one sentence for each resource."""
    for usage in template.usages:
        quota, since = usage.quota, _since(usage)
        if quota.fault:
            yield f"{quota.owner} cannot be read: {quota.fault}: {quota.remedy}"
            continue
        for name, limit in sorted(quota.limits.items()):
            yield f"{quota.owner}: {used_in_words(name, usage.used.of(name), limit)} used{since}"


def _since(usage: Usage) -> str:
    return f" since {format_time(usage.since)}" if usage.since is not None else ""


def _explained(usage: Usage, resource: str, room: int, least: int) -> tuple[str, str, str]:
    """Return the quota in the way, why, and what helps."""
    quota, owner = usage.quota, usage.quota.owner
    if quota.fault:
        message = f"{owner} cannot be read, so no node is bought that it may select: {quota.fault}"
        return f"{_LIMIT_OF}{owner}", message, f"correct it: {quota.remedy}"
    limit, being_bought = quota.limits.of(resource), usage.left(resource) - room
    used = usage.used.of(resource) + usage.taking(resource, being_bought)
    since = " with the nodes that are bought now" if being_bought > 0 else _since(usage)
    needed = amount_in_words(resource, usage.needed(resource, being_bought + least))
    takes = (
        f"on its last day a month must pay for a whole day, {needed} with one more node"
        if resource == USD_PER_MONTH and usage.seconds_left < LEAST_HORIZON_SECONDS
        else f"the least that a suitable node takes is {amount_in_words(resource, usage.taking(resource, least))}"
    )
    message = (
        f"the limit of {amount_in_words(resource, limit)} of {owner} is reached"
        f" ({amount_in_words(resource, used)} used{since}, {takes})"
    )
    enough = needed.partition(" ")[0]
    return (
        f"{_LIMIT_OF}{owner}",
        message,
        f"for one more node raise {quota.field(resource)} to at least {enough}",
    )
