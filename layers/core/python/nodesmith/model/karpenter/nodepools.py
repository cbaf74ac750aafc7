"""NodePool, karpenter.sh/v1: which nodes may be bought, how many, and how they may be disrupted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import PROVISIONER_NAME
from nodesmith.model.apimachinery.problems import Parsed, ParseOnce
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements
from nodesmith.model.apimachinery.resources import NOTHING, Resources, parse_resources
from nodesmith.model.apimachinery.taints import Taint
from nodesmith.model.hashes import content_hash, nodepool_hash
from nodesmith.model.karpenter.disruption import USUAL_DISRUPTION, Disruption, read_disruption
from nodesmith.model.karpenter.nodepoolannotations import DEFAULTS, PROVISIONER_UID, Options, read_options
from nodesmith.model.karpenter.nodespec import NodeClassRef, read_requirements, read_taints
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.schema.reading import read_manifest

NODES = "nodes"
"""The limit on the number of nodes. All other limits are resources."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool with its defaults filled in."""

    name: str
    nodeclass: NodeClassRef
    requirements: Requirements = NO_REQUIREMENTS
    labels: Mapping[str, str] = NO_ITEMS
    """From `spec.template.metadata`, like `annotations`."""
    annotations: Mapping[str, str] = NO_ITEMS
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    """Maximum age of a node, or `Never`."""
    termination_grace_period: str | None = None
    """How long a drain may take before the remaining pods are deleted; None for as long as it takes."""
    disruption: Disruption = USUAL_DISRUPTION
    limits: Resources = NOTHING
    """Limits, including `NODES`. A resource that is not named is not limited; 0 allows nothing."""
    weight: int = 0
    replicas: int | None = None
    options: Options = DEFAULTS
    """The options in nodesmith's annotations."""
    uid: str = ""
    generation: int = 0
    hash: str = ""
    """Karpenter's hash of the fields whose change replaces nodes (static drift)."""
    content: str = ""
    """Hash of the whole object, see `content_hash`."""
    deleting: bool = False

    @property
    def owner_uid(self) -> str:
        """The uid of the owner of its NodeClaims: itself or the Provisioner that it was converted from, or empty."""
        return self.uid or self.options.provisioner_uid

    @property
    def node_surcharge_hourly_usd(self) -> float:
        """The cost of each node beyond its instance."""
        return self.options.node_surcharge_hourly_usd

    @property
    def is_static(self) -> bool:
        """True if the NodePool keeps a fixed number of nodes, regardless of pods."""
        return self.replicas is not None


def parse_nodepool(manifest: Mapping[str, object]) -> Parsed[NodePool]:
    """Read a NodePool and report all of its problems. Never raises."""
    read = read_manifest(NODE_POOL, manifest)
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    annotations = read.metadata.get("annotations", {})
    options = read_options(annotations, read.report)
    template = read.spec["template"]
    fields = _template(template.get("metadata", {}), template["spec"])
    if options.provisioner:
        fields["labels"] = FrozenMap({**fields["labels"], PROVISIONER_NAME: options.provisioner})
    pool = NodePool(
        **read.identity,
        **fields,
        disruption=read_disruption(
            read.spec["disruption"], annotations, read.report, of_old=bool(options.provisioner)
        ),
        limits=parse_resources(read.spec.get("limits")),
        weight=read.spec.get("weight", 0),
        replicas=read.spec.get("replicas"),
        hash=nodepool_hash(template),
        content=content_hash(read),
        options=options,
    )
    return Parsed(pool, read.report.problems)


parse_nodepools = ParseOnce(parse_nodepool)


def parsed_nodepools(manifests: tuple[Mapping[str, object], ...]) -> dict[str, NodePool]:
    """Return the NodePools that can be read, by name."""
    pools = (parsed.value for parsed in parse_nodepools(manifests))
    return {pool.name: pool for pool in pools if pool is not None}


def rebalances_zones(pools: Iterable[NodePool]) -> bool:
    """Return whether any NodePool asks for zone rebalancing. If so, moves of all NodePools respect it."""
    return any(pool.disruption.rebalances_zones for pool in pools)


def owner_uid(manifest: Mapping[str, Any]) -> str:
    """Return the uid of the owner of a NodePool's NodeClaims, whether or not the NodePool can be read.

    Empty if there is no owner.
    """
    metadata = manifest.get("metadata") or {}
    return str(metadata.get("uid") or (metadata.get("annotations") or {}).get(PROVISIONER_UID) or "")


def _template(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "labels": FrozenMap(metadata.get("labels")),
        "annotations": FrozenMap(metadata.get("annotations")),
        "nodeclass": NodeClassRef(**spec["nodeClassRef"]),
        "requirements": read_requirements(spec["requirements"]),
        "taints": read_taints(spec.get("taints", ())),
        "startup_taints": read_taints(spec.get("startupTaints", ())),
        "expire_after": spec["expireAfter"],
        "termination_grace_period": spec.get("terminationGracePeriod"),
    }
