"""The reason of a pending pod is the one thing that is wrong, whatever other NodePools there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import Plan, decide
from tests.builders import (
    daemon,
    expression,
    inputs,
    ledger,
    nodeclass_manifest,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

TYPE, FAMILY, ZONE = (
    "node.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-family",
    "topology.kubernetes.io/zone",
)
OWN = {"team": "mine"}
SIZES = expression(TYPE, "In", "m5.large", "m5.xlarge")


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong: changes of the pod or its NodePool, and what the reason must name."""

    blocking: str
    said: str
    selector: dict[str, str] = field(default_factory=dict)
    cpu: str = "1"
    requests: dict[str, str] = field(default_factory=dict)
    pool: dict[str, Any] = field(default_factory=dict)
    requirement: dict[str, Any] | None = None
    daemons: tuple[Any, ...] = ()
    nodeclass: str = "default"

    @property
    def is_everywhere(self) -> bool:
        """Whether all NodePools lack it alike, so that any of them may be named."""
        return "tame" in self.selector or bool(self.requests)


CAUSES = [
    Cause(f"requirement {FAMILY} In [m55]", "did you mean 'm5'?", selector={FAMILY: "m55"}),
    Cause(f"requirement {TYPE} In [m5.lrage]", "did you mean 'm5.large'?", selector={TYPE: "m5.lrage"}),
    Cause(f"requirement {ZONE} In [us-east-1f]", "a subnet with free addresses", selector={ZONE: "us-east-1f"}),
    Cause(f"requirement {FAMILY} In [c5]", f"{TYPE} In [m5.large, m5.xlarge]", selector={FAMILY: "c5"}),
    Cause("requirement kubernetes.io/os In [windows]", "run linux", selector={"kubernetes.io/os": "windows"}),
    Cause("requirement kubernetes.io/arch In [arm]", "did you mean 'arm64'?", selector={"kubernetes.io/arch": "arm"}),
    Cause("requirement tame In [a]", "label 'tame' does not have known values", selector={"tame": "a"}),
    Cause("resource cpu", "the most that a node offers to pods is 3.92 (m5.xlarge)", cpu="90"),
    Cause("resource cpu", "besides the 3.5 that its DaemonSets take", daemons=(daemon(cpu="3500m"),)),
    Cause("resource example.com/fpga", "declare it on a NodeOverlay", requests={"example.com/fpga": "1"}),
    Cause("resource nvidia.com/gpus", "did you mean 'nvidia.com/gpu'?", requests={"nvidia.com/gpus": "1"}),
    Cause("limit cpu", "raise spec.limits.cpu to at least 2", pool={"limits": {"cpu": "1"}}),
    Cause("limit nodes", "raise spec.limits.nodes to at least 1", pool={"limits": {"nodes": "0"}}),
    Cause("taint a:NoSchedule", "add a toleration", pool={"taints": [{"key": "a", "effect": "NoSchedule"}]}),
    Cause("NodePool target", "'defualt' is missing or not valid, did you mean 'default'?", nodeclass="defualt"),
    Cause("NodePool target", "launches in us-east-1a", requirement=expression(ZONE, "In", "us-east-1f")),
    Cause("minValues", "2 of 3", requirement=expression(TYPE, "Exists", minValues=3)),
]  # fmt: skip
"""Each leaves a pod pending on its own."""
SELECTED, UNSELECTED = (
    [
        nodepool_manifest("other-team", labels={"team": "other"}),
        nodepool_manifest("tainted", labels={"team": "other"}, taints=[{"key": "x", "effect": "NoSchedule"}]),
        nodepool_manifest("other-team-broken", labels={"team": "other"}, nodeclass="gone"),
        nodepool_manifest("other-team-full", labels={"team": "other"}, limits={"cpu": "0"}),
    ],
    [nodepool_manifest("plain"), nodepool_manifest("heavy", weight=50)],
)  # fmt: skip


def decided(causes: Sequence[Cause], others: Sequence[dict[str, Any]]) -> Plan:
    selector, fields, requests, requirements = dict(OWN), dict[str, Any](), dict[str, str](), [SIZES]
    for cause in causes:
        selector |= cause.selector
        fields |= cause.pool
        requests |= cause.requests
        requirements += [cause.requirement] if cause.requirement else []
    nodeclass = next((cause.nodeclass for cause in causes if cause.nodeclass != "default"), "default")
    cpu = max((cause.cpu for cause in causes), key=int, default="1")
    target = nodepool_manifest("target", labels=OWN, requirements=requirements, nodeclass=nodeclass, **fields)
    seen = snapshot(
        pods=pods(shape(cpu, requests=requests, nodeSelector=selector)),
        nodepools=[target, *others],
        nodeclasses=[nodeclass_manifest()],
        daemonsets=[each for cause in causes for each in cause.daemons],
    )
    return decide(inputs(snapshot=seen, ledger=ledger()))


@given(
    st.sampled_from(CAUSES), st.lists(st.sampled_from([*SELECTED, *UNSELECTED]), unique_by=str, max_size=4)
)
def test_the_one_thing_that_is_wrong_is_the_reason(cause: Cause, others: list[dict[str, Any]]) -> None:
    assert decided([], others).nodes, "without the cause, the pod gets a node"

    (group,) = decided([cause], others).unplaced

    assert group.cause.nodepool == "target" or cause.is_everywhere
    assert group.cause.blocking == cause.blocking
    assert cause.said in str(group.cause)
    assert len(str(group.cause)) <= 1024


@given(st.lists(st.sampled_from(CAUSES), unique_by=str, min_size=2, max_size=2), st.permutations(SELECTED))
def test_of_two_things_that_are_wrong_one_is_the_reason(
    causes: list[Cause], others: list[dict[str, Any]]
) -> None:
    (group,) = decided(causes, others[:2]).unplaced

    assert group.cause.nodepool == "target" or any(cause.is_everywhere for cause in causes)
    kinds = {cause.blocking.partition(" ")[0] for cause in causes}
    assert group.cause.blocking.partition(" ")[0] in kinds
