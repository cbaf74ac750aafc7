"""What budgets still allow in one pass: those of NodePools, and those of the pods that would be evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from nodesmith.decisions.disruption.budgets import room
from nodesmith.decisions.disruption.candidates import Candidate, by_node
from nodesmith.decisions.disruption.costs import moving
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.termination.draining import must_go
from nodesmith.decisions.termination.protection import Allowances
from nodesmith.model.moves import Reason
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodepools import NodePool


class Allowed:
    """What may still be disrupted, beside what is `moving` already. It shrinks as moves are chosen."""

    def __init__(self, inputs: Inputs, moving_claims: Collection[str]) -> None:
        self._inputs = inputs
        self._going: list[NodeClaim] = [c for c in inputs.ledger.claims if c.name in moving_claims]
        self._taken: Counter[str] = Counter()
        self._rooms: dict[tuple[str, Reason], int | None] = {}
        self._evictions = Allowances(inputs.snapshot.budgets)
        self._count_going()

    def nodes(self, pool: NodePool, reason: Reason) -> int | None:
        """Give how many more nodes of a NodePool may go; None for all."""
        key = pool.name, reason
        if key not in self._rooms:
            self._rooms[key] = self._room(pool, reason)
        left = self._rooms[key]
        return None if left is None else max(0, left - self._taken[pool.name])

    def _room(self, pool: NodePool, reason: Reason) -> int | None:
        """Ask a NodePool's budgets, and show them no more claims than they look at."""
        inputs = self._inputs
        claims = tuple(claim for claim in inputs.ledger.claims if claim.nodepool == pool.name)
        going = [claim for claim in self._going if claim.nodepool == pool.name]
        ledger = replace(inputs.ledger, claims=claims)
        return room(pool, reason.budgeted, ledger, going, inputs.snapshot, inputs.now)

    def within(
        self, candidates: Iterable[Candidate], reason: Reason, most: int | None = None
    ) -> list[Candidate]:
        """Give the candidates, in order, that budgets let go together; of equals the first."""
        chosen: list[Candidate] = []
        taken: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        for one in candidates:
            left = self.nodes(one.pool, reason)
            if most is not None and len(chosen) >= most:
                break
            if left is not None and taken[one.pool.name] >= left:
                continue
            if self._inputs.snapshot.budgets and not self._can_leave(one, spent):
                continue
            taken[one.pool.name] += 1
            chosen.append(one)
        return chosen

    def take(self, sources: Sequence[Candidate]) -> None:
        """Count a move."""
        for source in sources:
            self._taken[source.pool.name] += 1
            for pod in source.pods:
                if must_go(pod.shape):
                    self._evictions.count(pod)

    def _can_leave(self, one: Candidate, spent: Counter[str]) -> bool:
        """Tell whether each budget of a node's pods lets one of them go at least, beside those of nodes before it.

        So every node that goes can begin to drain at once; how fast the others follow is for the budgets to say.
        """
        guarded = [pod for pod in one.pods if must_go(pod.shape)]
        if not all(self._evictions.permits(pod, spent) for pod in guarded):
            return False
        spent.update(budget for budget in map(self._evictions.budget, guarded) if budget)
        return True

    def _count_going(self) -> None:
        snapshot = self._inputs.snapshot
        if not self._going or not snapshot.budgets:
            return
        pods = by_node(snapshot.pods)
        for node in filter(None, map(snapshot.node_of, self._going)):
            for pod in moving(pods.get(node.name, ())):
                if must_go(pod.shape):
                    self._evictions.count(pod)
