"""Shares of zones obey kube-scheduler for any pods, zones and constraints; existing nodes never overflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.scheduling.assign import assign
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.existing import existing_nodes
from nodesmith.decisions.scheduling.placement import AvailableCapacity
from nodesmith.decisions.scheduling.topologyspread import Tally, share_out
from nodesmith.model.kubernetes.pods import Shape, Spread
from nodesmith.model.snapshot import Snapshot
from tests.builders import ZONES, pods, shape
from tests.property.observation.clusters import clusters, shapes
from tests.unit.decisions.scheduling.test_spread import Zones

LETTERS = tuple("abcde")
CONSTRAINT = {
    "topologyKey": "topology.kubernetes.io/zone",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
counts = st.dictionaries(st.sampled_from(LETTERS), st.integers(0, 6))
zones = st.lists(st.sampled_from(LETTERS), unique=True)


def spreading(skew: int, least: int, *, app: str = "web") -> tuple[Shape, Spread]:
    of = shape(app=app, topologySpreadConstraints=[{**CONSTRAINT, "maxSkew": skew, "minDomains": least}])
    return of, of.spreads[0]


def shared(
    count: int,
    spread: Spread | None,
    found: Mapping[str, int],
    launchable: Sequence[str],
    places: Mapping[str, int | None],
) -> dict[str, int]:
    """Share out pods that count themselves; without a spread the counts only give an order."""
    tally = Tally(0, {**dict.fromkeys(launchable, 0), **found}, counts_self=True, spread=spread)
    existing: dict[tuple[str, ...], int | None] = {(zone,): most for zone, most in sorted(places.items())}
    return {zone: share for (zone,), share in share_out(count, [tally], existing).items()}


def kube_scheduler_admits(
    there: dict[str, int], zone: str, skew: int, least: int, *, selects_itself: bool = True
) -> bool:
    """Check as its documentation states: the skew after placing, over all domains it can see."""
    fewest = min(there.values(), default=0) if len(there) >= least else 0
    return there[zone] + selects_itself - fewest <= skew


@given(
    count=st.integers(0, 30),
    found=counts,
    launchable=zones,
    existing=counts,
    skew=st.integers(1, 4),
    least=st.integers(1, 5),
)
def test_every_pod_is_admitted_in_turn_and_none_is_left_needlessly(
    count: int,
    found: dict[str, int],
    launchable: Sequence[str],
    existing: dict[str, int],
    skew: int,
    least: int,
) -> None:
    _, spread = spreading(skew, least)
    known = {zone: existing[zone] for zone in existing if zone in found}
    places: dict[str, int | None] = {**known, **dict.fromkeys(launchable)}

    shares = shared(count, spread, found, launchable, places)

    there = {zone: found.get(zone, 0) for zone in {*found, *launchable}}
    left = Counter(shares)
    while any(left.values()):
        turn = next(
            (z for z in sorted(left) if left[z] and kube_scheduler_admits(there, z, skew, least)), None
        )
        assert turn is not None, "no order in which kube-scheduler would admit them all"
        there[turn] += 1
        left[turn] -= 1
    assert all(places[zone] is None or share <= (places[zone] or 0) for zone, share in shares.items())
    if sum(shares.values()) < count:
        open_zones = [z for z in places if places[z] is None or shares[z] < (places[z] or 0)]
        assert not any(kube_scheduler_admits(there, z, skew, least) for z in open_zones)


@given(count=st.integers(1, 20), found=counts, launchable=zones.filter(bool))
def test_counts_that_only_give_an_order_exclude_no_pod_and_end_as_even_as_possible(
    count: int, found: dict[str, int], launchable: list[str]
) -> None:
    shares = shared(count, None, found, launchable, dict.fromkeys(launchable))

    assert sum(shares.values()) == count
    ends = {zone: found.get(zone, 0) + shares[zone] for zone in launchable}
    assert all(ends[zone] - 1 <= min(ends.values()) for zone in launchable if shares[zone])


@settings(max_examples=40)
@given(seen=clusters())
def test_assigned_pods_fit_their_nodes_and_no_pod_is_lost(seen: Snapshot) -> None:
    pending = [pod for pod in seen.pods if not pod.node]
    there = existing_nodes(seen, ())
    before = {existing.name: existing.free for existing in there}
    free = {existing.name: existing for existing in there}

    result = assign(pending, there, Zones(ZONES))

    by_key = {pod.key: pod for pod in pending}
    found = [pod.key for demand in result.demands for pod in demand.pods]
    found += [pod.key for group, _ in result.stuck for pod in group]
    for name, keys in result.placed.items():
        found += keys
        taken: Counter[str] = Counter()
        for key in keys:
            assert free[name].admits(by_key[key].shape)
            taken.update(by_key[key].shape.requests.nonzero())
        assert all(amount <= before[name].of(resource) for resource, amount in taken.items())
    assert sorted(found) == sorted(by_key)


@settings(max_examples=40)
@given(seen=clusters(), of=shapes())
def test_a_node_takes_as_many_pods_as_its_capacity_says_and_no_more(seen: Snapshot, of: Shape) -> None:
    there = existing_nodes(seen, ())
    available = AvailableCapacity(
        there, PodConflicts([of, *(s for r in there for s in (*r.hosted, *r.expected))])
    )
    for existing in there:
        count = available.capacity(existing, of, 1000)
        for taken in range(count):
            assert available.capacity(existing, of, 1), taken
            available.take(existing, of, 1)
        assert not available.capacity(existing, of, 1)


@given(count=st.integers(1, 50))
def test_pods_of_one_shape_become_one_demand_per_zone(count: int) -> None:
    of, _ = spreading(1, 1)

    result = assign(pods(of, count), (), Zones(ZONES))

    assert len(result.demands) == min(count, len(ZONES))
