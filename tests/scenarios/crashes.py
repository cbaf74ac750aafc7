"""Every story of the small world, repeated with a crash, a visit or a pause at each of its boundaries.

The benchmark counts with `crash_report`; `tests/integration/resilience/test_crash_safety.py` tests the same stories.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

from nodesmith.model.ec2.launches import (
    Deferred,
    LaunchOutcome,
    LaunchRequest,
    NoCapacity,
    Refused,
    Shortfall,
    TemplateMissing,
    Unfulfilled,
)
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.objects.capacitybuffers import warm_buffer
from tests.samples import sampled, spread
from tests.smallworld.branches import branches
from tests.smallworld.passages import READS
from tests.smallworld.world import PATIENCE, STEP, Boundaries, Messages, World, pod_manifest

SLOWEST_RUN = timedelta(seconds=55)
"""How long a function may stand still and continue: its timeout is 60 s, the lease on a claim 75 s."""
SUBSETS = sampled(1, whole=6)
"""Random sets of crashes per story."""
SAMPLE = sampled(1, whole=24)
"""The number of moments in stories where a sample is enough."""


def _nothing(world: World) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """One scenario in the world. `prepare` sets it up before anything runs."""

    name: str
    pods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prepare: Callable[[World], None] = _nothing
    nodepool: dict[str, Any] | None = None
    resolved: bool = True
    exact: bool = True
    """Whether crashes must leave the same number of instances. Where pools are short, plans may differ."""

    def lived(self, boundaries: Boundaries | None = None, messages: Messages | None = None) -> World:
        """Return the world after it has settled."""
        world = self.begun(boundaries, messages)
        world.settle()
        return world

    def begun(self, boundaries: Boundaries | None = None, messages: Messages | None = None) -> World:
        """Return the world before anything has happened."""
        pods = {
            name: pod_manifest(name, **asked)
            for name, asked in (self.pods or {"web-0": {}, "web-1": {}}).items()
        }
        world = World(
            pods, nodepool=self.nodepool, boundaries=boundaries, messages=messages, resolved=self.resolved
        )
        self.prepare(world)
        return world


@dataclass(frozen=True, slots=True)
class CrashReport:
    """How many boundaries had a function killed, over all stories, and how many guarantees did not hold then."""

    points: int
    violations: int


def crash_report(sample: int = 64, stories: Sequence[Story] | None = None) -> CrashReport:
    """Kill at every boundary of every story, at every few boundaries of a long one, and at random sets of them.

    In a story with twice `sample` boundaries, every second one is used, and so on.
    """
    return _counted(found for story in stories or STORIES for found in crashes(story, sample))


def _counted(tellings: Iterable[tuple[frozenset[int], list[str]]]) -> CrashReport:
    points, broken = 0, 0
    for fatal, found in tellings:
        points += len(fatal)
        broken += len(found)
    return CrashReport(points, broken)


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """A story without any disturbance: the moments that differ, those before each step, instances and violations.

    `calls` has the call that each moment comes after. Dying at any moment is as dying right after the last call that
    has changed something: in EC2, or elsewhere.
    """

    moments: Sequence[int]
    calls: Mapping[int, str]
    in_ec2: Sequence[int]
    elsewhere: Sequence[int]
    before_steps: Sequence[int]
    instances: int
    violations: Sequence[str]


@lru_cache(maxsize=64)
def undisturbed(story: Story) -> Undisturbed:
    """Run a story without a disturbance, once for all tests of it."""
    world = story.lived(Boundaries())
    crossed, found = world.boundaries, violations(world, most=1000, disturbed=0)
    moments = crossed.distinct()
    boundaries = {moment: crossed.moments[moment - 1][0].partition(" ") for moment in moments}
    calls = {moment: call for moment, (when, _, call) in boundaries.items() if when == "after"}
    changing = {moment: call for moment, call in calls.items() if call not in READS}
    in_ec2 = [moment for moment, call in changing.items() if call.startswith("FakeCloud.")]
    elsewhere = sorted(changing.keys() - {*in_ec2})
    instances = len(world.cloud.instances)
    return Undisturbed(moments, calls, in_ec2, elsewhere, crossed.before_steps, instances, found)


def crashes(story: Story, sample: int = 0) -> Iterator[tuple[frozenset[int], list[str]]]:
    """Run the story without a crash, with each, and with random sets; yield the crashes' moments and the violations."""
    yield frozenset(), list(undisturbed(story).violations)
    known, bought = undisturbed(story), allowed(story)
    moments = sorted((*known.in_ec2, *known.elsewhere))
    dice = random.Random(story.name)  # noqa: S311
    sets = [frozenset({moment}) for moment in _moments(story, sample)]
    sets += [
        frozenset(dice.sample(moments, min(len(moments), dice.choice((2, 2, 3, 5))))) for _ in range(SUBSETS)
    ]
    sets.sort(key=min)
    for fatal, world in zip(sets, _before(story, map(min, sets)), strict=True):
        world.boundaries.fatal = fatal
        yield fatal, violations(_settled(world), bought, len(fatal))


def _before(story: Story, moments: Iterable[int]) -> Iterator[World]:
    """Return the story's world before each of these moments, which are in rising order."""
    world = story.begun(Boundaries(look=None))
    world.observe()
    return branches(world, moments, undisturbed(story).before_steps)


def _settled(world: World) -> World:
    """Run a world to its end, within the same total time as from its beginning."""
    world.settle(patience=builders.NOW + PATIENCE - world.now)
    return world


def _moments(story: Story, sample: int) -> Sequence[int]:
    """Return all moments of a story, or so many; half of a small sample are calls that change something in EC2."""
    known = undisturbed(story)
    if not sample or sample >= len(known.in_ec2) + len(known.elsewhere):
        return spread(known.moments, sample, story.name)
    in_ec2 = spread(known.in_ec2, (sample + 1) // 2, story.name)
    others = sample - len(in_ec2)
    return sorted((*in_ec2, *(spread(known.elsewhere, others, story.name) if others else ())))


def allowed(story: Story) -> int:
    """Return how many instances may ever run in a story: as many as in an undisturbed run."""
    return undisturbed(story).instances if story.exact else 1000


def violations(world: World, most: int, disturbed: int = 1) -> list[str]:
    """Return the violations in a settled world, in which at most `most` instances may ever have run.

    An instance may be terminated once, and once more for each `disturbed` function: a function that dies or pauses
    between the call and its record causes a repetition.
    """
    found = world.violations()
    found += [f"{i} was terminated {n} times" for i, n in world.terminations.items() if n > 1 + disturbed]
    if len(world.cloud.instances) > most:
        found.append(f"{len(world.cloud.instances)} instances were launched in place of {most}")
    return found


def visits(story: Story, visitor: Concern, sample: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Run the story with a whole run of another function inside, at each boundary in turn."""
    moments = _moments(story, sample)
    for moment, world in zip(moments, _before(story, moments), strict=True):
        world.boundaries.visits[moment] = partial(world.visit, visitor)
        yield moment, violations(_settled(world), allowed(story))


def pauses(story: Story, sample: int = 0, after: str = "") -> Iterator[tuple[int, list[str]]]:
    """Run the story with one function paused at each boundary in turn, while all others continue.

    If a call is given, these are the boundaries after it.
    """
    calls = undisturbed(story).calls
    moments = [n for n in _moments(story, sample) if after in ("", calls.get(n, ""))]
    for moment, world in zip(moments, _before(story, moments), strict=True):
        world.boundaries.visits[moment] = partial(stand_still, world)
        yield moment, violations(_settled(world), allowed(story))


def stand_still(world: World) -> None:
    """Let everything else continue for as long as one function may pause."""
    for _ in range(SLOWEST_RUN // STEP):
        world.pass_time()
        for concern in world.concerns:
            world.visit(concern)


def _empty(*patterns: str) -> Callable[[World], None]:
    """Return a preparation that makes pools empty."""

    def prepare(world: World) -> None:
        world.cloud.stock = dict.fromkeys(patterns, 0)

    return prepare


def _answered(*answers: Callable[[LaunchRequest], LaunchOutcome]) -> Callable[[World], None]:
    """Return a preparation with EC2's answers to the first requests."""

    def prepare(world: World) -> None:
        world.cloud.script = list(answers)

    return prepare


def throttled(request: LaunchRequest) -> LaunchOutcome:
    return Deferred(request.claim, "RequestLimitExceeded", "Request limit exceeded.", nothing_begun=True)


def throttled_inside(request: LaunchRequest) -> LaunchOutcome:
    return Unfulfilled(request.claim, "RequestLimitExceeded", "Request limit exceeded.")


def template_missing_inside(request: LaunchRequest) -> LaunchOutcome:
    return TemplateMissing(request.claim, is_answered=True)


def empty(request: LaunchRequest) -> LaunchOutcome:
    pools = request.offerings()
    return NoCapacity(request.claim, tuple(Shortfall(pool, "UnfulfillableCapacity") for pool in pools))


def over_quota(request: LaunchRequest) -> LaunchOutcome:
    pools = request.offerings()
    return NoCapacity(
        request.claim, tuple(Shortfall(pool, "MaxSpotInstanceCountExceeded") for pool in pools), quota=True
    )


def refused(request: LaunchRequest) -> LaunchOutcome:
    return Refused(request.claim, "Unauthorized", "UnauthorizedOperation: You are not authorized.")


def template_missing(request: LaunchRequest) -> LaunchOutcome:
    return TemplateMissing(request.claim)


def _restocked_later(world: World) -> None:
    world.cloud.stock = {"*": 0}
    world.mishaps.append((timedelta(minutes=4), lambda w: w.cloud.stock.clear()))


def _forgetful(world: World) -> None:
    """Forget client tokens: the lease and the lookup by tag alone must prevent duplicates."""
    world.cloud.forgetful = True


def _dies_young(world: World) -> None:
    def die(w: World) -> None:
        for instance in w.cloud.alive():
            w.cloud.become(instance.id, "terminated")

    world.mishaps.append((timedelta(seconds=20), die))


def _never_joins(world: World) -> None:
    joins_from = builders.NOW + timedelta(minutes=5)
    world.boots = lambda instance: instance.launched_at >= joins_from


def _nodeclass_changes(world: World) -> None:
    """Change the spec of the EC2NodeClass while its first claim is in flight."""

    def change(w: World) -> None:
        changed = builders.nodeclass_manifest(tags={"team": "web"})
        changed["metadata"]["generation"] = 2
        w.cluster.nodeclasses["default"] = changed

    world.mishaps.append((STEP, change))


SETTLED = timedelta(seconds=100)
"""By this time, a small undisturbed cluster has what it needs."""


def delete_objects(kind: str) -> Callable[[World], None]:
    """Return what deletes all NodeClaims, or all Nodes, as a user does."""

    def delete(world: World) -> None:
        there = world.cluster.nodes if kind == "Node" else world.cluster.nodeclaims
        for name in list(there):
            world.cluster.delete(kind, name)

    return delete


def _deleted(kind: str, after: timedelta) -> Callable[[World], None]:
    """Return a preparation in which a user deletes all NodeClaims, or all Nodes, that exist by then."""
    delete = delete_objects(kind)  # once, so that worlds with the same mishaps are equal
    return lambda world: world.mishaps.append((after, delete))


def _guarded(world: World) -> None:
    """Delete all Nodes of four pods, of which only one may be unavailable at a time."""
    world.guard(maxUnavailable=1, expected=4)
    _deleted("Node", SETTLED)(world)


def _unlaunched(world: World) -> None:
    """Delete NodeClaims while EC2 throttles the launch of their instances."""
    _answered(throttled, throttled)(world)
    _deleted("NodeClaim", timedelta(seconds=20))(world)


def _killed_in_ec2(world: World) -> None:
    def kill(w: World) -> None:
        for instance in w.cloud.alive():
            w.cloud.become(instance.id, "terminated")

    world.mishaps.append((SETTLED, kill))


def _torn(world: World) -> None:
    """Remove finalizers by hand from objects that are being deleted."""

    def tear(w: World) -> None:
        for objects in (w.cluster.nodes, w.cluster.nodeclaims):
            for name, each in list(objects.items()):
                if each["metadata"].get("deletionTimestamp"):
                    del objects[name]

    _deleted("NodeClaim", SETTLED)(world)
    world.mishaps.append((SETTLED + 2 * STEP, tear))


ENDS = (
    *(
        Story(f"a {kind} deleted {when}", prepare=_deleted(kind, after), exact=False)
        for kind, moments in (
            ("NodeClaim", {"before it joins": timedelta(seconds=25)}),
            ("Node", {"while it starts": timedelta(seconds=35), "in its prime": SETTLED}),
            ("NodeClaim", {"while it starts": timedelta(seconds=40), "in its prime": SETTLED}),
        )
        for when, after in moments.items()
    ),
    Story("a NodeClaim deleted while it launches", prepare=_unlaunched, exact=False),
    Story("Nodes whose pods are guarded", {f"web-{n}": {} for n in range(4)}, _guarded, exact=False),
    Story("an instance terminated by somebody else", prepare=_killed_in_ec2, exact=False),
    Story("finalizers removed by hand", prepare=_torn, exact=False),
)
"""Stories of how nodes end."""

_SMALL = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]

_THREE = {f"big-{n}": {"cpu": "3"} for n in range(3)}


def _few_spot(world: World) -> None:
    """Limit the pools to two of three equal nodes that one call requests."""
    world.cloud.stock = {"spot *": 2}


def _shown_late(world: World) -> None:
    """Make EC2 find instances by their fleet's tag only long after a lease has run out."""
    world.cloud.in_fleets_after = timedelta(minutes=4)


SHARED = (
    Story(
        "two of three nodes to be had",
        _THREE,
        _few_spot,
        nodepool=builders.nodepool_manifest(requirements=_SMALL),
        exact=False,
    ),
    Story(
        "three nodes that EC2 shows late",
        _THREE,
        _shown_late,
        nodepool=builders.nodepool_manifest(requirements=_SMALL),
    ),
    Story(
        "three nodes of an EC2 that knows no client token again",
        _THREE,
        _forgetful,
        nodepool=builders.nodepool_manifest(requirements=_SMALL),
    ),
)
"""Stories of equal nodes that one CreateFleet call serves."""


def keep_warm(world: World, replicas: int = 1, **asked: Any) -> None:
    """Add a CapacityBuffer of stopped instances for pods of three CPUs, unless they ask for something else."""
    spec = pod_manifest("room", **{"cpu": "3", **asked})["spec"]
    spec["containers"][0]["image"] = "web:1"
    world.podtemplates = [
        {
            "metadata": {"namespace": "default", "name": "room", "generation": 1},
            "template": {"spec": spec, "metadata": {"labels": {"app": "web"}}},
        }
    ]
    world.cluster.capacitybuffers["default/room"] = warm_buffer(replicas)
    world.kept_warm = replicas


WARMED = timedelta(minutes=5)
"""By this time, an undisturbed instance of a buffer is stopped."""


def _warm_then_pods(world: World) -> None:
    keep_warm(world)
    world.mishaps.append((WARMED, lambda w: w.add("late-0", cpu="3")))


def _warm_then_none_left(world: World) -> None:
    """Let the capacity pool of the stopped instance run out before a pod comes."""

    def sold_out(w: World) -> None:
        (kept,) = (c for c in w.store.claims.values() if c.phase is Phase.STOPPED)
        w.cloud.stock = {f"{kept.capacity_type} {kept.instance_type} in {kept.zone}": 0}
        w.add("late-0", cpu="3")

    keep_warm(world)
    world.mishaps.append((WARMED, sold_out))


def _warm_then_gone(world: World) -> None:
    """Delete the buffer once its instance is stopped."""

    def delete(w: World) -> None:
        del w.cluster.capacitybuffers["default/room"]
        w.kept_warm = 0

    keep_warm(world)
    world.mishaps.append((WARMED, delete))


def _warm_then_terminated(world: World) -> None:
    """Terminate the stopped instance from outside."""

    def kill(w: World) -> None:
        for claim in w.store.claims.values():
            if claim.phase is Phase.STOPPED:
                w.cloud.become(claim.instance_id, "terminated")

    keep_warm(world)
    world.mishaps.append((WARMED, kill))


WARM_STORIES = (
    Story("an instance that is kept warm and started for a pod", prepare=_warm_then_pods, exact=False),
    Story("a warm instance that cannot be started", prepare=_warm_then_none_left, exact=False),
    Story("a buffer that is deleted when its instance is stopped", prepare=_warm_then_gone, exact=False),
    Story("a stopped instance that somebody terminates", prepare=_warm_then_terminated, exact=False),
)
"""Stories of stopped instances, beside pods that get nodes as usual."""

STORIES: tuple[Story, ...] = (
    Story("one node"),
    Story(
        "three nodes at once",
        _THREE,
        nodepool=builders.nodepool_manifest(requirements=_SMALL),
    ),
    Story("a cluster that has never been looked at", resolved=False),
    Story("EC2 that knows no client token again", prepare=_forgetful),
    Story("spot without capacity", prepare=_empty("spot *"), exact=False),
    Story("a zone without capacity", prepare=_empty("* in us-east-1a"), exact=False),
    Story("nothing to be had for four minutes", prepare=_restocked_later, exact=False),
    Story("throttled twice", prepare=_answered(throttled, throttled)),
    Story(
        "throttled inside two answers",
        prepare=_answered(throttled_inside, throttled_inside),
    ),
    Story("a launch template missing inside the answer", prepare=_answered(template_missing_inside)),
    Story("an empty answer", prepare=_answered(empty), exact=False),
    Story("over quota", prepare=_answered(over_quota), exact=False),
    Story("refused once", prepare=_answered(refused)),
    Story("a launch template removed by hand", prepare=_answered(template_missing)),
    Story("an instance that dies before it joins", prepare=_dies_young),
    Story("an instance that never joins", prepare=_never_joins),
    Story("an EC2NodeClass that changes meanwhile", prepare=_nodeclass_changes),
    *SHARED,
    *ENDS,
    *WARM_STORIES,
)
