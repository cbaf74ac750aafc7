"""What quotas still allow: what counts against them, which offers they apply to, and what to say once one is reached.

A quota is a limit like those of a NodePool, only over nodes that labels select. Templates carry what is left of each
quota as a `SharedLimit` among their limits.

Nodes count from the commit of their intent until they are gone, also those that others bought. A node that is not
launched yet counts with the most that it may become, wherever it may match. Prices count as planned; those of nodes
that nodesmith did not buy are not known and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.decisions.scheduling.offerings.options import SharedLimit, TypeOption, shared_limit
from nodesmith.decisions.scheduling.offerings.templates import Template, Usage, template_labels
from nodesmith.model.apimachinery.labels import DECIDED, INITIALIZED, REGISTERED
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.apimachinery.resources import NODES, Resources
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.pods import Reason
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.policies import USD_PER_HOUR, micro_usd
from nodesmith.model.quotas import Quota, amount_in_words, quotas_of, used_in_words
from nodesmith.model.snapshot import Snapshot

_LATER = {REGISTERED: "true", INITIALIZED: "true"}
"""The labels that every node gets once it has joined."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A node that counts: `labels` it has, and `open` requirements on others that are not settled yet.

    With `is_open`, labels that its type or offering decides may have any value.
    """

    labels: Mapping[str, str]
    capacity: Resources
    micro_usd: int
    since: datetime
    open: Requirements = NO_REQUIREMENTS
    is_open: bool = False

    def may_meet(self, wanted: Requirement) -> bool:
        """Return whether the node may meet a requirement."""
        value, narrowed = self.labels.get(wanted.key), self.open.get(wanted.key)
        if value is not None:
            return wanted.allows(value)
        if narrowed is not None:
            return narrowed.intersects(wanted) or wanted.tolerates_absence
        return wanted.tolerates_absence or (self.is_open and wanted.key in DECIDED)

    def amount(self, resource: str) -> int:
        """Return what it takes of a limit."""
        if resource == NODES:
            return 1
        return self.micro_usd if resource == USD_PER_HOUR else self.capacity.of(resource)


def usages(snapshot: Snapshot, ledger: Ledger, settings: NodeSettings) -> tuple[Usage, ...]:
    """Return what counts against each quota."""
    pools = parsed_nodepools(snapshot.nodepools)
    quotas = quotas_of(snapshot.quotas, pools.values(), settings.cluster_limits)
    if not quotas:
        return ()
    counted = list(_counted(snapshot, ledger))
    return tuple(_usage(quota, counted) for quota in quotas)


def exceeded(claims: Sequence[NodeClaim], snapshot: Snapshot, ledger: Ledger, settings: NodeSettings) -> str:
    """Return which quota these further claims would exceed, in a sentence; empty if none."""
    before = usages(snapshot, ledger, settings)
    together = replace(ledger, claims=(*ledger.claims, *claims)) if before else ledger
    for was, would_be in zip(before, usages(snapshot, together, settings), strict=True):
        for name, limit in sorted(was.quota.limits.items()):
            if was.used.of(name) < would_be.used.of(name) > limit:
                amounts = used_in_words(name, was.used.of(name), limit)
                return f"its replacements would exceed the limit of {was.quota.owner}: {amounts} used"
    return ""


def _counted(snapshot: Snapshot, ledger: Ledger) -> Iterator[_Counted]:
    known = {claim.provider_id for claim in ledger.claims if claim.provider_id}
    for claim in ledger.claims:
        if claim.phase is Phase.GIVEN_UP and not claim.instance_id:
            continue  # an instance that never joined costs money until it is gone
        node = snapshot.node_of(claim)
        labels = {**claim.labels, **(node.labels if node is not None else {})}
        price, is_open = micro_usd(claim.price_hourly_usd), claim.phase is Phase.PENDING
        if is_open and claim.launch:
            price = max(price, micro_usd(LaunchRequest.from_item(claim.name, claim.launch).most_hourly_usd))
        unsettled = claim.requirements if is_open else NO_REQUIREMENTS
        yield _Counted({**_LATER, **labels}, claim.capacity, price, claim.created_at, unsettled, is_open)
    others = {node.provider_id or node.name: node for node in snapshot.nodes}
    for provider_id, node in others.items():
        if provider_id not in known:
            yield _Counted(node.labels, node.capacity, 0, node.created_at)


def _usage(quota: Quota, counted: Sequence[_Counted]) -> Usage:
    mine = [each for each in counted if all(map(each.may_meet, quota.requirements.values()))]
    used = {name: sum(each.amount(name) for each in mine) for name in sorted(quota.limits)}
    return Usage(quota, Resources(used), max((each.since for each in mine), default=None))


def limited(made: Template, found: Iterable[Usage]) -> Template:
    """Return the template with the quotas that its nodes may count against."""
    mine: list[Usage] = []
    left: dict[str, int] = {}
    for usage in found:
        rest = _rest(usage.quota.requirements, made)
        if rest is not None:
            mine.append(usage)
            names = ((n, SharedLimit(usage.quota.owner, n, rest).name) for n in usage.quota.limits)
            left.update((name, usage.left(resource)) for resource, name in names)
    if not mine:
        return made
    return replace(made, remaining=Resources({**made.remaining, **left}), usages=tuple(mine))


def _rest(selector: Requirements, made: Template) -> Requirements | None:
    """Return what a type and an offering must still meet for a node of the template to be selected; None if none is."""
    labels, rest = {**_LATER, **template_labels(made.pool)}, []
    for key, wanted in selector.items():
        value, offered = labels.get(key), made.requirements.get(key)
        if value is not None:
            if not wanted.allows(value):
                return None
        elif key in DECIDED:
            rest.append(wanted)
        elif not (wanted.tolerates_absence or (offered is not None and offered.intersects(wanted))):
            return None
    return Requirements.of(*rest)


_LIMIT_OF = "limit of "
_SOON = timedelta(seconds=5)


def limit_owner(why: Reason) -> str:
    """Return the owner of the quota that keeps pods without a node, as `NodePool web`; empty for other reasons."""
    return why.blocking.removeprefix(_LIMIT_OF) if why.blocking.startswith(_LIMIT_OF) else ""


def freed_at(reasons: Iterable[Reason], ledger: Ledger, now: datetime) -> datetime | None:
    """Return when quotas that refuse pods may leave more: soon, while nodes are launched, since they may count less.

    None if nothing is launched, or no quota refuses pods.
    """
    launching = any(claim.phase is Phase.PENDING for claim in ledger.claims)
    return now + _SOON if launching and any(map(limit_owner, reasons)) else None


class Left:
    """What quotas leave for nodes that are planned one after another, without a packing problem."""

    def __init__(self, found: Iterable[Usage]) -> None:
        self._left = {
            (each.quota.owner, name): each.left(name) for each in found for name in each.quota.limits
        }

    def narrowed(
        self, made: Template, offers: Sequence[tuple[InstanceType, Offering]], nodes: int = 1
    ) -> list[tuple[InstanceType, Offering]]:
        """Return the offers, cheapest first, that leave the quotas enough for `nodes` nodes at the first one's cost.

        Empty if not even one node is left.
        """
        limits = _quotas(made)
        if not limits:
            return list(offers)
        affordable = [each for each in offers if all(s.cost(*each) <= self._left[s.key] for s in limits)]
        if not affordable:
            return []
        most = [max(s.cost(*affordable[0]), self._left[s.key] // nodes) for s in limits]
        return [o for o in affordable if all(s.cost(*o) <= m for s, m in zip(limits, most, strict=True))]

    def take(self, made: Template, offers: Sequence[tuple[InstanceType, Offering]]) -> None:
        """Charge one node that may become any of these offers."""
        for shared in _quotas(made):
            self._left[shared.key] -= max(shared.cost(*offer) for offer in offers)

    def obstacle(self, made: Template, offers: Sequence[tuple[InstanceType, Offering]]) -> str:
        """Return why not even one node is left, and what helps, in a sentence."""
        left = {
            **made.remaining,
            **{shared.name: self._left[shared.key] for shared in _quotas(made)},
        }
        why, _, fix = _obstacle(replace(made, remaining=Resources(left)), offers) or ("", "", "")
        return f"{why}; {fix}" if fix else why


def _quotas(made: Template) -> list[SharedLimit]:
    """Return what is left of quotas among a template's limits, in order of name."""
    shared = map(shared_limit, sorted(made.remaining))
    return [each for each in shared if each is not None and not each.is_of_commitments]


def obstacle(made: Template, offers: Iterable[tuple[TypeOption, Offering]]) -> tuple[str, str, str] | None:
    """Return why quotas stop all offers, the quota in the way, and what helps; None if an offer is allowed."""
    return _obstacle(made, [(type_option.type, offering) for type_option, offering in offers])


def _obstacle(made: Template, offers: Sequence[tuple[InstanceType, Offering]]) -> tuple[str, str, str] | None:
    have = made.remaining
    limits = {shared.name: shared for shared in _quotas(made)}
    costs = [{name: shared.cost(*offer) for name, shared in limits.items()} for offer in offers]
    if not costs or any(all(cost[name] <= have[name] for name in limits) for cost in costs):
        return None
    least = {name: min(cost[name] for cost in costs) for name in limits}
    stops = [(limits[name], have[name], least[name]) for name in limits if least[name] > have[name]]
    if not stops:
        owners = sorted({shared.owner for shared in limits.values()})
        return (
            f"{' and '.join(owners)} together leave no room for a node that would do",
            "quotas together",
            "",
        )
    by_owner = {usage.quota.owner: usage for usage in made.usages}
    told = [_told(by_owner[shared.owner], shared.resource, room, most) for shared, room, most in stops]
    first, _, fix = told[0]
    return " and ".join(dict.fromkeys(why for _, why, _ in told)), first, fix


def sentences(made: Template) -> Iterator[str]:
    """Yield what each quota of a template allows and what counts against it: one sentence for each resource."""
    for usage in made.usages:
        quota, since = usage.quota, _since(usage)
        if quota.fault:
            yield f"{quota.owner} cannot be read: {quota.fault}: {quota.remedy}"
            continue
        for name, limit in sorted(quota.limits.items()):
            yield f"{quota.owner}: {used_in_words(name, usage.used.of(name), limit)} used{since}"


def _since(usage: Usage) -> str:
    return f" since {format_time(usage.since)}" if usage.since is not None else ""


def _told(usage: Usage, resource: str, room: int, least: int) -> tuple[str, str, str]:
    """Return the quota in the way, why, and what helps."""
    quota, owner = usage.quota, usage.quota.owner
    if quota.fault:
        why = f"{owner} cannot be read, so no node is bought that it may select: {quota.fault}"
        return f"{_LIMIT_OF}{owner}", why, f"correct it: {quota.remedy}"
    limit, counted = quota.limits.of(resource), usage.used.of(resource)
    used = max(counted, limit - room)
    since = " with the nodes that are bought now" if used > counted else _since(usage)
    why = (
        f"the limit of {amount_in_words(resource, limit)} of {owner} is reached"
        f" ({amount_in_words(resource, used)} used{since},"
        f" the least that a node that would do takes is {amount_in_words(resource, least)})"
    )
    enough = amount_in_words(resource, used + least).partition(" ")[0]
    return f"{_LIMIT_OF}{owner}", why, f"for one more node raise {quota.field(resource)} to at least {enough}"
