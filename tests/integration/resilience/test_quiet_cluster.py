"""A cluster whose concerns run only when due behaves, to the second, like one with every tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.disruption import MOST_AN_HOUR
from nodesmith.model.karpenter.nodepools import NODE_REPAIR
from tests import builders
from tests.experiments.quietness import QuietWorld, TracedWorld
from tests.fakes.cloud import IMAGES, ready_status
from tests.samples import sampled

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
Happening = Callable[[TracedWorld], None]


def nothing(world: TracedWorld) -> None:
    """Do nothing."""


def empty_one(world: TracedWorld) -> None:
    node = sorted(world.cluster.nodes)[0]
    world.remove([name for name, pod in world.pods.items() if pod["spec"].get("nodeName") == node])


def empty_all_but_one(world: TracedWorld) -> None:
    for node in sorted(world.cluster.nodes)[1:]:
        world.remove([name for name, pod in world.pods.items() if pod["spec"].get("nodeName") == node])


def protect(span: str) -> Happening:
    def act(world: TracedWorld) -> None:
        for name in sorted(world.pods):
            world.pods[name]["metadata"]["annotations"] = {DO_NOT_DISRUPT: span}
            world.pods[name]["status"]["startTime"] = format_time(world.now)

    return act


def fall_sick(world: TracedWorld) -> None:
    """Stop a kubelet's status updates while its instance keeps running."""
    sick, ready_after = sorted(world.cluster.nodes)[0], world.ready_after
    world.ready_after = lambda one: 90 * HOUR if f"node-{one.id}" == sick else ready_after(one)
    since = format_time(world.now)
    world.cluster.nodes[sick]["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    ]


def guard_and_delete(world: TracedWorld) -> None:
    """Delete a node whose pods cannot be evicted before its deadline."""
    world.guard(maxUnavailable=0, expected=6)
    claim = sorted(world.cluster.nodeclaims)[0]
    world.cluster.delete("NodeClaim", claim)


def release_an_image(world: TracedWorld) -> None:
    """Add a newer image to EC2."""
    known = ready_status(builders.nodeclass(), world.cloud.cluster, world.now)
    images = tuple(replace(image, id=f"{image.id}-new") for image in IMAGES)
    world.cloud.statuses["default"] = replace(known, images=images)


def leave_a_volume(world: TracedWorld) -> None:
    """Delete a pod, and soon leave an unattached volume and an unused instance profile behind."""
    world.remove(sorted(world.pods)[:1])
    world.live(6 * MINUTE)
    world.cloud.loose["vol-1"] = Owned(OwnedKind.VOLUME, "vol-1", created_at=world.now)
    world.cloud.loose["old"] = Owned(
        OwnedKind.INSTANCE_PROFILE, "old", created_at=world.now, owner_uid="gone"
    )


def sell_nothing(world: TracedWorld) -> None:
    world.cloud.stock["* * in *"] = 0
    world.add("late", cpu="12")


@dataclass(frozen=True)
class Story:
    """A NodePool, what happens some time after the cluster has settled, and how long the world then runs.

    `relies_on` is a concern that must report when it is due. If it were never due, the outcome would differ.
    """

    relies_on: Concern
    disruption: Mapping[str, Any] = field(default_factory=lambda: {"consolidateAfter": "5m"})
    template: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    happens: Happening = nothing
    hours: int = 3
    nodes: int = 3


CLOSED = {"nodes": "0", "schedule": "0 9 * * *", "duration": "5h"}
STORIES = {
    "nodes expire": Story(Concern.LIFECYCLE, template={"expireAfter": "1h"}, hours=3),
    "nodes may not go before they expire": Story(
        Concern.LIFECYCLE, {"budgets": [{"nodes": "0"}]}, {"expireAfter": "2h"}
    ),
    "nodes expire in the window of a budget": Story(
        Concern.LIFECYCLE,
        {"budgets": [{"nodes": "0", "schedule": "0 9-23 * * *", "duration": "50m"}]},
        {"expireAfter": "1h"},
        hours=2,
    ),
    "pods are protected while their nodes are to expire": Story(
        Concern.LIFECYCLE, template={"expireAfter": "3h"}, happens=protect("132m"), hours=3
    ),
    "pods are told that they are protected no longer": Story(
        Concern.LIFECYCLE, {"consolidateAfter": "Never"}, happens=protect("100m"), hours=2
    ),
    "nodes become consolidatable": Story(
        Concern.LIFECYCLE, {"consolidateAfter": "70m", "budgets": [{"nodes": "0"}]}, hours=1
    ),
    "an empty node waits for its time": Story(
        Concern.DISRUPTION, {"consolidateAfter": "45m"}, happens=empty_one
    ),
    "an empty node waits for a window": Story(
        Concern.DISRUPTION, {"consolidateAfter": "1m", "budgets": [CLOSED]}, happens=empty_one, hours=2
    ),
    "empty nodes go one an hour": Story(
        Concern.DISRUPTION,
        {"consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]},
        annotations={MOST_AN_HOUR: "1"},
        happens=empty_all_but_one,
        hours=2,
    ),
    "an image is released": Story(Concern.READINESS, happens=release_an_image, hours=1),
    "a node falls sick": Story(Concern.REPAIR, happens=fall_sick, hours=1, nodes=6),
    "things are left in EC2": Story(
        Concern.GARBAGECOLLECTION, {"consolidateAfter": "Never"}, happens=leave_a_volume, hours=1
    ),
    "launch templates are used no longer": Story(Concern.GARBAGECOLLECTION, hours=1),
    "a drain waits for its deadline": Story(
        Concern.TERMINATION,
        template={"terminationGracePeriod": "40m"},
        happens=guard_and_delete,
        hours=1,
    ),
    "nothing is for sale": Story(Concern.PROVISIONING, happens=sell_nothing, hours=1),
}

_SAMPLE = (
    "nodes expire in the window of a budget",
    "pods are told that they are protected no longer",
    "nodes become consolidatable",
    "an empty node waits for a window",
    "empty nodes go one an hour",
    "an image is released",
    "a node falls sick",
    "things are left in EC2",
    "launch templates are used no longer",
    "a drain waits for its deadline",
    "nothing is for sale",
)
"""Every concern, and for those with several reasons to be due each reason: the rest are longer or combine them."""
TOLD = {name: STORIES[name] for name in sampled(_SAMPLE, whole=tuple(STORIES))}
_ONE_EACH = tuple({story.relies_on: story for story in STORIES.values()}.values())
SILENCED = sampled(_ONE_EACH, whole=tuple(STORIES.values()))
"""Stories that are also told with a concern that never reports when it is due: in a sample, one per concern."""


def lived(kind: type[TracedWorld], story: Story) -> TracedWorld:
    """Run a story in a kind of world."""
    world = kind(story.nodes, 2, **story.disruption)
    pool = world.cluster.nodepools["default"]
    pool["spec"]["template"]["spec"].update(story.template)
    pool["metadata"].setdefault("annotations", {}).update(story.annotations)
    world.settle()
    world.live(sampled(15, whole=30) * MINUTE)
    story.happens(world)
    world.live(story.hours * HOUR)
    return world


class Forgetful(QuietWorld):
    """A quiet world in which one concern never reports when it is due."""

    silent: Concern

    def runs_at_tick(self, concern: Concern) -> bool:
        """Treat the silent concern as never due."""
        if concern is self.silent:
            self.dues[concern] = None
        return super().runs_at_tick(concern)


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", TOLD.values(), ids=TOLD)
def test_a_quiet_cluster_behaves_exactly_as_with_every_tick(story: Story) -> None:
    busy, quiet = lived(TracedWorld, story), lived(QuietWorld, story)
    assert quiet.trace == busy.trace
    assert quiet.invoked.total() < 0.9 * busy.invoked.total()
    if story in SILENCED:
        silent = type("Silent", (Forgetful,), {"silent": story.relies_on})
        assert lived(silent, story).trace != busy.trace, (
            f"the story does not depend on when {story.relies_on} is due"
        )


def test_no_concern_of_a_cluster_with_fifty_nodes_in_service_is_busy() -> None:
    world = QuietWorld(50, 1, consolidateAfter="30s", budgets=[{"nodes": "10%"}])
    world.cluster.nodepools["default"]["spec"]["template"]["spec"]["expireAfter"] = "720h"
    world.settle()
    world.live(70 * MINUTE)
    busy = {
        concern for concern, due in world.dues.items() if due is not None and due <= world.ran_at[concern]
    }
    assert busy == set()


def test_a_launch_keeps_lifecycle_due() -> None:
    world = QuietWorld(1, 1)
    world.boots = lambda _: False
    world.settle(patience=MINUTE)
    assert world.dues[Concern.LIFECYCLE] == world.ran_at[Concern.LIFECYCLE]
    assert world.dues[Concern.TERMINATION] is None


def test_unplaced_pods_keep_provisioning_due() -> None:
    world = QuietWorld(1, 1)
    world.cloud.stock["* * in *"] = 0
    world.settle(patience=MINUTE)
    assert world.dues[Concern.PROVISIONING] == world.ran_at[Concern.PROVISIONING]


def test_a_move_in_progress_keeps_disruption_due() -> None:
    world = QuietWorld(2, 2, consolidateAfter="30s")
    world.settle()
    empty_one(world)
    while not world.store.moves:
        world.step()
    world.step()
    assert world.dues[Concern.DISRUPTION] == world.ran_at[Concern.DISRUPTION]


def test_a_drain_keeps_termination_garbage_collection_and_provisioning_due() -> None:
    world = QuietWorld(2, 1)
    world.settle()
    guard_and_delete(world)
    world.live(3 * MINUTE)
    for concern in (Concern.TERMINATION, Concern.GARBAGECOLLECTION, Concern.PROVISIONING):
        assert world.dues[concern] == world.ran_at[concern], concern


def test_an_unhealthy_node_that_is_only_reported_is_reported_again_after_a_while() -> None:
    world = QuietWorld(6, 1)
    world.cluster.nodepools["default"]["metadata"]["annotations"] = {NODE_REPAIR: "Report"}
    world.settle()
    fall_sick(world)
    world.live(31 * MINUTE)
    told_at = world.ran_at[Concern.REPAIR]
    assert world.dues[Concern.REPAIR] == told_at + 15 * MINUTE
