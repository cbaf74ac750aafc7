"""The forwarder as deployed: its image's process, with its service account's permissions on a real API server.

The tests share the API server and the objects created by earlier tests. Each test has its own forwarder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import BUILD
from tests.e2e.incluster.container import ROOT
from tests.e2e.incluster.forwarder import FORWARDER
from tests.e2e.incluster.image import build_image
from tests.e2e.incluster.site import Site, site, until

MINUTE_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Site]:
    with site(BUILD / "test_forwarder", speed=10) as cluster:
        yield cluster


def test_the_shipped_manifests_give_the_forwarder_everything_it_needs(cluster: Site, folder: Path) -> None:
    with cluster.forwarder(folder) as forwarder:
        cluster.create_impossible_pod("waiting")
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        reported = "woke provisioning: pods pending: 1"
        until("the pending pod is reported", lambda: reported in forwarder.messages(), forwarder)
        assert cluster.seen() == {"default/waiting": True}
        assert [node.name for node in cluster.snapshot().nodes] == ["own"]
        assert not cluster.snapshot().problems
        assert cluster.refusals() == 0, "no earlier test has caused refusals"
    assert not [text for text in forwarder.messages() if "403" in text]


@pytest.mark.parametrize("forgotten", ["nodesmith", "botocore", "urllib3"])
def test_an_image_that_lacks_a_dependency_of_the_forwarder_is_detected(folder: Path, forgotten: str) -> None:
    image = build_image(FORWARDER / "Dockerfile", ROOT, folder / "image")
    command, environment = image.command, {"PATH": os.environ["PATH"], **image.environment}
    whole = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "CLUSTER_NAME is not set" in whole.stderr
    (Path(image.environment["PYTHONPATH"]) / forgotten).rename(folder / forgotten)
    lacking = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"No module named '{forgotten}'" in lacking.stderr


def test_a_forwarder_whose_pod_is_deleted_stops_and_another_takes_over(cluster: Site, folder: Path) -> None:
    with cluster.forwarder(folder) as forwarder:
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        first = forwarder.process_id
        cluster.plane.kubectl("-n", "nodesmith", "delete", "pod", "--all", "--wait=false")
        until("another process runs", lambda: forwarder.process_id not in (None, first), forwarder)
        until("it is ready", lambda: forwarder.ready, forwarder)
        assert forwarder.restarts == 0
    assert forwarder.messages().count("stopped") == 2


def test_a_forwarder_without_a_permission_names_it_and_does_not_become_ready(
    cluster: Site, folder: Path
) -> None:
    manifests = folder / "without-daemonsets"
    shutil.copytree(FORWARDER, manifests)
    reader = manifests / "base" / "reader.yaml"
    role, *rest = yaml.safe_load_all(reader.read_text())
    role["rules"] = [rule for rule in role["rules"] if "daemonsets" not in rule["resources"]]
    reader.write_text(yaml.safe_dump_all([role, *rest]))
    with cluster.forwarder(folder, manifests) as forwarder:
        forwarder.start()
        until("it is refused", lambda: any("403" in text for text in forwarder.messages()), forwarder)
        time.sleep(2.0)
        assert forwarder.running
        assert not forwarder.ready
    account = 'User "system:serviceaccount:nodesmith:nodesmith-forwarder"'
    refused = [text for text in forwarder.messages() if "403" in text]
    assert {text.partition(":")[0] for text in refused} == {"DaemonSet"}
    assert f'{account} cannot list resource "daemonsets" in API group "apps"' in refused[0]


def test_a_forwarder_catches_up_after_a_minute_down_and_a_restart_of_the_api_server(
    cluster: Site, folder: Path
) -> None:
    with cluster.forwarder(folder) as forwarder:
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        before = cluster.seen().keys()
        killed_at = cluster.clock.now()
        forwarder.kill(for_seconds=MINUTE_SECONDS)
        assert not forwarder.running
        cluster.create_impossible_pod("while-it-was-dead")
        until("it runs again", lambda: forwarder.running, forwarder)
        assert (cluster.clock.now() - killed_at).total_seconds() >= MINUTE_SECONDS
        until(
            "it sees the pod that it missed", lambda: "default/while-it-was-dead" in cluster.seen(), forwarder
        )
        again = forwarder.process_id
        cluster.plane.restart_api_server(away_seconds=1.0)
        cluster.create_impossible_pod("after-the-restart")
        until("its watches continue", lambda: "default/after-the-restart" in cluster.seen(), forwarder)
        both = {"default/while-it-was-dead", "default/after-the-restart"}
        assert cluster.seen().keys() - before == both
        assert [node.name for node in cluster.snapshot().nodes] == ["own"]
        until("it is ready", lambda: forwarder.ready, forwarder)
        assert forwarder.process_id == again
        assert forwarder.restarts == 1
    assert "CRITICAL" not in forwarder.log.read_text()
