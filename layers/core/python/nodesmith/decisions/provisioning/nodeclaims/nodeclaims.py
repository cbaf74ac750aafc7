"""NodeClaims that users create: each is bought exactly as requested, at the lowest price.

They may name a NodePool by its label but need none; limits and weights do not apply to them, as in Karpenter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from nodesmith.decisions.launch import as_launched, launch_plan
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.provisioning.nodeclaims.unlaunched import unclaimed, unlaunchable
from nodesmith.decisions.provisioning.nodepooltiers import nodeclass_obstacle, parsed_nodeclasses, template_of
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.scheduling.offerings.options import TypeOption
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import INSTANCE_PROFILE, NODEPOOL, RESERVED, restriction
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.hashes.statichashes import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from nodesmith.model.karpenter.nodeclaimobjects import nodeclaim_content, parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import BY_HAND, NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


class NothingFits(Rejected):
    """No available instance type meets the NodeClaim."""


FRESH = timedelta(minutes=2)
"""How old a snapshot without a heartbeat may be: an older one may show objects whose claims are already gone."""


_READ_WITHIN = timedelta(minutes=1)
"""How long readiness may take to read a new NodeClaim before its absence is reported."""
_AWAITED = timedelta(seconds=10)
"""How long pods wait for readiness to read a new NodeClaim: its node may have capacity for them."""


def unread_nodeclaims(snapshot: Snapshot, ledger: Ledger) -> list[str]:
    """Return the names of users' NodeClaims that the snapshot shows differently than readiness has read them."""
    asked = {str(m["metadata"]["name"]): nodeclaim_content(m) for m in unclaimed(snapshot, ledger.claims)}
    return [
        name
        for name, content in asked.items()
        if content and ledger.contents.get(f"NodeClaim/{name}") != content
    ]


def is_about_to_buy(inputs: Inputs) -> bool:
    """Return whether a user's NodeClaim is so new that readiness may be reading it right now."""
    names = frozenset(unread_nodeclaims(inputs.snapshot, inputs.ledger))
    shown = (m for m in unclaimed(inputs.snapshot, inputs.ledger.claims) if m["metadata"]["name"] in names)
    claims = (parse_nodeclaim(manifest, inputs.now).value for manifest in shown)
    ages = [inputs.now - claim.created_at for claim in claims if claim is not None]
    return any(timedelta() <= age < _AWAITED for age in ages)


def is_old(inputs: Inputs) -> bool:
    """Return whether users' NodeClaims wait because the snapshot is too old."""
    is_late = inputs.now - inputs.snapshot.taken_at > FRESH
    return is_late and bool(unclaimed(inputs.snapshot, inputs.ledger.claims))


@dataclass(frozen=True, slots=True)
class ByHand:
    """The decision about users' NodeClaims: nodes for some, and by name the reason why others get none.

    `unschedulable` are those that no available instance type fits. NodeClaims that are to be deleted because of their
    EC2NodeClass are in none of these.
    """

    planned: list[PlannedNode] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    unschedulable: dict[str, str] = field(default_factory=dict)


def by_hand(inputs: Inputs) -> ByHand:
    """Decide about users' NodeClaims."""
    found = ByHand()
    if is_old(inputs):
        return found
    unread = frozenset(unread_nodeclaims(inputs.snapshot, inputs.ledger))
    asked = unclaimed(inputs.snapshot, inputs.ledger.claims)
    doomed = unlaunchable(asked, inputs.snapshot.nodeclasses, inputs.now)
    for manifest in (each for each in asked if each["metadata"]["name"] not in doomed):
        parsed = parse_nodeclaim(manifest, inputs.now)
        if parsed.value is None:
            found.refused[str(manifest["metadata"]["name"])] = "; ".join(map(str, parsed.fatal))
            continue
        if parsed.value.name in unread:
            if inputs.now - parsed.value.created_at > _READ_WITHIN:
                why = "readiness has not found it in the API server as the snapshot shows it"
                found.refused[parsed.value.name] = why
            continue
        try:
            found.planned.append(_planned(parsed.value, inputs))
        except NothingFits as error:
            found.unschedulable[parsed.value.name] = str(error)
        except Rejected as error:
            found.refused[parsed.value.name] = str(error)
    return found


def _planned(asked: NodeClaim, inputs: Inputs) -> PlannedNode:
    """Return the node to buy. Raises Rejected with what stands in the way."""
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
        nodeclass_hash=nodeclass.hash_in(cluster.ca_bundle),
        nodepool_hash_version=NODEPOOL_HASH_VERSION,
        nodeclass_hash_version=NODECLASS_HASH_VERSION,
        annotations={**asked.annotations, INSTANCE_PROFILE: offers.status.instance_profile},
        security_groups=tuple(group.id for group in offers.status.security_groups),
        capacity_type=cheapest.capacity_type,
        capacity=kind.capacity,
        allocatable=kind.allocatable,
        origin=BY_HAND,
    )
    claim = as_launched(claim, nodeclass)
    request, templates = launch_plan(claim, options, nodeclass, offers.status, cluster)
    return PlannedNode(claim, request, templates)


def _as_pool(asked: NodeClaim) -> NodePool:
    """Return a NodePool that allows exactly what the claim asks for.

    Its labels say where it belongs, not what it may be.
    """
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
    """Return what may be bought, of one capacity type, cheapest first. Raises NothingFits if there is nothing."""
    fitting = [c for c in offers.choices if asked.requests.fits_in(c.type.allocatable)]
    if not fitting:
        raise NothingFits(offers.obstacle or "no instance type that it allows offers all that it requests")
    plain = [type_option for type_option in fitting if not type_option.is_exotic] or fitting
    found = sorted(_sold(plain), key=lambda o: (o[1].capacity_type != RESERVED, *_price(o)))
    return [option for option in found if option[1].capacity_type == found[0][1].capacity_type]


def _sold(choices: Sequence[TypeOption]) -> Iterator[tuple[InstanceType, Offering]]:
    return ((type_option.type, offering) for type_option in choices for offering in type_option.offerings)


def _price(option: tuple[InstanceType, Offering]) -> tuple[float, str, str]:
    return option[1].price_hourly_usd, option[0].name, option[1].zone
