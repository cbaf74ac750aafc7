"""The NodePools that may buy, as templates in tiers of weight, and why the others may not.

If a NodePool's nodes do not join the cluster, it does not buy for a while, and is then tried with one node at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby

from nodesmith.decisions.budgets import closed_obstacle
from nodesmith.decisions.launch import usable
from nodesmith.decisions.scheduling.compatibility import TypeSet, matching_types, type_set
from nodesmith.decisions.scheduling.offerings.commitments import applied_now, committed
from nodesmith.decisions.scheduling.offerings.options import Usage
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.decisions.scheduling.offerings.quotas import limited, usages
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import (
    free_reservations,
    group_limit,
    group_room,
    open_zones,
    types_of_group,
)
from nodesmith.decisions.scheduling.offerings.templates import Template, template, template_labels
from nodesmith.model.apimachinery.labels import NODECLASS, TENANCY
from nodesmith.model.apimachinery.problems import Problem, did_you_mean
from nodesmith.model.apimachinery.quantities import Resources, total
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import (
    ANY_TENANCY,
    DEDICATED_TENANCY,
    all_with_parts,
    instance_types,
    needs_dedicated,
)
from nodesmith.model.karpenter.nodeclaims import USED, WITHDRAWN, NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool, Objective, parse_nodepools
from nodesmith.model.kubernetes.podannotations import surcharge_problems
from nodesmith.model.ledger.learned import (
    RegistrationHealth,
    attaching,
    basis_of,
    current_health,
    known_types,
)
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.limits.quotas import parse_quotas
from nodesmith.model.nodeclasses.nodeclasses import SHARED, EC2NodeClass, NodeConfiguration, parse_nodeclasses
from nodesmith.model.nodeclasses.status import MOST_SPREAD, NodeClassStatus
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot

_STATIC = "it has spec.replicas, so it does not follow pods"
UNREAD = "differs from what readiness last read from the API server; readiness reads it again"
"""Part of an obstacle that passes within seconds."""
_ONE_NODE = Resources({NODES: 1})
_UNDER_WAY = frozenset({Phase.PENDING, Phase.LAUNCHED})


@dataclass(frozen=True, slots=True)
class Obstructed:
    """A NodePool that may not buy for pods now, or never if it is static, with the data of the nodes that it has.

    `nodeclass` is None if it is missing or not valid.
    """

    pool: NodePool
    nodeclass: EC2NodeClass | None
    catalog: Catalog
    settings: NodeSettings

    @property
    def requirements(self) -> Requirements:
        """The requirements that its nodes would meet."""
        return self.pool.requirements.union(Requirements.from_labels(template_labels(self.pool)))

    @property
    def types(self) -> TypeSet:
        """The instance types that it allows, whether or not EC2 has them. Without a NodeClass, defaults apply."""
        configuration = NodeConfiguration.of(self.nodeclass) if self.nodeclass else NodeConfiguration()
        types = instance_types(self.catalog, configuration, self.settings)
        parts = all_with_parts(types, self.pool.options.gpu_parts)
        return matching_types(type_set(parts), self.requirements)


@dataclass(frozen=True, slots=True)
class Pools:
    """Templates by tier, heaviest NodePools first; `obstacles` by NodePool name, `problems` of any object.

    `without_types` are NodePools that could buy but have no instance type left. `obstructed` are all valid NodePools
    with an obstacle.
    """

    tiers: tuple[tuple[Template, ...], ...]
    obstacles: Mapping[str, str]
    problems: tuple[str, ...]
    without_types: tuple[str, ...] = ()
    obstructed: Mapping[str, Obstructed] = field(default_factory=dict)

    @property
    def templates(self) -> tuple[Template, ...]:
        """All templates, in tier order."""
        return tuple(t for tier in self.tiers for t in tier)


def pools(
    snapshot: Snapshot,
    ledger: Ledger,
    catalog: Catalog,
    settings: NodeSettings,
    now: datetime,
    *,
    nodes_of_trial: int = 1,
) -> Pools:
    """Read the snapshot's NodePools and EC2NodeClasses. An invalid object does not affect the others.

    If a NodePool's nodes did not join, it is tried with `nodes_of_trial` nodes. For pods that run all together or not
    at all, that is more than one, since the trial would never begin otherwise.
    """
    nodeclasses, problems = _nodeclasses(snapshot)
    used, paid = usages(snapshot, ledger, settings, now), applied_now(ledger, catalog, now)
    problems += [problem for parsed in parse_quotas(snapshot.quotas) for problem in parsed.problems]
    obstacles: dict[str, str] = {}
    templates: list[Template] = []
    obstructed: dict[str, Obstructed] = {}
    for parsed in parse_nodepools(snapshot.nodepools):
        problems += parsed.problems
        pool = parsed.value
        if pool is None:
            reference = parsed.fatal[0].object
            message = str(parsed.fatal[0]).removeprefix(f"{reference}: ")
            obstacles[reference.removeprefix("NodePool/")] = message
            continue
        obstacle = _STATIC if pool.is_static else pool_obstacle(pool, nodeclasses, ledger, now)
        if not obstacle:
            nodeclass = nodeclasses[pool.nodeclass.name]
            new_template = template_of(
                pool, nodeclass, snapshot, ledger, catalog, settings, now, used, nodes_of_trial
            )
            obstacle = new_template.obstacle
            templates.append(committed(new_template, paid))
        if obstacle:
            obstacles[pool.name] = obstacle
            unready = nodeclasses.get(pool.nodeclass.name)
            obstructed[pool.name] = Obstructed(pool, unready, catalog, settings)
    buying = sorted((t for t in templates if t.choices), key=lambda t: (-t.pool.weight, t.name))
    tiers = tuple(_with_objective(tuple(tier)) for _, tier in groupby(buying, key=lambda t: t.pool.weight))
    problems += surcharge_problems(snapshot.daemonsets)
    without_types = tuple(sorted(candidate.name for candidate in templates if not candidate.choices))
    stated = tuple(str(p) for p in problems) + snapshot.problems
    if snapshot.nodeoverlays:
        stated += overlays_of(snapshot, catalog, settings).findings
    return Pools(tiers, dict(sorted(obstacles.items())), stated, without_types, obstructed)


def _with_objective(tier: tuple[Template, ...]) -> tuple[Template, ...]:
    """Return the templates of one tier. They are packed together, so if one wants few nodes, that applies to all."""
    if not any(member.pool.options.objective is Objective.LEAST_NODES for member in tier):
        return tier
    return tuple(replace(member, least_nodes=True) for member in tier)


def parsed_nodeclasses(snapshot: Snapshot) -> dict[str, EC2NodeClass]:
    """Return the valid EC2NodeClasses of the snapshot, by name."""
    return _nodeclasses(snapshot)[0]


def _nodeclasses(snapshot: Snapshot) -> tuple[dict[str, EC2NodeClass], list[Problem]]:
    nodeclasses: dict[str, EC2NodeClass] = {}
    problems: list[Problem] = []
    for parsed in parse_nodeclasses(snapshot.nodeclasses):
        problems += parsed.problems
        if parsed.value is not None:
            nodeclasses[parsed.value.name] = parsed.value
    return nodeclasses, problems


def pool_obstacle(
    pool: NodePool, nodeclasses: Mapping[str, EC2NodeClass], ledger: Ledger, now: datetime
) -> str:
    """Return why this NodePool may not buy anything now; empty if it may."""
    backoff = ledger.nodepool_backoffs.get(pool.name)
    if pool.deleting:
        return "it is being deleted"
    if not ledger.has_read(pool):
        return f"it {UNREAD}"
    obstacle = closed_obstacle(pool, now) or nodeclass_obstacle(pool.nodeclass, nodeclasses, ledger)
    if obstacle:
        return obstacle
    if backoff is not None and backoff.holds(now):
        return (
            f"its last launch was refused ({backoff.reason}); tried again after {backoff.until:%H:%M:%S} UTC"
        )
    return trial_obstacle(pool, ledger, now)


def nodeclass_obstacle(ref: NodeClassRef, nodeclasses: Mapping[str, EC2NodeClass], ledger: Ledger) -> str:
    """Return why nothing can be launched from a NodeClass now; empty if something can."""
    nodeclass, status = nodeclasses.get(ref.name), ledger.nodeclasses.get(ref.name)
    if ref.label != NODECLASS:
        return f"its NodeClass is a {ref.kind}.{ref.group}; only EC2NodeClass.karpenter.k8s.aws is known here"
    if nodeclass is None:
        return f"its EC2NodeClass {ref.name!r} is missing or not valid{did_you_mean(ref.name, nodeclasses)}"
    if nodeclass.deleting:
        return f"its EC2NodeClass {ref.name!r} is being deleted"
    if status is None or ledger.cluster is None:
        return f"its EC2NodeClass {ref.name!r} has not been resolved yet"
    if not ledger.has_read(nodeclass):
        return f"its EC2NodeClass {ref.name!r} {UNREAD}"
    if not status.is_ready:
        condition = status.first_obstacle
        detail = (
            f"{condition.type}: {condition.message or condition.reason}" if condition else "no conditions"
        )
        return f"its EC2NodeClass {ref.name!r} is not ready ({detail})"
    return f"its EC2NodeClass {ref.name!r} is not Ready ({nodeclass.obstacle})" if nodeclass.obstacle else ""


def template_of(
    pool: NodePool,
    nodeclass: EC2NodeClass,
    snapshot: Snapshot,
    ledger: Ledger,
    catalog: Catalog,
    settings: NodeSettings,
    now: datetime,
    quotas: Sequence[Usage] | None = None,
    nodes_of_trial: int = 1,
) -> Template:
    """Return the template of a NodePool: what it may buy now. Its EC2NodeClass must be ready.

    `quotas` is the usage of each quota, if the caller has it already. `nodes_of_trial` is the same as in `pools`.
    """
    status = ledger.nodeclasses[nodeclass.name]
    configuration = NodeConfiguration.of(nodeclass, tenancies(pool, snapshot))
    learned_types = known_types(catalog, configuration, settings, status, ledger.learned)
    types = type_set(all_with_parts(attaching(learned_types, snapshot.attach_limits), pool.options.gpu_parts))
    if snapshot.nodeoverlays:
        types = overlays_of(snapshot, catalog, settings).on(pool, types)
    if snapshot.simulated is not None:
        types = snapshot.simulated.on(pool.name, types)
    group = status.placement_group
    if group is not None:
        types = types_of_group(types, group.strategy)
    room, ready = group_room(status, ledger.claims), usable(status, ledger, now)
    health = health_of(pool, ledger)
    backoffs = [*ledger.unavailable.items(), *(health.offerings.items() if health else ())]
    within = {"", group.id} if group else {""}
    closed = [
        replace(key, group="") if key.group else key
        for key, backoff in backoffs
        if backoff.holds(now) and key.group in within
    ]
    closed += ledger.exhausted(types.types, now)
    used, reservations = (
        _used_capacity(pool, snapshot, ledger.claims),
        free_reservations(status, ledger.claims),
    )
    hours = settings.interruption_cost_hours
    dearer = {key: risk.surcharge_percent(now, hours) for key, risk in ledger.risks.items()}
    risky = [(key, percent) for key, percent in dearer.items() if percent]

    def within_zones(zones: frozenset[str] | None) -> Template:
        offered = _in_zones(ready, zones)
        return template(
            pool, nodeclass, offered, types, snapshot.daemonsets, closed, used, reservations, risky
        )

    result = _first_with_choices(map(within_zones, open_zones(ready, ledger.claims, room)))
    result = limited(result, usages(snapshot, ledger, settings, now) if quotas is None else quotas)
    result = _limited_by_group(result, room)
    shifts = [str(shift) for zone, shift in sorted(ledger.shifted(now).items()) if _has_subnet(status, zone)]
    if shifts:
        obstacle = f"{result.obstacle}; {'; '.join(shifts)}" if result.obstacle else ""
        result = replace(result, obstacle=obstacle, shifted=tuple(shifts))
    return limited_to_trial(result, ledger, nodes_of_trial)


def tenancies(pool: NodePool, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the tenancies that its nodes may have: dedicated hardware only if the NodePool or pods require it."""
    if needs_dedicated(pool.requirements):
        return (DEDICATED_TENANCY,)
    allowed = pool.requirements.get(TENANCY, ANY_TENANCY)
    if allowed.allows(DEDICATED_TENANCY) and snapshot.asks_for_dedicated():
        return (*SHARED, DEDICATED_TENANCY)
    return SHARED


def _first_with_choices(templates: Iterable[Template]) -> Template:
    """Return the first template that can buy something, or else the last one."""
    for candidate in templates:
        if candidate.choices:
            break
    return candidate


def _in_zones(status: NodeClassStatus, zones: frozenset[str] | None) -> NodeClassStatus:
    if zones is None:
        return status
    return replace(status, subnets=tuple(subnet for subnet in status.subnets if subnet.zone in zones))


def _limited_by_group(unlimited: Template, room: Mapping[str, int]) -> Template:
    """Limit a NodePool to the instances that its placement group still admits in each zone."""
    full = sorted(zone for zone, vacancies in room.items() if not vacancies)
    group, obstacle = unlimited.status.placement_group, unlimited.obstacle
    if not room or group is None:
        return unlimited
    if obstacle and full:
        full_zones = ", ".join(full)
        obstacle += f"; placement group {group.name} has {MOST_SPREAD} instances in {full_zones}, EC2's limit"
    limits = Resources({group_limit(zone): vacancies for zone, vacancies in room.items() if vacancies})
    return replace(unlimited, remaining=unlimited.remaining + limits, obstacle=obstacle)


def _has_subnet(status: NodeClassStatus, zone: str) -> bool:
    return any(subnet.zone == zone for subnet in status.subnets)


def _used_capacity(pool: NodePool, snapshot: Snapshot, claims: Sequence[NodeClaim]) -> Resources:
    """Return the total capacity of a NodePool's nodes, including those in flight; `nodes` counts them.

    Bought nodes count with their capacity in the ledger: if a Node shows less, that must not make room for more nodes.
    """
    own_claims = [c for c in claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    claimed = {claim.provider_id for claim in claims if claim.provider_id}
    others = [node for node in snapshot.nodes_in(pool.name) if node.provider_id not in claimed]
    parts = [claim.capacity for claim in own_claims] + [node.capacity for node in others]
    return total(parts) + _ONE_NODE.times(len(parts))


def health_of(pool: NodePool, ledger: Ledger) -> RegistrationHealth | None:
    """Return the registration health of a NodePool in its current form; None if unknown."""
    status = ledger.nodeclasses.get(pool.nodeclass.name)
    return current_health(ledger.health.get(pool.name), basis_of(pool, status))


def trial_obstacle(pool: NodePool, ledger: Ledger, now: datetime) -> str:
    """Return why a NodePool may not buy now, if its nodes do not join or were not used; empty if it may."""
    if obstacle := breaker_obstacle(pool.name, ledger, now):
        return obstacle
    health = health_of(pool, ledger)
    if health is None or health.backoff is None:
        return ""
    if health.backoff.holds(now):
        return f"{_failed(health)}; tried again after {health.backoff.until:%H:%M:%S} UTC"
    trial = next((c.name for c in ledger.claims if c.nodepool == pool.name and c.phase in _UNDER_WAY), None)
    return f"{_failed(health)}; it is tried with one node, NodeClaim {trial}" if trial else ""


def breaker_obstacle(nodepool: str, ledger: Ledger, now: datetime) -> str:
    """Return why a NodePool may not buy now, if its nodes were not used; empty if it may.

    After the wait it is tried with one node, and with the next node once the first is used.
    """
    health = ledger.health.get(nodepool)
    if health is None or not health.launches.is_tripped:
        return ""
    breaker = health.launches
    if breaker.holds(now):
        return breaker.message(now)
    since = breaker.until or now
    trial = next((c.name for c in ledger.claims if c.nodepool == nodepool and _is_open(c, since)), None)
    return f"{breaker.message(now)}, NodeClaim {trial}" if trial else ""


def _is_open(claim: NodeClaim, since: datetime) -> bool:
    """Return whether a claim was bought since a time, and it is not known yet whether pods use it."""
    is_over = claim.phase is Phase.GIVEN_UP or claim.use in (USED, WITHDRAWN)
    return claim.bought_at >= since and not is_over and (bool(claim.nominated) or claim.phase in _UNDER_WAY)


def limited_to_trial(candidate: Template, ledger: Ledger, nodes: int = 1) -> Template:
    """Limit a NodePool to so many nodes if its nodes did not join or were not used."""
    reason = why_on_trial(candidate.pool, ledger)
    if not reason:
        return candidate
    nodes_left = min(nodes, candidate.remaining.get(NODES, nodes))
    reason = f"{reason}; it is tried with {'one node' if nodes == 1 else f'{nodes} nodes'} first"
    return replace(candidate, remaining=Resources({**candidate.remaining, NODES: nodes_left}), trial=reason)


def why_on_trial(pool: NodePool, ledger: Ledger) -> str:
    """Return why a NodePool buys one node at a time; empty if it does not."""
    recorded, health = ledger.health.get(pool.name), health_of(pool, ledger)
    if recorded is not None and recorded.launches.is_tripped:
        return recorded.launches.summary
    return _failed(health) if health is not None and health.backoff is not None else ""


def _failed(health: RegistrationHealth) -> str:
    number = len(health.endings)
    return f"{health.failures} of its last {number} nodes did not join ({health.reason}: {health.message})"
