"""The observed state of a cluster. Each change updates it, so that a view costs little."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import RLock
from typing import Any

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.ownership import is_marked
from nodesmith.model.kubernetes.nodes import Node, parse_node
from nodesmith.model.kubernetes.pods import pod_requests
from nodesmith.model.ledger.ledger import shown_pause
from nodesmith.observation.decoding import UNREADABLE
from nodesmith.observation.mirror import NODECLAIMS, NODEPOOLS, NODES, PODS, WatchedKind, key_of
from nodesmith_cli.access.selecting import EVERYTHING, Selection
from nodesmith_cli.costs.savings.capacity import ACCELERATORS
from nodesmith_cli.costs.savings.nodeprices import PricedNode
from nodesmith_cli.views.top.rows import Gauge, NodeRow, PodRow, SavingsEstimate, View
from nodesmith_cli.views.top.states import LONGEST, claim_row, refusal_of, state_of
from nodesmith_formats.nodeclaims import shown_claim
from nodesmith_formats.wording import printable

Manifest = Mapping[str, Any]
Pricing = Callable[[Node, bool], PricedNode]
"""Returns a node's owner and price, given whether nodesmith has taken on its NodeClaim."""
KINDS = (NODES, PODS, NODECLAIMS, NODEPOOLS)
_DONE = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class _Pod:
    key: str
    uid: str
    node: str
    phase: str
    requests: Resources
    created_at: datetime
    refusal: str
    owner: str


@dataclass(slots=True)
class _Node:
    """A Node with its price, and the sums over its pods."""

    node: Node | None = None
    priced: PricedNode | None = None
    is_cordoned: bool = False
    pods: dict[str, _Pod] = field(default_factory=dict)
    cpu: int = 0
    memory: int = 0
    gpus: int = 0

    def count(self, pod: _Pod, step: int) -> None:
        """Add a pod's requests, or subtract them with a step of -1."""
        self.cpu += step * pod.requests.cpu_milli
        self.memory += step * pod.requests.memory_bytes
        self.gpus += step * sum(pod.requests.of(name) for name in ACCELERATORS)


class Fleet:
    """The newest known state of a cluster. Several threads may write to it and read from it.

    No node has a price until `price_with` is called. An object that cannot be read is left out and named in the notes
    of the view. Only the nodes and pending pods in `only` are listed.
    """

    def __init__(self, context: str, only: Selection = EVERYTHING) -> None:
        self.context = context
        self._only = only
        self.prospect: SavingsEstimate | None = None
        self.explanations: Mapping[str, str] = {}
        """The newest refusal of pods in Events, by the pod's uid."""
        self.windows: tuple[str, ...] = ()
        """When windows of NodePools' budgets end and begin, each in a sentence."""
        self.notes: dict[str, str] = {}
        """What could not be read, by topic."""
        self.is_polled = False
        """Whether prices, Events and usage, which are not watched, were read once."""
        self._lock = RLock()
        self._pricing: Pricing | None = None
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, _Pod] = {}
        self._waiting: dict[str, _Pod] = {}
        """The pods in `_pods` without a node. They are few, and each view shows them."""
        self._claims: dict[str, tuple[Manifest, NodeClaim]] = {}
        self._claim_of: dict[str, str] = {}
        """The name of the NodeClaim of a node, by provider id."""
        self._pools: dict[str, Manifest] = {}
        self._usage: Mapping[str, Resources] = {}
        self._rows: dict[str, NodeRow] = {}
        """The row of each Node; those of `_stale` nodes are out of date."""
        self._stale: set[str] = set()
        self._current: set[str] = set()
        self._unreadable: dict[str, str] = {}

    def needs(self, kind: WatchedKind) -> bool:
        """Return whether a kind is shown."""
        return kind.name in {known_kind.name for known_kind in KINDS}

    def mark(self, kind: WatchedKind, *, current: bool, resting: bool = False) -> bool:
        """Record whether a kind is up to date; return True if that has changed."""
        with self._lock:
            current = current and not resting
            changed = current != (kind.name in self._current)
            (self._current.add if current else self._current.discard)(kind.name)
            return changed

    @property
    def is_current(self) -> bool:
        """True while every kind is up to date."""
        return self._current >= {kind.name for kind in KINDS}

    def put(self, kind: WatchedKind, manifests: Iterable[Manifest]) -> None:
        """Store the newest states of objects."""
        for manifest in manifests:
            key = f"{kind.kind}/{key_of(manifest)}"
            with self._lock:
                self._unreadable.pop(key, None)
                try:
                    self._put(kind, key_of(manifest), manifest)
                except UNREADABLE as error:
                    self._unreadable[key] = f"{key} cannot be read and is left out: {error!r}"

    def drop(self, kind: WatchedKind, manifest: Manifest) -> None:
        """Remove an object that is gone."""
        with self._lock:
            self._drop(kind, key_of(manifest))

    def keep_only(self, kind: WatchedKind, keys: Collection[str]) -> None:
        """Remove the objects that a full list did not contain."""
        with self._lock:
            for key in set(self._keys(kind)) - set(keys):
                self._drop(kind, key)

    def price_with(self, pricing: Pricing) -> None:
        """Price all nodes, now and from now on."""
        with self._lock:
            self._pricing = pricing
            for state in self._nodes.values():
                self._price(state)

    def use(self, usage: Mapping[str, Resources]) -> None:
        """Set what nodes use, by name. The use of all other nodes is unknown."""
        with self._lock:
            if usage != self._usage:
                self._usage = usage
                self._stale.update(self._nodes)

    @property
    def is_priced(self) -> bool:
        """True once nodes have prices where these are known."""
        return self._pricing is not None

    def reason_of(self, key: str) -> str:
        """Return why a pod (`namespace/name`) has no node; empty if it has one or is unknown."""
        with self._lock:
            pod = self._pods.get(key)
            return "" if pod is None else self._refused(pod)

    def nodes(self) -> list[Node]:
        """Return all Nodes."""
        with self._lock:
            return [state.node for state in self._nodes.values() if state.node is not None]

    def pods_on(self, node: str, now: datetime) -> list[PodRow]:
        """Return a node's pods, by the cpu that they request, the largest first."""
        with self._lock:
            state = self._nodes.get(node)
            rows = [self._pod_row(pod, now) for pod in state.pods.values()] if state else []
        return sorted(rows, key=lambda row: (-row.cpu_milli, row.key))

    def pods_named(self, words: str, now: datetime, most: int) -> list[PodRow]:
        """Return at most `most` pods whose `namespace/name` contains the words, in lower case, by name."""
        with self._lock:
            keys = sorted(key for key in self._pods if words in key.lower())[:most]
            return [self._pod_row(self._pods[key], now) for key in keys]

    def view(self, now: datetime) -> View:
        """Return the view at a time."""
        with self._lock:
            self._redraw()
            coming = [claim for _, claim in self._claims.values() if not self._node_of(claim)]
            shown = (row for name, row in self._rows.items() if self._lists(name))
            coming = [claim for claim in coming if self._only.has(claim.labels, self._only.namespace)]
            rows = [*shown, *(claim_row(claim) for claim in coming)]
            waiting = (
                pod
                for key, pod in self._waiting.items()
                if self._only.namespace in {"", key.partition("/")[0]}
            )
            pending = sorted((self._pod_row(pod, now) for pod in waiting), key=lambda row: -row.age_seconds)
            pause = shown_pause(list(self._pools.values()))
            notes = (*list(self.notes.values()), *list(self._unreadable.values())[:3])
            return View(
                self.context,
                now,
                tuple(rows),
                tuple(pending),
                len(self._pods),
                str(pause) if pause else "",
                self.windows,
                prospect=self.prospect,
                notes=tuple(printable(note) for note in notes),
                is_current=self.is_current,
            )

    def _lists(self, name: str) -> bool:
        node = self._nodes[name].node if name in self._nodes else None
        return node is None or self._only.has(node.labels, self._only.namespace)

    @property
    def has_pending(self) -> bool:
        """True if a pod has no node."""
        with self._lock:
            return bool(self._waiting)

    def nodepools(self) -> list[Manifest]:
        """Return all NodePools."""
        with self._lock:
            return list(self._pools.values())

    def _redraw(self) -> None:
        """Rebuild the rows of stale nodes."""
        for name in self._stale:
            state = self._nodes.get(name)
            if state is None or state.node is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = self._node_row(name, state, state.node)
        self._stale.clear()

    def _keys(self, kind: WatchedKind) -> Iterable[str]:
        match kind.name:
            case NODES.name:
                return [name for name, state in self._nodes.items() if state.node is not None]
            case PODS.name:
                return self._pods
            case NODECLAIMS.name:
                return self._claims
            case _:
                return self._pools

    def _put(self, kind: WatchedKind, key: str, manifest: Manifest) -> None:
        match kind.name:
            case NODES.name:
                self._put_node(key, manifest)
            case PODS.name:
                self._put_pod(key, manifest)
            case NODECLAIMS.name:
                self._put_claim(key, manifest)
            case _:
                self._pools[key] = manifest

    def _drop(self, kind: WatchedKind, key: str) -> None:
        self._unreadable.pop(f"{kind.kind}/{key}", None)
        match kind.name:
            case NODES.name if key in self._nodes:
                self._stale.add(key)
                self._nodes[key].node = self._nodes[key].priced = None
                self._forget_if_unused(key)
            case PODS.name:
                self._remove_pod(key)
            case NODECLAIMS.name if key in self._claims:
                claim = self._claims.pop(key)[1]
                self._claim_of.pop(claim.provider_id, None)
                self._stale.add(claim.node_name)
            case NODEPOOLS.name:
                self._pools.pop(key, None)

    def _put_node(self, name: str, manifest: Manifest) -> None:
        self._stale.add(name)
        node = parse_node(manifest)
        state = self._nodes.setdefault(name, _Node())
        before, state.node = state.node, node
        state.is_cordoned = bool((manifest.get("spec") or {}).get("unschedulable"))
        if before is None or before.labels != node.labels or before.provider_id != node.provider_id:
            self._price(state)

    def _price(self, state: _Node) -> None:
        if self._pricing is not None and state.node is not None:
            self._stale.add(state.node.name)
            claim = self._claims.get(self._claim_of.get(state.node.provider_id, ""))
            state.priced = self._pricing(state.node, claim is not None and is_marked(claim[0]))

    def _put_pod(self, key: str, manifest: Manifest) -> None:
        self._remove_pod(key)
        spec, status, metadata = manifest["spec"], manifest.get("status") or {}, manifest["metadata"]
        if status.get("phase") in _DONE:
            return
        pod = _Pod(
            key,
            str(metadata.get("uid") or ""),
            str(spec.get("nodeName") or ""),
            "Terminating" if metadata.get("deletionTimestamp") else str(status.get("phase") or "Pending"),
            pod_requests(spec, status.get("containerStatuses") or ()),
            parse_time(str(metadata["creationTimestamp"])),
            refusal_of(status),
            next((f"{o.get('kind')}/{o.get('name')}" for o in metadata.get("ownerReferences") or ()), ""),
        )
        self._pods[key] = pod
        if not pod.node:
            self._waiting[key] = pod
        else:
            self._stale.add(pod.node)
            state = self._nodes.setdefault(pod.node, _Node())
            state.pods[key] = pod
            state.count(pod, 1)

    def _remove_pod(self, key: str) -> None:
        pod = self._pods.pop(key, None)
        self._waiting.pop(key, None)
        if pod is not None and pod.node:
            self._stale.add(pod.node)
            state = self._nodes[pod.node]
            del state.pods[key]
            state.count(pod, -1)
            self._forget_if_unused(pod.node)

    def _forget_if_unused(self, name: str) -> None:
        state = self._nodes[name]
        if state.node is None and not state.pods:
            del self._nodes[name]

    def _put_claim(self, key: str, manifest: Manifest) -> None:
        parsed = shown_claim(manifest, parse_time(str(manifest["metadata"]["creationTimestamp"])))
        if parsed.value is None:
            self._unreadable[f"NodeClaim/{key}"] = f"NodeClaim/{key} cannot be read and is left out"
            return
        claim = parsed.value
        self._claims[key] = manifest, claim
        self._stale.add(claim.node_name)
        if claim.provider_id and self._claim_of.get(claim.provider_id) != key:
            self._claim_of[claim.provider_id] = key
            for state in self._nodes.values():
                if state.node is not None and state.node.provider_id == claim.provider_id:
                    self._price(state)

    def _node_of(self, claim: NodeClaim) -> bool:
        state = self._nodes.get(claim.node_name)
        return state is not None and state.node is not None

    def _node_row(self, name: str, state: _Node, node: Node) -> NodeRow:
        entry = self._claims.get(self._claim_of.get(node.provider_id, ""))
        manifest, claim = entry if entry else (None, None)
        status, detail = state_of(node, claim, is_cordoned=state.is_cordoned)
        deadline = deadline_of(claim, manifest, claim.phase_since) if claim and claim.is_ending else None
        used, room = self._usage.get(name, NOTHING), node.allocatable
        has_usage = name in self._usage
        labels = state.priced.node.labels if state.priced else node.labels
        return NodeRow(
            name,
            (state.priced.owner.group if state.priced else "") or labels.get(NODEPOOL, ""),
            state.priced.owner.software if state.priced else "",
            labels.get(INSTANCE_TYPE, ""),
            labels.get(ZONE, ""),
            labels.get(CAPACITY_TYPE, ""),
            state.priced.price if state.priced else None,
            Gauge(state.cpu, room.cpu_milli, used.cpu_milli if has_usage else None),
            Gauge(state.memory, room.memory_bytes, used.memory_bytes if has_usage else None),
            Gauge(len(state.pods), room.pods),
            Gauge(state.gpus, sum(room.of(gpu) for gpu in ACCELERATORS)),
            node.created_at,
            status,
            printable(detail[:LONGEST]),
            deadline,
            state.is_cordoned,
        )

    def _pod_row(self, pod: _Pod, now: datetime) -> PodRow:
        return PodRow(
            pod.key,
            pod.node,
            pod.phase,
            pod.requests.cpu_milli,
            pod.requests.memory_bytes,
            max(0, int((now - pod.created_at).total_seconds())),
            self._refused(pod),
            pod.owner,
        )

    def _refused(self, pod: _Pod) -> str:
        if pod.node:
            return ""
        reason = self.explanations.get(pod.uid) or pod.refusal or "kube-scheduler has not tried yet"
        return printable(reason[:LONGEST])
