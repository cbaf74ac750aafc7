"""When time alone, without any change in the cluster, lets a move continue or a search find something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from nodesmith.decisions.budgets import opens_at
from nodesmith.decisions.disruption.candidates import quiet_since
from nodesmith.decisions.disruption.drift import TYPE_MISSED_AFTER
from nodesmith.decisions.disruption.moves import waits_until
from nodesmith.decisions.disruption.search.methods import QUIET_BEFORE_REBALANCING
from nodesmith.decisions.disruption.worth import worth_more_from
from nodesmith.decisions.provisioning.buffers.resolutions import next_window
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.termination.evictions import protected_until
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.karpenter.disruption import WHEN_EMPTY
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger

LATEST = timedelta(minutes=5)
"""By then a tick searches in any case, as Karpenter does: changes of prices and of nodes' ages are not predicted here.
"""


def next_change(inputs: Inputs) -> datetime | None:
    """Return the first such moment after now that can be predicted; None if only events can change anything.

    Such moments are the end of a pause, of a wait (consolidateAfter, back-offs, abandoned moves), of a pod's
    `karpenter.sh/do-not-disrupt` duration, of the window of a budget's or a CapacityBuffer's schedule, and the time at
    which a NodePool's rate allows another disruption.
    """
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    window = [*filter(None, [next_window(inputs.snapshot, inputs.now)])]
    pause = inputs.ledger.paused
    window = [*window, *((pause.until,) if pause and pause.until else ())]
    moments = (*_limits(pools, inputs), *_nodes(pools, inputs), *_backoffs(inputs.ledger), *window)
    return min((at for at in moments if at > inputs.now), default=None)


def next_search(inputs: Inputs) -> datetime | None:
    """Return the first moment after now at which a search that found nothing may find something; None if there is none.

    In addition to `next_change`: the value of a move grows while its nodes are quiet, up to a day, so there is a search
    every few minutes until then. The risk of spot interruptions decays, which makes capacity cheaper. A claim becomes
    old enough that its instance type may be missed.
    """
    ledger, pools = inputs.ledger, parsed_nodepools(inputs.snapshot.nodepools)
    hours = inputs.settings.interruption_cost_hours
    moments = [
        next_change(inputs),
        *(risk.cheaper_from(inputs.now, hours) for risk in ledger.risks.values()),
        *(claim.created_at + TYPE_MISSED_AFTER for claim in ledger.claims),
        *_lives(pools, inputs),
        *(backoff.until for backoff in ledger.subnet_backoffs.values()),
        *(held.until for health in ledger.health.values() for held in health.offerings.values()),
        *(health.backoff.until for health in ledger.health.values() if health.backoff),
        *(end for health in ledger.health.values() for end in (health.launches.until, health.moves.until)),
    ]
    return first_after(inputs.now, moments)


def _lives(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    """Yield when a move of a node may be worth more than it is now."""
    full = {pod.node for pod in inputs.snapshot.pods if pod.shape.moves}
    for claim, node, pool in _served(pools, inputs):
        if node.name in full and pool.disruption.consolidation_policy != WHEN_EMPTY:
            yield from filter(None, [worth_more_from(quiet_since(claim, node), inputs.now, LATEST)])


def _limits(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    yield from filter(None, (opens_at(pool, inputs.ledger, inputs.now) for pool in pools.values()))


def _nodes(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    """Yield when nodes have been quiet for long enough, and when their pods may be disrupted."""
    for claim, node, pool in _served(pools, inputs):
        since, after = quiet_since(claim, node), pool.disruption.consolidate_after_seconds
        yield since + timedelta(seconds=after or 0)
        if pool.disruption.rebalances_zones:
            yield since + QUIET_BEFORE_REBALANCING
    initialized = (c for c in inputs.ledger.claims if c.phase is Phase.INITIALIZED and c.nodepool in pools)
    served = {node.name for node in filter(None, map(inputs.snapshot.node_of, initialized))}
    protected = (pod for pod in inputs.snapshot.pods if pod.node in served and not pod.deleting)
    yield from filter(None, map(protected_until, protected))


def _served(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[tuple[NodeClaim, Node, NodePool]]:
    """Yield the nodes that may be consolidated once they have been quiet for long enough."""
    for claim in inputs.ledger.claims:
        node, pool = inputs.snapshot.node_of(claim), pools.get(claim.nodepool)
        if node is None or pool is None or claim.phase is not Phase.INITIALIZED:
            continue
        if pool.disruption.consolidate_after_seconds is not None and not pool.is_static:
            yield claim, node, pool


def _backoffs(ledger: Ledger) -> Iterator[datetime]:
    for backoffs in (ledger.unavailable, ledger.nodepool_backoffs, ledger.move_backoffs):
        yield from (backoff.until for backoff in backoffs.values())
    yield from filter(None, map(waits_until, ledger.moves))
