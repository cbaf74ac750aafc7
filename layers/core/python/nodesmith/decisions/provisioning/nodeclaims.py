"""NodeClaims that users create: each is bought exactly as requested, at the lowest price.

They may name a NodePool by its label but need none; its limits and weight do not apply to them, as in Karpenter, but
quotas do. Nothing is launched from objects that the snapshot shows differently than readiness has read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.launch import as_launched, launch_plan
from nodesmith.decisions.provisioning.nodepools.tiers import (
    nodeclass_obstacle,
    parsed_nodeclasses,
    template_of,
)
from nodesmith.decisions.provisioning.plan import Inputs, PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import most_resources
from nodesmith.decisions.provisioning.purchase.flexibility import affordable, for_no_pods, offers_for_no_pods
from nodesmith.decisions.provisioning.purchase.packingproblem import Offer, pairs
from nodesmith.decisions.scheduling.offerings.overlays import overlay_marks
from nodesmith.decisions.scheduling.offerings.quotas import RemainingQuotas, usages
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import INSTANCE_PROFILE, NODECLASS, NODEPOOL, RESERVED, restriction
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.hashes import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from nodesmith.model.karpenter.nodeclaimobjects import nodeclaim_content, parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import BY_HAND, NodeClaim, NodeClassRef
from nodesmith.model.karpenter.nodepools import DEFAULTS, NodePool, parsed_nodepools
from nodesmith.model.karpenter.ownership import is_unclaimed
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import shown_ready
from nodesmith.model.snapshot import Snapshot

FRESH = timedelta(minutes=2)
"""How old a snapshot without a heartbeat may be: an older one may show objects whose claims are already gone."""
_READ_WITHIN = timedelta(minutes=1)
"""How long readiness may take to read a new NodeClaim before its absence is reported."""
_AWAITED = timedelta(seconds=10)
"""How long pods wait for readiness to read a new NodeClaim: its node may have capacity for them."""


class NothingFits(Rejected):
    """No available instance type meets the NodeClaim."""


def unread_nodeclaims(snapshot: Snapshot, ledger: Ledger) -> list[str]:
    """Return the names of users' NodeClaims that the snapshot shows differently than readiness has read them."""
    contents = {str(m["metadata"]["name"]): nodeclaim_content(m) for m in unclaimed(snapshot, ledger.claims)}
    return [
        name
        for name, content in contents.items()
        if content and ledger.contents.get(f"NodeClaim/{name}") != content
    ]


def is_about_to_buy(inputs: Inputs) -> bool:
    """Return whether a user's NodeClaim is so new that readiness may be reading it right now."""
    names = frozenset(unread_nodeclaims(inputs.snapshot, inputs.ledger))
    manifests = (
        m for m in unclaimed(inputs.snapshot, inputs.ledger.claims) if m["metadata"]["name"] in names
    )
    claims = (parse_nodeclaim(manifest, inputs.now).value for manifest in manifests)
    ages = [inputs.now - claim.created_at for claim in claims if claim is not None]
    return any(timedelta() <= age < _AWAITED for age in ages)


def is_old(inputs: Inputs) -> bool:
    """Return whether users' NodeClaims wait because the snapshot is too old."""
    is_late = inputs.now - inputs.snapshot.taken_at > FRESH
    return is_late and bool(unclaimed(inputs.snapshot, inputs.ledger.claims))


@dataclass(frozen=True, slots=True)
class UserNodeClaims:
    """The decision about users' NodeClaims: nodes for some, and by name the reason why others get none.

    `unschedulable` are those that no available instance type fits. NodeClaims that are to be deleted because of their
    EC2NodeClass are in none of these.
    """

    planned: list[PlannedNode] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    unschedulable: dict[str, str] = field(default_factory=dict)


def by_hand(inputs: Inputs, quotas: RemainingQuotas | None = None) -> UserNodeClaims:
    """Decide about users' NodeClaims. `quotas` are what is left of quotas, from which the nodes are charged."""
    result, quotas = (
        UserNodeClaims(),
        quotas or RemainingQuotas(usages(inputs.snapshot, inputs.ledger, inputs.settings, inputs.now)),
    )
    if is_old(inputs):
        return result
    unread = frozenset(unread_nodeclaims(inputs.snapshot, inputs.ledger))
    manifests = unclaimed(inputs.snapshot, inputs.ledger.claims)
    doomed = unlaunchable(manifests, inputs.snapshot.nodeclasses, inputs.now)
    for manifest in (m for m in manifests if m["metadata"]["name"] not in doomed):
        parsed = parse_nodeclaim(manifest, inputs.now)
        if parsed.value is None:
            result.refused[str(manifest["metadata"]["name"])] = "; ".join(map(str, parsed.fatal))
            continue
        if parsed.value.name in unread:
            if inputs.now - parsed.value.created_at > _READ_WITHIN:
                message = "readiness has not found it in the API server as the snapshot shows it"
                result.refused[parsed.value.name] = message
            continue
        try:
            result.planned.append(_planned(parsed.value, inputs, quotas))
        except NothingFits as error:
            result.unschedulable[parsed.value.name] = str(error)
        except Rejected as error:
            result.refused[parsed.value.name] = str(error)
    return result


def _planned(requested: NodeClaim, inputs: Inputs, quotas: RemainingQuotas) -> PlannedNode:
    """Return the node to buy. Raises Rejected with what stands in the way."""
    nodeclasses, cluster = parsed_nodeclasses(inputs.snapshot), inputs.ledger.cluster
    obstacle = nodeclass_obstacle(requested.nodeclass, nodeclasses, inputs.ledger)
    if obstacle or cluster is None:
        raise Rejected(obstacle or "the cluster is not known yet")
    nodeclass = nodeclasses[requested.nodeclass.name]
    template = template_of(
        as_pool(requested),
        nodeclass,
        inputs.snapshot,
        inputs.ledger,
        inputs.catalog,
        inputs.settings,
        inputs.now,
    )
    offers = _offers(requested, template)
    within_quotas = affordable(quotas, template, offers)
    if not within_quotas:
        raise Rejected(quotas.obstacle(template, pairs(offers)))
    choice = for_no_pods(within_quotas, inputs.settings.min_values_policy)
    if choice.refusal:
        raise NothingFits(choice.refusal)
    options = pairs(choice.offers)
    kind, cheapest = options[0]
    pool = parsed_nodepools(inputs.snapshot.nodepools).get(requested.nodepool)
    claim = replace(
        requested,
        created_at=inputs.now,
        phase_since=inputs.now,
        nodepool_uid=pool.owner_uid if pool else "",
        provisioner=pool.options.provisioner if pool and not pool.uid else "",
        nodepool_hash=pool.hash if pool else "",
        nodeclass_hash=nodeclass.hash_in(cluster.ca_bundle),
        nodepool_hash_version=NODEPOOL_HASH_VERSION,
        nodeclass_hash_version=NODECLASS_HASH_VERSION,
        annotations={
            **requested.annotations,
            INSTANCE_PROFILE: template.status.instance_profile,
            **overlay_marks(options),
        },
        security_groups=tuple(group.id for group in template.status.security_groups),
        capacity_type=cheapest.capacity_type,
        capacity=most_resources(kind.capacity for kind, _ in options),
        allocatable=kind.allocatable,
        origin=BY_HAND,
    )
    claim = as_launched(claim, nodeclass)
    request, templates = launch_plan(claim, options, nodeclass, template.status, cluster)
    quotas.take(template, options)
    return PlannedNode(claim, request, templates)


def as_pool(claim: NodeClaim) -> NodePool:
    """Return a NodePool that allows exactly what the claim asks for.

    Its labels say where it belongs, not what it may be.
    """
    custom_labels = {
        key: value for key, value in claim.labels.items() if restriction(key) is None and key != NODEPOOL
    }
    requirements = Requirements({key: r for key, r in claim.requirements.items() if key != NODEPOOL})
    return NodePool(
        claim.nodepool,
        claim.nodeclass,
        requirements.union(Requirements.from_labels(custom_labels)),
        custom_labels,
        taints=claim.taints,
        startup_taints=claim.startup_taints,
    )


def _offers(claim: NodeClaim, template: Template) -> list[Offer]:
    """Return what may be bought, reserved capacity and then the cheapest first, exotic types last.

    Raises NothingFits if nothing may.
    """
    fitting = [c for c in template.choices if claim.requests.fits_in(c.type.allocatable)]
    if not fitting:
        raise NothingFits(template.obstacle or "no instance type that it allows offers all that it requests")
    return sorted(offers_for_no_pods(template, fitting), key=_price)


def _price(offer: Offer) -> tuple[bool, bool, float, str, str]:
    offering = offer.offering
    return (
        offer.is_exotic,
        offering.capacity_type != RESERVED,
        offering.price_hourly_usd,
        offer.type_option.type.name,
        offering.zone,
    )


def unclaimed(snapshot: Snapshot, claims: Sequence[NodeClaim]) -> list[Mapping[str, Any]]:
    """Return the NodeClaim objects that are not in the ledger, by name."""
    names = {claim.name for claim in claims}
    manifests = [m for m in snapshot.nodeclaims if m["metadata"]["name"] not in names and is_unclaimed(m)]
    return sorted(manifests, key=lambda m: str(m["metadata"]["name"]))


def unlaunchable(
    manifests: Iterable[Mapping[str, Any]], nodeclasses: Iterable[Mapping[str, Any]], now: datetime
) -> dict[str, tuple[str, str]]:
    """Return the users' NodeClaims to delete, as Karpenter does: name → reason and message of the Event.

    Their EC2NodeClass is missing, being deleted, or not Ready by its status. An EC2NodeClass without a Ready condition
    may still become Ready, so its NodeClaims wait.
    """
    by_name = {str(manifest["metadata"]["name"]): manifest for manifest in nodeclasses}
    claims = (parse_nodeclaim(manifest, now).value for manifest in manifests)
    troubles = (
        (claim, _nodeclass_trouble(claim.nodeclass, by_name)) for claim in claims if claim is not None
    )
    return {claim.name: trouble for claim, trouble in troubles if trouble is not None}


def overdue(manifests: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, tuple[str, str]]:
    """Return the users' NodeClaims that have waited too long since they first reported why they are not launched.

    The value is the reason and message of the Event.
    """
    late: dict[str, tuple[str, str]] = {}
    for manifest in manifests:
        claim = parse_nodeclaim(manifest, now).value
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        launched = next((c for c in conditions if c.get("type") == "Launched"), None)
        if claim is None or claim.nodeclass.label != NODECLASS or launched is None:
            continue
        if launched.get("status") == "Unknown" and now - _since(launched, now) >= DEFAULTS.launch_timeout:
            minutes = DEFAULTS.launch_timeout.total_seconds() / 60
            late[claim.name] = (
                "LaunchTimeout",
                f"no instance within {minutes:g} minutes: {launched.get('message')}",
            )
    return late


def _since(condition: Mapping[str, Any], now: datetime) -> datetime:
    return parse_time(str(condition["lastTransitionTime"])) if condition.get("lastTransitionTime") else now


def _nodeclass_trouble(ref: NodeClassRef, by_name: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    if ref.label != NODECLASS:
        return None
    manifest = by_name.get(ref.name)
    if manifest is None or manifest["metadata"].get("deletionTimestamp"):
        state = "does not exist" if manifest is None else "is being deleted"
        return "InsufficientCapacityError", f"EC2NodeClass {ref.name!r} {state}"
    ready = shown_ready(manifest)
    if ready is None or ready.get("status") != "False":
        return None
    message = ready.get("message") or ready.get("reason") or "Ready is False"
    return "NodeClassNotReady", f"EC2NodeClass {ref.name!r} is not Ready: {message}"


def as_read(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Return the ledger as if readiness had read everything that the snapshot shows.

    This serves decisions from manifests alone, without a cluster. Unresolved EC2NodeClasses stay unresolved.
    """
    contents = {f"NodePool/{name}": p.content for name, p in parsed_nodepools(snapshot.nodepools).items()}
    for manifest in unclaimed(snapshot, ledger.claims):
        contents[f"NodeClaim/{manifest['metadata']['name']}"] = nodeclaim_content(manifest)
    parsed = parsed_nodeclasses(snapshot)
    statuses = {
        name: replace(status, content=parsed[name].content) if name in parsed else status
        for name, status in ledger.nodeclasses.items()
    }
    return replace(ledger, contents=contents, nodeclasses=statuses)


def unread(snapshot: Snapshot, ledger: Ledger) -> list[str]:
    """Return the `Kind/name` of the NodePools, EC2NodeClasses and users' NodeClaims that readiness has yet to read."""
    pools = sorted(parsed_nodepools(snapshot.nodepools).items())
    nodeclasses = sorted(parsed_nodeclasses(snapshot).items())
    return [
        *(f"NodePool/{name}" for name, pool in pools if not ledger.has_read(pool)),
        *(f"EC2NodeClass/{name}" for name, nodeclass in nodeclasses if not ledger.has_read(nodeclass)),
        *(f"NodeClaim/{name}" for name in unread_nodeclaims(snapshot, ledger)),
    ]
