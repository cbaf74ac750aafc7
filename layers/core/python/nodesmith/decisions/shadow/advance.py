"""One step of a shadow: a fleet that exists only on paper lives through what happened in a cluster since the last look.

Pods that the cluster runs are put on the shadow's nodes, new ones are decided about as in a served cluster, and the
same search removes and replaces nodes. A pure function of the fleet, of what is seen, and of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import fsum

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs, Plan, decide
from nodesmith.decisions.shadow.actual import (
    LONGEST_STEP,
    View,
    actual,
    boot_shown,
    closing,
    faults_of,
    view_of,
    waiting,
)
from nodesmith.decisions.shadow.fleet import hourly_usd, lasting_claim, launched, types_of
from nodesmith.decisions.shadow.karpenter import first_fit_plan, one_command
from nodesmith.decisions.shadow.shadowstate import ShadowState
from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS
from nodesmith.model.costs.shadow import (
    ACTUAL,
    KARPENTER,
    NODESMITH,
    Assumptions,
    Fleet,
    PodLocation,
    Shadow,
    Tally,
    shortened_faults,
)
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot

RESTS = timedelta(minutes=10)
"""How long a search that found nothing is not repeated while nothing changes."""
SEARCH_EVERY, _NODES_A_SEARCH = timedelta(minutes=1), 100
"""How often a fleet of so many nodes is searched; larger ones less often in proportion, since a search takes longer."""
BOUND_EVERY = timedelta(hours=1)
_ROUND = timedelta(seconds=25)
"""Karpenter's pause between two searches and its second look, which together are the time of one command."""
_MOST_ROUNDS, _MOST_SEARCHED = 12, 1_500
"""The most searches of a step, and the most nodes that all of them look at: a function must end in time."""
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Policy:
    """The decisions of a shadow.

    `rounds` is True if a search finds one move at a time, `bounded` if the lower bound is kept beside what it costs.
    """

    name: str
    plan: Callable[[Inputs], Plan]
    search: Callable[[Inputs], Sequence[Proposal]]
    rounds: bool = False
    bounded: bool = False


def _proposals(inputs: Inputs) -> Sequence[Proposal]:
    return propose(inputs).proposals


def _command(inputs: Inputs) -> Sequence[Proposal]:
    command = one_command(inputs)
    return [command] if command is not None else []


OURS = Policy(NODESMITH, decide, _proposals, bounded=True)
KARPENTERS = Policy(KARPENTER, first_fit_plan, _command, rounds=True)
POLICIES = (OURS, KARPENTERS)


def advance(fleet: Fleet | None, view: View, policy: Policy) -> tuple[Fleet, Tally]:
    """Return the fleet at the time of the view, and what it came to since.

    Without a fleet, the shadow begins as a copy of the cluster's own nodes, as after a takeover.
    """
    life = _Deciding(fleet or Fleet(view.now), view, policy)
    if fleet is None:
        life.begin()
        life.provision()
    else:
        life.pay()
        life.grow()
        life.follow_pods()
        life.interrupt()
        life.provision()
        life.consolidate()
    if policy.bounded:
        life.bound()
    return life.ended()


def step(
    shadow: Shadow | None,
    snapshot: Snapshot,
    catalog: Catalog,
    settings: NodeSettings,
    now: datetime,
    *,
    assumed: Assumptions | None = None,
    policies: Sequence[Policy] = POLICIES,
) -> Shadow:
    """Return the shadows of a cluster at `now`, with what they and the cluster itself came to since the last step."""
    before = shadow or Shadow(snapshot.cluster, now, now)
    boot_seconds = boot_shown(snapshot) or before.boot_seconds
    view = view_of(snapshot, catalog, settings, now, boot_seconds, assumed)
    tallies: dict[str, Tally] = {}
    fleets = dict[str, Fleet]()
    for policy in policies:
        fleets[policy.name], tallies[policy.name] = advance(before.fleets.get(policy.name), view, policy)
    unpriced, seconds = 0.0, 0.0
    if shadow is not None:
        tallies[ACTUAL], unpriced = actual(before, snapshot, view)
        seconds = max(0.0, min(now - before.at, LONGEST_STEP).total_seconds())
    after = replace(
        before,
        at=now,
        fleets=fleets,
        waiting=waiting(view),
        closing=closing(view),
        boot_seconds=boot_seconds,
        faults=shortened_faults(faults_of(snapshot, view)),
    )
    return after.adding(seconds, tallies, unpriced)


def has_changed(before: Shadow | None, after: Shadow) -> bool:
    """Return whether more than time has passed between two steps: a later step makes up for one that is not kept."""
    if before is None or before.fleets.keys() != after.fleets.keys():
        return True
    if (before.waiting, before.closing, before.faults) != (after.waiting, after.closing, after.faults):
        return True
    return any(_lasting(before.fleets[name]) != _lasting(fleet) for name, fleet in after.fleets.items())


def _lasting(fleet: Fleet) -> Fleet:
    return replace(fleet, at=_NEVER, rested_at=None, searched_at=None, bound_hourly_usd=0.0, bounded_at=None)


class _Deciding(ShadowState):
    """A shadow whose policy decides about it."""

    def __init__(self, fleet: Fleet, view: View, policy: Policy) -> None:
        super().__init__(fleet, view, policy.name, is_bounded=policy.bounded)
        self._policy = policy

    def provision(self) -> None:
        """Place pods without a node, and buy nodes for the rest. Pods that get none keep their node in the cluster."""
        if self._waiting():
            inputs = self._inputs()
            plan = self._policy.plan(inputs)
            self._place(plan)
            types = types_of(inputs) if plan.nodes else {}
            for planned in plan.nodes:
                node, pool = launched(planned, types, self._now)
                self._buy(node, pool, planned.claim.nominated)
            self.grow()
        self._keep_current_nodes()
        for key in self._waiting():
            start = max(self._locations[key].since or self._since, self._since)
            self._add(unplaced_seconds=max(0.0, (self._now - start).total_seconds()))
        for claim in self._claims.values():
            for key in claim.nominated:
                location = self._locations.get(key)
                if location is not None and not location.node:
                    self._wait(location, self._now)

    def _place(self, plan: Plan) -> None:
        for name, keys in (plan.placed or {}).items():
            claim = self._claims[name]
            if claim.phase is not Phase.INITIALIZED:
                self._claims[name] = replace(claim, nominated=(*claim.nominated, *keys))
                continue
            for key in keys:
                self._locations[key] = PodLocation(self._locations[key].workload, name)
            self._touch(name)

    def _buy(self, node: Node, pool: str, nominated: tuple[str, ...]) -> None:
        """Buy a node for pods at the time at which a function would have, which is earlier than this step."""
        assumed = self._view.assumed
        asked_at = max((self._locations[key].since or self._now for key in nominated), default=self._now)
        if asked_at > self._now:  # the pods still run until the end of a notice
            asked_at = self._now
        bought_at = min(
            self._now, max(asked_at + timedelta(seconds=assumed.latency_seconds), self._before.at)
        )
        claim = self._claim(node, pool, bought_at, Phase.LAUNCHED)
        self._claims[claim.name] = replace(claim, nominated=nominated)
        ready_at = self._ready_at[claim.name] = bought_at + self._view.boot
        self._charge(
            self._price(claim), bought_at, self._now, spot=claim.capacity_type == SPOT, ready_at=ready_at
        )
        self._add(launches=1)
        self._changed()

    def _claim(self, node: Node, pool: str, at: datetime, phase: Phase) -> NodeClaim:
        """Return the claim of a bought node. It neither drifts nor expires, and its launch data is not kept."""
        claim = lasting_claim(node, pool, self._pools)
        return replace(
            claim,
            created_at=at,
            phase=phase,
            phase_since=at,
            launched_at=at,
            initialized_at=None if phase is Phase.LAUNCHED else at,
            requirements=NO_REQUIREMENTS,
            requests=NOTHING,
            provider_id=f"shadow:///{claim.name}",
            price_hourly_usd=hourly_usd(node.labels, self._view.inputs.catalog) or 0.0,
        )

    def _keep_current_nodes(self) -> None:
        """Let pods that no NodePool accepts run on a copy of the node that they have in the cluster."""
        homes = {observed.node.name: observed for observed in self._view.nodes if observed.price is not None}
        for key in self._waiting():
            home = homes.get(self._pods[key].node)
            if home is None or self._pods[key].deleting:
                continue
            name = home.node.name
            if name not in self._claims:
                self._adopt(home)
            self._locations[key] = PodLocation(self._locations[key].workload, name)
            self._touch(name)

    def consolidate(self) -> None:
        """Carry out what the search finds. Nodes that pods leave are paid for until others have taken over."""
        if self._rested_at is not None and self._now - self._rested_at < RESTS:
            return
        pause = SEARCH_EVERY * (len(self._claims) / _NODES_A_SEARCH)
        if self._searched_at is not None and self._now - self._searched_at < pause:
            return
        self._searched_at = self._now
        rounds = int(self._policy.rounds and (self._now - self._since) / _ROUND)
        affordable = min(_MOST_ROUNDS, _MOST_SEARCHED // max(1, len(self._claims)))
        for _ in range(max(1, min(rounds, affordable))):
            inputs = self._inputs()
            proposals = self._policy.search(inputs)
            if not proposals:
                self._rested_at = self._now
                return
            types = types_of(inputs)
            for proposal in proposals:
                self._move(proposal, types)

    def _move(self, proposal: Proposal, types: Mapping[tuple[str, str], InstanceType]) -> None:
        now, assumed = self._now, self._view.assumed
        for planned in proposal.replacements:
            node, pool = launched(planned, types, now)
            self._claims[node.name] = self._claim(node, pool, now, Phase.INITIALIZED)
            self._ready_at.pop(node.name, None)
            self._add(launches=1)
        for key, name in proposal.destinations.items():
            if key in self._locations:
                self._locations[key] = PodLocation(self._locations[key].workload, name)
        self._add(evictions=len(proposal.destinations))
        overlap = self._view.boot if proposal.replacements else timedelta()
        if proposal.destinations:
            overlap += timedelta(seconds=assumed.drain_seconds)
        for name in proposal.sources:
            self._leave(self._claims[name], now + overlap)
        for name in {*proposal.destinations.values(), *(p.claim.name for p in proposal.replacements)}:
            if name in self._claims:
                self._touch(name)

    def bound(self) -> None:
        """Find what all pods would cost at least, from time to time."""
        if self._bounded_at is not None and self._now - self._bounded_at < BOUND_EVERY:
            return
        ready = {c.name for c in self._claims.values() if c.phase is Phase.INITIALIZED}
        plan = decide(self._inputs(going=ready))
        placed = {key for node in plan.nodes for key in node.claim.nominated}
        placed |= {key for keys in (plan.placed or {}).values() for key in keys}
        used = {
            location.node
            for key, location in self._locations.items()
            if location.node in ready and key not in placed
        }
        kept_usd = fsum(self._price(self._claims[name]) for name in sorted(used))
        coming = fsum(self._price(c) for c in self._claims.values() if c.name not in ready)
        self._bound = min(plan.bound_hourly_usd, plan.price_hourly_usd) + kept_usd + coming
        self._bounded_at = self._now
