"""`nodesmith convert` on realistic files: comments, Helm output, Lists, JSON, errors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from nodesmith.model.karpenter.conversion.converting import convert
from nodesmith_cli.main import app
from nodesmith_cli.manifests.converting.command import as_yaml
from nodesmith_formats.manifests.manifests import Document, read_documents
from tests.property.model.manifestsofold import old_objects
from tests.samples import sampled

OLD = """\
# Our default pool.
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata:
  name: default # the name
spec:
  # what may be bought
  requirements:
    # capacity
    - key: karpenter.sh/capacity-type
      operator: In
      values: ["spot", 'on-demand'] # cheap first
    - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [c, m, r]}

  limits: # for safety
    resources:
      cpu: "1000" # cores
  consolidation:
    enabled: true
  kubeletConfiguration:
    containerRuntime: containerd # not docker
    maxPods: 20 # few
  provider: # all of AWS
    subnetSelector:
      karpenter.sh/discovery: blue # tag
    securityGroupSelector: {karpenter.sh/discovery: blue}
    instanceProfile: nodes
    amiFamily: Bottlerocket
    userData: |
      #!/bin/bash
      # no comment
# the end
"""
NEW = """\
# Our default pool.
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default # the name
  annotations:
    nodesmith.dev/provisioner: default
spec:
  template:
    spec:
      # what may be bought
      requirements:
        # capacity
        - key: karpenter.sh/capacity-type
          operator: In
          values: ["spot", 'on-demand'] # cheap first
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
        - key: kubernetes.io/os
          operator: In
          values: [linux]
        - key: kubernetes.io/arch
          operator: In
          values: [amd64]
      expireAfter: Never
      nodeClassRef: # all of AWS
        group: karpenter.k8s.aws
        kind: EC2NodeClass
        name: default
  limits:
    cpu: "1000" # cores
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 0s
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: default
spec:
  subnetSelectorTerms:
    - tags:
        karpenter.sh/discovery: blue # tag
  securityGroupSelectorTerms:
    - tags: {karpenter.sh/discovery: blue}
  userData: |
    #!/bin/bash
    # no comment
  instanceProfile: nodes
  amiSelectorTerms:
    - alias: bottlerocket@latest
  metadataOptions:
    httpPutResponseHopLimit: 2
  kubelet:
    maxPods: 20 # few
# limits: for safety
# containerRuntime: not docker
# the end
"""
HELM = """\
---
# Source: chart/templates/blank.yaml
---

---
# Source: chart/templates/service.yaml
apiVersion: v1
kind: Service   # as it was
metadata: {name: x}
---
# Source: chart/templates/nothing.yaml
"""
LIST = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "karpenter.k8s.aws/v1alpha1",
            "kind": "AWSNodeTemplate",
            "metadata": {"name": "default", "uid": "1-2-3", "resourceVersion": "4", "labels": {"a": "b"}},
            "spec": {
                "subnetSelector": {"a": "b"},
                "securityGroupSelector": {"a": "b"},
                "instanceProfile": "nodes",
            },
            "status": {"subnets": []},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
    ],
}


OLD_CLASS = """\
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiFamily: AL2
  role: nodes
  subnetSelectorTerms: [{tags: {team: blue}}]
  securityGroupSelectorTerms: [{tags: {team: blue}}]
"""


def converted(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["convert", *arguments], input=stdin)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "old.yaml"


def test_comments_order_and_style_are_those_of_the_author(file: Path) -> None:
    file.write_text(OLD)
    ran = converted("-f", str(file))

    assert ran.exit_code == 0
    assert ran.stdout == NEW


def test_converted_objects_are_not_converted_again(file: Path) -> None:
    file.write_text(NEW)
    ran = converted("-f", str(file))
    assert (ran.stdout, ran.stderr, ran.exit_code) == (NEW, "", 0)


def test_current_objects_stay_unchanged_and_empty_documents_are_omitted() -> None:
    ran = converted("-f", "-", stdin=HELM)
    assert ran.stdout == HELM.partition("\n---\n\n---\n")[2].partition("---\n")[0]


def test_findings_have_their_place_in_the_file(file: Path) -> None:
    file.write_text(OLD)
    repaired, dropped = converted("-f", str(file)).stderr.splitlines()
    place, _, what = repaired.partition(": karpenter.k8s.aws/instance-cpu ")
    assert place == f"{file}:13 (document 1, Provisioner/default): spec.requirements[1].key"
    assert what == "is read as karpenter.k8s.aws/instance-category"
    place, _, what = dropped.partition(": has no effect: ")
    assert place == f"{file}:21 (document 1, Provisioner/default): spec.kubeletConfiguration.containerRuntime"
    assert what == "the container runtime is always containerd"


def test_the_report_has_every_change_with_its_risk(file: Path) -> None:
    file.write_text(OLD)
    ran = converted("-f", str(file), "--report")
    said = " ".join(ran.stderr.split())

    assert ran.stdout == NEW
    assert "13 spec.requirements[1].key repaired" in said
    assert "added does not constrain kubernetes.io/os: In linux was the" in said
    assert "spec.kubeletConfiguration.containerRuntime dropped has no effect" in said
    assert "lost = has no effect" in said


def test_lists_become_documents_and_json_a_list(file: Path) -> None:
    file.write_text(json.dumps(LIST))
    documents = list(yaml.safe_load_all(converted("-f", str(file)).stdout))
    whole = json.loads(converted("-f", str(file), "-o", "json").stdout)

    assert whole == {"apiVersion": "v1", "kind": "List", "items": documents}
    assert documents[0]["metadata"] == {"name": "default", "labels": {"a": "b"}}, (
        "no fields that only a server sets"
    )
    assert "status" not in documents[0]
    assert documents[1] == LIST["items"][1]


def test_an_unchanged_list_stays_a_list() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: x}}\n"
    assert converted("-f", "-", stdin=text).stdout == text


def test_anchors_are_written_out() -> None:
    text = (
        "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: &name default}\nspec:\n"
        "  template:\n    spec:\n      nodeClassRef: {name: *name}\n      requirements: []\n"
    )
    (pool,) = yaml.safe_load_all(converted("-f", "-", stdin=text).stdout)
    assert pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "default"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (OLD.replace("provider:", "providr:"), 1, "spec.providr: is an unknown field"),
        (OLD.replace("provider:", "providr:"), 1, "spec.providerRef: is missing: name the AWSNodeTemplate"),
        (
            OLD.replace('"1000"', "many"),
            1,
            ":17 (document 1, Provisioner/default): spec.limits.resources.cpu: is",
        ),
        (OLD + "---\nkind: [\n", 2, "not YAML"),
        ("", 2, "nothing to convert"),
    ],
)
def test_failed_conversions_are_reported_and_set_the_exit_status(text: str, status: int, words: str) -> None:
    ran = converted("-f", "-", stdin=text)
    heard = ran.stderr + str(ran.exception or "")
    assert words in heard
    if text:
        assert ran.exit_code == status


def test_options_replace_the_settings_of_the_installation(file: Path) -> None:
    file.write_text(
        OLD.replace("    instanceProfile: nodes\n", "").replace("amiFamily: Bottlerocket", "amiFamily: AL2")
    )
    ran = converted("-f", str(file), "--role", "mine", "--kubernetes-version", "1.30")
    spec = list(yaml.safe_load_all(ran.stdout))[1]["spec"]
    assert (spec["role"], spec["amiSelectorTerms"]) == ("mine", [{"alias": "al2@latest"}])


def _becomes(manifest: dict[str, Any]) -> tuple[bool, str]:
    return manifest["kind"] in {"NodePool", "Provisioner"}, manifest["metadata"]["name"]


COMMENT = st.sampled_from(["", "  # one", "  # two: three"])


@settings(
    max_examples=sampled(30, whole=100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(old_objects(), min_size=1, max_size=3, unique_by=_becomes), st.booleans(), st.data())
def test_the_yaml_output_equals_the_objects_and_keeps_every_comment(
    monkeypatch: pytest.MonkeyPatch, manifests: list[dict[str, Any]], flow: bool, data: st.DataObject
) -> None:
    text = yaml.safe_dump_all(
        manifests, default_flow_style=None if flow else False, sort_keys=False, width=10**6
    )
    lines = [line + data.draw(COMMENT) if line.endswith(":") else line for line in text.splitlines()]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    documents = [found for found in read_documents(["-"]) if isinstance(found, Document)]
    conversion = convert([document.manifest for document in documents])
    written = as_yaml(documents, conversion)

    assert list(yaml.safe_load_all(written)) == [each.manifest for each in conversion.objects]
    given = "\n".join(lines)
    assert written.count("# one") + written.count(": one") >= given.count("# one")


@pytest.mark.parametrize(
    ("version", "alias"),
    [("1.31", "al2"), ("v1.31", "al2"), ("v1.31.4-eks-a1b2c3", "al2"), ("1.33.0", "al2023"), ("", "al2023")],
)
def test_the_version_of_kubernetes_is_read_as_kubectl_prints_it(file: Path, version: str, alias: str) -> None:
    file.write_text(OLD_CLASS)
    assert f"alias: {alias}@latest" in converted("-f", str(file), "--kubernetes-version", version).stdout


def test_text_that_is_no_version_of_kubernetes_is_refused(file: Path) -> None:
    file.write_text(OLD_CLASS)
    refused = converted("-f", str(file), "--kubernetes-version", "latest")
    assert str(refused.exception) == "--kubernetes-version latest: write a version such as 1.32"
