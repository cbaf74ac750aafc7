"""Deletion by hand of a node, claim, NodePool or instance, in each phase and in one cluster, ends cleanly each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.karpenter.nodepools import REGISTRATION_TIMEOUT
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System
from tests.objects.manifests import budget, deployment, nodeclass, nodepool, requirement, taint

pytestmark = pytest.mark.slow
ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge")
HOME = "victim"
"""The label that names a pod's own NodePool, and the NodePool that it may move to."""
REFUGE = "refuge"
PHASES = ("launched", "registered", "ready", "draining")
STEPS = ["Launched", "Registered", "Initialized"]
WAYS = ("node", "nodeclaim", "nodepool", "instance")


@dataclass(slots=True)
class Victim:
    """A NodePool with one node and one pod, named after its phase and after what is deleted."""

    phase: str
    way: str
    claim: str = ""
    node: str = ""
    instance: str = ""

    @property
    def name(self) -> str:
        return f"{self.phase}-{self.way}"

    @property
    def is_kept(self) -> bool:
        """Whether its pod must stay until its budget is deleted: it runs, and its instance was not terminated."""
        return self.phase == "draining" and self.way != "instance"

    def manifests(self) -> Iterator[Manifest]:
        """Yield its NodePool, its Deployment and, for a drain that must not finish, a PodDisruptionBudget."""
        mute, wary = self.phase == "launched", self.phase == "registered"
        pool: Any = nodepool(
            self.name,
            requirements=[ONE_SIZE],
            labels={HOME: self.name},
            nodeclass="mute" if mute else "default",
            startup_taints=[taint("example.com/agent", "absent")] if wary else [],
        )
        pool["metadata"]["annotations"] = {REGISTRATION_TIMEOUT: "24h"}
        pool["spec"]["disruption"] = {"consolidateAfter": "Never"}
        yield pool
        terms = [{"matchExpressions": [requirement(HOME, self.name, REFUGE)]}]
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        yield deployment(self.name, 1, affinity={"nodeAffinity": affinity})
        if self.phase == "draining":
            yield budget(self.name, maxUnavailable=0)

    def found(self, claims: Sequence[Manifest]) -> Manifest:
        """Return its NodeClaim, or an empty mapping, and record the names of its node and instance."""
        mine = [claim for claim in claims if claim["metadata"]["labels"].get(NODEPOOL) == self.name]
        claim: Manifest = mine[0] if mine else {}
        status = claim.get("status") or {}
        self.claim = claim["metadata"]["name"] if claim else ""
        self.instance = status.get("providerID", "").rpartition("/")[2]
        self.node = status.get("nodeName", "")
        return claim

    def is_in_phase(self, claims: Sequence[Manifest]) -> bool:
        """Return whether it has reached the phase in which it ends, or in which its drain starts."""
        claim = self.found(claims)
        reached = [t for t in STEPS if claim and condition(claim, t).get("status") == "True"]
        return reached == STEPS[: {"launched": 1, "registered": 2}.get(self.phase, 3)]

    @property
    def deleted(self) -> str:
        """Return the name of the object to delete."""
        return {"node": self.node, "nodeclaim": self.claim, "nodepool": self.name}.get(
            self.way, self.instance
        )


def delete(system: System, victims: Sequence[Victim]) -> None:
    """Delete the chosen object of each victim by hand."""
    by_way = {way: [victim.deleted for victim in victims if victim.way == way] for way in WAYS}
    system.aws.client("ec2").terminate_instances(InstanceIds=by_way.pop("instance"))
    for kind, names in by_way.items():
        system.kubectl("delete", kind, *names, "--wait=false")


def runs(system: System, app: str) -> bool:
    return [pod["status"].get("phase") for pod in system.pods(app)] == ["Running"]


def is_closed(node: Manifest) -> bool:
    taints = node["spec"].get("taints") or ()
    return any(each["key"] == "karpenter.sh/disrupted" for each in taints)


def test_any_object_deleted_by_hand_in_any_phase_ends_cleanly(start: Start) -> None:
    system = start(speed=HURRIED)
    victims = [Victim(phase, way) for phase in PHASES for way in WAYS if (phase, way) != ("launched", "node")]
    mute = nodeclass(
        CLUSTER, "mute", amiFamily="Custom", userData="#!/bin/sh\necho 'this joins no cluster'\n"
    )
    system.apply(nodeclass(CLUSTER), mute, *(each for victim in victims for each in victim.manifests()))

    def are_in_phase() -> bool:
        claims = system.claims()
        return all(victim.is_in_phase(claims) for victim in victims)

    system.until("every victim is in its phase", are_in_phase)
    system.until(
        "pods run where they can",
        lambda: all(runs(system, victim.name) for victim in victims if victim.phase in ("ready", "draining")),
    )
    refuge = nodepool(REFUGE, requirements=[ONE_SIZE], labels={HOME: REFUGE}, weight=100)
    system.apply(refuge)
    system.until_nodepools_ready()
    draining = [victim for victim in victims if victim.phase == "draining"]
    before = {pod["metadata"]["name"] for victim in draining for pod in system.pods(victim.name)}
    system.kubectl("delete", "nodeclaim", *(victim.claim for victim in draining), "--wait=false")
    nodes = {victim.node for victim in draining}
    system.until(
        "the draining nodes are tainted",
        lambda: nodes == {n["metadata"]["name"] for n in system.nodes() if is_closed(n)},
    )
    delete(system, victims)

    kept = {victim.instance for victim in victims if victim.is_kept}
    mine = {victim.instance for victim in victims}
    system.until(
        "all are gone except those that a PodDisruptionBudget keeps",
        lambda: mine & {i["InstanceId"] for i in system.instances()} == kept,
        seconds=90,
    )
    for victim in victims:
        if victim.is_kept:
            assert before & {pod["metadata"]["name"] for pod in system.pods(victim.name)}, victim.name
    system.kubectl("delete", "poddisruptionbudget", "--all")

    system.until(
        "nothing is left over, and all pods run elsewhere",
        lambda: not left(system, victims) and all(in_refuge(system, victim.name) for victim in victims),
        seconds=90,
    )
    system.until_settled()
    assert {claim.nodepool for claim in system.ledger().claims} == {REFUGE}
    assert len(system.pods()) == len(victims)


def in_refuge(system: System, app: str) -> bool:
    return runs(system, app) and system.labels_of_nodes(app, NODEPOOL) == [REFUGE]


def left(system: System, victims: list[Victim]) -> set[str]:
    """Return the names of what is left over: NodeClaims, Nodes, instances and ledger entries."""
    there = {each["metadata"]["name"] for each in (*system.claims(), *system.nodes())}
    there |= {each["InstanceId"] for each in system.instances()}
    there |= {each.name for each in system.ledger().claims}
    return there & {name for v in victims for name in (v.claim, v.node, v.instance) if name}
