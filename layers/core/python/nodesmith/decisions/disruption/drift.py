"""Drift: nodes that are not what would be bought in their place today.

Reasons, and the order in which they are looked for, are Karpenter's: the NodePool's template, its requirements, the
instance type, then what the EC2NodeClass says and what its selectors find. A selector that finds nothing at all is
trouble of its own and no drift, and neither is what a claim of an older version has not written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning.nodepooltiers import parsed_nodeclasses
from nodesmith.model.apimachinery.labels import ARCH, NODECLASS, RESERVATION_ID, RESERVED, WELL_KNOWN
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import NodeClassStatus
from nodesmith.model.snapshot import Snapshot

TYPE_MISSED_AFTER = timedelta(hours=1)
"""Age of a claim from which on it counts that its instance type is not to be had any more (Karpenter's)."""
_LIVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})


@dataclass(frozen=True, slots=True)
class Today:
    """What nodes are made of today: objects by name as readiness has read them too, and what can be bought."""

    pools: Mapping[str, NodePool]
    nodeclasses: Mapping[str, EC2NodeClass]
    statuses: Mapping[str, NodeClassStatus]
    catalog: Catalog
    now: datetime
    ca_bundle: str = ""
    """of the cluster, in base64; empty where it is not known"""
    images: dict[tuple[str, str], str] = field(default_factory=dict, compare=False)
    """by NodeClass and instance type: found once, most claims are alike"""

    @classmethod
    def of(cls, snapshot: Snapshot, ledger: Ledger, catalog: Catalog, now: datetime) -> Today:
        """Read it from what a decision is made from."""
        pools = {n: p for n, p in parsed_nodepools(snapshot.nodepools).items() if ledger.has_read(p)}
        nodeclasses = {n: c for n, c in parsed_nodeclasses(snapshot).items() if ledger.has_read(c)}
        ca_bundle = ledger.cluster.ca_bundle if ledger.cluster else ""
        return cls(pools, nodeclasses, ledger.nodeclasses, catalog, now, ca_bundle)

    def nodeclass_hash(self, nodeclass: EC2NodeClass) -> str:
        """Return the hash that a claim bought now would get; without a CA bundle what the object states, or nothing."""
        return nodeclass.hash_in(self.ca_bundle) if self.ca_bundle else nodeclass.stated_hash


def drifted(claim: NodeClaim, today: Today) -> str:
    """Say in Karpenter's word why a claim's node is not what would be bought today; empty where it is.

    Only claims that have an instance and do not end drift, and none whose NodePool is missing or being deleted.
    """
    pool = today.pools.get(claim.nodepool)
    if claim.phase not in _LIVING or pool is None or pool.deleting:
        return ""
    if claim.comparable_nodepool_hash not in ("", pool.hash):
        return "NodePoolDrifted"
    if any(_refuses(one, claim) for one in pool.requirements.values()):
        return "RequirementsDrifted"
    if today.now - claim.created_at >= TYPE_MISSED_AFTER and not _is_sold(claim, today.catalog):
        return "InstanceTypeNotFound"
    nodeclass = today.nodeclasses.get(claim.nodeclass.name)
    if nodeclass is None or nodeclass.deleting or claim.nodeclass.label != NODECLASS:
        return ""
    hash_today = today.nodeclass_hash(nodeclass)
    if hash_today and claim.comparable_nodeclass_hash not in ("", hash_today):
        return "NodeClassDrift"
    status = today.statuses[nodeclass.name]
    return _selected(claim, status, today)


def drifting(snapshot: Snapshot, ledger: Ledger, catalog: Catalog, now: datetime) -> dict[str, str]:
    """Say by claim's name why it has drifted; those that have not are left out."""
    today = Today.of(snapshot, ledger, catalog, now)
    found = {claim.name: drifted(claim, today) for claim in ledger.claims}
    return {name: why for name, why in found.items() if why}


def judged(snapshot: Snapshot, ledger: Ledger) -> list[NodeClaim]:
    """Return the claims whose drift can be told: readiness has read their NodePool and EC2NodeClass as they are now."""
    pools = {n for n, pool in parsed_nodepools(snapshot.nodepools).items() if not ledger.has_read(pool)}
    classes = {n for n, one in parsed_nodeclasses(snapshot).items() if not ledger.has_read(one)}
    return [c for c in ledger.claims if c.nodepool not in pools and c.nodeclass.name not in classes]


def noted(claims: Iterable[NodeClaim], drift: Mapping[str, str], now: datetime) -> list[NodeClaim]:
    """Return the claims whose drift is not what the ledger says, as they are to be written."""
    found = ((claim, drift.get(claim.name, "")) for claim in claims if claim.phase in _LIVING)
    return [replace(claim, drift=why, drifted_at=now) for claim, why in found if why != claim.drift]


def _refuses(wanted: Requirement, claim: NodeClaim) -> bool:
    value = claim.labels.get(wanted.key) or claim.requirements.settled.get(wanted.key)
    if value is not None:
        return not wanted.allows(value)
    # What its instance type is like may not have been known when it was launched: then it has no such label.
    is_unknown = wanted.key in WELL_KNOWN and ARCH not in claim.labels
    return not is_unknown and not wanted.tolerates_absence


def _is_sold(claim: NodeClaim, catalog: Catalog) -> bool:
    """Return whether its instance type is sold this way at all, be there stock of it or not.

    A reserved one need not be for sale in its zone: whether its reservation is still there is looked at apart.
    """
    if claim.capacity_type == RESERVED:
        return claim.instance_type in catalog.facts
    offered = catalog.offerings.get(claim.instance_type, ())
    return any((o.zone, o.capacity_type) == (claim.zone, claim.capacity_type) for o in offered)


def _selected(claim: NodeClaim, status: NodeClassStatus, today: Today) -> str:
    """Compare what a claim was launched with to what the selectors of its NodeClass find."""
    image = _image(claim, status, today)
    if image and claim.image_id and image != claim.image_id:
        return "AMIDrift"
    groups = {group.id for group in status.security_groups}
    if groups and claim.security_groups and groups != set(claim.security_groups):
        return "SecurityGroupDrift"
    subnets = {subnet.id for subnet in status.subnets}
    if subnets and claim.subnet_id and claim.subnet_id not in subnets:
        return "SubnetDrift"
    reservation = claim.labels.get(RESERVATION_ID) if claim.capacity_type == RESERVED else None
    if (
        status.is_ready
        and reservation
        and reservation not in {each.id for each in status.capacity_reservations}
    ):
        return "CapacityReservationDrift"
    return ""


def _image(claim: NodeClaim, status: NodeClassStatus, today: Today) -> str:
    """Return the image that a claim's instance type would be booted from; empty where none would do."""
    key = status.name, claim.instance_type
    found = today.images.get(key, "")
    if not found:
        fitting = (i.id for i in status.images if i.requirements.allow_labels(claim.labels))
        found = today.images[key] = next(fitting, "")
    return found
