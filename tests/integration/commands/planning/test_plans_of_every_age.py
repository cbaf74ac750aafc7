"""`nodesmith plan` on manifests of all API versions since 2022. Mistakes are reported once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodesmith_cli.main import app

DEPLOYMENT = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: inflate}
spec:
  replicas: 20
  selector: {matchLabels: {app: inflate}}
  template:
    metadata: {labels: {app: inflate}}
    spec:
      nodeSelector: {karpenter.sh/provisioner-name: default}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {matchLabels: {app: inflate}}
      containers: [{name: a, image: busybox, resources: {requests: {cpu: "1"}}}]
"""
PROVISIONER = """
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: default}
spec:
  requirements:
    - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
    - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [c, m, r]}
  limits: {resources: {cpu: 1000}}
  consolidation: {enabled: true}
  provider:
    instanceProfile: nodes
    amiFamily: AL2023
    subnetSelector: {karpenter.sh/discovery: blue}
    securityGroupSelector: {karpenter.sh/discovery: blue}
"""
TODAY = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, annotations: {nodesmith.dev/provisioner: default}}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      expireAfter: Never
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
        - {key: kubernetes.io/os, operator: In, values: [linux]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
  limits: {cpu: 1000}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  instanceProfile: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: blue}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: blue}}]
"""


def planned(tmp_path: Path, text: str, *options: str) -> tuple[dict[str, Any], str]:
    file = tmp_path / "manifests.yaml"
    file.write_text(text)
    ran = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json", *options])
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def test_a_provisioner_of_2022_buys_spot_in_three_zones_and_its_mistake_is_reported_once(
    tmp_path: Path,
) -> None:
    plan, said = planned(tmp_path, PROVISIONER + DEPLOYMENT, "--audit")

    assert plan["unplaced"] == []
    assert sum(len(node["pods"]) for node in plan["nodes"]) == 20
    assert {node["zone"] for node in plan["nodes"]} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert {node["capacityType"] for node in plan["nodes"]} == {"spot"}
    assert {node["labels"]["karpenter.sh/provisioner-name"] for node in plan["nodes"]} == {"default"}
    assert said.count("karpenter.k8s.aws/instance-cpu is read as karpenter.k8s.aws/instance-category") == 1
    assert "audit: no violations found" in said


def test_an_old_manifest_has_the_same_plan_as_its_handwritten_conversion(tmp_path: Path) -> None:
    old, _ = planned(tmp_path, PROVISIONER + DEPLOYMENT)
    new, said = planned(tmp_path, TODAY + DEPLOYMENT)

    assert said == ""
    for plan in (old, new):
        plan.pop("seconds")
        for node in plan["nodes"]:
            node.pop("name")  # derived from the digest of the input
    assert old == new


def test_problems_of_a_converted_object_are_reported_with_their_line(tmp_path: Path) -> None:
    wrong = PROVISIONER.replace("cpu: 1000", "cpu: lots")
    file = tmp_path / "manifests.yaml"
    file.write_text(wrong + DEPLOYMENT)
    ran = CliRunner().invoke(app, ["plan", "-f", str(file)])
    place = f"{file}:9 (document 1, Provisioner/default): spec.limits.resources.cpu"
    assert f"{place}: is 'lots'" in ran.stderr
    assert "(today's spec.limits.cpu)" in ran.stderr


@pytest.mark.parametrize("key", ["karpenter.sh/nodepool", "karpenter.sh/provisioner-name"])
def test_pods_that_opt_out_of_every_provisioner_are_ignored(tmp_path: Path, key: str) -> None:
    affinity = (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        f"{{nodeSelectorTerms: [{{matchExpressions: [{{key: {key}, operator: DoesNotExist}}]}}]}}}}}}"
    )
    text = DEPLOYMENT.replace("nodeSelector: {karpenter.sh/provisioner-name: default}", affinity)
    plan, _ = planned(tmp_path, TODAY + text)
    assert plan["nodes"] == []
    assert "opted out" in plan["unplaced"][0]["reason"]


NODE = """
---
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{kubernetes.io/arch: amd64, kubernetes.io/os: linux, topology.kubernetes.io/zone: us-east-1a{labels}}}
spec: {{providerID: "aws:///us-east-1a/i-0{name}"}}
status:
  capacity: {{cpu: "8", memory: 32Gi, pods: "58"}}
  allocatable: {{cpu: 7900m, memory: 30Gi, pods: "58"}}
  conditions: [{{type: Ready, status: "True"}}]
"""
OF_A_GROUP = NODE.format(
    name="a", labels=", eks.amazonaws.com/nodegroup: a, eks.amazonaws.com/capacityType: ON_DEMAND"
)
SELF_MANAGED = NODE.format(name="b", labels="")


def pods(number: int, selector: str = "{}") -> str:
    return f"""
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {number}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      nodeSelector: {selector}
      containers: [{{name: a, image: busybox, resources: {{requests: {{cpu: "1"}}}}}}]
"""


def test_nodes_of_node_groups_and_of_other_tools_are_filled_first_and_never_moved(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, TODAY + OF_A_GROUP + SELF_MANAGED + pods(14))
    assert plan["nodes"] == []
    assert {each["node"]: len(each["pods"]) for each in plan["existing"]} == {"a": 7, "b": 7}

    file = tmp_path / "idle.yaml"
    file.write_text(TODAY + OF_A_GROUP + SELF_MANAGED)
    ran = CliRunner().invoke(app, ["plan", "--consolidate", "-f", str(file), "-o", "json"])
    found = json.loads(ran.stdout)
    assert (found["moves"], found["kept"], found["nodes"]) == ([], [], 0)


def test_pods_that_select_a_node_groups_capacity_may_run_in_that_group(tmp_path: Path) -> None:
    selecting = pods(5, "{eks.amazonaws.com/capacityType: ON_DEMAND}")
    plan, _ = planned(tmp_path, TODAY + OF_A_GROUP + SELF_MANAGED + selecting)
    assert {each["node"]: len(each["pods"]) for each in plan["existing"]} == {"a": 5}
