"""Splits hold in every plan and after every move, for any workloads, nodes and NodePools."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE
from nodesmith.model.kubernetes.podannotations import ON_DEMAND_BASE, ON_DEMAND_PERCENT, Split
from nodesmith.model.kubernetes.pods import Shape
from tests.builders import (
    NOW,
    bind,
    expression,
    node,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)
from tests.objects.fleets import fleet, pool, worker
from tests.property.observation.clusters import made_from
from tests.samples import sampled

_SOLD = [
    expression(CAPACITY_TYPE, "In", "spot", "on-demand"),
    expression("karpenter.k8s.aws/instance-family", "In", "m5", "c6a"),
]
_TYPES = ("on-demand", "spot")
SPLITS = st.builds(Split, st.integers(0, 6), st.integers(0, 100))


def split_shape(app: str, split: Split, *, spreads: bool) -> Shape:
    """Return the shape of a workload's pods: 1.5 cpu, spread over zones if wanted."""
    spec = {"topologySpreadConstraints": spread(hard=True, app=app)} if spreads else {}
    annotations = {ON_DEMAND_BASE: str(split.base), ON_DEMAND_PERCENT: str(split.percent)}
    return replace(shape("1500m", "2Gi", app=app, **spec), annotations=FrozenMap(annotations))


def off_spot(plan: Plan) -> Counter[str]:
    """Count the pods by app that get places on nodes that are not spot."""
    found: Counter[str] = Counter()
    for name, keys in (plan.placed or {}).items():
        found.update(key.rpartition("-")[0] for key in keys if name != "spot")
    for each in plan.nodes:
        found.update(
            key.rpartition("-")[0] for key in each.claim.nominated if each.claim.capacity_type != "spot"
        )
    return found


@settings(max_examples=sampled(5, whole=100))
@given(
    splits=st.tuples(SPLITS, SPLITS),
    waiting=st.tuples(st.integers(1, 6), st.integers(0, 2)),
    there=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    spreads=st.booleans(),
)
def test_a_plan_gives_each_workload_its_split_unless_pods_stay_pending(
    splits: tuple[Split, Split], waiting: tuple[int, int], there: tuple[int, int], spreads: bool
) -> None:
    shapes = [split_shape(app, split, spreads=spreads) for app, split in zip("ab", splits, strict=True)]
    nodes = [node(kind, labels={CAPACITY_TYPE: kind}, cpu="16", memory="32Gi") for kind in _TYPES]
    bound = [pod for kind, count in zip(_TYPES, there, strict=True) for pod in bind(shapes[0], kind, count)]
    fresh = [
        pod
        for of, count in zip(shapes, waiting, strict=True)
        for pod in pods(of, count, prefix=of.labels["app"])
    ]
    seen = snapshot(pods=[*fresh, *bound], nodes=nodes, nodepools=(nodepool_manifest(requirements=_SOLD),))

    plan = decide(made_from(seen))

    found = off_spot(plan)
    left = Counter(key.rpartition("-")[0] for group in plan.unplaced for key in group.pods)
    for number, (app, split) in enumerate(zip("ab", splits, strict=True)):
        total = waiting[number] + (sum(there) if number == 0 else 0)
        on_demand = there[0] if number == 0 else 0
        wanted = min(split.wanted(total), on_demand + waiting[number])
        assert found[f"default/{app}"] + on_demand + left[f"default/{app}"] >= wanted


@settings(max_examples=sampled(10, whole=60))
@given(
    split=SPLITS,
    places=st.lists(st.tuples(st.sampled_from(_TYPES), st.integers(0, 4)), min_size=1, max_size=5),
)
def test_the_moves_of_a_pass_together_leave_a_workload_its_split(
    split: Split, places: list[tuple[str, int]]
) -> None:
    of = split_shape("a", split, spreads=False)
    quiet = NOW - timedelta(hours=3)
    workers = [
        worker(
            f"n{number}", "m5.2xlarge", cpu="8", memory="32Gi", capacity_type=kind, last_pod_event_at=quiet
        )
        for number, (kind, _) in enumerate(places)
    ]
    bound = [pod for number, (_, count) in enumerate(places) for pod in bind(of, f"n{number}", count)]
    kinds = {f"n{number}": kind for number, (kind, _) in enumerate(places)}

    found = propose(fleet(workers, bound, pools=[pool(requirements=_SOLD)])).proposals

    bought = {each.claim.name: each.claim.capacity_type for move in found for each in move.replacements}
    goes = {key: name for move in found for key, name in move.destinations.items()}
    before = sum(kinds[pod.node] != "spot" for pod in bound)
    after = sum({**kinds, **bought}[goes.get(pod.key, pod.node)] != "spot" for pod in bound)
    assert after >= min(before, split.wanted(len(bound)))
