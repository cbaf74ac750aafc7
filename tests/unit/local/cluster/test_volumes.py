"""Volumes in the stand-in cluster: created in the pod's zone, attached before it starts, detached after its end."""

from __future__ import annotations

from typing import Any

from nodesmith_formats.kubernetes.objects import View, dig
from tests.objects.storage import claim, mounting, storage_class, volume
from tests.servers.standins import StandIns

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES, ATTACHMENTS = "storageclasses.storage.k8s.io", "volumeattachments.storage.k8s.io"


class Volumes(StandIns):
    """A node in each of two zones, and the claim `data` for a volume that is created later, or for a given one."""

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.alive = ["n1", "n2"]
        self.add_node("n1", zone="a")
        self.add_node("n2", zone="b")
        if given is not None:
            self.store.create(VOLUMES, given)
        self.store.create(CLASSES, storage_class())
        self.store.create(CLAIMS, claim("data", bound_to=given["metadata"]["name"] if given else ""))

    def mount(self, pod: str, **spec: Any) -> None:
        self.add_pod(pod, volumes=mounting("data"), **spec)

    def attachments(self) -> list[tuple[str, bool]]:
        """Return the node of each attachment, and whether the volume is attached."""
        found: list[View] = list(self.store.list(ATTACHMENTS))
        return sorted((each["spec"]["nodeName"], bool(dig(each, "status", "attached"))) for each in found)

    def phase(self, pod: str) -> str:
        return str(dig(self.pod(pod), "status", "phase"))

    def pass_time(self, seconds: float) -> None:
        """Let time pass for nodes whose leases are renewed."""
        for _ in range(int(seconds)):
            self.beat(*self.alive)
            super().pass_time(1)

    def lose_kubelet(self, node: str) -> None:
        self.alive.remove(node)
        self.store.patch("leases", node, {"spec": {"holderIdentity": None}}, "kube-node-lease")

    def volume_of_claim(self) -> View:
        name = dig(self.store.get(CLAIMS, "data", "default"), "spec", "volumeName")
        return self.store.get(VOLUMES, name)


def test_a_volume_is_created_in_the_zone_of_the_claims_first_pod_and_deleted_with_the_claim() -> None:
    world = Volumes()
    world.settle()
    assert world.store.list(VOLUMES) == []
    world.mount("db", nodeSelector={"topology.kubernetes.io/zone": "b"})
    world.settle()
    made = world.volume_of_claim()
    (term,) = dig(made, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    (zone,) = term["matchExpressions"]
    assert (zone["key"], zone["values"]) == ("topology.kubernetes.io/zone", ["b"])
    assert dig(made, "spec", "csi", "driver") == "ebs.csi.aws.com"
    world.store.delete("pods", "db", "default")
    world.pass_time(10)
    world.mount("again")
    world.settle()
    assert world.places() == {"again": "n2"}
    world.store.delete(CLAIMS, "data", "default")
    world.settle()
    assert world.store.list(VOLUMES) == []


def test_a_pod_starts_when_its_volume_has_been_attached() -> None:
    world = Volumes()
    world.mount("db", nodeName="n1")
    world.settle()
    assert (world.attachments(), world.phase("db")) == ([("n1", False)], "Pending")
    world.pass_time(2)
    assert (world.attachments(), world.phase("db")) == ([("n1", True)], "Running")


def test_a_volume_is_detached_soon_after_the_last_pod_that_mounts_it() -> None:
    world = Volumes()
    for pod in ("db", "backup"):
        world.mount(pod, nodeName="n1")
    world.pass_time(5)
    world.store.delete("pods", "db", "default")
    world.pass_time(60)
    assert world.attachments() == [("n1", True)]
    world.store.delete("pods", "backup", "default")
    world.pass_time(5)
    assert world.attachments() == [("n1", True)]  # the pod took a second to stop, the detachment five
    world.pass_time(2)
    assert world.attachments() == []


def test_a_volume_for_one_node_is_not_attached_to_another_before_it_is_free() -> None:
    world = Volumes(volume("shared", claim="default/data"))
    world.mount("db", nodeName="n1")
    world.pass_time(5)
    world.mount("next", nodeName="n2")
    world.pass_time(60)
    assert (world.attachments(), world.phase("next")) == ([("n1", True)], "Pending")
    world.store.delete("pods", "db", "default")
    world.pass_time(10)
    assert (world.attachments(), world.phase("next")) == ([("n2", True)], "Running")


def test_a_volume_is_detached_from_a_dead_node_after_six_minutes() -> None:
    world = Volumes(volume("shared", claim="default/data"))
    world.mount("db", nodeName="n1")
    world.pass_time(5)
    world.lose_kubelet("n1")
    world.store.delete("pods", "db", "default")
    world.pass_time(60)
    assert world.pod("db")["metadata"]["deletionTimestamp"]  # no kubelet is left to stop it
    world.store.delete("nodes", "n1")
    world.pass_time(60)
    assert world.places() == {}
    assert world.attachments() == [("n1", True)]
    world.pass_time(360)
    assert world.attachments() == []


def test_volumes_that_need_no_attachment_do_not_delay_pods() -> None:
    local = volume("disk", claim="default/data", csi=None, hostPath={"path": "/data"})
    world = Volumes({**local, "spec": {key: value for key, value in local["spec"].items() if value}})
    world.mount("db", nodeName="n1")
    world.settle()
    assert (world.attachments(), world.phase("db")) == ([], "Running")
