"""Every planned node holds its pods whichever of its offerings it becomes, for any cluster."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import Plan, PlannedNode, canonical, decide, plan_item, record, replay
from nodesmith.decisions.scheduling.compatibility import label_refusal
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    ZONE,
    first_untolerated,
)
from nodesmith.model.apimachinery.quantities import total
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.ec2.launches import Override
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.snapshot import Snapshot
from tests.builders import nodepool_manifest, pods, shape, snapshot
from tests.property.model.fields import JSON, damaged
from tests.property.observation.clusters import CATALOG, clusters, made_from
from tests.samples import sampled

TYPES = {t.name: t for t in instance_types(CATALOG, NodeConfiguration())}


def of(seen: Snapshot) -> dict[str, Pod]:
    return {pod.key: pod for pod in seen.pods}


def held(planned: PlannedNode, seen: Snapshot) -> list[Pod]:
    by_key = of(seen)
    return [by_key[key] for key in planned.claim.nominated]


def node_labels(planned: PlannedNode, override: Override) -> dict[str, str]:
    """Return the labels of the Node that this override would become."""
    offering = {
        ZONE: override.zone,
        CAPACITY_TYPE: planned.request.capacity_type,
        INSTANCE_TYPE: override.instance_type,
    }
    return {**TYPES[override.instance_type].labels, **planned.claim.labels, **offering}


def pools(seen: Snapshot) -> dict[str, NodePool]:
    parsed = [parse_nodepool(manifest).value for manifest in seen.nodepools]
    return {pool.name: pool for pool in parsed if pool is not None}


@settings(max_examples=sampled(6, whole=40))
@given(seen=clusters())
def test_every_node_holds_its_pods_whatever_it_becomes(seen: Snapshot) -> None:
    for planned in decide(made_from(seen)).nodes:
        mine = held(planned, seen)
        asked = total([pod.shape.requests for pod in mine])
        assert mine
        assert len({o.zone + o.instance_type for o in planned.request.overrides}) == len(
            planned.request.overrides
        )
        for override in planned.request.overrides:
            labels = node_labels(planned, override)
            daemons = [
                d.requests
                for d in seen.daemonsets
                if first_untolerated(planned.claim.taints, d.tolerations) is None
                and not label_refusal(labels, d.terms)
            ]
            kind: InstanceType = TYPES[override.instance_type]
            assert (asked + total(daemons)).fits_in(kind.allocatable)
            for pod in mine:
                assert not label_refusal(labels, pod.shape.terms)
                assert first_untolerated(planned.claim.taints, pod.shape.tolerations) is None
            assert pools(seen)[planned.claim.nodepool].requirements.allow_labels(labels)
            offered = [(o.zone, o.capacity_type, o.price_hourly_usd) for o in kind.offerings]
            assert (override.zone, planned.request.capacity_type, override.price_hourly_usd) in offered


@settings(max_examples=sampled(6, whole=40))
@given(seen=clusters())
def test_every_pod_is_accounted_for_exactly_once(seen: Snapshot) -> None:
    plan = decide(made_from(seen))

    found: Counter[str] = Counter()
    for keys in (plan.placed or {}).values():
        found.update(keys)
    found.update(plan.waiting or {})
    found.update(key for group in (*plan.unplaced, *plan.ignored) for key in group.pods)
    found.update(key for planned in plan.nodes for key in planned.claim.nominated)
    assert found == Counter(pod.key for pod in seen.pods if not pod.node)


@settings(max_examples=sampled(6, whole=40))
@given(seen=clusters())
def test_limits_hold(seen: Snapshot) -> None:
    plan = decide(made_from(seen))

    for name, pool in pools(seen).items():
        mine = [n for n in plan.nodes if n.claim.nodepool == name]
        for resource, limit in pool.limits.items():
            worst = [
                1
                if resource == "nodes"
                else max(TYPES[o.instance_type].capacity.of(resource) for o in n.request.overrides)
                for n in mine
            ]
            assert sum(worst) <= limit


def places(plan: Plan, seen: Snapshot) -> list[tuple[str, str, list[Pod]]]:
    """Return name, zone (empty if open) and pods of every existing and planned node."""
    by_key = of(seen)
    there = []
    for node in seen.nodes:
        mine = [p for p in seen.pods if p.node == node.name]
        mine += [by_key[key] for key in (plan.placed or {}).get(node.name, ())]
        there.append((node.name, node.labels[ZONE], mine))
    for planned in plan.nodes:
        zones = {o.zone for o in planned.request.overrides}
        there.append((planned.claim.name, zones.pop() if len(zones) == 1 else "", held(planned, seen)))
    return there


@settings(max_examples=sampled(6, whole=40))
@given(seen=clusters())
def test_rules_of_the_node_hold_at_the_end(seen: Snapshot) -> None:
    plan = decide(made_from(seen))
    new = {planned.claim.name for planned in plan.nodes}
    moved = {key for keys in (plan.placed or {}).values() for key in keys}

    for name, _, mine in places(plan, seen):
        for pod in mine:
            if name not in new and pod.key not in moved:
                continue
            others = [other.shape for other in mine if other is not pod]
            conflicts = PodConflicts([pod.shape, *others])
            assert not any(conflicts.conflict(pod.shape, other) for other in others)
            for spread in (s for s in pod.shape.spreads if s.hard and s.topology_key == HOSTNAME):
                # On an existing node, pods of other shapes may come after those that spread.
                rivals = [p for p in mine if name in new or p.shape is pod.shape]
                selected = [p for p in rivals if spread.selector and spread.selector.matches(p.shape.labels)]
                assert pod not in selected or len(selected) <= spread.max_skew


@settings(max_examples=sampled(6, whole=40))
@given(seen=clusters())
def test_a_hard_spread_over_zones_can_be_kept(seen: Snapshot) -> None:
    """Pods with a spread have a zone, and no zone that they may use exceeds the fewest by more than the skew.

    This checks spreads whose pods no other rule counts: one hard spread, selected by one shape only.
    """
    plan = decide(made_from(seen))
    shapes = {pod.shape for pod in seen.pods}
    there = places(plan, seen)
    unserved = {key for group in plan.unplaced for key in group.pods}
    for shape_ in shapes:
        hard = [s for s in shape_.spreads if s.hard and s.topology_key == ZONE]
        apps = [s for s in shapes if s.labels == shape_.labels]
        whole = not any(p.key in unserved for p in seen.pods if p.shape is shape_)
        if (
            len(hard) != 1
            or len(apps) != 1
            or not whole
            or not hard[0].selector
            or not hard[0].selector.matches(shape_.labels)
        ):
            continue
        counts = Counter(
            {node.labels[ZONE]: 0 for node in seen.nodes if not label_refusal(node.labels, shape_.own_terms)}
        )
        for _, zone, mine in there:
            here = sum(pod.shape is shape_ for pod in mine)
            assert zone or not here
            if here:
                counts[zone] += here
        before = Counter(
            node.labels[ZONE]
            for node in seen.nodes
            for pod in seen.pods
            if pod.node == node.name and pod.shape is shape_
        )
        grown = [zone for zone in counts if counts[zone] > before[zone]]
        assert all(counts[zone] - min(counts.values()) <= hard[0].max_skew for zone in grown)


@settings(max_examples=sampled(5, whole=30))
@given(seen=clusters())
def test_a_replay_gives_the_same_bytes(seen: Snapshot) -> None:
    plan = decide(made_from(seen))
    written = json.loads(canonical(record(made_from(seen), plan, "ab" * 32, {"decide": 1.0})))

    assert replay(written, seen, CATALOG) == canonical(written["plan"])
    assert canonical(written["plan"]) == canonical(plan_item(plan))


@settings(max_examples=sampled(5, whole=30))
@given(seen=clusters(), order=st.randoms(use_true_random=False))
def test_the_order_in_which_objects_are_listed_changes_nothing(seen: Snapshot, order: Any) -> None:
    def shuffled(items: Any) -> tuple[Any, ...]:
        items = list(items)
        order.shuffle(items)
        return tuple(items)

    turned = snapshot(
        pods=shuffled(seen.pods),
        nodes=shuffled(seen.nodes),
        nodepools=shuffled(seen.nodepools),
        daemonsets=shuffled(seen.daemonsets),
    )

    assert plan_item(decide(made_from(turned))) == plan_item(decide(made_from(seen)))


@settings(max_examples=sampled(6, whole=40))
@given(data=st.data())
def test_a_nonsensical_nodepool_is_explained_and_does_not_stop_others(data: st.DataObject) -> None:
    nonsense = data.draw(
        damaged(NODE_POOL) | JSON | JSON.map(lambda v: {"metadata": {"name": "x"}, "spec": v})
    )

    plan = decide(made_from(snapshot(pods=pods(shape(), 2), nodepools=(nonsense, nodepool_manifest()))))

    assert sorted(key for n in plan.nodes for key in n.claim.nominated) == [
        "default/web-0000",
        "default/web-0001",
    ]


@settings(max_examples=sampled(6, whole=40))
@given(
    spec=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (
                "affinity",
                "nodeSelector",
                "tolerations",
                "topologySpreadConstraints",
                "overhead",
                "volumes",
                "containers",
            ),
            JSON,
        ),
    )
)
def test_a_nonsensical_pod_is_explained_and_does_not_stop_others(spec: dict[str, Any]) -> None:
    nonsense = shape(app="odd", **spec)

    plan = decide(made_from(snapshot(pods=pods(nonsense) + pods(shape()))))

    named = [key for group in (*plan.unplaced, *plan.ignored) for key in group.pods]
    named += [key for n in plan.nodes for key in n.claim.nominated]
    assert sorted(named) == ["default/odd-0000", "default/web-0000"]
    assert "default/web-0000" in [key for n in plan.nodes for key in n.claim.nominated]
