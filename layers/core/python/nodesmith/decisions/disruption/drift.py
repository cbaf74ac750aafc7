"""Drift: nodes that differ from what would be bought in their place today.

The reasons, and the order in which they are checked, are Karpenter's: the NodePool's template, its requirements, the
instance type, then the EC2NodeClass's fields and what its selectors match. A selector that matches nothing is an error
of its own and not drift. A value that a claim of an older version did not record is not compared. Karpenter's reason
names the object; the detail says in a sentence what of it has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from nodesmith.decisions.provisioning.nodepools.tiers import parsed_nodeclasses
from nodesmith.model.apimachinery.labels import (
    ALIASES,
    ARCH,
    HOSTNAME,
    NODECLASS,
    PLACEMENT_GROUP,
    RESERVATION_ID,
    RESERVED,
    WELL_KNOWN,
    Taint,
    in_domain,
)
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.catalog import Catalog, StatedFacts
from nodesmith.model.hashes import CERTIFICATE_AUTHORITY
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import Image, NodeClassStatus
from nodesmith.model.snapshot import Snapshot

TYPE_MISSED_AFTER = timedelta(hours=1)
"""Age of a claim from which an instance type that is no longer sold counts as drift (Karpenter's value)."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What nodes would be made of today: objects by name, as readiness has read them, and the catalogue."""

    pools: Mapping[str, NodePool]
    nodeclasses: Mapping[str, EC2NodeClass]
    statuses: Mapping[str, NodeClassStatus]
    catalog: Catalog
    now: datetime
    ca_bundle: str = ""
    """of the cluster, in base64; empty if it is not known"""
    images: dict[tuple[str, str], str] = field(default_factory=dict, compare=False)
    """cache by NodeClass and instance type, since most claims are alike"""

    @classmethod
    def of(cls, snapshot: Snapshot, ledger: Ledger, catalog: Catalog, now: datetime) -> DesiredState:
        """Return it for the inputs of a decision."""
        pools = {n: p for n, p in parsed_nodepools(snapshot.nodepools).items() if ledger.has_read(p)}
        nodeclasses = {n: c for n, c in parsed_nodeclasses(snapshot).items() if ledger.has_read(c)}
        ca_bundle = ledger.cluster.ca_bundle if ledger.cluster else ""
        return cls(pools, nodeclasses, ledger.nodeclasses, catalog, now, ca_bundle)

    def nodeclass_hash(self, nodeclass: EC2NodeClass) -> str:
        """Return the hash that a claim bought now would get.

        Without a CA bundle, it is the hash in the object's annotations, or empty.
        """
        return nodeclass.hash_in(self.ca_bundle) if self.ca_bundle else nodeclass.stated_hash


class Drift(NamedTuple):
    """Karpenter's reason why a claim's node has drifted, and what exactly has; both empty if it has not."""

    reason: str
    detail: str = ""

    def __bool__(self) -> bool:
        return bool(self.reason)

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


NO_DRIFT = Drift("")


def drifted(claim: NodeClaim, desired: DesiredState) -> Drift:
    """Return why a claim's node has drifted, or NO_DRIFT.

    Only claims that have an instance and do not end can drift, and only if their NodePool exists and is not being
    deleted.
    """
    pool = desired.pools.get(claim.nodepool)
    if claim.phase not in HOLDING or pool is None or pool.deleting:
        return NO_DRIFT
    if claim.comparable_nodepool_hash not in ("", pool.hash):
        return Drift("NodePoolDrifted", _template_detail(claim, pool))
    refused = next((r for r in pool.requirements.values() if _refuses(r, claim)), None)
    if refused is not None:
        return Drift("RequirementsDrifted", _requirement_detail(refused, _value(refused.key, claim)))
    if desired.now - claim.created_at >= TYPE_MISSED_AFTER and not _is_sold(claim, desired.catalog):
        return Drift("InstanceTypeNotFound", _type_detail(claim))
    nodeclass = desired.nodeclasses.get(claim.nodeclass.name)
    if nodeclass is None or nodeclass.deleting or claim.nodeclass.label != NODECLASS:
        return NO_DRIFT
    desired_hash = desired.nodeclass_hash(nodeclass)
    if desired_hash and claim.comparable_nodeclass_hash not in ("", desired_hash):
        return Drift("NodeClassDrift", _nodeclass_detail(claim, nodeclass, desired))
    status = desired.statuses[nodeclass.name]
    return _selected(claim, status, desired)


def drifting(snapshot: Snapshot, ledger: Ledger, catalog: Catalog, now: datetime) -> dict[str, Drift]:
    """Return why claims have drifted, by name, without claims that have not."""
    desired = DesiredState.of(snapshot, ledger, catalog, now)
    reasons = {claim.name: drifted(claim, desired) for claim in ledger.claims}
    return {name: drift for name, drift in reasons.items() if drift}


def judged(snapshot: Snapshot, ledger: Ledger) -> list[NodeClaim]:
    """Return the claims whose drift can be determined.

    These are the claims for which readiness has read the present version of their NodePool and EC2NodeClass.
    """
    pools = {n for n, pool in parsed_nodepools(snapshot.nodepools).items() if not ledger.has_read(pool)}
    classes = {n for n, nodeclass in parsed_nodeclasses(snapshot).items() if not ledger.has_read(nodeclass)}
    return [c for c in ledger.claims if c.nodepool not in pools and c.nodeclass.name not in classes]


def noted(claims: Iterable[NodeClaim], drift: Mapping[str, Drift], now: datetime) -> list[NodeClaim]:
    """Return the claims whose drift differs from what the ledger says, with the new value."""
    held = ((claim, drift.get(claim.name, NO_DRIFT)) for claim in claims if claim.phase in HOLDING)
    return [
        replace(
            claim,
            drift=found.reason,
            drift_detail=found.detail,
            drifted_at=claim.drifted_at if found.reason == claim.drift else now,
        )
        for claim, found in held
        if found != (claim.drift, claim.drift_detail)
    ]


def _value(key: str, claim: NodeClaim) -> str | None:
    return claim.labels.get(key) or claim.requirements.settled.get(key)


def _refuses(requirement: Requirement, claim: NodeClaim) -> bool:
    value = _value(requirement.key, claim)
    if value is not None:
        return not requirement.allows(value)
    # If the properties of its instance type were unknown at launch, the claim has no such label.
    is_unknown = requirement.key in WELL_KNOWN and ARCH not in claim.labels
    return not is_unknown and not requirement.tolerates_absence


def _is_sold(claim: NodeClaim, catalog: Catalog) -> bool:
    """Return whether the instance type is sold this way at all, whether or not it is available.

    A type without a known price has no offering, but may be sold all the same. A reserved type need not be for sale in
    its zone: whether its reservation still exists is checked separately. A catalogue older than the node proves
    nothing: until AWS has been asked, the one that ships with nodesmith applies.
    """
    if claim.created_at > catalog.made_at:
        return True
    facts = catalog.facts.get(claim.instance_type)
    if facts is None or claim.capacity_type == RESERVED:
        return facts is not None
    offered = catalog.offerings.get(claim.instance_type, ())
    if isinstance(facts, StatedFacts):
        return any((o.zone, o.capacity_type) == (claim.zone, claim.capacity_type) for o in offered)
    zones = {offering.zone for offering in offered}
    return claim.capacity_type in facts.capacity_types and (not zones or claim.zone in zones)


def _selected(claim: NodeClaim, status: NodeClassStatus, desired: DesiredState) -> Drift:
    """Compare what a claim was launched with to what the selectors of its NodeClass match now."""
    image = _image(claim, status, desired)
    if image and claim.image_id and image != claim.image_id:
        return Drift("AMIDrift", _image_detail(claim, image, status.images))
    groups = {group.id for group in status.security_groups}
    if groups and claim.security_groups and groups != set(claim.security_groups):
        return Drift("SecurityGroupDrift", _selected_detail("security groups", claim.security_groups, groups))
    subnets = {subnet.id for subnet in status.subnets}
    if subnets and claim.subnet_id and claim.subnet_id not in subnets:
        return Drift("SubnetDrift", _selected_detail("subnet", [claim.subnet_id], subnets))
    reservation = claim.labels.get(RESERVATION_ID) if claim.capacity_type == RESERVED else None
    reservations = {each.id for each in status.capacity_reservations}
    if status.is_ready and reservation and reservation not in reservations:
        detail = _selected_detail("capacity reservation", [reservation], reservations)
        return Drift("CapacityReservationDrift", detail)
    own = {group for group in (claim.labels.get(PLACEMENT_GROUP),) if group}
    selected = {status.placement_group.id} if status.placement_group else set()
    if status.is_ready and own != selected:
        return Drift("PlacementGroupDrift", _selected_detail("placement group", own, selected))
    return NO_DRIFT


def _image(claim: NodeClaim, status: NodeClassStatus, desired: DesiredState) -> str:
    """Return the image that a claim's instance type would boot from; empty if none fits."""
    key = status.name, claim.instance_type
    image = desired.images.get(key, "")
    if not image:
        fitting = (i.id for i in status.images if i.requirements.allow_labels(claim.labels))
        image = desired.images[key] = next(fitting, "")
    return image


_FIELD_NAMES = {"amiFamily": "the image family"}
_MOST_FIELDS = 3
_LONGEST_VALUE = 60
_OWN_DOMAINS = (
    "karpenter.sh",
    "karpenter.k8s.aws",
    "karpenter.kwok.sh",
    "nodesmith.dev",
    "kubectl.kubernetes.io",
)
"""Domains of labels and annotations that a NodeClaim also has without its NodePool's template."""
_OWN_LABELS = WELL_KNOWN | ALIASES.keys() | {HOSTNAME}
"""Labels that a NodeClaim has of its instance."""


def _template_detail(claim: NodeClaim, pool: NodePool) -> str:
    """Return the fields of a NodePool's template that differ from those that a claim was made from."""
    was_labelled = {key: value for key, value in claim.labels.items() if key not in pool.requirements}
    fields = [
        *_of_map("label", was_labelled, pool.labels),
        *_of_map("annotation", claim.annotations, pool.annotations),
        *_of_value("taints", _listed(claim.taints), _listed(pool.taints)),
        *_of_value("startupTaints", _listed(claim.startup_taints), _listed(pool.startup_taints)),
        *_of_value("nodeClassRef.name", claim.nodeclass.name, pool.nodeclass.name),
        *_of_value("expireAfter", claim.expire_after, pool.expire_after),
        *_of_value("terminationGracePeriod", claim.termination_grace_period, pool.termination_grace_period),
    ]
    if not fields:
        return f"a field of the template of NodePool {pool.name} has changed"
    more = len(fields) - _MOST_FIELDS
    return "; ".join([*fields[:_MOST_FIELDS], *([f"and {more} more"] if more > 0 else [])])


def _requirement_detail(requirement: Requirement, value: str | None) -> str:
    """Return that a node does not meet a requirement of its NodePool. `value` is that of its label."""
    return f"{requirement} is required, the node has {value or 'no such label'}"


def _type_detail(claim: NodeClaim) -> str:
    """Return that a claim's instance type is not sold any more."""
    return f"{claim.instance_type} is not sold as {claim.capacity_type} in {claim.zone}"


def _nodeclass_detail(claim: NodeClaim, nodeclass: EC2NodeClass, desired: DesiredState) -> str:
    """Return which fields of an EC2NodeClass have changed, or what its hash covers if that is not known."""
    before = desired.statuses[nodeclass.name].past.get(claim.nodeclass_hash)
    now = nodeclass.digests_in(desired.ca_bundle)
    if before is None or not desired.ca_bundle:
        return (
            f"a field of EC2NodeClass {nodeclass.name}, or the cluster's certificate authority, has changed"
        )
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    authority = (
        ["the cluster's certificate authority has changed"] if CERTIFICATE_AUTHORITY in changed else []
    )
    names = [_FIELD_NAMES.get(name, f"spec.{name}") for name in sorted(changed - {CERTIFICATE_AUTHORITY})]
    verb = "has" if len(names) == 1 else "have"
    fields = [f"{', '.join(names)} of EC2NodeClass {nodeclass.name} {verb} changed"] if names else []
    return "; ".join([*fields, *authority])


def _image_detail(claim: NodeClaim, image: str, images: Iterable[Image]) -> str:
    """Return the image that a claim's instance type would boot from now, with its name."""
    name = next((each.name for each in images if each.id == image and each.name), "")
    return f"its image is {claim.image_id}, a new node's {image}{f' ({name})' if name else ''}"


def _selected_detail(what: str, own: Iterable[str], selected: Iterable[str]) -> str:
    """Return what a claim was launched with, and what its EC2NodeClass selects now."""
    now, before = (", ".join(sorted(ids)) or "none" for ids in (selected, own))
    return f"its {what}: {before}; its EC2NodeClass selects {now}"


def _of_map(kind: str, own: Mapping[str, str], template: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(own.keys() | template.keys()):
        is_own = key in _OWN_LABELS or any(in_domain(key, domain) for domain in _OWN_DOMAINS)
        if key in template or not is_own:
            yield from _of_value(f"{kind} {key}", own.get(key), template.get(key))


def _of_value(field: str, own: str | None, template: str | None) -> Iterator[str]:
    if own != template:
        yield f"{field} is {_shown(template)}, was {_shown(own)}"


def _shown(value: str | None) -> str:
    if value is None:
        return "not set"
    return (value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…") or "empty"


def _listed(taints: Iterable[Taint]) -> str | None:
    return ", ".join(sorted(map(str, taints))) or None
