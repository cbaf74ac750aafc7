"""Whether a pod gets a node does not depend on other pending pods, unless limits or rules about pods connect them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.kubernetes.pods import Pod
from tests.builders import expression, inputs, ledger, nodepool_manifest, pods, shape, snapshot
from tests.samples import sampled

TYPE, FAMILY = "node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family"
CATEGORY, ARCH = "karpenter.k8s.aws/instance-category", "kubernetes.io/arch"
CAPACITY, ZONE = "karpenter.sh/capacity-type", "topology.kubernetes.io/zone"
EITHER = expression(CAPACITY, "In", "spot", "on-demand")
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
TOLERATED = [{"key": "dedicated", "operator": "Exists"}]
SELECTORS = [
    {},
    {TYPE: "m5.large"},
    {TYPE: "c5a.large"},
    {TYPE: "m5.metal"},
    {TYPE: "g4dn.xlarge"},
    {FAMILY: "r5"},
    {FAMILY: "c5"},
    {CATEGORY: "g"},
    {ARCH: "arm64"},
    {CAPACITY: "on-demand"},
    {ZONE: "us-east-1b", CATEGORY: "c"},
    {"team": "red"},
]
POOLS = [
    nodepool_manifest("plain", requirements=(EITHER,)),
    nodepool_manifest("choosy", requirements=(EITHER, expression(FAMILY, "Exists", minValues=2))),
    nodepool_manifest("choosier", requirements=(EITHER, expression(TYPE, "Exists", minValues=5))),
    nodepool_manifest("tainted", requirements=(EITHER,), taints=[TAINT]),
    nodepool_manifest("red", requirements=(EITHER,), labels={"team": "red"}),
    nodepool_manifest("heavy", requirements=(expression(CATEGORY, "In", "c", "g"), EITHER), weight=50),
    nodepool_manifest("spot", requirements=(expression(CAPACITY, "In", "spot"),)),
]


def decided(some: list[Pod], pools: list[dict[str, Any]]) -> Plan:
    return decide(inputs(snapshot=snapshot(pods=some, nodepools=pools), ledger=ledger()))


def unplaced(plan: Plan) -> set[str]:
    return {key for group in plan.unplaced for key in group.pods}


def drawn(dice: random.Random) -> list[Pod]:
    """Return pods that nothing connects: each selects something of its own."""
    found: list[Pod] = []
    for number in range(dice.randint(3, 9)):
        tolerations = dice.choice([TOLERATED, []])
        cpu, memory, selector = (
            dice.choice(["100m", "1", "7"]),
            dice.choice(["64Mi", "4Gi"]),
            dice.choice(SELECTORS),
        )
        found += pods(
            shape(cpu, memory, nodeSelector=selector, tolerations=tolerations), prefix=f"web-{number}"
        )
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(sampled(20, whole=400)))
def test_a_pod_gets_a_node_beside_others_if_it_gets_one_alone(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 a workload, not a secret
    pools, some = dice.sample(POOLS, dice.choice([2, 3])), drawn(dice)

    alone = {key for pod in some for key in unplaced(decided([pod], pools))}

    assert unplaced(decided(some, pools)) == alone
