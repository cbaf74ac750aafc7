"""What an AL2023 instance reads when it boots, byte for byte (golden/userdata)."""

from __future__ import annotations

import base64
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodesmith.decisions.launch.userdata.configurations import own_parts
from nodesmith.decisions.launch.userdata.starting import MalformedUserData, node_labels, registered_taints
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses.instancesettings import KubeletConfiguration
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith_local.aws.instances.userdata.reading import parse_user_data
from tests.objects.launching import CLAIM, NODECLASS, plan

GOLDEN = Path(__file__).parents[2] / "golden/userdata"
NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      shutdownGracePeriod: 30s
      maxPods: 5
"""
SHELL = "#!/bin/bash\necho 'joining'\n"
MIME = f"""Content-Type: multipart/mixed; boundary="BOUNDARY"
MIME-Version: 1.0

--BOUNDARY
Content-Type: text/cloud-config; charset="us-ascii"

#cloud-config
packages: [htop]

--BOUNDARY
Content-Type: application/node.eks.aws

{NODE_CONFIG}
--BOUNDARY--
"""
KUBELET = KubeletConfiguration(
    cluster_dns=("10.100.0.53", "10.100.0.10"),
    max_pods=42,
    pods_per_core=10,
    system_reserved=parse_resources({"cpu": "100m", "memory": "100Mi"}),
    kube_reserved=parse_resources({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}),
    eviction_hard=FrozenMap({"memory.available": "5%"}),
    eviction_soft=FrozenMap({"memory.available": "500Mi"}),
    eviction_soft_grace_period=FrozenMap({"memory.available": "1m30s"}),
    eviction_max_pod_grace_period=60,
    image_gc_high_threshold_percent=85,
    image_gc_low_threshold_percent=80,
    cpu_cfs_quota=True,
    other=FrozenMap({"serializeImagePulls": False}),
)
TAINTED = replace(
    CLAIM,
    taints=(Taint("team", "NoSchedule", "express"),),
    startup_taints=(Taint("cilium.io/agent-not-ready", "NoExecute"), Taint("team", "NoSchedule", "twice")),
)
CASES = {
    "plain": (NODECLASS, CLAIM),
    "shell-merged": (replace(NODECLASS, user_data=SHELL), CLAIM),
    "yaml-merged": (replace(NODECLASS, user_data=NODE_CONFIG), CLAIM),
    "mime-merged": (replace(NODECLASS, user_data=MIME), CLAIM),
    "kubelet": (replace(NODECLASS, kubelet=KUBELET), CLAIM),
    "taints": (NODECLASS, TAINTED),
    "raid0": (replace(NODECLASS, instance_store_policy="RAID0"), CLAIM),
    "custom": (replace(NODECLASS, ami_family="Custom", user_data="#!/bin/sh\r\nexec join\n"), CLAIM),
}


def texts(text: str) -> list[str]:
    """Return the user's own parts, as they are written."""
    return [part.as_string() for part in own_parts(text)]


def written(nodeclass: EC2NodeClass, claim: NodeClaim = CLAIM) -> str:
    _, (template,) = plan(nodeclass=nodeclass, claim=claim)
    return base64.b64decode(template.data["UserData"]).decode()


@pytest.mark.parametrize("case", CASES)
def test_user_data_is_byte_for_byte_the_same_as_before(case: str) -> None:
    """Run with UPDATE_GOLDEN=1 to accept a change on purpose."""
    path, text = GOLDEN / f"{case}.txt", written(*CASES[case])
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


def test_nodesmiths_nodeconfig_comes_last_so_that_it_wins() -> None:
    started = parse_user_data(written(replace(NODECLASS, user_data=NODE_CONFIG)))
    assert started.kubelet["maxPods"] == 29
    assert started.kubelet["shutdownGracePeriod"] == "30s"


def test_the_node_reads_back_what_was_written() -> None:
    labelled = replace(TAINTED, labels={**CLAIM.labels, "example.com/team": "express"})
    started = parse_user_data(written(replace(NODECLASS, kubelet=KUBELET), labelled))
    assert (started.cluster, started.endpoint) == ("express", "https://api.express.test")
    assert started.labels == node_labels(labelled, "spot")
    assert started.taints == tuple(registered_taints(labelled))
    assert started.kubelet["kubeReserved"] == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}
    assert started.kubelet["serializeImagePulls"] is False


def test_a_node_keeps_pods_off_until_it_is_registered() -> None:
    assert [str(taint) for taint in registered_taints(CLAIM)] == ["karpenter.sh/unregistered:NoExecute"]


def test_labels_that_the_kubelet_may_not_set_are_left_to_registration() -> None:
    labels = {
        "team": "express",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "us-east-1a",
        "node.kubernetes.io/instance-type": "m5.large",
        "custom.k8s.io/x": "y",
        "node-restriction.kubernetes.io/x": "y",
        "karpenter.k8s.aws/instance-cpu": "2",
    }
    assert node_labels(replace(CLAIM, labels=labels), "spot") == {
        "karpenter.k8s.aws/instance-cpu": "2",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/do-not-sync-taints": "true",
        "team": "express",
    }


@pytest.mark.parametrize("value", ['x" --authorization-mode=AlwaysAllow --v="1', "a,admin=true", "a\nb"])
def test_an_invalid_label_does_not_reach_the_kubelets_flags(value: str) -> None:
    claim = replace(CLAIM, labels={"team": value, "tier": "web"})
    assert "team" not in node_labels(claim, "spot")
    assert node_labels(claim, "spot")["tier"] == "web"


def test_a_boundary_that_occurs_in_a_users_part_is_not_used() -> None:
    text = written(replace(NODECLASS, user_data="#!/bin/sh\ncat <<END\n--//\nEND\n"))
    assert 'boundary="///"' in text
    assert parse_user_data(text).cluster == "express"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SHELL, "text/x-shellscript"),
        ("echo no shebang\n", "text/x-shellscript"),
        ("#cloud-config\npackages: [htop]\n", "text/cloud-config"),
        (NODE_CONFIG, "application/node.eks.aws"),
        ("---\n" + NODE_CONFIG, "application/node.eks.aws"),
        ('{"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig"}', "application/node.eks.aws"),
        ('{"kind":"NodeConfig","apiVersion":"node.eks.aws/v1alpha1"}', "application/node.eks.aws"),
        ("{kind: NodeConfig, apiVersion: node.eks.aws/v1alpha1}", "application/node.eks.aws"),
        ('{"kind": "NodeConfig", "apiVersion":\n "node.eks.aws/v1alpha1"}', "application/node.eks.aws"),
        ("#!/bin/sh\ncat <<END\n" + NODE_CONFIG + "END\n", "text/x-shellscript"),
    ],
)
def test_bare_user_data_is_a_nodeconfig_a_cloud_config_or_else_a_script(text: str, kind: str) -> None:
    (part,) = texts(text)
    assert part.startswith(f"Content-Type: {kind}")
    assert part.endswith(text)


def test_a_mime_document_may_begin_with_any_header_and_windows_line_ends() -> None:
    for text in (MIME, MIME.replace("\n", "\r\n"), "\n" + MIME):
        first, second = texts(text)
        assert first.startswith("Content-Type: text/cloud-config")
        assert "packages: [htop]" in first
        assert "shutdownGracePeriod: 30s" in second
        assert "\r" not in first + second


def test_a_mime_document_of_a_single_part_is_that_part() -> None:
    (part,) = texts("MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n")
    assert part == "Content-Type: text/x-shellscript\n\n#!/bin/sh\n"


def test_parts_inside_parts_are_kept_whole() -> None:
    inner = (
        'Content-Type: multipart/mixed; boundary="IN"\n\n--IN\nContent-Type: text/plain\n\nhello\n--IN--\n'
    )
    outer = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="OUT"\n'
    (part,) = texts(f"{outer}\n--OUT\n{inner}\n--OUT--\n")
    assert 'boundary="IN"' in part
    assert "hello" in part


def test_empty_user_data_has_no_parts() -> None:
    assert texts("") == texts(" \n") == []


def test_a_multipart_document_without_its_boundary_is_malformed() -> None:
    with pytest.raises(MalformedUserData, match="boundary"):
        texts('MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="A"\n\n--B\nx\n')


def test_parts_that_are_nested_too_deeply_are_malformed() -> None:
    levels = "".join(f'Content-Type: multipart/mixed; boundary="b{n}"\n\n--b{n}\n' for n in range(400))
    with pytest.raises(MalformedUserData, match="nested too deeply"):
        written(replace(NODECLASS, user_data=f"MIME-Version: 1.0\n{levels}Content-Type: text/plain\n\nx\n"))


def test_distinguishing_a_nodeconfig_from_a_script_takes_linear_time() -> None:
    before = time.process_time()
    texts("#" + "\n" * 200_000)
    assert time.process_time() - before < 1  # by trying every pair of lines it would take minutes
