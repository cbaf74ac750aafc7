"""Fleets for tests of disruption: running nodes, the claims of their purchase, and their NodePool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, DISRUPTED, INITIALIZED, INSTANCE_TYPE, NODEPOOL
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.moves import Move, Stage
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests import builders


@lru_cache(maxsize=1)
def kinds() -> Mapping[str, InstanceType]:
    """Return the embedded catalogue's types by name."""
    return {kind.name: kind for kind in instance_types(builders.catalog(), NodeConfiguration())}


ANY_NUMBER: tuple[Mapping[str, Any], ...] = ({"nodes": "100%"},)


@dataclass(frozen=True, slots=True)
class Worker:
    """A running node, with the claim of its purchase."""

    node: Node
    claim: NodeClaim


def worker(
    name: str,
    kind: str = "m5.xlarge",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    zone: str = builders.ZONES[0],
    capacity_type: str = "on-demand",
    pool: str = "default",
    claim: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Worker:
    """Return an initialized node, two hours old; keywords are fields of the Node, `claim` those of its claim."""
    labels = dict(kinds()[kind].labels)
    labels |= {INSTANCE_TYPE: kind, CAPACITY_TYPE: capacity_type, NODEPOOL: pool, INITIALIZED: "true"}
    labels |= fields.pop("labels", {})
    node = builders.node(name, cpu=cpu, memory=memory, zone=zone, labels=labels, **fields)
    since = builders.NOW - timedelta(hours=2)
    known: dict[str, Any] = {
        "nodepool": pool,
        "phase": Phase.INITIALIZED,
        "phase_since": since,
        "created_at": since,
        "initialized_at": since,
        "provider_id": node.provider_id,
        "node_name": name,
        "zone": zone,
        "capacity_type": capacity_type,
        "instance_type": kind,
        "labels": FrozenMap(node.labels),
    }
    return Worker(node, builders.claim(f"claim-{name}", **(known | dict(claim or {}))))


def pool(
    name: str = "default",
    *,
    policy: str = "WhenEmptyOrUnderutilized",
    after: str = "0s",
    budgets: Sequence[Mapping[str, Any]] = ANY_NUMBER,
    replicas: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return a NodePool's manifest that allows any disruption at once by default."""
    manifest = builders.nodepool_manifest(name, **fields)
    disruption = {"consolidationPolicy": policy, "consolidateAfter": after, "budgets": list(budgets)}
    manifest["spec"]["disruption"] = disruption
    if replicas is not None:
        manifest["spec"]["replicas"] = replicas
    return manifest


def running(shape: Shape, on: Mapping[str, int], **fields: Any) -> list[Pod]:
    """Return pods of a shape; `on` is the number of pods for each node."""
    return [pod for node, count in on.items() for pod in builders.bind(shape, node, count, **fields)]


def fleet(
    workers: Sequence[Worker],
    pods: Sequence[Pod] = (),
    *,
    pools: Sequence[Mapping[str, Any]] | None = None,
    moves: Sequence[Move] = (),
    claims: Sequence[NodeClaim] = (),
    **snapshot: Any,
) -> Inputs:
    """Return the inputs of a pass; `claims` are further claims without a Node."""
    seen = builders.snapshot(
        pods=pods,
        nodes=tuple(worker.node for worker in workers),
        nodepools=tuple(pools if pools is not None else [pool()]),
        **snapshot,
    )
    all_claims = (*(worker.claim for worker in workers), *claims)
    return builders.inputs(snapshot=seen, ledger=builders.ledger(claims=all_claims, moves=tuple(moves)))


def begun(inputs: Inputs, first: Proposal) -> tuple[Move, Inputs]:
    """Return the proposed move, and its cluster at the second look: the move is in the ledger, its nodes tainted."""
    move = Move("m1", first.reason, first.sources, Stage.PROPOSED, builders.NOW, builders.NOW)
    nodes = tuple(
        replace(node, taints=(DISRUPTED,)) if f"claim-{node.name}" in first.sources else node
        for node in inputs.snapshot.nodes
    )
    seen = replace(inputs.snapshot, nodes=nodes)
    return move, replace(inputs, snapshot=seen, ledger=replace(inputs.ledger, moves=(move,)))


def changed(worker: Worker, **fields: Any) -> Worker:
    """Return a worker whose Node differs in these fields."""
    return Worker(replace(worker.node, **fields), worker.claim)
