"""Where there is more to decide than one decision may take, namespaces get equal shares, and all pods have a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from nodesmith.decisions.provisioning import Plan, canonical, decide, plan_item, record, replay
from nodesmith.decisions.provisioning.fairness import (
    MOST_STEPS,
    MOST_STEPS_OF_SEVERAL,
    exceeds_steps,
    round_robin,
    shared_out,
    steps_of,
)
from nodesmith.model.kubernetes.pods import Pod, PodAffinityTerm, Shape
from tests.builders import NOW, anti_affinity, inputs, pods, shape, spread


def unlike(count: int, namespace: str = "crowd", *, priority: int = 0, first: int = 0) -> list[Pod]:
    """Return pods of which each is of a shape of its own: one step each."""
    return of_own_shapes(shape(namespace=namespace, priority=priority), count, first)


def heavy(count: int) -> list[Pod]:
    """Return pods of which each is of a shape of its own, with so many rules that it takes 76 steps."""
    rule = PodAffinityTerm("kubernetes.io/hostname", None, anti=True, namespaces=None)
    return of_own_shapes(replace(shape(namespace="crowd"), affinities=(rule,) * 25), count)


def of_own_shapes(alike: Shape, count: int, first: int = 0) -> list[Pod]:
    numbers = range(first, first + count)
    return [pod for n in numbers for pod in pods(replace(alike), prefix=f"p{n:05d}")]


def of_namespace(found: Sequence[Pod], namespace: str) -> list[Pod]:
    return [pod for pod in found if pod.shape.namespace == namespace]


def test_as_much_as_one_decision_may_take_is_decided_at_once_in_the_order_in_which_it_came() -> None:
    ordinary = [*unlike(MOST_STEPS_OF_SEVERAL - 1), *pods(shape(namespace="shop"), 5000)]
    shares = shared_out(ordinary)
    assert (shares.chosen, shares.waiting, shares.tried_after([])) == (ordinary, (), ())
    assert not exceeds_steps(ordinary)


def test_replicas_of_one_kind_are_one_thing_to_decide() -> None:
    assert not exceeds_steps(pods(shape(), 100_000))


def test_one_namespace_alone_has_more_than_several_share() -> None:
    assert not exceeds_steps(unlike(MOST_STEPS))
    assert exceeds_steps([*unlike(MOST_STEPS), *unlike(1, "shop")])


def test_what_pods_ask_for_makes_them_more_work() -> None:
    plain = shape()
    assert steps_of(plain) == 1
    assert steps_of(shape(nodeSelector={"team": "a"})) == 3
    assert steps_of(shape(topologySpreadConstraints=spread(hard=True), affinity=anti_affinity())) == 7


def test_the_few_pods_of_one_namespace_are_decided_before_the_thousands_of_another() -> None:
    crowd, few = unlike(5000), unlike(20, "shop")
    shares = shared_out([*crowd, *few])
    assert of_namespace(shares.chosen, "shop") == few
    assert len(of_namespace(shares.chosen, "crowd")) == MOST_STEPS_OF_SEVERAL - 20
    assert shares.new == 5000 - (MOST_STEPS_OF_SEVERAL - 20)


def test_two_namespaces_with_thousands_get_equal_shares() -> None:
    shares = shared_out([*unlike(5000, "a"), *unlike(3000, "b")])
    assert len(of_namespace(shares.chosen, "a")) == len(of_namespace(shares.chosen, "b"))


def test_a_higher_priority_comes_first_and_leaves_the_others_half() -> None:
    urgent, ordinary = unlike(5000, "urgent", priority=1000), unlike(5000, "ordinary")
    shares = shared_out([*ordinary, *urgent])
    half = MOST_STEPS_OF_SEVERAL // 2
    assert len(of_namespace(shares.chosen, "urgent")) == half
    assert len(of_namespace(shares.chosen, "ordinary")) == half
    mixed = [*unlike(5000), *unlike(10, priority=1000, first=6000), *unlike(1, "shop")]
    chosen = shared_out(mixed).chosen
    assert sum(pod.shape.priority for pod in chosen) == 10_000


def test_pods_tried_in_vain_come_again_after_those_that_nobody_has_looked_at() -> None:
    waiting = [*unlike(10_000), *unlike(1, "shop")]
    first = shared_out(waiting)
    tried = first.tried_after(pod.key for pod in first.chosen)
    second = shared_out(waiting, tried)
    crowd = {pod.key for pod in of_namespace(second.chosen, "crowd")}
    assert crowd.isdisjoint(tried)
    assert of_namespace(second.chosen, "shop"), "its share is its own, however often it is tried"
    assert second.new == 10_000 - 2 * (MOST_STEPS_OF_SEVERAL - 1)


def test_pods_that_wait_for_their_turn_are_told_how_many_they_are() -> None:
    plan = decide(inputs(pods=(*heavy(70), *unlike(20, "shop")), tried=()))
    (waiting,) = [group for group in plan.unplaced if group.reason.startswith("waits for its turn")]
    assert waiting.reason == "waits for its turn: 17 different kinds of pods wait in namespace crowd"
    assert len(waiting.pods) == plan.new == 17
    assert waiting.cause.fix


def test_a_crowded_decision_is_replayed_to_the_same_bytes_whatever_was_tried_before() -> None:
    made_from = inputs(pods=(*heavy(70), *unlike(20, "shop")), tried=())
    first = decide(made_from)
    tried = tuple(pod.key for pod in heavy(30))
    made_from = replace(made_from, tried=tried)
    plan = decide(made_from)
    written = record(made_from, plan, "digest", {})
    assert plan_item(plan) != plan_item(first)
    assert replay(written, made_from.snapshot, made_from.catalog) == canonical(plan_item(plan))


def test_a_decision_without_a_limit_is_about_all_pods_and_so_is_its_replay() -> None:
    made_from = inputs(pods=(*heavy(70), *unlike(20, "shop")))
    plan = decide(made_from)
    assert not plan.unplaced
    written = record(made_from, plan, "digest", {})
    assert replay(written, made_from.snapshot, made_from.catalog) == canonical(plan_item(plan))


def test_the_first_nodes_that_are_bought_serve_all_namespaces() -> None:
    apart = anti_affinity()
    many = pods(shape("3", namespace="crowd", affinity=apart), 200)
    few = pods(shape("3", namespace="shop", app="shop", affinity=apart), 20)
    plan = decide(inputs(pods=(*many, *few)))
    assert _namespaces(plan) - {"crowd", "shop"} == set()
    first = round_robin(plan.nodes)[:45]
    served = {pod for node in first for pod in node.claim.nominated}
    assert sum(pod.startswith("shop/") for pod in served) == 20
    assert sorted(node.claim.name for node in round_robin(plan.nodes)) == sorted(
        n.claim.name for n in plan.nodes
    )
    alone = decide(inputs(pods=tuple(many)))
    assert round_robin(alone.nodes) == list(alone.nodes)


def _namespaces(plan: Plan) -> set[str]:
    return {pod.partition("/")[0] for node in plan.nodes for pod in node.claim.nominated}


def test_of_pods_that_came_at_different_times_the_oldest_are_decided_first() -> None:
    waiting = [*unlike(10_000), *unlike(1, "shop")]
    aged = [replace(pod, created_at=NOW - timedelta(seconds=number)) for number, pod in enumerate(waiting)]
    chosen = of_namespace(shared_out(aged).chosen, "crowd")
    assert {pod.key for pod in chosen} == {pod.key for pod in aged[10_000 - len(chosen) : 10_000]}
