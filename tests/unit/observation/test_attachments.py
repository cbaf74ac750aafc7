"""The volumes that pods need and nodes can attach, and claims for one pod at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.mirror import (
    CSI_NODES,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from tests.objects.clusters import node, rolled
from tests.objects.storage import Manifest, as_decided, claim, mounting, pod_with, storage_class, volume

EBS, DISK = "attachable-volumes-csi-ebs.csi.aws.com", "attachable-volumes-csi-disk.csi.aws.com"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
UNLIMITED = 2**31 - 1


def seen(
    *pods: Manifest,
    claims: Iterable[Manifest] = (),
    volumes: Iterable[Manifest] = (),
    classes: Iterable[Manifest] = (),
    nodes: Iterable[Manifest] = (),
    csinodes: Iterable[Manifest] = (),
) -> Snapshot:
    """Return a cluster as a decision sees it."""
    kinds = {
        PODS: pods,
        VOLUME_CLAIMS: claims,
        VOLUMES: volumes,
        STORAGE_CLASSES: classes,
        NODES: nodes,
        CSI_NODES: csinodes,
    }
    return as_decided(kinds)


def only(pod: Manifest, **objects: Any) -> Pod:
    (found,) = seen(pod, **objects).pods
    return found


def bound(*names: str, **spec: Any) -> dict[str, list[Manifest]]:
    """Return claims and the EBS volumes that they are bound to."""
    return {
        "claims": [claim(name, bound_to=f"pv-{name}", **spec) for name in names],
        "volumes": [volume(f"pv-{name}", claim=f"default/{name}") for name in names],
    }


def machine(name: str = "n1", **labels: str) -> Manifest:
    manifest = node(1, rolled(1))
    manifest["metadata"] |= {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return manifest


def csi_node(name: str = "n1", **limits: int | None) -> Manifest:
    """Return a node's CSI drivers, `ebs` for ebs.csi.aws.com, each with its limit or None if it states none."""
    drivers: list[Manifest] = [
        {"name": f"{driver}.csi.aws.com", "nodeID": "i-1", "topologyKeys": []} for driver in limits
    ]
    for driver, limit in zip(drivers, limits.values(), strict=True):
        if limit is not None:
            driver["allocatable"] = {"count": limit}
    return {"metadata": {"name": name}, "spec": {"drivers": drivers or None}}


def places(snapshot: Snapshot) -> dict[str, int]:
    return {n.name: n.allocatable.of(EBS) for n in snapshot.nodes}


class TestAPod:
    def test_asks_for_each_of_its_ebs_volumes_once(self) -> None:
        pod = pod_with("data", "logs", "data")
        assert only(pod, **bound("data", "logs")).shape.requests.of(EBS) == 2

    def test_requests_volumes_that_its_class_has_not_created_yet(self) -> None:
        assert (
            only(pod_with("data"), claims=[claim("data")], classes=[storage_class()]).shape.requests.of(EBS)
            == 1
        )

    @pytest.mark.parametrize(
        ("provisioner", "asked"),
        [
            ("ebs.csi.aws.com", 1),
            ("kubernetes.io/aws-ebs", 1),
            ("efs.csi.aws.com", 0),
            ("kubernetes.io/no-provisioner", 0),
        ],
    )
    def test_asks_for_an_ephemeral_volume_by_the_driver_of_its_class(
        self, provisioner: str, asked: int
    ) -> None:
        spec = claim("x")["spec"]
        pod = pod_with(name="web-0")
        pod["spec"]["volumes"] = [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]
        found = only(pod, classes=[storage_class(provisioner=provisioner)])
        assert found.shape.requests.of(EBS) == asked

    @pytest.mark.parametrize(
        ("source", "asked"),
        [
            ({"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}}, 0),
            ({"csi": None, "awsElasticBlockStore": {"volumeID": "vol-1"}}, 1),
            ({"csi": None, "hostPath": {"path": "/data"}}, 0),
        ],
    )
    def test_asks_for_what_the_driver_of_a_bound_volume_limits(self, source: Manifest, asked: int) -> None:
        found = only(
            pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[volume("pv", **source)]
        )
        assert found.shape.requests.of(EBS) == asked

    def test_requests_nothing_if_its_claim_does_not_exist(self) -> None:
        assert EBS not in only(pod_with("data")).shape.requests

    def test_requests_them_even_on_a_node(self) -> None:
        found = only(pod_with("data", nodeName="n1"), **bound("data"))
        assert (found.node, found.shape.requests.of(EBS)) == ("n1", 1)

    def test_of_a_statefulset_shares_a_shape_with_pods_of_equally_many_volumes(self) -> None:
        pods = [pod_with(f"d{i}", name=f"web-{i}") for i in range(3)] + [pod_with("a", "b", name="web-9")]
        shapes = {pod.shape for pod in seen(*pods, **bound("d0", "d1", "d2", "a", "b")).pods}
        assert sorted(shape.requests.of(EBS) for shape in shapes) == [1, 2]


class TestANode:
    def test_offers_the_limit_that_its_driver_states(self) -> None:
        snapshot = seen(
            pod_with("data"),
            **bound("data"),
            nodes=[machine("n1"), machine("n2")],
            csinodes=[csi_node("n1", efs=None, ebs=25), csi_node("n2", ebs=7)],
        )
        assert places(snapshot) == {"n1": 25, "n2": 7}

    def test_attaches_a_volume_once_for_all_of_its_pods_that_mount_it(self) -> None:
        pods = [pod_with("shared", "own", name="a", nodeName="n1")]
        pods += [pod_with("shared", name=name, nodeName="n1") for name in ("b", "c")]
        snapshot = seen(*pods, **bound("shared", "own"), nodes=[machine()], csinodes=[csi_node(ebs=25)])
        taken = sum(pod.shape.requests.of(EBS) for pod in snapshot.pods)
        assert (places(snapshot)["n1"], taken) == (27, 4)
        assert places(snapshot)["n1"] - taken == 25 - 2

    def test_has_no_limit_if_its_driver_is_missing_or_states_none_as_in_kube_scheduler(self) -> None:
        snapshot = seen(
            pod_with("data"),
            **bound("data"),
            nodes=[machine("n1"), machine("n2"), machine("n3")],
            csinodes=[csi_node("n1", ebs=None), csi_node("n2")],
        )
        assert places(snapshot) == {"n1": UNLIMITED, "n2": UNLIMITED, "n3": UNLIMITED}

    def test_that_is_starting_offers_one_until_its_driver_has_reported(self) -> None:
        pool = {"karpenter.sh/nodepool": "default"}
        ready = {**pool, "karpenter.sh/initialized": "true"}
        snapshot = seen(
            pod_with("data"),
            **bound("data"),
            nodes=[
                machine("n1", **pool),
                machine("n2", **pool),
                machine("n3", **pool),
                machine("n4", **ready),
            ],
            csinodes=[csi_node("n2", ebs=25), csi_node("n3", ebs=None)],
        )
        assert places(snapshot) == {"n1": 1, "n2": 25, "n3": UNLIMITED, "n4": UNLIMITED}

    def test_offers_no_attachments_if_no_pod_has_volumes(self) -> None:
        snapshot = seen(pod_with(), nodes=[machine()], csinodes=[csi_node(ebs=25)])
        assert all(EBS not in n.allocatable for n in snapshot.nodes)


def disks(*names: str) -> dict[str, list[Manifest]]:
    """Return claims and the volumes that they are bound to, of a driver that is not one of AWS's."""
    source = {"driver": "disk.csi.aws.com"}
    return {
        "claims": [claim(name, bound_to=f"pv-{name}") for name in names],
        "volumes": [
            volume(f"pv-{name}", claim=f"default/{name}", csi={**source, "volumeHandle": name})
            for name in names
        ],
    }


class TestAnyOtherDriver:
    def test_counts_for_pods_and_nodes_once_any_node_states_its_limit(self) -> None:
        snapshot = seen(
            pod_with("a", "b"),
            **disks("a", "b"),
            nodes=[machine("n1"), machine("n2")],
            csinodes=[csi_node("n1", disk=3), csi_node("n2", disk=None)],
        )
        (pod,) = snapshot.pods
        assert pod.shape.requests.of(DISK) == 2
        assert [n.allocatable.of(DISK) for n in snapshot.nodes] == [3, UNLIMITED]

    def test_does_not_count_if_no_node_states_a_limit(self) -> None:
        snapshot = seen(
            pod_with("a"), **disks("a"), nodes=[machine()], csinodes=[csi_node(disk=None, ebs=25)]
        )
        assert DISK not in {**snapshot.pods[0].shape.requests, **snapshot.nodes[0].allocatable}
        assert snapshot.attach_limits.on("m5.large") == NOTHING

    def test_is_counted_separately_from_ebs(self) -> None:
        both = {kind: [*bound("a")[kind], *disks("b")[kind]] for kind in ("claims", "volumes")}
        snapshot = seen(pod_with("a", "b"), **both, nodes=[machine()], csinodes=[csi_node(disk=3, ebs=25)])
        assert [snapshot.pods[0].shape.requests.of(name) for name in (EBS, DISK)] == [1, 1]
        assert [snapshot.nodes[0].allocatable.of(name) for name in (EBS, DISK)] == [25, 3]

    def test_has_the_limits_of_existing_nodes_for_new_nodes_of_their_types(self) -> None:
        kinds = {"n1": "small", "n2": "small", "n3": "large", "n4": "free"}
        snapshot = seen(
            pod_with("a"),
            **disks("a"),
            nodes=[machine(name, **{INSTANCE_TYPE: kind}) for name, kind in kinds.items()],
            csinodes=[
                csi_node("n1", disk=4),
                csi_node("n2", disk=3),
                csi_node("n3", disk=9),
                csi_node("n4", disk=None),
            ],
        )
        reported = {
            kind: snapshot.attach_limits.on(kind).of(DISK) for kind in ("small", "large", "free", "new")
        }
        assert reported == {"small": 3, "large": 9, "free": UNLIMITED, "new": 3}

    def test_with_a_limit_of_zero_on_one_type_leaves_one_for_unseen_types(self) -> None:
        snapshot = seen(
            pod_with("a"),
            **disks("a"),
            nodes=[machine(**{INSTANCE_TYPE: "small"})],
            csinodes=[csi_node(disk=0)],
        )
        assert [snapshot.attach_limits.on(kind).of(DISK) for kind in ("small", "new")] == [0, 1]

    def test_of_a_starting_node_has_the_limit_of_its_type(self) -> None:
        labels = {INSTANCE_TYPE: "small"}
        snapshot = seen(
            pod_with("a"),
            **disks("a"),
            nodes=[machine("n1", **labels), machine("n2", **labels, **{"karpenter.sh/nodepool": "default"})],
            csinodes=[csi_node("n1", disk=3)],
        )
        assert [n.allocatable.of(DISK) for n in snapshot.nodes] == [3, 3]


class TestAReadWriteOncePodClaim:
    def refusals(self, *pods: Manifest) -> dict[str, str]:
        found = seen(*pods, **bound("data", accessModes=["ReadWriteOncePod"])).pods
        return {pod.key.partition("/")[2]: pod.refusal for pod in found}

    def test_keeps_a_second_pod_off_every_node_while_the_first_uses_it(self) -> None:
        found = self.refusals(pod_with("data", name="a"), pod_with("data", name="b", nodeName="n1"))
        assert found == {
            "a": (
                "persistentvolumeclaim 'data' is ReadWriteOncePod, and the pod 'b' uses it: only one pod at a time can"
                " use it"
            ),
            "b": "",
        }

    def test_is_reserved_for_the_oldest_pending_pod(self) -> None:
        young, old = pod_with("data", name="a"), pod_with("data", name="b")
        old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        found = self.refusals(young, old)
        assert found["b"] == ""
        assert "the pod 'b' uses it" in found["a"]

    def test_does_not_refuse_its_only_pod(self) -> None:
        assert self.refusals(pod_with("data", name="a"), pod_with(name="b")) == {"a": "", "b": ""}

    def test_of_another_access_mode_refuses_no_pod(self) -> None:
        pods = [pod_with("data", name=name) for name in "abc"]
        assert {pod.refusal for pod in seen(*pods, **bound("data")).pods} == {""}


def test_a_claim_of_the_same_name_in_another_namespace_is_ignored() -> None:
    other = pod_with("data", name="a")
    other["metadata"]["namespace"] = "shop"
    other["spec"]["volumes"] = mounting("data")
    found = seen(
        other, pod_with("data", name="b", nodeName="n1"), **bound("data", accessModes=["ReadWriteOncePod"])
    )
    refusals = {pod.key: pod.refusal for pod in found.pods}
    assert refusals["shop/a"].startswith("persistentvolumeclaim 'data' not found")
