"""A planned node's price is that of its cheapest offering, even after its offerings are reduced."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nodesmith.decisions.disruption.worth import cut, downsized, for_spot
from nodesmith.decisions.provisioning import PlannedNode, decide
from nodesmith.decisions.provisioning.nodepools.tiers import parsed_nodeclasses, template_of
from nodesmith.decisions.provisioning.purchase.claims import another, only
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.learned import Risk
from nodesmith.model.snapshot import Snapshot
from tests.builders import NOW
from tests.property.observation.clusters import CATALOG, FAMILIES, clusters, made_from
from tests.samples import sampled

_LOSSES = 3.0
_RISKS = {
    OfferingKey(o.capacity_type, name, o.zone): Risk(_LOSSES, NOW)
    for name, offerings in CATALOG.offerings.items()
    for o in offerings
    if o.capacity_type == "spot" and name.startswith(("c6a.", "t3."))
}
"""Cheap spot offerings with interruptions, so that a node is not always chosen for its cheapest offering."""


def is_priced_by_its_cheapest_offering(node: PlannedNode) -> bool:
    """Return whether the price, and its status as an estimate, match the offerings in the request to EC2."""
    prices = [o.price_hourly_usd for o in node.request.overrides]
    sold = {
        (name, o.zone): o
        for name, offerings in CATALOG.offerings.items()
        for o in offerings
        if o.capacity_type == node.request.capacity_type
    }
    estimated = {
        sold[o.instance_type, o.zone].estimated
        for o in node.request.overrides
        if o.price_hourly_usd == min(prices)
    }
    return node.price_hourly_usd == node.claim.price_hourly_usd == min(prices) and node.estimated in estimated


def nodes_of(seen: Snapshot, *, risky: bool) -> list[tuple[PlannedNode, Template]]:
    """Return the nodes that a decision buys, with their templates."""
    inputs = made_from(seen)
    if risky:
        inputs = replace(inputs, ledger=replace(inputs.ledger, risks=_RISKS))
    pools, nodeclass = parsed_nodepools(seen.nodepools), parsed_nodeclasses(inputs.snapshot)["default"]
    about = nodeclass, inputs.snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now
    return [(node, template_of(pools[node.claim.nodepool], *about)) for node in decide(inputs).nodes]


@settings(max_examples=sampled(5, whole=40))
@given(seen=clusters(), risky=st.booleans())
def test_a_planned_node_has_the_price_of_its_cheapest_offering(seen: Snapshot, risky: bool) -> None:
    for node, _ in nodes_of(seen, risky=risky):
        assert is_priced_by_its_cheapest_offering(node)
        assert is_priced_by_its_cheapest_offering(another(node, (), "next"))


@settings(max_examples=sampled(5, whole=40))
@given(seen=clusters(), risky=st.booleans(), data=st.data())
def test_a_node_with_fewer_offerings_has_the_price_of_its_cheapest_offering(
    seen: Snapshot, risky: bool, data: st.DataObject
) -> None:
    bought = nodes_of(seen, risky=risky)
    assume(bought)
    node, template = data.draw(st.sampled_from(bought))
    offered = node.request.overrides
    kept = data.draw(st.lists(st.sampled_from(offered), min_size=1, unique=True))
    kept.sort(key=offered.index)
    family, cpus = data.draw(st.sampled_from(FAMILIES)), data.draw(st.sampled_from((2, 4, 8, 64)))
    most = data.draw(st.floats(0.5, 3)) * node.price_hourly_usd

    found = [
        replace(node, request=replace(node.request, overrides=tuple(kept))),
        only(node, kept, template),
        for_spot(node, template, data.draw(st.integers(1, 15))),
        downsized(node, template, {family: cpus}),
        *(cut([node], most, {template.name: template}) or ()),
    ]

    assert all(is_priced_by_its_cheapest_offering(each) for each in found if each is not None)


@settings(max_examples=sampled(3, whole=10))
@given(seen=clusters(), price=st.floats(0, 100))
def test_a_claims_wrong_price_is_corrected(seen: Snapshot, price: float) -> None:
    for node, _ in nodes_of(seen, risky=False):
        claim = replace(node.claim, price_hourly_usd=price)

        assert is_priced_by_its_cheapest_offering(PlannedNode(claim, node.request, node.templates))
        assert is_priced_by_its_cheapest_offering(replace(node, claim=claim))
