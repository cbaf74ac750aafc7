"""Instances that boot, join and leave, by the clock and without waiting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.launch.templates import user_data
from nodesmith.decisions.launch.userdata.starting import Start
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import Resources, parse_resources
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses.instancesettings import GIB
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import View, condition_of
from nodesmith_local.apiserver import ApiServer, Store
from nodesmith_local.aws.instances.kubelet import Kubelets
from nodesmith_local.aws.instances.nodes import Machine
from nodesmith_local.aws.instances.stages import Delays, Stage
from nodesmith_local.aws.instances.userdata.bootstrap import Unusable
from nodesmith_local.aws.instances.userdata.reading import parse_user_data
from nodesmith_local.backends.objects import Objects
from nodesmith_local.backends.serverobjects import ServerObjects
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, options

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
CATALOG = embedded_catalog("us-east-1")
NOT_READY = "node.kubernetes.io/not-ready:NoSchedule"
NAME = "ip-10-0-0-4.ec2.internal"


def booting(claim: NodeClaim = CLAIM, **changes: Any) -> Machine:
    machine = Machine(
        id="i-0aaa",
        instance_type="m5.large",
        zone="us-east-1a",
        region="us-east-1",
        state="pending",
        user_data=user_data(Start(claim, "spot", 29, NODECLASS, CLUSTER)),
        private_dns_name=NAME,
        private_ip="10.0.0.4",
        launched_at=START,
        root_volume_bytes=20 * GIB,
    )
    return replace(machine, **changes)


@dataclass
class Region:
    """EC2 as the machines see it."""

    machines: list[Machine] = field(default_factory=list)

    def all(self) -> Iterable[Machine]:
        return list(self.machines)

    def become(self, instance_id: str, state: str) -> None:
        self.machines = [replace(m, state=state) if m.id == instance_id else m for m in self.machines]


class World:
    """A region, a cluster, and the kubelets between them."""

    def __init__(self, *machines: Machine, objects: Objects | None = None, kwok: bool = False) -> None:
        self.region = Region(list(machines))
        self.store = Store(lambda: START)
        self.announced: list[tuple[str, str]] = []
        self.kubelets = Kubelets(
            self.region,
            objects or self.store,
            CATALOG,
            endpoint=CLUSTER.endpoint,
            version="1.33",
            announce=lambda machine, state: self.announced.append((machine.id, state)),
            kwok=kwok,
        )

    def after(self, seconds: float) -> None:
        self.kubelets.step(START + timedelta(seconds=seconds))

    def node(self, name: str = NAME) -> Any:
        return self.store.find("nodes", name)

    def ready(self) -> str:
        conditions = self.node()["status"]["conditions"]
        return str(next(c["status"] for c in conditions if c["type"] == "Ready"))

    def be_found_silent(self) -> None:
        """Do the node lifecycle controller's part for a silent node."""
        unknown = [{**each, "status": "Unknown"} for each in self.node()["status"]["conditions"]]
        self.store.patch("nodes", NAME, {"status": {"conditions": unknown}}, subresource="status")

    def taints(self) -> set[str]:
        """Return the taints that the kubelet handles.

        Those that follow from conditions belong to the node lifecycle controller.
        """
        taints = {f"{t['key']}:{t['effect']}" for t in self.node()["spec"].get("taints", [])}
        return taints - {NOT_READY}


def joined(*machines: Machine, kwok: bool = False) -> World:
    """Return a world in which these machines have booted and their nodes have joined."""
    world = World(*machines, kwok=kwok)
    world.after(0)
    world.after(60)
    return world


def test_an_instance_runs_registers_and_becomes_ready_in_its_time() -> None:
    world = World(booting())
    world.after(0)
    assert world.region.machines[0].state == "pending"
    world.after(5)
    assert world.region.machines[0].state == "pending"
    world.after(10)
    assert world.region.machines[0].state == "running"
    assert world.node() is None
    world.after(19)
    assert world.node() is None
    world.after(27)
    assert world.ready() == "False"
    assert "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule" not in world.taints()
    world.after(37)
    assert world.ready() == "True"
    assert world.taints() == {"karpenter.sh/unregistered:NoExecute"}


def test_a_node_marked_unknown_is_ready_again_at_the_next_heartbeat() -> None:
    world = joined(booting())
    world.be_found_silent()
    world.after(61)
    assert world.ready() == "Unknown"
    world.after(75)
    assert world.ready() == "True"


def test_a_stopped_instance_falls_silent_keeps_its_images_and_joins_sooner_when_it_is_started() -> None:
    world = World(booting(replace(CLAIM, images=("web:1",))))
    world.after(0)
    world.after(37)
    assert world.node() is None, "it pulls images first"
    world.after(60)
    assert world.ready() == "True"
    assert world.node()["status"]["images"] == [{"names": ["docker.io/library/web:1"]}]
    first = world.node()["metadata"]["uid"]

    world.region.become("i-0aaa", "stopped")  # moto stops it at once
    world.after(70)
    assert world.region.machines[0].state == "stopping"
    world.after(95)
    assert world.region.machines[0].state == "stopped"
    world.be_found_silent()
    world.after(120)
    assert world.ready() == "Unknown", "nobody renews its status"

    world.region.become("i-0aaa", "running")
    world.after(130)
    assert world.region.machines[0].state == "pending"
    world.after(150)
    assert world.ready() == "True"
    assert world.node()["metadata"]["uid"] != first
    reported = [state for _, state in world.announced]
    assert reported == ["pending", "running", "stopping", "stopped", "pending", "running"]


def test_one_late_step_does_everything_with_the_times_at_which_it_was_due() -> None:
    world = World(booting())
    world.after(0)
    world.after(600)
    assert world.ready() == "True"
    since = next(
        c["lastTransitionTime"] for c in world.node()["status"]["conditions"] if c["type"] == "Ready"
    )
    assert "2026-11-21T08:00:26Z" <= since <= "2026-11-21T08:00:36Z"


def test_delays_differ_between_instances_and_are_constant_for_each() -> None:
    delays = Delays()
    taken = [delays.until(Stage.REGISTERED, f"i-{number}").total_seconds() for number in range(200)]
    assert all(15 * 0.85 <= seconds <= 15 * 1.15 for seconds in taken)
    assert max(taken) - min(taken) > 3
    assert taken == [delays.until(Stage.REGISTERED, f"i-{number}").total_seconds() for number in range(200)]


def test_delays_between_two_durations_are_spread_evenly_over_all_of_them() -> None:
    delays = Delays.between(35, 70)
    joining = (Stage.RUNNING, Stage.REGISTERED, Stage.INITIALIZED, Stage.READY)
    taken = sorted(
        sum(delays.until(stage, f"i-{number}").total_seconds() for stage in joining) for number in range(2000)
    )
    assert 35 <= taken[0] < 35.5
    assert 69.5 < taken[-1] <= 70
    quarters = [taken[at] for at in (500, 1000, 1500)]
    assert quarters == pytest.approx([43.75, 52.5, 61.25], abs=1.5)


def test_the_node_is_labelled_by_user_data_kubelet_and_cloud_controller() -> None:
    claim = replace(CLAIM, labels={**CLAIM.labels, "team": "express"})
    world = joined(booting(claim))
    labels = world.node()["metadata"]["labels"]
    assert labels == {
        "team": "express",
        "karpenter.sh/nodepool": "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/do-not-sync-taints": "true",
        "kubernetes.io/hostname": NAME,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "us-east-1a",
        "topology.kubernetes.io/region": "us-east-1",
        "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
        "failure-domain.beta.kubernetes.io/region": "us-east-1",
        "node.kubernetes.io/instance-type": "m5.large",
        "beta.kubernetes.io/instance-type": "m5.large",
        "topology.ebs.csi.aws.com/zone": "us-east-1a",
    }
    assert world.node()["spec"]["providerID"] == "aws:///us-east-1a/i-0aaa"


def test_the_node_registers_with_the_claims_taints() -> None:
    claim = replace(
        CLAIM, taints=(Taint("team", "NoSchedule", "x"),), startup_taints=(Taint("cni", "NoExecute"),)
    )
    world = joined(booting(claim))
    assert world.taints() == {"karpenter.sh/unregistered:NoExecute", "team:NoSchedule", "cni:NoExecute"}


def test_a_real_node_has_the_planned_resources_and_a_little_more_memory() -> None:
    ((kind, _),) = options(["m5.large"], zones=["us-east-1a"])
    world = joined(booting())
    status = world.node()["status"]
    for planned, real in ((kind.capacity, status["capacity"]), (kind.allocatable, status["allocatable"])):
        found = parse_resources(real)
        assert planned.fits_in(found)
        assert found.memory_bytes > planned.memory_bytes
        assert found.cpu_milli == planned.cpu_milli
        assert found.pods == planned.pods


def test_the_kubelets_own_reservations_and_the_volume_reduce_allocatable() -> None:
    nodeclass = replace(NODECLASS, kubelet=replace(NODECLASS.kubelet, kube_reserved=Resources({"cpu": 500})))
    text = user_data(Start(CLAIM, "spot", 10, nodeclass, CLUSTER))
    world = joined(booting(user_data=text, root_volume_bytes=100 * GIB))
    found = parse_resources(world.node()["status"]["allocatable"])
    assert (found.cpu_milli, found.pods) == (1500, 10)
    assert found.of("ephemeral-storage") == 100 * GIB - GIB - 10 * GIB


def test_a_node_keeps_its_lease_as_long_as_it_lives() -> None:
    world = joined(booting())
    first = world.store.get("leases", NAME, "kube-node-lease")["spec"]["renewTime"]
    world.after(65)
    assert world.store.get("leases", NAME, "kube-node-lease")["spec"]["renewTime"] == first
    world.after(75)
    assert world.store.get("leases", NAME, "kube-node-lease")["spec"]["renewTime"] > first


def test_every_change_of_state_is_announced_once() -> None:
    world = World(booting())
    for second in range(60):
        world.after(second)
    world.region.become("i-0aaa", "terminated")
    world.after(61)
    world.after(62)
    assert world.announced == [("i-0aaa", "pending"), ("i-0aaa", "running"), ("i-0aaa", "terminated")]


@pytest.mark.parametrize("kwok", [False, True])
def test_the_kubelet_ends_with_its_instance_and_its_node_once_that_is_not_ready(kwok: bool) -> None:
    world = joined(booting(), kwok=kwok)
    world.region.become("i-0aaa", "terminated")
    world.after(61)
    world.after(70)
    assert world.ready() == "True"
    assert "kwok.x-k8s.io/node" not in world.node()["metadata"]["labels"]
    lease = world.store.find("leases", NAME, "kube-node-lease")
    assert lease is None if kwok else lease is not None and not lease["spec"].get("holderIdentity")
    world.be_found_silent()
    world.after(71)
    world.after(76)
    assert world.node() is None
    assert world.store.find("leases", NAME, "kube-node-lease") is None


def test_the_node_of_an_instance_that_is_still_shutting_down_is_kept() -> None:
    world = joined(booting())
    world.region.become("i-0aaa", "shutting-down")
    world.be_found_silent()
    world.after(61)
    assert world.node() is not None
    world.region.become("i-0aaa", "terminated")
    world.after(66)
    assert world.node() is None


def test_a_node_that_a_finalizer_holds_is_deleted_once_and_stays() -> None:
    world = joined(booting())
    world.store.patch("nodes", NAME, {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
    world.region.become("i-0aaa", "terminated")
    world.be_found_silent()
    world.after(61)
    deleted = world.node()["metadata"]["deletionTimestamp"]
    world.after(70)
    assert world.node()["metadata"]["deletionTimestamp"] == deleted
    world.store.patch("nodes", NAME, {"metadata": {"finalizers": None}})
    world.after(80)
    assert world.node() is None


def test_an_instance_terminated_while_it_boots_never_joins() -> None:
    world = World(booting())
    world.after(0)
    world.region.become("i-0aaa", "terminated")
    world.after(600)
    assert world.node() is None
    assert world.region.machines[0].state == "terminated"


def test_the_node_of_a_new_instance_with_an_old_address_is_left_alone_when_the_old_one_ends() -> None:
    world = joined(booting())
    world.region.machines.append(booting(id="i-0bbb"))
    world.after(61)
    world.after(120)
    world.region.become("i-0aaa", "terminated")
    world.after(121)
    assert world.node()["spec"]["providerID"].endswith("i-0bbb")


def test_a_deleted_node_stays_deleted() -> None:
    world = World(booting())
    world.after(0)
    world.after(28)
    world.store.delete("nodes", NAME)
    world.after(60)
    world.after(90)
    assert world.node() is None
    assert world.kubelets.failures() == {}


def test_kwok_handles_a_nodes_lease_and_pods_from_the_start() -> None:
    world = World(booting(), kwok=True)
    world.after(0)
    world.after(27)
    assert world.ready() == "False"
    assert world.node()["metadata"]["labels"]["kwok.x-k8s.io/node"] == "fake"
    world.after(37)
    assert world.ready() == "True"
    world.after(60)
    assert world.store.find("leases", NAME, "kube-node-lease") is None


def test_a_taint_added_while_the_cloud_controller_works_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy = Busy(lambda: START)
    world = World(booting(), objects=busy)
    world.after(0)
    for second in range(20, 40):
        world.after(second)
    keys = {taint["key"] for taint in busy.get("nodes", NAME)["spec"]["taints"]}
    assert "just-now" in keys
    assert "node.cloudprovider.kubernetes.io/uninitialized" not in keys
    assert caplog.records == []  # losing a race is not a problem


class Busy(Store):
    """A store in which a node gets a taint right after it is first read."""

    tainted = False

    def find(self, resource: str | Resource, name: str, namespace: str = "") -> View | None:
        found = super().find(resource, name, namespace)
        if found and resource == "nodes" and not self.tainted:
            self.tainted = True
            taints = [*found["spec"]["taints"], {"key": "just-now", "effect": "NoSchedule"}]
            self.patch("nodes", name, {"spec": {"taints": taints}})
        return found


def test_writes_that_fail_while_the_api_server_is_away_are_made_up_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(lambda: START)
    with ApiServer(now=lambda: START, store=store) as server:
        port = int(server.url.rpartition(":")[2])
        world = World(booting(), objects=ServerObjects(server.url, "", "anything"))
        world.store = store
        world.after(0)
        world.after(27)
    for second in range(40, 60):
        world.after(second)
    # One warning, however long it takes.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with ApiServer(port, now=lambda: START, store=store):
        world.after(61)
        assert condition_of(store.get("nodes", NAME), "Ready")["status"] == "True"  # type: ignore[index]
    world.region.become("i-0aaa", "terminated")
    world.after(62)
    world.after(63)
    world.be_found_silent()
    with ApiServer(port, now=lambda: START, store=store):
        world.after(64)
    assert store.list("nodes") == []
    assert world.announced == [("i-0aaa", "pending"), ("i-0aaa", "running"), ("i-0aaa", "terminated")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no NodeConfig"),
        ("#!/bin/sh\necho hello\n", "no NodeConfig"),
        (
            "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {cluster: {name: x}}\n",
            "apiServerEndpoint",
        ),
        ("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n  bad: - indent", "not YAML"),
        ("apiVersion: v1\nkind: Pod\n", "not a NodeConfig"),
    ],
)
def test_an_instance_with_unusable_user_data_never_joins_and_says_why(text: str, why: str) -> None:
    world = World(booting(user_data=text))
    world.after(0)
    world.after(600)
    assert world.node() is None
    assert why in world.kubelets.failures()["i-0aaa"]
    with pytest.raises(Unusable, match=why):
        parse_user_data(text)


def test_an_instance_that_calls_another_api_server_never_joins_ours() -> None:
    stranger = replace(CLUSTER, endpoint="https://elsewhere")
    world = World(booting(user_data=user_data(Start(CLAIM, "spot", 29, NODECLASS, stranger))))
    world.after(0)
    world.after(600)
    assert world.node() is None
    assert "https://elsewhere" in world.kubelets.failures()["i-0aaa"]


def test_in_an_ipv6_cluster_a_node_shows_its_ipv6_address_and_without_one_it_never_joins() -> None:
    ipv6 = replace(CLUSTER, service_cidr="fd12::/108", ip_family="ipv6")
    text = user_data(Start(CLAIM, "spot", 110, NODECLASS, ipv6))
    world = World(booting(user_data=text, ipv6="2600:1f18::5"))
    world.after(0)
    world.after(600)
    assert world.node()["status"]["addresses"][0] == {"type": "InternalIP", "address": "2600:1f18::5"}
    without = World(booting(user_data=text))
    without.after(0)
    without.after(600)
    assert without.node() is None
    assert "Services have IPv6 addresses (fd12::/108)" in without.kubelets.failures()["i-0aaa"]


def test_an_instance_of_an_unknown_type_never_joins() -> None:
    world = World(booting(instance_type="z9.mega"))
    world.after(0)
    world.after(600)
    assert "z9.mega" in world.kubelets.failures()["i-0aaa"]


def test_one_instance_in_trouble_does_not_hold_up_the_others() -> None:
    world = joined(booting(id="i-0bad", user_data=""), booting())
    assert world.ready() == "True"


def test_a_kubelet_that_labels_its_node_against_the_rules_does_not_start() -> None:
    text = user_data(Start(CLAIM, "spot", 29, NODECLASS, CLUSTER)).replace(
        "karpenter.sh/nodepool=", "kubernetes.io/role="
    )
    with pytest.raises(Unusable, match="node with kubernetes"):
        parse_user_data(text)


def test_later_nodeconfigs_win_and_labels_add_up() -> None:
    first = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: other}
  kubelet:
    config: {maxPods: 5, shutdownGracePeriod: 30s}
    flags: [--node-labels=team=a, --v=4]
"""
    started = parse_user_data(
        user_data(Start(CLAIM, "spot", 29, replace(NODECLASS, user_data=first), CLUSTER))
    )
    assert started.cluster == "express"
    assert (started.kubelet["maxPods"], started.kubelet["shutdownGracePeriod"]) == (29, "30s")
    assert started.labels["team"] == "a"
    assert started.labels["karpenter.sh/nodepool"] == "default"
