"""Turn the claims of pods to devices into requests and terms, and the devices of nodes and types into resources.

Everything after that treats devices like any other resource. A snapshot without claims is left as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from nodesmith.decisions.scheduling.devices.allocation import Allocator, Matcher
from nodesmith.decisions.scheduling.devices.resources import (
    MOST_DEVICES_OF_POD,
    Declared,
    DeviceResources,
    RequestedDevices,
    SimulatedDevices,
    asked_by,
    devices_of_nodes,
    expected,
    free_stock,
    is_many,
    is_trivial,
    learned,
    str_of,
)
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.apimachinery.quantities import Resources, format_bytes, total
from nodesmith.model.apimachinery.requirements import Requirements, parse_selector
from nodesmith.model.kubernetes.devices import (
    CLAIM_LABEL,
    DEVICES,
    ClusterDevices,
    DevicePool,
    DeviceSelection,
    PodClaim,
    contents,
)
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, PodAffinityTerm, Shape
from nodesmith.model.snapshot import Snapshot

_WHOLE_LABEL = f"{DEVICES}whole"
"""A label of pods in a decision: who gets devices that no number describes."""
_PLAIN = "plain"
_MOST_FROM_POOLS = 1000
"""Pods of one decision that are tried with devices that belong to no node."""
_SHOWN = 3
_MOST_OF_NAMESPACE, _MOST_DIFFERENT = 64, 512
"""Different claims in one decision: those of a namespace, and all."""
_MOST_WANTS_OF_NAMESPACE, _MOST_DIFFERENT_WANTS = 128, 512
"""Different DeviceClasses with selectors. Each becomes a resource, and packing takes the square of their number."""


def without_simulation(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which pods that claim devices are left alone: IGNORE_DRA_REQUESTS."""
    refusal = "it claims devices (spec.resourceClaims), and the cluster's setting IGNORE_DRA_REQUESTS is true"
    shapes: dict[Shape, Shape] = {}
    for pod in snapshot.pods:
        if pod.shape.claims and pod.shape not in shapes:
            shapes[pod.shape] = replace(pod.shape, claims=(), refusal=pod.shape.refusal or refusal)
    pods = (replace(p, shape=shapes[p.shape]) if p.shape in shapes else p for p in snapshot.pods)
    return replace(snapshot, pods=tuple(pods)) if shapes else snapshot


def with_devices(snapshot: Snapshot, declared: Declared) -> Snapshot:
    """Return a snapshot whose pods request their devices as resources. It has `simulated` if any pod claims devices."""
    devices = snapshot.devices
    claiming = [pod for pod in snapshot.pods if pod.shape.claims]
    if devices is None or not claiming:
        return snapshot
    return _Compilation(snapshot, devices, claiming, declared).done()


class _Compilation:
    """Everything that one decision knows about devices. Each step needs those before it."""

    def __init__(
        self, snapshot: Snapshot, devices: ClusterDevices, claiming: Sequence[Pod], declared: Declared
    ) -> None:
        self._snapshot, self._claiming = snapshot, claiming
        self._nodes = {node.name: node for node in snapshot.nodes}
        different = {contents(pod.shape.claims) for pod in claiming}
        self._matcher = Matcher(devices.classes, min(len(different), _MOST_DIFFERENT))
        complete = [pool for pool in devices.pools if pool.complete]
        self._local = devices_of_nodes(complete)
        self._shared = [pool for pool in complete if not pool.node]
        self._expected = expected(declared, learned(snapshot.nodes, self._local))
        stocks = [*self._local.values(), *map(free_stock, self._expected.values())]
        self._stocks = list(dict.fromkeys(stocks))
        divisible = (kind for stock in self._stocks for kind, _, _ in stock if kind.is_divisible)
        self._divided = list({kind.selectable: kind for kind in divisible}.values())
        self._problems = dict(_too_many(claiming))
        self._found: dict[tuple[object, ...], RequestedDevices] = {}
        self._users = _users(claiming)
        self._taken = self._from_pools()
        self._carriers = {key: users[0].key for key, users in self._users.items()}
        self._asked = {pod.key: self._asked_by(pod) for pod in claiming}
        kinds = (kind for stock in self._stocks for kind, _, _ in stock)
        self.resources = DeviceResources(self._asked.values(), kinds, self._matcher)
        self._shapes: dict[tuple[object, ...], Shape] = {}

    def done(self) -> Snapshot:
        """Return the snapshot with everything replaced."""
        changed = {pod.key: replace(pod, shape=self._shape(pod)) for pod in self._claiming}
        pods = tuple(changed.get(pod.key, pod) for pod in self._snapshot.pods)
        used_by_node: dict[str, list[Resources]] = {}
        for pod in pods:
            if pod.node and pod.key in changed:
                used_by_node.setdefault(pod.node, []).append(_devices_of(pod.shape))
        nodes = tuple(self._node(node, used_by_node.get(node.name, [])) for node in self._snapshot.nodes)
        simulated = SimulatedDevices(self.resources, self._expected)
        return replace(self._snapshot, pods=pods, nodes=nodes, simulated=simulated)

    def _node(self, node: Node, used: list[Resources]) -> Node:
        """Return a node that offers its free devices, and those of its pods, which these request."""
        stock = self._local.get(node.name)
        amounts = total([*used, self.resources.amounts(stock)]) if stock else total(used)
        return replace(node, allocatable=node.allocatable + amounts) if amounts else node

    def _open(self, pod: Pod) -> list[PodClaim]:
        """Return the claims of a pod that take devices of its node: not those that have theirs, or get them elsewhere.

        Of the pods that share a ResourceClaim, the first takes the devices.
        """
        if pod.key in self._taken or self._problem(pod.shape):
            return []
        return [
            claim
            for claim in pod.shape.claims
            if not self._is_placed(claim) and (not claim.key or self._carriers.get(claim.key) == pod.key)
        ]

    def _is_placed(self, claim: PodClaim) -> bool:
        """Return whether devices are allocated to a claim.

        kube-scheduler and the claim controller take them back if their node is gone or goes.
        """
        node = self._nodes.get(claim.node)
        return claim.terms is not None or (node is not None and not node.deleting)

    def _asked_by(self, pod: Pod) -> RequestedDevices:
        claims = self._open(pod)
        key = contents(claims)
        if key not in self._found:
            requested = asked_by(claims)
            if self._divides(claims):
                requested = RequestedDevices({}, tuple(claims))
            elif requested.whole and is_trivial(claims, self._stocks, self._matcher):
                requested = replace(requested, whole=())
            self._found[key] = requested
        return self._found[key]

    def _divides(self, claims: Iterable[PodClaim]) -> bool:
        """Return whether claims may take a part of something, so that no number of devices describes them."""
        wants = [want for claim in claims for r in claim.requests for want in r.wants]
        return any(want.capacity for want in wants) or any(
            self._matcher.selects(want, kind) for want in wants for kind in self._divided
        )

    def _from_pools(self) -> dict[str, DevicePool]:
        """Allocate devices that belong to no node to pods without a node, oldest first; return the pool of each pod."""
        pool_by_pod: dict[str, DevicePool] = {}
        waiting = [p for p in self._claiming if not (p.node or p.deleting)] if self._shared else []
        allocators = {
            (pool.driver, pool.name, pool.terms): Allocator(pool.stock, self._matcher)
            for pool in self._shared
        }
        for pod in sorted(waiting, key=lambda pod: (pod.created_at, pod.key))[:_MOST_FROM_POOLS]:
            if self._problem(pod.shape) or any(c.key or self._is_placed(c) for c in pod.shape.claims):
                continue
            for pool in self._shared:
                key = pool.driver, pool.name, pool.terms
                if allocators[key].allocate(pod.shape.claims):
                    pool_by_pod[pod.key] = pool
                    break
        return pool_by_pod

    def _shape(self, pod: Pod) -> Shape:
        shape, requested, pool = pod.shape, self._asked[pod.key], self._taken.get(pod.key)
        shared = tuple(c.key for c in shape.claims if c.key and len(self._users.get(c.key, ())) > 1)
        apart = self._apart(pod, requested)
        terms = pool.terms if pool is not None else None
        key = shape, tuple(requested.units.items()), requested.own_resource, shared, apart, terms
        if key not in self._shapes:
            refusal = shape.refusal or self._problem(shape) or self._refusal(shape.claims, requested)
            requests = self.resources.requests(requested)
            labels = {CLAIM_LABEL + _short(claim): "shared" for claim in shared}
            labelled = replace(
                shape,
                claims=(),
                devices=_described(shape.claims),
                drivers=self._drivers(requested),
                refusal=refusal,
                requests=shape.requests + requests,
                labels={**shape.labels, **labels, **({_WHOLE_LABEL: apart} if apart else {})},
                affinities=(*shape.affinities, *map(_together, labels), *_alone(apart)),
            )
            self._shapes[key] = self._narrowed(labelled, shape.claims, terms)
        return self._shapes[key]

    def _narrowed(
        self, shape: Shape, claims: Iterable[PodClaim], terms: tuple[Requirements, ...] | None
    ) -> Shape:
        """Return a shape narrowed to where allocated devices are."""
        places = [terms] if terms is not None else []
        for claim in claims:
            if claim.terms is not None:
                places.append(claim.terms)
            elif self._is_placed(claim):
                name = self._nodes[claim.node].labels.get(HOSTNAME, claim.node)
                places.append((Requirements.from_labels({HOSTNAME: name}),))
        placements = shape.terms
        for place in places:
            pairs = [(own, there) for own in placements for there in place]
            agreeing = [(a, b) for a, b in pairs if a.conflict(b, undefined=frozenset(b)) is None]
            placements = tuple(own.union(there) for own, there in agreeing)
        if not placements and not shape.refusal:
            refusal = "the devices that are allocated to its claims are out of reach of its node selector or affinity"
            return replace(shape, refusal=refusal)
        return replace(shape, terms=placements) if places and placements else shape

    def _apart(self, pod: Pod, requested: RequestedDevices) -> str:
        """Return what a pod's label says about devices that no number describes; empty if it has none.

        The label matters to pods that get a node now: those on a node have their devices.
        """
        if pod.node:
            return ""
        exclusive = any(unit in self.resources.exclusive for unit in requested.units)
        if requested.whole or exclusive:
            return _short(requested.own_resource or str(sorted(map(str_of, requested.units))))
        return _PLAIN if requested.units else ""

    def _problem(self, shape: Shape) -> str:
        """Return why the claims of a shape cannot be simulated, empty if they can."""
        if shape not in self._problems:
            self._problems[shape] = next(self._faults(shape.claims), "")
        return self._problems[shape]

    def _faults(self, claims: Sequence[PodClaim]) -> Iterator[str]:
        for claim in claims:
            if claim.problem:
                yield f"it claims devices, but nothing is bought for its claim {claim.name}: {claim.problem}"
        if is_many(claims):
            yield f"it claims devices, but more than {MOST_DEVICES_OF_POD}, the most that are simulated"
        classes = {want.device_class for claim in claims for r in claim.requests for want in r.wants}
        for name in sorted(classes - self._matcher.classes.keys()):
            yield f"it claims devices, but DeviceClass {name} does not exist"

    def _refusal(self, claims: Sequence[PodClaim], requested: RequestedDevices) -> str:
        lacking = sorted(map(str, self.resources.unknown & requested.units.keys()))
        return self._lacking(claims, lacking[0]) if lacking else ""

    def _lacking(self, claims: Sequence[PodClaim], lacking: str) -> str:
        wants = {(w.device_class, w.selectors) for claim in claims for r in claim.requests for w in r.wants}
        failed = next(
            (self._matcher.errors[want] for want in sorted(wants) if want in self._matcher.errors), ""
        )
        detail = f" (a selector fails: {failed})" if failed else ""
        return (
            f"it claims devices, but no node has devices of DeviceClass {lacking} that its selectors select{detail}:"
            " declare those of instance types with the annotation nodesmith.dev/devices of a NodeOverlay"
        )

    def _drivers(self, requested: RequestedDevices) -> frozenset[str]:
        kinds = {kind for stock in self._stocks for kind, _, _ in stock}
        wants = [want for claim in requested.whole for r in claim.requests for want in r.wants]
        alone = {kind: ((kind, 1, 1),) for kind in kinds}
        return frozenset(
            kind.driver
            for kind, stock in alone.items()
            if any(unit.is_met_by(self._matcher, stock) for unit in requested.units)
            or any(self._matcher.selects(want, kind) for want in wants)
        )


def _too_many(claiming: Iterable[Pod]) -> Iterator[tuple[Shape, str]]:
    """Yield the shapes whose claims are beyond what one decision simulates, those of pods on a node last, with why."""
    claimed = _Counted(_MOST_OF_NAMESPACE, _MOST_DIFFERENT)
    wants = _Counted(_MOST_WANTS_OF_NAMESPACE, _MOST_DIFFERENT_WANTS)
    shapes = dict.fromkeys(pod.shape for pod in sorted(claiming, key=lambda pod: bool(pod.node)))
    for shape in shapes:
        content = {contents(shape.claims)}
        selections = {
            (w.device_class, w.selectors) for c in shape.claims for r in c.requests for w in r.wants
        }
        if claimed.has_room(shape.namespace, content) and wants.has_room(shape.namespace, selections):
            claimed.add(shape.namespace, content)
            wants.add(shape.namespace, selections)
            continue
        limits = ("claims", claimed), ("requests", wants)
        name, limit = limits[claimed.has_room(shape.namespace, content)]
        refusal = (
            f"it claims devices, but its namespace has {limit.of_namespace} different {name}, or the cluster"
            f" {limit.of_all}, the most that are simulated: make the claims of a workload identical"
        )
        yield shape, refusal


@dataclass(slots=True)
class _Counted:
    """What is different, by namespace, and how much of it is simulated."""

    of_namespace: int
    of_all: int
    seen: dict[str, set[object]] = field(default_factory=dict)
    number: int = 0

    def _new(self, namespace: str, items: Set[object]) -> int:
        return len(items - self.seen.get(namespace, set()))

    def has_room(self, namespace: str, items: Set[object]) -> bool:
        new = self._new(namespace, items)
        current = len(self.seen.get(namespace, ()))
        return not new or (current + new <= self.of_namespace and self.number + new <= self.of_all)

    def add(self, namespace: str, items: Set[object]) -> None:
        self.number += self._new(namespace, items)
        self.seen.setdefault(namespace, set()).update(items)


def _users(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the pods that share each ResourceClaim, those on a node first, then the oldest."""
    users: dict[str, list[Pod]] = {}
    staying = (pod for pod in pods if not pod.deleting)
    for pod in sorted(staying, key=lambda pod: (not pod.node, pod.created_at, pod.key)):
        for claim in pod.shape.claims:
            if claim.key and (not users.get(claim.key) or users[claim.key][-1] is not pod):
                users.setdefault(claim.key, []).append(pod)
    return users


def _together(label: str) -> PodAffinityTerm:
    """Return the rule that pods with a shared claim share a node."""
    return PodAffinityTerm(
        HOSTNAME, parse_selector({"matchLabels": {label: "shared"}}), anti=False, namespaces=None
    )


def _alone(whole: str) -> Iterator[PodAffinityTerm]:
    """Yield the rule that keeps apart pods with different claims that no number describes."""
    if whole and whole != _PLAIN:
        expressions = [
            {"key": _WHOLE_LABEL, "operator": "Exists"},
            {"key": _WHOLE_LABEL, "operator": "NotIn", "values": [whole]},
        ]
        selector = parse_selector({"matchExpressions": expressions})
        yield PodAffinityTerm(HOSTNAME, selector, anti=True, namespaces=None)


def _devices_of(shape: Shape) -> Resources:
    return Resources({name: amount for name, amount in shape.requests.items() if name.startswith(DEVICES)})


def _described(claims: Iterable[PodClaim]) -> str:
    """Return what claims ask for, for people: `2 of gpu.example.com, all of nic.example.com`."""
    parts = [
        " or ".join(dict.fromkeys(map(_described_want, request.wants)))
        for claim in claims
        for request in claim.requests
    ]
    return ", ".join(parts[:_SHOWN]) + (" and others" if len(parts) > _SHOWN else "")


def _described_want(want: DeviceSelection) -> str:
    amounts = ", ".join(f"{name} {format_bytes(amount // 1000)}" for name, amount in want.capacity.items())
    return f"{want.count or 'all'} of {want.device_class}{f' with {amounts}' if amounts else ''}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
