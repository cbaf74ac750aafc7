"""Workloads whose pods never run get few nodes, and workloads whose pods ran are never held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.provisioning.attempts import AttemptHistory, Repeating, histories
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod, Reason
from nodesmith.model.ledger.ledger import Departure, departure_of
from tests.builders import NOW, READY, claim, ledger, node, pods, shape, snapshot
from tests.samples import sampled

WEB = shape()
NAMES = Workloads()
WORKLOAD = NAMES.of(pods(WEB)[0])
LOOK = timedelta(seconds=10)
HOUR = timedelta(hours=1)
TRIALS_IN_AN_HOUR = 5


@dataclass(slots=True)
class InVain:
    """Pods of one workload that never run; a node is bought for each of them whenever allowed."""

    dice: Random
    pods: list[Pod]
    bought: int = 0
    claims: list[NodeClaim] = field(default_factory=list)
    gone: list[Departure] = field(default_factory=list)

    def look(self, now: datetime) -> None:
        self._end(now)
        if self.dice.random() < 0.05:  # their controller recreates them
            self.pods = [replace(pod, created_at=now) for pod in self.pods]
        expected = {c.nominated[0]: c.name for c in self.claims if c.initialized_at is None}
        fresh = [pod for pod in self.pods if pod.key not in expected]
        expecting = [(expected[pod.key], pod) for pod in self.pods if pod.key in expected]
        kept = tuple(each for each in self.gone if now <= each.kept_until)
        known = ledger(claims=tuple(self.claims), departures=kept)
        found = histories(fresh, expecting, known, snapshot(pods=self.pods), now, NAMES)
        chosen, held = Repeating(found, NAMES, now).split(fresh)
        assert len(chosen) + len(held) == len(fresh)
        attempt = found.get(WORKLOAD, AttemptHistory()).failed + 1
        for pod in chosen:
            self.bought += 1
            made = claim(f"c-{self.bought}", created_at=now, nominated=(pod.key,))
            self.claims.append(replace(made, attempts=FrozenMap({WORKLOAD: attempt})))

    def _end(self, now: datetime) -> None:
        """Initialize and end nodes at random moments."""
        for index, each in enumerate(self.claims):
            age = now - each.created_at
            if each.initialized_at is None and age > timedelta(seconds=self.dice.randrange(20, 120)):
                ready = replace(each, phase=Phase.INITIALIZED, phase_since=now, initialized_at=now)
                self.claims[index] = ready
            elif self.dice.random() < 0.1:
                ending = replace(each, phase=Phase.TERMINATING, terminating_at=now, cause="Empty")
                found = departure_of(ending)
                assert found is not None
                self.gone.append(found)
                self.claims[index] = replace(ending, phase=Phase.GIVEN_UP)
        self.claims = [each for each in self.claims if each.phase is not Phase.GIVEN_UP]


@settings(max_examples=sampled(6, whole=100))
@given(st.integers(1, 8), st.integers(0, 10**9))
def test_at_most_two_nodes_for_each_pod_and_a_few_trials_are_bought_in_an_hour(count: int, seed: int) -> None:
    vain = InVain(Random(seed), pods(WEB, count))  # noqa: S311
    for number in range(HOUR // LOOK):
        vain.look(NOW + number * LOOK)
    assert vain.bought <= 2 * count + TRIALS_IN_AN_HOUR


def purchases() -> st.SearchStrategy[list[NodeClaim]]:
    def made(number: int, minutes: int, attempt: int, ready: bool, served: bool) -> NodeClaim:
        at = NOW - timedelta(minutes=minutes)
        phase = Phase.INITIALIZED if ready else Phase.LAUNCHED
        made = claim(f"c-{number}", phase=phase, created_at=at, phase_since=at)
        return replace(
            made,
            initialized_at=at + timedelta(seconds=45) if ready else None,
            attempts=FrozenMap({WORKLOAD: attempt}),
            served=(WORKLOAD,) if served and ready else (),
        )

    one = st.builds(
        made, st.integers(0, 9), st.integers(1, 240), st.integers(1, 9), st.booleans(), st.booleans()
    )
    return st.lists(one, max_size=6, unique_by=lambda each: each.name)


def history(claims: Sequence[NodeClaim], on: Sequence[Pod] = ()) -> AttemptHistory:
    waiting = [replace(pod, created_at=NOW - timedelta(hours=5)) for pod in pods(WEB)]
    nodes = tuple(node(f"on-{c.name}", provider_id=c.provider_id, labels=READY) for c in claims)
    seen = snapshot(pods=(*waiting, *on), nodes=nodes)
    found = histories(waiting, (), ledger(claims=tuple(claims)), seen, NOW, NAMES)
    return found.get(WORKLOAD, AttemptHistory())


@given(purchases(), st.randoms(use_true_random=False))
def test_the_order_of_claims_does_not_matter(claims: list[NodeClaim], dice: Random) -> None:
    shuffled = list(claims)
    dice.shuffle(shuffled)
    assert history(shuffled) == history(claims)


@given(purchases())
def test_a_pod_that_stays_on_the_newest_node_clears_the_history(claims: list[NodeClaim]) -> None:
    at = NOW - timedelta(seconds=59)
    newest = replace(claim("newest", phase=Phase.INITIALIZED), attempts=FrozenMap({WORKLOAD: 9}))
    newest = replace(newest, created_at=at, initialized_at=NOW - timedelta(minutes=1))
    there = replace(pods(WEB, prefix="other")[0], node="on-newest")
    assert history([*claims, newest], [there]) == AttemptHistory()


@given(purchases())
def test_no_pod_waits_longer_than_a_day_after_the_last_purchase(claims: list[NodeClaim]) -> None:
    found = history(claims)
    if found.until is not None:
        assert found.until <= max(each.created_at for each in claims) + 24 * HOUR


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12), st.integers(0, 9))
def test_each_pod_is_chosen_or_held_back_with_a_reason(made: list[tuple[int, bool]], failed: int) -> None:
    some = [
        replace(pods(shape(app=f"app-{app}"))[0], key=f"default/{number}", node="old" if runs else "")
        for number, (app, runs) in enumerate(made)
    ]
    mine = NAMES.of(pods(shape(app="app-0"))[0])
    repeating = Repeating({mine: AttemptHistory(failed, NOW + LOOK)}, NAMES, NOW)
    chosen, held = repeating.split(some)
    waits = [pod for pod in some if NAMES.of(pod) == mine and not pod.node and failed > 1]
    assert sorted(pod.key for pod, _ in held) == sorted(pod.key for pod in waits)
    assert sorted(pod.key for pod in chosen) == sorted({p.key for p in some} - {p.key for p in waits})
    assert all(isinstance(why, Reason) and why.fix for _, why in held)
