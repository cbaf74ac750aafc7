"""A day in the small world of a cluster that EKS Auto Mode manages nodes of as well."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from nodesmith.model.apimachinery.times import format_time
from tests import builders
from tests.objects import foreign
from tests.objects.foreign import Manifest
from tests.scenarios.moves import MOVING
from tests.smallworld.world import World, pod_manifest

OURS = "ours"
HOUR = timedelta(hours=1)
DAY = 24 * HOUR
AUTO_MODES = (
    *foreign.BUILT_IN,
    "gp-claim",
    "sys-claim",
    "gp-coming",
    "gp-broken",
    "i-auto1",
    "i-auto2",
    "i-auto3",
)
"""The names of all objects that belong to Auto Mode at some time of the day."""


class SharedWorld(World):
    """A small world with Auto Mode's built-in NodePools, and two of its nodes with their NodeClaims.

    Our EC2NodeClass is called `default`, as is the NodeClass of Auto Mode's NodePools.
    """

    def __init__(self, pods: dict[str, Manifest]) -> None:
        super().__init__(pods, nodepool=builders.nodepool_manifest(OURS))
        self.concerns = MOVING
        self.cluster.nodepools = {OURS: self.cluster.nodepools["default"]}
        for name in foreign.BUILT_IN:
            self.cluster.nodepools[name] = foreign.auto_mode_nodepool(name)
        self.running = {"i-auto1", "i-auto2"}
        """Auto Mode's instances."""
        self.add_auto_mode("gp-claim", "general-purpose", "i-auto1")
        self.add_auto_mode("sys-claim", "system", "i-auto2", foreign.CRITICAL_ADDONS)
        self.expected = self.auto_mode()
        self.unexpected: list[str] = []

    def add_auto_mode(self, claim: str, pool: str, instance: str, *taints: Manifest) -> None:
        """Add a node of Auto Mode."""
        self.cluster.nodeclaims[claim] = foreign.nodeclaim(claim, pool, instance=instance)
        self.cluster.nodes[instance] = foreign.node(instance, pool, taints=taints)

    def is_alive(self, node: str) -> bool:
        """Return whether a Node's instance is alive."""
        return node in self.running or super().is_alive(node)

    def auto_mode(self) -> dict[str, Manifest]:
        """Return a copy of all objects of Auto Mode, by kind and name."""
        found: dict[str, Manifest] = {}
        kinds = {
            "NodePool": self.cluster.nodepools,
            "NodeClaim": self.cluster.nodeclaims,
            "Node": self.cluster.nodes,
        }
        for kind, objects in kinds.items():
            found |= {f"{kind}/{name}": each for name, each in objects.items() if self._is_auto_modes(each)}
        return foreign.copied(found)

    def auto_mode_does(self, what: Callable[[], None]) -> None:
        """Apply a change by Auto Mode to its own objects; the result is the expected state from then on."""
        self.unexpected += foreign.changed(self.expected, self.auto_mode())
        what()
        self.expected = self.auto_mode()

    def foreign_writes(self) -> list[str]:
        """Return our writes to Auto Mode's objects, according to the recorded calls and to the objects."""
        names = {name.partition("/")[2] for name in self.expected} | set(AUTO_MODES)
        calls = [str(call) for call in self.cluster.calls if names & set(call.about)]
        return [*calls, *self.unexpected, *foreign.changed(self.expected, self.auto_mode())]

    @staticmethod
    def _is_auto_modes(manifest: Manifest) -> bool:
        labels = manifest["metadata"].get("labels") or {}
        made_from = {f"{foreign.AUTO_MODE}/nodeclass", "app.kubernetes.io/managed-by"}
        return bool(made_from & labels.keys())


def lived_day(hours: int = 24) -> SharedWorld:
    """Return the world after a day in which pods come and go, and Auto Mode adds, loses and breaks its own nodes."""
    world = SharedWorld({f"web-{number}": pod_manifest(f"web-{number}", cpu="3") for number in range(6)})
    world.settle()
    world.live(timedelta(minutes=10))
    world.auto_mode_does(lambda: _comes(world))
    world.live(timedelta(minutes=20))
    world.auto_mode_does(lambda: _breaks(world))
    world.remove(sorted(world.pods)[:3])
    world.live(timedelta(minutes=30))
    world.auto_mode_does(lambda: _is_cleared(world))
    for number in range(2, hours + 1):
        world.add(f"hourly-{number}", cpu="3")
        world.live(HOUR / 2)
        world.remove([f"hourly-{number}"])
        world.live(HOUR / 2)
    return world


def _comes(world: SharedWorld) -> None:
    """Add a NodeClaim that is not launched yet, and one whose launch failed."""
    coming = foreign.nodeclaim("gp-coming", "general-purpose")
    broken = foreign.nodeclaim("gp-broken", "general-purpose")
    failed = {"type": "Launched", "status": "False", "reason": "LaunchFailed", "message": "no capacity"}
    broken["status"] = {"conditions": [failed]}
    world.cluster.nodeclaims |= {"gp-coming": coming, "gp-broken": broken}


def _breaks(world: SharedWorld) -> None:
    """Lose an instance; finalizers keep its Node and NodeClaim until Auto Mode deletes them."""
    world.running.add("i-auto3")
    world.add_auto_mode("gp-coming", "general-purpose", "i-auto3")
    world.cluster.nodes["i-auto3"]["metadata"]["deletionTimestamp"] = format_time(world.now)
    world.cluster.nodes["i-auto3"]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    del world.cluster.nodeclaims["gp-broken"]


def _is_cleared(world: SharedWorld) -> None:
    del world.cluster.nodes["i-auto3"], world.cluster.nodeclaims["gp-coming"]
