"""The scheduler's stand-in: its filters, its preferences, and its reasons if no node fits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nodesmith_formats.kubernetes.objects import dig
from nodesmith_local.cluster.scheduler.needs import needs_of
from tests.objects.storage import storage_class
from tests.servers.standins import StandIns

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


def zones(world: StandIns) -> Counter[str]:
    places = [place for place in world.places().values() if place]
    return Counter(world.store.get("nodes", place)["metadata"]["labels"][ZONE] for place in places)


def spread(action: str, key: str = ZONE, **more: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": WEB, **more}
    return {"topologySpreadConstraints": [constraint]}


def node_affinity(*expressions: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    term: dict[str, Any] = {"matchExpressions": list(expressions)}
    if fields:
        term["matchFields"] = fields
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def pod_affinity(kind: str, key: str = ZONE, app: str = "web") -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_without_nodes_a_pod_waits_with_a_reason() -> None:
    world = StandIns()
    world.add_pod("p")

    world.settle()

    condition = dig(world.pod("p"), "status", "conditions", 0)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "no nodes available to schedule pods"
    event = next(each for each in world.store.list("events") if each["reason"] == "FailedScheduling")
    assert (event["type"], event["message"]) == ("Warning", condition["message"])


def test_each_reason_is_counted_over_the_nodes() -> None:
    world = StandIns()
    world.add_node("small", cpu="500m")
    world.add_node("smaller", cpu="100m")
    world.add_node("tainted", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    world.add_node("elsewhere", arch="arm64")
    world.store.patch("nodes", "elsewhere", {"spec": {"unschedulable": True}})
    world.add_pod("p")

    world.settle()

    assert world.why("p") == (
        "0/4 nodes are available: 1 node(s) had untolerated taint {team: a}, 1 node(s) were unschedulable, "
        "2 Insufficient cpu."
    )


def test_a_pod_that_could_not_be_placed_is_placed_when_a_node_comes() -> None:
    world = StandIns()
    world.add_pod("p")
    world.settle()

    world.add_node("n1")
    world.settle()

    assert world.places() == {"p": "n1"}


def test_room_that_becomes_free_is_used() -> None:
    world = StandIns()
    world.add_node("n1", cpu="1")
    world.add_pod("first")
    world.settle()
    world.add_pod("second")
    world.settle()
    assert world.places() == {"first": "n1", "second": ""}

    world.store.delete("pods", "first", "default")
    world.pass_time(2)

    assert world.places() == {"second": "n1"}


def test_a_node_is_never_filled_beyond_its_allocatable() -> None:
    world = StandIns()
    world.add_node("n1", cpu="3500m")
    world.add_workload("deployments", replicas=9)

    world.settle()

    assert Counter(world.places().values()) == {"n1": 3, "": 6}


def test_nothing_is_placed_on_a_node_that_is_not_ready() -> None:
    world = StandIns()
    world.add_node("n1", ready=False)
    world.add_pod("p")

    world.settle()

    assert world.places() == {"p": ""}
    assert "node.kubernetes.io/not-ready" in world.why("p")


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"nodeSelector": {"arch": "arm64"}}, "arm"),
        (node_affinity({"key": "arch", "operator": "NotIn", "values": ["arm64"]}), "intel"),
        (node_affinity({"key": "arch", "operator": "Exists"}), "arm"),
        (node_affinity({"key": "cores", "operator": "Gt", "values": ["7"]}), "intel"),
        (node_affinity(fields=[{"key": "metadata.name", "operator": "In", "values": ["intel"]}]), "intel"),
        ({"nodeSelector": {"arch": "riscv"}}, ""),
    ],
)
def test_selectors_and_node_affinity_choose_the_node(spec: dict[str, Any], place: str) -> None:
    world = StandIns()
    world.add_node("arm", arch="arm64", cores="4")
    world.add_node("intel", cores="8")
    world.add_pod("p", **spec)

    world.settle()

    assert world.places() == {"p": place}


@pytest.mark.parametrize(
    ("toleration", "placed"),
    [
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "b", "effect": "NoSchedule"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_repel_pods_that_do_not_tolerate_them(toleration: dict[str, str], placed: bool) -> None:
    world = StandIns()
    world.add_node("n1", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    world.add_pod("p", tolerations=[toleration])

    world.settle()

    assert bool(world.places()["p"]) == placed


def test_a_soft_taint_is_avoided_but_not_refused() -> None:
    world = StandIns()
    world.add_node("avoided", taints=[{"key": "old", "effect": "PreferNoSchedule"}])
    world.add_node("better")
    world.add_pod("one", cpu="3")
    world.settle()
    world.add_pod("two", cpu="3")
    world.settle()

    assert world.places() == {"one": "better", "two": "avoided"}


def test_hard_spreading_keeps_the_skew_and_waits_rather_than_break_it() -> None:
    world = StandIns()
    for zone, cpu in (("a", "10"), ("b", "10"), ("c", "1")):
        world.add_node(f"n-{zone}", zone, cpu=cpu)
    world.add_workload("deployments", replicas=9, pod=spread("DoNotSchedule"))

    world.settle()

    assert zones(world) == {"a": 2, "b": 2, "c": 1}
    waiting = next(name for name, place in world.places().items() if not place)
    assert world.why(waiting) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod topology spread constraints."
    )


def test_soft_spreading_spreads_and_never_waits() -> None:
    world = StandIns()
    for zone, cpu in (("a", "10"), ("b", "10"), ("c", "1")):
        world.add_node(f"n-{zone}", zone, cpu=cpu)
    world.add_workload("deployments", replicas=9, pod=spread("ScheduleAnyway"))

    world.settle()

    assert zones(world) == {"a": 4, "b": 4, "c": 1}


def test_too_few_domains_keep_the_minimum_at_zero() -> None:
    world = StandIns()
    for zone in "ab":
        world.add_node(f"n-{zone}", zone, cpu="10")
    world.add_workload("deployments", replicas=6, pod=spread("DoNotSchedule", minDomains=3))

    world.settle()

    assert zones(world) == {"a": 1, "b": 1}


def test_a_node_without_the_spread_label_has_its_own_reason() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_pod("p", labels={"app": "web"}, **spread("DoNotSchedule", key="rack"))

    world.settle()

    assert "(missing required label)" in world.why("p")


def test_anti_affinity_keeps_pods_apart_both_ways() -> None:
    world = StandIns()
    world.add_node("n1", "a")
    world.add_node("n2", "a")
    world.add_node("n3", "b")
    world.add_pod("hermit", labels={"app": "hermit"}, **pod_affinity("podAntiAffinity"))
    world.settle()
    world.add_pod("web", labels={"app": "web"})
    world.settle()
    hermit, web = (
        world.store.get("nodes", world.places()[each])["metadata"]["labels"][ZONE]
        for each in ("hermit", "web")
    )
    assert hermit != web

    world.add_pod("second-hermit", labels={"app": "hermit"}, **pod_affinity("podAntiAffinity"))
    world.settle()
    place = world.places()["second-hermit"]
    assert world.store.get("nodes", place)["metadata"]["labels"][ZONE] == hermit


def test_anti_affinity_to_itself_allows_one_pod_per_node() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_node("n2")
    world.add_workload("deployments", replicas=3, pod=pod_affinity("podAntiAffinity", HOST))

    world.settle()

    assert sorted(world.places().values()) == ["", "n1", "n2"]
    waiting = next(name for name, place in world.places().items() if not place)
    assert "node(s) didn't match pod anti-affinity rules" in world.why(
        waiting
    ) or "existing pods" in world.why(waiting)


def test_affinity_waits_for_a_matching_pod_unless_the_pod_matches_itself() -> None:
    world = StandIns()
    world.add_node("n1", "a")
    world.add_node("n2", "b")
    world.add_pod("follower", labels={"app": "follower"}, **pod_affinity("podAffinity"))
    world.settle()
    assert world.places()["follower"] == ""
    assert "didn't match pod affinity rules" in world.why("follower")

    world.add_pod("web", labels={"app": "web"}, nodeSelector={ZONE: "b"}, **pod_affinity("podAffinity"))
    world.settle()
    assert world.places() == {"follower": "n2", "web": "n2"}


def test_a_host_port_is_used_once_per_node() -> None:
    world = StandIns()
    world.add_node("n1")
    port = {"name": "c", "image": "i:1", "ports": [{"containerPort": 80, "hostPort": 80}]}
    for name in ("one", "two"):
        world.store.create("pods", {"metadata": {"name": name}, "spec": {"containers": [port]}})

    world.settle()

    assert sorted(world.places().values()) == ["", "n1"]
    assert "didn't have free ports" in world.why("two")


def test_sidecars_use_host_ports_and_ordinary_init_containers_do_not() -> None:
    world = StandIns()
    world.add_node("n1")
    app = {"name": "c", "image": "i:1"}
    first = {"name": "f", "image": "i:1", "ports": [{"containerPort": 80, "hostPort": 80}]}
    proxy = {**first, "restartPolicy": "Always"}
    for name, init in (("proxied", proxy), ("prepared", first), ("proxied-too", proxy)):
        spec = {"containers": [app], "initContainers": [init]}
        world.store.create("pods", {"metadata": {"name": name}, "spec": spec})

    world.settle()

    assert world.places() == {"proxied": "n1", "prepared": "n1", "proxied-too": ""}


def test_higher_priority_goes_first() -> None:
    world = StandIns()
    world.store.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    world.add_pod("low")
    world.add_pod("urgent", priorityClassName="high")
    world.add_node("n1", cpu="1")

    world.settle()

    assert world.places() == {"low": "", "urgent": "n1"}


def wait_with_a_nomination(world: StandIns, pod: str, node: str, **spec: Any) -> None:
    world.add_pod(pod, **spec)
    world.settle()
    world.store.patch("pods", pod, {"status": {"nominatedNodeName": node}}, "default", subresource="status")
    world.settle()


def test_a_pod_goes_to_the_node_that_it_is_nominated_for_though_another_is_emptier() -> None:
    world = StandIns()
    wait_with_a_nomination(world, "p", "small")

    world.add_node("large", cpu="8")
    world.add_node("small", cpu="1")
    world.settle()

    assert world.places() == {"p": "small"}


def test_a_nominated_pod_that_does_not_fit_goes_elsewhere_or_loses_its_nomination() -> None:
    world = StandIns()
    wait_with_a_nomination(world, "p", "small", cpu="3")
    wait_with_a_nomination(world, "q", "small", cpu="3")

    world.add_node("small", cpu="1")
    world.add_node("large", cpu="4")
    world.settle()

    assert world.places() == {"p": "large", "q": ""}
    assert "nominatedNodeName" not in world.pod("q")["status"]
    assert world.why("q") == "0/2 nodes are available: 2 Insufficient cpu."


@pytest.mark.parametrize(("priority", "there"), [(1000, "promised"), (-1, "promised"), (1001, "other")])
def test_room_is_reserved_for_a_nominated_pod_against_pods_without_higher_priority(
    priority: int, there: str
) -> None:
    world = StandIns()
    world.store.create("priorityclasses", {"metadata": {"name": "its"}, "value": 1000})
    world.store.create("priorityclasses", {"metadata": {"name": "other"}, "value": priority})
    world.add_pod("other", cpu="2", priorityClassName="other")
    wait_with_a_nomination(world, "promised", "n", cpu="2", priorityClassName="its")

    world.add_node("n", cpu="3")
    world.settle()

    assert world.places() == {"promised": "", "other": "", there: "n"}


def test_room_that_a_nominated_pod_does_not_use_goes_to_others() -> None:
    world = StandIns()
    world.add_pod("other", cpu="2")
    wait_with_a_nomination(world, "promised", "n", cpu="2", nodeSelector={"disk": "none"})

    world.add_node("n", cpu="2")
    world.settle()

    assert world.places() == {"promised": "", "other": "n"}


def test_gated_pods_and_those_of_other_schedulers_are_left_alone() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_pod("gated", schedulingGates=[{"name": "example.com/quota"}])
    world.add_pod("foreign", schedulerName="other")

    world.settle()

    assert world.places() == {"foreign": "", "gated": ""}
    assert dig(world.pod("gated"), "status", "conditions", 0, "reason") == "SchedulingGated"
    world.store.patch("pods", "gated", {"spec": {"schedulingGates": None}}, "default")
    world.settle()
    assert world.places()["gated"] == "n1"


def test_the_emptier_node_is_preferred() -> None:
    world = StandIns()
    world.add_node("big", cpu="16")
    world.add_node("small", cpu="4")
    world.add_workload("deployments", replicas=3)

    world.settle()

    assert set(world.places().values()) == {"big"}


@pytest.mark.parametrize(
    ("spec", "cpu_milli"),
    [
        ({"containers": ["1", "500m"]}, 1500),
        ({"containers": ["1"], "init": [("3", False), ("2", False)]}, 3000),
        ({"containers": ["1"], "init": [("500m", True), ("3", False)]}, 3500),
        ({"containers": ["1"], "init": [("3", False), ("500m", True)]}, 3000),
        ({"containers": ["2"], "init": [("500m", True), ("1", False)]}, 2500),
        ({"containers": ["1"], "overhead": "250m"}, 1250),
        ({"containers": ["1"], "pod": "3"}, 3000),
    ],
)
def test_needs_follow_the_rules_for_init_containers_sidecars_overhead_and_pods(
    spec: dict[str, Any], cpu_milli: int
) -> None:
    def container(cpu: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}}

    init = [
        {**container(cpu), **({"restartPolicy": "Always"} if side else {})}
        for cpu, side in spec.get("init", ())
    ]
    pod: dict[str, Any] = {
        "containers": [container(cpu) for cpu in spec["containers"]],
        "initContainers": init,
    }
    if "overhead" in spec:
        pod["overhead"] = {"cpu": spec["overhead"]}
    if "pod" in spec:
        pod["resources"] = {"requests": {"cpu": spec["pod"]}}

    assert needs_of(pod) == {"cpu": cpu_milli, "pods": 1}


def claiming(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def add_claim(world: StandIns, name: str, **spec: Any) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    metadata = {"name": name, "namespace": "default"}
    world.store.create("persistentvolumeclaims", {"metadata": metadata, "spec": wanted})


def add_class(world: StandIns, name: str, mode: str, **annotations: str) -> None:
    metadata = {"name": name, "annotations": annotations}
    words = {"metadata": metadata, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": mode}
    world.store.create("storageclasses.storage.k8s.io", words)


def test_a_pod_whose_claim_is_missing_waits_until_the_claim_is_there() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_pod("p", **claiming("data"))
    world.settle()

    assert world.why("p") == '0/1 nodes are available: persistentvolumeclaim "data" not found.'

    add_class(world, "gp3", "WaitForFirstConsumer")
    add_claim(world, "data", storageClassName="gp3")
    world.settle()

    assert world.places() == {"p": "n1"}


def test_a_claim_that_nobody_binds_keeps_its_pod_waiting() -> None:
    world = StandIns()
    world.add_node("n1")
    add_class(world, "slow", "Immediate")
    add_claim(world, "none")
    add_claim(world, "slow", storageClassName="slow")
    add_claim(world, "lost", storageClassName="lost")
    for name in ("none", "slow", "lost"):
        world.add_pod(name, **claiming(name))

    world.settle()

    assert "pod has unbound immediate PersistentVolumeClaims" in world.why("none")
    assert "pod has unbound immediate PersistentVolumeClaims" in world.why("slow")
    assert 'storageclass.storage.k8s.io "lost" not found' in world.why("lost")


def test_the_default_storage_class_serves_claims_that_name_none() -> None:
    world = StandIns()
    world.add_node("n1")
    add_class(world, "gp3", "WaitForFirstConsumer", **{"storageclass.kubernetes.io/is-default-class": "true"})
    add_claim(world, "data")
    world.add_pod("p", **claiming("data"))

    world.settle()

    assert world.places() == {"p": "n1"}


def test_a_volume_is_only_made_where_its_class_allows() -> None:
    world = StandIns()
    world.add_node("n1", zone="us-east-1a")
    world.store.create(
        "storageclasses.storage.k8s.io", storage_class(allowed=[{ZONE: ["us-east-1b", "us-east-1c"]}])
    )
    add_claim(world, "data", storageClassName="gp3")
    world.add_pod("p", **claiming("data"))
    world.settle()

    reason = "1 node(s) didn't find available persistent volumes to bind"
    assert world.why("p") == f"0/1 nodes are available: {reason}."

    world.add_node("n2", zone="us-east-1c")
    world.settle()

    assert world.places() == {"p": "n2"}


def test_a_pod_goes_to_its_volumes_zone() -> None:
    world = StandIns()
    world.add_node("n1", zone="us-east-1a")
    in_b = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["us-east-1b"]}]}
    volume: dict[str, Any] = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": [in_b]}}
    world.store.create("persistentvolumes", {"metadata": {"name": "pv-1"}, "spec": volume})
    add_claim(world, "data", volumeName="pv-1")
    world.add_pod("p", **claiming("data"))
    world.settle()

    assert world.why("p") == "0/1 nodes are available: 1 node(s) had volume node affinity conflict."

    world.add_node("n2", zone="us-east-1b")
    world.settle()

    assert world.places() == {"p": "n2"}
