"""What holds for the room of CapacityBuffers in any cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.decisions.provisioning.buffers.room import with_room_taken
from nodesmith.model.apimachinery.quantities import Resources, total
from nodesmith.model.karpenter.capacitybuffers import count_of, parse_buffer
from nodesmith.model.karpenter.nodepools import NODES, parsed_nodepools
from nodesmith.model.kubernetes.pods import PodTemplate, is_planned
from nodesmith.model.snapshot import Snapshot
from tests.builders import shape
from tests.property.model.fields import JSON
from tests.property.observation.clusters import clusters, made_from
from tests.samples import sampled


@st.composite
def buffered(draw: st.DrawFn) -> Snapshot:
    """Return a cluster with one to three buffers for pods like some of its own, or for others."""
    seen = draw(clusters())
    own = [pod.shape for pod in seen.pods if not (pod.shape.is_daemon or pod.shape.is_static)]
    manifests, templates = [], {}
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.sampled_from([*own, shape("500m", "1Gi"), shape("3", "2Gi")]))
        template = PodTemplate("PodTemplate", f"t{number}", replace(chosen, owner="", refusal=""))
        templates[template.key] = template
        replicas = draw(st.integers(0, 12))
        about = {"namespace": template.shape.namespace, "name": f"b{number}", "generation": 1}
        spec = {"podTemplateRef": {"name": template.name}, "replicas": replicas}
        manifests.append({"metadata": about, "spec": spec})
    return replace(seen, capacitybuffers=tuple(manifests), podtemplates=templates)


def without(seen: Snapshot) -> Inputs:
    return made_from(replace(seen, capacitybuffers=()))


@settings(max_examples=sampled(4, whole=60))
@given(seen=buffered())
def test_the_plan_for_pods_is_the_same_with_and_without_buffers(seen: Snapshot) -> None:
    plan, bare = decide(made_from(seen)), decide(without(seen))
    assert plan.nodes[: len(bare.nodes)] == bare.nodes
    assert (plan.placed, plan.waiting, plan.unplaced, plan.ignored) == (
        bare.placed,
        bare.waiting,
        bare.unplaced,
        bare.ignored,
    )
    assert all(node.is_room for node in plan.nodes[len(bare.nodes) :])


@settings(max_examples=sampled(4, whole=60))
@given(seen=buffered())
def test_every_planned_pod_is_counted_once(seen: Snapshot) -> None:
    plan = decide(made_from(seen))
    bought = Counter(key for node in plan.nodes for key in node.claim.nominated if is_planned(key))
    assert set(bought.values()) <= {1}
    assert sum(bought.values()) == sum(room.bought for room in plan.rooms)
    for room in plan.rooms:
        given_room = room.ready + room.launching + room.bought
        assert 0 <= given_room <= room.count <= room.wanted
        assert bool(room.reason) == (given_room < room.count)


@settings(max_examples=sampled(4, whole=60))
@given(seen=buffered())
def test_nodepools_stay_within_their_limits(seen: Snapshot) -> None:
    plan = decide(made_from(seen))
    for name, pool in parsed_nodepools(seen.nodepools).items():
        mine = [
            node.claim.capacity + Resources({NODES: 1}) for node in plan.nodes if node.claim.nodepool == name
        ]
        limited = {key: amount for key, amount in total(mine).items() if key in pool.limits}
        assert all(amount <= pool.limits[key] for key, amount in limited.items())


@settings(max_examples=sampled(4, whole=60))
@given(seen=buffered())
def test_planned_pods_taken_for_running_ones_fit_beside_the_pods_of_their_node(seen: Snapshot) -> None:
    taken = with_room_taken(made_from(seen)).snapshot
    used: dict[str, list[Resources]] = {}
    added = Counter(pod.node for pod in taken.pods if is_planned(pod.key))
    for pod in taken.pods:
        if pod.node and not pod.shape.is_daemon:
            used.setdefault(pod.node, []).append(pod.shape.requests)
    for node in taken.nodes:
        if added[node.name]:
            assert total(used[node.name]).fits_in(node.allocatable)


@given(spec=JSON, annotations=st.dictionaries(st.text(max_size=40), st.text(max_size=40), max_size=3))
def test_no_spec_makes_reading_a_buffer_fail(spec: Any, annotations: dict[str, str]) -> None:
    parsed = parse_buffer({"metadata": {"name": "b", "annotations": annotations}, "spec": spec})
    assert (parsed.value is None) == bool(parsed.fatal)


@given(
    replicas=st.none() | st.integers(0, 2**31 - 1),
    percentage=st.none() | st.integers(0, 2**31 - 1),
    wanted=st.integers(0, 2**31 - 1),
    cpu=st.none() | st.integers(0, 10**6),
)
def test_the_count_is_within_the_limits_and_never_negative(
    replicas: int | None, percentage: int | None, wanted: int, cpu: int | None
) -> None:
    asked = {"replicas": replicas, "percentage": percentage, "limits": None if cpu is None else {"cpu": cpu}}
    spec = {
        "scalableRef": {"kind": "Deployment", "name": "w"},
        **{k: v for k, v in asked.items() if v is not None},
    }
    buffer = parse_buffer({"metadata": {"name": "b"}, "spec": spec}).value
    assert buffer is not None
    count = count_of(buffer, PodTemplate("Deployment", "w", shape("500m"), replicas=wanted))
    assert count >= 0
    if cpu is not None:
        assert count * 500 <= cpu * 1000
    elif replicas is not None:
        assert count >= replicas
