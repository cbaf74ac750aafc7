"""What nodes cost, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import fsum

from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.metrics import Metrics, labelled

_UNPAID = frozenset({Phase.PENDING, Phase.TERMINATED, Phase.GIVEN_UP})
"""Phases without an instance, or after EC2 was asked to terminate it."""


def note_cost(metrics: Metrics, claims: Sequence[NodeClaim], nodepools: Iterable[str], now: datetime) -> None:
    """Record what the instances of each NodePool cost an hour in USD, at the prices at which they were bought."""
    paid = [claim for claim in claims if claim.phase not in _UNPAID]
    names = sorted({*nodepools, *(claim.nodepool for claim in paid)})
    cost = {name: fsum(c.price_hourly_usd for c in paid if c.nodepool == name) for name in names}
    series = {labelled(nodepool=name): round(usd, 6) for name, usd in cost.items()}
    metrics.show("nodepools_cost_total", series, now)
