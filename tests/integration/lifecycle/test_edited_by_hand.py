"""Manual edits of Nodes and NodeClaims in each phase: our fields are restored, and termination is clean."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODECLASS, NODEPOOL, REGISTERED, TERMINATION_FINALIZER
from nodesmith.model.karpenter.nodeclaims import Phase
from tests.integration.lifecycle.test_ends_in_every_phase import Moment, a_world, is_there, set_up
from tests.samples import sampled
from tests.scenarios.crashes import delete_objects
from tests.smallworld.world import World

Objects = dict[str, dict[str, Any]]
KINDS = ("Node", "NodeClaim")
PHASES = (
    Phase.LAUNCHED,
    Phase.REGISTERED,
    Phase.INITIALIZED,
    Phase.TERMINATING,
    Phase.DRAINED,
    Phase.TERMINATED,
)


def objects(world: World, kind: str) -> Objects:
    return world.cluster.nodes if kind == "Node" else world.cluster.nodeclaims


def metadata(**parts: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda there: {**there, "metadata": {**there["metadata"], **parts}}


def with_another_provider_id(there: dict[str, Any]) -> dict[str, Any]:
    return {**there, "status": {**(there.get("status") or {}), "providerID": "aws:///us-east-1a/i-another"}}


def without_status(there: dict[str, Any]) -> dict[str, Any]:
    return {**there, "status": {**there["status"], "conditions": []}}


def restored(there: dict[str, Any]) -> dict[str, Any]:
    """Return a Node that was recreated from a backup. No kubelet sets its provider id again."""
    spec = {name: value for name, value in there["spec"].items() if name != "providerID"}
    return {**there, "spec": spec}


EDITS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "its labels are removed": metadata(labels={}),
    "its NodePool is another": metadata(labels={NODEPOOL: "another", NODECLASS: "another"}),
    "its annotations are removed": metadata(annotations={}),
    "its finalizer is removed": metadata(finalizers=[]),
    "its owner is removed": metadata(ownerReferences=[]),
    "its provider id is another": with_another_provider_id,
    "its conditions are removed": without_status,
    "it is restored without a provider id": restored,
}
ONLY = {"its provider id is another": "NodeClaim", "it is restored without a provider id": "Node"}
"""A Node's provider id is immutable. A NodeClaim's is in its status."""
EDITED = [(kind, how) for kind in KINDS for how in EDITS if ONLY.get(how, kind) == kind]
CASES = [
    (*edited, phase)
    for turn, phase in enumerate(PHASES)
    for number, edited in enumerate(EDITED)
    if (turn + number) % sampled(4, whole=1) == 0
]
"""In a sample, every edit in a quarter of the phases, and a quarter of the edits in every phase."""


def edit(world: World, kind: str, how: str) -> None:
    """Edit all objects of a kind. Objects that are being deleted are removed if no finalizer holds them."""
    there = objects(world, kind)
    for name, each in list(there.items()):
        there[name] = EDITS[how](each)
        if each["metadata"].get("deletionTimestamp") and not there[name]["metadata"].get("finalizers"):
            del there[name]


def unmarked(world: World) -> list[str]:
    """Return the names of the objects that lack our fields."""
    found = []
    for kind in KINDS:
        for name, each in objects(world, kind).items():
            about = each["metadata"]
            wanted = {
                NODEPOOL: "default",
                NODECLASS: "default",
                **({REGISTERED: "true"} if kind == "Node" else {}),
            }
            if not wanted.items() <= about["labels"].items():
                found.append(f"{kind} {name} has the labels {about['labels']}")
            claims = {claim["metadata"]["uid"] for claim in world.cluster.nodeclaims.values()}
            if kind == "Node" and {owner["uid"] for owner in about.get("ownerReferences") or ()} != claims:
                found.append(f"Node {name} has the owners {about.get('ownerReferences')}")
            if TERMINATION_FINALIZER not in about.get("finalizers", ()):
                found.append(f"{kind} {name} is held by nothing")
    found += [
        f"Node {n} has no provider id"
        for n, e in world.cluster.nodes.items()
        if "providerID" not in e["spec"]
    ]
    for name, each in world.cluster.nodeclaims.items():
        if each["status"].get("providerID") != world.store.claims[name].provider_id:
            found.append(f"NodeClaim {name} has the provider id {each['status'].get('providerID')}")
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "how", "phase"), CASES, ids=str)
def test_manual_edits_are_reverted_and_termination_is_clean(kind: str, how: str, phase: Phase) -> None:
    moment = Moment()
    world = a_world(moment)
    moment.is_now = lambda: (
        any(c.phase is phase for c in world.store.claims.values()) and is_there(world, kind)
    )
    moment.happens = lambda: edit(world, kind, how)
    set_up(world, phase)
    world.settle(patience=timedelta(minutes=20))
    world.live(timedelta(minutes=3))

    assert moment.is_over
    assert world.violations() == []
    assert unmarked(world) == []

    delete_objects(kind)(world)
    gone = set(world.store.claims)
    world.settle(patience=timedelta(minutes=20))
    assert world.violations() == []
    assert not gone & set(world.store.claims), "deleted nodes still end"


def test_a_restored_node_is_drained_even_if_its_nodeclaim_is_deleted_at_the_same_time() -> None:
    world = a_world()
    world.settle()
    edit(world, "Node", "it is restored without a provider id")
    delete_objects("NodeClaim")(world)
    world.settle()
    assert world.violations() == []
    assert len(world.cloud.instances) == 2, "the old node is gone"


def test_a_node_restored_after_its_claim_is_gone_is_released() -> None:
    world = a_world()
    world.settle()
    kept = dict(world.cluster.nodes)
    delete_objects("NodeClaim")(world)
    world.settle()
    for name, node in kept.items():
        silent = [{"type": "Ready", "status": "Unknown"}]
        world.cluster.nodes[name] = {**restored(node), "status": {**node["status"], "conditions": silent}}
        world.cluster.delete("Node", name)  # the cloud controller does not know the instance
    world.live(timedelta(minutes=3))
    assert not kept.keys() & world.cluster.nodes.keys()
    assert world.violations() == []
