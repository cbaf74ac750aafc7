"""Passes over a cluster that has not changed end at once, and anything that happens opens it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from nodesmith.decisions.disruption.search import propose
from nodesmith.decisions.provisioning import Inputs
from tests.builders import NOW, nodeclass_manifest, shape
from tests.fleets import fleet, pool, running, worker

FULL = shape("3500m", "5Gi")
SECONDS = timedelta(seconds=1)


def quiet() -> Inputs:
    """Give a cluster of two nodes in which nothing can be saved, ten seconds after the last of anything."""
    workers = [worker(name, "c6a.xlarge", memory="8Gi", capacity_type="spot") for name in "ab"]
    return later(fleet(workers, running(FULL, {"a": 1, "b": 1})), 10)


def later(inputs: Inputs, seconds: int) -> Inputs:
    now = inputs.now + seconds * SECONDS
    return replace(inputs, now=now, snapshot=replace(inputs.snapshot, taken_at=now))


def looks(inputs: Inputs, before: Inputs) -> bool:
    """Tell whether a pass looks at a cluster that was looked at before."""
    looked_at = propose(before).looked_at
    return propose(inputs, looked_at).looked_at != looked_at


def test_a_cluster_that_has_not_changed_is_not_looked_at_again_for_some_minutes() -> None:
    assert not looks(later(quiet(), 10), quiet())
    assert not looks(later(quiet(), 290), quiet())
    assert looks(later(quiet(), 300), quiet())


def test_a_pod_that_has_come_or_gone_since_is_a_change() -> None:
    inputs = later(quiet(), 10)
    late = replace(inputs.snapshot.pods[0], created_at=inputs.now - 5 * SECONDS)
    come = replace(inputs, snapshot=replace(inputs.snapshot, pods=(*inputs.snapshot.pods, late)))
    assert looks(come, quiet())
    left = replace(inputs.snapshot.nodes[0], last_pod_event_at=inputs.now - 5 * SECONDS)
    gone = replace(inputs, snapshot=replace(inputs.snapshot, nodes=(left, *inputs.snapshot.nodes[1:])))
    assert looks(gone, quiet())


def test_a_nodepool_or_nodeclass_of_another_generation_is_a_change() -> None:
    inputs = later(quiet(), 10)
    edited = pool()
    edited["metadata"]["generation"] = 2
    assert looks(replace(inputs, snapshot=replace(inputs.snapshot, nodepools=(edited,))), quiet())
    other = nodeclass_manifest("other")
    classes = (*inputs.snapshot.nodeclasses, other)
    assert looks(replace(inputs, snapshot=replace(inputs.snapshot, nodeclasses=classes)), quiet())


def test_a_new_claim_is_a_change() -> None:
    inputs = later(quiet(), 10)
    fresh = worker("c").claim
    ledger = replace(inputs.ledger, claims=(*inputs.ledger.claims, fresh))
    assert looks(replace(inputs, ledger=ledger), quiet())


def test_a_node_whose_time_has_not_come_yet_is_looked_at_until_it_has() -> None:
    waiting = worker("a", last_pod_event_at=NOW - 20 * SECONDS)
    before = later(fleet([waiting], pools=[pool(after="60s")]), 10)
    assert not propose(before).proposals
    assert propose(later(before, 35), propose(before).looked_at).proposals
