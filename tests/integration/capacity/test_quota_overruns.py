"""No quota is ever exceeded, however many functions buy at once and wherever they die."""

from __future__ import annotations

import pytest

from tests.experiments.quotaoverruns import NODES, at_once, crashed, undisturbed
from tests.samples import sampled

WRITERS = sampled(20, whole=50)


def test_without_disturbance_quotas_are_used_and_not_exceeded() -> None:
    world = undisturbed()
    assert world.overshoots == []
    assert world.most == NODES


def test_objects_and_pods_show_what_is_used_and_which_limit_is_reached() -> None:
    world = undisturbed()
    status = world.cluster.quotas["all"]["status"]
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    events = {(each.kind, each.reason) for each in world.cluster.events}
    assert status["used"] == {"resources": {"nodes": str(NODES)}}
    assert conditions == {
        "nodesmith.dev/Enforced": ("True", "Enforced"),
        "nodesmith.dev/NearLimit": ("True", "LimitReached"),
    }
    reported = [each.message for each in world.cluster.events if each.reason == "FailedScheduling"][-1]
    assert f"the limit of {NODES} nodes of CapacityQuota all is reached ({NODES} nodes used since" in reported
    assert f"raise spec.limits.resources.nodes of CapacityQuota all to at least {NODES + 1}" in reported
    assert {("CapacityQuota", "LimitReached"), ("NodePool", "LimitNearlyReached")} <= events


@pytest.mark.exhaustive
def test_a_crash_before_or_after_any_call_exceeds_no_quota_and_leaves_none_unused() -> None:
    found = {
        moment: (world.overshoots, len(world.cloud.alive())) for moment, world in crashed(sampled(2, whole=0))
    }
    assert found
    assert {moment: outcome for moment, outcome in found.items() if outcome != ([], NODES)} == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dying", [False, True], ids=["none dies", "some die"])
def test_many_functions_that_decide_before_any_of_them_commits_exceed_no_quota(dying: bool) -> None:
    world = at_once(WRITERS, dying=dying)
    assert world.decided == WRITERS - 1
    assert world.overshoots == []
    assert len(world.cloud.alive()) == NODES
