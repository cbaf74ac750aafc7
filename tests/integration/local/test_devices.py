"""What `nodesmith local` serves beside the basics: claims to devices, and CapacityBuffers for custom resources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith_formats.kubernetes.objects import View, condition_of, dig
from nodesmith_formats.manifests.manifests import load_manifests
from nodesmith_formats.shipped import shipped
from nodesmith_local.runs.running import apply, settle
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.system import LocalSystem, Place
from tests.objects.capacitybuffers import capacitybuffer
from tests.objects.devices import DRIVER, declaring, parted, profile
from tests.patience import eventually, hurried
from tests.servers import rollouts

ROOT = Path(__file__).resolve().parents[3]
EXPRESS = shipped("_examples", "examples") / "express-test"
CRD = ROOT / "overlays" / "capacity-buffers" / "crd.yaml"
LONGEST_SECONDS = 1200


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    place = Place("us-east-1", "nodesmith-local", zones=("us-east-1a",), speed=hurried(20))
    pools = load_manifests([str(EXPRESS / name) for name in ("nodeclass.yaml", "nodepool.yaml")])
    with LocalSystem(place, tmp_path_factory.mktemp("devices")) as running:
        assert apply(running.first, pools.documents) == []
        yield running.first


def workload(name: str, replicas: int, **pod: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def pods(system: ServedCluster, app: str) -> list[View]:
    return [
        each for each in system.objects.list("pods", labels=f"app={app}") if dig(each, "spec", "nodeName")
    ]


def test_nodes_are_bought_and_opened_for_claims_to_partitions(system: ServedCluster) -> None:
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": DRIVER,
            "selectors": [{"cel": {"expression": profile("large")}}],
        },
    }
    every = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    objects = system.objects
    objects.create("nodeoverlays", declaring([parted()], "m5"))
    objects.create(
        "deviceclasses.resource.k8s.io", {"metadata": {"name": DRIVER}, "spec": {"selectors": every}}
    )
    asked = {"spec": {"devices": {"requests": [request]}}}
    template = {"metadata": {"name": "large", "namespace": "default"}, "spec": asked}
    objects.create("resourceclaimtemplates.resource.k8s.io", template)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "large"}]
    objects.create("deployments.apps", workload("job", 3, resourceClaims=claims))

    eventually(lambda: len(pods(system, "job")) == 3)
    assert settle(system, LONGEST_SECONDS) == ""
    homes = [str(each["spec"]["nodeName"]) for each in pods(system, "job")]
    assert sorted(homes.count(name) for name in set(homes)) == [1, 2]
    families = {
        objects.get("nodes", name)["metadata"]["labels"]["karpenter.k8s.aws/instance-family"]
        for name in homes
    }
    assert families == {"m5"}


def test_a_buffer_keeps_room_for_a_share_of_a_custom_resource(system: ServedCluster) -> None:
    objects = system.objects
    (crd,) = [each for each in yaml.safe_load_all(CRD.read_text()) if each]
    for definition in (crd, rollouts.definition()):
        objects.create("customresourcedefinitions", definition)
    rollout = objects.create("rollouts.argoproj.io", rollouts.rollout(workload("web", 4)))
    objects.create("replicasets.apps", rollouts.replicaset(rollout))
    objects.create("capacitybuffers", capacitybuffer(scalableRef=rollouts.REFERENCE, percentage=50))

    def shown() -> View:
        return objects.get("capacitybuffers", "room", "default")

    def is_there() -> bool:
        return (condition_of(shown(), "Provisioning") or {}).get("reason") == "FitsExistingCapacity"

    eventually(is_there)
    assert shown()["status"]["replicas"] == 2
