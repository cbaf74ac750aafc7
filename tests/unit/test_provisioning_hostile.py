"""One tenant's odd pods cost nobody else their nodes: what is never sold is set aside before anything is packed."""

from __future__ import annotations

import time
from dataclasses import replace

from nodesmith.decisions.provisioning import decide
from nodesmith.model.pods import Pod
from tests.builders import inputs, pods, shape


def odd_pods(count: int, names_each: int) -> list[Pod]:
    """Give pods that each ask for resources of their own, which no node has."""
    shapes = [
        shape(requests={f"odd.example.com/r{i}-{j}": "1" for j in range(names_each)}) for i in range(count)
    ]
    return [replace(pods(each)[0], key=f"odd/pod-{i:04d}") for i, each in enumerate(shapes)]


def test_pods_that_ask_for_what_nobody_sells_change_nothing_for_the_others() -> None:
    usual = decide(inputs(pods=tuple(pods(shape(), 5))))
    plan = decide(inputs(pods=(*pods(shape(), 5), *odd_pods(3, 2))))
    assert plan.nodes == usual.nodes
    assert plan.steps == usual.steps
    assert [u.pods for u in plan.unplaced] == [(f"odd/pod-{i:04d}",) for i in range(3)]
    assert "odd.example.com/r0-" in plan.unplaced[0].reason


def test_thousands_of_resources_that_nobody_sells_do_not_keep_a_decision_busy() -> None:
    odd = odd_pods(400, 10)
    before = time.process_time()
    plan = decide(inputs(pods=(*pods(shape(), 5), *odd)))
    assert time.process_time() - before < 10  # were each a dimension of every node, it would be minutes
    assert plan.nodes
    assert sum(len(u.pods) for u in plan.unplaced) == 400
