"""What `kubectl apply -k forwarder/` installs: every listed manifest, only the rights that the code uses, no root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith.errors import Rejected
from nodesmith.observation.mirror import WATCHED
from nodesmith_cli.sharing.findings import WHOLE, WITHOUT_SHARED_CRDS
from nodesmith_cli.sharing.ownership import SHARED_CRDS
from nodesmith_forwarder.settings import read_forwarder_settings

ROOT = Path(__file__).parents[3]
FORWARDER = ROOT / "forwarder"


def load(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def find(kind: str, name: str = "") -> dict[str, Any]:
    found = [
        document
        for path in sorted((FORWARDER / "base").glob("*.yaml"))
        for document in load(path)
        if document["kind"] == kind and name in ("", document["metadata"].get("name"))
    ]
    assert len(found) == 1, f"{kind} {name}: {len(found)} found"
    return found[0]


def pod_spec() -> dict[str, Any]:
    spec: dict[str, Any] = find("Deployment")["spec"]["template"]["spec"]
    return spec


def settings_file() -> dict[str, str]:
    lines = (FORWARDER / "forwarder.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize(("folder", "others"), [(FORWARDER / "base", set()), (FORWARDER, {"base"})])
def test_every_manifest_is_listed_and_every_listed_one_exists(folder: Path, others: set[str]) -> None:
    (kustomization,) = load(folder / "kustomization.yaml")
    beside = folder if folder.name == "base" else folder / "crds"
    there = {str(path.relative_to(folder)) for path in beside.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there | others


def test_the_forwarder_may_read_exactly_what_it_watches() -> None:
    granted = {
        (group, resource, verb)
        for rule in find("ClusterRole", "nodesmith-reader")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    used = set()
    for kind in WATCHED:
        _, api, *rest = kind.path.split("/")
        group = rest[0] if api == "apis" else ""
        used |= {(group, rest[-1], verb) for verb in ("get", "list", "watch")}
    assert granted == used


def test_forwarder_and_observation_function_share_the_readers_role() -> None:
    subjects = find("ClusterRoleBinding", "nodesmith-reader")["subjects"]
    assert [(subject["kind"], subject["name"]) for subject in subjects] == [
        ("ServiceAccount", "nodesmith-forwarder"),
        ("User", "nodesmith:reader:CLUSTER_NAME"),
    ]


def test_the_names_match_the_stacks_pod_identity_association() -> None:
    access = (ROOT / "infra" / "access.py").read_text()
    account = find("ServiceAccount")["metadata"]
    assert f'FORWARDER_NAMESPACE = "{account["namespace"]}"' in access
    assert f'FORWARDER_SERVICE_ACCOUNT = "{account["name"]}"' in access
    assert find("Namespace")["metadata"]["name"] == account["namespace"]
    assert pod_spec()["serviceAccountName"] == account["name"]


def test_the_settings_file_names_every_required_setting() -> None:
    settings = settings_file()
    with pytest.raises(Rejected) as caught:
        read_forwarder_settings(settings)
    missing = {part.split()[0] for part in str(caught.value).removeprefix("settings: ").split("; ")}
    assert {*missing, "REACHED_FROM", "ALLOCATION_LABELS"} == {
        name for name, value in settings.items() if not value
    }
    read_forwarder_settings({name: value or "x" for name, value in settings.items()})


def test_the_pod_meets_the_restricted_security_standard_and_writes_no_files() -> None:
    spec = pod_spec()
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = spec["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in (FORWARDER / "Dockerfile").read_text()
    assert "volumes" not in spec


def test_pods_reach_only_the_forwarders_probes_and_metrics() -> None:
    policy = find("NetworkPolicy")["spec"]
    labels = find("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert (policy["policyTypes"], policy["ingress"]) == (
        ["Ingress"],
        [{"ports": [{"port": "health", "protocol": "TCP"}]}],
    )


def test_no_role_grants_access_to_secrets_or_configmaps() -> None:
    for name in ("nodesmith-reader", "nodesmith-writer"):
        for rule in find("ClusterRole", name)["rules"]:
            assert not {"secrets", "configmaps", "*"} & {
                *rule["resources"],
                *rule["apiGroups"],
                *rule["verbs"],
            }


def test_the_pod_does_not_stay_on_a_node_that_is_being_disrupted() -> None:
    for toleration in pod_spec()["tolerations"]:
        assert toleration.get("key"), "a toleration without a key tolerates everything"
        assert toleration["key"] != "karpenter.sh/disrupted"


def test_the_image_contains_only_what_is_copied() -> None:
    sources = {
        line.split()[1]
        for line in (FORWARDER / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
    }
    ignore = (FORWARDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignore[0] == "*"
    assert {line[1:] for line in ignore if line.startswith("!")} == sources
    assert all((ROOT / source).exists() for source in sources)


def test_the_overlay_for_auto_mode_omits_only_the_shared_crds() -> None:
    folder = ROOT / "overlays" / "shared-crds"
    (overlay,) = load(folder / "kustomization.yaml")
    assert [(folder / each).resolve() for each in overlay["resources"]] == [FORWARDER.resolve()]
    patches = [yaml.safe_load(each["patch"]) for each in overlay["patches"]]
    assert {each["metadata"]["name"] for each in patches} == set(SHARED_CRDS)
    assert {(each["$patch"], each["kind"]) for each in patches} == {("delete", "CustomResourceDefinition")}


def test_check_cluster_names_folders_that_exist() -> None:
    for folder in (WHOLE, WITHOUT_SHARED_CRDS):
        assert (ROOT / folder / "kustomization.yaml").is_file()


def policies(kind: str) -> list[dict[str, Any]]:
    documents = [each for path in sorted((FORWARDER / "base").glob("*.yaml")) for each in load(path)]
    return [document for document in documents if document["kind"] == kind]


def test_admission_policies_apply_to_the_functions_only() -> None:
    """A match condition that fails would reject everyone's writes, so it must not fail for a missing username."""
    expression = "request.userInfo.?username.orValue('').startsWith('nodesmith:writer:')"
    condition = {"name": "writer", "expression": expression}
    for policy in policies("ValidatingAdmissionPolicy"):
        spec = policy["spec"]
        assert (spec["failurePolicy"], spec["matchConditions"]) == ("Fail", [condition])
        assert "paramKind" not in spec, (
            "a policy with parameters is evaluated once for each of them, for all users"
        )


def test_every_admission_policy_is_bound_and_denies() -> None:
    bound = {
        binding["spec"]["policyName"]: binding["spec"]["validationActions"]
        for binding in policies("ValidatingAdmissionPolicyBinding")
    }
    names = {policy["metadata"]["name"] for policy in policies("ValidatingAdmissionPolicy")}
    assert bound.keys() == names
    assert set(map(tuple, bound.values())) == {("Deny", "Audit")}


def test_bindings_name_the_users_of_the_cluster_in_the_settings_file() -> None:
    (kustomization,) = load(FORWARDER / "kustomization.yaml")
    (replacement,) = kustomization["replacements"]
    assert replacement["source"]["fieldPath"] == "data.CLUSTER_NAME"
    (target,) = replacement["targets"]
    assert target["options"] == {"delimiter": ":", "index": 2}
    users = [
        subject["name"]
        for binding in policies("ClusterRoleBinding")
        for subject in binding["subjects"]
        if subject["kind"] == "User"
    ]
    assert sorted(users) == ["nodesmith:reader:CLUSTER_NAME", "nodesmith:writer:CLUSTER_NAME"]
