"""Deletion of users' NodeClaims that will not be launched; an Event gives the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.controllers.launching.unschedulable import read_unschedulable
from nodesmith.controllers.runs import Outside
from nodesmith.decisions.provisioning.nodeclaims import overdue, unlaunchable
from nodesmith.errors import Failures
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.ownership import is_unclaimed
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.snapshot import Snapshot

DELETED_AT_ONCE = 50
"""The most NodeClaims that one run deletes: each takes three calls."""


def delete_unlaunchable(
    run: Outside,
    requested: Sequence[Mapping[str, Any]],
    snapshot: Snapshot,
    now: datetime,
    failures: Failures,
) -> list[str]:
    """Delete users' NodeClaims that will not be launched, if the API server confirms it; return their names.

    Their EC2NodeClass is missing or not Ready, nothing fits them, or they have waited too long. The API server is read
    because the snapshot may be older than the EC2NodeClass, or show a NodeClaim that another run has just launched.
    """
    deleted: list[str] = []
    decided_at, unschedulable = (
        read_unschedulable(run.blobs, run.cluster_name, now) if requested else (now, {})
    )

    def doomed(
        asked: Sequence[Mapping[str, Any]], nodeclasses: Iterable[Mapping[str, Any]]
    ) -> dict[str, tuple[str, str]]:
        older = [
            name for each in asked if (name := each["metadata"]["name"]) in unschedulable and is_older(each)
        ]
        unfit = {name: ("InsufficientCapacityError", unschedulable[name]) for name in older}
        return {**overdue(asked, now), **unfit, **unlaunchable(asked, nodeclasses, now)}

    def is_older(manifest: Mapping[str, Any]) -> bool:
        return parse_time(manifest["metadata"]["creationTimestamp"]) <= decided_at

    suspects = list(doomed(requested, snapshot.nodeclasses))[:DELETED_AT_ONCE]
    if not suspects:
        return deleted
    with failures.of("NodeClaims that will not be launched"):
        nodeclasses = run.cluster.nodepools_and_nodeclasses().nodeclasses
        there = [each for name in suspects if (each := run.cluster.nodeclaim(name)) is not None]
        known = run.store.known(suspects)
        requested = [each for each in there if is_unclaimed(each) and each["metadata"]["name"] not in known]
        for name, (reason, message) in doomed(requested, nodeclasses).items():
            run.cluster.publish([ObjectEvent("NodeClaim", name, reason, message, warning=True)])
            run.cluster.delete_nodeclaim(name)
            deleted.append(name)
    return deleted
