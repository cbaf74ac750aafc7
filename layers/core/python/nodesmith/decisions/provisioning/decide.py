"""The provisioning decision from start to end, its rehearsal, and its replay.

A rehearsal decides about made-up pods, so that the caches are filled before the first real decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from typing import Any

from nodesmith.decisions.budgets import is_open, next_turn, opens_from
from nodesmith.decisions.provisioning.alternatives import cheapest
from nodesmith.decisions.provisioning.attempts import Repeating, histories
from nodesmith.decisions.provisioning.buffers.resolutions import next_window
from nodesmith.decisions.provisioning.buffers.room import Remainder, with_room
from nodesmith.decisions.provisioning.buffers.warmcapacity import Starting, next_need, started
from nodesmith.decisions.provisioning.clusterstate import (
    Reserved,
    effective_snapshot,
    living_claims,
    needs,
    reserved,
    with_sources_closed,
)
from nodesmith.decisions.provisioning.fairness import Shares, shared_out
from nodesmith.decisions.provisioning.growth import (
    exhausts_limits,
    judging,
    planned,
    put_off,
    with_planned,
    with_planned_places,
)
from nodesmith.decisions.provisioning.nodepools.tiers import pools
from nodesmith.decisions.provisioning.nodepools.withouttypes import without_types
from nodesmith.decisions.provisioning.plan import (
    Inputs,
    Plan,
    Unplaced,
    inputs_of,
    of_delay,
    plan_item,
)
from nodesmith.decisions.provisioning.planner import Planner, Search, takes_much_of_limits
from nodesmith.decisions.provisioning.reasons import left_of, of_refusal
from nodesmith.decisions.scheduling.demands import by_shape, delayed
from nodesmith.decisions.scheduling.offerings.options import TypeOptions
from nodesmith.decisions.scheduling.offerings.quotas import freed_at
from nodesmith.decisions.scheduling.preferences import PreferenceMode, has_preferences
from nodesmith.decisions.scheduling.topology.mergednodes import condensed
from nodesmith.decisions.scheduling.workloads import Workloads, splits_for
from nodesmith.model.apimachinery.frozen import canonical
from nodesmith.model.apimachinery.labels import ZONE, Toleration
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.apimachinery.times import first, first_after
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools, rebalances_zones
from nodesmith.model.kubernetes.pods import Pod, Reason, Shape, Spread
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.policies import PreferencePolicy
from nodesmith.model.snapshot import Snapshot

_BEFORE_LAUNCH = frozenset({Phase.PENDING, Phase.STARTING, Phase.GIVEN_UP})


def decide(inputs: Inputs, by: type[Planner] = Planner) -> Plan:
    """Decide which nodes to buy. Never raises, whatever a cluster contains. `by` may be a special kind of planner."""
    coming = planned(inputs)
    current = with_planned(inputs)
    plan, remainder = _for_pods(current, by)
    is_late = bool(coming) and exhausts_limits(coming, plan)
    if is_late:
        current = inputs
        plan, remainder = _for_pods(current, by)
    if inputs.snapshot.capacitybuffers:
        plan = with_room(plan, remainder, current)
    if not coming:
        return plan
    return (
        put_off(coming, plan)
        if is_late
        else with_planned_places(coming, plan, {c.name for c in inputs.ledger.claims})
    )


def _for_pods(inputs: Inputs, by: type[Planner]) -> tuple[Plan, Remainder]:
    snapshot = with_sources_closed(effective_snapshot(inputs), inputs.ledger)
    demand = needs(snapshot, inputs)
    idle = Plan(ignored=_unplaced(_with_reasons(demand.ignored)), problems=snapshot.problems)
    if not demand.wanted:
        return idle, Remainder()
    capacity = reserved(snapshot, demand.wanted, inputs)
    idle = replace(idle, waiting={pod.key: capacity.nominated[pod.key] for pod in capacity.waiting})
    repeating = _repeating(capacity, snapshot, inputs)
    fresh, held, due = _split_by_delay(capacity.fresh, repeating, inputs.now)
    if not fresh:
        return replace(idle, unplaced=_unplaced(held), due=due), Remainder()
    shares = Shares(fresh) if inputs.tried is None else shared_out(fresh, inputs.tried)
    splits = splits_for(shares.chosen, snapshot, living_claims(inputs), inputs.now)
    split = splits.narrowed(shares.chosen)
    fresh = split.pods
    offers = pools(snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    starting = Starting(inputs)
    shapes = dict(by_shape(fresh))
    known_shapes = dict.fromkeys(
        shape for node in (*capacity.free, *starting.nodes()) for shape in (*node.hosted, *node.expected)
    )
    planner = by(inputs, offers, shapes, known_shapes)
    free = condensed(capacity.free, shapes.keys(), known_shapes)
    if starting.is_possible:
        free = [*free, *starting.nodes_to_start(fresh, free, planner)]
    search = Search(planner, fresh, free, bounded=True)
    attempt, bounds = (
        cheapest(search.best) if _has_preferences(fresh, inputs) else search.best(PreferenceMode.RULE)
    )
    nodes = planner.written_down(attempt.purchase, repetition_of=repeating.repetition_of())
    nodes, placed, starts = started(starting, nodes, attempt.assignment.placed, fresh, repeating)
    bought_for = {key for claim in (*(node.claim for node in nodes), *starts) for key in claim.nominated}
    stuck = ((pod, split.explained(pod, refusal)) for pod, refusal in left_of(attempt, offers))
    unserved = [*stuck, *shares.reasons(), *held]
    all_usages = chain.from_iterable(template.usages for template in planner.templates)
    freed = freed_at((refusal for _, refusal in unserved), all_usages, inputs.ledger, inputs.now)
    due = first((due, freed, _opening(snapshot, inputs.ledger, inputs.now) if unserved else None))
    is_limited = takes_much_of_limits(planner.templates, chain.from_iterable(attempt.purchase.tiers))
    plan = replace(
        idle,
        nodes=nodes,
        placed=placed,
        starts=starts,
        unplaced=_unplaced(unserved),
        obstacles=offers.obstacles,
        without_types=without_types(offers, inputs.settings.min_values_policy),
        problems=(*offers.problems, *splits.problems),
        bound_hourly_usd=bounds.price_hourly_usd,
        cost_bound_hourly_usd=bounds.cost_hourly_usd,
        fewest=bounds.nodes,
        weights=("kept" if bounds.keeps_weights else "disregarded") if len(offers.tiers) > 1 else "",
        limits="disregarded" if is_limited and bounds.price_hourly_usd else "",
        steps=attempt.purchase.steps,
        new=shares.new,
        tried=shares.tried_after(pod.key for pod in fresh if pod.key not in bought_for),
        due=due,
    )
    return plan, Remainder(tuple(map(tuple, attempt.purchase.tiers)), planner, offers)


def _split_by_delay(
    pods: Sequence[Pod], repeating: Repeating, now: datetime
) -> tuple[list[Pod], list[tuple[Pod, Reason]], datetime | None]:
    """Return the pods to place now, the pods that must wait, each with the reason, and when the first wait ends."""
    old_enough, young = delayed(pods, now)
    ready, held = repeating.split(old_enough)
    due = first((repeating.due(held), *(until for _, until in young)))
    return ready, [*held, *((pod, of_delay(pod, until)) for pod, until in young)], due


def _opening(snapshot: Snapshot, ledger: Ledger, now: datetime) -> datetime | None:
    """Return when the first NodePool that is closed by its schedule or breaker opens; None if none is closed."""
    closed = (pool for pool in parsed_nodepools(snapshot.nodepools).values() if not is_open(pool, now))
    waits = (health.launches.until for health in ledger.health.values())
    return first((*(opens_from(pool, now) for pool in closed), first_after(now, waits)))


def _repeating(capacity: Reserved, snapshot: Snapshot, inputs: Inputs) -> Repeating:
    """Return the records of nodes that were bought earlier for pods without a node."""
    names = Workloads()
    expecting = [(capacity.nominated[pod.key], pod) for pod in capacity.waiting]
    displaced = judging((pod for pod in capacity.fresh if not pod.node), names)
    records = histories(displaced, expecting, inputs.ledger, snapshot, inputs.now, names)
    return Repeating(records, names, inputs.now, inputs.ledger)


def _has_preferences(pods: Iterable[Pod], inputs: Inputs) -> bool:
    """Return whether some pods already run and have preferences that must cost nothing.

    If zones are rebalanced, their preferences are kept: otherwise another move would have to correct the imbalance
    later.
    """
    if not any(pod.node and has_preferences(pod.shape) for pod in pods):
        return False
    respects = inputs.settings.preference_policy == PreferencePolicy.RESPECT
    return respects and not rebalances_zones(parsed_nodepools(inputs.snapshot.nodepools).values())


def _with_reasons(pods: Iterable[tuple[Pod, str]]) -> list[tuple[Pod, Reason]]:
    return [(pod, of_refusal(message)) for pod, message in pods]


def _unplaced(pods: Iterable[tuple[Pod, Reason]]) -> tuple[Unplaced, ...]:
    """Group pods by reason, in order of reason."""
    ordered = sorted(pods, key=lambda p: (p[1], p[0].key))
    return tuple(
        Unplaced(tuple(pod.key for pod, _ in group), refusal)
        for refusal, group in groupby(ordered, key=lambda p: p[1])
    )


def next_change(inputs: Inputs) -> datetime | None:
    """Return when time alone gives provisioning something to do while no pod waits for a node; None for never.

    While instances are being launched or pods are about to leave nodes, that is now. Otherwise it is when a static
    NodePool opens by its schedule, or one with stopped instances opens or closes, a CapacityBuffer's schedule begins or
    ends, its stopped instances must be replaced, or an offering becomes available again, which metrics report.
    """
    claims, nodes = inputs.ledger.claims, inputs.snapshot.nodes
    coming = any(claim.phase in _BEFORE_LAUNCH for claim in claims)
    if coming or any(claim.is_ending for claim in claims) or any(node.deleting for node in nodes):
        return inputs.now
    warm = {claim.nodepool for claim in claims if claim.is_warm}
    pools = parsed_nodepools(inputs.snapshot.nodepools).values()
    scheduled = (pool for pool in pools if pool.is_static or pool.name in warm)
    ends = (backoff.until for backoff in inputs.ledger.unavailable.values())
    times = (
        next_turn(scheduled, inputs.now),
        next_window(inputs.snapshot, inputs.now),
        next_need(inputs.snapshot, claims, inputs.now),
    )
    return first_after(inputs.now, (*times, *ends))


_PODS = 3
_LABELS = {"app": "rehearsal"}
_PLAIN = Shape(
    "default",
    _LABELS,
    "ReplicaSet/rehearsal",
    parse_resources({"cpu": "1", "memory": "2Gi", "pods": "1"}),
    tolerations=(Toleration(operator="Exists"),),
)
_SELECTOR = parse_selector({"matchLabels": _LABELS})
_SHAPES = (_PLAIN, replace(_PLAIN, spreads=(Spread(ZONE, 1, hard=False, selector=_SELECTOR),)))


class Rehearsal:
    """Decides for some pods, with and without a spread over zones, as if there were no node.

    A first decision spends most of its time on resolving instance types and finding the cheapest candidates among them.
    These results are kept with the offers, so the same offers are rehearsed only once.
    """

    def __init__(self, by: Callable[[Inputs], object] = decide) -> None:
        self._decide = by
        self._rehearsed: tuple[TypeOptions, ...] = ()

    def __call__(self, inputs: Inputs) -> None:
        """Rehearse, unless the last rehearsal had the same offers."""
        snapshot, ledger = inputs.snapshot, inputs.ledger
        offers = pools(snapshot, ledger, inputs.catalog, inputs.settings, inputs.now).templates
        options = tuple(offer.type_options for offer in offers)
        if options == self._rehearsed:
            return
        self._rehearsed = options
        for shape in _SHAPES:
            pods = tuple(
                Pod(f"default/rehearsal-{n}", shape, inputs.now, unschedulable=True) for n in range(_PODS)
            )
            made_up = replace(snapshot, pods=pods, nodes=(), grown=())
            self._decide(replace(inputs, snapshot=made_up, ledger=replace(ledger, claims=())))


def replay(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> bytes:
    """Repeat the decision; return its plan in the same canonical bytes as `canonical(written["plan"])`."""
    return canonical(plan_item(decide(inputs_of(written, snapshot, catalog))))
