"""The state of a fleet after moves: sources gone, replacements present, pods at their destinations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.plan import PlannedNode
from tests.objects.fleets import Worker

Launch = Callable[[PlannedNode, datetime], Worker]


def after(inputs: Inputs, done: Iterable[Proposal], launch: Launch, now: datetime, decision: str) -> Inputs:
    """Return the inputs of a later look at a fleet in which exactly these moves have been carried out."""
    done = list(done)
    gone = {name for proposal in done for name in proposal.sources}
    places: Mapping[str, str] = {pod: at for proposal in done for pod, at in proposal.destinations.items()}
    come = [launch(node, now) for proposal in done for node in proposal.replacements]
    names = {worker.claim.name: worker.node.name for worker in come}
    claims = inputs.ledger.claims
    left = {claim.provider_id for claim in claims if claim.name in gone}
    nodes = [node for node in inputs.snapshot.nodes if node.provider_id not in left]
    pods = [
        replace(pod, node=names.get(places[pod.key], places[pod.key])) if pod.key in places else pod
        for pod in inputs.snapshot.pods
    ]
    snapshot = replace(
        inputs.snapshot, pods=tuple(pods), nodes=(*nodes, *(w.node for w in come)), taken_at=now
    )
    kept = (*(c for c in claims if c.name not in gone), *(w.claim for w in come))
    return replace(
        inputs,
        snapshot=snapshot,
        ledger=replace(inputs.ledger, claims=kept),
        now=now,
        decision=decision,
    )
