"""Pods go where their volumes are: to existing nodes, in-flight nodes, and new nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE
from nodesmith.model.ec2.capacity import AttachLimits
from nodesmith.model.kubernetes.pods import Pod
from tests.builders import (
    ZONES,
    anti_affinity,
    claim,
    expression,
    inputs,
    ledger,
    node,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)

A, B, C = ZONES


def mounting(*zones: str, count: int = 1, prefix: str = "", cpu: str = "1", **spec: Any) -> list[Pod]:
    """Return pods whose volumes can be reached from any one of the zones."""
    terms = [[expression(ZONE, "In", zone)] for zone in zones]
    return pods(shape(cpu, volumeNodeAffinity=terms, **spec), count, prefix=prefix or f"in-{'-'.join(zones)}")


def bought(plan: Plan) -> list[tuple[set[str], int]]:
    """Return the zones that each new node may be in, and how many pods it is for."""
    return [({o.zone for o in n.request.overrides}, len(n.claim.nominated)) for n in plan.nodes]


def test_a_node_is_bought_in_the_zone_of_the_volume() -> None:
    assert bought(decide(inputs(pods=mounting(B, count=3)))) == [({B}, 3)]


def test_a_node_may_be_in_any_zone_that_the_volumes_allow() -> None:
    ((zones, count),) = bought(decide(inputs(pods=mounting(A, B))))
    assert (zones <= {A, B}, count) == (True, 1)
    small = mounting(A, B, cpu="250m") + mounting(B, C, cpu="250m")  # they fit the smallest node for sale
    ((zones, count),) = bought(decide(inputs(pods=small)))
    assert (zones, count) == ({B}, 2)


def test_pods_with_volumes_in_different_zones_do_not_share_a_node() -> None:
    plan = decide(inputs(pods=mounting(A, count=2) + mounting(B, count=2) + mounting(C, count=2)))
    assert sorted((min(zones), len(zones), count) for zones, count in bought(plan)) == [
        (A, 1, 2),
        (B, 1, 2),
        (C, 1, 2),
    ]


def test_only_a_node_in_the_zone_of_the_volume_takes_the_pod() -> None:
    seen = snapshot(pods=mounting(B, count=2), nodes=[node("n-a", zone=A), node("n-b", zone=B)])
    plan = decide(inputs(snapshot=seen))
    assert (plan.placed, plan.nodes) == (
        {"n-b": ("default/in-us-east-1b-0000", "default/in-us-east-1b-0001")},
        (),
    )

    plan = decide(inputs(snapshot=replace(seen, nodes=(node("n-a", zone=A),))))
    assert (plan.placed, bought(plan)) == ({}, [({B}, 2)])


@pytest.mark.parametrize(("zone", "fits"), [(A, False), (B, True)])
def test_an_in_flight_node_takes_the_pod_if_it_is_in_the_zone_of_the_volume(zone: str, *, fits: bool) -> None:
    coming = claim("default-x", labels=FrozenMap({"karpenter.sh/nodepool": "default", ZONE: zone}))
    plan = decide(inputs(snapshot=snapshot(pods=mounting(B)), ledger=ledger(claims=(coming,))))
    assert bool(plan.placed) == fits
    assert bought(plan) == ([] if fits else [({B}, 1)])


def test_no_node_is_bought_for_pods_whose_volume_is_being_made_for_a_node() -> None:
    chosen = pods(shape(volumeNodeAffinity=[[expression(HOSTNAME, "In", "n-b")]]))
    seen = snapshot(pods=chosen, nodes=[node("n-a", zone=A), node("n-b", zone=B)])
    assert decide(inputs(snapshot=seen)).placed == {"n-b": ("default/web-0000",)}

    plan = decide(inputs(snapshot=replace(seen, nodes=(node("n-a", zone=A),))))
    assert (plan.placed, plan.nodes) == ({}, ())
    assert plan.unplaced[0].reason == (
        f"NodePool default: needs {HOSTNAME} In [n-b], but no new node has that name"
        f" (for their volumes: {HOSTNAME} In [n-b])"
    )


def test_the_reason_names_a_zone_where_nothing_can_be_bought() -> None:
    plan = decide(inputs(pods=mounting("us-east-1e")))
    assert plan.unplaced[0].reason == (
        "NodePool default: needs topology.kubernetes.io/zone In [us-east-1e], but EC2NodeClass default launches in"
        " us-east-1a, us-east-1b, us-east-1c only"
        f" (for their volumes: {ZONE} In [us-east-1e])"
    )

    pool = nodepool_manifest(requirements=[expression(ZONE, "In", A, C)])
    plan = decide(inputs(snapshot=snapshot(pods=mounting(B), nodepools=[pool])))
    assert plan.unplaced[0].reason == (
        f"NodePool default: needs {ZONE} In [{B}], but {ZONE} In [{A}, {C}] is offered"
        f" (for their volumes: {ZONE} In [{B}])"
    )


def test_the_refusal_of_one_pod_does_not_affect_others_of_its_shape() -> None:
    served, refused = pods(shape(), 2)
    plan = decide(inputs(pods=[served, replace(refused, refusal="persistentvolumeclaim 'x' not found")]))
    assert [n.claim.nominated for n in plan.nodes] == [(served.key,)]
    assert [(u.pods, u.reason) for u in plan.ignored] == [
        ((refused.key,), "persistentvolumeclaim 'x' not found")
    ]


class TestAHardSpreadOverZones:
    SPREAD = spread(hard=True)

    def pinned(self, zone: str, count: int) -> list[Pod]:
        return mounting(zone, count=count, topologySpreadConstraints=self.SPREAD)

    def test_is_kept_by_pods_whose_volumes_are_in_all_zones(self) -> None:
        plan = decide(inputs(pods=self.pinned(A, 2) + self.pinned(B, 2) + self.pinned(C, 2)))
        assert sorted((zones, count) for zones, count in bought(plan)) == [({A}, 2), ({B}, 2), ({C}, 2)]
        assert plan.unplaced == ()

    def test_counts_zones_with_nodes_that_the_volumes_cannot_be_reached_from(self) -> None:
        there = [node("n-a", zone=A, cpu="1"), node("n-b", zone=B, cpu="1")]
        plan = decide(inputs(snapshot=snapshot(pods=self.pinned(C, 3), nodes=there)))
        assert bought(plan) == [({C}, 1)]
        assert plan.unplaced[0].reason == (
            f"topology spread over {ZONE} with maxSkew 1: {A} has 0 matching pods, no room, and nothing can be"
            " launched there"
        )


def test_pods_of_a_set_that_repel_each_other_get_a_node_each_in_their_zones() -> None:
    apart: dict[str, Any] = {"affinity": anti_affinity()}
    plan = decide(inputs(pods=mounting(A, count=2, **apart) + mounting(B, count=1, **apart)))
    assert sorted((min(zones), count) for zones, count in bought(plan)) == [(A, 1), (A, 1), (B, 1)]


DISK = "attachable-volumes-csi-disk.example.com"


class TestADriverWhoseLimitNodesTell:
    LIMITS = AttachLimits(FrozenMap({"disk.example.com": FrozenMap({"m5.large": 2, "m5.xlarge": 2})}))

    def waiting(self, count: int) -> list[Pod]:
        return pods(shape("100m", attachments={DISK: 1}), count)

    def test_limits_how_many_of_its_volumes_go_to_a_new_node(self) -> None:
        plan = decide(inputs(snapshot=snapshot(pods=self.waiting(6), attach_limits=self.LIMITS)))
        assert sorted(len(n.claim.nominated) for n in plan.nodes) == [2, 2, 2]

    def test_leaves_capacity_on_an_in_flight_node_bought_before_the_limit_was_known(self) -> None:
        coming = ledger(claims=(claim("c-1", instance_type="m5.large"),))
        seen = snapshot(pods=self.waiting(3), attach_limits=self.LIMITS)
        plan = decide(inputs(snapshot=seen, ledger=coming))
        assert len((plan.placed or {})["c-1"]) == 2
        assert [len(n.claim.nominated) for n in plan.nodes] == [1]
