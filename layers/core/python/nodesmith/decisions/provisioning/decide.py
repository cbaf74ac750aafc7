"""The provisioning decision, from start to end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from nodesmith.decisions.attempts import histories
from nodesmith.decisions.nomination import preempting_only
from nodesmith.decisions.provisioning.fairness import Shares, shared_out
from nodesmith.decisions.provisioning.nodepooltiers import Pools, pools
from nodesmith.decisions.provisioning.plan import Plan, PlannedNode, Unplaced
from nodesmith.decisions.provisioning.purchase.bought import Origin, written_down
from nodesmith.decisions.provisioning.purchase.order import Learned, Order, Purchase
from nodesmith.decisions.provisioning.purchase.purchase import buy
from nodesmith.decisions.provisioning.reasons.reasons import reason
from nodesmith.decisions.provisioning.reasons.remedies import by_rule, of_refusal
from nodesmith.decisions.provisioning.search.alternatives import Attempt, best
from nodesmith.decisions.provisioning.search.attempts import Repeating
from nodesmith.decisions.provisioning.search.lowerbound import least_price
from nodesmith.decisions.provisioning.search.moves import keep_for_sources, with_sources_closed
from nodesmith.decisions.provisioning.search.runningpods import sparing
from nodesmith.decisions.provisioning.search.unschedulable import unschedulable
from nodesmith.decisions.scheduling.assign import Known, assign
from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Assignment, by_shape
from nodesmith.decisions.scheduling.nodes.existing import (
    ExistingNode,
    by_age,
    existing_node_of,
    existing_nodes,
    is_going,
    nominations,
)
from nodesmith.decisions.scheduling.nodes.shiftedzones import outside, with_zones_cordoned
from nodesmith.decisions.scheduling.offerings.launchable import TemplateLaunching
from nodesmith.decisions.scheduling.offerings.unavailable import UnavailableDomains
from nodesmith.decisions.scheduling.pending import provisionable, unserved
from nodesmith.decisions.scheduling.preferences import PreferenceMode, has_preferences
from nodesmith.decisions.termination.protection import kept
from nodesmith.decisions.workloads import Workloads
from nodesmith.model.defaultspreads import with_default_spreads
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools, rebalances_zones
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.unschedulable import Reason
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.policies import PreferencePolicy
from nodesmith.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a decision may depend on. `decision` is its id, from which the claims' names are derived.

    `tried` lists pods that earlier decisions left without a node and that come after others: see `fairness.Shares`.
    With None the decision covers all pods, however long it takes.
    """

    snapshot: Snapshot
    ledger: Ledger
    catalog: Catalog
    settings: NodeSettings
    now: datetime
    decision: str
    tried: tuple[str, ...] | None = None


def decide(inputs: Inputs) -> Plan:
    """Decide which nodes to buy. Never raises, whatever a cluster contains."""
    away = inputs.ledger.shifted(inputs.now)
    claims = outside((c for c in inputs.ledger.claims if c.phase is not Phase.GIVEN_UP), away)
    observed = with_zones_cordoned(inputs.snapshot, away)
    seen = with_default_spreads(observed, inputs.settings.default_spreads)
    snapshot = with_sources_closed(without_ending(preempting_only(seen, claims), claims), inputs.ledger)
    going = frozenset(n.name for n in snapshot.nodes if is_going(n))
    wanted, ignored = provisionable(snapshot.pods, going, kept(snapshot, claims, inputs.now))
    if not wanted:
        return Plan(ignored=_unplaced(_told(ignored)), problems=snapshot.problems)
    nominated = nominations(claims, inputs.now)
    fresh, waiting = unserved(wanted, nominated)
    free = existing_nodes(snapshot, claims)
    keep_for_sources(free, snapshot, inputs.ledger)
    waiting, outdone = reserve(waiting, nominated, claims, free, snapshot)
    fresh += outdone
    names = Workloads()
    expecting = [(nominated[pod.key], pod) for pod in waiting]
    displaced = [pod for pod in fresh if not pod.node]
    fared = histories(displaced, expecting, inputs.ledger, snapshot, inputs.now, names)
    repeating = Repeating(fared, names, inputs.now)
    fresh, held = repeating.split(fresh)
    if not fresh:
        return Plan(
            waiting=_waiting(waiting, nominated),
            unplaced=_unplaced(held),
            ignored=_unplaced(_told(ignored)),
            problems=snapshot.problems,
            due=repeating.due(held),
        )
    shares = Shares(fresh) if inputs.tried is None else shared_out(fresh, inputs.tried)
    fresh = list(shares.chosen)
    offers = pools(snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    launching, learned = TemplateLaunching(offers.templates), Learned()
    policy, daemonsets = inputs.settings.preference_policy, snapshot.daemonsets
    there = [shape for existing in free for shape in (*existing.hosted, *existing.expected)]
    known = Known.of(dict(by_shape(fresh)), [*daemonsets, *there], launching, policy)

    def bought(assignment: Assignment, choices: Choices, quick: bool) -> Purchase:
        return _buy(offers, assignment, inputs, Order(inputs.settings, choices, known=learned, quick=quick))

    def bound(attempt: Attempt) -> float:
        return least_price(attempt, fresh, free, offers.templates, snapshot.daemonsets)

    def in_vain(pods: Iterable[Pod]) -> int:
        return unschedulable(pods, free, offers.templates)

    def decided(preference_mode: PreferenceMode) -> tuple[Attempt, float]:
        def assigned(choices: Choices, unavailable: UnavailableDomains) -> Assignment:
            mine, templates = [existing.copy() for existing in free], offers.templates
            return assign(
                fresh,
                mine,
                launching,
                templates,
                daemonsets,
                policy,
                choices,
                unavailable,
                known,
                preference_mode,
            )

        offerings = sum(len(template.type_options) for template in offers.templates)
        return best(len(fresh), offerings, assigned, bought, bound, in_vain)

    chosen, least = sparing(decided) if _spares(fresh, inputs) else decided(PreferenceMode.RULE)
    assignment, purchase = chosen.assignment, chosen.purchase
    nodes = repeating.noted(_written_down(purchase, inputs), fresh)
    bought_for = {key for node in nodes for key in node.claim.nominated}
    return Plan(
        nodes=nodes,
        placed={name: tuple(pods) for name, pods in sorted(assignment.placed.items())},
        waiting=_waiting(waiting, nominated),
        unplaced=_unplaced([*_stuck(chosen, offers), *_refused(purchase, offers), *shares.told(), *held]),
        ignored=_unplaced(_told(ignored)),
        obstacles=offers.obstacles,
        barren=offers.barren,
        problems=offers.problems,
        bound_hourly_usd=least,
        steps=purchase.steps,
        new=shares.new,
        tried=shares.tried_after(pod.key for pod in fresh if pod.key not in bought_for),
        due=repeating.due(held),
    )


def _waiting(pods: Iterable[Pod], nominated: Mapping[str, str]) -> dict[str, str]:
    return {pod.key: nominated[pod.key] for pod in pods}


def _spares(pods: Iterable[Pod], inputs: Inputs) -> bool:
    """Return whether some pods already run and have preferences that must cost nothing.

    Where zones are rebalanced, their preferences are kept: otherwise another move would have to correct the imbalance
    later.
    """
    if not any(pod.node and has_preferences(pod.shape) for pod in pods):
        return False
    respects = inputs.settings.preference_policy == PreferencePolicy.RESPECT
    return respects and not rebalances_zones(parsed_nodepools(inputs.snapshot.nodepools).values())


def without_ending(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Snapshot:
    """Return the snapshot with the Nodes of ending claims marked as being deleted, if it does not show that yet."""
    return without(snapshot, {claim.provider_id for claim in claims if claim.is_ending and claim.provider_id})


def without(snapshot: Snapshot, providers: Collection[str]) -> Snapshot:
    """Return the snapshot with the Nodes of these instances marked as being deleted."""
    if not providers:
        return snapshot
    nodes = tuple(replace(n, deleting=True) if n.provider_id in providers else n for n in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def reserve(
    waiting: Iterable[Pod],
    nominated: Mapping[str, str],
    claims: Sequence[NodeClaim],
    free: Sequence[ExistingNode],
    snapshot: Snapshot,
) -> tuple[list[Pod], list[Pod]]:
    """Reserve the capacity that claims were bought with for the pods they were bought for, oldest first.

    Return the pods that still wait, and the pods whose node is initialized but has no capacity left, because
    kube-scheduler does not know about reservations and gave it to others.
    """
    by_name = {claim.name: claim for claim in claims}
    found: dict[str, ExistingNode | None] = {}
    kept: list[Pod] = []
    outdone: list[Pod] = []
    for pod in by_age(waiting):
        claim = by_name[nominated[pod.key]]
        if claim.name not in found:
            found[claim.name] = existing_node_of(claim, free, snapshot)
        existing = found[claim.name]
        if existing is not None and not existing.in_flight and not existing.fits(pod.shape, 1):
            outdone.append(pod)
            continue
        if existing is not None:
            existing.take(pod.shape, 1)
        kept.append(pod)
    return kept, outdone


def _buy(offers: Pools, assignment: Assignment, inputs: Inputs, order: Order) -> Purchase:
    if inputs.ledger.cluster is None or not assignment.demands:
        return Purchase([list(tier) for tier in offers.tiers], left=assignment.demands)
    return buy(offers.tiers, assignment.demands, order)


def _written_down(purchase: Purchase, inputs: Inputs) -> tuple[PlannedNode, ...]:
    cluster = inputs.ledger.cluster
    return (
        () if cluster is None else written_down(purchase.nodes, Origin(inputs.decision, cluster, inputs.now))
    )


def _told(pods: Iterable[tuple[Pod, str]]) -> list[tuple[Pod, Reason]]:
    return [(pod, of_refusal(why)) for pod, why in pods]


def _stuck(attempt: Attempt, offers: Pools) -> list[tuple[Pod, Reason]]:
    """Return the pods that no node was demanded for.

    If an attempt to buy for them failed, its reason says most.
    """
    tried = {pod.shape: why for pod, why in _refused(attempt.tried, offers)} if attempt.tried else {}
    stuck = attempt.assignment.stuck
    return [(pod, tried.get(pod.shape) or by_rule(why)) for pods, why in stuck for pod in pods]


def _refused(purchase: Purchase, offers: Pools) -> list[tuple[Pod, Reason]]:
    templates = [t for tier in purchase.tiers for t in tier]
    found: list[tuple[Pod, Reason]] = []
    for demand in purchase.left:
        why = reason(demand, templates, offers.obstacles, purchase.refusals)
        found += [(pod, why) for pod in demand.pods]
    return found


def _unplaced(pods: Iterable[tuple[Pod, Reason]]) -> tuple[Unplaced, ...]:
    """Group pods by reason, in order of reason."""
    ordered = sorted(pods, key=lambda p: (p[1], p[0].key))
    return tuple(
        Unplaced(tuple(pod.key for pod, _ in group), why)
        for why, group in groupby(ordered, key=lambda p: p[1])
    )
