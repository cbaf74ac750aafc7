"""Groups of pods that a scheduler binds together: how they are read, and that nodes are bought for all or none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.lifecycle.gangs import is_done, next_change, status_updates
from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.decisions.provisioning.gangs import decide_gang, turns
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.provisioningrequests import GangStage, title
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.podgroups import group_faults, group_of, reduce_pod_group, reduce_workload
from nodesmith.observation.reduction.objects import reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from nodesmith_cli.planning.deciding import planned, planned_requests
from tests import builders
from tests.builders import NOW

KEY = "default/PodGroup/train"
POOL = builders.nodepool_manifest(
    requirements=[*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
)
CREATED = format_time(NOW - timedelta(minutes=1))


def about(name: str, **more: Any) -> dict[str, Any]:
    return {"namespace": "default", "name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, **more}


def member(name: str, *, node: str = "", refused: bool = True, **spec: Any) -> dict[str, Any]:
    """Return a pod of the group `train` that asks for 3 cpu."""
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    labels = spec.pop("labels", {})
    return {
        "metadata": about(name, labels=labels),
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}],
            **(
                {"schedulingGroup": {"podGroupName": "train"}}
                if not labels and "workloadRef" not in spec
                else {}
            ),
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"conditions": [verdict] if refused and not node else []},
    }


def pod_group(least: int | None = 3) -> dict[str, Any]:
    policy = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return {"metadata": about("train"), "spec": {"schedulingPolicy": policy}}


def seen(
    *pods: dict[str, Any], groups: tuple[dict[str, Any], ...] = (pod_group(),), **observed: Any
) -> Snapshot:
    """Return the snapshot as observation writes and reads it."""
    reduced = [each for each in map(reduce_pod_group, groups) if each is not None]
    known = Observed(
        pods=[each for each in map(reduce_pod, pods) if each is not None],
        nodepools=[POOL],
        nodeclasses=[builders.nodeclass_manifest()],
        podgroups=reduced,
        **observed,
    )
    return decode(encode(builders.CLUSTER, NOW, known))


def given(snapshot: Snapshot, **ledger: Any) -> Inputs:
    contents = {"contents": {"NodePool/default": builders.content_of(POOL)}}
    return builders.inputs(snapshot=snapshot, ledger=builders.ledger(**(contents | ledger)))


def why(inputs: Inputs) -> list[str]:
    """Return why nothing is bought for pods of the group by the decision about pods."""
    plan = decide(inputs)
    assert not plan.nodes
    return [group.reason for group in plan.ignored]


THREE = [member(f"train-{number}") for number in range(3)]


def test_nodes_are_bought_for_all_pods_that_must_be_bound_at_once() -> None:
    inputs = given(seen(*THREE))

    assert turns(inputs.snapshot, inputs.ledger, NOW, shared=False) == [KEY]
    found = decide_gang(inputs, KEY)

    assert found is not None
    assert (len(found.nodes), found.gang.stage) == (3, GangStage.LAUNCHING)
    (reason,) = why(inputs)
    assert (
        reason
        == "PodGroup default/train gets room for 3 of its pods at once, or for none: its turn has not come yet"
    )


def test_nothing_is_bought_if_only_some_of_them_find_a_place() -> None:
    limited = {**POOL, "spec": {**POOL["spec"], "limits": {"nodes": "2"}}}
    contents = {"NodePool/default": builders.content_of(limited)}
    snapshot = replace(seen(*THREE), nodepools=(limited,))

    found = decide_gang(given(snapshot, contents=contents), KEY)

    assert found is not None
    assert (found.nodes, found.gang.stage) == ((), GangStage.WAITING)
    assert "of 3 pods find no place" in found.gang.message
    (reason,) = why(given(snapshot, contents=contents, gangs=(found.gang,)))
    assert found.gang.message in reason


def test_a_group_that_found_no_room_is_tried_again_however_old_it_is() -> None:
    old = {**pod_group(), "metadata": about("train", creationTimestamp="2020-01-01T00:00:00Z")}
    inputs = given(replace(seen(*THREE, groups=(old,)), nodepools=()))

    found = decide_gang(inputs, KEY)

    assert found is not None
    assert found.gang.stage is GangStage.WAITING
    assert found.gang.retry_at == NOW + timedelta(minutes=1)


def test_pods_that_are_bound_already_count() -> None:
    there = reduce_node(
        {"metadata": {"name": "n1", "creationTimestamp": CREATED, "labels": {}}, "spec": {}, "status": {}}
    )
    snapshot = seen(member("train-0", node="n1"), *THREE[1:], nodes=[there])

    (request,) = snapshot.requests
    assert request.lacking == 2
    found = decide_gang(given(snapshot), KEY)
    assert found is not None
    assert len(found.nodes) == 2


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        (THREE[:2], "3 of its pods must be bound at once, and 2 exist"),
        (
            [member(f"train-{n}", refused=n == 3) for n in range(3)],
            "the scheduler has not called any of its pods unschedulable yet",
        ),
    ],
)
def test_a_group_whose_pods_cannot_be_bound_yet_waits(pods: list[dict[str, Any]], state: str) -> None:
    inputs = given(seen(*pods))

    assert turns(inputs.snapshot, inputs.ledger, NOW, shared=False) == []
    assert all(state in reason or "has not called it" in reason for reason in why(inputs))


def test_pods_beyond_the_number_are_ordinary_once_the_others_are_bound() -> None:
    nodes = [
        reduce_node({"metadata": {"name": f"n{n}", "creationTimestamp": CREATED}, "spec": {}, "status": {}})
        for n in range(3)
    ]
    bound = [member(f"train-{n}", node=f"n{n}") for n in range(3)]

    plan = decide(given(seen(*bound, member("train-3"), nodes=nodes)))

    assert [node.claim.nominated for node in plan.nodes] == [("default/train-3",)]


@pytest.mark.parametrize("groups", [(), (pod_group(None),)], ids=["no group", "basic policy"])
def test_pods_of_no_gang_are_ordinary(groups: tuple[dict[str, Any], ...]) -> None:
    snapshot = seen(*THREE, groups=groups)

    assert snapshot.requests == ()
    assert sum(len(node.claim.nominated) for node in decide(given(snapshot)).nodes) == 3


def test_a_group_is_no_object_whose_status_is_written_and_is_forgotten_when_it_is_over() -> None:
    inputs = given(seen(*THREE))
    found = decide_gang(inputs, KEY)
    assert found is not None
    ledger = replace(inputs.ledger, gangs=(found.gang,))
    over = replace(found.gang, stage=GangStage.EXPIRED)

    assert list(status_updates(ledger, inputs.snapshot, NOW, shared=False)) == []
    assert next_change(inputs.ledger, inputs.snapshot, NOW, shared=False) is None
    assert not is_done(found.gang, inputs.snapshot)
    assert is_done(over, inputs.snapshot)


def test_a_group_that_waits_is_forgotten_once_its_pods_are_bound_elsewhere() -> None:
    found = decide_gang(given(replace(seen(*THREE), nodepools=())), KEY)
    assert found is not None
    assert found.gang.stage is GangStage.WAITING
    assert not is_done(found.gang, seen(*THREE))
    assert not is_done(found.gang, seen(member("train-0", node="n1"), *THREE[1:]))
    assert is_done(found.gang, seen(*(member(f"train-{number}", node="n1") for number in range(3))))


def test_pods_that_come_to_the_nodes_of_their_group_do_not_count_as_others() -> None:
    """kube-scheduler binds the pods as soon as the nodes are ready, before the gang is provisioned."""
    inputs = given(seen(*THREE))
    begun = decide_gang(inputs, KEY)
    assert begun is not None
    joined = [
        replace(node.claim, phase=Phase.REGISTERED, provider_id=f"aws:///a/i-{n}")
        for n, node in enumerate(begun.nodes)
    ]
    there = tuple(
        builders.node(f"n{n}", cpu="4", provider_id=claim.provider_id, labels=builders.READY)
        for n, claim in enumerate(joined)
    )
    snapshot = replace(seen(*(member(f"train-{n}", node=f"n{n}") for n in range(3))), nodes=there)
    later = given(snapshot, gangs=(begun.gang,), claims=tuple(joined))

    assert decide_gang(later, KEY) is None, "its nodes are not initialized yet, and nothing is missing"


@pytest.mark.parametrize(
    ("pod", "name"),
    [
        (member("a"), "PodGroup/train"),
        (member("a", workloadRef={"name": "train", "podGroup": "workers"}), "Workload/train/workers/"),
        (
            member("a", workloadRef={"name": "train", "podGroup": "workers", "podGroupReplicaKey": "1"}),
            "Workload/train/workers/1",
        ),
        (member("a", labels={"scheduling.x-k8s.io/pod-group": "train"}), "SchedulerPodGroup/train"),
        (member("a", labels={"app": "web"}), ""),
    ],
)
def test_a_pod_names_its_group_in_the_way_of_each_api(pod: dict[str, Any], name: str) -> None:
    assert group_of(pod["metadata"], pod["spec"]) == name


def test_each_replica_of_a_workloads_group_is_a_group() -> None:
    workload = {
        "metadata": about("train"),
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}, {"name": "driver"}]},
    }
    reduced = reduce_workload(workload)
    pods = [
        member(
            f"w-{n}", workloadRef={"name": "train", "podGroup": "workers", "podGroupReplicaKey": str(n % 2)}
        )
        for n in range(4)
    ]

    snapshot = seen(*pods, groups=(), workloads=[reduced])

    assert [(each.key, each.lacking, each.uid) for each in snapshot.requests] == [
        ("default/Workload/train/workers/0", 2, "uid-train/workers/0"),
        ("default/Workload/train/workers/1", 2, "uid-train/workers/1"),
    ]
    assert title("default/Workload/train/workers/1") == "Workload default/train/workers/1"


def test_a_pod_group_of_the_scheduler_plugins_is_read_as_well() -> None:
    group = {"metadata": about("train"), "spec": {"minMember": 2}}
    pods = [member(f"p-{n}", labels={"scheduling.x-k8s.io/pod-group": "train"}) for n in range(2)]

    (request,) = seen(*pods, groups=(group,)).requests

    assert (request.key, request.lacking) == ("default/SchedulerPodGroup/train", 2)


def test_a_plan_shows_the_pods_of_a_group_on_the_nodes_that_are_bought_for_it() -> None:
    inputs = given(seen(*THREE, member("web", labels={"app": "web"})))

    plan, reported = planned_requests(inputs, planned(inputs))

    assert reported == ["PodGroup default/train gets room on 0 existing nodes and 3 new nodes"]
    assert sorted(key for node in plan.nodes for key in node.claim.nominated) == [
        "default/train-0",
        "default/train-1",
        "default/train-2",
        "default/web",
    ]
    assert not any(group.pods for group in (*plan.ignored, *plan.unplaced))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"minMember": "three"}, "spec.minMember"),
        ({"podGroups": [{"name": "a", "policy": {"gang": {}}}]}, "spec.podGroups[0].policy.gang.minCount"),
    ],
)
def test_a_number_of_pods_that_cannot_be_used_is_found_in_manifests(spec: dict[str, Any], field: str) -> None:
    ((where, remedy),) = group_faults({"metadata": about("train"), "spec": spec})

    assert where == field
    assert remedy.endswith("must be a whole number of pods from 1 to 16,384")


def test_the_groups_of_right_manifests_have_no_faults() -> None:
    assert list(group_faults(pod_group())) == list(group_faults(pod_group(None))) == []
