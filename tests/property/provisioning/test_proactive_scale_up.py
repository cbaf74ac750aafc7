"""What holds for pods that workloads are about to create, in any cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import decide
from nodesmith.model.kubernetes.pods import GrownWorkload, PodTemplate, is_forthcoming
from nodesmith.model.snapshot import Snapshot
from tests.builders import NOW, shape
from tests.property.observation.clusters import clusters, made_from
from tests.samples import sampled


@st.composite
def grown(draw: st.DrawFn) -> Snapshot:
    """Return a cluster with one to three workloads that lack pods like some of its own, or others."""
    seen = draw(clusters())
    own = [pod.shape for pod in seen.pods if not (pod.shape.is_daemon or pod.shape.is_static)]
    found = []
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.sampled_from([*own, shape("500m", "1Gi"), shape("3", "2Gi"), shape("900")]))
        template = PodTemplate("ReplicaSet", f"w{number}", replace(chosen, owner=f"ReplicaSet/w{number}"))
        ago = timedelta(seconds=draw(st.integers(0, 400)))
        found.append(GrownWorkload(template, draw(st.integers(0, 12)), NOW - ago))
    return replace(seen, grown=tuple(found))


@settings(max_examples=sampled(8, whole=60))
@given(seen=grown())
def test_every_pod_to_come_is_counted_once_and_none_is_told_of_as_unplaced(seen: Snapshot) -> None:
    plan = decide(made_from(seen))
    bought = Counter(key for node in plan.nodes for key in node.claim.nominated if is_forthcoming(key))
    assert set(bought.values()) <= {1}
    assert sum(bought.values()) == sum(each.bought for each in plan.forthcoming)
    reported = [key for group in (*plan.unplaced, *plan.ignored) for key in group.pods]
    assert not any(map(is_forthcoming, reported))
    lacking = {each.template.key: each.lacking for each in seen.grown}
    for each in plan.forthcoming:
        assert 0 <= each.ready + each.launching + each.bought <= each.pods <= lacking[each.workload]


@settings(max_examples=sampled(8, whole=60))
@given(seen=grown())
def test_no_limit_keeps_more_pods_pending_because_of_pods_to_come(seen: Snapshot) -> None:
    plan, bare = (decide(made_from(each)) for each in (seen, replace(seen, grown=())))
    limited, alone = (
        {key for group in each.unplaced if group.cause.blocking.startswith("limit") for key in group.pods}
        for each in (plan, bare)
    )
    assert limited <= alone


@settings(max_examples=sampled(5, whole=40))
@given(seen=grown())
def test_disruption_takes_no_pod_to_come_for_one_that_runs(seen: Snapshot) -> None:
    moved = [key for each in propose(made_from(seen)).proposals for key in each.destinations]
    assert not any(map(is_forthcoming, moved))
