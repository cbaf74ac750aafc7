"""How long nothing is bought for pods that did not run on the nodes that were bought for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.decisions.provisioning.attempts import REMEMBERED, AttemptHistory, histories, stayed
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.breakers import LONGEST_WAIT, wait_after
from nodesmith.model.ledger.learned import RegistrationHealth
from nodesmith.model.ledger.ledger import departure_of
from tests.builders import JOINED, NOW, READY, claim, inputs, ledger, node, pods, shape, snapshot

MINUTE = timedelta(minutes=1)
WEB = shape()
(WAITING,) = pods(WEB)
WORKLOAD = Workloads().of(WAITING)
FULL = shape("4", app="filler")
"""A DaemonSet whose pod leaves no room on a node."""


def bought(
    ago: timedelta,
    attempt: int = 1,
    *,
    name: str = "",
    ready: timedelta | None = 40 * MINUTE / 60,
    **fields: Any,
) -> NodeClaim:
    """Return a claim of the given age whose node was initialized some time later; None if it is still starting."""
    at = NOW - ago
    phase = Phase.LAUNCHED if ready is None else Phase.INITIALIZED
    known: dict[str, Any] = {
        "created_at": at,
        "phase_since": at if ready is None else at + ready,
        "initialized_at": None if ready is None else at + ready,
        "attempts": FrozenMap({WORKLOAD: attempt}),
    }
    return claim(name or f"default-{attempt}", phase=phase, **(known | fields))


def ended(made: NodeClaim, cause: str = "Empty") -> NodeClaim:
    """Return a claim whose termination has begun a moment ago."""
    at = NOW - timedelta(seconds=5)
    return replace(made, phase=Phase.TERMINATING, terminating_at=at, cause=cause)


def seen(claims: Sequence[NodeClaim], *on: Pod) -> Any:
    nodes = [
        node(f"node-{c.name}", provider_id=c.provider_id, labels=READY if c.initialized_at else JOINED)
        for c in claims
        if c.initialized_at is not None
    ]
    return snapshot(pods=[WAITING, *on], nodes=tuple(nodes))


def history(
    *claims: NodeClaim, on: Sequence[Pod] = (), since: timedelta = 10 * MINUTE, **known: Any
) -> AttemptHistory:
    """Return the attempt history of the workload whose pod has waited for the given time."""
    pod = replace(WAITING, created_at=NOW - since)
    expecting = known.pop("expecting", ())
    held = ledger(claims=claims, **known)
    return histories([pod], expecting, held, seen(claims, *on), NOW, Workloads()).get(
        WORKLOAD, AttemptHistory()
    )


def hosted(made: NodeClaim, **fields: Any) -> Pod:
    return replace(pods(WEB, prefix="other")[0], **{"node": f"node-{made.name}", **fields})


def test_the_waits_grow_from_ten_minutes_to_a_day() -> None:
    minutes = [wait_after(attempt) / MINUTE for attempt in range(1, 6)]
    assert minutes == [0, 10, 120, 1440, 1440]
    assert wait_after(10**6) == LONGEST_WAIT


def test_pods_without_an_earlier_purchase_have_no_history() -> None:
    assert history(bought(MINUTE, attempts=FrozenMap({"another-one": 9}))) == AttemptHistory()


def test_a_node_without_pods_is_a_failed_attempt_if_pods_waited() -> None:
    made = history(bought(5 * MINUTE))
    assert (made.failed, made.waits(NOW)) == (1, False)


def test_after_the_second_nothing_is_bought_until_its_back_off_is_over() -> None:
    young, old = history(bought(MINUTE, 2)), history(bought(11 * MINUTE, 2), since=15 * MINUTE)
    assert (young.failed, young.until, young.waits(NOW)) == (2, NOW + 9 * MINUTE, True)
    assert (old.failed, old.waits(NOW), old.is_on_trial) == (2, False, True)


def test_the_longest_of_several_back_offs_counts() -> None:
    assert history(bought(MINUTE, 2), bought(MINUTE, 3)).until == NOW + 119 * MINUTE


@pytest.mark.parametrize("ready", [None, MINUTE / 2])
def test_a_node_that_may_still_get_pods_is_not_a_failed_attempt(ready: timedelta | None) -> None:
    made = bought(MINUTE, ready=ready)
    assert history(made, expecting=[(made.name, hosted(made, node=""))]).failed == 0


def test_a_pod_that_has_been_on_the_node_for_less_than_a_minute_decides_nothing() -> None:
    failed, made = bought(5 * MINUTE, 2, name="default-a"), bought(MINUTE, 3)
    found = history(failed, made, on=[hosted(made)])
    assert (found.failed, found.trial, found.waits(NOW)) == (2, made.name, True)


def test_a_pod_that_has_stayed_for_a_minute_clears_all_earlier_attempts() -> None:
    failed, made = bought(5 * MINUTE, 2, name="default-a"), bought(3 * MINUTE, 3)
    assert history(failed, made, on=[hosted(made)]) == AttemptHistory()


def test_a_pod_that_is_terminating_or_of_another_workload_has_not_stayed() -> None:
    made = bought(4 * MINUTE, 3)
    other = replace(pods(shape(app="other"))[0], node=f"node-{made.name}")
    assert history(made, on=[hosted(made, deleting=True), other]).failed == 3


def test_a_pod_of_the_same_controller_with_other_constraints_has_stayed() -> None:
    made = bought(4 * MINUTE, 3)
    resized = replace(hosted(made), shape=shape("2"))
    assert history(made, on=[resized]) == AttemptHistory()


def test_attempts_after_the_last_successful_one_count_again() -> None:
    good, bad = bought(9 * MINUTE, 4, name="default-a"), bought(5 * MINUTE, 1)
    assert history(good, bad, on=[hosted(good)]).failed == 1


def test_an_attempt_of_the_same_decision_as_a_successful_one_does_not_count() -> None:
    good, bad = bought(5 * MINUTE, 2, name="default-a"), bought(5 * MINUTE, 2)
    assert history(good, bad, on=[hosted(good)]).failed == 0


def test_pods_that_were_created_long_after_the_node_do_not_make_it_a_failure() -> None:
    made = bought(10 * MINUTE)
    assert history(made, since=8 * MINUTE).failed == 0
    assert history(made, since=8 * MINUTE + timedelta(seconds=30)).failed == 1


def test_pods_that_replace_others_during_a_back_off_go_on_waiting() -> None:
    made = bought(LONGEST_WAIT + 4 * MINUTE, 5)
    assert history(made, since=5 * MINUTE).failed == 5
    assert history(made, since=2 * MINUTE).failed == 0


@pytest.mark.parametrize("cause", ["Empty", "Deleted", "Underutilized", "InstanceTerminated"])
def test_a_node_that_was_terminated_before_any_pod_came_is_a_failed_attempt(cause: str) -> None:
    made = ended(bought(2 * MINUTE), cause)
    gone = departure_of(made)
    assert gone is not None
    assert history(made).failed == 1
    assert history(departures=(gone,)).failed == 1
    assert history(ended(bought(2 * MINUTE, ready=None), cause)).failed == 1


@pytest.mark.parametrize(
    "cause", sorted(set(InterruptionCause) - {InterruptionCause.TERMINATED, InterruptionCause.STOPPED})
)
def test_instances_that_ec2_took_back_do_not_count(cause: str) -> None:
    made = ended(bought(2 * MINUTE), cause)
    gone = departure_of(made)
    assert gone is not None
    assert history(made) == history(departures=(gone,)) == AttemptHistory()


def test_claims_that_never_became_nodes_do_not_count() -> None:
    assert history(replace(bought(MINUTE, ready=None), phase=Phase.GIVEN_UP)) == AttemptHistory()


def test_purchases_of_days_ago_do_not_count() -> None:
    assert history(bought(REMEMBERED + MINUTE, 9), since=timedelta(days=9)) == AttemptHistory()


def test_purchases_from_before_a_reset_of_their_nodepool_do_not_count() -> None:
    reset = {"default": RegistrationHealth("basis", resets=(NOW - 2 * MINUTE,))}
    assert history(bought(3 * MINUTE, 2), health=reset) == AttemptHistory()
    assert history(bought(MINUTE, 2), health=reset).failed == 2


def test_a_departure_is_kept_for_longer_than_the_longest_back_off_after_a_repeated_attempt() -> None:
    first, second = departure_of(ended(bought(MINUTE))), departure_of(ended(bought(MINUTE, 2)))
    assert first is not None
    assert second is not None
    assert first.kept_until - first.at == timedelta(hours=1)
    assert second.kept_until - second.at > LONGEST_WAIT + MINUTE


def test_a_repeated_attempt_is_marked_once_when_pods_have_stayed() -> None:
    made = bought(3 * MINUTE, 2)
    held, there = ledger(claims=(made,)), seen([made], hosted(made))
    assert stayed(held, there, NOW, Workloads()) == {made.name: (WORKLOAD,)}
    reported = ledger(claims=(replace(made, served=(WORKLOAD,)),))
    assert stayed(reported, there, NOW, Workloads()) == {}


@pytest.mark.parametrize(
    "made",
    [bought(3 * MINUTE, 1), bought(MINUTE, 2), bought(MINUTE, 2, ready=None), ended(bought(3 * MINUTE, 2))],
)
def test_other_claims_are_not_marked(made: NodeClaim) -> None:
    assert stayed(ledger(claims=(made,)), seen([made], hosted(made)), NOW, Workloads()) == {}


def test_a_workload_whose_pods_have_stayed_and_left_does_not_wait() -> None:
    made = replace(bought(20 * MINUTE, 6), served=(WORKLOAD,))
    gone = departure_of(ended(made))
    assert gone is not None
    assert history(made) == history(departures=(gone,)) == AttemptHistory()


def decided(claims: Sequence[NodeClaim], waiting: Sequence[Pod], now: datetime = NOW) -> Plan:
    fillers = [replace(pods(FULL)[0], key=f"kube/{c.name}", node=f"node-{c.name}") for c in claims]
    there = replace(seen(claims, *fillers), pods=(*waiting, *fillers))
    return decide(inputs(snapshot=there, ledger=ledger(claims=tuple(claims)), now=now))


def test_the_first_purchase_is_the_first_attempt_for_each_of_its_workloads() -> None:
    (other,) = pods(shape(app="api"))
    (bought_now,) = decided([], [WAITING, other]).nodes
    names = Workloads()
    assert bought_now.claim.attempts == {WORKLOAD: 1, names.of(other): 1}


def test_the_second_follows_at_once() -> None:
    (again,) = decided([bought(MINUTE)], [WAITING]).nodes
    assert again.claim.attempts == {WORKLOAD: 2}


def test_a_node_for_pods_whose_nodes_were_removed_continues_the_longest_row_of_removals() -> None:
    removed = [
        replace(
            ended(bought(9 * MINUTE, name=f"default-{again}", removals_before=again), "Drifted"),
            attempts=FrozenMap({WORKLOAD: 1}),
        )
        for again in (2, 0, 1)
    ]
    (again,) = decided(removed, [WAITING]).nodes
    assert again.claim.removals_before == 3


def test_the_third_waits_and_shows_the_reason() -> None:
    plan = decided([bought(MINUTE, 2)], pods(WEB, 3))
    assert not plan.nodes
    (group,) = plan.unplaced
    assert len(group.pods) == plan.backed_off == 3
    assert group.reason == (
        "nodes were bought 2 times for ReplicaSet/web, and none of its pods stayed on one for a minute;"
        f" tried again after {NOW + 9 * MINUTE:%H:%M:%S} UTC"
    )
    assert group.cause.blocking == "back-off"


def test_after_the_back_off_one_node_is_bought_for_the_oldest_pod() -> None:
    waiting = pods(WEB, 3)
    waiting[1] = replace(waiting[1], created_at=NOW - timedelta(minutes=15))
    plan = decided([bought(11 * MINUTE, 2)], waiting)
    (trial,) = plan.nodes
    assert (trial.claim.nominated, trial.claim.attempts) == ((waiting[1].key,), {WORKLOAD: 3})
    (group,) = plan.unplaced
    assert group.reason.endswith("; it is tried with one pod first")


def test_until_the_outcome_for_that_node_is_known_the_other_pods_wait() -> None:
    waiting = pods(WEB, 3)
    trial = bought(MINUTE, 3, ready=None, nominated=(waiting[0].key,))
    plan = decided([trial], waiting)
    assert plan.waiting == {waiting[0].key: trial.name}
    (group,) = plan.unplaced
    assert group.reason.endswith(f"; it is tried with one node, NodeClaim {trial.name}")


def test_pods_of_other_workloads_are_bought_for_meanwhile() -> None:
    (other,) = pods(shape(app="api"))
    plan = decided([bought(MINUTE, 2)], [WAITING, other])
    assert [node.claim.nominated for node in plan.nodes] == [(other.key,)]


def test_pods_with_other_constraints_are_bought_for_at_once() -> None:
    (changed,) = pods(shape("2"))
    (found,) = decided([bought(MINUTE, 5)], [changed]).nodes
    assert list(found.claim.attempts.values()) == [1]


def test_a_pod_whose_node_is_ending_is_bought_for_in_any_case_and_is_not_an_attempt() -> None:
    running = replace(WAITING, key="default/web-9999", node="node-old", unschedulable=False)
    old = node("node-old", labels=READY, deleting=True)
    there = snapshot(pods=[running], nodes=(old,))
    made = replace(bought(MINUTE, 2), phase=Phase.TERMINATING, terminating_at=NOW)
    (found,) = decide(inputs(snapshot=there, ledger=ledger(claims=(made,)))).nodes
    assert (found.claim.nominated, found.claim.attempts) == ((running.key,), {WORKLOAD: 0})


def test_a_second_wave_is_the_first_attempt_too_while_the_first_is_on_its_way() -> None:
    waiting = pods(WEB, 2)
    first = bought(MINUTE / 2, ready=None, nominated=(waiting[0].key,), allocatable=WEB.requests)
    (found,) = decided([first], waiting).nodes
    assert found.claim.attempts == {WORKLOAD: 1}


def test_a_back_off_reports_when_it_ends() -> None:
    assert decided([bought(MINUTE, 2)], [WAITING]).due == NOW + 9 * MINUTE
    assert decided([bought(MINUTE, 1)], [WAITING]).due is None


def test_a_trial_with_a_pod_on_its_node_reports_when_the_pod_will_have_stayed() -> None:
    failed, made = bought(5 * MINUTE, 2, name="default-a"), bought(MINUTE, 3)
    assert history(failed, made, on=[hosted(made)]).due == NOW - MINUTE + 40 * MINUTE / 60 + MINUTE
    on_its_way = bought(MINUTE / 2, 3, ready=None)
    assert history(failed, on_its_way).due is None
