"""NodeOverlays: what is valid, which of them apply, and what they change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.controllers.launching.launch import TypeTable
from nodesmith.decisions.disruption.candidates import CandidateSelection
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.lifecycle.stages import initialize
from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.nodeclaims import by_hand
from nodesmith.decisions.provisioning.nodepools.onsale import on_sale
from nodesmith.decisions.provisioning.nodepools.tiers import pools
from nodesmith.decisions.provisioning.plan import Inputs, Plan, PlannedNode
from nodesmith.decisions.readiness.readiness import nodeoverlay_update
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_FAMILY,
    INSTANCE_TYPE,
    NODEPOOL,
    ON_DEMAND,
    SPOT,
    ZONE,
)
from nodesmith.model.commands import Wait
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.launches import Instance, LaunchRequest
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodeoverlays import (
    CAPACITY_APPLIED,
    PRICE_APPLIED,
    NodeOverlay,
    in_order,
    parse_nodeoverlay,
)
from nodesmith.model.kubernetes.pods import Shape
from tests import builders
from tests.builders import NOW, ZONES, expression, nodeclaim_manifest
from tests.objects.fleets import fleet, pool, running, worker
from tests.objects.nodeoverlays import CASES, UNKNOWN_CAPACITY_TYPE, family, overlay, spec_of

FUSE = "smarter-devices/fuse"


@pytest.mark.parametrize(("spec", "valid"), [pytest.param(s, v, id=name) for name, s, v in CASES])
def test_the_cases_of_karpenter_are_valid_or_refused(spec: dict[str, Any], valid: bool) -> None:
    parsed = parse_nodeoverlay({"metadata": {"name": "o"}, "spec": spec_of(spec)})
    assert (parsed.value is not None) == valid, parsed.problems


def problem_of(**spec: Any) -> str:
    return "; ".join(map(str, parse_nodeoverlay({"metadata": {"name": "o"}, "spec": spec_of(spec)}).problems))


def test_a_problem_names_the_field_what_was_found_and_what_would_be_right() -> None:
    assert "NodeOverlay/o: spec.capacity.cpu (the key) is 'cpu': instance types decide" in problem_of(
        capacity={"cpu": "1"}
    )
    assert "spec.priceAdjustment is '1%': must match" in problem_of(priceAdjustment="1%")
    assert "for example -15% or +0.02" in problem_of(priceAdjustment="1%")
    assert "spec.pirce is an unknown field, which is ignored: did you mean 'price'?" in problem_of(pirce="1")
    assert "set price, priceAdjustment or capacity" in problem_of()
    assert "use one of reserved, spot, on-demand" in problem_of(**UNKNOWN_CAPACITY_TYPE, price="1")
    never = [expression("a", "In", "x"), expression("a", "In", "y")]
    assert "spec.requirements is a contradiction: no node can have such a a" in problem_of(
        requirements=never, price="1"
    )


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("+10%", 2.0, 2.2),
        ("-15%", 2.0, 1.7),
        ("-100%", 2.0, 0.0),
        ("+0.5", 2.0, 2.5),
        ("-0.5", 2.0, 1.5),
        ("-3", 2.0, 0.0),
        ("0.25", 2.0, 0.25),
        ("0", 2.0, 0.0),
    ],
)
def test_a_price_is_replaced_or_adjusted_and_never_negative(change: str, before: float, after: float) -> None:
    name = "price" if change[0] not in "+-" else "priceAdjustment"
    parsed = parse_nodeoverlay(overlay("o", (), 1, **{name: change}))
    assert parsed.value is not None
    assert parsed.value.priced(before) == pytest.approx(after)


def test_the_heaviest_comes_first_then_the_last_by_name() -> None:
    given = [("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", 9)]
    overlays = [replace(read(overlay(name)), weight=weight) for name, weight in given]
    assert [each.name for each in in_order(overlays)] == ["e", "d", "b", "c", "a"]


def read(manifest: dict[str, Any]) -> NodeOverlay:
    parsed = parse_nodeoverlay(manifest)
    assert parsed.value is not None
    return parsed.value


def seen(*overlays: dict[str, Any], pods: Sequence[Any] = (), **fields: Any) -> Inputs:
    snapshot = builders.snapshot(pods=pods, nodeoverlays=tuple(overlays), **fields)
    return builders.inputs(snapshot=snapshot)


def template(*overlays: dict[str, Any], pool: str = "default", **fields: Any) -> Template:
    given = seen(*overlays, **fields)
    found = pools(given.snapshot, given.ledger, given.catalog, given.settings, given.now)
    return next(each for each in found.templates if each.name == pool)


def offering(
    of: Template, kind: str = "m5.large", capacity_type: str = SPOT, zone: str = ZONES[0]
) -> Offering:
    found = next(each for each in of.types.types if each.name == kind)
    return next(o for o in found.offerings if (o.zone, o.capacity_type) == (zone, capacity_type))


def test_without_an_overlay_types_are_the_same_objects() -> None:
    plain = template()
    assert template(overlay(requirements=family("p5"), price="1", weight=3)).types is not plain.types
    assert template(overlay(requirements=family("none-such"), price="1")).types is plain.types
    changed = template(overlay(requirements=family("m5"), price="1")).types
    same = [a is b for a, b in zip(plain.types.types, changed.types, strict=True)]
    assert same.count(False) == sum(each.name.startswith("m5.") for each in plain.types.types)
    assert template(overlay(requirements=family("m5"), price="1")).types is changed, "computed once"


def test_the_heaviest_overlay_sets_the_price_of_each_offering() -> None:
    of = template(
        overlay("all", priceAdjustment="+1", weight=1),
        overlay("m5", family("m5"), price="7", weight=3),
        overlay("spot", [expression(CAPACITY_TYPE, "In", SPOT)], price="9", weight=2),
    )
    plain = template()
    m5, c5 = offering(of), offering(of, "c5.large")
    assert (m5.price_hourly_usd, m5.overlay) == (7, "m5")
    assert (c5.price_hourly_usd, c5.overlay) == (9, "spot")
    on_demand = offering(of, "c5.large", ON_DEMAND)
    listed = offering(plain, "c5.large", ON_DEMAND).price_hourly_usd
    assert (on_demand.price_hourly_usd, on_demand.overlay) == (listed + 1, "all")
    assert (on_demand.paid_hourly_usd, on_demand.listed_hourly_usd) == (listed, listed)
    assert [o.price_hourly_usd for o in of.types.types[0].offerings] == sorted(
        o.price_hourly_usd for o in of.types.types[0].offerings
    )


def test_an_overlay_of_one_zone_leaves_the_other_zones_alone() -> None:
    of = template(overlay(requirements=[expression(ZONE, "In", ZONES[1])], price="9"))
    assert offering(of, zone=ZONES[1]).overlay
    assert not offering(of, zone=ZONES[0]).overlay


@pytest.mark.parametrize(
    ("requirement", "applies"),
    [
        (expression("example.com/team", "In", "blue"), True),
        (expression("example.com/team", "In", "red"), False),
        (expression("example.com/team", "NotIn", "red"), True),
        (expression("example.com/other", "Exists"), False),
        (expression("example.com/other", "NotIn", "x"), True),
        (expression("example.com/other", "DoesNotExist"), True),
        (expression(NODEPOOL, "In", "default"), True),
        (expression(NODEPOOL, "NotIn", "default"), False),
        (expression("karpenter.k8s.aws/ec2nodeclass", "In", "default"), True),
        (expression("karpenter.k8s.aws/instance-gpu-name", "Exists"), False),
        (expression("karpenter.k8s.aws/instance-gpu-name", "DoesNotExist"), True),
        (expression("karpenter.k8s.aws/instance-memory", "Lte", "8192"), True),
        (expression("karpenter.k8s.aws/instance-memory", "Gt", "8192"), False),
    ],
)  # fmt: skip
def test_requirements_match_labels_of_type_offering_and_nodepool(
    requirement: dict[str, Any], applies: bool
) -> None:
    pool = builders.nodepool_manifest(labels={"example.com/team": "blue"})
    of = template(overlay(requirements=[requirement], price="9"), nodepools=(pool,))
    assert bool(offering(of).overlay) == applies


def contradicting(*overlays: dict[str, Any], **fields: Any) -> dict[str, str]:
    given = seen(*overlays, **fields)
    found = overlays_of(given.snapshot, given.catalog, given.settings)
    kept = {each.name for each in found.applied} | set(found.contradicting)
    assert kept == {each["metadata"]["name"] for each in overlays}
    return {name: why.other for name, why in found.contradicting.items()}


def test_equal_weights_contradict_only_where_both_set_the_same() -> None:
    a, b = overlay("a", family("m5"), price="1"), overlay("b", family("m5", "c5"), priceAdjustment="+5%")
    assert contradicting(a, b) == {"a": "b"}, "the last by name comes first"
    assert contradicting(overlay("a", family("m5"), price="1", weight=2), b) == {}
    assert contradicting(overlay("a", family("r5"), price="1"), b) == {}
    assert contradicting(overlay("a", family("m5"), capacity={FUSE: "1"}), b) == {}
    zoned = [overlay(n, [expression(ZONE, "In", z)], price="1") for n, z in zip("abc", ZONES, strict=True)]
    assert contradicting(*zoned) == {}
    some = overlay("some", [expression(ZONE, "In", *ZONES[:2])], price="1")
    assert contradicting(*zoned, some) == {"a": "some", "b": "some"}


def test_equal_weights_contradict_where_both_name_a_resource_even_in_other_zones() -> None:
    a, b = (
        overlay(name, [expression(ZONE, "In", zone)], capacity={FUSE: "1", f"{name}.com/x": "1"})
        for name, zone in zip("ab", ZONES, strict=False)
    )
    assert contradicting(a, b) == {"a": "b"}, "capacity belongs to the type, whatever the zone"
    assert contradicting(a, overlay("b", capacity={"b.com/x": "1"})) == {}


def test_a_contradiction_in_one_nodepool_leaves_the_overlay_out_of_all() -> None:
    one, two = (builders.nodepool_manifest(name) for name in ("one", "two"))
    mine = overlay("b", [*family("m5"), expression(NODEPOOL, "In", "one")], price="1")
    both = overlay("a", family("m5"), price="2")
    assert contradicting(mine, both, nodepools=(one, two)) == {"a": "b"}
    assert not offering(template(mine, both, pool="two", nodepools=(one, two)), "m5.large").overlay


def test_of_three_equal_overlays_those_are_kept_that_agree_with_what_is_kept() -> None:
    a, b, c = (
        overlay(name, family(*of), price="1")
        for name, of in (("a", ("m5",)), ("b", ("m5", "c5")), ("c", ("c5",)))
    )
    assert contradicting(a, b, c) == {"b": "c"}, "a does not meet c, and b is left out"


def test_an_invalid_overlay_stops_no_other() -> None:
    wrong, right = overlay("wrong", price="cheap"), overlay("right", price="9")
    assert offering(template(wrong, right)).overlay == "right"


def test_capacity_merges_by_resource_and_the_heaviest_wins() -> None:
    of = template(
        overlay("light", capacity={FUSE: "1", "a.com/x": "1"}, weight=1),
        overlay("heavy", family("m5"), capacity={FUSE: "8"}, weight=2),
    )
    m5, c5 = (next(t for t in of.types.types if t.name == name) for name in ("m5.large", "c5.large"))
    assert (m5.capacity.of(FUSE), m5.capacity.of("a.com/x"), m5.overlays) == (8, 1, ("heavy", "light"))
    assert (c5.allocatable.of(FUSE), c5.overlays) == (1, ("light",))


def test_capacity_changes_nothing_else_of_a_type() -> None:
    plain, of = template(), template(overlay(capacity={FUSE: "1"}))
    before, after = plain.types.types[0], of.types.types[0]
    assert after.overhead == before.overhead
    assert {n: a for n, a in after.allocatable.items() if n != FUSE} == dict(before.allocatable)
    assert after.offerings is before.offerings


def decided(*overlays: dict[str, Any], count: int = 1, shape: Shape | None = None, **fields: Any) -> Plan:
    pods = builders.pods(shape or builders.shape(cpu="1", memory="2Gi"), count)
    return decide(seen(*overlays, pods=pods, **fields))


def the_node(plan: Plan) -> PlannedNode:
    (node,) = plan.nodes
    return node


def family_of(node: PlannedNode) -> str:
    return node.request.cheapest.instance_type.partition(".")[0]


def test_another_family_is_bought_where_an_overlay_makes_it_cheaper() -> None:
    plain = the_node(decided())
    dearer = overlay(requirements=family(family_of(plain)), priceAdjustment="+400%")
    assert family_of(the_node(decided(dearer))) != family_of(plain)
    cheaper = overlay(requirements=family("m5"), priceAdjustment="-90%")
    node = the_node(decided(cheaper))
    assert family_of(node) == "m5"
    assert node.claim.annotations[PRICE_APPLIED] == "true"
    assert CAPACITY_APPLIED not in node.claim.annotations
    assert PRICE_APPLIED not in plain.claim.annotations


def test_the_plan_has_the_overlaid_price_and_the_claim_what_aws_charges() -> None:
    plan = decided(overlay(requirements=family("m5"), priceAdjustment="-90%"))
    node = the_node(plan)
    assert node.price_hourly_usd == pytest.approx(node.claim.price_hourly_usd * 0.1)
    assert plan.price_hourly_usd == node.price_hourly_usd
    assert 0 < plan.bound_hourly_usd <= plan.price_hourly_usd
    again = LaunchRequest.from_item(node.claim.name, node.request.to_item())
    assert (again.cheapest, again.is_overlaid) == (replace(node.request.cheapest, estimated=False), True)


def test_prices_of_zero_buy_something() -> None:
    plan = decided(overlay(requirements=family("m5"), priceAdjustment="-100%"), count=40)
    assert {family_of(node) for node in plan.nodes} == {"m5"}
    assert (plan.price_hourly_usd, plan.bound_hourly_usd) == (0, 0)
    assert not plan.unplaced
    assert the_node(decided(overlay(price="0"))).claim.price_hourly_usd > 0


def test_of_offerings_with_the_same_overlaid_price_ec2_takes_the_one_that_aws_sells_for_least() -> None:
    node = the_node(decided(overlay(requirements=family("m5"), price="0.01"), count=5))
    asked = fleet_request(node.request, "c")
    overrides = [each for config in asked["LaunchTemplateConfigs"] for each in config["Overrides"]]
    ranked = [(each["Priority"], each["InstanceType"]) for each in overrides]
    kinds = list(dict.fromkeys(kind for _, kind in sorted(ranked)))
    listed = {each.instance_type: each.listed_hourly_usd for each in node.request.overrides}
    assert len(kinds) > 2
    assert kinds == sorted(kinds, key=lambda kind: listed[kind])
    assert len({priority for priority, _ in ranked}) == len(kinds)
    assert node.claim.price_hourly_usd == listed[kinds[0]]


def test_of_spot_and_on_demand_at_the_same_overlaid_price_the_one_that_aws_sells_for_least_is_bought() -> (
    None
):
    for change in (overlay(price="2"), overlay(price="0"), overlay(priceAdjustment="-100%")):
        request = the_node(decided(change, count=3)).request
        assert request.capacity_type == "spot"
        listed = [each.listed_hourly_usd for each in request.overrides]
        assert listed == sorted(listed)
        kinds = {each.instance_type for each in request.overrides}
        assert "c6a.xlarge" in kinds, "it has room for the pods, and AWS sells no other type for less"


def test_ec2_follows_the_overlaid_prices_by_priorities() -> None:
    node = the_node(decided(overlay(requirements=family("m5"), priceAdjustment="-90%")))
    asked = fleet_request(node.request, "c")
    overrides = [each for config in asked["LaunchTemplateConfigs"] for each in config["Overrides"]]
    ranked = sorted(overrides, key=lambda each: each["Priority"])
    assert ranked[0]["InstanceType"] == node.request.cheapest.instance_type
    assert ranked[0]["Priority"] == 0
    strategy = {**asked.get("SpotOptions", {}), **asked.get("OnDemandOptions", {})}["AllocationStrategy"]
    assert strategy in {"prioritized", "capacity-optimized-prioritized"}
    plain = fleet_request(the_node(decided()).request, "c")
    assert "Priority" not in str(plain)


def asking(resource: str = FUSE, amount: str = "1") -> Shape:
    return builders.shape(cpu="100m", requests={resource: amount})


def test_pods_that_ask_for_an_extended_resource_get_nodes_that_will_offer_it() -> None:
    assert decided(shape=asking()).unplaced
    plan = decided(overlay(requirements=family("m5"), capacity={FUSE: "2"}), shape=asking(), count=4)
    assert [family_of(node) for node in plan.nodes] == ["m5", "m5"], "two pods a node"
    node = plan.nodes[0]
    assert (node.claim.capacity.of(FUSE), node.claim.requests.of(FUSE)) == (2, 2)
    assert node.claim.annotations[CAPACITY_APPLIED] == "true"
    assert PRICE_APPLIED not in node.claim.annotations
    assert node.price_hourly_usd == node.claim.price_hourly_usd


def launched(node: PlannedNode, inputs: Inputs, kind: str) -> Any:
    table = TypeTable(inputs.snapshot, inputs.catalog, inputs.settings, inputs.ledger)
    capacity_type = node.request.capacity_type
    instance = Instance("i-1", node.claim.name, kind, ZONES[0], capacity_type, "ami-1", "pending", NOW)
    return launched_claim(node.claim, instance, table(node.claim, kind), NOW)


def test_a_launched_claim_has_the_resources_of_the_type_that_ec2_chose_and_its_list_price() -> None:
    given = seen(
        overlay("large", [expression(INSTANCE_TYPE, "In", "m5.large")], capacity={FUSE: "2"}),
        overlay("xlarge", [expression(INSTANCE_TYPE, "In", "m5.xlarge")], capacity={FUSE: "4"}),
        overlay("price", family("m5"), price="9"),
        pods=builders.pods(asking(), 2),
    )
    node = decide(given).nodes[0]
    claim = launched(node, given, "m5.xlarge")
    assert claim.capacity.of(FUSE) == 4
    assert 0 < claim.price_hourly_usd < 1


def test_a_node_waits_for_the_resource_that_its_pods_ask_for() -> None:
    given = seen(overlay(requirements=family("m5"), capacity={FUSE: "2"}), pods=builders.pods(asking(), 2))
    claim = launched(decide(given).nodes[0], given, "m5.large")
    claim = replace(claim, phase=Phase.REGISTERED, node_name="n", phase_since=NOW)
    node = builders.node("n", labels=builders.JOINED)
    command = initialize(claim, (node,), (), NOW + timedelta(minutes=1))
    assert isinstance(command, Wait)
    assert f"does not show the resource {FUSE} yet" in str(command)


def test_nodes_are_compared_at_overlaid_prices_and_billed_at_aws_prices() -> None:
    claim = builders.claim(phase=Phase.INITIALIZED, node_name="n", provider_id="aws:///us-east-1a/i-1")
    labels = {**builders.READY, INSTANCE_TYPE: "m5.large", ZONE: ZONES[0], CAPACITY_TYPE: ON_DEMAND}
    node = builders.node("n", labels=labels, provider_id=claim.provider_id)

    def surveyed(*overlays: dict[str, Any]) -> float:
        snapshot = builders.snapshot(nodes=(node,), nodeoverlays=overlays)
        given = builders.inputs(snapshot=snapshot, ledger=builders.ledger(claims=(claim,)))
        survey = CandidateSelection(given)
        assert not survey.blocked, survey.blocked
        return survey.candidates[0].price_hourly_usd

    listed = surveyed()
    assert surveyed(overlay(requirements=family("m5"), priceAdjustment="+50%")) == pytest.approx(listed * 1.5)
    assert surveyed(overlay(requirements=family("c5"), priceAdjustment="+50%")) == listed
    assert surveyed(overlay(requirements=family("m5"), price="0")) == 0


def test_metrics_of_what_is_on_sale_state_what_aws_charges() -> None:
    assert on_sale(seen(overlay(price="9"))) == on_sale(seen())


def conditions(manifest: dict[str, Any], contradiction: str = "") -> dict[str, tuple[str, str, str]]:
    update = nodeoverlay_update(manifest, parse_nodeoverlay(manifest), contradiction, NOW)
    assert update is not None
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in update.status["conditions"]}


def test_conditions_have_karpenters_types_and_reasons() -> None:
    fine = conditions(overlay(price="1"))
    assert fine == {
        "ValidationSucceeded": ("True", "ValidationSucceeded", ""),
        "Ready": ("True", "Ready", ""),
    }
    wrong = conditions(overlay(price="cheap"))
    assert wrong["ValidationSucceeded"][:2] == ("False", "RuntimeValidation")
    assert "spec.price is 'cheap'" in wrong["ValidationSucceeded"][2]
    assert wrong["Ready"][:2] == ("False", "UnhealthyDependents")
    clash = conditions(overlay(price="1"), "contradicts NodeOverlay b")
    assert clash["ValidationSucceeded"] == ("False", "Conflict", "contradicts NodeOverlay b")


def test_a_contradiction_names_both_what_they_set_and_an_example() -> None:
    given = seen(overlay("a", family("m5"), price="1"), overlay("b", family("m5"), price="2"))
    why = str(overlays_of(given.snapshot, given.catalog, given.settings).contradicting["a"])
    assert why.startswith(
        "contradicts NodeOverlay b, which has the same weight and also sets the price of m5."
    )


def test_a_status_that_is_shown_is_not_written_again() -> None:
    manifest = overlay(price="1")
    update = nodeoverlay_update(manifest, parse_nodeoverlay(manifest), "", NOW)
    assert update is not None
    shown = {**manifest, "status": update.status}
    assert nodeoverlay_update(shown, parse_nodeoverlay(shown), "", NOW) is None


def test_a_surcharge_for_each_node_makes_fewer_and_larger_ones() -> None:
    plain = decided(count=4)
    dearer = decided(overlay(priceAdjustment="+0.05"), count=4)
    assert len(dearer.nodes) < len(plain.nodes)
    paid = sum(node.claim.price_hourly_usd for node in dearer.nodes)
    assert dearer.price_hourly_usd == pytest.approx(paid + 0.05 * len(dearer.nodes))


def test_a_hostile_overlay_costs_no_decision() -> None:
    odd: list[Any] = [
        {"metadata": {"name": "o1"}},
        {"metadata": {"name": "o2"}, "spec": []},
        {"metadata": {"name": "o3"}, "spec": {"requirements": [None, 3], "capacity": [1]}},
        overlay("o4", price="9" * 32, weight=1),
        overlay("o5", capacity={FUSE: "9" * 60, INSTANCE_FAMILY: 2**70}),
    ]
    plan = decided(*odd, shape=asking())
    assert plan.nodes
    assert not plan.unplaced


def test_a_node_is_replaced_once_an_overlay_makes_another_family_cheaper() -> None:
    def moves(*overlays: dict[str, Any]) -> list[set[str]]:
        on_demand = expression(CAPACITY_TYPE, "In", ON_DEMAND)
        pools = [pool(requirements=[*family("m5", "c6a"), on_demand])]
        workers = [worker("a", "c6a.xlarge", cpu="3900m", memory="7Gi")]
        pods = running(builders.shape("3", "5Gi"), {"a": 1})
        there = fleet(workers, pods, pools=pools, nodeoverlays=overlays)
        return [{family_of(node) for node in each.replacements} for each in propose(there).proposals]

    assert moves() == []
    assert moves(overlay(requirements=family("m5"), priceAdjustment="-60%")) == [{"m5"}]
    assert moves(overlay(requirements=family("c6a"), priceAdjustment="+200%")) == [{"m5"}]
    assert moves(overlay(priceAdjustment="-60%")) == []


def test_a_users_nodeclaim_gets_overlaid_resources_and_marks() -> None:
    asked = nodeclaim_manifest(family("m5"), resources={"requests": {FUSE: "1"}})
    of_mine = overlay(
        requirements=[expression("node.kubernetes.io/instance-type", "In", "m5.large")], capacity={FUSE: "2"}
    )
    given = seen(of_mine, overlay("p", price="3"), nodeclaims=(asked,))
    (node,) = by_hand(given).planned
    assert node.claim.annotations.keys() >= {CAPACITY_APPLIED, PRICE_APPLIED}
    assert launched(node, given, "m5.large").capacity.of(FUSE) == 2
    assert launched(node, given, "m5.xlarge").capacity.of(FUSE) == 0
