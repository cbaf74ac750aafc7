"""The control plane itself: started, used, broken and stopped."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.writes import clear_nominations, nominate
from nodesmith.errors import Rejected
from nodesmith_local.controlplane import ControlPlane, User, find_binaries
from nodesmith_local.controlplane.process import Died
from tests.contract.servers import real
from tests.e2e.conftest import BUILD
from tests.objects.manifests import budget, deployment
from tests.patience import eventually, patient

Json = dict[str, Any]
ENDED_WITHIN_SECONDS = 20.0
FORGOTTEN_SECONDS = 12.0
"""Longer than kube-scheduler waits before it retries a pod that it has queued."""
OTHERWISE_SECONDS = 30
"""How long a pod would take to stop if it did not end by what ends it."""
KNOWN = {"k8s-aws-v1.known": User("nodesmith", ("nodesmith:observers",))}


@pytest.fixture(scope="module")
def binaries() -> Path:
    return find_binaries()


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binaries, BUILD / "test_controlplane" / "plane", authenticate=KNOWN.get) as plane:
        applied(plane, [node(f"node-{number}") for number in range(3)])
        yield plane


def applied(plane: ControlPlane, objects: Sequence[Json]) -> None:
    done = plane.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    assert done.returncode == 0, done.stderr


def got(plane: ControlPlane, *arguments: str) -> Json:
    done = plane.kubectl("get", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def phases(plane: ControlPlane, app: str) -> list[str]:
    return [pod["status"]["phase"] for pod in got(plane, "pods", "-l", f"app={app}")["items"]]


def node(name: str) -> Json:
    """Return a Node whose status is set at creation, with kwok as its kubelet."""
    offered = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "set by the test"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kwok.x-k8s.io/node": "fake", "kubernetes.io/hostname": name}},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
        },
    }


def pod(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def processes(folder: Path) -> list[int]:
    """Return the processes whose command lines name a folder."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and str(folder).encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended in the meantime
    return [number for number in found if number != os.getpid()]


def test_it_reports_its_kubernetes_version(plane: ControlPlane) -> None:
    version = json.loads(plane.kubectl("version", "-o", "json").stdout)
    assert version["serverVersion"]["gitVersion"].startswith("v1.")
    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"]
    assert (version["serverVersion"]["major"], version["serverVersion"]["gitTreeState"]) == ("1", "clean")


def test_kube_scheduler_retries_a_pod_that_yielded_to_a_nomination_only_when_nominations_are_cleared(
    plane: ControlPlane,
) -> None:
    """One pod is nominated for a node, another finds no room beside it, and the first is bound elsewhere."""
    server = ApiServer(connect(plane.url, plane.ca_bundle, lambda: plane.admin_token))
    taint = {"key": "forgetful", "value": "yes", "effect": "NoSchedule"}
    small = [node(name) for name in ("promised", "elsewhere")]
    for each in small:
        each["spec"] = {"taints": [taint]}
        each["status"]["allocatable"] = {**each["status"]["allocatable"], "cpu": "4"}
    applied(plane, small)

    def waiting(name: str, cpu: str, label: str) -> None:
        made = pod(name, tolerations=[{**taint, "operator": "Equal"}], nodeSelector={label: "yes"})
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        applied(plane, [made])
        eventually(lambda: "PodScheduled" in str(got(plane, "pod", name)["status"]), f"{name} has been tried")
        nominate(server, "promised", [f"default/{name}"])

    def where(name: str) -> str:
        return str(got(plane, "pod", name)["spec"].get("nodeName", ""))

    plane.kubectl("label", "node", "promised", "wide=yes")
    waiting("first", "3", "narrow")
    waiting("second", "2", "wide")
    plane.kubectl("label", "node", "elsewhere", "narrow=yes")
    eventually(
        lambda: where("first") == "elsewhere", "the first is bound, but not to the node it was nominated for"
    )
    time.sleep(FORGOTTEN_SECONDS)
    assert where("second") == "", (
        "kube-scheduler now retries it unprompted: this reason for clearing nominations is gone"
    )

    clear_nominations(server, "promised", ["default/second"])

    eventually(lambda: where("second") == "promised", "the second is tried again")
    plane.kubectl("delete", "pod", "first", "second", "--force")
    plane.kubectl("delete", "node", "promised", "elsewhere")


def test_twenty_pods_run_on_three_nodes(plane: ControlPlane) -> None:
    applied(plane, [deployment("twenty", 20)])
    eventually(lambda: phases(plane, "twenty") == ["Running"] * 20, "20 pods run")
    pods = got(plane, "pods", "-l", "app=twenty")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-0", "node-1", "node-2"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 20

    def available() -> int:
        return int(got(plane, "deployment", "twenty")["status"].get("availableReplicas", 0))

    eventually(lambda: available() == 20, "its controller has seen it")


def test_kwok_renews_a_nodes_lease_and_keeps_the_status_set_at_creation(plane: ControlPlane) -> None:
    found = got(plane, "node", "node-0")
    ready = next(each for each in found["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["message"]) == ("True", "set by the test")
    assert found["status"]["allocatable"]["cpu"] == "16"

    def renewed() -> str:
        return str(got(plane, "lease", "node-0", "-n", "kube-node-lease")["spec"]["renewTime"])

    before = renewed()
    eventually(lambda: renewed() > before, "the lease is renewed")


def test_the_lease_of_a_deleted_node_is_deleted(plane: ControlPlane) -> None:
    applied(plane, [node("leaving")])
    lease = ("lease", "leaving", "-n", "kube-node-lease")
    eventually(lambda: plane.kubectl("get", *lease).returncode == 0, "it has a lease")
    plane.kubectl("delete", "node", "leaving")
    eventually(lambda: plane.kubectl("get", *lease).returncode != 0, "its lease is gone")


def test_a_node_without_a_kubelet_runs_no_pod(plane: ControlPlane) -> None:
    applied(plane, [node("silent")])
    eventually(
        lambda: plane.kubectl("get", "lease", "silent", "-n", "kube-node-lease").returncode == 0,
        "kwok manages it",
    )
    plane.kubectl("label", "node", "silent", "kwok.x-k8s.io/node-")
    tried = iter(range(100))
    unheard: list[str] = []

    def is_unheard() -> bool:
        """Bind a pod to the node, and return whether it still waits when a later one on another node runs."""
        number = next(tried)
        unheard.append(f"unheard-{number}")
        applied(plane, [pod(unheard[-1], nodeName="silent")])
        applied(plane, [pod(f"heard-{number}", nodeName="node-0")])
        eventually(lambda: phases(plane, f"heard-{number}") == ["Running"], "the other pod runs")
        return phases(plane, unheard[-1]) == ["Pending"]

    eventually(is_unheard, "kwok has noticed that it no longer manages the node")
    plane.kubectl("label", "node", "silent", "kwok.x-k8s.io/node=fake")
    eventually(lambda: phases(plane, unheard[-1]) == ["Running"], "it runs with its kubelet back")


@pytest.mark.parametrize(
    ("stop_seconds", "grace_seconds", "least_seconds"),
    [("", 30, 0.9), ("30", 3, 2.9), ("2", 30, 1.9), ("30", 1, 0.9)],
    ids=["usual", "by its grace", "by its annotation", "by a short grace"],
)
def test_a_pod_takes_time_to_stop_but_no_longer_than_its_grace_period(
    plane: ControlPlane, stop_seconds: str, grace_seconds: int, least_seconds: float
) -> None:
    name = f"stopping-{stop_seconds or 'plain'}-{grace_seconds}"
    annotations = {"local.nodesmith/stop-seconds": stop_seconds} if stop_seconds else {}
    applied(plane, [pod(name, annotations, terminationGracePeriodSeconds=grace_seconds)])
    eventually(lambda: phases(plane, name) == ["Running"], "it runs")
    began = time.monotonic()
    plane.kubectl("delete", "pod", name, "--wait=false")
    # A change in the meantime does not extend its life beyond its grace period.
    plane.kubectl("label", "pod", name, "touched=yes")
    took = eventually(lambda: phases(plane, name) == [], "it is gone")
    assert least_seconds <= time.monotonic() - began
    assert took < OTHERWISE_SECONDS / 2


def test_a_job_completes(plane: ControlPlane) -> None:
    template = {
        "metadata": {"labels": {"app": "job"}, "annotations": {"local.nodesmith/run-seconds": "0.5"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    applied(
        plane,
        [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "job"},
                "spec": {"template": template},
            }
        ],
    )
    eventually(lambda: got(plane, "job", "job")["status"].get("succeeded") == 1, "it succeeds")
    assert phases(plane, "job") == ["Succeeded"]


def test_tokens_unknown_to_kubernetes_are_passed_to_the_authenticator(
    plane: ControlPlane, folder: Path
) -> None:
    def who(token: str) -> subprocess.CompletedProcess[str]:
        kubeconfig = plane.kubeconfig()
        kubeconfig["users"][0]["user"] = {"token": token}
        path = folder / "kubeconfig"
        path.write_text(json.dumps(kubeconfig))
        return plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=path)

    seen = json.loads(who("k8s-aws-v1.known").stdout)["status"]["userInfo"]
    assert seen["username"] == "nodesmith"
    assert set(seen["groups"]) == {"nodesmith:observers", "system:authenticated"}
    assert "Unauthorized" in who("k8s-aws-v1.stranger").stderr
    KNOWN["k8s-aws-v1.stranger"] = User("late")
    eventually(lambda: "late" in who("k8s-aws-v1.stranger").stdout, "it is known now")


def test_an_eviction_is_refused_until_the_controller_counts_enough_healthy_pods(plane: ControlPlane) -> None:
    applied(plane, [budget("guarded", minAvailable=2), deployment("guarded", 2)])

    def counted() -> tuple[int, int, int]:
        status = got(plane, "pdb", "guarded")["status"]
        return status["expectedPods"], status["currentHealthy"], status["disruptionsAllowed"]

    eventually(lambda: counted() == (2, 2, 0), "both are counted, and none may be disrupted")
    victim = got(plane, "pods", "-l", "app=guarded")["items"][0]["metadata"]["name"]

    def evict() -> tuple[int, Json]:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim}}
        return real(plane).call("POST", f"/api/v1/namespaces/default/pods/{victim}/eviction", eviction)

    code, refusal = evict()
    (cause,) = refusal["details"]["causes"]
    assert (code, refusal["reason"], cause["reason"]) == (429, "TooManyRequests", "DisruptionBudget")
    assert cause["message"] == "The disruption budget guarded needs 2 healthy pods and has 2 currently"

    plane.kubectl("scale", "deployment", "guarded", "--replicas=3")
    answers = [code]

    def allowed() -> bool:
        answers.append(evict()[0])
        return answers[-1] == 201

    eventually(allowed, "it is allowed")
    assert set(answers) == {429, 201}
    eventually(lambda: counted() == (3, 3, 1), "another pod has replaced it")
    eventually(lambda: plane.kubectl("get", "pod", victim).returncode != 0, "it is gone")


def test_a_certificate_is_signed(plane: ControlPlane) -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    spec = {
        "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    applied(plane, [{**kind, "metadata": {"name": "me"}, "spec": spec}])
    plane.kubectl("certificate", "approve", "me")
    eventually(lambda: "certificate" in got(plane, "csr", "me")["status"], "it is signed")


def test_stored_objects_survive_a_restart_of_the_api_server(binaries: Path, folder: Path) -> None:
    with ControlPlane(binaries, folder / "plane") as plane:
        applied(plane, [node("node-0"), deployment("before", 2)])
        eventually(lambda: phases(plane, "before") == ["Running"] * 2, "they run")
        url, uid = plane.url, got(plane, "deployment", "before")["metadata"]["uid"]
        plane.restart_api_server(away_seconds=1)
        assert (plane.url, got(plane, "deployment", "before")["metadata"]["uid"]) == (url, uid)
        applied(plane, [deployment("after", 2)])
        eventually(
            lambda: phases(plane, "after") == ["Running"] * 2,
            "the controllers, the scheduler and kwok are back",
        )


def test_a_second_control_plane_cannot_use_the_same_folder_or_port(
    plane: ControlPlane, binaries: Path, folder: Path
) -> None:
    with (
        pytest.raises(Rejected, match="another control plane runs in it"),
        ControlPlane(binaries, plane.folder),
    ):
        pass
    port = int(plane.url.rpartition(":")[2])
    with (
        pytest.raises(Rejected, match=rf"--port {port}: Address already in use: choose a free one"),
        ControlPlane(binaries, folder / "plane", port=port),
    ):
        pass
    eventually(lambda: not processes(folder), "nothing is left")


def test_no_processes_remain_after_an_error(binaries: Path, folder: Path) -> None:
    plane = ControlPlane(binaries, folder / "plane")
    with pytest.raises(ZeroDivisionError), plane:
        len(processes(plane.folder)) / 0
    eventually(lambda: not processes(folder), "nothing is left")
    assert not (plane.folder / "etcd").exists()
    assert (plane.folder / "kube-apiserver.log").stat().st_size > 0
    with ControlPlane(binaries, plane.folder) as again:
        assert got(again, "pods")["items"] == []


OWNER = """
import sys, time
from pathlib import Path
from nodesmith_local.controlplane import ControlPlane
with ControlPlane(Path(sys.argv[1]), Path(sys.argv[2])):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("when", "ending"),
    [
        pytest.param("while running", signal.SIGKILL, id="killed while running"),
        pytest.param("while running", signal.SIGINT, id="interrupted while running", marks=pytest.mark.slow),
        pytest.param("while starting", signal.SIGKILL, id="killed while starting", marks=pytest.mark.slow),
        pytest.param(
            "while starting", signal.SIGINT, id="interrupted while starting", marks=pytest.mark.slow
        ),
    ],
)
def test_no_processes_remain_when_the_owner_is_killed(
    binaries: Path, folder: Path, ending: int, when: str
) -> None:
    python = [sys.executable, "-c", OWNER, str(binaries), str(folder / "plane")]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(python, stdout=subprocess.PIPE, env={**os.environ, **paths}) as owner:
        if when == "while running":
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"ready\n"
            assert len(processes(folder)) > 5
        else:
            eventually(lambda: (folder / "plane" / "kube-apiserver.log").exists(), "the API server has begun")
        owner.send_signal(ending)
        owner.wait(patient(ENDED_WITHIN_SECONDS))
    eventually(lambda: not processes(folder), "nothing is left")


def test_the_error_for_a_program_that_does_not_start_quotes_the_end_of_its_log(
    binaries: Path, folder: Path
) -> None:
    broken = folder / "binaries"
    broken.mkdir()
    for each in binaries.iterdir():
        (broken / each.name).symlink_to(each)
    (broken / "kube-scheduler").unlink()
    (broken / "kube-scheduler").write_text("#!/bin/sh\necho no such luck\nexit 3\n")
    (broken / "kube-scheduler").chmod(0o755)
    with (
        pytest.raises(Died, match=r"(?s)kube-scheduler ended with status 3; .*no such luck"),
        ControlPlane(broken, folder / "plane"),
    ):
        pass
    eventually(lambda: not processes(folder), "nothing is left")
