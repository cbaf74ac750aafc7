"""The finalizer that Karpenter leaves on EC2NodeClasses, and when it is removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.takeover import held_nodeclasses
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.builders import NOW
from tests.objects import foreign
from tests.smallworld.world import World

KARPENTERS_TURN = timedelta(minutes=5)


def karpenters(
    name: str = "old", deleted_for: timedelta | None = KARPENTERS_TURN, *more: str
) -> dict[str, Any]:
    """Return an EC2NodeClass created by Karpenter, deleted the given time ago; None means not deleted."""
    made = builders.nodeclass_manifest(name)
    made["metadata"]["finalizers"] = [NODECLASS_FINALIZER, *more]
    if deleted_for is not None:
        made["metadata"]["deletionTimestamp"] = format_time(NOW - deleted_for)
    return made


def held(*nodeclasses: dict[str, Any], claims: tuple[Any, ...] = (), **objects: Any) -> list[str]:
    return held_nodeclasses(builders.snapshot(nodeclasses=nodeclasses, **objects), claims, NOW)


def test_a_deleted_nodeclass_that_nothing_uses_is_held_by_the_finalizer_alone() -> None:
    assert held(karpenters("b"), karpenters("a"), builders.nodeclass_manifest("c")) == ["a", "b"]


def test_karpenter_has_five_minutes_first() -> None:
    assert held(karpenters(deleted_for=KARPENTERS_TURN - timedelta(seconds=1))) == []


def test_a_nodeclass_that_is_not_deleted_keeps_its_finalizer() -> None:
    assert held(karpenters(deleted_for=None)) == []


@pytest.mark.parametrize("made_by", ["nodesmith", "karpenter", "ledger", "v1beta1"])
def test_a_nodeclass_that_a_nodeclaim_names_is_in_use_whoever_created_the_nodeclaim(made_by: str) -> None:
    ours = builders.claim("one", phase=Phase.INITIALIZED)
    theirs = foreign.karpenters_nodeclaim("two", instance="i-1")
    old = {"metadata": {"name": "three"}, "spec": {"nodeClassRef": {"name": "default"}}}
    shown = {"nodesmith": manifest(ours), "karpenter": theirs, "v1beta1": old}
    claims = (ours,) if made_by == "ledger" else ()
    assert (
        held(
            karpenters("default"),
            claims=claims,
            nodeclaims=tuple([shown[made_by]] if made_by in shown else []),
        )
        == []
    )


def test_readiness_completes_the_deletion_and_removes_no_other_finalizer() -> None:
    world = World({})
    world.cluster.nodeclasses |= {
        "old": karpenters("old"),
        "kept": karpenters("kept", KARPENTERS_TURN, "example.com/a"),
    }
    world.live(timedelta(minutes=2))
    assert "old" not in world.cluster.nodeclasses
    assert world.cluster.nodeclasses["kept"]["metadata"]["finalizers"] == ["example.com/a"]


def test_while_karpenter_runs_the_finalizer_is_left_to_karpenter() -> None:
    world = World({})
    world.cluster.nodeclasses["old"] = karpenters("old")
    world.cluster.karpenter = True
    world.live(timedelta(minutes=10))
    assert world.cluster.nodeclasses["old"]["metadata"]["finalizers"] == [NODECLASS_FINALIZER]


def test_karpenter_is_not_looked_for_while_no_nodeclass_is_held() -> None:
    world = World({})
    world.cluster.nodeclasses["old"] = karpenters("old", None)
    world.live(timedelta(minutes=10))
    assert not any(call.method == "karpenter_runs" for call in world.cluster.calls)
