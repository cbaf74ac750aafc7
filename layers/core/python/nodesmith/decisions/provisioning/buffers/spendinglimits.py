"""Limits in dollars of CapacityBuffers: which room they leave, and what may be bought within them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from nodesmith.decisions.provisioning.buffers.resolutions import Resolution
from nodesmith.decisions.provisioning.plan import PlannedNode, RepetitionOf
from nodesmith.decisions.provisioning.planner import Planner, Search
from nodesmith.decisions.provisioning.purchase.claims import only
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.model.karpenter.bufferannotations import LIMIT_USD
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.spending import most_hourly_usd
from nodesmith.model.snapshot import Snapshot

DEAR = f"its limit in dollars is reached ({LIMIT_USD})"
_ATTEMPTS = 5
"""How often nodes are chosen for planned pods: for all, for ever fewer until they cost what a limit in dollars allows,
and at last without those of the buffers that still cost more."""
_LESS = 0.95
"""Fewer pods need a little more for each."""


def runs_something(shape: Shape) -> bool:
    """Return whether pods of a shape keep their node: all that run, except DaemonSet and static pods."""
    return shape.moves and not shape.is_room


def _buffer_of(pod: Pod) -> str:
    """Return the key (namespace/name) of the buffer that a planned pod stands for."""
    return f"{pod.shape.namespace}/{pod.shape.owner.partition('/')[2]}"


def limits_of(asked: Iterable[Resolution]) -> dict[str, float]:
    """Return the limits of buffers in USD an hour, by key."""
    buffers = {each.key: each.buffer for each in asked if each.buffer is not None}
    return {key: buffer.limit_usd for key, buffer in buffers.items() if buffer.limit_usd is not None}


def placed_room(
    asked: Sequence[Resolution],
    pods: Sequence[Pod],
    free: list[ExistingNode],
    planner: Planner,
    snapshot: Snapshot,
    ledger: Ledger,
) -> dict[str, str]:
    """Place the planned pods of buffers on existing nodes, which this fills; return the name of the node by pod.

    Nodes that run pods are filled first, so that the others can be removed. If a buffer has a limit in dollars, each
    has the nodes next that were bought for it: on those of another one, its limit might not pay for its pods.
    """
    free.sort(
        key=lambda existing: (
            existing.in_flight,
            not any(map(runs_something, existing.hosted)),
            existing.name,
        )
    )
    steps: list[tuple[Sequence[Pod], list[ExistingNode]]] = [(pods, free)]
    if len(asked) > 1 and limits_of(asked):
        busy = [existing for existing in free if any(map(runs_something, existing.hosted))]
        steps = [(pods, busy), *_owned(pods, free, snapshot, ledger), (pods, free)]
    placed: dict[str, str] = {}
    for some, nodes in steps:
        left = [pod for pod in some if pod.key not in placed] if nodes else []
        found = planner.assign(left, nodes, PreferenceMode.RULE).placed if left else {}
        placed |= {key: name for name, keys in found.items() for key in keys}
    return placed


def _owned(
    pods: Iterable[Pod], free: Sequence[ExistingNode], snapshot: Snapshot, ledger: Ledger
) -> Iterator[tuple[list[Pod], list[ExistingNode]]]:
    """Yield the planned pods of each buffer with the nodes that were bought for them."""
    by_buffer: dict[str, list[Pod]] = {}
    for pod in pods:
        by_buffer.setdefault(_buffer_of(pod), []).append(pod)
    for mine in by_buffer.values():
        keys = {pod.key for pod in mine}
        claims = (claim for claim in ledger.claims if not keys.isdisjoint(claim.nominated))
        names = {claim.name if (node := snapshot.node_of(claim)) is None else node.name for claim in claims}
        yield mine, [existing for existing in free if existing.name in names]


def within_dollars(
    asked: Sequence[Resolution],
    there: dict[str, str],
    free: Iterable[ExistingNode],
    snapshot: Snapshot,
    ledger: Ledger,
) -> tuple[dict[str, float], list[str]]:
    """Remove from `there` the planned pods on nodes that cost a buffer more than its limit in dollars.

    Return the price of the nodes without pods that each limited buffer holds, and the keys of the removed pods. The
    nodes with most of its pods are kept first.
    """
    limits = limits_of(asked)
    if not limits:
        return {}, []
    idle = {e.name for e in free if not any(map(runs_something, (*e.hosted, *e.expected)))}
    prices = dict[str, float]()
    for claim in ledger.claims:
        node = snapshot.node_of(claim)
        prices[claim.name if node is None else node.name] = most_hourly_usd(claim)
    spent, beyond = dict[str, float](), list[str]()
    for each in asked:
        if each.key not in limits:
            continue
        held = Counter(there[pod.key] for pod in each.pods() if there.get(pod.key) in idle)
        for name, _ in sorted(held.items(), key=lambda item: (-item[1], item[0])):
            price = spent.get(each.key, 0.0) + prices.get(name, 0.0)
            if price <= limits[each.key]:
                spent[each.key] = price
            else:
                beyond += [pod.key for pod in each.pods() if there.get(pod.key) == name]
    for key in beyond:
        del there[key]
    return spent, beyond


def bought_within(
    left: Mapping[str, float],
    fresh: Sequence[Pod],
    free: Sequence[ExistingNode],
    planner: Planner,
    repetition_of: RepetitionOf,
) -> tuple[tuple[PlannedNode, ...], dict[str, str], list[str]]:
    """Buy for planned pods, with what is `left` of the limits in dollars of buffers, whichever offerings EC2 picks.

    A buffer whose nodes would cost more gets nodes for fewer pods, or else none. Return the nodes, the node by pod for
    those that fit on existing ones, and the keys of pods that are left out.
    """
    pods, out = list(fresh), list[str]()
    for attempt in range(_ATTEMPTS):
        chosen, _ = Search(planner, pods, free, bounded=True).best(PreferenceMode.RULE)
        nodes = planner.written_down(chosen.purchase, repetition_of=repetition_of)
        owners = {pod.key: _buffer_of(pod) for pod in pods}
        cheapest = _cost(nodes, left, owners, lambda node: node.claim.price_hourly_usd)
        templates = {each.name: each for each in planner.templates}
        nodes = _narrowed(nodes, left, owners, cheapest, templates)
        cost = _cost(nodes, left, owners, lambda node: node.request.most_hourly_usd)
        least = {key: cheapest[key] if cheapest[key] > left[key] else cost[key] for key in left}
        dear = {key: left[key] / least[key] for key in sorted(left) if least[key] > left[key]}
        if not dear:
            placed = {key: name for name, keys in chosen.assignment.placed.items() for key in keys}
            return nodes, placed, out
        is_last = attempt == _ATTEMPTS - 2
        for buffer, share in dear.items():
            mine = [pod.key for pod in pods if owners[pod.key] == buffer]
            out += mine[0 if is_last else int(len(mine) * max(0.0, share) * _LESS) :]
        pods = [pod for pod in pods if pod.key not in set(out)]
    return (), {}, [pod.key for pod in fresh]


def _cost(
    nodes: Iterable[PlannedNode],
    left: Mapping[str, float],
    owners: Mapping[str, str],
    price: Callable[[PlannedNode], float],
) -> dict[str, float]:
    """Return what nodes cost each buffer with a limit; `owners` are the buffers by planned pod."""
    cost = dict.fromkeys(left, 0.0)
    for node in nodes:
        for owner in _limited_owners(node, left, owners):
            cost[owner] += price(node)
    return cost


def _limited_owners(
    node: PlannedNode, left: Mapping[str, float], owners: Mapping[str, str]
) -> Collection[str]:
    return {owners[key] for key in node.claim.nominated} & left.keys()


def _narrowed(
    nodes: Sequence[PlannedNode],
    left: Mapping[str, float],
    owners: Mapping[str, str],
    cheapest: Mapping[str, float],
    templates: Mapping[str, Template],
) -> tuple[PlannedNode, ...]:
    """Return the nodes without the offerings that limits in dollars do not pay for; `cheapest` is `_cost` at best.

    The nodes of a buffer share equally what is left beyond their cheapest offerings. A node whose minValues need dearer
    offerings stays as it is, and so do the nodes of a buffer that cannot even pay for the cheapest.
    """
    number = _cost(nodes, left, owners, lambda _: 1)
    spare = {key: (left[key] - cheapest[key]) / number[key] for key in left if number[key]}
    found = []
    for node in nodes:
        most = min((spare[owner] for owner in _limited_owners(node, left, owners)), default=-1.0)
        if most >= 0 and not node.request.reservations:
            most += node.claim.price_hourly_usd
            kept = [each for each in node.request.overrides if each.paid_hourly_usd <= most]
            node = only(node, kept, templates[node.claim.nodepool]) or node
        found.append(node)
    return tuple(found)
