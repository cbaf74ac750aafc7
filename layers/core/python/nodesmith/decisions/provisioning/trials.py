"""NodePools whose nodes do not join the cluster: left alone for a while, then tried with one node at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.ledger.backoffs import RegistrationHealth, basis_of, current_health
from nodesmith.model.ledger.ledger import Ledger

_UNDER_WAY = frozenset({Phase.PENDING, Phase.LAUNCHED})


def health_of(pool: NodePool, ledger: Ledger) -> RegistrationHealth | None:
    """Return the registration health of a NodePool in its current form; None if unknown."""
    status = ledger.nodeclasses.get(pool.nodeclass.name)
    return current_health(ledger.health.get(pool.name), basis_of(pool, status))


def trial_obstacle(pool: NodePool, ledger: Ledger, now: datetime) -> str:
    """Return why a NodePool whose nodes do not join may not buy now; empty if it may."""
    health = health_of(pool, ledger)
    if health is None or health.backoff is None:
        return ""
    if health.backoff.holds(now):
        return f"{_failed(health)}; tried again after {health.backoff.until:%H:%M:%S} UTC"
    tried = next((c.name for c in ledger.claims if c.nodepool == pool.name and c.phase in _UNDER_WAY), None)
    return f"{_failed(health)}; it is tried with one node, NodeClaim {tried}" if tried else ""


def limited_to_trial(template: Template, ledger: Ledger) -> Template:
    """Limit a NodePool whose nodes did not join to one node."""
    health = health_of(template.pool, ledger)
    if health is None or health.backoff is None:
        return template
    left = min(1, template.remaining.get(NODES, 1))
    why = f"{_failed(health)}; it is tried with one node first"
    return replace(template, remaining=Resources({**template.remaining, NODES: left}), trial=why)


def _failed(health: RegistrationHealth) -> str:
    of = len(health.endings)
    return f"{health.failures} of its last {of} nodes did not join ({health.reason}: {health.message})"
