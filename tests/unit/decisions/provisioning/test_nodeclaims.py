"""NodeClaims that users create: as many types as their minValues say, or none is launched."""

from __future__ import annotations

from dataclasses import replace

from nodesmith.decisions.provisioning.nodeclaims import UserNodeClaims, by_hand
from nodesmith.model.policies import MinValuesPolicy
from tests.builders import expression, inputs, nodeclaim_manifest, snapshot

TYPE, CAPACITY = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"


def decided(*types: str, least: int, policy: MinValuesPolicy = MinValuesPolicy.STRICT) -> UserNodeClaims:
    asked = [expression(TYPE, "In", *types, minValues=least), expression(CAPACITY, "In", "on-demand")]
    given = inputs(snapshot=snapshot(nodeclaims=(nodeclaim_manifest(asked),)))
    return by_hand(replace(given, settings=replace(given.settings, min_values_policy=policy)))


def test_one_with_fewer_types_than_its_min_values_is_not_launched_unless_best_effort_is_enough() -> None:
    found = decided("m5.large", "no.such", least=2)
    assert found.unschedulable == {"by-hand": f"minValues requirement is not met for label(s) {TYPE} 1 of 2"}
    assert found.planned == []
    (node,) = decided("m5.large", "no.such", least=2, policy=MinValuesPolicy.BEST_EFFORT).planned
    assert {each.instance_type for each in node.request.overrides} == {"m5.large"}


def test_bare_metal_counts_where_min_values_are_not_reached_without_it() -> None:
    (node,) = decided("m5.large", "m5.metal", least=2).planned
    assert {each.instance_type for each in node.request.overrides} == {"m5.large", "m5.metal"}
    assert node.request.overrides[0].instance_type == "m5.large"
