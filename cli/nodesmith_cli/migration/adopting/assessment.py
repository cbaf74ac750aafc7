"""The assessment of each NodeClaim and instance of a cluster. It consists of values; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from nodesmith.adapters.ec2.instances import Machine
from nodesmith.decisions.disruption.drift import NO_DRIFT, DesiredState, drifted
from nodesmith.decisions.readiness.launchconditions import rehashed
from nodesmith.decisions.takeover import KARPENTER, ClusterContext, claim_of, holders_of
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaimobjects import ORIGIN
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.karpenter.ownership import (
    MANAGED_BY_TAG,
    is_foreign,
    is_karpenters,
    is_marked,
    provider_id,
)
from nodesmith.model.kubernetes.nodes import Node, parse_node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, parse_nodeclasses
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.observed import UNREADABLE
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith_cli.sharing.ownership import Manifest
from nodesmith_formats.kubernetes.objects import name_of


class State(StrEnum):
    """What happens to an object, or has happened to it."""

    ADOPT = "adopt"
    ADOPTED = "adopted"
    WAITS = "waits"
    SKIPPED = "skipped"
    RELEASE = "release"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Row:
    """One object (`Kind/name`), its state, and details about it."""

    object: str
    state: State
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Due:
    """A NodeClaim to adopt: the claim that it becomes, its object and its instance."""

    claim: NodeClaim
    manifest: Manifest
    machine: Machine


@dataclass(frozen=True, slots=True)
class Read:
    """Everything that was read of a cluster. `snapshot` is the newest that nodesmith's functions have, if any."""

    cluster: str
    nodeclaims: Sequence[Manifest]
    nodes: Sequence[Manifest]
    nodepools: Sequence[Manifest]
    nodeclasses: Sequence[Manifest]
    machines: Sequence[Machine]
    ledger: Ledger
    catalog: Catalog | None
    snapshot: Snapshot | None
    now: datetime


@dataclass(slots=True)
class Assessment:
    """The rows of all objects, and the NodeClaims that can be adopted now."""

    rows: list[Row] = field(default_factory=list)
    due: list[Due] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        """True if some NodeClaims can be adopted as soon as the snapshot shows them."""
        return any(row.state is State.WAITS for row in self.rows)


def assess(read: Read) -> Assessment:
    """Assess each NodeClaim that Karpenter has created, and each instance without a NodeClaim."""
    around, assessment = _around(read), Assessment()
    machines = {machine.instance.id: machine for machine in read.machines}
    shown = {
        name_of(nodeclaim): provider_id(nodeclaim)
        for nodeclaim in (read.snapshot.nodeclaims if read.snapshot else ())
    }
    ledger_claims = {claim.name: claim for claim in read.ledger.claims}
    desired = _desired_state(read)
    for manifest in sorted(read.nodeclaims, key=name_of):
        name = name_of(manifest)
        about = f"NodeClaim/{name}"
        if is_foreign(manifest) or not _was_karpenters(manifest, ledger_claims):
            continue
        if _is_done(manifest, ledger_claims.get(name), machines):
            assessment.rows.append(Row(about, State.ADOPTED))
            continue
        try:
            claim = ledger_claims.get(name) or _renewed(
                claim_of(_reduced(manifest), around, read.now), around, read
            )
        except Rejected as error:
            assessment.rows.append(Row(about, State.SKIPPED, str(error)))
            continue
        if shown.get(name) != claim.provider_id:
            assessment.rows.append(Row(about, State.WAITS, "nodesmith's snapshot does not show it yet"))
            continue
        assessment.rows.append(Row(about, State.ADOPT, _detail(claim, manifest, desired)))
        assessment.due.append(Due(claim, manifest, machines[claim.instance_id]))
    assessment.rows += _left(read)
    return assessment


def _reduced(manifest: Manifest) -> Manifest:
    """Return a NodeClaim as a snapshot holds it, with the whole status. Raises Rejected if it cannot be read."""
    try:
        return {**reduce_custom(manifest), "status": manifest.get("status") or {}}
    except UNREADABLE as error:
        raise Rejected(f"cannot be read: {error!r}") from None


def _was_karpenters(manifest: Manifest, nodeclaims: Mapping[str, NodeClaim]) -> bool:
    """Return whether Karpenter created a NodeClaim, adopted by now or not. Earlier adoptions may be incomplete."""
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    claim = nodeclaims.get(name_of(manifest))
    if claim is not None:
        return claim.origin == KARPENTER or not is_marked(manifest)
    return is_karpenters(manifest) or annotations.get(ORIGIN) == KARPENTER


def _is_done(manifest: Manifest, claim: NodeClaim | None, machines: Mapping[str, Machine]) -> bool:
    machine = machines.get(claim.instance_id) if claim else None
    if claim is not None and machine is None:
        return True  # its instance is gone, and nodesmith forgets it
    return is_marked(manifest) and machine is not None and MANAGED_BY_TAG in machine.tags


def _around(read: Read) -> ClusterContext:
    pools = parsed_nodepools(
        tuple(reduce_custom(nodepool) for nodepool in read.nodepools if not is_foreign(nodepool))
    )
    parsed = parse_nodeclasses(tuple(map(reduce_custom, read.nodeclasses)))
    return ClusterContext(
        read.cluster,
        pools,
        {result.value.name: result.value for result in parsed if result.value is not None},
        {machine.instance.id: machine.instance for machine in read.machines},
        {machine.instance.id: machine.tags for machine in read.machines},
        {node.provider_id: node for node in _nodes(read.nodes)},
        holders_of(read.nodeclaims),
        read.catalog,
    )


def _nodes(manifests: Iterable[Manifest]) -> Iterator[Node]:
    for manifest in manifests:
        try:
            node = parse_node(reduce_node(manifest), None)
        except UNREADABLE:
            continue
        if node.provider_id:
            yield node


def _renewed(claim: NodeClaim, context: ClusterContext, read: Read) -> NodeClaim:
    """Return a claim with hashes of the current version, by Karpenter's rule. Raises Rejected."""
    cluster = read.ledger.cluster
    if cluster is None:
        raise Rejected("nodesmith has not described the cluster yet: see `nodesmith doctor`")
    nodeclasses: Mapping[str, EC2NodeClass] = context.nodeclasses
    return next(iter(rehashed([claim], context.pools, nodeclasses, cluster.ca_bundle)), claim)


def _desired_state(read: Read) -> DesiredState | None:
    if read.snapshot is None or read.catalog is None:
        return None
    return DesiredState.of(read.snapshot, read.ledger, read.catalog, read.now)


def _detail(claim: NodeClaim, manifest: Manifest, desired: DesiredState | None) -> str:
    """Return what to know about a NodeClaim before it is adopted."""
    details = [f"instance {claim.instance_id}"]
    if manifest["metadata"].get("deletionTimestamp"):
        details.append("it is being deleted, and nodesmith completes that")
    drift = drifted(claim, desired) if desired else NO_DRIFT
    if drift:
        details.append(f"drifted: {drift}" + (", as Karpenter says" if drift.reason == claim.drift else ""))
    if not claim.price_hourly_usd and claim.capacity_type != "reserved":
        details.append("its price is unknown, so consolidation does not replace it")
    return "; ".join(details)


def _left(read: Read) -> Iterator[Row]:
    """Yield the instances of Karpenter without a NodeClaim, which Karpenter would terminate."""
    claimed = {provider_id(nodeclaim) for nodeclaim in read.nodeclaims}
    ours = {claim.instance_id for claim in read.ledger.claims}
    for each in sorted(read.machines, key=lambda machine: machine.instance.id):
        instance = each.instance
        if instance.provider_id in claimed or instance.id in ours or MANAGED_BY_TAG in each.tags:
            continue
        reason = (
            "has Karpenter's tags, but no NodeClaim: Karpenter would terminate it, nodesmith does not. "
            "Check it, then"
        )
        yield Row(
            f"Instance/{instance.id}",
            State.SKIPPED,
            f"{reason} run `aws ec2 terminate-instances --instance-ids {instance.id}`",
        )
