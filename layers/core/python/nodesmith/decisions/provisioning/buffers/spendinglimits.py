"""Limits in dollars of CapacityBuffers: the room that they leave, and the nodes that may be bought within them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from nodesmith.decisions.provisioning.alternatives import Attempt
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
"""How often nodes are chosen for planned pods: first for all, then for fewer and fewer until the limits in dollars pay
for the nodes, and last without the pods of buffers that still cost more."""
_LESS = 0.95
"""The share of the affordable pods that are kept: with fewer pods, each costs a little more."""


def runs_something(shape: Shape) -> bool:
    """Return whether pods of a shape keep their node: all that run, except DaemonSet and static pods."""
    return shape.moves and not shape.is_room


def _buffer_of(pod: Pod) -> str:
    """Return the key (namespace/name) of the buffer that a planned pod stands for."""
    return f"{pod.shape.namespace}/{pod.shape.owner.partition('/')[2]}"


def limits_of(requested: Iterable[Resolution]) -> dict[str, float]:
    """Return the limits of buffers in USD an hour, by key."""
    buffers = {resolution.key: resolution.buffer for resolution in requested if resolution.buffer is not None}
    return {key: buffer.limit_usd for key, buffer in buffers.items() if buffer.limit_usd is not None}


def placed_room(
    requested: Sequence[Resolution],
    pods: Sequence[Pod],
    free: list[ExistingNode],
    planner: Planner,
    snapshot: Snapshot,
    ledger: Ledger,
) -> dict[str, str]:
    """Place the planned pods of buffers on existing nodes, which this fills; return the name of the node by pod.

    Nodes that run pods are filled first, so that the others can be removed. If a buffer has a limit in dollars, the
    nodes that were bought for each buffer come next: its limit might not pay for its pods on nodes of another buffer.
    """
    free.sort(
        key=lambda existing: (
            existing.in_flight,
            not any(map(runs_something, existing.hosted)),
            existing.name,
        )
    )
    steps: list[tuple[Sequence[Pod], list[ExistingNode]]] = [(pods, free)]
    if len(requested) > 1 and limits_of(requested):
        busy = [existing for existing in free if any(map(runs_something, existing.hosted))]
        steps = [(pods, busy), *_owned(pods, free, snapshot, ledger), (pods, free)]
    placed: dict[str, str] = {}
    for group, nodes in steps:
        unplaced = [pod for pod in group if pod.key not in placed] if nodes else []
        assigned = planner.assign(unplaced, nodes, PreferenceMode.RULE).placed if unplaced else {}
        placed |= {key: name for name, keys in assigned.items() for key in keys}
    return placed


def _owned(
    pods: Iterable[Pod], free: Sequence[ExistingNode], snapshot: Snapshot, ledger: Ledger
) -> Iterator[tuple[list[Pod], list[ExistingNode]]]:
    """Yield the planned pods of each buffer with the nodes that were bought for them."""
    by_buffer: dict[str, list[Pod]] = {}
    for pod in pods:
        by_buffer.setdefault(_buffer_of(pod), []).append(pod)
    for buffer_pods in by_buffer.values():
        keys = {pod.key for pod in buffer_pods}
        claims = (claim for claim in ledger.claims if not keys.isdisjoint(claim.nominated))
        names = {snapshot.host_of(claim) for claim in claims}
        yield buffer_pods, [existing for existing in free if existing.name in names]


def within_dollars(
    requested: Sequence[Resolution],
    places: dict[str, str],
    free: Iterable[ExistingNode],
    snapshot: Snapshot,
    ledger: Ledger,
) -> tuple[dict[str, float], list[str]]:
    """Remove from `places` the planned pods on nodes that cost a buffer more than its limit in dollars.

    Return the price of the nodes without pods that each limited buffer holds, and the keys of the removed pods. A
    buffer keeps the nodes with most of its pods first.
    """
    limits = limits_of(requested)
    if not limits:
        return {}, []
    idle = {e.name for e in free if not any(map(runs_something, (*e.hosted, *e.expected)))}
    prices = {snapshot.host_of(claim): most_hourly_usd(claim) for claim in ledger.claims}
    spent, beyond = dict[str, float](), list[str]()
    for resolution in requested:
        if resolution.key not in limits:
            continue
        held = Counter(places[pod.key] for pod in resolution.pods() if places.get(pod.key) in idle)
        for name, _ in sorted(held.items(), key=lambda item: (-item[1], item[0])):
            price = spent.get(resolution.key, 0.0) + prices.get(name, 0.0)
            if price <= limits[resolution.key]:
                spent[resolution.key] = price
            else:
                beyond += [pod.key for pod in resolution.pods() if places.get(pod.key) == name]
    for key in beyond:
        del places[key]
    return spent, beyond


def bought_within(
    budgets: Mapping[str, float],
    fresh: Sequence[Pod],
    free: Sequence[ExistingNode],
    planner: Planner,
    repetition_of: RepetitionOf,
) -> tuple[tuple[PlannedNode, ...], dict[str, str], list[str], Attempt | None]:
    """Buy for planned pods within the `budgets` of buffers in dollars, whichever offerings EC2 picks.

    If nodes would cost a buffer more than that, it gets nodes for fewer pods, or for none. Return the nodes, the names
    of existing nodes by pod for pods that fit on them, the keys of pods that are left out, and the attempt for the
    others, None if no nodes are cheap enough for any.
    """
    pods, excluded = list(fresh), list[str]()
    for attempt in range(_ATTEMPTS):
        chosen, _ = Search(planner, pods, free, bounded=True).best(PreferenceMode.RULE)
        nodes = planner.written_down(chosen.purchase, repetition_of=repetition_of)
        owners = {pod.key: _buffer_of(pod) for pod in pods}
        cheapest = _cost(nodes, budgets, owners, lambda node: node.claim.price_hourly_usd)
        templates = {template.name: template for template in planner.templates}
        nodes = _narrowed(nodes, budgets, owners, cheapest, templates)
        cost = _cost(nodes, budgets, owners, lambda node: node.request.most_hourly_usd)
        least = {key: cheapest[key] if cheapest[key] > budgets[key] else cost[key] for key in budgets}
        dear = {key: budgets[key] / least[key] for key in sorted(budgets) if least[key] > budgets[key]}
        if not dear:
            placed = {key: name for name, keys in chosen.assignment.placed.items() for key in keys}
            return nodes, placed, excluded, chosen
        is_last = attempt == _ATTEMPTS - 2
        for buffer, share in dear.items():
            keys = [pod.key for pod in pods if owners[pod.key] == buffer]
            excluded += keys[0 if is_last else int(len(keys) * max(0.0, share) * _LESS) :]
        pods = [pod for pod in pods if pod.key not in set(excluded)]
    return (), {}, [pod.key for pod in fresh], None


def _cost(
    nodes: Iterable[PlannedNode],
    budgets: Mapping[str, float],
    owners: Mapping[str, str],
    price: Callable[[PlannedNode], float],
) -> dict[str, float]:
    """Return the cost of nodes to each buffer with a limit; `owners` are the buffers by planned pod."""
    cost = dict.fromkeys(budgets, 0.0)
    for node in nodes:
        for owner in _limited_owners(node, budgets, owners):
            cost[owner] += price(node)
    return cost


def _limited_owners(
    node: PlannedNode, budgets: Mapping[str, float], owners: Mapping[str, str]
) -> Collection[str]:
    return {owners[key] for key in node.claim.nominated} & budgets.keys()


def _narrowed(
    nodes: Sequence[PlannedNode],
    budgets: Mapping[str, float],
    owners: Mapping[str, str],
    cheapest: Mapping[str, float],
    templates: Mapping[str, Template],
) -> tuple[PlannedNode, ...]:
    """Return the nodes without the offerings that limits in dollars do not pay for.

    `cheapest` is the cost of the cheapest offerings by buffer. The nodes of a buffer share equally what its budget has
    beyond that. A node stays unchanged if its minValues need dearer offerings, and so do the nodes of a buffer that
    cannot even pay for the cheapest.
    """
    number = _cost(nodes, budgets, owners, lambda _: 1)
    spare = {key: (budgets[key] - cheapest[key]) / number[key] for key in budgets if number[key]}
    narrowed = []
    for node in nodes:
        most = min((spare[owner] for owner in _limited_owners(node, budgets, owners)), default=-1.0)
        if most >= 0 and not node.request.reservations:
            most += node.claim.price_hourly_usd
            affordable = [override for override in node.request.overrides if override.paid_hourly_usd <= most]
            node = only(node, affordable, templates[node.claim.nodepool]) or node
        narrowed.append(node)
    return tuple(narrowed)
