"""Takeovers in the small world: Karpenter's nodes are adopted and released under load, with crashes and returns.

The command's ports have a boundary before and after every call. The world lives on while the command runs: functions
run, pods come, nodes join.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nodesmith.adapters.ec2.instances import Machine
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.decisions.disruption.drift import drifting
from nodesmith.decisions.takeover import STANDBY
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaimobjects import CREATED_FOR, DECISION, ORIGIN
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.ownership import (
    FLEET_TAG,
    MANAGED_BY_TAG,
    is_karpenters,
    is_marked,
    owned_tag,
    provider_id,
)
from nodesmith_cli.migration.adopting.sequence import Result, Takeover, adopt, release
from tests import builders
from tests.fakes.cloud import Call
from tests.fakes.store import FakeStore
from tests.objects import foreign
from tests.scenarios import moves
from tests.smallworld.branches import copied
from tests.smallworld.laws import violations
from tests.smallworld.world import Killed, Watched, World, catalog, pod_manifest

HOUR, PATIENT = timedelta(hours=1), timedelta(minutes=10)
AFTERWARDS = timedelta(minutes=4)
"""How long the world lives on after a takeover: garbage collection looks several times."""
SMALL = (*moves.ON_DEMAND, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4", "8"))
STRAY = "stray-claim"
"""A NodeClaim of Karpenter without an instance."""
MARKS = (DECISION, ORIGIN, CREATED_FOR)
_READS = frozenset(
    {"nodepools_and_nodeclasses", "nodeclaim", "karpenter_runs", "instances_of", "owned_instances", "living"}
    | {"fleet_instances", "owned", "notices", "cluster_info", "resolve", "zonal_shifts"}
)


@dataclass(slots=True)
class Load:
    """What happens at the boundaries of a command: the world lives on, pods come, the command dies at `fatal`."""

    world: World
    dice: random.Random
    fatal: int = 0
    back_at: int = 0
    """The boundary at which Karpenter comes back; 0 for never."""
    passed: int = 0
    pods: int = 0

    def cross(self, where: str) -> None:
        """Pass one boundary."""
        self.passed += 1
        if self.dice.random() < 0.3:
            self.world.step()
        if self.dice.random() < 0.1 and self.pods < 4:
            self.pods += 1
            self.world.add(f"late-{self.pods}-{self.passed}", memory="2Gi")
        if self.passed == self.back_at:
            self.world.cluster.karpenter = True
        if self.passed == self.fatal:
            raise Killed(where)


@dataclass(slots=True)
class WorldMachines:
    """The world's instances."""

    world: World

    def of_cluster(self) -> Sequence[Machine]:
        tags = self.world.cloud.tags
        return [Machine(each, dict(tags[each.id])) for each in self.world.cloud.alive()]

    def tag(self, resources: Sequence[str], tags: Mapping[str, str]) -> None:
        for each in resources:
            self.world.cloud.tags[each] = {**self.world.cloud.tags[each], **tags}

    def untag(self, resources: Sequence[str], keys: Sequence[str]) -> None:
        for each in resources:
            kept = {key: value for key, value in self.world.cloud.tags[each].items() if key not in keys}
            self.world.cloud.tags[each] = kept


@dataclass(slots=True)
class WorldObjects:
    """The world's objects."""

    world: World

    def nodeclaims(self) -> Sequence[Mapping[str, Any]]:
        return [*self.world.cluster.nodeclaims.values()]

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        return [*self.world.cluster.nodes.values()]

    def nodepools(self) -> Sequence[Mapping[str, Any]]:
        return [*self.world.cluster.nodepools.values()]

    def nodeclasses(self) -> Sequence[Mapping[str, Any]]:
        return [*self.world.cluster.nodeclasses.values()]

    def annotate(self, name: str, uid: str, annotations: Mapping[str, str | None]) -> bool:
        there = self.world.cluster.nodeclaims.get(name)
        if there is None or there["metadata"]["uid"] != uid:
            return False
        merged = {**(there["metadata"].get("annotations") or {}), **annotations}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.world.cluster.nodeclaims[name] = {
            **there,
            "metadata": {**there["metadata"], "annotations": kept},
        }
        return True

    def karpenter(self) -> Sequence[str]:
        return ["holds the lease"] if self.world.cluster.karpenter else []


def takeover(load: Load) -> Takeover:
    """Return the ports of a command on a world."""
    world = load.world

    def sleep(seconds: float) -> None:
        world.live(timedelta(seconds=max(5.0, seconds)))

    ports: Callable[[object], Any] = lambda port: Watched(port, load)  # type: ignore[arg-type]  # noqa: E731
    return Takeover(
        cluster=builders.CLUSTER,
        store=ports(world.store),
        machines=ports(WorldMachines(world)),
        objects=ports(WorldObjects(world)),
        snapshot=lambda: newest_snapshot(world.blobs, builders.CLUSTER),
        catalog=catalog(),
        clock=world.clock,
        sleep=sleep,
        say=lambda _: None,
        at_once=2,
    )


def karpenters_world(seed: int) -> World:
    """Return a cluster whose nodes Karpenter has launched. Some are still joining, and pods may be pending."""
    dice = random.Random(seed)  # noqa: S311
    pods = {f"web-{n:02d}": pod_manifest(f"web-{n:02d}", cpu="3") for n in range(dice.randrange(4, 12))}
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=SMALL))
    world.concerns = moves.MOVING
    world.settle()
    for n in range(dice.randrange(4)):
        world.add(f"joining-{n}", cpu="3")
    world.live(timedelta(seconds=5 * dice.randrange(8)))
    for _ in range(20):
        shown = {name: provider_id(each) for name, each in world.cluster.nodeclaims.items()}
        if all(c.provider_id and shown.get(c.name) == c.provider_id for c in world.store.claims.values()):
            break
        world.step()
    _given_to_karpenter(world)
    return world


def _given_to_karpenter(world: World) -> None:
    """Turn nodesmith's nodes into what Karpenter would have made of the same pods."""
    for name, claim in sorted(world.store.claims.items()):
        there = world.cluster.nodeclaims[name]
        kept = {k: v for k, v in there["metadata"]["annotations"].items() if k not in MARKS}
        world.cluster.nodeclaims[name] = {**there, "metadata": {**there["metadata"], "annotations": kept}}
        tags = {
            k: v
            for k, v in world.cloud.tags[claim.instance_id].items()
            if k not in (MANAGED_BY_TAG, FLEET_TAG)
        }
        world.cloud.tags[claim.instance_id] = tags
    old = world.store
    world.store = FakeStore(
        version=old.version, nodeclasses=old.nodeclasses, cluster=old.cluster, contents=old.contents
    )
    world.cluster.nodeclaims[STRAY] = foreign.karpenters_nodeclaim(STRAY)
    world.cluster.karpenter = True
    world.observe()
    world.cluster.karpenter = False


@dataclass(slots=True)
class Telling:
    """One takeover: how many pods were evicted, what went wrong, and how many boundaries it had."""

    evictions: int = 0
    violations: list[str] = field(default_factory=list)
    boundaries: int = 0


def adopted(base: World, seed: int, fatal: int = 0) -> tuple[World, Telling]:
    """Adopt a copy of a world, with one crash, run the command again, and live on for some minutes."""
    world = copied(base)
    before = _hashes(world)
    world.cluster.calls.clear()
    load = Load(world, random.Random(seed), fatal)  # noqa: S311
    result = _run_again(load, lambda run: adopt(run, HOUR, PATIENT))
    world.live(AFTERWARDS)
    found = [] if result.is_done else [f"not done: {result.reason}"]
    spare = _spare(world) if fatal else set()
    found += [each for each in violations(world) if STRAY not in each and each not in spare]
    found += _unadopted(world)
    found += [f"drifted {name}: {why}" for name, why in _drift(world).items()]
    found += _changed(before, _hashes(world))
    return world, Telling(_evictions(world), found, load.passed)


def released(base: World, seed: int, fatal: int = 0) -> tuple[World, Telling]:
    """Release a copy of an adopted world, with one crash, run the command again, and live on for some minutes."""
    world = copied(base)
    world.cluster.calls.clear()
    load = Load(world, random.Random(seed), fatal)  # noqa: S311
    result = _run_again(load, lambda run: release(run, timedelta(minutes=30)))
    shown, alive, hashes = foreign.copied(world.cluster.nodeclaims), _alive(world), _hashes(world)
    world.add("after-the-release", cpu="3")
    world.live(AFTERWARDS / 2)
    world.cluster.karpenter = True
    world.live(AFTERWARDS / 2)
    found = [] if result.is_done else [f"not done: {result.reason}"]
    found += [f"wrote NodeClaim {name}" for name in foreign.changed(shown, world.cluster.nodeclaims)]
    found += [f"changed instances: {sorted(alive ^ _alive(world))}"] if alive != _alive(world) else []
    found += _unreleased(world) + _changed(hashes, _hashes(world))
    return world, Telling(_evictions(world), found, load.passed)


def contended(base: World, seed: int, back_at: int) -> tuple[list[str], int]:
    """Adopt while Karpenter comes back; return what nodesmith still did a minute later, and the boundaries."""
    world = copied(base)
    world.concerns = (*moves.MOVING, Concern.REPAIR)
    load = Load(world, random.Random(seed), back_at=back_at)  # noqa: S311
    result = _run_again(load, lambda run: adopt(run, HOUR, PATIENT))
    world.cluster.karpenter = True
    found = ["claimed to be done"] if result.is_done and back_at else []
    world.live(timedelta(minutes=1))
    world.cluster.calls.clear()
    world.cloud.calls.clear()
    claims = dict(world.store.claims)
    world.add("under-karpenter", cpu="7")
    _troubled(world)
    pools = _pools(world)
    world.live(timedelta(minutes=10))
    found += ["a NodePool was written"] if pools != _pools(world) else []
    calls = [*world.cluster.calls, *world.cloud.calls]
    found += [str(call) for call in calls if call.method not in _READS and not _says_so(call)]
    found += ["the ledger changed"] if claims != world.store.claims else []
    world.cluster.karpenter = False
    world.live(timedelta(minutes=15))
    found += ["nodesmith does not serve again"] if not _is_bound(world, "under-karpenter") else []
    return found, load.passed


def _troubled(world: World) -> None:
    """Change the world so that every function has something to do that is Karpenter's now.

    A NodePool that was edited, an end, an interruption, an unhealthy node, and a Node that lacks its finalizer.
    """
    pool = copy.deepcopy(world.cluster.nodepools["default"])
    pool["metadata"]["generation"] += 1
    pool["spec"]["template"]["metadata"] = {"labels": {"team": "green"}}
    world.cluster.nodepools["default"] = pool
    serving = [claim for claim in world.store.claims.values() if claim.phase is Phase.INITIALIZED]
    serving.sort(key=lambda claim: claim.name)
    troubles = _deleted, _unhealthy, _interrupted, _stripped
    for claim, trouble in zip(serving, troubles, strict=False):
        trouble(world, claim)


def _deleted(world: World, claim: NodeClaim) -> None:
    there = world.cluster.nodeclaims[claim.name]
    deleted = {**there["metadata"], "deletionTimestamp": format_time(world.now)}
    world.cluster.nodeclaims[claim.name] = {**there, "metadata": deleted}


def _interrupted(world: World, claim: NodeClaim) -> None:
    world.warn(claim.instance_id)


def _unhealthy(world: World, claim: NodeClaim) -> None:
    node, since = world.cluster.nodes[claim.node_name], format_time(world.now - timedelta(hours=1))
    broken = {"type": "Ready", "status": "False", "reason": "Broken", "lastTransitionTime": since}
    world.cluster.nodes[claim.node_name] = {**node, "status": {**node["status"], "conditions": [broken]}}


def _stripped(world: World, claim: NodeClaim) -> None:
    node = world.cluster.nodes[claim.node_name]
    world.cluster.nodes[claim.node_name] = {**node, "metadata": {**node["metadata"], "finalizers": []}}


def _pools(world: World) -> list[Any]:
    """Return the NodePools without the condition that nodesmith stands by."""
    shown: list[Any] = []
    for pool in copy.deepcopy([*world.cluster.nodepools.values()]):
        conditions = pool.get("status", {}).get("conditions", [])
        pool.setdefault("status", {})["conditions"] = [c for c in conditions if c["type"] != STANDBY]
        shown.append(pool)
    return shown


def _says_so(call: Call) -> bool:
    return call.method == "publish" or (call.method == "merge_status" and call.about[0] == "NodePool")


def _is_bound(world: World, pod: str) -> bool:
    return bool(world.pods[pod]["spec"].get("nodeName"))


def _run_again(load: Load, command: Callable[[Takeover], Result]) -> Result:
    try:
        return command(takeover(load))
    except Killed:
        load.world.live(timedelta(seconds=5 * load.dice.randrange(1, 40)))
        return command(takeover(load))


def _evictions(world: World) -> int:
    return sum(call.method in {"evict", "delete_pods"} for call in world.cluster.calls)


def _alive(world: World) -> set[str]:
    return {each.id for each in world.cloud.alive()}


def _hashes(world: World) -> dict[str, dict[str, str]]:
    shown = {
        name: each["metadata"].get("annotations") or {} for name, each in world.cluster.nodeclaims.items()
    }
    return {name: {k: v for k, v in each.items() if "hash" in k} for name, each in shown.items()}


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [
        f"other hashes on {name}" for name in sorted(before) if name in after and before[name] != after[name]
    ]


def _drift(world: World) -> dict[str, str]:
    snapshot = newest_snapshot(world.blobs, builders.CLUSTER)
    assert snapshot is not None
    found = drifting(snapshot, world.store.load(), catalog(), world.now)
    return {name: drift.reason for name, drift in found.items()}


def _spare(world: World) -> set[str]:
    """Return the idle instances that were bought for pods which then got onto a node of Karpenter's.

    Such a node was still joining when the command died. Nothing but nodesmith can complete it, and only once it is
    adopted. nodesmith serves pending pods five minutes after Karpenter's last sign of life, whether or not it is.
    """
    where = {f"default/{name}": pod["spec"].get("nodeName") for name, pod in world.pods.items()}
    karpenters = {f"node-{c.instance_id}" for c in world.store.claims.values() if not c.nominated}
    return {
        f"idle instance {claim.instance_id}"
        for claim in world.store.claims.values()
        if claim.nominated and {where.get(pod) for pod in claim.nominated} <= karpenters
    }


def _unadopted(world: World) -> list[str]:
    """Return what has not become nodesmith's, and what has although it may not."""
    found: list[str] = []
    for name, manifest in sorted(world.cluster.nodeclaims.items()):
        claim = world.store.claims.get(name)
        if not provider_id(manifest):
            found += (
                [f"{name} has no instance and was adopted"] if claim is not None and name == STRAY else []
            )
        elif claim is None or claim.provider_id != provider_id(manifest):
            found.append(f"forgotten {name}")
        elif not is_marked(manifest):
            found.append(f"unmarked {name}")
        elif world.cloud.tags[claim.instance_id].get(MANAGED_BY_TAG) != builders.CLUSTER:
            found.append(f"untagged {name}")
    return found


def _unreleased(world: World) -> list[str]:
    """Return what is not Karpenter's."""
    found = [f"still in the ledger: {name}" for name in world.store.claims]
    for name, manifest in sorted(world.cluster.nodeclaims.items()):
        found += [] if is_karpenters(manifest) else [f"still marked: {name}"]
    claimed = {provider_id(each) for each in world.cluster.nodeclaims.values()}
    for instance in world.cloud.alive():
        tags = world.cloud.tags[instance.id]
        found += [f"still tagged: {instance.id}"] if MANAGED_BY_TAG in tags else []
        found += [f"leaked {instance.id}"] if instance.provider_id not in claimed else []
        found += [] if owned_tag(builders.CLUSTER) in tags else [f"lost tags: {instance.id}"]
    return found


@dataclass(frozen=True, slots=True)
class TakeoverReport:
    """The takeovers of many clusters: boundaries at which a command died, evictions, and what went wrong.

    `contended` are actions of nodesmith later than a minute after Karpenter came back, in `returns` returns.
    """

    clusters: int
    crashes: int
    evictions: int
    violations: list[str]
    returns: int
    contended: list[str]


def report(seeds: Iterable[int], stride: int = 1) -> TakeoverReport:
    """Adopt and release a cluster for each seed, undisturbed and with a crash at every `stride`th boundary."""
    clusters, returns = 0, 0
    tellings: list[Telling] = []
    contended_by: list[str] = []
    for seed in seeds:
        clusters += 1
        base = karpenters_world(seed)
        for world_before, takes in ((base, adopted), (adopted(base, seed)[0], released)):
            _, undisturbed = takes(world_before, seed)
            tellings.append(undisturbed)
            fatal = range(1 + seed % stride, undisturbed.boundaries + 1, stride)
            tellings += [takes(world_before, seed, each)[1] for each in fatal]
        _, boundaries = contended(base, seed, 0)
        for back_at in range(2 + seed % 3, boundaries, max(1, boundaries // 3)):
            returns += 1
            contended_by += [f"seed {seed}, {back_at}: {each}" for each in contended(base, seed, back_at)[0]]
    return TakeoverReport(
        clusters,
        len(tellings) - 2 * clusters,
        sum(each.evictions for each in tellings),
        [each for telling in tellings for each in telling.violations],
        returns,
        contended_by,
    )
