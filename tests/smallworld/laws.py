"""Invariants of a settled small world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodesmith.model.apimachinery.labels import DISRUPTED, INITIALIZED, REGISTERED
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.provisioningrequests import FAILED, PROVISIONED, GangStage

if TYPE_CHECKING:
    from tests.smallworld.world import World


def violations(world: World) -> list[str]:
    """Return violations: instances without a claim, claims with two instances, pods without a node, and others."""
    alive = world.cloud.alive()
    known = {c.instance_id for c in world.store.claims.values()}
    found = [*world.harm, *world.cluster.violations]
    found += [f"leaked {i.id} of {i.claim}" for i in alive if i.id not in known]
    found += [f"double use of {i}" for i in sorted(known) if i and _claimants(world, i) > 1]
    by_claim: dict[str, int] = {}
    for instance in alive:
        by_claim[instance.claim] = by_claim.get(instance.claim, 0) + 1
    found += [f"doubled {claim}: {n} instances" for claim, n in sorted(by_claim.items()) if n > 1]
    owners = {c.instance_id: c.name for c in world.store.claims.values()}
    found += [f"{i.id} carries the tag of {i.claim!r}" for i in alive if owners.get(i.id, i.claim) != i.claim]
    used = {p["spec"].get("nodeName") for p in world.pods.values()}
    kept = {c.instance_id for c in world.store.claims.values() if c.phase is Phase.STOPPED}
    found += [f"idle instance {i.id}" for i in alive if f"node-{i.id}" not in used and i.id not in kept]
    found += [f"{i.id} is {i.state}, not stopped" for i in alive if i.id in kept and i.state != "stopped"]
    found += [f"{i} is stopped and has a Node" for i in sorted(kept) if f"node-{i}" in world.cluster.nodes]
    if len(kept) != world.kept_warm:
        found.append(f"{len(kept)} instances are kept warm, not {world.kept_warm}")
    found += [f"forgotten {name}" for name, p in sorted(world.pods.items()) if not p["spec"].get("nodeName")]
    found += [
        f"claim {c.name} stays {c.phase}"
        for c in world.store.claims.values()
        if c.phase not in {Phase.INITIALIZED, Phase.STOPPED}
    ]
    found += [f"NodeClaim {name} left over" for name in world.cluster.nodeclaims.keys() - world.store.claims]
    found += [f"claim {name} is not shown" for name in world.store.claims.keys() - world.cluster.nodeclaims]
    found += [f"Node {name} left over" for name in world.cluster.nodes if not world.is_alive(name)]
    objects = [*world.cluster.nodes.values(), *world.cluster.nodeclaims.values()]
    deleted = [each["metadata"] for each in objects if each["metadata"].get("deletionTimestamp")]
    found += [f"{about['name']} is deleted and held by {about['finalizers']}" for about in deleted]
    found += [f"Node {name} is tainted for nothing" for name in closed(world)]
    found += [f"move {move.id} stays {move.stage}" for move in world.store.moves.values()]
    found += [f"request {name} is not answered" for name in unanswered(world)]
    return found + [f"Node {name} is used but not initialized" for name in strangers(world)]


def closed(world: World) -> list[str]:
    """Return the names of Nodes that are closed to pods without being part of a move or an end."""
    kept = {c.node_name for c in world.store.claims.values() if not c.is_ending}
    nodes = [n for name, n in world.cluster.nodes.items() if name in kept]
    tainted = [n for n in nodes if any(t["key"] == DISRUPTED.key for t in n["spec"].get("taints") or ())]
    return [n["metadata"]["name"] for n in tainted]


def unanswered(world: World) -> list[str]:
    """Return the ProvisioningRequests that show neither room nor failure, and those of gangs that are under way."""
    under_way = {
        gang.request for gang in world.store.gangs.values() if gang.stage is not GangStage.PROVISIONED
    }
    shown = {name for name, each in world.cluster.requests.items() if {PROVISIONED, FAILED} & true_of(each)}
    return sorted((world.cluster.requests.keys() - shown) | under_way)


def true_of(manifest: Mapping[str, Any]) -> set[str]:
    """Return the types of the conditions that an object shows as true."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return {str(each["type"]) for each in conditions if each["status"] == "True"}


def strangers(world: World) -> list[str]:
    """Return the names of Nodes that have pods but do not exist or are not marked as initialized."""
    nodes = world.cluster.nodes
    used = sorted({p["spec"]["nodeName"] for p in world.pods.values() if p["spec"].get("nodeName")})
    marks = {REGISTERED, INITIALIZED}
    return [n for n in used if n not in nodes or marks - nodes[n]["metadata"]["labels"].keys()]


def _claimants(world: World, instance_id: str) -> int:
    return sum(claim.instance_id == instance_id for claim in world.store.claims.values())
