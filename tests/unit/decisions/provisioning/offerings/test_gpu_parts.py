"""GPUs in parts: how a NodePool says what its device plugin offers, and which nodes pods then get."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.model.apimachinery.labels import ARCH, INSTANCE_TYPE
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.instancetypes import instance_types, read_gpu_parts
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import Image
from tests import builders
from tests.builders import NOW, ZONES

KEY = "nodesmith.dev/gpu-resources"
MIG = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nvidia.com/gpu=4", (("nvidia.com/gpu", 4),)),
        ("nvidia.com/gpu.shared=10", (("nvidia.com/gpu.shared", 10),)),
        ("nvidia.com/mig-2g.20gb=1, nvidia.com/mig-1g.10gb=5", ((MIG, 5), ("nvidia.com/mig-2g.20gb", 1))),
        ("", None),
        ("nvidia.com/gpu", None),
        ("nvidia.com/gpu=0", None),
        ("nvidia.com/gpu=-1", None),
        ("nvidia.com/gpu=999", None),
        ("cpu=4", None),
        ("nvidia.com/gpu=2,nvidia.com/gpu=4", None),
    ],
)
def test_parts_are_read_or_refused_as_a_whole(text: str, parts: Any) -> None:
    assert read_gpu_parts(text) == parts


def bought(parts: str, count: int, kind: str = "g5.xlarge", **requests: str) -> tuple[PlannedNode, ...]:
    only = builders.expression(INSTANCE_TYPE, "In", kind)
    pool = builders.nodepool_manifest(requirements=[only])
    if parts:
        pool["metadata"]["annotations"] = {KEY: parts}
    pods = builders.pods(builders.shape(cpu="100m", requests=requests), count)
    image = Image("ami-nvidia", requirements=Requirements.of(requirement(ARCH, "In", ["amd64"])))
    ledger = builders.ledger(nodeclasses={"default": builders.nodeclass_status(images=(image,))})
    seen = builders.snapshot(pods=pods, nodepools=(pool,))
    return decide(builders.inputs(snapshot=seen, ledger=ledger)).nodes


def test_pods_share_a_gpu_that_is_time_sliced() -> None:
    assert len(bought("", 4, **{"nvidia.com/gpu": "1"})) == 4
    (node,) = bought("nvidia.com/gpu=4", 4, **{"nvidia.com/gpu": "1"})
    assert node.claim.capacity.of("nvidia.com/gpu") == 4
    assert node.claim.annotations[KEY] == "nvidia.com/gpu=4"


def test_parts_with_names_of_their_own_replace_the_gpu() -> None:
    (node,) = bought("nvidia.com/gpu.shared=2", 2, **{"nvidia.com/gpu.shared": "1"})
    assert node.claim.capacity.of("nvidia.com/gpu.shared") == 2
    assert node.claim.capacity.of("nvidia.com/gpu") == 0
    assert not bought("nvidia.com/gpu.shared=2", 1, **{"nvidia.com/gpu": "1"})
    assert not bought("", 1, **{"nvidia.com/gpu.shared": "1"})


def test_a_type_with_eight_gpus_has_the_parts_of_all_of_them() -> None:
    (node,) = bought(f"{MIG}=7", 56, "p5.48xlarge", **{MIG: "1"})
    assert node.claim.capacity.of(MIG) == 56


def test_a_claim_keeps_the_parts_when_it_is_launched() -> None:
    (node,) = bought("nvidia.com/gpu=4", 4, **{"nvidia.com/gpu": "1"})
    (kind,) = (t for t in instance_types(builders.catalog(), NodeConfiguration()) if t.name == "g5.xlarge")
    when = NOW + timedelta(seconds=1)
    instance = Instance("i-1", node.claim.name, "g5.xlarge", ZONES[0], "on-demand", "ami-1", "pending", when)
    assert launched_claim(node.claim, instance, kind, when).allocatable.of("nvidia.com/gpu") == 4


def test_a_malformed_annotation_is_reported_and_ignored() -> None:
    manifest = builders.nodepool_manifest()
    manifest["metadata"]["annotations"] = {KEY: "nvidia.com/gpu"}
    parsed = parse_nodepool(manifest)
    assert parsed.value is not None
    assert parsed.value.options.gpu_parts == ()
    (problem,) = parsed.problems
    assert "nvidia.com/mig-1g.10gb=7" in str(problem)
