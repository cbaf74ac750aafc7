"""Recording drift in the ledger and on the NodeClaim, with the time since when the node has drifted."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.controllers.nodeclaims.rewriting import rewrite
from nodesmith.decisions.disruption.drift import judged, noted
from nodesmith.decisions.provisioning import Inputs
from nodesmith.errors import Failures
from nodesmith.ports import Cluster, Store

MOST_AT_ONCE = 200
"""The most claims that one run writes. A new image may affect thousands, and budgets let few of them go at a time."""


def note_drift(
    drift: Mapping[str, str], inputs: Inputs, store: Store, cluster: Cluster, failures: Failures
) -> int:
    """Record which claims drift now or no longer do; return their number. The oldest come first, as in disruption."""
    changed = noted(judged(inputs.snapshot, inputs.ledger), drift, inputs.now)
    changed.sort(key=lambda claim: (claim.created_at, claim.name))
    return rewrite(changed[:MOST_AT_ONCE], store, cluster, failures)
