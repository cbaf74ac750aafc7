"""The simulated cluster as values: pods, nodes and claims, what they cost, and the snapshot that decisions see."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodesmith.decisions.disruption.costs import price_of
from nodesmith.decisions.provisioning import Inputs, decision_id
from nodesmith.decisions.scheduling.compatibility import label_refusal
from nodesmith.decisions.scheduling.existing import awaited_daemons
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    HOSTNAME,
    INITIALIZED,
    REGISTERED,
    first_untolerated,
    is_ephemeral,
)
from nodesmith.model.apimachinery.quantities import Resources, total
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, amount_of
from nodesmith.model.kubernetes.nodes import Condition, Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.ledger import RATE_WINDOW, Departure
from nodesmith.model.ledger.moves import Move
from nodesmith.model.snapshot import Snapshot
from nodesmith_local.simulation.trace import Slot, Trace

LEAST_BILLED = timedelta(minutes=1)
"""EC2 bills by the second, but at least a minute."""
_HOUR = timedelta(hours=1)


@dataclass(slots=True)
class Tally:
    """The results of a simulation, in total and for one workload. A workload pays for its requests on its nodes."""

    usd: float = 0.0
    pending_seconds: float = 0.0
    evictions: int = 0
    pods: int = 0


@dataclass(slots=True)
class Run:
    """The state of a slot: its present pod, since when that waits or runs, and where. `number` counts its pods."""

    slot: Slot
    key: str = ""
    number: int = 0
    waits_since: datetime | None = None
    bound_at: datetime | None = None
    is_over: bool = False


@dataclass(slots=True)
class Cluster:
    """Everything that exists. Methods change it, and `inputs` returns what a decision is made from."""

    trace: Trace
    now: datetime
    base: Inputs = field(init=False)
    pods: dict[str, Pod] = field(default_factory=dict)
    on: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Node → the keys of its pods, in the order of arrival."""
    nodes: dict[str, Node] = field(default_factory=dict)
    claims: dict[str, NodeClaim] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    """Pod → the state of its slot. Pods of DaemonSets and static pods have none."""
    departures: list[Departure] = field(default_factory=list)
    changes: int = 0
    """Grows with every change that a search for moves may depend on."""
    decisions: int = 0
    all: Tally = field(default_factory=Tally)
    of_workload: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    of_pool: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    """NodePool → USD, and hours of nodes."""
    of_capacity: Counter[str] = field(default_factory=Counter)
    """Hours of nodes by capacity type."""
    launched: int = 0
    started: dict[str, datetime] = field(default_factory=dict)
    """Claim → since when its instance is billed."""
    owners: dict[str, str] = field(default_factory=dict)
    """Node → its claim."""
    waits: dict[str, None] = field(default_factory=dict)
    """The pods that wait for a node, in the order of arrival."""
    room: dict[str, Resources] = field(default_factory=dict)
    """Node → its resources that neither pods nor DaemonSets request."""
    _admitted: dict[tuple[int, str], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the nodes of the trace, at the prices of its catalogue."""
        self.base = self.trace.inputs
        base = self.base.snapshot
        for pod in base.pods:
            self.pods[pod.key] = pod
            self.on[pod.node][pod.key] = None
        for node in base.nodes:
            self.nodes[node.name] = node
            self._make_room(node)
        for claim in self.base.ledger.claims:
            home = base.node_of(claim)
            price = price_of(claim, home, self.base.catalog) if home is not None else 0.0
            self.claims[claim.name] = replace(claim, price_hourly_usd=price or claim.price_hourly_usd)
            self.started[claim.name] = self.now
            if home is not None:
                self.owners[home.name] = claim.name

    # What decisions see

    def inputs(self, about: str = "") -> Inputs:
        """Return the inputs of a decision now."""
        self.decisions += 1
        base_ledger, decision = (
            self.base.ledger,
            decision_id(f"{self.decisions}{about}", self.decisions, self.now),
        )
        ledger = replace(
            base_ledger,
            version=self.decisions,
            claims=tuple(self.claims[name] for name in sorted(self.claims)),
            moves=tuple(self.moves.values()),
            departures=tuple(
                departure for departure in self.departures if self.now - departure.at < RATE_WINDOW
            ),
        )
        return replace(
            self.base, snapshot=self.snapshot(), ledger=ledger, now=self.now, decision=decision, tried=None
        )

    def snapshot(self) -> Snapshot:
        """Return the cluster as the forwarder would show it now."""
        base = self.base.snapshot
        return replace(
            base,
            taken_at=self.now,
            pods=tuple(self.pods.values()),
            nodes=tuple(self.nodes.values()),
            budgets=tuple(self._budgets(base.budgets)),
            nodeclaims=tuple(
                nodeclaim for nodeclaim in base.nodeclaims if nodeclaim["metadata"]["name"] in self.claims
            ),
        )

    def _budgets(self, budgets: Sequence[PodDisruptionBudget]) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets with the status that their controller would write."""
        if not budgets:
            return
        expected: Counter[Shape] = Counter()
        healthy: Counter[Shape] = Counter()
        for pod in self.pods.values():
            expected[pod.shape] += not pod.deleting
            healthy[pod.shape] += bool(pod.node) and not pod.deleting
        for budget in budgets:
            mine = [shape for shape in expected if budget.selects(shape)]
            there = sum(expected[shape] for shape in mine)
            ready = sum(healthy[shape] for shape in mine)
            desired = _desired(budget, there)
            yield replace(
                budget,
                expected_pods=there,
                current_healthy=ready,
                desired_healthy=desired,
                disruptions_allowed=max(0, ready - desired) if there else 0,
            )

    # Pods

    def begin(self, run: Run) -> None:
        """Create the next pod of a slot."""
        slot = run.slot
        run.number += 1
        run.key = slot.key if run.number == 1 else f"{slot.key}-r{run.number}"
        pod = Pod(run.key, slot.shape, self.now, unschedulable=True)
        self.pods[run.key], self.runs[run.key] = pod, run
        run.waits_since, run.bound_at = self.now, None
        self.waits[run.key] = None
        tally = self.of_workload[slot.workload]
        tally.pods += run.number == 1
        self.all.pods += run.number == 1

    def bind(self, key: str, node: str) -> None:
        """Bind a waiting pod to a Node."""
        run, pod = self.runs[key], self.pods[key]
        self.pods[key] = replace(pod, node=node, unschedulable=False)
        self.on[node][key] = None
        self.room[node] = self.room[node] - pod.shape.requests
        self._waited(run)
        run.bound_at = self.now
        self.touch(node)

    def _waited(self, run: Run) -> None:
        if run.waits_since is not None:
            seconds = (self.now - run.waits_since).total_seconds()
            self.all.pending_seconds += seconds
            self.of_workload[run.slot.workload].pending_seconds += seconds
            run.waits_since = None
            self.waits.pop(run.key, None)

    def take_away(self, key: str) -> None:
        """Remove a pod, and charge its workload for the time on its node."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        run = self.runs.pop(key, None)
        if run is not None:
            self._waited(run)
        if pod.node:
            self.on[pod.node].pop(key, None)
            if pod.node in self.room:
                self.room[pod.node] = self.room[pod.node] + pod.shape.requests
            if run is not None and run.bound_at is not None:
                self._charge(run, pod)
            self.touch(pod.node)

    def _charge(self, run: Run, pod: Pod) -> None:
        node = self.nodes.get(pod.node)
        claim = self.claims.get(self.owners.get(pod.node, ""))
        if node is None or claim is None or run.bound_at is None:
            return
        offered, requests = node.allocatable, pod.shape.requests
        parts = (
            requests.cpu_milli / max(1, offered.cpu_milli),
            requests.memory_bytes / max(1, offered.memory_bytes),
        )
        hours = (self.now - run.bound_at) / _HOUR
        self.of_workload[run.slot.workload].usd += claim.price_hourly_usd * sum(parts) / 2 * hours

    def leave_behind(self, pod: Pod) -> None:
        """Put an ending pod back on its node, without a slot."""
        self.pods[pod.key] = pod
        self.on[pod.node][pod.key] = None
        if pod.node in self.room:
            self.room[pod.node] = self.room[pod.node] - pod.shape.requests

    def place_for(self, shape: Shape) -> str:
        """Return the node that kube-scheduler would choose for a pod without rules about other pods; empty if none.

        It scores nodes by what they have left of cpu and memory, as NodeResourcesFit does by default.
        """
        best, score = "", -1.0
        for name, room in self.room.items():
            if not shape.requests.fits_in(room) or not self._admits(shape, name):
                continue
            offered, remaining = self.nodes[name].allocatable, room - shape.requests
            share_left = remaining.cpu_milli / max(1, offered.cpu_milli) + remaining.memory_bytes / max(
                1, offered.memory_bytes
            )
            if share_left > score:
                best, score = name, share_left
        return best

    def _admits(self, shape: Shape, name: str) -> bool:
        node = self.nodes[name]
        if node.deleting or first_untolerated(node.taints, shape.tolerations) is not None:
            return False
        key = id(shape), name
        if key not in self._admitted:
            self._admitted[key] = not label_refusal(dict(node.labels), shape.terms)
        return self._admitted[key]

    def touch(self, node: str) -> None:
        """Note that a pod came to a Node or left it."""
        self.changes += 1
        changed = self.nodes.get(node)
        if changed is not None:
            self.nodes[node] = replace(changed, last_pod_event_at=self.now)

    def movable(self, node: str) -> list[str]:
        """Return the keys of the pods on a Node that have a slot."""
        return [key for key in self.on.get(node, ()) if key in self.runs]

    # Nodes

    def join(self, claim: NodeClaim) -> Node:
        """Let a launched claim's Node join, ready for pods."""
        labels = {
            **claim.requirements.settled,
            **claim.labels,
            HOSTNAME: claim.name,
            REGISTERED: "true",
            INITIALIZED: "true",
        }
        node = Node(
            claim.name,
            self.now,
            provider_id=claim.provider_id,
            labels=FrozenMap(labels),
            annotations=claim.annotations,
            taints=tuple(taint for taint in claim.taints if not is_ephemeral(taint)),
            capacity=claim.capacity,
            allocatable=claim.allocatable,
            conditions={"Ready": Condition("True", since=self.now)},
            last_pod_event_at=self.now,
        )
        self.nodes[node.name] = node
        self.owners[node.name] = claim.name
        self._make_room(node)
        self.changes += 1
        return node

    def _make_room(self, node: Node) -> None:
        """Note a Node's free resources, without those of its pods and of DaemonSets' pods that are still to come."""
        pods = [self.pods[key] for key in self.on.get(node.name, ())]
        daemons = awaited_daemons(node, None, pods, self.base.snapshot.daemonsets)
        requests = [*(daemon.requests for daemon in daemons), *(pod.shape.requests for pod in pods)]
        self.room[node.name] = node.allocatable - total(requests)

    def bill(self, claim: NodeClaim) -> None:
        """Charge an instance until now, and stop charging it."""
        since = self.started.pop(claim.name, None)
        if since is None:
            return
        hours = max(self.now - since, LEAST_BILLED) / _HOUR
        usd = hours * claim.price_hourly_usd
        self.all.usd += usd
        pool = self.of_pool[claim.nodepool]
        pool[0] += usd
        pool[1] += hours
        self.of_capacity[claim.capacity_type] += hours  # type: ignore[assignment]

    def remove_node(self, name: str) -> None:
        """Remove a Node and the pods that belong to it alone. No other pods may be left on it."""
        for key in list(self.on.get(name, ())):
            self.pods.pop(key, None)
        self.on.pop(name, None)
        self.nodes.pop(name, None)
        self.owners.pop(name, None)
        self.room.pop(name, None)
        self.changes += 1

    def settle(self) -> None:
        """Charge everything that still exists at the end: instances, and what pods have waited and used."""
        for key, run in self.runs.items():
            pod = self.pods[key]
            self._waited(run)
            if pod.node and run.bound_at is not None:
                self._charge(run, pod)
        for claim in list(self.claims.values()):
            self.bill(claim)


def _desired(budget: PodDisruptionBudget, expected: int) -> int:
    """Return how many healthy pods a budget requires, as its controller counts them."""
    if budget.max_unavailable:
        return expected - min(expected, amount_of(budget.max_unavailable, expected))
    return amount_of(budget.min_available, expected) if budget.min_available else expected
