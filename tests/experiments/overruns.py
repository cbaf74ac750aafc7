"""Random clusters whose nodes are disrupted, with a count of Nodes as an observer with kubectl would see them.

Other controllers hold Nodes and release them late; users delete Nodes, kubelets fall silent, replacements never join.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.budgets import allowed
from nodesmith.model.apimachinery.labels import DISRUPTED, INITIALIZED
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodepools import parse_nodepool
from tests import builders
from tests.scenarios.moves import MOVING
from tests.smallworld.world import Manifest, World, pod_manifest

BACKUP = "example.com/backup"
ONE_POD_A_NODE = [
    builders.expression("karpenter.sh/capacity-type", "In", "on-demand"),
    *builders.EXPRESS[1:],
    builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4"),
]
LIFE = timedelta(minutes=18)
"""How long a cluster is observed after the disruption of its nodes begins."""
QUIET = timedelta(minutes=2)
LONGEST_HOLD = timedelta(minutes=8)
_COUNTS = ("1", "2", "3", "10%", "25%", "34%", "50%")
_REASONS = ("Empty", "Drifted", "Underutilized")


@dataclass(frozen=True, slots=True)
class Overrun:
    """A moment at which more Nodes were disrupted than the budget allowed, just after nodesmith began with one."""

    at: datetime
    disrupted: int
    allowed: int
    begun: tuple[str, ...]


class Observed(World):
    """A world in which disrupted Nodes are counted after every write to the cluster."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311
        self.size = self.dice.randint(2, 10)
        pods = {f"web-{n}": pod_manifest(f"web-{n}", "3") for n in range(self.size)}
        super().__init__(pods, nodepool=_nodepool(self.dice))
        self.boundaries.look = None
        self.concerns = MOVING
        self.overruns: list[Overrun] = []
        self.most = 0
        """The highest number of Nodes disrupted at once."""
        self.held_nodes = 0
        """How many Nodes another controller has released some time after their deletion."""
        self._known: set[str] = set()
        self._forced: set[str] = set()
        self._silent: dict[str, datetime] = {}
        self._holds: dict[str, timedelta] = {}
        self.cluster.raise_after = lambda _: self.count()

    def hold(self, share: float) -> None:
        """Add another controller's finalizer to about this share of the existing Nodes."""
        for name, node in sorted(self.cluster.nodes.items()):
            if self.dice.random() < share:
                node["metadata"].setdefault("finalizers", []).append(BACKUP)
                self._holds[name] = self.dice.random() * LONGEST_HOLD

    def delete_node(self) -> None:
        """Delete a Node as a user would, regardless of budgets."""
        for name in self._drawn_node():
            self._forced.add(name)
            self.cluster.delete("Node", name)

    def silence(self) -> None:
        """Make a kubelet fall silent for some minutes."""
        for name in self._drawn_node():
            self._forced.add(name)
            self._silent[name] = self.now + timedelta(seconds=self.dice.randint(30, 400))

    def _drawn_node(self) -> list[str]:
        nodes = sorted(self.cluster.nodes)
        return [self.dice.choice(nodes)] if nodes else []

    def _boot(self) -> None:
        super()._boot()
        for name, until in self._silent.items():
            if self.now < until and name in self.cluster.nodes:
                self.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]

    def _move(self) -> None:
        super()._move()
        self._let_go()
        self.count()

    def _let_go(self) -> None:
        """Release Nodes as the other controller, each some time after its deletion."""
        for name, node in list(self.cluster.nodes.items()):
            metadata = node["metadata"]
            deleted = metadata.get("deletionTimestamp")
            held = BACKUP in metadata.get("finalizers", ())
            if deleted and held and self.now >= parse_time(deleted) + self._holds[name]:
                metadata["finalizers"].remove(BACKUP)
                self.held_nodes += 1
                if not metadata["finalizers"]:
                    del self.cluster.nodes[name]

    def count(self) -> None:
        """Count as an observer would; record an overrun of the budget that nodesmith alone has caused."""
        nodes = {
            name: node
            for name, node in self.cluster.nodes.items()
            if node["metadata"]["labels"].get(INITIALIZED) == "true"
        }
        disrupted = {name for name, node in nodes.items() if is_disrupted(node)}
        begun = disrupted - self._known - self._forced
        self._forced -= self._known - disrupted  # it has recovered, or is gone
        self._known = disrupted
        self.most = max(self.most, len(disrupted))
        limits = [self._allowed(name, len(nodes)) for name in sorted(begun)]
        known = [limit for limit in limits if limit is not None]
        if known and len(known) == len(limits) and len(disrupted) > max(known):
            self.overruns.append(Overrun(self.now, len(disrupted), max(known), tuple(sorted(begun))))

    def _allowed(self, node: str, nodes: int) -> int | None:
        """Return how many Nodes may be disrupted at once for this Node's reason."""
        pool = parse_nodepool(self.cluster.nodepools["default"]).value
        assert pool is not None
        return allowed(pool.disruption.budgets, self._reason(node), nodes, 0, self.now)

    def _reason(self, node: str) -> str:
        claim = next(c for c in self.store.claims.values() if c.node_name == node)
        if claim.is_ending:
            return claim.cause
        return next(m.reason.value for m in self.store.moves.values() if claim.name in m.sources)


def is_disrupted(node: Mapping[str, Any]) -> bool:
    """Return whether an observer counts a Node as disrupted: deleted, closed to pods, or not Ready."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    tainted = any(taint["key"] == DISRUPTED.key for taint in node["spec"].get("taints") or ())
    return bool(node["metadata"].get("deletionTimestamp")) or tainted or not ready


def _nodepool(dice: random.Random) -> Manifest:
    manifest = builders.nodepool_manifest(requirements=ONE_POD_A_NODE)
    budgets: list[dict[str, Any]] = [{"nodes": dice.choice(_COUNTS)}]
    if dice.random() < 0.3:
        reasons = sorted(dice.sample(_REASONS, dice.randint(1, 2)))
        budgets.append({"nodes": dice.choice(_COUNTS), "reasons": reasons})
    manifest["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": budgets}
    return manifest


def observed(seed: int) -> Observed:
    """Return a random cluster after the disruption of its nodes."""
    world = Observed(seed)
    world.settle()
    world.live(QUIET)
    dice, since = world.dice, world.now - builders.NOW
    world.hold(dice.choice((0.3, 0.7, 1.0)))
    for happens in _chosen(dice):
        world.mishaps.append((since + timedelta(seconds=dice.randint(0, 60)), happens))
    for happens in _forced(dice):
        world.mishaps.append((since + timedelta(seconds=dice.randint(0, 600)), happens))
    if dice.random() < 0.2:
        world.boots = _joins_until(world.now)
    world.live(LIFE)
    return world


def _chosen(dice: random.Random) -> Iterator[Callable[[Any], None]]:
    """Yield the reasons for nodesmith to disrupt nodes: one, or two at once."""
    yield from dice.sample((_empties, _drifts, _expires), dice.choice((1, 1, 2)))


def _forced(dice: random.Random) -> Iterator[Callable[[Any], None]]:
    """Yield what users and machines do to Nodes regardless of budgets."""
    yield from (each for each in (Observed.delete_node, Observed.silence) if dice.random() < 0.3)


def _empties(world: Observed) -> None:
    world.remove(sorted(world.pods)[world.dice.randint(0, 1) :])


def _drifts(world: Observed) -> None:
    pool = world.cluster.nodepools["default"]
    pool["metadata"]["generation"] += 1
    pool["spec"]["template"].setdefault("metadata", {})["labels"] = {"team": "b"}


def _expires(world: Observed) -> None:
    for name, claim in world.store.claims.items():
        world.store.claims[name] = replace(claim, created_at=world.now - timedelta(hours=719))


def _joins_until(now: datetime) -> Callable[[Instance], bool]:
    """Prevent half of the instances launched from now on from joining."""

    def joins(instance: Instance) -> bool:
        return instance.launched_at < now or random.Random(instance.id).random() < 0.5  # noqa: S311

    return joins
