"""Helpers for scenarios that watch as users do: a NodePool for each, its NodeClaims, and Events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith_local.runs.timeline import condition
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import Manifest, nodeclass, nodepool, requirement

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge")  # 4 vCPUs, 3.92 of them allocatable
MUTE = nodeclass(CLUSTER, "mute", amiFamily="Custom", userData="#!/bin/sh\necho 'this joins no cluster'\n")
"""An EC2NodeClass whose instances never join."""


def pool_of(team: str, *requirements: Mapping[str, Any], **fields: Any) -> Manifest:
    """Return a NodePool that a team's pods select. Its nodes stay until a test ends them."""
    made = nodepool(team, labels={"team": team}, requirements=requirements or [ONE_SIZE], **fields)
    made["spec"]["disruption"] = {"consolidateAfter": "Never"}
    return made


def claims_of(system: System, team: str) -> list[Manifest]:
    """Return a NodePool's NodeClaims."""
    return [dict(c) for c in system.claims() if c["metadata"]["labels"].get(NODEPOOL) == team]


def the_claim(system: System, team: str) -> Manifest:
    """Return a NodePool's only NodeClaim once its instance is launched."""

    def are_launched() -> list[bool]:
        return [condition(claim, "Launched").get("status") == "True" for claim in claims_of(system, team)]

    system.until(f"the NodeClaim of {team} is launched", lambda: are_launched() == [True])
    return claims_of(system, team)[0]


def says(system: System, team: str, kind: str, *said: str) -> None:
    """Wait until a NodePool's only NodeClaim shows a condition with this status and reason."""

    def shows() -> bool:
        shown = [condition(claim, kind) for claim in claims_of(system, team)]
        return [(c.get("status"), c.get("reason")) for c in shown] == [said]

    system.until(f"{kind} of the NodeClaim of {team} is {' '.join(said)}", shows)


def events_on(system: System, name: str) -> dict[str, Manifest]:
    """Return nodesmith's Events about an object by reason."""
    found = system.cluster.objects.list("events", fields=f"involvedObject.name={name}")
    return {e["reason"]: dict(e) for e in found if e["source"].get("component") == "nodesmith"}


def event_of(system: System, name: str, reason: str, kind: str = "Warning", said: str = "") -> Manifest:
    """Wait for an Event with this reason and type about an object, whose message contains `said`, and return it."""

    def found() -> Manifest:
        events = system.cluster.objects.list("events", fields=f"involvedObject.name={name}")
        return next(
            (
                dict(e)
                for e in events
                if (e["source"].get("component"), e["reason"], e["type"]) == ("nodesmith", reason, kind)
                and said in e["message"]
            ),
            {},
        )

    system.until(f"{name} has an Event with reason {reason} {said}", lambda: bool(found()))
    return found()
