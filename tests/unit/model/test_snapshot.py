"""What is looked up in a snapshot: pods and volumes by their Node, and NodeClaim objects by name."""

from dataclasses import replace

from nodesmith.model.kubernetes.nodes import VolumeAttachment
from tests.builders import node, pods, shape, snapshot

BOUND = tuple(
    replace(pod, node=name) for pod, name in zip(pods(shape(), 4), ("a", "b", "a", ""), strict=True)
)


def test_pods_are_found_by_their_node_in_order() -> None:
    seen = snapshot(pods=BOUND, nodes=(node("a"), node("b"), node("c")))

    assert list(seen.pods_on("a")) == [BOUND[0], BOUND[2]]
    assert list(seen.pods_on("b")) == [BOUND[1]]
    assert list(seen.pods_on("c")) == list(seen.pods_on("")) == []


def test_a_changed_snapshot_finds_its_own_pods() -> None:
    seen = snapshot(pods=BOUND)
    assert len(seen.pods_on("a")) == 2

    assert list(replace(seen, pods=BOUND[1:]).pods_on("a")) == [BOUND[2]]


def test_volumes_are_found_by_the_node_that_they_are_attached_to() -> None:
    first, second = VolumeAttachment("a", "pv-1"), VolumeAttachment("b", "pv-2")
    seen = replace(snapshot(), attachments=(first, second))

    assert list(seen.attachments_on("b")) == [second]
    assert list(seen.attachments_on("c")) == []


def test_nodeclaim_objects_are_found_by_name() -> None:
    one, other = {"metadata": {"name": "one"}}, {"metadata": {"name": "other"}}

    assert snapshot(nodeclaims=(one, other)).shown_nodeclaims() == {"one": one, "other": other}
