"""When the passing of time alone gives provisioning something to do while no pod waits for a node."""

from __future__ import annotations

from datetime import datetime

from nodesmith.decisions.due import first_after
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.model.karpenter.nodeclaims import Phase

_BEFORE_LAUNCH = frozenset({Phase.PENDING, Phase.GIVEN_UP})


def next_change(inputs: Inputs) -> datetime | None:
    """Return the next such moment; None if there is none.

    Return now while instances are being launched or pods are about to leave nodes. Otherwise the moment is when an
    offering becomes available again, which metrics report.
    """
    claims, nodes = inputs.ledger.claims, inputs.snapshot.nodes
    coming = any(claim.phase in _BEFORE_LAUNCH for claim in claims)
    if coming or any(claim.is_ending for claim in claims) or any(node.deleting for node in nodes):
        return inputs.now
    return first_after(inputs.now, (backoff.until for backoff in inputs.ledger.unavailable.values()))
