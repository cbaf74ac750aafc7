"""Why nodes stay: one rule each, and the object that the rule belongs to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.candidates import CandidateSelection
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, DO_NOT_DISRUPT, INSTANCE_TYPE
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.moves import Reason
from tests.builders import NOW, claim, daemon, expression, pods, shape
from tests.objects.fleets import Worker, fleet, pool, running, worker

SMALL = shape("500m", "1Gi")


def protected(value: str, of: Shape = SMALL) -> Shape:
    return replace(of, annotations=FrozenMap({DO_NOT_DISRUPT: value}))


def guard(name: str = "guard", *, allowed: int = 0, app: str = "web", **fields: Any) -> PodDisruptionBudget:
    known: dict[str, Any] = {
        "selector": parse_selector({"matchLabels": {"app": app}}),
        "disruptions_allowed": allowed,
        "current_healthy": 3,
        "desired_healthy": 3,
        "expected_pods": 3,
        "always_allow_unhealthy": False,
        "min_available": "",
        "max_unavailable": "1",
    }
    return PodDisruptionBudget(f"default/{name}", **(known | fields))


def blocked(one: Worker, of: Shape = SMALL, count: int = 1, **about: Any) -> tuple[str, str]:
    """Return rule and object of the blocker of a node with such pods; empty strings if it may be disrupted."""
    fields = about.pop("pod", {})
    found = propose(fleet([one], running(of, {one.node.name: count}, **fields), **about))
    blocker = found.blocked.get(one.claim.name)
    assert (blocker is None) == bool(found.proposals)
    return (blocker.rule, blocker.object) if blocker else ("", "")


def test_a_node_with_a_small_pod_on_it_may_be_replaced() -> None:
    assert blocked(worker("a")) == ("", "")


@pytest.mark.parametrize(
    ("disruption", "rule"),
    [
        ({"after": "Never"}, "ConsolidateAfter"),
        ({"policy": "WhenEmpty"}, "Policy"),
        ({"budgets": [{"nodes": "0"}]}, "Budget"),
        ({"budgets": [{"nodes": "100%"}, {"nodes": "0", "reasons": ["Underutilized"]}]}, "Budget"),
    ],
)
def test_a_nodepools_disruption_settings_keep_its_nodes(disruption: dict[str, Any], rule: str) -> None:
    assert blocked(worker("a"), pools=[pool(**disruption)]) == (rule, "NodePool/default")


def test_nodes_of_a_static_nodepool_are_never_consolidated() -> None:
    assert blocked(worker("a"), pools=[pool(replicas=1)]) == ("Static", "NodePool/default")


def test_a_node_whose_nodepool_is_gone_stays() -> None:
    assert blocked(worker("a", pool="old")) == ("NodePool", "NodePool/old")


def test_a_node_says_whether_its_nodepool_is_gone_not_valid_or_about_to_be_read() -> None:
    broken = pool("broken")
    broken["spec"]["template"]["spec"]["requirements"] = [expression("kubernetes.io/arch", "Inn", "amd64")]
    workers = [worker(name, pool=name) for name in ("gone", "broken", "changed")]
    inputs = fleet(workers, pools=[broken, pool("changed")])
    unread = replace(inputs, ledger=replace(inputs.ledger, contents={}))
    kept = CandidateSelection(unread).blocked
    assert {name: (blocker.rule, blocker.message) for name, blocker in kept.items()} == {
        "claim-gone": ("NodePool", "its NodePool 'gone' does not exist"),
        "claim-broken": ("NodePool", "its NodePool 'broken' is not valid: its status shows why"),
        "claim-changed": (
            "NodePoolUnread",
            "its NodePool 'changed' has changed, and readiness reads it again",
        ),
    }


def test_a_node_that_a_user_asked_for_stays() -> None:
    assert blocked(worker("a", pool="")) == ("NodePool", "NodeClaim/claim-a")


def test_a_node_that_terminates_or_is_tainted_already_is_no_candidate() -> None:
    ending = worker("a", claim={"phase": Phase.TERMINATING})
    assert blocked(ending) == ("Ending", "NodeClaim/claim-a")
    assert blocked(worker("a", taints=(DISRUPTED,))) == ("Ending", "NodeClaim/claim-a")


def test_a_node_that_is_not_initialized_stays() -> None:
    assert blocked(worker("a", claim={"phase": Phase.REGISTERED})) == ("NotInitialized", "NodeClaim/claim-a")


def test_a_node_with_do_not_disrupt_stays_only_if_the_value_is_true() -> None:
    assert blocked(worker("a", annotations={DO_NOT_DISRUPT: "true"})) == ("DoNotDisrupt", "Node/a")
    assert blocked(worker("a", annotations={DO_NOT_DISRUPT: "1h"})) == ("", "")


def test_do_not_disrupt_applies_to_every_pod_including_daemonset_pods() -> None:
    assert blocked(worker("a"), protected("true")) == ("DoNotDisrupt", "Pod/default/on-a-0000")
    agent = protected("true", daemon())
    assert blocked(worker("a"), agent) == ("DoNotDisrupt", "Pod/kube-system/on-a-0000")


def test_a_duration_protects_a_pod_from_its_start_and_before_it() -> None:
    started = {"started_at": NOW - timedelta(minutes=30)}
    assert blocked(worker("a"), protected("1h"), pod=started)[0] == "DoNotDisrupt"
    assert blocked(worker("a"), protected("10m"), pod=started) == ("", "")
    assert blocked(worker("a"), protected("10m"))[0] == "DoNotDisrupt"
    assert blocked(worker("a"), protected("soon"), pod=started) == ("", "")


def test_a_poddisruptionbudget_that_allows_no_eviction_keeps_a_node() -> None:
    assert blocked(worker("a"), budgets=(guard(),)) == (
        "PodDisruptionBudget",
        "PodDisruptionBudget/default/guard",
    )
    assert blocked(worker("a"), budgets=(guard(allowed=1),)) == ("", "")


def test_two_poddisruptionbudgets_for_one_pod_always_keep_its_node() -> None:
    both = (guard("one", allowed=1), guard("two", allowed=1))
    assert blocked(worker("a"), budgets=both)[0] == "MultiplePodDisruptionBudgets"


def test_a_poddisruptionbudget_that_allows_evicting_unready_pods_keeps_no_node() -> None:
    lenient = guard(always_allow_unhealthy=True, current_healthy=1)
    assert blocked(worker("a"), budgets=(lenient,), pod={"ready": False}) == ("", "")


def test_a_poddisruptionbudget_limits_how_many_nodes_are_removed_at_once() -> None:
    workers = [worker(name) for name in "abc"]
    inputs = fleet(workers, running(SMALL, dict.fromkeys("abc", 1)), budgets=(guard(allowed=2),))
    found = propose(inputs)
    assert sum(len(p.sources) for p in found.proposals) == 2


def test_a_node_kept_by_a_shared_poddisruptionbudget_names_it_and_not_the_nodepool() -> None:
    workers = [worker(name) for name in "abc"]
    spread = running(SMALL, dict.fromkeys("abc", 1))
    found = propose(fleet(workers, spread, budgets=(guard(allowed=1),)))
    ((gone,),) = (p.sources for p in found.proposals)
    kept = {(b.rule, b.object) for name, b in found.blocked.items() if name != gone and b.rule != "Nominated"}
    assert kept == {("PodDisruptionBudget", "PodDisruptionBudget/default/guard")}


def test_a_poddisruptionbudget_that_never_allows_an_eviction_is_named_first() -> None:
    never = guard("never", app="zebra", max_unavailable="0")
    runs = [*running(SMALL, {"a": 1}), *running(shape("500m", "1Gi", app="zebra"), {"a": 1})]
    found = propose(fleet([worker("a")], runs, budgets=(guard(), never)))
    assert found.blocked["claim-a"].object == "PodDisruptionBudget/default/never"


@pytest.mark.parametrize("budgets", [(guard(),), (guard("one", allowed=1), guard("two", allowed=1))])
def test_a_drifted_node_with_a_termination_grace_period_is_replaced_despite_poddisruptionbudgets(
    budgets: tuple[PodDisruptionBudget, ...],
) -> None:
    drifted = {"image_id": "ami-old", "drift": "AMIDrift", "drifted_at": NOW}
    for deadline, reasons in (("1h", [Reason.DRIFTED]), (None, [])):
        old = worker("a", claim={**drifted, "termination_grace_period": deadline})
        found = propose(fleet([old], running(SMALL, {"a": 1}), budgets=budgets))
        assert [p.reason for p in found.proposals] == reasons


@pytest.mark.parametrize(
    ("annotations", "reported"),
    [
        (
            {"nodesmith.dev/max-disruptions-per-hour": "ten"},
            "metadata.annotations[nodesmith.dev/max-disruptions-per-hour] of NodePool default is invalid",
        ),
        (
            {"nodesmith.dev/max-disruptions-per-hour": "1"},
            "has used up its maximum of disruptions in an hour (1)",
        ),
        ({}, "the disruption budgets of NodePool default allow no more"),
    ],
)
def test_the_message_names_the_limit_that_keeps_a_node(annotations: dict[str, str], reported: str) -> None:
    limited = pool(budgets=[{"nodes": "100%" if annotations else "0"}])
    limited["metadata"]["annotations"] = annotations
    gone = worker("z").claim.terminating("Deleted", "", NOW - timedelta(minutes=50))
    found = propose(fleet([worker("a")], pools=[limited], claims=[gone]))
    assert found.proposals == ()
    assert found.blocked["claim-a"].rule == "Budget"
    assert reported in found.blocked["claim-a"].message


@pytest.mark.parametrize(
    ("budgets", "reported"),
    [
        ([{"nodes": "5"}, {"nodes": "0"}], "spec.disruption.budgets[1] (nodes 0) allows none"),
        (
            [{"nodes": "0", "reasons": ["Empty"]}, {"nodes": "0", "reasons": ["Drifted"]}],
            "spec.disruption.budgets[0] (nodes 0; reasons Empty) allows none",
        ),
        (
            [{"nodes": "0", "schedule": "0 11 * * *", "duration": "2h"}],
            "spec.disruption.budgets[0] (nodes 0; until 2026-11-21 13:00 UTC) allows none",
        ),
    ],
)
def test_the_budget_that_keeps_a_node_is_named_with_its_values(
    budgets: list[dict[str, Any]], reported: str
) -> None:
    found = propose(fleet([worker("a")], pools=[pool(budgets=budgets)]))

    assert found.blocked["claim-a"].message == (
        f"the disruption budgets of NodePool default allow no more disruptions for now: {reported}"
    )


def test_a_budget_that_others_use_up_says_how_many_it_allows_of_how_many() -> None:
    limited = pool(budgets=[{"nodes": "1"}])
    ending = worker("z")
    gone = replace(ending, claim=ending.claim.terminating("Deleted", "", NOW))

    found = propose(fleet([worker("a"), worker("b"), gone], pools=[limited]))

    assert found.blocked["claim-a"].message.endswith(
        "spec.disruption.budgets[0] (nodes 1) allows 1 of 3 at a time, and as many are being disrupted or not Ready"
    )


def test_a_node_that_pods_are_nominated_for_stays() -> None:
    bought = worker(
        "a", claim={"nominated": ("default/web-0000",), "initialized_at": NOW, "phase_since": NOW}
    )
    found = propose(fleet([bought], pods(SMALL, 1)))
    assert found.blocked["claim-a"].rule == "Nominated"


def test_an_empty_node_stays_if_pods_of_a_terminating_node_are_nominated_for_it() -> None:
    old = worker("old")
    moved, *others = running(SMALL, {"old": 1, "a": 1, "b": 1})
    fresh = {"nominated": (moved.key,), "initialized_at": NOW, "phase_since": NOW}
    ending = replace(old, claim=old.claim.terminating("Drifted", "", NOW))
    workers = [ending, worker("new", claim=fresh), worker("a"), worker("b")]
    found = propose(fleet(workers, [moved, *others], pools=[pool(policy="WhenEmpty")]))
    assert found.proposals == ()
    assert found.blocked["claim-new"].rule == "Nominated"


def test_an_empty_node_stays_while_a_pod_of_a_statefulset_leaves_a_terminating_one() -> None:
    old, fits_one = worker("old"), shape("3", "1Gi", owner="StatefulSet/db")
    ending = replace(old, claim=old.claim.terminating("Deleted", "", NOW))
    leaving = running(fits_one, {"old": 1}, deleting=True)
    found = propose(fleet([ending, worker("new")], leaving))
    assert found.proposals == ()
    assert found.blocked["claim-new"].rule == "Nominated"


def test_an_empty_node_with_capacity_for_a_pending_pod_stays() -> None:
    found = propose(fleet([worker("a"), worker("b")], pods(shape("3", "1Gi"), 1)))
    assert sorted(b.rule for b in found.blocked.values()) == ["Nominated"]
    assert len(found.proposals) == 1


def test_a_node_without_the_labels_for_its_price_stays_unless_it_is_empty() -> None:
    unknown = worker("a", labels={INSTANCE_TYPE: ""})
    assert blocked(unknown) == ("Labels", "Node/a")
    assert propose(fleet([unknown])).proposals


def test_a_claim_without_a_node_is_no_candidate() -> None:
    lost = claim("lost", phase=Phase.INITIALIZED)
    assert propose(fleet([], claims=[lost])).blocked["lost"].rule == "NoNode"


def test_a_node_with_pods_of_daemonsets_and_static_pods_alone_counts_as_empty() -> None:
    large = shape("3", "12Gi")
    for owner, reason in (
        ("DaemonSet/agent", Reason.EMPTY),
        ("Node/a", Reason.EMPTY),
        ("ReplicaSet/web", Reason.UNDERUTILIZED),
    ):
        found = propose(fleet([worker("a")], running(replace(large, owner=owner), {"a": 1})))
        assert [each.reason for each in found.proposals] == [reason], owner
