"""Which unhealthy nodes are replaced, and which are only reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.repair import PATIENCE, POLICIES, Finding, diagnosis, findings
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool, parsed_nodepools
from nodesmith.model.kubernetes.nodes import Condition, Node
from tests import builders
from tests.builders import NOW, ZONES

MINUTE = timedelta(minutes=1)
LONG = timedelta(hours=2)


def claim(number: int = 0, **fields: Any) -> NodeClaim:
    times = {"registered_at": NOW - 9 * LONG, "initialized_at": NOW - 9 * LONG, "zone": ZONES[0]}
    known: dict[str, Any] = {"phase": Phase.INITIALIZED, "instance_id": f"i-{number}", **times}
    return builders.claim(f"default-{number}", **(known | fields))


def node(of: NodeClaim, **conditions: Condition) -> Node:
    made = builders.node(f"node-{of.name}", provider_id=of.provider_id)
    return replace(made, conditions={"Ready": Condition("True", since=NOW - 9 * LONG), **conditions})


def bad(status: str = "False", ago: timedelta = LONG, reason: str = "") -> Condition:
    return Condition(status, reason, NOW - ago)


def pools(mode: str | None = "On", *names: str) -> dict[str, NodePool]:
    manifests = []
    for name in names or ("default",):
        manifest = builders.nodepool_manifest(name)
        manifest["metadata"]["annotations"] = {"nodesmith.dev/node-repair": mode} if mode else {}
        manifests.append(manifest)
    return parsed_nodepools(tuple(manifests))


def found(
    claims: Sequence[NodeClaim], nodes: Sequence[Node], mode: str | None = "On", **fields: Any
) -> list[Finding]:
    return findings(claims, builders.snapshot(nodes=tuple(nodes), **fields), pools(mode), NOW)


def fleet(healthy: int, sick: int, **fields: Any) -> tuple[list[NodeClaim], list[Node]]:
    """Return claims and Nodes, the unhealthy ones first."""
    claims = [claim(number, **fields) for number in range(sick + healthy)]
    nodes = [node(c, **({"Ready": bad()} if n < sick else {})) for n, c in enumerate(claims)]
    return claims, nodes


@pytest.mark.parametrize(
    ("kind", "status", "minutes"),
    [
        ("Ready", "False", 30),
        ("Ready", "Unknown", 30),
        ("AcceleratedHardwareReady", "False", 10),
        ("StorageReady", "False", 30),
        ("NetworkingReady", "False", 30),
        ("KernelReady", "False", 30),
        ("ContainerRuntimeReady", "False", 30),
    ],
)
def test_a_condition_is_tolerated_for_its_time_and_no_longer(kind: str, status: str, minutes: int) -> None:
    short = node(claim(), **{kind: bad(status, minutes * MINUTE - timedelta(seconds=1))})
    long = node(claim(), **{kind: bad(status, minutes * MINUTE)})
    assert diagnosis(short, NOW) == ""
    assert diagnosis(long, NOW).startswith(f"condition {kind} has been {status} since 2026-11-21T")


def test_conditions_without_a_policy_do_not_make_a_node_unhealthy() -> None:
    harmless = {"MemoryPressure": bad("True"), "StorageReady": bad("Unknown"), "DiskPressure": bad("False")}
    assert diagnosis(node(claim(), **harmless), NOW) == ""
    assert diagnosis(node(claim(), Ready=Condition("False")), NOW) == "", "the time since when is unknown"
    assert len(POLICIES) == 6


def test_an_unhealthy_node_ends_with_its_condition_as_the_reason() -> None:
    (finding,) = found([claim()], [node(claim(), Ready=bad("Unknown", reason="NodeStatusUnknown"))])
    assert finding.ending is not None
    assert (finding.ending.phase, finding.ending.cause) == (Phase.TERMINATING, "Unhealthy")
    why = "condition Ready has been Unknown since 2026-11-21T10:00:00Z (NodeStatusUnknown)"
    assert finding.ending.message == finding.message == why


def test_a_node_that_is_not_ready_is_drained_at_once_and_one_that_is_within_an_hour() -> None:
    (dead,) = found([claim()], [node(claim(), Ready=bad())])
    (limping,) = found([claim()], [node(claim(), StorageReady=bad())])
    assert dead.ending is not None
    assert limping.ending is not None
    assert dead.ending.deadline == NOW
    assert limping.ending.deadline == NOW + PATIENCE == NOW + timedelta(hours=1)


def test_the_nodepools_own_grace_may_be_shorter() -> None:
    short = claim(termination_grace_period="5m")
    (finding,) = found([short], [node(short, StorageReady=bad())])
    assert finding.ending is not None
    assert finding.ending.deadline == NOW + 5 * MINUTE


def test_by_default_an_unhealthy_node_is_only_reported() -> None:
    for mode in (None, "Report"):
        (finding,) = found([claim()], [node(claim(), Ready=bad())], mode)
        assert (finding.ending, finding.held_by) == (None, "")
    assert found([claim()], [node(claim(), Ready=bad())], "Off") == []


def test_a_node_without_a_nodepool_is_reported() -> None:
    alone = claim(nodepool="")
    (finding,) = found([alone], [node(alone, Ready=bad())])
    assert finding.ending is None


@pytest.mark.parametrize(
    "phase", [Phase.PENDING, Phase.LAUNCHED, Phase.TERMINATING, Phase.DRAINED, Phase.GIVEN_UP]
)
def test_claims_that_are_ending_or_have_not_registered_are_not_repaired(phase: Phase) -> None:
    one = claim(phase=phase)
    assert found([one], [node(one, Ready=bad())]) == []


def test_a_node_that_never_became_ready_is_replaced_as_well() -> None:
    one = claim(phase=Phase.REGISTERED, initialized_at=None)
    (finding,) = found([one], [node(one, Ready=bad())])
    assert finding.ending is not None


def test_foreign_nodes_are_ignored() -> None:
    assert found([], [node(claim(), Ready=bad())]) == []


@pytest.mark.parametrize(
    ("healthy", "sick", "replaced"), [(0, 1, 1), (8, 2, 2), (7, 2, 2), (7, 3, 0), (3, 2, 0), (40, 10, 10)]
)
def test_a_fifth_of_a_nodepool_rounded_up_may_be_unhealthy(healthy: int, sick: int, replaced: int) -> None:
    claims, nodes = fleet(healthy, sick)
    all_found = found(claims, nodes)
    assert len(all_found) == sick
    assert sum(finding.ending is not None for finding in all_found) == replaced


def test_a_node_that_is_not_replaced_names_the_reason() -> None:
    claims, nodes = fleet(2, 2)
    assert {finding.held_by for finding in found(claims, nodes)} == {
        "2 of 4 nodes of NodePool default are unhealthy, more than 20 %"
    }


def test_an_unhealthy_zone_stops_repairs_that_each_nodepool_alone_would_allow() -> None:
    names = [f"pool-{number}" for number in range(4)]
    claims, nodes = [], []
    for number, pool in enumerate(names):
        for place in range(10):
            zone = ZONES[0] if place < 2 else ZONES[1]
            one = replace(claim(number * 10 + place), nodepool=pool, zone=zone)
            claims.append(one)
            nodes.append(node(one, **({"Ready": bad()} if zone == ZONES[0] else {})))
    held = findings(claims, builders.snapshot(nodes=tuple(nodes)), pools("On", *names), NOW)
    assert {finding.held_by for finding in held} == {
        f"8 of 8 nodes of zone {ZONES[0]} are unhealthy, more than 20 %"
    }


def test_a_condition_that_has_just_become_bad_counts_for_the_breaker() -> None:
    claims, nodes = fleet(6, 1)
    nodes[1:4] = [node(c, Ready=bad(ago=MINUTE)) for c in claims[1:4]]
    (finding,) = found(claims, nodes)
    assert finding.held_by == "4 of 7 nodes of NodePool default are unhealthy, more than 20 %"


def test_nodes_that_are_starting_do_not_trip_the_breaker() -> None:
    claims, nodes = fleet(9, 1)
    starting = [claim(100 + n, phase=Phase.REGISTERED, initialized_at=None) for n in range(5)]
    nodes += [node(c, Ready=bad(ago=MINUTE)) for c in starting]
    (finding,) = found([*claims, *starting], nodes)
    assert finding.ending is not None


@pytest.mark.parametrize(
    "ends", [{"phase": Phase.TERMINATING}, {"phase": Phase.TERMINATED, "instance_gone_at": NOW}]
)
def test_nodes_that_are_being_replaced_still_count_until_their_nodes_are_gone(ends: dict[str, Any]) -> None:
    claims, nodes = fleet(4, 1)
    going = replace(claims[4], cause="Unhealthy", **ends)
    (finding,) = found([*claims[:4], going], nodes)
    assert finding.held_by == "2 of 5 nodes of NodePool default are unhealthy, more than 20 %"


def test_the_annotation_is_read_and_an_invalid_value_is_reported_and_ignored() -> None:
    manifest = builders.nodepool_manifest()
    manifest["metadata"]["annotations"] = {"nodesmith.dev/node-repair": "on"}
    parsed = parse_nodepool(manifest)
    assert parsed.value is not None
    assert parsed.value.options.node_repair == "Report"
    (problem,) = parsed.problems
    assert "metadata.annotations[nodesmith.dev/node-repair] is 'on'" in str(problem)
    assert "must be Off, Report or On" in str(problem)


def test_no_node_is_replaced_in_a_zone_that_is_shifted_away_from() -> None:
    claims, nodes = fleet(healthy=9, sick=1)
    shift = ZonalShift(ZONES[0], "use1-az1", NOW + LONG, "zonal shift")
    seen, on = builders.snapshot(nodes=tuple(nodes)), pools("On")
    (held,) = findings(claims, seen, on, NOW, {ZONES[0]: shift})
    assert held.ending is None
    assert "is shifted away from" in held.held_by
    (replaced,) = findings(claims, seen, on, NOW, {ZONES[1]: shift})
    assert replaced.ending is not None
