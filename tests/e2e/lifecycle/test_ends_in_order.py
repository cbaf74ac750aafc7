"""Termination as Karpenter's users observe it: NodeClaim after Node, exact deadlines, and owner references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT, TERMINATION_FINALIZER
from nodesmith.model.apimachinery.times import parse_time
from tests.e2e.conftest import Figures
from tests.e2e.observed.observing import pool_of
from tests.e2e.systems.system import CLUSTER, Manifest, System
from tests.objects.manifests import deployment, nodeclass, owned_by, requirement, taking
from tests.patience import patient

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1 each
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
GRACE_SECONDS, POD_GRACE_SECONDS = 30, 12


def running(system: System, name: str, *manifests: Mapping[str, Any]) -> tuple[Manifest, Manifest]:
    """Apply the manifests, and return the NodeClaim and Node of the pod once it runs."""
    system.apply(nodeclass(CLUSTER), *manifests)
    system.until_nodepools_ready()
    system.until_running(1, name)
    system.until_settled()
    node = system.node_of(system.pods(name)[0])
    (claim,) = (c for c in system.claims() if c["status"].get("nodeName") == node["metadata"]["name"])
    return claim, node


def of_team(name: str, **spec: Any) -> dict[str, Any]:
    return dict(deployment(name, 1, nodeSelector={"team": name}, **spec))


def patch(system: System, kind: str, name: str, metadata: Mapping[str, Any]) -> None:
    system.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"metadata": metadata}))


def deleted_at(obj: Manifest) -> datetime:
    """Return when an object's deletion was requested, in whole seconds as the API server stores it."""
    metadata = obj["metadata"]
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return parse_time(metadata["deletionTimestamp"]) - grace


def test_a_protected_pod_is_deleted_exactly_its_grace_period_before_the_deadline(
    shared: System, figures: Figures
) -> None:
    web = of_team("deadline", terminationGracePeriodSeconds=POD_GRACE_SECONDS)
    web["spec"]["template"]["metadata"]["annotations"] = {DO_NOT_DISRUPT: "true"}
    pool = pool_of("deadline", ONE_SIZE, ON_DEMAND)
    pool["spec"]["template"]["spec"]["terminationGracePeriod"] = f"{GRACE_SECONDS}s"
    claim, _ = running(shared, "deadline", pool, web)
    (pod,) = shared.pods("deadline")
    seen: dict[str, datetime] = {}

    def note(kind: str, name: str, obj: Manifest) -> None:
        if obj["metadata"]["name"] == name and obj["metadata"].get("deletionTimestamp"):
            seen.setdefault(kind, deleted_at(obj))

    with ExitStack() as stack:
        for kind, resource, name in (
            ("pod", "pods", pod["metadata"]["name"]),
            ("claim", "nodeclaims", claim["metadata"]["name"]),
        ):
            follow = shared.followed(
                resource,
                lambda obj, _, *, gone, kind=kind, name=name: note(kind, name, obj),  # noqa: ARG005
                "default" if kind == "pod" else "",
            )
            stack.enter_context(follow)
        shared.kubectl("delete", "nodeclaim", claim["metadata"]["name"], "--wait=false")
        shared.until("the pod is deleted", lambda: len(seen) == 2)
    late = seen["pod"] - seen["claim"] - timedelta(seconds=GRACE_SECONDS - POD_GRACE_SECONDS)
    figures("deleted-after-last-moment-seconds", late.total_seconds())
    assert timedelta(0) <= late <= timedelta(seconds=patient(2))
    shared.until_running(1, "deadline")
    shared.until_settled()


def test_a_node_whose_nodeclaim_is_removed_by_force_is_deleted_by_kubernetes_and_still_drained(
    shared: System,
) -> None:
    web = taking(of_team("owned", terminationGracePeriodSeconds=30), start_seconds=1, stop_seconds=3)
    claim, node = running(shared, "owned", pool_of("owned", ONE_SIZE, ON_DEMAND), web)
    name, node_name = claim["metadata"]["name"], node["metadata"]["name"]
    expected = owned_by("NodeClaim", name, claim["metadata"]["uid"])
    assert node["metadata"]["ownerReferences"] == [expected]

    def owners() -> object:
        return shared.cluster.objects.get("nodes", node_name)["metadata"].get("ownerReferences")

    patch(shared, "node", node_name, {"ownerReferences": None})
    shared.until("a removed owner reference is restored", lambda: owners() == [expected])

    (pod,) = shared.pods("owned")
    steps: dict[int, str] = {}
    """By resource version, since two watches deliver in no defined order."""

    def note_node(obj: Manifest, _: datetime, *, gone: bool) -> None:
        metadata = obj["metadata"]
        if metadata["name"] == node_name and metadata.get("deletionTimestamp"):
            held = "held" if TERMINATION_FINALIZER in metadata.get("finalizers", ()) else "let go"
            steps[int(metadata["resourceVersion"])] = "node gone" if gone else f"node deleted and {held}"

    def note_pod(obj: Manifest, _: datetime, *, gone: bool) -> None:
        if obj["metadata"]["uid"] == pod["metadata"]["uid"] and gone:
            steps[int(obj["metadata"]["resourceVersion"])] = "pod gone"

    with shared.followed("nodes", note_node), shared.followed("pods", note_pod, "default"):
        patch(shared, "nodeclaim", name, {"finalizers": None})
        shared.kubectl("delete", "nodeclaim", name, "--wait=false")
        shared.until(
            "the Node and its pod are gone",
            lambda: {"node gone", "pod gone"} <= {*steps.values()},
            seconds=90,
        )
    order = list(dict.fromkeys(steps[version] for version in sorted(steps)))
    assert order[0] == "node deleted and held"
    assert order.index("pod gone") < order.index("node gone")
    assert pod["metadata"]["name"] in {e["involvedObject"]["name"] for e in shared.events("Evicted")}
    shared.until_running(1, "owned")
    shared.until_settled()
    instance = node["spec"]["providerID"].rpartition("/")[2]
    assert instance not in {each["InstanceId"] for each in shared.instances()}
    assert name not in {each.name for each in shared.ledger().claims}
