"""The life of a simulated cluster, from one event to the next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nodesmith.decisions.disruption.expiration import expired, out_of_schedule
from nodesmith.decisions.disruption.search.search import next_change, next_search, propose
from nodesmith.decisions.provisioning import Inputs, decide, replicas
from nodesmith.decisions.provisioning.nodepools.static import surplus
from nodesmith.decisions.termination.beginning import to_end
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.pods import PodAffinityTerm, Shape
from nodesmith.model.policies import PreferencePolicy
from nodesmith_local.simulation.cluster import Cluster, Run
from nodesmith_local.simulation.fleet import STOPS_AFTER, Fleet
from nodesmith_local.simulation.moves import Moves
from nodesmith_local.simulation.trace import Chances, Slot, Trace

IDLE, LONGEST = timedelta(seconds=1), timedelta(seconds=10)
"""How the forwarder batches pending pods: until a second without a new one, ten seconds at most."""
QUIET = timedelta(minutes=30)
"""The time between searches for moves while nothing changes."""
ROUTINE = timedelta(minutes=5)
"""How often nodes are checked for expiration, schedules and the replicas of static NodePools, and how often pods that
got no node are decided about although nothing has changed.
"""
_CONCERNS = ("provision", "end", "disrupt", "routine")
OnProgress = Callable[[float], None]


@dataclass(slots=True)
class Simulation:
    """One life of a trace with one seed. `on_progress` is called with the share of the time that has passed."""

    trace: Trace
    seed: int = 0
    chances: Chances = field(default_factory=Chances)
    on_progress: OnProgress = lambda _: None
    cluster: Cluster = field(init=False)
    fleet: Fleet = field(init=False)
    moves: Moves = field(init=False)
    searches: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    """Why pods got no node, by reason, with the number of pods at the end."""
    _events: list[tuple[datetime, int, Callable[[], None]]] = field(default_factory=list)
    _order: Any = field(default_factory=count)
    _due: dict[str, datetime] = field(default_factory=dict)
    _arrivals: tuple[datetime | None, datetime] | None = None
    _searched: tuple[int, datetime] | None = None
    _search_again: datetime | None = None
    _looked_at: Mapping[str, datetime] = field(default_factory=dict)
    _anti_affinities: Sequence[PodAffinityTerm] = ()
    """The required anti-affinity of all pods of the trace and of those before it."""
    _kept_away: dict[Shape, bool] = field(default_factory=dict)
    """Whether any of these may keep pods of a shape from a node."""

    def __post_init__(self) -> None:
        """Prepare the beginning: its nodes, the pods on them, and the arrivals of the others."""
        self.cluster = Cluster(self.trace, self.trace.start)
        self.fleet = Fleet(
            self.cluster, self.seed, self.chances, self.later, self.wake, self._lose, self._place
        )
        self.moves = Moves(self.fleet)
        shapes = {slot.shape for slot in self.trace.slots} | {
            pod.shape for pod in self.cluster.base.snapshot.pods
        }
        self._anti_affinities = tuple(
            {rule for shape in shapes for rule in shape.affinities if rule.anti and not rule.weight}
        )
        for slot in self.trace.slots:
            self._expect(slot)
        self.fleet.plan_interruptions()
        for concern in _CONCERNS:
            self.wake(concern, self.trace.start)

    def run(self) -> dict[str, Any]:
        """Replay the trace, and return its costs as JSON data."""
        last, end = -1.0, self.trace.end
        while (moment := self._next()) < end:
            self.cluster.now = moment
            while self._events and self._events[0][0] <= moment:
                heapq.heappop(self._events)[2]()
            for concern in _CONCERNS:
                if self._due.get(concern, end) <= moment:
                    del self._due[concern]
                    self._work(concern)
            share = (moment - self.trace.start) / self.trace.span
            if share - last >= 0.01:
                self.on_progress(share)
                last = share
        self.cluster.now = end
        return self._outcome()

    def later(self, time: datetime, action: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._events, (time, next(self._order), action))

    def wake(self, concern: str, time: datetime) -> None:
        """Let a concern work at a time, or earlier if it is due earlier."""
        self._due[concern] = min(time, self._due.get(concern, time))

    def _next(self) -> datetime:
        moments = [*self._due.values(), *(event[0] for event in self._events[:1])]
        return min(moments, default=self.trace.end)

    def _work(self, concern: str) -> None:
        match concern:
            case "provision":
                self._provision()
            case "end":
                self.fleet.drain()
            case "disrupt":
                self._disrupt()
            case _:
                self._routine()

    # Pods

    def _expect(self, slot: Slot) -> None:
        run = Run(slot)
        if slot.arrives <= self.trace.start:
            self._arrive(run)
            if slot.node and slot.node in self.cluster.nodes:
                self.cluster.bind(run.key, slot.node)
                self._bound(run)
        else:
            self.later(slot.arrives, lambda: self._arrive(run))
        if slot.ends is not None and slot.runs is None:
            first, last = slot.ends
            time = first + (last - first) * self.fleet.draw("end", slot.key)
            self.later(max(time, slot.arrives), lambda: self._finish(run))

    def _arrive(self, run: Run) -> None:
        self.cluster.begin(run)
        now = self.cluster.now
        first = self._arrivals[0] if self._arrivals is not None else None
        self._arrivals = first or now, now
        self.wake("provision", now + IDLE)

    def _bound(self, run: Run) -> None:
        if run.slot.runs is not None:
            number = run.number
            time = self.cluster.now + run.slot.runs
            self.later(time, lambda: self._finish(run) if run.number == number and run.bound_at else None)

    def _finish(self, run: Run) -> None:
        """End a slot for good."""
        if run.is_over:
            return
        run.is_over = True
        self.cluster.take_away(run.key)
        self._room_came()

    def _room_came(self) -> None:
        """Wake what goes on when a pod has left its node."""
        concerns = ("disrupt", "end", "provision") if self.cluster.waits else ("disrupt", "end")
        for concern in concerns:
            self.wake(concern, self.cluster.now)

    def _lose(self, key: str) -> None:
        """End an evicted pod; its slot continues with a new one, at once or after the old one's end if names recur."""
        run, pod = self.cluster.runs.get(key), self.cluster.pods[key]
        time = pod.deletion_at or self.cluster.now + STOPS_AFTER
        self.later(time, lambda: self._gone(key, run))
        if run is not None and run.slot.comes_back and not pod.shape.comes_back:
            self._detach(key, run)
            self._arrive(run)

    def _detach(self, key: str, run: Run) -> None:
        """Let an ending pod stay on its node without its slot, and charge its workload for the time so far."""
        pod = self.cluster.pods[key]
        self.cluster.take_away(key)
        self.cluster.leave_behind(pod)
        run.bound_at = None

    def _gone(self, key: str, run: Run | None) -> None:
        self.cluster.take_away(key)
        if run is not None and not run.is_over and run.key == key:
            if run.slot.comes_back:
                self._arrive(run)
            else:
                run.is_over = True
        self._room_came()

    # Decisions

    def _provision(self) -> None:
        """Decide about the waiting pods, after a second without a new one."""
        now = self.cluster.now
        if self._arrivals is not None:
            first, last = self._arrivals
            if now - last < IDLE and first is not None and now - first < LONGEST:
                self.wake("provision", min(last + IDLE, first + LONGEST))
                return
            self._arrivals = None
        self._schedule()
        if not self._has_work():
            return
        inputs = self.cluster.inputs()
        plan = decide(inputs)
        self._place_all(plan.placed)
        self.fleet.buy(plan.nodes)
        self.problems = {group.reason: len(group.pods) for group in plan.unplaced}
        if plan.due is not None:
            self.wake("provision", max(plan.due, now + IDLE))
        elif plan.unplaced:
            self.wake("provision", now + ROUTINE)
        if plan.nodes:
            self.wake("end", now)

    def _has_work(self) -> bool:
        snapshot = self.cluster.base.snapshot
        is_ending = any(claim.is_ending for claim in self.cluster.claims.values())
        return bool(self.cluster.waits) or is_ending or bool(snapshot.capacitybuffers)

    def _schedule(self) -> None:
        """Bind the pods that fit on a node, as kube-scheduler does before anything is decided.

        Pods with preferences, or with rules about other pods such as spreads, or that rules of others concern, are
        placed by a decision that can buy nothing: it knows these rules. To kube-scheduler, a preference never keeps a
        pod from a node.
        """
        needs_decision = False
        for key in list(self.cluster.waits):
            shape = self.cluster.pods[key].shape
            if not _is_plain(shape) or self._is_kept_away(shape):
                needs_decision = True
                continue
            name = self.cluster.place_for(shape)
            if name:
                self._place(key, name)
        if needs_decision and self.cluster.nodes:
            self._place_all(decide(_without_purchases(self.cluster.inputs("schedule"))).placed)

    def _is_kept_away(self, shape: Shape) -> bool:
        if shape not in self._kept_away:
            self._kept_away[shape] = any(rule.selects(shape) for rule in self._anti_affinities)
        return self._kept_away[shape]

    def _place_all(self, placed: Mapping[str, Sequence[str]] | None) -> None:
        """Bind pods to the nodes on which a decision has placed them, as far as these have joined."""
        for name, keys in (placed or {}).items():
            if name in self.cluster.nodes:
                for key in keys:
                    self._place(key, name)

    def _place(self, key: str, node: str) -> None:
        run = self.cluster.runs.get(key)
        if run is not None and run.waits_since is not None:
            self.cluster.bind(key, node)
            self._bound(run)

    def _disrupt(self) -> None:
        """Carry on moves, and search for new ones if something has changed and the last search is long enough ago."""
        self.moves.carry_on()
        now = self.cluster.now
        if self._searched is not None:
            changes, time = self._searched
            rested = time + self.chances.search_every
            if now < rested:
                self.wake("disrupt", rested)
                return
            if changes == self.cluster.changes and self._search_again and now < self._search_again:
                self.wake("disrupt", self._search_again)
                return
        inputs = self.cluster.inputs()
        proposals = propose(inputs, self._looked_at)
        self.searches += 1
        self._looked_at = proposals.looked_at
        self._searched = self.cluster.changes, now
        self.moves.propose(proposals.proposals, inputs)
        self._search_again = (
            now if proposals.proposals or not proposals.is_finished else _search_again(inputs)
        )
        self.wake("disrupt", max(self._search_again, now + self.chances.search_every))

    def _routine(self) -> None:
        """Let old nodes end, and give static NodePools the nodes that they should have."""
        self.wake("routine", self.cluster.now + ROUTINE)
        inputs = self.cluster.inputs("routine")
        pools, now = parsed_nodepools(inputs.snapshot.nodepools), inputs.now
        ending = to_end(inputs.ledger.claims, inputs.snapshot, now)
        ending += expired(inputs.ledger, inputs.snapshot, pools, now)
        ending += out_of_schedule(inputs.ledger, inputs.snapshot, pools, now, ending)
        ending += surplus(inputs.ledger.claims, inputs.snapshot, pools, now)
        if ending:
            self.fleet.end(end.claim for end in ending)
        if any(pool.is_static for pool in pools.values()):
            self.fleet.buy(replicas(inputs)[0])

    def _outcome(self) -> dict[str, Any]:
        cluster = self.cluster
        if not cluster.waits:
            self.problems = {}
        cluster.settle()
        total = cluster.all
        return {
            "seed": self.seed,
            "usd": total.usd,
            "pendingSeconds": total.pending_seconds,
            "evictions": total.evictions,
            "evictionsByCause": dict(sorted(self.fleet.evictions.items())),
            "interruptions": self.fleet.interruptions,
            "pods": total.pods,
            "nodesLaunched": cluster.launched,
            "nodeHours": math.fsum(hours for _, hours in cluster.of_pool.values()),
            "spotHours": float(cluster.of_capacity["spot"]),
            "podsWithoutNode": sum(self.problems.values()),
            "reasons": dict(sorted(self.problems.items())),
            "nodepools": {
                name: {"usd": usd, "nodeHours": hours}
                for name, (usd, hours) in sorted(cluster.of_pool.items())
            },
            "workloads": {
                name: {
                    "usd": tally.usd,
                    "pendingSeconds": tally.pending_seconds,
                    "evictions": tally.evictions,
                    "pods": tally.pods,
                }
                for name, tally in sorted(cluster.of_workload.items())
            },
            "searches": self.searches,
            "decisions": cluster.decisions,
        }


def _search_again(inputs: Inputs) -> datetime:
    """Return when to search again without a change: when a wait ends, or when a move may have become worth its cost.

    Moves become worth a little more all the time. The deployed function looks at that every few minutes.
    """
    quiet = inputs.now + QUIET
    worth = next_search(inputs) or quiet
    return min(next_change(inputs) or quiet, max(worth, quiet))


def _without_purchases(inputs: Inputs) -> Inputs:
    """Return inputs with which pods are only placed on existing nodes, whatever they prefer."""
    settings = replace(inputs.settings, preference_policy=PreferencePolicy.IGNORE)
    return replace(inputs, snapshot=replace(inputs.snapshot, nodepools=()), settings=settings)


def _is_plain(shape: Shape) -> bool:
    """Return whether where a pod may go depends on nodes alone, not on other pods or on preferences."""
    constraints = shape.spreads, shape.affinities, shape.host_ports, shape.claims, shape.preferred_terms
    return not any(constraints) and not shape.refusal
