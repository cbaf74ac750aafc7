"""Nodes expire: each at its own moment, within budgets, and at the deadline whatever obstacles there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.expiration import (
    LONGEST_WINDOW,
    expired,
    expires_at,
    next_change,
    next_deadline,
    replaceable_from,
)
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.nodes import Condition, Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.provisioningrequests import Gang, GangStage
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from tests import builders
from tests.builders import NOW

DAY = timedelta(days=1)


def claim(
    number: int = 1, age: timedelta = timedelta(0), expire_after: str | None = "240h", **fields: Any
) -> NodeClaim:
    known: dict[str, Any] = {
        "phase": Phase.INITIALIZED,
        "created_at": NOW - age,
        "expire_after": expire_after,
    }
    return builders.claim(f"default-{number}", **(known | fields))


def node(of: NodeClaim, *, ready: bool = True, **fields: Any) -> Node:
    made = builders.node(f"node-{of.name}", provider_id=of.provider_id, **fields)
    return made if ready else replace(made, conditions={"Ready": Condition("False")})


def pool(*budgets: dict[str, Any], name: str = "default") -> dict[str, NodePool]:
    manifest = builders.nodepool_manifest(name)
    manifest["spec"]["disruption"] = {
        "consolidateAfter": "0s",
        "budgets": list(budgets or ({"nodes": "100%"},)),
    }
    return parsed_nodepools((manifest,))


def gone(
    claims: Sequence[NodeClaim],
    pools: dict[str, NodePool] | None = None,
    *,
    nodes: Sequence[Node] | None = None,
    pods: Sequence[Pod] = (),
    now: datetime = NOW,
    moves: Sequence[Move] = (),
    gangs: Sequence[Gang] = (),
    **fields: Any,
) -> list[str]:
    shown = tuple(map(node, claims)) if nodes is None else tuple(nodes)
    snapshot = builders.snapshot(nodes=shown, pods=pods, **fields)
    ledger = Ledger(claims=tuple(claims), moves=tuple(moves), gangs=tuple(gangs))
    found = expired(ledger, snapshot, pool() if pools is None else pools, now)
    assert all((end.claim.phase, end.claim.cause) == (Phase.TERMINATING, "Expired") for end in found)
    return [end.claim.name for end in found]


def test_a_node_goes_at_the_latest_at_its_deadline() -> None:
    old, young = claim(1, 10 * DAY), claim(2, 8 * DAY)
    assert gone([old, young]) == ["default-1"]
    assert gone([old], pool({"nodes": "0"})) == ["default-1"]
    assert gone([old], {}) == ["default-1"]
    assert gone([old], nodes=[]) == ["default-1"]


@pytest.mark.parametrize("never", ["Never", None])
def test_a_node_without_expiration_never_goes(never: str | None) -> None:
    assert gone([claim(1, 4000 * DAY, never)]) == []
    assert (expires_at(claim(1, expire_after=never)), replaceable_from(claim(1, expire_after=never))) == (
        None,
        None,
    )


def test_claims_that_are_ending_or_have_no_instance_yet_do_not_expire() -> None:
    for phase in (Phase.PENDING, Phase.GIVEN_UP, Phase.TERMINATING, Phase.TERMINATED):
        assert gone([claim(1, 11 * DAY, phase=phase)]) == []
    assert gone([claim(1, 11 * DAY, phase=Phase.REGISTERED)]) == ["default-1"]


def test_every_moment_lies_in_the_window_before_the_deadline_and_leaves_a_fifth_of_it_for_stragglers() -> (
    None
):
    moments = [replaceable_from(claim(number)) for number in range(1000)]
    end = expires_at(claim())
    assert end == NOW + 10 * DAY
    left = [end - moment for moment in moments if moment is not None]
    assert len(left) == 1000
    assert DAY * 0.2 <= min(left) < DAY * 0.22
    assert DAY * 0.98 < max(left) <= DAY
    assert replaceable_from(claim(7)) == replaceable_from(claim(7))


def test_nodes_of_the_same_age_do_not_end_together() -> None:
    moments = [replaceable_from(claim(number)) for number in range(100)]
    by_hour: dict[int, int] = {}
    for moment in moments:
        assert moment is not None
        hour = int((moment - NOW).total_seconds() // 3600)
        by_hour[hour] = by_hour.get(hour, 0) + 1
    assert len(by_hour) >= 18
    assert max(by_hour.values()) <= 15


def test_a_long_life_has_a_window_of_a_day_and_a_short_one_of_a_tenth() -> None:
    assert LONGEST_WINDOW == DAY
    for expire_after, window in (("720h", DAY), ("10h", timedelta(hours=1))):
        for number in range(50):
            one = claim(number, expire_after=expire_after)
            end, moment = expires_at(one), replaceable_from(one)
            assert end is not None
            assert moment is not None
            assert timedelta(0) < end - moment <= window


def due(count: int, **fields: Any) -> list[NodeClaim]:
    """Return claims that may all be replaced by now, none of which is past its deadline."""
    return [claim(number, 10 * DAY - timedelta(hours=1), **fields) for number in range(count)]


def test_the_earliest_moments_go_ahead_of_time_as_far_as_the_budgets_allow() -> None:
    claims = due(10)
    first = sorted(claims, key=lambda c: replaceable_from(c) or NOW)
    assert gone(claims, pool({"nodes": "3"})) == [c.name for c in first[:3]]
    assert gone(claims, pool({"nodes": "10%"})) == [first[0].name]
    assert gone(claims, pool({"nodes": "0"})) == []
    assert len(gone(claims, pool({"nodes": "100%"}))) == 10


def test_a_budget_for_other_reasons_does_not_limit_expiration() -> None:
    assert len(gone(due(4), pool({"nodes": "0", "reasons": ["Drifted", "Empty"]}))) == 4


def test_nodes_that_are_ending_or_not_ready_use_up_the_budgets() -> None:
    claims = due(4)
    ending = claims[0].terminating("Deleted", "by hand", NOW)
    assert gone([ending, *claims[1:]], pool({"nodes": "1"})) == []
    nodes = [node(claims[0], ready=False), *map(node, claims[1:])]
    assert gone(claims, pool({"nodes": "1"}), nodes=nodes) == []
    assert len(gone(claims, pool({"nodes": "2"}), nodes=nodes)) == 1


def test_nodes_past_their_deadline_use_up_the_budgets_for_the_others() -> None:
    late = claim(99, 11 * DAY)
    assert gone([late, *due(4)], pool({"nodes": "1"})) == ["default-99"]
    assert len(gone([late, *due(4)], pool({"nodes": "2"}))) == 2


def test_sources_of_moves_use_up_the_budgets_and_are_left_to_their_moves() -> None:
    claims = due(3)
    taken = Move("m", Reason.EMPTY, (claims[0].name,), Stage.PROPOSED, NOW, NOW)
    assert gone(claims, pool({"nodes": "1"}), moves=(taken,)) == []
    assert len(gone(claims, pool({"nodes": "2"}), moves=(taken,))) == 1
    assert claims[0].name not in gone(claims, moves=(taken,))
    over = replace(taken, stage=Stage.ABANDONED)
    assert len(gone(claims, pool({"nodes": "1"}), moves=(over,))) == 1


def booked(*claims: NodeClaim, until: datetime) -> Gang:
    places = {each.name: (1,) for each in claims}
    return Gang("uid", "default/job", GangStage.PROVISIONED, NOW, NOW, places=places, booked_until=until)


def test_a_node_with_room_for_a_provisioning_request_stays_until_the_room_is_no_longer_kept() -> None:
    first, second = due(2)
    end = NOW + timedelta(minutes=10)
    assert gone([first, second], gangs=[booked(first, until=end)]) == [second.name]
    assert gone([first], gangs=[booked(first, until=end)], now=end) == [first.name]
    late = claim(1, 11 * DAY)
    assert gone([late], gangs=[booked(late, until=end)]) == [late.name], "its deadline has come"


def test_lifecycle_is_due_when_the_room_on_a_node_that_is_to_expire_is_no_longer_kept() -> None:
    (one,) = due(1)
    end = NOW + timedelta(minutes=10)
    ledger = Ledger(claims=(one,), gangs=(booked(one, until=end),))
    assert next_change(ledger, builders.snapshot(nodes=(node(one),)), pool(), NOW) == end


def test_each_nodepool_has_its_own_budgets() -> None:
    pools = {**pool({"nodes": "1"}), **pool({"nodes": "0"}, name="other")}
    claims = [*due(2), *(replace(c, name=f"other-{n}", nodepool="other") for n, c in enumerate(due(2)))]
    assert len(gone(claims, pools)) == 1
    assert gone(claims, pools)[0].startswith("default-")


def test_a_node_without_a_valid_nodepool_stays_until_its_deadline() -> None:
    assert gone(due(3), {}) == []


def test_a_node_that_is_not_ready_not_initialized_or_gone_is_not_replaced_ahead_of_time() -> None:
    (one,) = due(1)
    assert gone([one], nodes=[node(one, ready=False)]) == []
    assert gone([one], nodes=[]) == []
    assert gone([replace(one, phase=Phase.REGISTERED)]) == []


def test_a_node_that_refuses_disruption_stays_until_its_deadline() -> None:
    (one,) = due(1)
    kept = replace(node(one), annotations={DO_NOT_DISRUPT: "true"})
    assert gone([one], nodes=[kept]) == []
    assert gone([claim(1, 10 * DAY)], nodes=[kept]) == ["default-1"]


@pytest.mark.parametrize("value", ["true", "3h"])
def test_a_node_with_a_pod_that_refuses_disruption_stays_until_its_deadline(value: str) -> None:
    (one,) = due(1)
    shape = replace(builders.shape(), annotations={DO_NOT_DISRUPT: value})
    pods = builders.bind(shape, f"node-{one.name}", 1, started_at=NOW - timedelta(hours=1))
    assert gone([one], pods=pods) == []
    assert gone([one], pods=builders.bind(shape, "another", 1)) == [one.name]


def test_a_node_with_a_pod_whose_budget_never_allows_evictions_stays_until_its_deadline() -> None:
    (one,) = due(1)
    pods = builders.bind(builders.shape(app="web"), f"node-{one.name}", 1)
    selector = parse_selector({"matchLabels": {"app": "web"}})
    never = PodDisruptionBudget("default/web", selector, 0, 1, 1, 1, False, "", "0")
    assert gone([one], pods=pods, budgets=(never,)) == []
    assert gone([one], pods=pods) == [one.name]


def test_the_grace_of_the_nodepool_counts_from_the_beginning_of_the_termination() -> None:
    (one,) = due(1, termination_grace_period="1h")
    (end,) = expired(Ledger(claims=(one,)), builders.snapshot(nodes=(node(one),)), pool(), NOW)
    assert end.claim.deadline == NOW + timedelta(hours=1)


def test_forty_nodes_of_the_same_age_are_replaced_within_their_budget_and_before_their_deadline() -> None:
    """Each termination takes ten minutes, and so does the start of each replacement: one in ten is gone at a time."""
    claims = {c.name: c for c in (claim(number) for number in range(40))}
    born, takes, least, forced = NOW, timedelta(minutes=10), 40, 0
    gone_at: dict[str, datetime] = {}
    for minute in range(0, 24 * 60, 5):
        now = born + 9 * DAY + timedelta(minutes=minute)
        for name in [name for name, at in gone_at.items() if at <= now]:
            del gone_at[name], claims[name]
            claims[f"{name}-next"] = replace(
                claim(1000), name=f"{name}-next", provider_id=f"{name}-next", created_at=now
            )
        known = list(claims.values())
        snapshot = builders.snapshot(nodes=tuple(map(node, known)))
        for end in expired(Ledger(claims=tuple(known)), snapshot, pool({"nodes": "10%"}), now):
            claims[end.claim.name] = end.claim
            gone_at[end.claim.name] = now + takes
            forced += "ahead" not in end.claim.message
        least = min(least, sum(c.phase is Phase.INITIALIZED for c in claims.values()))
    assert forced == 0
    assert least >= 36
    assert sum(name.endswith("-next") for name in claims) == 40


def test_the_next_deadline_is_the_earliest_of_the_serving_nodes() -> None:
    old, older = claim(1, 9 * DAY), claim(2, 9 * DAY + timedelta(hours=1))
    others = (
        claim(3, expire_after="Never"),
        claim(4, 10 * DAY),
        claim(5, 9.5 * DAY).terminating("Deleted", "it was deleted", NOW),
    )
    assert next_deadline([old, older, *others], NOW) == NOW + timedelta(hours=23)
    assert next_deadline(others, NOW) is None
