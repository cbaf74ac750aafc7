"""When time alone, in a cluster that does not change, lets a move go on, or a search come to something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from nodesmith.decisions.disruption.budgets import holds_until, rate_allows_from
from nodesmith.decisions.disruption.candidates import quiet_since
from nodesmith.decisions.disruption.rebalancing import QUIET
from nodesmith.decisions.disruption.stages import waits_until
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.termination.protection import protected_until
from nodesmith.model.ledger import Ledger
from nodesmith.model.nodeclaims import Phase
from nodesmith.model.nodepools import NodePool, parsed_nodepools

LATEST = timedelta(minutes=5)
"""By then a tick searches in any case, as Karpenter does: prices and the ages of nodes are not foreseen here."""


def next_change(inputs: Inputs) -> datetime | None:
    """Return the first such moment after now that can be foreseen; None where only events can change anything.

    Such moments are the end of a wait (consolidateAfter, back-offs, moves that were abandoned), of a pod's
    `karpenter.sh/do-not-disrupt` duration, of a window in which a budget holds, and the time at which a NodePool's
    rate allows another disruption.
    """
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    moments = (*_limits(pools, inputs), *_nodes(pools, inputs), *_backoffs(inputs.ledger))
    return min((at for at in moments if at > inputs.now), default=None)


def _limits(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    for pool in pools.values():
        ends = (holds_until(budget, inputs.now) for budget in pool.disruption.budgets)
        yield from filter(None, (*ends, rate_allows_from(pool, inputs.ledger, inputs.now)))


def _nodes(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    """Give when nodes have been quiet for long enough, and when their pods may be disrupted."""
    served: set[str] = set()
    for claim in inputs.ledger.claims:
        node, pool = inputs.snapshot.node_of(claim), pools.get(claim.nodepool)
        if node is None or pool is None or claim.phase is not Phase.INITIALIZED:
            continue
        served.add(node.name)
        after = pool.disruption.consolidate_after_seconds
        if after is not None and not pool.is_static:
            since = quiet_since(claim, node)
            yield since + timedelta(seconds=after)
            if pool.disruption.rebalances_zones:
                yield since + QUIET
    protected = (pod for pod in inputs.snapshot.pods if pod.node in served and not pod.deleting)
    yield from filter(None, map(protected_until, protected))


def _backoffs(ledger: Ledger) -> Iterator[datetime]:
    for backoffs in (ledger.unavailable, ledger.nodepool_backoffs, ledger.move_backoffs):
        yield from (backoff.until for backoff in backoffs.values())
    yield from filter(None, map(waits_until, ledger.moves))
