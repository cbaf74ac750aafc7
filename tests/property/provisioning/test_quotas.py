"""Whatever quotas overlap, no plan can exceed any of them, whichever of its offerings EC2 launches for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import PlannedNode, decide
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.ec2.launches import Override
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings
from tests import builders
from tests.objects.quotas import USD, dollar_pool, quota_manifest
from tests.smallworld.world import catalog

ZONE, CAPACITY = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
CATEGORY = "karpenter.k8s.aws/instance-category"
KINDS = instance_types(catalog(), NodeConfiguration())
_MATCHES: Mapping[str, Callable[[PlannedNode, Override], str]] = {
    "team": lambda node, _: node.claim.labels["team"],
    ZONE: lambda _, override: override.zone,
    CAPACITY: lambda node, _: node.request.capacity_type,
    CATEGORY: lambda _, override: override.instance_type[0],
}
_VALUES = {
    "team": ["red", "blue"],
    ZONE: list(builders.ZONES),
    CAPACITY: ["spot", "on-demand"],
    CATEGORY: ["c", "m", "r"],
}
expressions = st.sampled_from(sorted(_VALUES)).flatmap(
    lambda key: st.builds(
        lambda operator, values: builders.expression(key, operator, *values),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(_VALUES[key]), min_size=1, max_size=2, unique=True),
    )
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.integers(0, 6).map(str),
        "cpu": st.integers(0, 40).map(str),
        "memory": st.integers(0, 200).map("{}Gi".format),
        USD: st.integers(0, 90).map(lambda cents: f"{cents / 100:.2f}"),
    },
)
quotas = st.lists(st.tuples(limits, st.lists(expressions, max_size=2)), min_size=1, max_size=3)
pods = st.lists(
    st.tuples(st.sampled_from(["500m", "1", "3", "7"]), st.integers(1, 9)), min_size=1, max_size=3
)


def taken(override: Override, resource: str) -> float:
    """Return what a node takes of a limit if EC2 launches it with this override."""
    capacity = next(kind.capacity for kind in KINDS if kind.name == override.instance_type)
    amounts = {
        "nodes": 1.0,
        "cpu": capacity.cpu_milli / 1000,
        "memory": capacity.memory_bytes / 2**30,
        USD: override.price_hourly_usd,
    }
    return amounts[resource]


def selected(node: PlannedNode, override: Override, wanted: list[dict[str, Any]]) -> bool:
    return all(
        (_MATCHES[each["key"]](node, override) in each["values"]) == (each["operator"] == "In")
        for each in wanted
    )


def most(nodes: Iterable[PlannedNode], wanted: list[dict[str, Any]], resource: str) -> float:
    """Return what nodes may take of a limit together, whichever of its offerings each of them gets."""
    return sum(
        max(taken(o, resource) if selected(node, o, wanted) else 0.0 for o in node.request.overrides)
        for node in nodes
    )


@given(quotas, pods, st.booleans(), st.integers(5, 200))
def test_no_plan_can_exceed_a_quota(
    given_quotas: list[tuple[dict[str, str], list[dict[str, Any]]]],
    asked: list[tuple[str, int]],
    is_weighted: bool,
    cents: int,
) -> None:
    manifests = [
        quota_manifest(f"q{number}", amounts, expressions=wanted)
        for number, (amounts, wanted) in enumerate(given_quotas)
    ]
    pools = (
        dollar_pool(f"{cents / 100:.2f}", "red", labels={"team": "red"}, weight=10 if is_weighted else None),
        builders.nodepool_manifest("blue", labels={"team": "blue"}),
    )
    some = [
        pod
        for number, (cpu, count) in enumerate(asked)
        for pod in builders.pods(builders.shape(cpu, app=f"a{number}"), count)
    ]
    seen = builders.snapshot(pods=some, nodepools=pools, quotas=tuple(manifests))
    plan = decide(builders.inputs(snapshot=seen, catalog=catalog(), settings=NodeSettings()))
    for amounts, wanted in given_quotas:
        for resource, limit in amounts.items():
            assert most(plan.nodes, wanted, resource) <= float(limit.removesuffix("Gi")) + 1e-9
    red = [node for node in plan.nodes if node.claim.nodepool == "red"]
    assert most(red, [], USD) <= cents / 100 + 1e-9
    placed = sum(len(node.claim.nominated) for node in plan.nodes)
    assert placed + sum(len(group.pods) for group in plan.unplaced) == len(some)
