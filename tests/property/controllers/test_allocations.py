"""Whatever runs on a node, its owners together bear exactly what it cost."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.allocations.division import Hour
from nodesmith.decisions.allocations.nodes import BookedNode, Period, Price, View
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.costs.allocations import DAY, HOUR, Allocation, hour_of, merged
from tests import builders

START = hour_of(builders.NOW)
SECONDS = st.integers(0, 3600)
AMOUNTS = st.fixed_dictionaries(
    {
        "cpu": st.integers(0, 200_000),
        "memory": st.integers(0, 2**40),
        "nvidia.com/gpu": st.integers(0, 8),
    }
).map(Resources)
SHAPES = st.builds(
    lambda requests, owner: builders.shape(requests=requests, owner=owner),
    AMOUNTS,
    st.sampled_from(["ReplicaSet/web", "StatefulSet/db", "DaemonSet/agent", "Node/n", ""]),
)


@st.composite
def views(draw: st.DrawFn) -> list[View]:
    cuts = sorted({0, 3600, *draw(st.lists(SECONDS, max_size=4))})
    found = []
    for start, end in pairwise(cuts):
        shapes = draw(st.lists(SHAPES, max_size=4))
        pods = [pod for shape in shapes for pod in builders.bind(shape, "n", draw(st.integers(1, 3)))]
        snapshot = builders.snapshot(pods=pods)
        found.append(View(START + timedelta(seconds=start), START + timedelta(seconds=end), snapshot))
    return found


@st.composite
def nodes(draw: st.DrawFn) -> BookedNode:
    cuts = sorted({0, 3600, *draw(st.lists(SECONDS, max_size=4))})
    periods = tuple(
        Period(
            START + timedelta(seconds=start),
            START + timedelta(seconds=end),
            Price(draw(st.integers(0, 10**12))),
            draw(st.booleans()),
        )
        for start, end in pairwise(cuts)
    )
    named = ("n", "i-1", "aws:///z/i-1", "default", "m5.large", "z", "spot", "nodesmith", "linux")
    return BookedNode(*named, capacity=draw(AMOUNTS), periods=periods)


@given(nodes(), views())
def test_owners_bear_exactly_what_a_node_cost(node: BookedNode, shown: list[View]) -> None:
    rows = Hour(shown, START, ()).allocations(node)
    assert sum(row.nano_usd for row in rows) == sum(period.cost for period in node.periods)
    for row in rows:
        assert row.nano_usd >= 0
        assert row.owner.kind == "stopped" or row.nano_usd == (
            row.cpu_nano_usd + row.memory_nano_usd + row.gpu_nano_usd
        )
        assert Allocation.from_row(row.to_row()) == row


@given(st.lists(nodes(), max_size=3), views())
def test_hours_add_up_to_the_same_day_in_any_order(found: list[BookedNode], shown: list[View]) -> None:
    hour = Hour(shown, START, ())
    rows = [row for node in found for row in hour.allocations(node)]
    day = merged(rows, START, START + DAY)
    assert sum(row.nano_usd for row in day) == sum(row.nano_usd for row in rows)
    amounts = [(row.key, row.nano_usd, row.seconds) for row in day]
    assert amounts == [
        (row.key, row.nano_usd, row.seconds) for row in merged(rows[::-1], START, START + HOUR)
    ]
