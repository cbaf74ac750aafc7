"""What scenarios that watch as users do have in common: a NodePool for each, its NodeClaims, and Events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith_cli.local.timeline import condition
from tests.e2e.manifests import Manifest, nodeclass, nodepool, requirement
from tests.e2e.system import CLUSTER, System

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge")  # 4 vCPUs, 3.92 of them allocatable
MUTE = nodeclass(CLUSTER, "mute", amiFamily="Custom", userData="#!/bin/sh\necho 'this joins no cluster'\n")
"""An EC2NodeClass whose instances never join."""


def pool_of(team: str, *requirements: Mapping[str, Any], **fields: Any) -> Manifest:
    """Return a NodePool that pods of a team select; its nodes stay until somebody ends them."""
    made = nodepool(team, labels={"team": team}, requirements=requirements or [ONE_SIZE], **fields)
    made["spec"]["disruption"] = {"consolidateAfter": "Never"}
    return made


def claims_of(system: System, team: str) -> list[Manifest]:
    """Return the NodeClaims of a NodePool."""
    return [dict(c) for c in system.claims() if c["metadata"]["labels"].get(NODEPOOL) == team]


def the_claim(system: System, team: str) -> Manifest:
    """Return the one NodeClaim of a NodePool once its instance is there."""

    def are_launched() -> list[bool]:
        return [condition(claim, "Launched").get("status") == "True" for claim in claims_of(system, team)]

    system.until(f"the NodeClaim of {team} is launched", lambda: are_launched() == [True])
    return claims_of(system, team)[0]


def says(system: System, team: str, kind: str, *said: str) -> None:
    """Wait until the one NodeClaim of a NodePool shows a condition with this status and reason."""

    def shows() -> bool:
        shown = [condition(claim, kind) for claim in claims_of(system, team)]
        return [(c.get("status"), c.get("reason")) for c in shown] == [said]

    system.until(f"{kind} of the NodeClaim of {team} is {' '.join(said)}", shows)


def events_on(system: System, name: str) -> dict[str, Manifest]:
    """Return nodesmith's Events on an object by their reasons."""
    found = system.cluster.objects.list("events", fields=f"involvedObject.name={name}")
    return {e["reason"]: dict(e) for e in found if e["source"].get("component") == "nodesmith"}


def told(system: System, name: str, reason: str, kind: str = "Warning") -> Manifest:
    """Wait until an object has an Event of this reason and type, and give that."""
    system.until(
        f"{name} is told {reason}", lambda: events_on(system, name).get(reason, {}).get("type") == kind
    )
    return events_on(system, name)[reason]
