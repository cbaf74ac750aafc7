"""`nodesmith validate` on broken files: a message with the line, no traceback, and fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from nodesmith_cli.main import app
from tests.integration.brokenfiles import BROKEN, BUDGET, CLASS, DEPLOYMENT, POOL
from tests.objects import foreign

ROOT = Path(__file__).parents[3]
SOUND = "---\n".join((POOL, CLASS, DEPLOYMENT, BUDGET.replace("minAvailable: 2", "minAvailable: 1")))


def validated(file: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["validate", "-f", str(file), *options])


@pytest.fixture(scope="module", autouse=True)
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load what every run needs, so that no test is slowed down by it."""
    file = tmp_path_factory.mktemp("sound") / "sound.yaml"
    file.write_text(SOUND)
    validated(file)


@pytest.mark.parametrize("name", BROKEN)
def test_the_error_in_a_broken_file_is_reported_with_its_place(name: str, tmp_path: Path) -> None:
    broken, file = BROKEN[name], tmp_path / "broken.yaml"
    file.write_bytes(broken.text if isinstance(broken.text, bytes) else broken.text.encode())
    began = time.process_time()
    ran = validated(file, "-o", "json")
    took = time.process_time() - began

    findings = json.loads(ran.stdout)
    reported = [each for each in findings if broken.words in f"{each['field']}: {each['message']}"]
    assert reported, findings
    assert broken.line in (None, reported[0]["line"]), reported[0]
    assert reported[0]["severity"] == ("error" if broken.is_error else "warning")
    assert ran.exit_code == any(each["severity"] == "error" for each in findings)
    assert all(len(each["message"]) < 500 for each in findings)
    assert took < 2, "takes a second on an idle machine"


def test_findings_are_printed_as_yaml_or_selected_by_jsonpath_as_well(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(POOL.replace("kind: NodePool", "kind: NodePol"))
    findings = json.loads(validated(file, "-o", "json").stdout)
    assert yaml.safe_load(validated(file, "-o", "yaml").stdout) == findings != []
    assert validated(file, "-o", "jsonpath={[0].message}").stdout.rstrip() == findings[0]["message"]


def test_there_are_fifty_broken_files() -> None:
    assert len(BROKEN) >= 50


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "Ingress"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("networking.k8s.io/v1", "ServiceCIDR"),
        ("node.k8s.io/v1", "RuntimeClass"),
        ("storage.k8s.io/v1", "VolumeAttributesClass"),
        ("v1", "ResourceQuota"),
    ],
)
def test_kinds_that_no_decision_reads_are_not_called_unknown(
    api_version: str, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: web}}\n")
    assert validated(file).stdout == "1 object: 0 errors, 0 warnings\n"
    file.write_text(f"apiVersion: {api_version}\nkind: {kind[:-2]}\nmetadata: {{name: web}}\n")
    assert f"did you mean {kind!r}?" in validated(file).stdout


def test_unknown_fields_are_reported_beside_an_error_of_the_same_object(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    misspelt = DEPLOYMENT.replace("replicas: 2", 'replicas: "2"').replace(
        "image:", "imag: a\n          image:"
    )
    file.write_text(misspelt.replace("resources: {requests", "resources: {limit: {}, requests"))
    reported = json.loads(validated(file, "-o", "json").stdout)
    assert [(each["severity"], each["field"]) for each in reported] == [
        ("error", "spec.replicas"),
        ("warning", "spec.template.spec.containers[0].imag"),
        ("warning", "spec.template.spec.containers[0].resources.limit"),
    ]


def test_messages_about_very_long_names_and_fields_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(POOL.replace("name: default\nspec", f"name: {'a' * 2**20}\nspec") + f"  {'b' * 900}: 1\n")
    ran = validated(file)
    assert ran.exit_code == 1
    assert len(ran.stdout) < 5_000


def test_each_of_many_equal_pools_is_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "alike.yaml"
    pools = (POOL.replace("name: default\nspec", f"name: p{n}\nspec") for n in range(4))
    file.write_text("---\n".join([*pools, CLASS]))
    reported = [line for line in validated(file).stdout.splitlines() if "accepts the same pods" in line]
    assert [line.count("NodePool/p0, both") for line in reported] == [1, 1, 1]


@pytest.mark.parametrize(
    "text", [POOL.replace("limits:", "limits: ["), CLASS.replace("role: nodes", "role: 1")]
)
def test_a_broken_file_is_reported_without_importing_the_solver(text: str, tmp_path: Path) -> None:
    """Imports take most of the time. A small file should need a third of a second."""
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    program = (
        "import sys; from nodesmith_cli.main import app\n"
        f"try: app(['validate', '-f', {str(file)!r}])\n"
        "except SystemExit as ended: assert ended.code == 1\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    path = os.pathsep.join(("layers/core/python", "cli", "formats"))
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = ran.stderr.split()
    assert "nodesmith_cli.manifests.validating.command" in modules
    heavy = ("rich", "boto3", "kubernetes", "numpy", "nodesmith.decisions", "nodesmith.adapters", "http")
    assert [name for name in modules if name.startswith(heavy)] == []


def test_valid_files_have_no_findings(tmp_path: Path) -> None:
    file = tmp_path / "sound.yaml"
    file.write_text(SOUND)
    ran = validated(file)
    assert (ran.exit_code, ran.stdout) == (0, "4 objects: 0 errors, 0 warnings\n")


def test_a_windows_nodepool_with_a_taint_is_sound_beside_a_linux_one(tmp_path: Path) -> None:
    windows = CLASS.replace("al2023@latest", "windows2022@latest").replace("{name: default}", "{name: win}")
    tainted = "      taints: [{key: os, value: windows, effect: NoSchedule}]\n      requirements:"
    pool = POOL.replace("name: default\nspec", "name: win\nspec").replace("name: default}", "name: win}")
    file = tmp_path / "windows.yaml"
    file.write_text("---\n".join((SOUND, windows, pool.replace("      requirements:", tainted))))
    ran = validated(file)
    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (0, "6 objects: 0 errors, 0 warnings"), ran.stdout


def test_all_findings_are_reported_in_the_order_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        POOL.replace("weight: 10", "weight: 0").replace("operator: In", "operator: in")
        + f"---\n{CLASS}---\nkind: [\n"
    )
    ran = validated(file)
    lines = ran.stdout.splitlines()

    assert ran.exit_code == 1
    assert [line.partition(" (")[0] for line in lines[:3]] == [f"error: {file}:{n}" for n in (11, 14, 26)]
    assert lines[3] == "2 objects: 3 errors, 0 warnings"


def test_several_files_are_checked_together(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "class.yaml").write_text(CLASS.replace("name: default", "name: other"))
    ran = validated(tmp_path)
    assert f"error: {tmp_path / 'pool.yaml'}:8 (document 1, NodePool/default)" in ran.stdout
    assert "no such EC2NodeClass; found: other" in ran.stdout


def test_a_missing_class_that_may_exist_in_the_cluster_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    ran = validated(file)
    assert ran.exit_code == 0
    assert "found: none in these files" in ran.stdout


def test_a_misspelt_value_beside_a_known_one_is_a_warning(tmp_path: Path) -> None:
    family = "        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5, m66i]}\n  limits"
    file = tmp_path / "typo.yaml"
    file.write_text("---\n".join((POOL.replace("  limits", family), CLASS)))
    ran = validated(file)
    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == [
        (
            f"warning: {file}:13 (document 1, NodePool/default): spec.template.spec.requirements[1].values:"
            " has 'm66i', which no instance type of us-east-1 has, did you mean 'm6i'?"
        ),
        "2 objects: 0 errors, 1 warning",
    ]


def test_pods_that_a_taint_repels_have_no_host(tmp_path: Path) -> None:
    file = tmp_path / "taint.yaml"
    tainted = POOL.replace(
        "      requirements", "      taints: [{key: a, effect: NoSchedule}]\n      requirements"
    )
    file.write_text(f"{tainted}---\n{CLASS}---\n{DEPLOYMENT}")
    ran = validated(file)
    assert ran.exit_code == 1
    assert "Deployment/web): no NodePool can host its pods" in ran.stdout


def test_a_nodepool_of_auto_mode_is_a_warning_and_not_validated(tmp_path: Path) -> None:
    file = tmp_path / "auto.yaml"
    file.write_text(json.dumps(foreign.auto_mode_nodepool()) + "\n---\n" + SOUND)
    ran = validated(file, "-o", "json")
    (finding,) = json.loads(ran.stdout)
    assert (finding["severity"], finding["object"]) == ("warning", "NodePool/general-purpose")
    assert "is served by EKS Auto Mode" in finding["message"]
    assert ran.exit_code == 0


def test_mistakes_in_quotas_and_in_dollars_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    priced = POOL.replace(
        "  name: default\n",
        '  name: default\n  annotations:\n    nodesmith.dev/limit-usd-per-hour: "5 EUR"\n',
        1,
    )
    quota = """apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityQuota
metadata:
  name: gold
spec:
  limits:
    resources:
      node: 3
"""
    file.write_text("---\n".join((priced, CLASS, quota)))
    ran = validated(file, "-o", "json")
    reported = {each["field"]: (each["severity"], each["message"]) for each in json.loads(ran.stdout)}
    assert reported["spec.limits.resources.node"] == (
        "error",
        "is an unknown resource: did you mean 'nodes'?",
    )
    severity, message = reported["metadata.annotations[nodesmith.dev/limit-usd-per-hour]"]
    assert severity == "warning"
    assert "convert 5 EUR into US dollars" in message
    assert ran.exit_code == 1


_TEMPLATE = """apiVersion: v1
kind: PodTemplate
metadata: {name: worker}
template:
  spec:
    containers: [{name: main, image: busybox, resources: {requests: {cpu: "3"}}}]
---
"""
_REQUEST = """apiVersion: autoscaling.x-k8s.io/v1
kind: ProvisioningRequest
metadata: {name: train}
spec:
  provisioningClassName: %s
  podSets: %s
"""
_ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
_SETS = "[{podTemplateRef: {name: worker}, count: 5}]"


@pytest.mark.parametrize(
    ("class_name", "sets", "status", "said"),
    [
        (_ATOMIC, _SETS, 0, "0 errors, 0 warnings"),
        ("best-effort-atomic-scaleup.autoscaling.x-k8s.io", _SETS, 1, f"did you mean '{_ATOMIC}'?"),
        ("queued-provisioning.gke.io", _SETS, 0, "nodesmith serves check-capacity.autoscaling.x-k8s.io"),
        (
            _ATOMIC,
            "[" + "{podTemplateRef: {name: worker}, count: 1}," * 33 + "]",
            1,
            "has 33 items: at most 32",
        ),
        (_ATOMIC, "[{podTemplateRef: {name: workr}, count: 5}]", 1, "did you mean 'worker'?"),
        (_ATOMIC, "[{podTemplateRef: {name: worker}, count: 20000}]", 1, "spec.podSets[0].count"),
    ],
)
def test_a_provisioning_request_is_checked_with_its_class_pod_sets_and_templates(
    class_name: str, sets: str, status: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "request.yaml"
    file.write_text(_TEMPLATE + _REQUEST % (class_name, sets))
    result = validated(file)
    assert (result.exit_code, said in result.output) == (status, True), result.output


_CHECK = "check-capacity.autoscaling.x-k8s.io"
_PARAMETERS = "spec.parameters"


@pytest.mark.parametrize(
    ("class_name", "parameters", "status", "said"),
    [
        (_ATOMIC, '{ValidUntilSeconds: "600"}', 0, "0 errors, 0 warnings"),
        (_CHECK, '{noRetry: "TRUE"}', 0, "0 errors, 0 warnings"),
        (_ATOMIC, "[600]", 1, f"{_PARAMETERS}: is a list of 1: write a map of names to texts"),
        (
            _ATOMIC,
            "{ValidUntilSeconds: 600}",
            1,
            f"{_PARAMETERS}.ValidUntilSeconds: is 600: write a text, such as '600'",
        ),
        (_CHECK, "{noRetry: true}", 1, f"{_PARAMETERS}.noRetry: is true: write a text, such as 'true'"),
        (
            _ATOMIC,
            '{ValidUntilSeconds: "soon"}',
            1,
            f"{_PARAMETERS}.ValidUntilSeconds: is 'soon': write seconds",
        ),
        (_ATOMIC, '{validUntilSeconds: "600"}', 0, "has no effect, did you mean 'ValidUntilSeconds'?"),
        (
            _ATOMIC,
            '{ValidUntilSeconds: "700000"}',
            0,
            "is '700000': seven days (604800) are the most, and count",
        ),
        (
            _CHECK,
            '{noRetry: "yes"}',
            0,
            f"{_PARAMETERS}.noRetry: is 'yes': write 'true'; anything else counts as 'false'",
        ),
        (_ATOMIC, '{noRetry: "true"}', 0, f"{_PARAMETERS}.noRetry: has no effect: it is for check-capacity"),
        (
            _CHECK,
            '{partialCapacityCheck: "true"}',
            0,
            "has no effect: a request gets all of its room or none",
        ),
        ("queued-provisioning.gke.io", '{maxRunDurationSeconds: "60"}', 0, "0 errors, 1 warning\n"),
    ],
)
def test_parameters_of_a_provisioning_request_that_do_nothing_are_reported(
    class_name: str, parameters: str, status: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "request.yaml"
    file.write_text(_TEMPLATE + _REQUEST % (class_name, _SETS) + f"  parameters: {parameters}\n")
    result = validated(file)
    assert (result.exit_code, said in result.output) == (status, True), result.output


def test_a_warning_about_a_parameter_beside_an_error_is_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "request.yaml"
    parameters = '  parameters: {noRetry: true, partialCapacityCheck: "true"}\n'
    file.write_text(_TEMPLATE + _REQUEST % (_CHECK, _SETS) + parameters)
    assert "2 objects: 1 error, 1 warning\n" in validated(file).output


def test_a_podtemplate_that_may_exist_in_the_cluster_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "request.yaml"
    file.write_text(_REQUEST % (_ATOMIC, _SETS))
    result = validated(file)
    assert result.exit_code == 0
    assert "no such PodTemplate in namespace default; found: none in these files" in result.output
