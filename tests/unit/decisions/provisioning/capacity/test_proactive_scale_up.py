"""Tests for proactive scale-up: which pods workloads lack, and which nodes are bought before these pods exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs, Plan, decide, record
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import WITHDRAWN
from nodesmith.model.kubernetes.pods import GrownWorkload, PodTemplate, Shape, is_planned
from nodesmith.model.ledger.ledger import Departure
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode, encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_namespace
from nodesmith.observation.reduction.pods import reduce_growing, reduce_job, reduce_pod
from nodesmith_cli.manifests.validating.proactive import proactive_findings
from nodesmith_cli.views.explaining.decision import explain
from nodesmith_formats.manifests.manifests import Document
from tests.builders import NOW, READY, inputs, ledger, node, nodepool_manifest, pods, shape, snapshot
from tests.objects.fleets import fleet, pool, worker
from tests.smallworld.world import pod_manifest

LATELY = format_time(NOW - timedelta(seconds=5))
LONG_AGO = format_time(NOW - timedelta(days=5))
ASKED = {"nodesmith.dev/proactive-scale-up": "true"}
REQUESTS = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}


def workload(
    spec: Mapping[str, Any], pod: Mapping[str, Any] | None = None, status: Any = None, **about: Any
) -> dict[str, Any]:
    """Return a ReplicaSet, StatefulSet or Job named `web`, created lately; `pod` extends its pod template's spec."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**REQUESTS, **(pod or {})}}
    metadata = {"namespace": "default", "name": "web", "creationTimestamp": LATELY, **about}
    return {"metadata": metadata, "spec": {"template": template, **spec}, "status": status or {}}


def of_owner(name: str, kind: str = "ReplicaSet", *, ready: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a pod of the workload `web`, on a node unless keywords say otherwise."""
    made = pod_manifest(name, **{"nodeName": "a", **fields})
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "web", "controller": True}]
    made["status"] = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return made


def seen(
    kind: str,
    manifest: Mapping[str, Any],
    *there: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Snapshot:
    """Return the snapshot of a cluster with a workload and these pods in a namespace with proactive scale-up."""
    namespace = {
        "metadata": {"name": "default", "annotations": ASKED if annotations is None else annotations}
    }
    name, reduce = {
        "ReplicaSet": ("replicasets", reduce_growing),
        "StatefulSet": ("statefulsets", reduce_growing),
        "Job": ("jobs", reduce_job),
    }[kind]
    observed = Observed(
        pods=[reduced for pod in there if (reduced := reduce_pod(pod)) is not None],
        namespaces=[reduce_namespace(namespace)],
        **{name: [reduce(manifest)], **fields},
    )
    return decode(encode("test", NOW, observed))


def lacking(kind: str, manifest: Mapping[str, Any], *there: Mapping[str, Any], **fields: Any) -> int:
    return sum(each.lacking for each in seen(kind, manifest, *there, **fields).grown)


STATEFUL = {"serviceName": "web", "replicas": 3}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "count"),
    [
        ("ReplicaSet", {"replicas": 5}, {}, 5),
        ("ReplicaSet", {}, {}, 1),
        ("ReplicaSet", {"replicas": 0}, {}, 0),
        ("StatefulSet", {**STATEFUL, "podManagementPolicy": "Parallel"}, {}, 3),
        ("StatefulSet", STATEFUL, {}, 1),
        ("Job", {"parallelism": 4, "completions": 10}, {}, 4),
        ("Job", {"parallelism": 4, "completions": 10}, {"succeeded": 8}, 2),
        ("Job", {"parallelism": 4}, {}, 4),
        ("Job", {"parallelism": 4}, {"succeeded": 1}, 0),
        ("Job", {}, {}, 1),
        ("Job", {"parallelism": 4, "suspend": True}, {}, 0),
        ("Job", {"parallelism": 4, "managedBy": "example.com/other"}, {}, 0),
        ("Job", {"parallelism": 4}, {"conditions": [{"type": "Failed", "status": "True"}]}, 0),
    ],
)
def test_a_new_workload_lacks_the_pods_that_its_controller_will_create(
    kind: str, spec: Mapping[str, Any], status: Mapping[str, Any], count: int
) -> None:
    assert lacking(kind, workload(spec, status=status)) == count


def test_pods_that_exist_are_not_lacking_and_those_that_are_being_deleted_are() -> None:
    leaving = of_owner("web-b")
    leaving["metadata"] |= {"deletionTimestamp": format_time(NOW), "deletionGracePeriodSeconds": 30}
    waiting = pod_manifest("web-c")
    waiting["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
    others = of_owner("other")
    others["metadata"]["ownerReferences"][0]["name"] = "other"
    assert lacking("ReplicaSet", workload({"replicas": 5}), of_owner("web-a"), leaving, waiting, others) == 3


@pytest.mark.parametrize(("age", "count"), [(2, 5), (11, 4)])
def test_a_pod_that_the_scheduler_has_not_judged_for_ten_seconds_waits_for_something_else(
    age: int, count: int
) -> None:
    young = of_owner("web-a", nodeName="")
    young["metadata"]["creationTimestamp"] = format_time(NOW - timedelta(seconds=age))
    assert lacking("ReplicaSet", workload({"replicas": 5}), young) == count


@pytest.mark.parametrize(("ready", "count"), [(True, 1), (False, 0)])
def test_an_ordered_stateful_set_lacks_its_next_pod_once_the_others_are_ready(
    ready: bool, count: int
) -> None:
    first = of_owner("web-0", "StatefulSet", ready=ready)
    assert lacking("StatefulSet", workload(STATEFUL), first) == count


@pytest.mark.parametrize(
    "left_out",
    [
        workload({"replicas": 5}, annotations={"nodesmith.dev/proactive-scale-up": "false"}),
        workload({"replicas": 5}, deletionTimestamp=LATELY),
        workload({"replicas": 5}, status={"conditions": [{"type": "ReplicaFailure", "status": "True"}]}),
        workload({"replicas": 5, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}),
        workload({"replicas": 5}, {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}),
        workload({"replicas": 5}, {"schedulingGates": [{"name": "example.com/gate"}]}),
        workload({"replicas": 5}, {"nodeName": "a"}),
        workload({"replicas": 5}, {"resourceClaims": [{"name": "gpu"}]}),
        workload({"replicas": 5}, creationTimestamp=LONG_AGO),
    ],
)
def test_nothing_is_planned_where_it_is_unknown_whether_or_where_pods_will_run(
    left_out: Mapping[str, Any],
) -> None:
    assert lacking("ReplicaSet", left_out) == 0


@pytest.mark.parametrize("annotations", [{}, {"nodesmith.dev/proactive-scale-up": "yes"}])
def test_only_workloads_of_namespaces_that_ask_for_it_count(annotations: Mapping[str, str]) -> None:
    assert lacking("ReplicaSet", workload({"replicas": 5}), annotations=annotations) == 0


@pytest.mark.parametrize(("seconds", "count"), [(299, 5), (301, 0)])
def test_growth_that_was_observed_counts_for_five_minutes(seconds: int, count: int) -> None:
    growths = {"ReplicaSet/default/web": int((NOW - timedelta(seconds=seconds)).timestamp())}
    old = workload({"replicas": 5}, creationTimestamp=LONG_AGO)
    assert lacking("ReplicaSet", old, growths=growths) == count


def test_planned_pods_are_like_the_newest_pod_which_webhooks_may_have_changed() -> None:
    injected = of_owner("web-a", cpu="3")
    (grown,) = seen("ReplicaSet", workload({"replicas": 2}), injected).grown
    assert grown.template.shape.requests.cpu_milli == 3000
    assert (grown.template.shape.owner, grown.template.shape.labels) == ("ReplicaSet/web", {"app": "web"})
    (bare,) = seen("ReplicaSet", workload({"replicas": 2})).grown
    assert bare.template.shape.requests.cpu_milli == 1000


def grown(count: int, of: Shape | None = None, seconds_ago: int = 5, name: str = "web") -> GrownWorkload:
    template = PodTemplate("ReplicaSet", name, of or shape("1", "1Gi", owner=f"ReplicaSet/{name}"))
    return GrownWorkload(template, count, NOW - timedelta(seconds=seconds_ago))


def planned_keys(plan: Plan) -> set[str]:
    return {key for each in plan.nodes for key in each.claim.nominated if is_planned(key)}


def on_buying(plan: Plan, known: Inputs) -> Inputs:
    """Return the inputs two seconds after the purchase of a plan."""
    claims = tuple(each.claim for each in plan.nodes)
    return replace(known, ledger=replace(known.ledger, claims=claims), now=NOW + timedelta(seconds=2))


def test_nodes_are_bought_for_pods_to_come_as_if_they_were_there() -> None:
    real = shape("1", "1Gi", owner="ReplicaSet/web")
    ahead = decide(inputs(snapshot=snapshot(pods=pods(real, 7), grown=(grown(23, real),))))
    all_there = decide(inputs(snapshot=snapshot(pods=pods(real, 30))))
    assert ahead.price_hourly_usd == pytest.approx(all_there.price_hourly_usd)
    assert len(planned_keys(ahead)) == 23
    assert [(each.pods, each.bought) for each in ahead.forthcoming] == [(23, 23)]


def test_pods_that_come_take_what_was_bought_for_them() -> None:
    real = shape("1", "1Gi", owner="ReplicaSet/web")
    known = inputs(snapshot=snapshot(grown=(grown(30, real),)))
    later = on_buying(decide(known), known)
    half = decide(replace(later, snapshot=snapshot(pods=pods(real, 18), grown=(grown(12, real),))))
    assert half.nodes == ()
    assert [(each.pods, each.launching, each.bought) for each in half.forthcoming] == [(12, 12, 0)]
    everything = decide(replace(later, snapshot=snapshot(pods=pods(real, 30))))
    assert (everything.nodes, everything.unplaced) == ((), ())


def test_further_growth_after_all_pods_came_is_bought_for_although_numbers_repeat() -> None:
    real = shape("1", "1Gi", owner="ReplicaSet/web")
    known = inputs(snapshot=snapshot(grown=(grown(30, real, seconds_ago=60),)))
    later = on_buying(decide(known), known)
    more = decide(replace(later, snapshot=snapshot(pods=pods(real, 30), grown=(grown(30, real),))))
    assert len(planned_keys(more)) == 30


def test_free_capacity_is_used_before_nodes_are_bought() -> None:
    plan = decide(inputs(snapshot=snapshot(nodes=(node("a", cpu="4", labels=READY),), grown=(grown(2),))))
    assert plan.nodes == ()
    assert [(each.pods, each.ready) for each in plan.forthcoming] == [(2, 2)]


def test_nothing_is_planned_five_minutes_after_the_growth() -> None:
    known = inputs(snapshot=snapshot(grown=(grown(3),)))
    later = replace(known, now=NOW + timedelta(minutes=5))
    assert decide(later) == decide(replace(later, snapshot=snapshot()))


@pytest.mark.parametrize(("limit", "first", "second"), [(0, 0, 0), (4, 1, 0), (10, 5, 2), (5000, 5, 5)])
def test_the_limit_counts_pending_pods_and_the_earliest_growth_comes_first(
    limit: int, first: int, second: int
) -> None:
    both = (grown(5, seconds_ago=1, name="late"), grown(5, seconds_ago=9, name="early"))
    known = inputs(snapshot=snapshot(pods=pods(shape(), 3), grown=both))
    plan = decide(replace(known, settings=replace(known.settings, proactive_pod_limit=limit)))
    counts = {each.workload: each.pods for each in plan.forthcoming}
    assert counts.get("ReplicaSet/default/early", 0) == first
    assert counts.get("ReplicaSet/default/late", 0) == second


def test_pods_that_exist_come_first_where_a_limit_does_not_suffice_for_all() -> None:
    limited = nodepool_manifest(limits={"cpu": "4"})
    waiting = pods(shape("3", "1Gi", app="large"), 1)
    plan = decide(inputs(snapshot=snapshot(pods=waiting, nodepools=(limited,), grown=(grown(3),))))
    assert [each.claim.nominated for each in plan.nodes] == [("default/large-0000",)]
    assert "come first" in plan.forthcoming[0].reason


def test_pods_that_do_not_exist_are_not_told_of_as_unplaced() -> None:
    plan = decide(inputs(snapshot=snapshot(grown=(grown(2, shape("900", "1Gi", owner="ReplicaSet/web")),))))
    assert (plan.nodes, plan.unplaced, plan.ignored) == ((), (), ())
    assert plan.forthcoming[0].reason


def test_an_empty_node_is_kept_for_pods_to_come_and_removed_after_they_have_not_come() -> None:
    large = shape("3", "1Gi", owner="ReplicaSet/web")
    kept = fleet([worker("a")], pools=[pool()], grown=(grown(1, large, seconds_ago=240),))
    assert propose(kept).proposals == ()
    later = replace(kept, now=NOW + timedelta(minutes=2))
    assert [each.reason for each in propose(later).proposals] == [Reason.EMPTY]


def departure(attempts: Mapping[str, int], bought_at: datetime) -> Departure:
    """Return that of a node which was ready a minute after its purchase, and on which no pod ever was."""
    ready_at = bought_at + timedelta(minutes=1)
    return Departure(f"c-{bought_at}", "default", ready_at, bought_at, ready_at, FrozenMap(dict(attempts)))


def test_pods_that_never_come_have_nodes_bought_ever_more_seldom() -> None:
    known, bought_at = inputs(), list[int]()
    for minute in range(0, 61, 2):
        at = NOW + timedelta(minutes=minute)
        lacks = replace(grown(1), grown_at=at)
        known = replace(known, now=at, decision=f"d{minute}", snapshot=snapshot(grown=(lacks,)))
        plan = decide(known)
        if plan.nodes:
            bought_at.append(minute)
            gone = [departure(each.claim.attempts, at) for each in plan.nodes]
            known = replace(known, ledger=replace(known.ledger, departures=(*known.ledger.departures, *gone)))
    assert bought_at == [0, 2, 12]


def test_pods_that_come_late_do_not_wait_because_planned_ones_did_not_come() -> None:
    real = shape("1", "1Gi", owner="ReplicaSet/web")
    waiting = pods(real, 20)
    who = Workloads().of(waiting[0])
    gone = [departure({who: attempt}, NOW - timedelta(minutes=29 - attempt)) for attempt in (1, 2, 3)]
    known = replace(ledger(), departures=tuple(replace(each, use=WITHDRAWN) for each in gone))
    plan = decide(inputs(snapshot=snapshot(pods=waiting, grown=(grown(5, real),)), ledger=known))
    assert {key for each in plan.nodes for key in each.claim.nominated} >= {pod.key for pod in waiting}


@pytest.mark.parametrize(
    ("kind", "key", "value", "remedy"),
    [
        ("Namespace", "nodesmith.dev/proactive-scale-up", "true", ""),
        ("Namespace", "nodesmith.dev/proactive-scale-up", "yes", 'must be "true" or "false"'),
        ("Namespace", "nodesmith.dev/proactive-scaleup", "true", "did you mean"),
        ("Deployment", "nodesmith.dev/proactive-scale-up", "false", ""),
        ("Deployment", "nodesmith.dev/proactive-scale-up", "true", "onto the Namespace"),
        ("Job", "nodesmith.dev/proactive-scale-up", "no", 'must be "false"'),
        ("Pod", "nodesmith.dev/proactive-scale-up", "true", "onto the Namespace"),
    ],
)
def test_validation_finds_annotations_without_effect(kind: str, key: str, value: str, remedy: str) -> None:
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "annotations": {key: value}}}
    found = [str(each) for each in proactive_findings(Document(manifest, "a.yaml", 1))]
    assert [remedy in text for text in found] == [True] * bool(remedy)


def test_a_decision_says_how_many_pods_were_planned_before_they_exist() -> None:
    known = inputs(snapshot=snapshot(pods=pods(shape("1", "1Gi"), 2), grown=(grown(3),)))
    lines = list(explain(record(known, decide(known), "d" * 64, {})))
    assert any("for 2 pods and 3 pods that workloads are about to create" in line for line in lines)
    assert "  to come   ReplicaSet/default/web: 3 pods, 3 on the nodes above" in lines
