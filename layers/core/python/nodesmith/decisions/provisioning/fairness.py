"""Shares of a decision: if there is more work than one decision may do, each namespace gets an equal part.

The time of a decision grows with the number of different shapes, not with the number of pods. One namespace with
thousands of shapes must not delay the pods of other namespaces.

Work is counted in steps that depend on the pods alone, so that a replay leaves out the same pods. Steps are assigned by
max-min fairness: always to the namespace that has had the fewest. Half of the steps go by pod priority first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.scheduling.demands import grouped_by_shape
from nodesmith.model.kubernetes.pods import Pod, Reason, Shape

MOST_STEPS = 16_000
"""Most steps of a decision about the pods of one namespace. A step takes about a millisecond."""
MOST_STEPS_OF_SEVERAL = 4_000
"""Most steps of a decision about the pods of several namespaces: some of them may have little to decide."""
_PER_ALTERNATIVE, _PER_RULE, _PER_PREFERENCE = 2, 3, 1
"""Steps for an alternative of node selector and affinity, a rule about other pods, and a preference of node affinity"""
_FIX = "nothing: its turn comes within minutes; pods that ask for the same are decided about together"


@dataclass(frozen=True, slots=True)
class Shares:
    """The pods that a decision covers, and those that wait for their turn.

    `tried` are pods (namespace/name) that earlier decisions of this kind left without a node, longest ago first.
    """

    chosen: Sequence[Pod]
    waiting: Sequence[Pod] = ()
    tried: Sequence[str] = ()

    @property
    def new(self) -> int:
        """How many of the waiting pods have not been part of any decision."""
        tried_keys = frozenset(self.tried)
        return sum(pod.key not in tried_keys for pod in self.waiting)

    def reasons(self) -> Iterator[tuple[Pod, Reason]]:
        """Yield the waiting pods, each with the reason."""
        shapes: dict[str, set[Shape]] = {}
        for pod in self.waiting:
            shapes.setdefault(pod.shape.namespace, set()).add(pod.shape)
        for pod in self.waiting:
            count, namespace = len(shapes[pod.shape.namespace]), pod.shape.namespace
            text = f"waits for its turn: {count:,} different kinds of pods wait in namespace {namespace}"
            yield pod, Reason(text, fix=_FIX)

    def tried_after(self, left: Iterable[str]) -> tuple[str, ...]:
        """Return `tried` for the next decision, given the pods `left` without a node.

        Empty if this one covers all pods.

        Pods that are gone or have a node are dropped.
        """
        if not self.waiting:
            return ()
        still = {pod.key for pod in self.waiting}
        return (*(key for key in self.tried if key in still), *sorted(left))


@dataclass(frozen=True, slots=True)
class _Batch:
    """All pods of a shape. `turn` is its position in `tried`, the lowest for its pods; -1 if never tried."""

    shape: Shape
    pods: Sequence[Pod]
    steps: int
    turn: int

    @property
    def order(self) -> tuple[int, int, float, str]:
        """Sort key within a namespace: untried lots first, by priority and age, then those tried longest ago."""
        priority = self.shape.priority if self.turn < 0 else 0
        oldest = min((pod.created_at.timestamp(), pod.key) for pod in self.pods)
        return (self.turn, -priority, *oldest)


def steps_of(shape: Shape) -> int:
    """Return the approximate work of deciding about a shape, which does not depend on its number of pods."""
    alternatives = len(shape.terms) if any(shape.terms) else 0
    rules = len(shape.spreads) + len(shape.affinities)
    preferences = len(shape.preferred_terms)
    return 1 + _PER_ALTERNATIVE * alternatives + _PER_RULE * rules + _PER_PREFERENCE * preferences


def exceeds_steps(pods: Iterable[Pod]) -> bool:
    """Return whether pods without a node may be more work than one decision does."""
    return _exceed({pod.shape for pod in pods if not pod.node})


def _exceed(shapes: Iterable[Shape]) -> bool:
    steps = [(shape.namespace, steps_of(shape)) for shape in shapes]
    several = len({namespace for namespace, _ in steps}) > 1
    return sum(number for _, number in steps) > (MOST_STEPS_OF_SEVERAL if several else MOST_STEPS)


def shared_out(pods: Sequence[Pod], tried: Sequence[str] = ()) -> Shares:
    """Choose the pods that a decision covers: all, unless that exceeds its steps."""
    by_shape = grouped_by_shape(pods)
    if not _exceed(by_shape):
        return Shares(pods)
    places = {key: number for number, key in enumerate(tried)}
    batches = [_batch(shape, mine, places) for shape, mine in by_shape.items()]
    limit = MOST_STEPS_OF_SEVERAL if len({shape.namespace for shape in by_shape}) > 1 else MOST_STEPS
    chosen = _chosen(batches, limit)
    return Shares(
        [pod for pod in pods if pod.shape in chosen],
        [pod for pod in pods if pod.shape not in chosen],
        tried,
    )


def _batch(shape: Shape, pods: Sequence[Pod], places: Mapping[str, int]) -> _Batch:
    turn = min(places.get(pod.key, -1) for pod in pods)
    return _Batch(shape, pods, steps_of(shape), turn)


def _chosen(batches: Iterable[_Batch], limit: int) -> frozenset[Shape]:
    """Choose lots for `limit` steps, including the lot that uses them up."""
    ordered = sorted(batches, key=lambda batch: batch.order)
    spent: Counter[str] = Counter()
    chosen: set[Shape] = set()
    untried = [batch for batch in ordered if batch.turn < 0]
    for priority in sorted({batch.shape.priority for batch in untried}, reverse=True):
        alike = [batch for batch in untried if batch.shape.priority == priority]
        chosen.update(_in_turns(alike, spent, limit // 2))
    chosen.update(_in_turns([batch for batch in ordered if batch.shape not in chosen], spent, limit))
    return frozenset(chosen)


def _in_turns(ordered: Iterable[_Batch], spent: Counter[str], limit: int) -> Iterator[Shape]:
    """Yield shapes, always of the namespace that has spent the fewest steps, until `limit` are spent in all."""
    queues: dict[str, deque[_Batch]] = {}
    for batch in ordered:
        queues.setdefault(batch.shape.namespace, deque()).append(batch)
    total = spent.total()
    heap = [(spent[namespace], queue[0].order, namespace) for namespace, queue in queues.items()]
    heapify(heap)
    while heap and total < limit:
        _, _, namespace = heappop(heap)
        batch = queues[namespace].popleft()
        spent[namespace] += batch.steps
        total += batch.steps
        yield batch.shape
        if queues[namespace]:
            heappush(heap, (spent[namespace], queues[namespace][0].order, namespace))


def round_robin(nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
    """Order nodes to buy so that namespaces are served in turn, an equal number of nodes each.

    Otherwise keep their order. Nodes for CapacityBuffers come after those for pods.
    """
    room = [node for node in nodes if node.is_room]
    return [*_in_turn([node for node in nodes if not node.is_room]), *_in_turn(room)]


def _in_turn(nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
    ordered: list[PlannedNode] = []
    queues: dict[str, deque[int]] = {}
    for number, node in enumerate(nodes):
        for namespace in _namespaces(node):
            queues.setdefault(namespace, deque()).append(number)
    taken: set[int] = set()
    counts: Counter[str] = Counter()
    heap = [(0, queue[0], namespace) for namespace, queue in queues.items()]
    heapify(heap)
    while heap:
        count, _, namespace = heappop(heap)
        queue = queues[namespace]
        while queue and queue[0] in taken:
            queue.popleft()
        if not queue:
            continue
        if count == counts[namespace]:
            taken.add(queue[0])
            ordered.append(nodes[queue[0]])
            counts.update(_namespaces(nodes[queue[0]]))
        heappush(heap, (counts[namespace], queue[0], namespace))
    return ordered


def _namespaces(node: PlannedNode) -> list[str]:
    """Return the namespaces whose pods a node is for; one empty name if it is for none."""
    return sorted({pod.partition("/")[0] for pod in node.claim.nominated}) or [""]
