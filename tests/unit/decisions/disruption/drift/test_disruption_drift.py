"""Drifted nodes are replaced: one per move, empty ones first, within budgets, whatever that saves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.proposals import Proposal, Proposals
from nodesmith.decisions.disruption.search.search import look_again, propose
from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, DO_NOT_DISRUPT
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.ledger.moves import Move, MoveKind, Reason, Stage
from nodesmith.model.nodeclasses.status import CapacityReservation
from tests.builders import NOW, ZONES, expression, nodeclass_status, shape
from tests.objects.fleets import Worker, changed, fleet, pool, running, worker

OLD: Mapping[str, Any] = {"image_id": "ami-old", "drift": "AMIDrift", "drifted_at": NOW - timedelta(hours=1)}
FULL = shape("3", "10Gi")


def drifted(name: str, **claim: Any) -> Worker:
    return worker(name, claim={**OLD, **claim})


def renewals(found: Proposals) -> list[tuple[str, ...]]:
    return [p.sources for p in found.proposals if p.reason is Reason.DRIFTED]


def reserved(**budget: Any) -> dict[str, Any]:
    """Return a NodePool whose nodes are not consolidated, so that only drift causes moves."""
    return pool(budgets=[{"nodes": "0", "reasons": ["Underutilized", "Empty"]}, {"nodes": "100%", **budget}])


def test_a_drifted_node_is_replaced_even_where_that_costs_more() -> None:
    cheap = worker("a", "c6a.large", capacity_type="spot", claim=OLD)
    (one,) = propose(fleet([cheap], running(FULL, {"a": 1}), pools=[reserved()])).proposals
    assert one.reason is Reason.DRIFTED
    assert len(one.replacements) == 1
    assert one.saving_hourly_usd < 0
    assert "AMIDrift" in one.message


def test_empty_drifted_nodes_come_first_then_the_oldest_drift() -> None:
    late = {"drifted_at": NOW - timedelta(minutes=5)}
    workers = [
        drifted("a", **late),
        drifted("b"),
        drifted("c", **late),
        worker("d", claim={"image_id": "ami-amd64"}),
    ]
    found = propose(fleet(workers, running(FULL, {"a": 1, "b": 1, "d": 1}), pools=[reserved()]))
    assert renewals(found) == [("claim-c",), ("claim-b",), ("claim-a",)]


def test_budgets_limit_how_many_drifted_nodes_are_replaced_at_once() -> None:
    workers = [drifted(name) for name in "abcd"]
    runs = running(FULL, dict.fromkeys("abcd", 1))
    found = propose(fleet(workers, runs, pools=[reserved(nodes="50%", reasons=["Drifted"])]))
    assert len(renewals(found)) == 2
    assert {b.rule for b in found.blocked.values()} == {"Budget"}


def test_do_not_disrupt_keeps_a_drifted_node_unless_it_has_a_termination_grace_period() -> None:
    kept = replace(FULL, annotations=FrozenMap({DO_NOT_DISRUPT: "true"}))
    assert not renewals(propose(fleet([drifted("a")], running(kept, {"a": 1}))))
    ending = drifted("a", termination_grace_period="1h")
    assert renewals(propose(fleet([ending], running(kept, {"a": 1})))) == [("claim-a",)]
    itself = replace(ending, node=replace(ending.node, annotations={DO_NOT_DISRUPT: "true"}))
    assert not renewals(propose(fleet([itself], running(FULL, {"a": 1})))), (
        "only pods give way to the deadline"
    )


def test_a_drifted_node_whose_pod_has_no_other_place_blocks_no_other_node() -> None:
    odd = shape("1", "1Gi", app="odd", nodeSelector={"example.com/rack": "7"})
    workers = [drifted("a"), drifted("b")]
    found = propose(fleet(workers, [*running(odd, {"a": 1}), *running(FULL, {"b": 1})], pools=[reserved()]))
    assert renewals(found) == [("claim-b",)]
    assert found.blocked["claim-a"].rule == "Unreplaceable"


def test_only_the_nodepool_whose_replacements_are_unavailable_backs_off() -> None:
    pools = [reserved(), reserved()]
    pools[1]["metadata"]["name"] = "other"
    workers = [drifted("a"), worker("b", pool="other", claim=OLD), worker("c")]
    inputs = fleet(workers, running(FULL, {"a": 1, "b": 1, "c": 1}), pools=pools)
    failed = {MoveKind("default", "Drifted"): Backoff(NOW + timedelta(minutes=3), 1, "no capacity")}
    found = propose(replace(inputs, ledger=replace(inputs.ledger, move_backoffs=failed)))
    assert renewals(found) == [("claim-b",)]
    assert (found.blocked["claim-a"].rule, found.blocked["claim-a"].object) == (
        "BackingOff",
        "NodePool/default",
    )
    assert "1 move of its NodePool for Drifted failed (no capacity): the next attempt" in (
        found.blocked["claim-a"].message
    )
    over = replace(
        inputs, ledger=replace(inputs.ledger, move_backoffs=failed), now=NOW + timedelta(minutes=3)
    )
    assert ("claim-a",) in renewals(propose(over))


def test_a_back_off_for_drift_does_not_affect_emptiness_or_consolidation() -> None:
    inputs = fleet([worker("a"), worker("b")], running(shape("1", "1Gi"), {"a": 1}))
    failed = {MoveKind("default", "Drifted"): Backoff(NOW + timedelta(minutes=3), 1, "no capacity")}
    found = propose(replace(inputs, ledger=replace(inputs.ledger, move_backoffs=failed)))
    assert {p.reason for p in found.proposals} == {Reason.EMPTY, Reason.UNDERUTILIZED}


def test_drifted_nodes_take_no_pods_of_other_drifted_nodes() -> None:
    workers = [drifted("a"), drifted("b")]
    found = propose(fleet(workers, running(shape("1", "1Gi"), {"a": 1, "b": 1}), pools=[reserved()]))
    bought = {node.claim.name for p in found.proposals for node in p.replacements}
    assert {place for p in found.proposals for place in p.destinations.values()} <= bought


def test_static_nodes_are_replaced_one_by_one_within_the_limit() -> None:
    requirements = [expression("karpenter.k8s.aws/instance-family", "In", "m5")]
    static = pool(replicas=3, requirements=requirements, limits={"nodes": "5"})
    found = propose(fleet([drifted(name) for name in "abc"], running(FULL, {"a": 1}), pools=[static]))
    assert [(len(p.sources), len(p.replacements)) for p in found.proposals] == [(1, 1), (1, 1)]
    names = [node.claim.name for p in found.proposals for node in p.replacements]
    assert len(set(names)) == 2


def with_reservation(inputs: Inputs) -> Inputs:
    """Return the inputs with one free instance of reserved capacity."""
    free = CapacityReservation("cr-1", "m5.xlarge", ZONES[0], 1)
    status = nodeclass_status(capacity_reservations=(free,))
    return replace(inputs, ledger=replace(inputs.ledger, nodeclasses={"default": status}))


def capacity_types(found: Iterable[Proposal]) -> list[str]:
    return sorted(node.request.capacity_type for p in found for node in p.replacements)


@pytest.mark.parametrize("replicas", [(1, 1), (1, None), (None, 1)])
def test_drifted_nodes_of_several_nodepools_share_what_is_free_of_a_reservation(
    replicas: tuple[int | None, int | None],
) -> None:
    m5 = [expression("karpenter.k8s.aws/instance-family", "In", "m5")]
    names = ("default", "other")
    pools = [pool(n, replicas=count, requirements=m5) for n, count in zip(names, replicas, strict=True)]
    workers = [drifted("a"), worker("b", pool="other", claim=OLD)]
    inputs = with_reservation(fleet(workers, running(FULL, {"a": 1, "b": 1}), pools=pools))
    found = propose(inputs).proposals
    assert capacity_types(found) == ["reserved", "spot"]

    moves = [Move(f"m{n}", p.reason, p.sources, Stage.PROPOSED, NOW, NOW) for n, p in enumerate(found)]
    again = look_again(moves, replace(inputs, ledger=replace(inputs.ledger, moves=tuple(moves))))
    assert capacity_types(p for p in again.values() if isinstance(p, Proposal)) == ["reserved", "spot"]


def test_consolidation_leaves_the_reservation_that_replaces_a_drifted_static_node() -> None:
    m5 = [expression("karpenter.k8s.aws/instance-family", "In", "m5")]
    pools = [pool(replicas=1, requirements=m5), pool("other", requirements=m5)]
    workers = [drifted("a"), worker("b", pool="other")]
    inputs = with_reservation(fleet(workers, running(FULL, {"a": 1, "b": 1}), pools=pools))
    assert capacity_types(propose(inputs).proposals) == ["reserved", "spot"]


def test_static_nodes_are_not_replaced_while_there_are_too_many() -> None:
    static = pool(replicas=2, requirements=[expression("karpenter.k8s.aws/instance-family", "In", "m5")])
    workers = [drifted(name) for name in "abc"]
    found = propose(fleet(workers, running(FULL, {"a": 1}), pools=[static]))
    assert found.proposals == ()
    assert {b.rule for b in found.blocked.values()} == {"Unreplaceable"}
    assert "has 3 nodes, but replicas is 2" in found.blocked["claim-a"].message
    ending = Worker(workers[2].node, workers[2].claim.terminating("ScaledDown", "", NOW))
    assert len(renewals(propose(fleet([*workers[:2], ending], running(FULL, {"a": 1}), pools=[static])))) == 2


def test_validation_rejects_a_node_that_has_not_drifted_any_more() -> None:
    begun = Move("m1", Reason.DRIFTED, ("claim-a",), Stage.PROPOSED, NOW, NOW)
    closed = changed(drifted("a"), taints=(DISRUPTED,))
    assert isinstance(
        look_again([begun], fleet([closed], running(FULL, {"a": 1}), moves=[begun]))["m1"], Proposal
    )
    mended = changed(worker("a", claim={"image_id": "ami-amd64"}), taints=(DISRUPTED,))
    again = look_again([begun], fleet([mended], running(FULL, {"a": 1}), moves=[begun]))["m1"]
    assert again == "claim-a: it has not drifted any more"
