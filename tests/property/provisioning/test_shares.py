"""A decision stays within its steps, serves namespaces evenly, and never leaves a pod out forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.provisioning.fairness import MOST_STEPS, MOST_STEPS_OF_SEVERAL, shared_out, steps_of
from nodesmith.model.kubernetes.pods import Pod, PodAffinityTerm, Shape
from tests.builders import NOW, shape

RULE = PodAffinityTerm("kubernetes.io/hostname", None, anti=True, namespaces=None)
BASES = {name: shape(namespace=name) for name in "abc"}
LOT = st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(1, 500), st.integers(1, 2))
WAITING = st.lists(LOT, min_size=1, max_size=30)


def waiting_pods(batches: Sequence[tuple[str, int, int, int]]) -> list[Pod]:
    """Return pods of batches with a namespace, priority, number of rules and number of replicas."""
    shapes: list[tuple[Shape, int]] = [
        (replace(BASES[namespace], priority=priority, affinities=(RULE,) * rules), replicas)
        for namespace, priority, rules, replicas in batches
    ]
    return [
        Pod(f"{one.namespace}/p{number:03d}-{replica}", one, NOW, unschedulable=True)
        for number, (one, replicas) in enumerate(shapes)
        for replica in range(replicas)
    ]


@given(WAITING)
def test_a_decision_takes_no_more_than_its_steps_and_one_shape(
    batches: list[tuple[str, int, int, int]],
) -> None:
    pods = waiting_pods(batches)
    steps = [steps_of(one) for one in {pod.shape for pod in shared_out(pods).chosen}]
    assert sum(steps) - max(steps) < MOST_STEPS
    several = len({pod.shape.namespace for pod in pods}) > 1
    assert not several or sum(steps) - max(steps) <= MOST_STEPS_OF_SEVERAL


@given(WAITING)
def test_a_namespace_waits_only_if_no_other_of_its_priority_has_a_larger_share(
    batches: list[tuple[str, int, int, int]],
) -> None:
    """Max-min fairness for pods of one priority: a waiting namespace has at most one shape less than any other."""
    pods = waiting_pods([(namespace, 0, rules, replicas) for namespace, _, rules, replicas in batches])
    shares = shared_out(pods)
    spent: Counter[str] = Counter()
    for one in {pod.shape for pod in shares.chosen}:
        spent[one.namespace] += steps_of(one)
    largest = max(steps_of(pod.shape) for pod in pods)
    for namespace in {pod.shape.namespace for pod in shares.waiting}:
        assert spent[namespace] >= max(spent.values()) - largest


@given(WAITING)
def test_every_pod_is_considered_within_as_many_decisions_as_there_are_shapes(
    batches: list[tuple[str, int, int, int]],
) -> None:
    """No pod gets a node, which is the worst case for the pods behind them."""
    pods, seen = waiting_pods(batches), set[str]()
    tried: tuple[str, ...] = ()
    for _ in batches:
        shares = shared_out(pods, tried)
        assert shared_out(pods[::-1], tried).chosen == list(shares.chosen)[::-1], (
            "the order of pods must not matter"
        )
        chosen = {pod.key for pod in shares.chosen}
        assert chosen
        seen |= chosen
        tried = shares.tried_after(chosen)
    assert seen == {pod.key for pod in pods}
