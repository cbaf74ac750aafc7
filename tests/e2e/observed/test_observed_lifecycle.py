"""What an observer sees of a node, from its NodeClaim's launch to its end, as with Karpenter.

The tests share a cluster. Each test's pods select nodes of its own NodePool. To simulate Nodes that rarely occur, a
test uses instances that never join by themselves, and acts as their kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith_local.aws.instances.nodes import conditions as kubelet_conditions
from nodesmith_local.runs.timeline import condition
from tests.e2e.observed.observing import MUTE, claims_of, event_of, pool_of, says, the_claim
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import (
    Manifest,
    budget,
    daemonset,
    deployment,
    nodeclass,
    pod,
    requirement,
    taint,
    taking,
)
from tests.patience import patient

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
TEAM, AGENT = taint("example.com/team", "lifecycle"), taint("example.com/agent", "absent")
DISRUPTED = "karpenter.sh/disrupted"
DEADLINE = "karpenter.sh/nodeclaim-termination-timestamp"
READINESS = {"key": "readiness.k8s.io/cni", "effect": "NoSchedule"}


def of(team: str, **fields: Any) -> dict[str, Any]:
    return {
        "nodeSelector": {"team": team},
        "tolerations": [{"key": TEAM["key"], "operator": "Exists"}],
        **fields,
    }


def join(
    system: System,
    claim: Manifest,
    name: str,
    *,
    taints: Sequence[Mapping[str, str]] = (UNREGISTERED,),
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Create a Node for a claim's instance, as its kubelet would."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"providerID": claim["status"]["providerID"], "taints": [dict(each) for each in taints]},
    }
    system.cluster.objects.create("nodes", node)
    shown = {key: claim["status"][key] for key in ("capacity", "allocatable")}
    offered = {key: {n: v for n, v in amounts.items() if "/" not in n} for key, amounts in shown.items()}
    status = {**offered, "conditions": kubelet_conditions(ready, datetime.now(UTC))}
    system.cluster.objects.patch("nodes", name, {"status": status}, subresource="status")


def node_named(system: System, name: str) -> Manifest:
    return dict(system.cluster.objects.get("nodes", name))


def own_name(system: System, claim: Manifest) -> str:
    """Return the name that EC2 gave the claim's instance, once EC2 describes the instance."""
    instance = claim["status"]["providerID"].rpartition("/")[2]
    system.until("EC2 describes it", lambda: instance in names_of_instances(system))
    return names_of_instances(system)[instance]


def names_of_instances(system: System) -> dict[str, str]:
    return {str(i["InstanceId"]): str(i["PrivateDnsName"]) for i in system.instances()}


def is_closed(node: Manifest) -> bool:
    return DISRUPTED in keys(node["spec"].get("taints")) and "deletionTimestamp" in node["metadata"]


def keys(taints: Sequence[Mapping[str, str]] | None) -> set[str]:
    """Return the taints that are not Kubernetes' own."""
    return {each["key"] for each in taints or () if not each["key"].startswith("node.kubernetes.io/")}


def test_a_node_is_registered_then_initialized_and_conditions_name_each_obstacle(shared: System) -> None:
    system = shared
    gpu = requirement("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia")
    pool = pool_of("steps", gpu, nodeclass="mute", taints=[TEAM], startup_taints=[AGENT])
    system.apply(nodeclass(CLUSTER), MUTE, pool)
    system.until_nodepools_ready()
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    }
    system.apply(pod("steps", containers=[container], **of("steps")))
    claim = the_claim(system, "steps")
    for kind in ("Registered", "Initialized"):
        said = condition(claim, kind)
        assert (said["status"], said["reason"]) == ("Unknown", "NodeNotFound")
        assert said["message"] == "Node not registered with cluster"
    ready = condition(claim, "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ReconcilingDependents")
    assert [c["type"] for c in claim["status"]["conditions"]][-1] == "Ready"

    name = own_name(system, claim)
    join(system, claim, name, taints=[UNREGISTERED, READINESS], ready=False)
    says(system, "steps", "Initialized", "Unknown", "NodeNotReady")
    tagged = "karpenter.k8s.aws/tagged"  # written in the background
    system.until(
        "its instance is tagged",
        lambda: tagged in (claims_of(system, "steps")[0]["metadata"].get("annotations") or {}),
    )
    registered, node = claims_of(system, "steps")[0], node_named(system, name)
    assert condition(registered, "Registered")["status"] == "True"
    assert registered["status"]["nodeName"] == name
    annotations = registered["metadata"]["annotations"]
    assert annotations[tagged] == "true"
    assert annotations["compatibility.karpenter.k8s.aws/cluster-name-tagged"] == "true"
    assert "karpenter.sh/termination" in node["metadata"]["finalizers"]
    assert node["metadata"]["labels"].items() >= registered["metadata"]["labels"].items()
    assert node["metadata"]["labels"]["karpenter.sh/registered"] == "true"
    assert "karpenter.sh/initialized" not in node["metadata"]["labels"]
    hashes = {key: value for key, value in annotations.items() if "hash" in key}
    assert node["metadata"]["annotations"].items() >= hashes.items()
    assert keys(node["spec"]["taints"]) == {TEAM["key"], AGENT["key"], READINESS["key"]}

    status = {"status": {"conditions": kubelet_conditions(True, datetime.now(UTC))}}
    system.cluster.objects.patch("nodes", name, status, subresource="status")
    says(system, "steps", "Initialized", "Unknown", "StartupTaintsExist")
    system.kubectl("taint", "node", name, f"{AGENT['key']}-")
    says(system, "steps", "Initialized", "Unknown", "KnownEphemeralTaintsExist")
    system.kubectl("taint", "node", name, f"{READINESS['key']}-")
    says(system, "steps", "Initialized", "Unknown", "ResourceNotRegistered")
    offered = {"nvidia.com/gpu": claim["status"]["capacity"]["nvidia.com/gpu"]}
    shown = {"status": {"capacity": offered, "allocatable": offered}}
    system.cluster.objects.patch("nodes", name, shown, subresource="status")
    says(system, "steps", "Ready", "True", "Ready")
    done = claims_of(system, "steps")[0]
    reached = ["Launched", "Registered", "Initialized", "ConsistentStateFound", "Ready"]
    assert [c["type"] for c in done["status"]["conditions"]] == reached
    assert {c["status"] for c in done["status"]["conditions"]} == {"True"}
    assert node_named(system, name)["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
    system.kubectl("delete", "pod", "steps", "--wait=false")
    system.kubectl("delete", "nodepool", "steps", "--wait=false")


def test_nodes_that_join_in_unexpected_ways_get_events_and_are_registered_as_by_karpenter(
    shared: System,
) -> None:
    system = shared
    names = ("open", "unsynced", "doubled")
    system.apply(
        nodeclass(CLUSTER), MUTE, *(pool_of(name, nodeclass="mute", taints=[TEAM]) for name in names)
    )
    system.until_nodepools_ready()
    system.apply(*(pod(name, **of(name)) for name in names))

    claim = the_claim(system, "open")
    join(system, claim, own_name(system, claim), taints=[])
    event_of(system, claim["metadata"]["name"], "UnregisteredTaintMissing")
    says(system, "open", "Registered", "True", "Registered")
    assert keys(node_named(system, own_name(system, claim))["spec"]["taints"]) == {TEAM["key"]}

    claim = the_claim(system, "unsynced")
    join(system, claim, own_name(system, claim), labels={"karpenter.sh/do-not-sync-taints": "true"})
    says(system, "unsynced", "Registered", "True", "Registered")
    assert keys(node_named(system, own_name(system, claim))["spec"].get("taints")) == set()

    claim = the_claim(system, "doubled")
    first, second = own_name(system, claim), claim["status"]["providerID"].rpartition("/")[2]
    for name in (first, second):
        join(system, claim, name, ready=False)
    event_of(system, claim["metadata"]["name"], "MultipleNodesFound")
    says(system, "doubled", "Ready", "False", "UnhealthyDependents")
    is_registered = "karpenter.sh/registered" in node_named(system, second)["metadata"].get("labels", {})
    system.kubectl("delete", "node", first if is_registered else second)
    says(system, "doubled", "Registered", "True", "Registered")
    says(system, "doubled", "Ready", "Unknown", "ReconcilingDependents")
    # Kubernetes may have evicted a pod already: its taint manager notices late that a Node's taint was removed.
    system.kubectl("delete", "pod", *names, "--wait=false", "--ignore-not-found")
    system.kubectl("delete", "nodepool", *names, "--wait=false")


def test_a_drain_evicts_tier_by_tier_and_shows_its_steps(shared: System) -> None:
    system = shared
    slow = {"start_seconds": 0.0, "stop_seconds": 1.0}
    critical = {"priorityClassName": "system-cluster-critical"}
    stays = [{"key": DISRUPTED, "operator": "Exists"}, *of("tiers")["tolerations"]]
    kept = {**of("tiers"), "terminationGracePeriodSeconds": 30}
    system.apply(
        nodeclass(CLUSTER),
        pool_of("tiers"),
        taking(daemonset("tier-daemon", "100m", **kept), **slow),
        taking(daemonset("tier-daemon-critical", "100m", **kept, **critical), **slow),
    )
    system.until_nodepools_ready()
    system.apply(
        taking(deployment("tier-app", 1, "100m", **kept), **slow),
        taking(deployment("tier-app-critical", 1, "100m", **kept, **critical), **slow),
        deployment("tier-stays", 1, "100m", **{**kept, "tolerations": stays}),
    )
    apps = ("tier-app", "tier-daemon", "tier-app-critical", "tier-daemon-critical", "tier-stays")
    for app in apps:
        system.until_running(1, app)
    says(system, "tiers", "Ready", "True", "Ready")
    (claim,) = claims_of(system, "tiers")
    name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
    order: list[str] = []
    steps: list[str] = []
    closed: list[Manifest] = []
    """The Node's metadata from when it is tainted and being deleted."""
    gone_at: dict[int, str] = {}
    """Names of removed objects by resource version, since two watches deliver in no defined order."""

    def note_pod(each: Manifest, now: datetime, *, gone: bool) -> None:  # noqa: ARG001
        app = each["metadata"]["labels"].get("app", "")
        is_leaving = "deletionTimestamp" in each["metadata"] and each["spec"].get("nodeName") == node
        if is_leaving and app not in order:
            order.append(app)

    def note(each: Manifest, now: datetime, *, gone: bool) -> None:  # noqa: ARG001
        if each["metadata"]["name"] not in (name, node):
            return
        if each["metadata"]["name"] == node and is_closed(each):
            closed.append(each["metadata"])
        if gone:
            gone_at[int(each["metadata"]["resourceVersion"])] = each["metadata"]["name"]
        steps.extend(f"{c['type']} {c['status']} {c['reason']}" for c in each["status"]["conditions"])

    began = datetime.now(UTC)
    with (
        system.followed("pods", note_pod, "default", from_now=True),
        system.followed("nodeclaims", note, from_now=True),
        system.followed("nodes", note, from_now=True),
    ):
        system.kubectl("delete", "nodeclaim", name, "--wait=false")
        system.until("the Node is tainted and deleted", lambda: bool(closed))
        system.until("both are gone", lambda: len(gone_at) == 2, seconds=90)
    lasted = (datetime.now(UTC) - began).total_seconds()
    assert closed[0]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] == "karpenter"
    assert lasted >= 5, "a Node is kept for at least five seconds"
    assert order[:4] == list(apps[:4])
    assert [gone_at[version] for version in sorted(gone_at)] == [node, name], (
        "a NodeClaim is removed after its Node"
    )
    drained = [step for step in steps if step.startswith("Drained")]
    assert list(dict.fromkeys(drained)) == ["Drained Unknown Draining", "Drained True Drained"]
    assert {f"{each} True {each}" for each in ("VolumesDetached", "InstanceTerminating")} <= {*steps}
    assert not any(step.startswith("DisruptionReason") for step in steps)
    event_of(system, node, "FailedDraining")

    def evicted() -> set[str]:
        names = (e["involvedObject"]["name"] for e in system.events("Evicted"))
        return {name.rpartition("-")[0] for name in names if name.startswith("tier-")}

    system.until("Events tell of four evictions", lambda: len(evicted()) >= 4)
    system.kubectl("delete", "deployment,daemonset", "-l", "app!=x", "--wait=false")
    system.kubectl("delete", "nodepool", "tiers", "--wait=false")


def test_pods_that_may_not_be_evicted_keep_their_node_and_get_no_other(shared: System) -> None:
    system = shared
    annotated: Any = deployment("annotated", 1, "100m", **of("held"))
    annotated["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    system.apply(nodeclass(CLUSTER), pool_of("held"), budget("guarded", maxUnavailable=0))
    system.until_nodepools_ready()
    system.apply(annotated, deployment("guarded", 1, "100m", **of("held")))
    system.until_running(1, "annotated")
    system.until_running(1, "guarded")
    says(system, "held", "Ready", "True", "Ready")
    (claim,) = claims_of(system, "held")
    name, node = claim["metadata"]["name"], claim["status"]["nodeName"]

    system.kubectl("delete", "node", node, "--wait=false")
    event_of(system, node, "FailedDraining")
    system.until(
        "its NodeClaim is deleted as well",
        lambda: "deletionTimestamp" in claims_of(system, "held")[0]["metadata"],
    )
    system.stays("both pods run, and there is no other NodeClaim", lambda: held(system) == [name], seconds=4)

    system.kubectl("delete", "poddisruptionbudget", "guarded")
    (pod_,) = system.pods("annotated")
    system.kubectl("annotate", "pod", pod_["metadata"]["name"], "karpenter.sh/do-not-disrupt-")
    system.until("the node is gone", lambda: name not in held(system, running=False), seconds=60)
    system.kubectl("delete", "deployment", "annotated", "guarded")
    system.kubectl("delete", "nodepool", "held", "--wait=false")


def held(system: System, *, running: bool = True) -> list[str]:
    if running:
        for app in ("annotated", "guarded"):
            assert [p["status"].get("phase") for p in system.pods(app)] == ["Running"]
    return [claim["metadata"]["name"] for claim in claims_of(system, "held")]


def test_a_termination_deadline_is_annotated_and_ends_protected_pods(shared: System) -> None:
    system = shared
    pool = pool_of("deadline")
    pool["spec"]["template"]["spec"]["terminationGracePeriod"] = "10s"
    system.apply(nodeclass(CLUSTER), pool, budget("deadline", maxUnavailable=0))
    system.until_nodepools_ready()
    system.apply(deployment("deadline", 1, "100m", **of("deadline", terminationGracePeriodSeconds=3)))
    system.until_running(1, "deadline")
    says(system, "deadline", "Ready", "True", "Ready")
    (claim,) = claims_of(system, "deadline")
    (guarded,) = system.pods("deadline")
    name, node = claim["metadata"]["name"], claim["status"]["nodeName"]

    annotated: list[Manifest] = []

    def note(each: Manifest, now: datetime, *, gone: bool) -> None:  # noqa: ARG001
        metadata = each["metadata"]
        if metadata["name"] == name and DEADLINE in (metadata.get("annotations") or {}):
            annotated.append(metadata)

    with system.followed("nodeclaims", note):
        system.kubectl("delete", "nodeclaim", name, "--wait=false")
        for each in (name, node):
            event_of(system, each, "TerminationGracePeriodExpiring")
        system.until("the deadline is annotated", lambda: bool(annotated))
        event_of(system, guarded["metadata"]["name"], "Disrupted", "Normal")
        system.until("the node is gone", lambda: system.cluster.objects.find("nodes", node) is None)
    deadline = parse_time(annotated[0]["annotations"][DEADLINE])
    late = (datetime.now(UTC) - deadline).total_seconds()
    assert (deadline - parse_time(annotated[0]["deletionTimestamp"])).total_seconds() == 10
    assert late < patient(15), format_time(deadline)
    system.kubectl("delete", "poddisruptionbudget,deployment", "deadline")
    system.kubectl("delete", "nodepool", "deadline", "--wait=false")
