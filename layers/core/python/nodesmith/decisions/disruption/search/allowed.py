"""What budgets still allow in one pass: NodePools' disruption budgets, and PodDisruptionBudgets of evicted pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from nodesmith.decisions.budgets import departed, remaining
from nodesmith.decisions.disruption.candidates import Candidate, by_node
from nodesmith.decisions.disruption.costs import moving
from nodesmith.decisions.disruption.proposals import BUDGET, Blocker
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.termination.evictions import Allowances, must_go
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Reason


class Allowed:
    """What may still be disrupted besides the sources of moves in progress. It shrinks as moves are accepted."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs, sources = inputs, inputs.ledger.sources
        self._going: list[NodeClaim] = [c for c in inputs.ledger.claims if c.name in sources]
        self._taken: Counter[str] = Counter()
        self._existing_nodes: dict[tuple[str, Reason], int | None] = {}
        self._gone: dict[str, int] = {}
        self._evictions = Allowances(inputs.snapshot.budgets)
        self._count_going()

    def nodes(self, pool: NodePool, reason: Reason) -> int | None:
        """Return how many more nodes of a NodePool may be disrupted; None for any number."""
        key = pool.name, reason
        if key not in self._existing_nodes:
            self._existing_nodes[key] = self._existing(pool, reason)
        left = self._existing_nodes[key]
        return None if left is None else max(0, left - self._taken[pool.name])

    def _existing(self, pool: NodePool, reason: Reason) -> int | None:
        """Evaluate a NodePool's budgets, with only its own claims."""
        inputs = self._inputs
        claims = tuple(claim for claim in inputs.ledger.claims if claim.nodepool == pool.name)
        going = [claim for claim in self._going if claim.nodepool == pool.name]
        ledger = replace(inputs.ledger, claims=claims)
        return remaining(pool, reason.budgeted, ledger, going, inputs.snapshot, inputs.now)

    def within(
        self, candidates: Iterable[Candidate], reason: Reason, most: int | None = None
    ) -> list[Candidate]:
        """Return the candidates that budgets allow to disrupt together, in order, up to `most`."""
        verdicts = self._verdicts(candidates, reason)
        return list(islice((one for one, keeper in verdicts if keeper is None), most))

    def kept(self, candidates: Iterable[Candidate], reason: Reason) -> dict[str, Blocker]:
        """Return for each candidate that `within` leaves out the budget that keeps it."""
        return {
            one.name: self._of_pods(keeper) if keeper else self._of_nodes(one.pool)
            for one, keeper in self._verdicts(candidates, reason)
            if keeper is not None
        }

    def _verdicts(
        self, candidates: Iterable[Candidate], reason: Reason
    ) -> Iterator[tuple[Candidate, str | None]]:
        """Yield each candidate, in order, with what keeps it.

        That is None if nothing does, "" for its NodePool's budgets, and otherwise the key of a PodDisruptionBudget.
        """
        taken: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        for one in candidates:
            left = self.nodes(one.pool, reason)
            if left is not None and taken[one.pool.name] >= left:
                yield one, ""
                continue
            # A held node ends by its deadline, which overrides PodDisruptionBudgets.
            is_asked = self._inputs.snapshot.budgets and one.held is None
            keeper = self._keeper(one, spent) if is_asked else ""
            if not keeper:
                taken[one.pool.name] += 1
            yield one, keeper or None

    def _of_nodes(self, pool: NodePool) -> Blocker:
        """Return why a NodePool's budgets allow no more disruptions."""
        limits, on = pool.disruption, f"NodePool {pool.name}"
        message = f"the disruption budgets of {on} allow no more disruptions for now"
        if limits.fault:
            message = (
                f"{limits.fault} of {on} is invalid: none of its nodes is disrupted until it is corrected"
            )
        elif limits.most_an_hour is not None and self._is_too_fast(pool, limits.most_an_hour):
            message = f"{on} has used up its maximum of disruptions in an hour ({limits.most_an_hour})"
        return Blocker(BUDGET, f"NodePool/{pool.name}", message)

    def _is_too_fast(self, pool: NodePool, most: int) -> bool:
        if pool.name not in self._gone:
            inputs = self._inputs
            self._gone[pool.name] = len(departed(pool.name, inputs.ledger, self._going, inputs.now))
        return self._gone[pool.name] + self._taken[pool.name] >= most

    def _of_pods(self, budget: str) -> Blocker:
        message = f"PodDisruptionBudget {budget} allows no eviction beyond those for other nodes"
        return Blocker("PodDisruptionBudget", f"PodDisruptionBudget/{budget}", message)

    def take(self, sources: Sequence[Candidate]) -> None:
        """Count the sources of an accepted move."""
        for source in sources:
            self._taken[source.pool.name] += 1
            for pod in _evicted(source.pods):
                self._evictions.count(pod)

    def _keeper(self, one: Candidate, spent: Counter[str]) -> str:
        """Return the PodDisruptionBudget that refuses an eviction after those for earlier nodes; empty if none does.

        Every accepted node can thus begin to drain at once; the budgets determine how fast its other pods follow.
        """
        guarded = _evicted(one.pods)
        for pod in guarded:
            if not self._evictions.permits(pod, spent):
                return self._evictions.guards(pod.shape)[0].key
        spent.update(budget for budget in map(self._evictions.budget, guarded) if budget)
        return ""

    def _count_going(self) -> None:
        snapshot = self._inputs.snapshot
        if not self._going or not snapshot.budgets:
            return
        pods = by_node(snapshot.pods)
        for node in filter(None, map(snapshot.node_of, self._going)):
            for pod in _evicted(moving(pods.get(node.name, ()))):
                self._evictions.count(pod)


def _evicted(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods for which an eviction will be requested when their node is disrupted.

    Pods that are being deleted already do not count again.
    """
    return [pod for pod in pods if must_go(pod.shape) and not pod.deleting]
