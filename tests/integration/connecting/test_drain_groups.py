"""`nodesmith migrate --drain`, `--undo` and `--status` on moto's node groups and an API server with stand-ins."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import typer

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.migration.draining.command import Action, DrainOptions, rules_of, run_on_groups
from nodesmith_cli.migration.draining.groups import SIZE_TAG, AwsGroups
from nodesmith_cli.migration.draining.objects import Autoscaler, ServedObjects
from nodesmith_cli.migration.draining.running import Drain, Rules, State
from nodesmith_cli.migration.draining.sequence import drain, undo
from tests.aws.account import client
from tests.aws.connectable import CLUSTER
from tests.aws.drainable import ENABLED, Drainable, Mortal, denied, drainable
from tests.aws.nodegroups import Clients, scaling
from tests.objects.foreign import karpenters_nodeclaim
from tests.samples import sampled
from tests.smallworld.world import Killed

Json = dict[str, Any]


UNKNOWN_TYPE = {"node.kubernetes.io/instance-type": "x99.huge", "topology.kubernetes.io/region": "us-east-1"}


@pytest.fixture
def here() -> Iterator[Drainable]:
    """Yield the cluster."""
    with drainable() as cluster:
        yield cluster


def report(capsys: pytest.CaptureFixture[str]) -> list[Json]:
    """Return the groups that a command has printed."""
    found: list[Json] = json.loads(capsys.readouterr().out)["groups"]
    return found


def test_a_managed_group_is_emptied_within_its_budgets_and_made_as_large_again(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_managed("general", 3, minimum=2)
    here.add_web(6)
    here.add_budget("web", maxUnavailable=1)
    fewest = 6

    def watch() -> None:
        nonlocal fewest
        fewest = min(fewest, sum(map(bool, here.places().values())))

    here.meanwhile = watch
    assert here.drain("general") == 0
    assert here.size("eks-general") == (0, 0, 5)
    assert here.remembered("eks-general") == "min=2 desired=3 max=5 rebalance"
    assert set(here.places().values()) == {"new-1"}
    assert fewest >= 5
    assert report(capsys)[0]["state"] == "drained"

    assert here.drain("general") == 0
    assert here.undo("general") == 0
    assert here.size("eks-general") == (2, 3, 5)
    assert here.remembered("eks-general") is None
    assert here.group("eks-general").suspended_processes == []
    assert len([n for n in here.nodes("eks-general") if not n["spec"].get("unschedulable")]) == 3


def test_an_auto_scaling_group_keeps_a_suspended_process_and_nodes_that_its_user_has_cordoned(
    here: Drainable,
) -> None:
    here.add_own("batch", 3)
    client("autoscaling").suspend_processes(AutoScalingGroupName="batch", ScalingProcesses=["AZRebalance"])
    here.add_web(4)
    ((mine, _),) = Counter(here.places().values()).most_common(1)
    here.store.patch("nodes", mine, {"spec": {"unschedulable": True}})
    with pytest.raises(KeyboardInterrupt):
        interrupted(here, "batch", after=1)
    assert here.remembered("batch") == "min=0 desired=3 max=5"
    assert len(here.nodes("batch")) == 2
    assert all(node["spec"].get("unschedulable") for node in here.nodes("batch"))
    assert undo(here.drain_run(), "batch").state is State.RESTORED
    cordoned = [n["metadata"]["name"] for n in here.nodes("batch") if n["spec"].get("unschedulable")]
    assert (cordoned, here.size("batch")) == ([mine], (0, 3, 5))
    suspended = [each["ProcessName"] for each in here.group("batch").suspended_processes]
    assert suspended == ["AZRebalance"]


def interrupted(here: Drainable, name: str, after: int) -> None:
    """Drain a group until some instances have ended, then press Ctrl-C."""
    run = here.drain_run()
    ended = 0

    def end(instance: str) -> None:
        nonlocal ended
        if ended == after:
            raise KeyboardInterrupt
        ended += 1
        AwsGroups(here.account.client, CLUSTER).end(instance)

    drain(replace(run, groups=Mortal(run.groups, {"end": end})), name)


def test_the_numbers_and_percentages_of_nodes_at_once_are_read() -> None:
    assert [Rules(each).nodes_at_once(25) for each in ("1", "7", "10%", "100%", "1%")] == [1, 7, 2, 25, 1]
    for wrong in ("0", "-1", "0%", "101%", "many", "1.5", "9" * 10_000):
        with pytest.raises(Rejected, match=r"--max-unavailable .*expected a number of nodes such as 2"):
            rules_of(wrong, timedelta(0), 3)
    with pytest.raises(Rejected, match="--max-failures 0: must be at least 1"):
        rules_of("1", timedelta(0), 0)


def test_no_more_nodes_than_allowed_lose_pods_at_a_time(here: Drainable) -> None:
    here.add_own("batch", 6)
    here.add_web(12)
    ended: list[int] = []

    def end(instance: str) -> None:
        ended.append(round(here.time.timestamp()))
        AwsGroups(here.account.client, CLUSTER).end(instance)

    run = here.drain_run(Rules("50%"))
    result = drain(replace(run, groups=Mortal(run.groups, {"end": end})), "batch")
    assert result.state is State.DRAINED
    assert len(ended) == 6
    assert len(set(ended)) <= 4


def test_cluster_autoscalers_arguments_say_which_groups_it_scales() -> None:
    discovery = "--node-group-auto-discovery=asg:tag="
    enabled = f"{discovery}k8s.io/cluster-autoscaler/enabled"
    for arguments, scales in (
        ((), True),
        ((f"{enabled},k8s.io/cluster-autoscaler/web",), True),
        (("--node-group-auto-discovery", "asg:tag=k8s.io/cluster-autoscaler/enabled=true"), True),
        (("--nodes", "0:5:eks-general"), True),
        (("--nodes=0:5:other",), False),
        ((f"{enabled}=false",), False),
        ((f"{discovery}team",), False),
        ((f"{discovery}team", "--nodes=0:5:eks-general"), True),
    ):
        assert Autoscaler("ca", arguments).scales("eks-general", ENABLED) is scales, arguments


def test_a_group_that_cluster_autoscaler_scales_is_left_as_it_is(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_managed("general", 1)
    here.add_autoscaler("--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled")
    here.account.calls.clear()
    assert here.drain("general") == 1
    (why,) = report(capsys)[0]["messages"]
    assert why.startswith(
        "Cluster Autoscaler (kube-system/cluster-autoscaler) scales it and would add nodes again"
    )
    assert here.account.calls == []


def test_budgets_that_never_allow_an_eviction_are_named_with_their_pods_and_the_next_group_is_drained(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_own("guarded", 1)
    here.add_web(2, "db")
    here.add_budget("db", "db", maxUnavailable=0)
    here.add_own("batch", 1)
    pods = sorted(f"default/{name}" for name in here.places())
    assert here.drain("guarded", "batch") == 1
    guarded, batch = report(capsys)
    assert guarded["messages"] == [
        f"PodDisruptionBudget default/db never allows an eviction: {', '.join(pods)}"
    ]
    assert (guarded["state"], batch["state"]) == ("hindered", "drained")
    assert here.size("guarded") == (0, 1, 5)
    assert here.remembered("guarded") is None
    assert not any(node["spec"].get("unschedulable") for node in here.nodes("guarded"))


def test_strange_objects_of_the_cluster_keep_no_group_from_being_drained(here: Drainable) -> None:
    here.add_own("batch", 1)
    here.store.patch(
        "nodes", here.nodes("batch")[0]["metadata"]["name"], {"metadata": {"labels": UNKNOWN_TYPE}}
    )
    here.add_node("unpriced", UNKNOWN_TYPE)
    here.add_web(2)
    for claim in (
        karpenters_nodeclaim("coming"),
        {**karpenters_nodeclaim("broken"), "spec": {"requirements": []}},
    ):
        metadata = {"name": claim["metadata"]["name"], "labels": claim["metadata"]["labels"]}
        there = {
            **claim,
            "metadata": metadata,
            "spec": {**karpenters_nodeclaim("x")["spec"], **claim["spec"]},
        }
        here.store.create("nodeclaims", there)
    here.add_budget("gone", "nobody", minAvailable="100%")
    assert here.drain("batch") == 0


def test_two_budgets_of_one_pod_are_named(here: Drainable, capsys: pytest.CaptureFixture[str]) -> None:
    here.add_own("batch", 1)
    here.add_web(1)
    here.add_budget("one", maxUnavailable=1)
    here.add_budget("two", maxUnavailable=1)
    assert here.drain("batch") == 1
    (why,) = report(capsys)[0]["messages"]
    assert why.startswith("PodDisruptionBudgets default/one and default/two select the same pods")


def test_a_group_is_left_as_it_is_while_nodesmith_would_buy_nothing_for_its_pods(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_own("batch", 1)
    here.add_web(2)

    def why() -> list[str]:
        assert here.drain("batch") == 1
        found: list[str] = report(capsys)[0]["messages"]
        return found

    here.set_ready("False", "EC2NodeClass default is not Ready")
    assert why() == ["NodePool default is not Ready: EC2NodeClass default is not Ready"]
    here.set_ready("True", "Karpenter has shown a sign of life", kind="nodesmith.dev/Standby")
    assert why() == ["nodesmith buys nothing: Karpenter has shown a sign of life"]
    here.set_ready("True")
    here.store.patch("nodepools", "default", {"spec": {"limits": {"cpu": "0"}}})
    (full,) = why()
    assert full.startswith("no place for 2 pods: default/web-")
    here.store.delete("nodepools", "default")
    assert why() == ["nodesmith has no NodePool: nothing would be bought for its pods"]
    assert here.remembered("batch") is None


def test_a_node_with_a_pod_that_must_stay_is_drained_once_that_has_ended(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_own("batch", 2)
    here.add_web(2)
    here.add_web(1, "job", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    (job,) = (name for name in here.places() if name.startswith("job"))
    node = here.places()[job]
    assert here.run(Action.DRAIN, "batch", is_dry=True) == 0
    protected = "is annotated karpenter.sh/do-not-disrupt or safe-to-evict=false"
    assert report(capsys)[0]["messages"] == [
        f"node {node} is drained once pod default/{job} is gone, which {protected}"
    ]

    assert here.drain("batch") == 1
    (found,) = report(capsys)
    assert (found["state"], found["nodes"]) == ("draining", [node])
    assert found["messages"] == [f"node {node}: pod default/{job} {protected}"]
    assert here.places()[job] == node
    assert here.size("batch") == (0, 1, 5)

    here.store.delete("deployments", "job", "default")
    here.sleep(60)
    assert here.drain("batch") == 0
    assert here.size("batch") == (0, 0, 5)


def test_a_pod_without_a_controller_is_not_evicted(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_own("batch", 1)
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "100m"}}}
    here.store.create(
        "pods", {"metadata": {"name": "bare", "namespace": "default"}, "spec": {"containers": [container]}}
    )
    here.settle()
    assert here.drain("batch") == 1
    (why,) = report(capsys)[0]["messages"]
    assert why.endswith("pod default/bare has no controller that would create it again")
    assert here.places()["bare"]


def test_a_group_is_rolled_back_if_evicted_pods_get_no_place(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_managed("general", 2)
    here.add_web(4, cpu="900m")
    here.add_own("later", 0)
    here.buys = False
    assert here.drain("general", "later", rules=Rules("1", timedelta(minutes=2), 1)) == 1
    reported = capsys.readouterr()
    (found,) = json.loads(reported.out)["groups"]
    assert found["state"] == "rolled back"
    assert "no node yet for default/web-" in found["messages"][0]
    assert "1 node could not be drained: rolling back" in reported.err
    assert " waits: no node yet for default/web-" in reported.err
    assert here.size("eks-general") == (1, 2, 5)
    assert here.remembered("eks-general") is None
    here.sleep(30)
    assert all(here.places().values())
    assert len(here.instances("eks-general")) == 2


def test_a_group_that_grows_meanwhile_is_not_contended_for(here: Drainable) -> None:
    here.add_own("batch", 2)
    here.add_web(2)

    def grow() -> None:
        client("autoscaling").set_desired_capacity(AutoScalingGroupName="batch", DesiredCapacity=4)
        here.meanwhile = lambda: None

    here.meanwhile = grow
    with pytest.raises(
        Rejected, match=r"group batch: somebody has set its size to min=0 desired=\d max=5 during"
    ):
        here.drain("batch")
    assert here.remembered("batch") == "min=0 desired=2 max=5 rebalance"


def test_each_step_is_asked_for(here: Drainable, monkeypatch: pytest.MonkeyPatch) -> None:
    here.add_own("batch", 2)
    here.add_web(2)
    asked: list[str] = []
    answers = [True, True, False]

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return answers.pop(0)

    monkeypatch.setattr(typer, "confirm", confirm)
    assert run_on_groups(Action.DRAIN, CLUSTER, ("batch",), here.around(), DrainOptions()) == 1
    assert asked[0].startswith(
        "Drain Auto Scaling group batch (min=0 desired=2 max=5): cordon 2 nodes, evict 2 pods"
    )
    assert [each.startswith("Drain node ") for each in asked[1:]] == [True, True]
    assert here.size("batch")[1] == 1
    answers[:] = [False]
    assert run_on_groups(Action.UNDO, CLUSTER, ("batch",), here.around(), DrainOptions()) == 1
    assert here.size("batch")[1] == 1


BOUNDARIES, OF_UNDO = 104, 38
"""How many calls of the ports a drain of two nodes has, before and after each, and how many its way back."""
CUTS = [(fatal, goes_on) for fatal in range(1, BOUNDARIES + 1) for goes_on in (True, False)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("fatal", "goes_on"), sampled([(5, True), (17, False), (44, True)], whole=CUTS))
def test_a_drain_that_was_cut_off_anywhere_goes_on_or_back(
    here: Drainable, fatal: int, goes_on: bool
) -> None:
    here.add_managed("general", 2)
    here.add_web(3)
    here.add_budget("web", maxUnavailable=1)
    run = here.drain_run()
    with suppress(Killed):
        drain(here.mortal(run, fatal), "general")
    assert sum(map(bool, here.places().values())) >= 2
    if goes_on:
        assert drain(run, "general").state is State.DRAINED
        assert here.size("eks-general") == (0, 0, 5)
        assert set(here.places().values()) == {"new-1"}
        with suppress(Killed):
            undo(here.mortal(run, 1 + fatal % OF_UNDO), "general")
    assert undo(run, "general").state in (State.RESTORED, State.UNTOUCHED)
    assert here.size("eks-general") == (1, 2, 5)
    assert here.remembered("eks-general") is None
    assert not any(node["spec"].get("unschedulable") for node in here.nodes("eks-general"))
    here.sleep(30)
    assert all(here.places().values())


def test_the_status_of_all_groups_is_shown_without_a_write(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_managed("general", 1)
    here.add_own("batch", 1)
    assert here.drain("batch") == 0
    capsys.readouterr()
    here.account.calls.clear()
    assert here.run(Action.STATUS) == 1
    assert {each["group"]: each["state"] for each in report(capsys)} == {
        "batch": "drained",
        "general": "untouched",
    }
    assert run_on_groups(Action.STATUS, CLUSTER, ("batch",), here.around(), DrainOptions()) == 0
    line = "drained      Auto Scaling group batch: 0 instances, 0 pods to move; min=0 desired=0 max=5; before its drain"
    assert capsys.readouterr().out.startswith(line)
    assert here.account.calls == []


def test_the_status_of_a_cluster_without_groups_says_so(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on_groups(Action.STATUS, CLUSTER, (), here.around(), DrainOptions()) == 0
    assert capsys.readouterr().out == f"{CLUSTER} has neither managed node groups nor Auto Scaling groups\n"


def test_what_cannot_be_done_is_refused_with_a_reason(
    here: Drainable, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.add_managed("general", 1)
    with pytest.raises(Rejected, match=r"--group genral: web has no such group.*did you mean 'general'"):
        here.drain("genral")
    with pytest.raises(Rejected, match="--drain needs the groups: --group NAME"):
        here.drain()
    with pytest.raises(Rejected, match="-o json does not prompt: add --yes"):
        run_on_groups(Action.DRAIN, CLUSTER, ("general",), here.around(), DrainOptions("json"))
    tag = {"ResourceId": "eks-general", "ResourceType": "auto-scaling-group", "Key": SIZE_TAG}
    client("autoscaling").create_or_update_tags(Tags=[{**tag, "Value": "[red]x", "PropagateAtLaunch": False}])
    with pytest.raises(
        Rejected, match=r"group general: tag nodesmith.dev/size-before-drain is '\[red\]x': expected"
    ):
        here.undo("general")
    client("autoscaling").delete_tags(Tags=[tag])

    def refused(*_: object, **__: object) -> None:
        raise denied("autoscaling:CreateOrUpdateTags", "CreateOrUpdateTags")

    with monkeypatch.context() as patched:
        patched.setattr(client("autoscaling"), "create_or_update_tags", refused)
        with pytest.raises(Rejected, match="you are not allowed to call autoscaling:CreateOrUpdateTags"):
            here.drain("general")
    assert here.size("eks-general") == (1, 1, 5)


def test_a_caller_without_rights_in_the_cluster_is_told_which_are_missing(
    here: Drainable, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.add_managed("general", 1)
    server = ServedObjects(here.around().server(here.described()), here.now)

    def ask(_method: str, _path: str, body: Json, **_: object) -> tuple[int, Json]:
        asked = body["spec"]["resourceAttributes"]
        return 201, {"status": {"allowed": asked["verb"] == "list"}}

    monkeypatch.setattr(server.server, "ask", ask)
    with pytest.raises(Rejected, match="you may not patch nodes, create pods/eviction in cluster web"):
        server.refuse_without_rights(CLUSTER)


def test_a_hostile_message_of_the_cluster_is_shortened_and_shown_without_control_characters(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_own("batch", 1)
    here.set_ready("False", "\x1b[31m[bold]" + 10_000 * "x")
    assert run_on_groups(Action.DRAIN, CLUSTER, ("batch",), here.around(), DrainOptions(is_asked=False)) == 1
    line = capsys.readouterr().out.splitlines()[1]
    assert "\x1b" not in line
    assert "[bold]" in line
    assert len(line) < 500


def test_instances_count_by_their_weight_and_those_that_leave_do_not_count() -> None:
    shown = [("i-1", "InService", "2"), ("i-2", "Terminating:Wait", "1"), ("i-3", "Pending", None)]
    instances = [
        {"InstanceId": id_, "LifecycleState": state} | ({"WeightedCapacity": weight} if weight else {})
        for id_, state, weight in shown
    ]
    clients = Clients([scaling("mixed", {}, DesiredCapacity=3, Instances=instances, MaxSize=9)])
    group = AwsGroups(clients, CLUSTER).read("mixed")
    assert group.instances == ("i-1", "i-3")
    assert group.weight_of(group.instances) == 3


def test_errors_that_may_pass_are_retried_and_missing_rights_are_not(here: Drainable) -> None:
    here.add_own("batch", 1)
    run, asked = here.drain_run(), list[str]()

    def failing(code: str, times: int) -> Drain:
        asked.clear()

        def documents() -> object:
            asked.append(code)
            if len(asked) <= times:
                raise Transient(f"GET /api/v1/limitranges: {code}", code)
            return run.objects.documents()

        return replace(run, objects=Mortal(run.objects, {"documents": documents}))

    for code in ("Forbidden", "ExpiredToken"):
        with pytest.raises(Transient, match=code):
            drain(failing(code, 9), "batch")
        assert len(asked) == 1
    assert drain(failing("ServiceUnavailable", 2), "batch").state is State.DRAINED
    assert len(asked) == 3


def test_a_managed_group_that_eks_cannot_drain_now_is_reported(
    here: Drainable, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_managed("general", 1)
    here.account.eks().nodegroups["general"].status = "DELETE_FAILED"
    assert here.drain("general") == 1
    assert report(capsys)[0]["messages"] == ["its status is DELETE_FAILED"]
    here.account.eks().nodegroups["general"].resources = {"autoScalingGroups": []}
    assert here.drain("general") == 1
    assert report(capsys)[0]["messages"] == ["it has no Auto Scaling group, expected one"]
