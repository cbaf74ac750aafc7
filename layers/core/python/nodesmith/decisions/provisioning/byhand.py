"""NodeClaims that users have made: what they ask for is bought as it is, at the lowest price.

They may name a NodePool by its label, and need none; limits and weights are not theirs to heed, as in Karpenter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.launch import launch_plan
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.pools import nodeclass_obstacle, parsed_nodeclasses, template_of
from nodesmith.decisions.scheduling.stock import Choice
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.errors import Rejected
from nodesmith.model.catalog import Offering
from nodesmith.model.instancetypes import InstanceType
from nodesmith.model.labels import INSTANCE_PROFILE, NODECLASS, NODEPOOL, RESERVED, restriction
from nodesmith.model.ledger import Ledger
from nodesmith.model.nodeclaimobjects import nodeclaim_content, parse_nodeclaim
from nodesmith.model.nodeclaims import BY_HAND, NodeClaim
from nodesmith.model.nodeclasses import shown_ready
from nodesmith.model.nodepools import NodePool, parsed_nodepools
from nodesmith.model.nodespec import NodeClassRef
from nodesmith.model.ownership import is_unclaimed
from nodesmith.model.requirements import Requirements
from nodesmith.model.schema.hashing import HASH_VERSION
from nodesmith.model.snapshot import Snapshot

FRESH = timedelta(minutes=2)
"""How old a snapshot may be. In an older one an object may still show whose claim has come and gone meanwhile."""


_READ_WITHIN = timedelta(minutes=1)
"""How long readiness may take to read a new NodeClaim before its absence is worth telling."""
_AWAITED = timedelta(seconds=10)
"""How long pods wait for readiness to read a new NodeClaim: its node may have room for them."""


def unclaimed(snapshot: Snapshot, known: Sequence[NodeClaim]) -> list[Mapping[str, Any]]:
    """Give the NodeClaim objects that the ledger knows nothing of, by name."""
    names = {claim.name for claim in known}
    found = [m for m in snapshot.nodeclaims if is_unclaimed(m) and m["metadata"]["name"] not in names]
    return sorted(found, key=lambda m: str(m["metadata"]["name"]))


def unlaunchable(
    asked: Iterable[Mapping[str, Any]], nodeclasses: Iterable[Mapping[str, Any]], now: datetime
) -> dict[str, tuple[str, str]]:
    """Say which of users' NodeClaims are to be deleted, as Karpenter does: name → reason and message of the Event.

    Their EC2NodeClass is missing, being deleted, or not Ready by its status. One of which nothing is known yet may
    become Ready, and they wait for it.
    """
    shown = {str(manifest["metadata"]["name"]): manifest for manifest in nodeclasses}
    claims = (parse_nodeclaim(manifest, now).value for manifest in asked)
    found = ((claim, _nodeclass_trouble(claim.nodeclass, shown)) for claim in claims if claim is not None)
    return {claim.name: trouble for claim, trouble in found if trouble is not None}


def _nodeclass_trouble(ref: NodeClassRef, shown: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    if ref.label != NODECLASS:
        return None
    manifest = shown.get(ref.name)
    if manifest is None or manifest["metadata"].get("deletionTimestamp"):
        state = "does not exist" if manifest is None else "is being deleted"
        return "InsufficientCapacityError", f"EC2NodeClass {ref.name!r} {state}"
    ready = shown_ready(manifest)
    if ready is None or ready.get("status") != "False":
        return None
    why = ready.get("message") or ready.get("reason") or "Ready is False"
    return "NodeClassNotReady", f"EC2NodeClass {ref.name!r} is not Ready: {why}"


def unread_nodeclaims(snapshot: Snapshot, ledger: Ledger) -> list[str]:
    """Name the users' NodeClaims that readiness has not found in the API server as they are here."""
    asked = {str(m["metadata"]["name"]): nodeclaim_content(m) for m in unclaimed(snapshot, ledger.claims)}
    return [
        name
        for name, content in asked.items()
        if content and ledger.contents.get(f"NodeClaim/{name}") != content
    ]


def is_about_to_buy(inputs: Inputs) -> bool:
    """Whether a user's NodeClaim is so new that readiness may be reading it right now."""
    names = frozenset(unread_nodeclaims(inputs.snapshot, inputs.ledger))
    shown = (m for m in unclaimed(inputs.snapshot, inputs.ledger.claims) if m["metadata"]["name"] in names)
    claims = (parse_nodeclaim(manifest, inputs.now).value for manifest in shown)
    ages = [inputs.now - claim.created_at for claim in claims if claim is not None]
    return any(timedelta() <= age < _AWAITED for age in ages)


def by_hand(inputs: Inputs) -> tuple[list[PlannedNode], dict[str, str]]:
    """Give nodes for users' NodeClaims, and why there is none for the others, by name.

    Of those that are to be deleted nothing is said: lifecycle deletes them.
    """
    planned: list[PlannedNode] = []
    refused: dict[str, str] = {}
    if inputs.now - inputs.snapshot.taken_at > FRESH:
        return planned, refused
    unread = frozenset(unread_nodeclaims(inputs.snapshot, inputs.ledger))
    wishes = unclaimed(inputs.snapshot, inputs.ledger.claims)
    doomed = unlaunchable(wishes, inputs.snapshot.nodeclasses, inputs.now)
    for manifest in (each for each in wishes if each["metadata"]["name"] not in doomed):
        parsed = parse_nodeclaim(manifest, inputs.now)
        if parsed.value is None:
            refused[str(manifest["metadata"]["name"])] = "; ".join(map(str, parsed.fatal))
            continue
        if parsed.value.name in unread:
            if inputs.now - parsed.value.created_at > _READ_WITHIN:
                refused[parsed.value.name] = (
                    "readiness has not found it in the API server as the snapshot shows it"
                )
            continue
        try:
            planned.append(_planned(parsed.value, inputs))
        except Rejected as error:
            refused[parsed.value.name] = str(error)
    return planned, refused


def _planned(asked: NodeClaim, inputs: Inputs) -> PlannedNode:
    """Write down the node. Raises Rejected with what stands in the way."""
    nodeclasses, cluster = parsed_nodeclasses(inputs.snapshot), inputs.ledger.cluster
    obstacle = nodeclass_obstacle(asked.nodeclass, nodeclasses, inputs.ledger)
    if obstacle or cluster is None:
        raise Rejected(obstacle or "the cluster is not known yet")
    nodeclass = nodeclasses[asked.nodeclass.name]
    offers = template_of(
        _as_pool(asked),
        nodeclass,
        inputs.snapshot,
        inputs.ledger,
        inputs.catalog,
        inputs.settings,
        inputs.now,
    )
    options = _options(asked, offers)
    kind, cheapest = options[0]
    pool = parsed_nodepools(inputs.snapshot.nodepools).get(asked.nodepool)
    claim = replace(
        asked,
        created_at=inputs.now,
        phase_since=inputs.now,
        nodepool_uid=pool.owner_uid if pool else "",
        provisioner=pool.options.provisioner if pool and not pool.uid else "",
        nodepool_hash=pool.hash if pool else "",
        nodeclass_hash=nodeclass.hash,
        hash_version=HASH_VERSION,
        annotations={**asked.annotations, INSTANCE_PROFILE: offers.status.instance_profile},
        security_groups=tuple(group.id for group in offers.status.security_groups),
        capacity_type=cheapest.capacity_type,
        capacity=kind.capacity,
        allocatable=kind.allocatable,
        origin=BY_HAND,
    )
    request, templates = launch_plan(claim, options, nodeclass, offers.status, cluster)
    return PlannedNode(claim, request, templates)


def _as_pool(asked: NodeClaim) -> NodePool:
    """Give a NodePool of nothing but what the claim asks for. Its labels say where it belongs, not what it may be."""
    own = {key: value for key, value in asked.labels.items() if restriction(key) is None and key != NODEPOOL}
    wanted = Requirements({key: r for key, r in asked.requirements.items() if key != NODEPOOL})
    return NodePool(
        asked.nodepool,
        asked.nodeclass,
        wanted.union(Requirements.from_labels(own)),
        own,
        taints=asked.taints,
        startup_taints=asked.startup_taints,
    )


def _options(asked: NodeClaim, offers: Template) -> list[tuple[InstanceType, Offering]]:
    """Give what may be bought, of one way to pay, cheapest first. Raises Rejected where there is nothing."""
    fitting = [c for c in offers.choices if asked.requests.fits_in(c.type.allocatable)]
    if not fitting:
        raise Rejected(offers.obstacle or "no instance type that it allows offers all that it requests")
    plain = [choice for choice in fitting if not choice.is_exotic] or fitting
    found = sorted(_sold(plain), key=lambda o: (o[1].capacity_type != RESERVED, *_price(o)))
    return [option for option in found if option[1].capacity_type == found[0][1].capacity_type]


def _sold(choices: Sequence[Choice]) -> Iterator[tuple[InstanceType, Offering]]:
    return ((choice.type, offering) for choice in choices for offering in choice.offerings)


def _price(option: tuple[InstanceType, Offering]) -> tuple[float, str, str]:
    return option[1].price_hourly_usd, option[0].name, option[1].zone
