"""kubectl, of the real API server's version, against both servers: its output and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nodesmith_formats.localsystem.contexts import kubeconfig_of
from nodesmith_local.controlplane import find_binaries
from tests.contract.servers import Server
from tests.patience import patient, patient_seconds

Kubectl: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
CRDS = Path(__file__).resolve().parents[3] / "forwarder" / "crds"


@pytest.fixture
def kubectl(server: Server, ns: str, tmp_path: Path) -> Kubectl:
    """Run kubectl in the test's namespace: `kubectl("get", "pods", given=manifest)`; `given` is its standard input."""
    config = tmp_path / "kubeconfig"
    made = kubeconfig_of("it", server.url, server.token, ca_bundle=server.ca_bundle, namespace=ns)
    config.write_text(json.dumps(made))
    environment = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(config),
        "KUBECACHEDIR": str(tmp_path),
        "KUBERC": "off",
    }
    program = find_binaries() / "kubectl"

    def run(*arguments: str, given: object = None) -> subprocess.CompletedProcess[str]:
        stdin = "" if given is None else json.dumps(given)
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=patient(60),
            env=environment,
        )

    return run


def deployment(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    container = {"name": "web", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": whole}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec},
    }


def said(run: subprocess.CompletedProcess[str]) -> str:
    """Return kubectl's output, after asserting that it succeeded."""
    assert run.returncode == 0, run.stderr
    return run.stdout


def rows(run: subprocess.CompletedProcess[str]) -> list[list[str]]:
    return [line.split() for line in said(run).splitlines()]


def test_apply_creates_configures_or_reports_no_change(kubectl: Kubectl) -> None:
    assert said(kubectl("apply", "-f", "-", given=deployment())) == "deployment.apps/web created\n"
    assert said(kubectl("apply", "-f", "-", given=deployment())) == "deployment.apps/web unchanged\n"
    assert said(kubectl("apply", "-f", "-", given=deployment(3))) == "deployment.apps/web configured\n"
    assert said(kubectl("get", "deploy/web", "-o", "jsonpath={.spec.replicas}")) == "3"


def test_a_dry_run_on_the_server_stores_nothing(kubectl: Kubectl) -> None:
    dry = kubectl("apply", "--dry-run=server", "-f", "-", given=deployment())

    assert said(dry) == "deployment.apps/web created (server dry run)\n"
    assert kubectl("get", "deploy/web").returncode == 1


def test_server_side_apply_reports_conflicts(kubectl: Kubectl) -> None:
    applied = kubectl("apply", "--server-side", "-f", "-", given=deployment())
    assert said(applied) == "deployment.apps/web serverside-applied\n"

    other = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    refused = kubectl(*other, given=deployment(5))
    assert refused.returncode == 1
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas' in refused.stderr

    assert said(kubectl(*other, "--force-conflicts", given=deployment(5))).endswith("serverside-applied\n")
    assert said(kubectl("get", "deploy/web", "-o", "jsonpath={.spec.replicas}")) == "5"


def test_server_side_apply_takes_over_client_side_applied_fields(kubectl: Kubectl) -> None:
    said(kubectl("apply", "-f", "-", given=deployment()))

    assert said(kubectl("apply", "--server-side", "-f", "-", given=deployment(4))).endswith(
        "serverside-applied\n"
    )
    assert said(kubectl("get", "deploy/web", "-o", "jsonpath={.spec.replicas}")) == "4"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ((), 'strict decoding error: unknown field "spec.replicaz"'),
        (("--server-side",), ".spec.replicaz: field not declared in schema"),
    ],
)
def test_a_misspelt_field_is_refused(kubectl: Kubectl, how: tuple[str, ...], words: str) -> None:
    said(kubectl("apply", "-f", "-", given=deployment()))

    refused = kubectl("apply", *how, "-f", "-", given=deployment(replicaz=1))

    assert refused.returncode == 1
    assert words in refused.stderr


def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    said(kubectl("apply", "-f", "-", given=deployment()))

    same, other = (kubectl("diff", "-f", "-", given=deployment(count)) for count in (2, 5))

    assert (same.returncode, same.stdout) == (0, "")
    assert other.returncode == 1
    changes = {line.strip() for line in other.stdout.splitlines() if line[:1] in "+-" and line[1:2] == " "}
    assert changes == {"-  generation: 1", "+  generation: 2", "-  replicas: 2", "+  replicas: 5"}


def test_get_prints_tables_and_more_columns_with_wide(kubectl: Kubectl) -> None:
    said(kubectl("apply", "-f", "-", given=deployment()))
    said(kubectl("create", "-f", "-", given=pod("one", nodeName="nowhere")))

    heads, web = rows(kubectl("get", "deploy", "-o", "wide"))
    assert heads == "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR".split()
    assert [*web[:4], *web[5:]] == ["web", "0/2", "0", "0", "web", "app:1", "app=web"]
    (one,) = rows(kubectl("get", "po", "-l", "app=web", "--no-headers", "-o", "wide"))
    assert [*one[:4], *one[5:]] == ["one", "0/1", "Pending", "0", "<none>", "nowhere", "<none>", "<none>"]
    both = said(kubectl("get", "deploy,pods", "-o", "name"))
    assert both == "deployment.apps/web\npod/one\n"


def test_describe_shows_an_object_and_its_events(kubectl: Kubectl, server: Server, ns: str) -> None:
    said(kubectl("apply", "-f", "-", given=deployment()))
    uid = said(kubectl("get", "deploy/web", "-o", "jsonpath={.metadata.uid}"))
    about = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web", "namespace": ns, "uid": uid}
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": about,
        "reason": "Scaled",
        "message": "to 2",
        "type": "Normal",
    }
    assert server.call("POST", f"/api/v1/namespaces/{ns}/events", event)[0] == 201

    described = said(kubectl("describe", "deployment", "web"))

    assert (
        "Replicas:               2 desired | 0 updated | 0 total | 0 available | 0 unavailable" in described
    )
    assert "RollingUpdateStrategy:  25% max unavailable, 25% max surge" in described
    assert "to 2" in described


def test_describe_node_sums_up_the_requests_of_its_pods(kubectl: Kubectl, node_name: str) -> None:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name}}
    said(
        kubectl(
            "create", "-f", "-", given={**node, "status": {"capacity": capacity, "allocatable": capacity}}
        )
    )
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
    said(kubectl("create", "-f", "-", given=pod("one", nodeName=node_name, containers=[container])))

    described = said(kubectl("describe", "node", node_name))

    assert "Taints:             node.kubernetes.io/not-ready:NoSchedule" in described
    assert "cpu                1 (25%)    0 (0%)" in described
    assert "memory             2Gi (25%)  0 (0%)" in described


@pytest.mark.parametrize(
    ("path", "kind", "field"),
    [
        ("deployment.spec.replicas", "Deployment", "FIELD: replicas <integer>"),
        ("pod.spec.containers.image", "Pod", "FIELD: image <string>"),
        ("nodes.spec.taints.effect", "Node", "FIELD: effect <string>"),
        ("pdb.spec.unhealthyPodEvictionPolicy", "PodDisruptionBudget", "<string>"),
    ],
)
def test_explain_describes_built_in_fields(kubectl: Kubectl, path: str, kind: str, field: str) -> None:
    reported = said(kubectl("explain", path))

    assert f"KIND:       {kind}\n" in reported
    assert field in reported


def test_scale_and_set_image_change_a_deployment(kubectl: Kubectl) -> None:
    said(kubectl("create", "-f", "-", given=deployment()))

    assert said(kubectl("scale", "deploy/web", "--replicas=7")) == "deployment.apps/web scaled\n"
    assert said(kubectl("set", "image", "deploy/web", "web=app:2")) == "deployment.apps/web image updated\n"
    path = "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image} {.metadata.generation}"
    assert said(kubectl("get", "deploy/web", "-o", path)) == "7 app:2 3"


def test_rollout_status_waits_for_the_controllers_status(kubectl: Kubectl, server: Server, ns: str) -> None:
    said(kubectl("create", "-f", "-", given=deployment()))
    waiting = kubectl("rollout", "status", "deploy/web", f"--timeout={patient_seconds(2)}s")
    assert waiting.returncode == 1
    assert "Waiting for deployment spec update to be observed..." in waiting.stdout

    status = {
        "observedGeneration": 1,
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2),
    }
    path = f"/apis/apps/v1/namespaces/{ns}/deployments/web/status"
    assert server.call("PATCH", path, {"status": status}, "application/merge-patch+json")[0] == 200

    assert 'deployment "web" successfully rolled out' in said(
        kubectl("rollout", "status", "deploy/web", "--timeout=20s")
    )


def test_wait_sees_conditions_and_deletions(kubectl: Kubectl, server: Server, ns: str) -> None:
    said(kubectl("create", "-f", "-", given=pod("one")))
    path = f"/api/v1/namespaces/{ns}/pods/one/status"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert server.call("PATCH", path, ready, "application/strategic-merge-patch+json")[0] == 200

    assert (
        said(kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=20s"))
        == "pod/one condition met\n"
    )
    assert kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/one", "--timeout=1s").returncode == 1
    assert (
        said(kubectl("delete", "pod/one", "--wait", "--timeout=20s"))
        == f'pod "one" deleted from {ns} namespace\n'
    )
    assert said(kubectl("wait", "--for=delete", "pod/one", "--timeout=20s")) == ""


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    held = deployment()
    held["metadata"]["finalizers"] = ["example.com/wait"]
    said(kubectl("create", "-f", "-", given=held))

    waiting = kubectl("delete", "deploy/web", f"--timeout={patient_seconds(1)}s")
    assert waiting.returncode == 1
    assert "timed out waiting for the condition" in waiting.stderr

    said(kubectl("patch", "deploy/web", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'))
    assert kubectl("get", "deploy/web").returncode == 1


@pytest.fixture
def node(kubectl: Kubectl, server: Server, node_name: str) -> Iterator[str]:
    """A node with a pod that no disruption budget protects."""
    said(
        kubectl(
            "create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name}}
        )
    )
    said(kubectl("create", "-f", "-", given=pod("one", nodeName=node_name, terminationGracePeriodSeconds=0)))
    yield node_name
    server.call("DELETE", f"/api/v1/nodes/{node_name}")


def test_cordon_and_uncordon(kubectl: Kubectl, node: str) -> None:
    assert said(kubectl("cordon", node)) == f"node/{node} cordoned\n"
    (row,) = rows(kubectl("get", "node", node, "--no-headers"))
    assert row[1] == "Unknown,SchedulingDisabled"
    assert said(kubectl("cordon", node)) == f"node/{node} already cordoned\n"
    assert said(kubectl("uncordon", node)) == f"node/{node} uncordoned\n"


def test_drain_evicts_the_nodes_pods(kubectl: Kubectl, node: str, ns: str) -> None:
    refused = kubectl("drain", node, "--timeout=10s")
    assert refused.returncode == 1
    assert f"{ns}/one" in refused.stderr

    drained = said(kubectl("drain", node, "--force", "--timeout=30s"))

    assert "pod/one evicted" in drained
    assert f"node/{node} drained" in drained
    assert kubectl("get", "pod/one").returncode == 1


def test_drain_waits_for_a_disruption_budget(kubectl: Kubectl, server: Server, node: str, ns: str) -> None:
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    budgets = f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    assert server.call("POST", budgets, budget)[0] == 201
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    merge = "application/merge-patch+json"
    assert server.call("PATCH", f"/api/v1/namespaces/{ns}/pods/one/status", running, merge)[0] == 200
    counted = {
        "disruptionsAllowed": 0,
        "desiredHealthy": 1,
        "currentHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    assert server.call("PATCH", f"{budgets}/web/status", {"status": counted}, merge)[0] == 200

    waiting = kubectl("drain", node, "--force", f"--timeout={patient_seconds(2)}s")

    assert waiting.returncode == 1
    assert "Cannot evict pod as it would violate the pod's disruption budget." in waiting.stderr
    assert kubectl("get", "pod/one").returncode == 0


def test_apply_wait_and_explain_work_for_our_crds(kubectl: Kubectl) -> None:
    for how in ((), ("--server-side", "--force-conflicts")):
        said(kubectl("apply", *how, "-f", str(CRDS)))
    said(kubectl("wait", "--for=condition=Established", "-f", str(CRDS), "--timeout=30s"))

    reported = said(kubectl("explain", "nodepool.spec.disruption.consolidateAfter"))
    assert "GROUP:      karpenter.sh\nKIND:       NodePool\nVERSION:    v1\n" in reported
    assert "FIELD: consolidateAfter <string>" in reported


def test_missing_objects_and_kinds_are_reported(kubectl: Kubectl, ns: str) -> None:
    for arguments, words in (
        (("get", "nothing"), 'error: the server doesn\'t have a resource type "nothing"'),
        (("get", "pod", "nobody"), 'Error from server (NotFound): pods "nobody" not found'),
        (("create", "namespace", ns), f'Error from server (AlreadyExists): namespaces "{ns}" already exists'),
    ):
        refused = kubectl(*arguments)
        assert (refused.returncode, refused.stderr.strip()) == (1, words)


def test_auth_whoami_and_auth_can_i_are_answered(kubectl: Kubectl) -> None:
    assert said(kubectl("auth", "can-i", "create", "pods")) == "yes\n"
    assert "system:masters" in said(kubectl("auth", "whoami"))
    assert said(kubectl("get", "--raw", "/readyz")) == "ok"
