"""What holds for every simulated workload."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith_local.simulation.simulation import Simulation
from nodesmith_local.simulation.trace import Chances, Slot, Trace
from tests import builders
from tests.objects.fleets import fleet, pool
from tests.samples import sampled

NOW, MINUTE = builders.NOW, timedelta(minutes=1)
SHAPES = [
    replace(builders.shape(cpu, memory, app=f"app-{number}"), owner=f"{kind}/app-{number}")
    for number, (cpu, memory, kind) in enumerate(
        (
            ("250m", "512Mi", "ReplicaSet"),
            ("1", "2Gi", "StatefulSet"),
            ("2", "3Gi", "Job"),
            ("500m", "4Gi", ""),
        )
    )
]


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Return an hour and a half in which a few pods of different kinds come and go."""
    slots = []
    for number in range(draw(st.integers(1, 7))):
        shape = draw(st.sampled_from(SHAPES))
        arrives = NOW + MINUTE * draw(st.integers(0, 60))
        lasts = draw(st.one_of(st.none(), st.integers(1, 40)))
        ends = None if lasts is None else (arrives, arrives + MINUTE * lasts)
        runs = MINUTE * lasts if lasts is not None and shape.owner.startswith("Job/") else None
        name = f"default/p-{number}"
        slots.append(Slot(name, f"default/{shape.owner}", shape, arrives, None if runs else ends, runs))
    inputs = fleet([], pools=[pool(after="30s")])
    return Trace(inputs, tuple(slots), NOW, NOW + 90 * MINUTE)


@settings(max_examples=sampled(4, whole=60), deadline=None)
@given(traces(), st.integers(0, 3), st.sampled_from([0.0, 0.05, 400.0]))
def test_pods_are_where_there_is_room_and_every_dollar_belongs_to_a_nodepool(
    trace: Trace, seed: int, interruptions: float
) -> None:
    life = Simulation(trace, seed, Chances(interruptions, MINUTE))
    outcome, cluster = life.run(), life.cluster
    assert outcome["pods"] == len(trace.slots)
    assert outcome["usd"] == pytest.approx(fsum(each["usd"] for each in outcome["nodepools"].values()))
    assert outcome["podsWithoutNode"] == 0
    assert all(amount >= 0 for room in cluster.room.values() for _, amount in room.items())
    assert all(pod.node in cluster.nodes for pod in cluster.pods.values() if pod.node)
    assert fsum(each["usd"] for each in outcome["workloads"].values()) <= outcome["usd"] + 1e-9
    living = {run.slot.key for run in cluster.runs.values() if not run.is_over}
    endless = {
        slot.key for slot in trace.slots if slot.ends is None and slot.runs is None and slot.comes_back
    }
    assert endless <= living
