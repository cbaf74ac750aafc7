"""Judges the plan for a random problem: by the audit, and against the best possible plan."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ledger.learned import Risk
from nodesmith_cli.audit import Violation, audit
from tests.problems.bruteforce import Best, TooLarge, best_plan, without_hopeless
from tests.problems.drawing import LARGE, SMALL, Mix, draw
from tests.problems.planning import inputs_of, planned, timed

_LOSSES = 100.0
_SAME = 1e-6
"""Prices in USD an hour that differ by less than this are equal: plans are written with nine digits."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The result for one small problem, and that of brute force. `best` is None if no plan places every pod."""

    seed: int
    price_hourly_usd: float
    bound_hourly_usd: float
    unplaced: dict[str, str]
    best: Best | None

    @property
    def is_missed(self) -> bool:
        """Whether all pods could have been placed and were not."""
        return self.best is not None and bool(self.unplaced)

    @property
    def is_comparable(self) -> bool:
        """Whether both place all pods, so that prices compare."""
        return self.best is not None and not self.unplaced

    @property
    def ratio(self) -> float:
        """The plan's price divided by the best one; 1 is optimal."""
        assert self.best is not None
        if self.price_hourly_usd <= self.best.price_hourly_usd + _SAME:
            return 1.0
        return (
            self.price_hourly_usd / self.best.price_hourly_usd if self.best.price_hourly_usd else float("inf")
        )

    @property
    def is_impossible(self) -> bool:
        """Whether the plan costs less than the best possible plan."""
        return self.best is not None and self.price_hourly_usd < self.best.price_hourly_usd - _SAME

    @property
    def is_overbound(self) -> bool:
        """Whether the plan's lower bound exceeds the best possible price."""
        return self.best is not None and self.bound_hourly_usd > self.best.price_hourly_usd + _SAME


def judged(seed: int, mix: Mix = SMALL) -> Judged | None:
    """Compare the plan for a problem with brute force; return None if that would take too long."""
    problem = without_hopeless(draw(seed, mix))
    try:
        best = best_plan(problem)
    except TooLarge:
        return None
    made = planned(problem.manifests, problem.catalog)
    return Judged(seed, made.price_hourly_usd, made.bound_hourly_usd, made.unplaced, best)


def rejudged(one: Judged, change: Callable[[Inputs], Inputs]) -> Judged:
    """Compare the plan for a small problem, with changed inputs, to the known best plan."""
    problem = without_hopeless(draw(one.seed))
    made = timed(change(inputs_of(problem.manifests, problem.catalog)))
    return Judged(one.seed, made.price_hourly_usd, made.bound_hourly_usd, made.unplaced, one.best)


def with_risks(inputs: Inputs) -> Inputs:
    """Give each type's cheapest spot pool a history of many interruptions."""
    risks = {
        OfferingKey(SPOT, name, min(spot, key=lambda o: (o.price_hourly_usd, o.zone)).zone): Risk(
            _LOSSES, inputs.now
        )
        for name, offerings in inputs.catalog.offerings.items()
        if (spot := [o for o in offerings if o.capacity_type == SPOT])
    }
    return replace(inputs, ledger=replace(inputs.ledger, risks=risks))


def found(seed: int, mix: Mix = LARGE) -> list[Violation]:
    """Return the audit's violations of the plan for a problem."""
    problem = draw(seed, mix)
    return audit(problem.manifests, problem.catalog, planned(problem.manifests, problem.catalog).plan)


def digests(count: int) -> str:
    """Return digests of the plans for the first problems, one a line: the small ones, then the large ones."""
    return "\n".join(_digest(range(count), mix) for mix in (SMALL, LARGE))


def _digest(seeds: range, mix: Mix) -> str:
    content = hashlib.sha256()
    for seed in seeds:
        problem = draw(seed, mix)
        plan = planned(problem.manifests, problem.catalog).plan
        content.update(json.dumps(plan, sort_keys=True).encode())
    return content.hexdigest()


if __name__ == "__main__":
    print(digests(int(sys.argv[1])))
