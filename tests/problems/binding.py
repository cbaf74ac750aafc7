"""Checks that a plan holds in any order of binding, because kube-scheduler's order is not known in advance.

Pods without a spread never wait, so they may all come first: each spread must hold for a pod that comes last. And
whichever pods have come already, at least one of the rest must be able to come next.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.problems.drawing import Problem
from tests.problems.kubescheduler import HOSTNAME, Cluster, Node, Pod, admits, is_even
from tests.problems.supplies import CAPACITY, ZONE, Config, Supply, supply


def uneven(problem: Problem, plan: Mapping[str, Any]) -> list[str]:
    """Return the pods of a plan (as JSON) whose hard spreads do not hold once every pod is where the plan places it."""
    cluster, running, placed = _outcome(problem, plan)
    found = []
    for pod, host in placed:
        cluster.bound = [*running, *((other, at) for other, at in placed if other is not pod)]
        if not is_even(cluster, pod, host, {}):
            found.append(pod.key)
    return found


def unsatisfied(problem: Problem, plan: Mapping[str, Any], orders: int = 5) -> list[str]:
    """Return the pods that cannot bind to their planned nodes in some order; the problem's seed draws the orders."""
    cluster, running, placed = _outcome(problem, plan)
    dice = random.Random(problem.seed)  # noqa: S311
    for _ in range(orders):
        cluster.bound = list(running)
        waiting = dice.sample(placed, len(placed))
        while waiting:
            there = len(waiting)
            for pod, host in list(waiting):
                if admits(cluster, pod, host, {}):
                    cluster.bound.append((pod, host))
                    waiting.remove((pod, host))
            if len(waiting) == there:
                return sorted(pod.key for pod, _ in waiting)
    return []


_Places = list[tuple[Pod, int]]


def _outcome(problem: Problem, plan: Mapping[str, Any]) -> tuple[Cluster, _Places, _Places]:
    """Return the nodes after the plan, the running pods, and the planned pods, each with the number of its node."""
    given = supply(problem)
    names = [node.labels[HOSTNAME] for node in given.nodes] + [node["name"] for node in plan["nodes"]]
    new = [_bought(given, node) for node in plan["nodes"]]
    where = {key: n["node"] for n in plan["existing"] for key in n["pods"]}
    where |= {key: n["name"] for n in plan["nodes"] for key in n["pods"]}
    placed = [(pod, names.index(where[pod.key])) for pod in given.pending if pod.key in where]
    return Cluster([*given.nodes, *new], given.namespaces), given.running, placed


def _bought(given: Supply, planned: Mapping[str, Any]) -> Node:
    config = next(config for config in given.configs if _is(config, planned))
    return Node({**config.labels, HOSTNAME: planned["name"]}, config.taints, config.node.free)


def _is(config: Config, planned: Mapping[str, Any]) -> bool:
    asked = (planned["nodePool"], planned["instanceType"], planned["zone"], planned["capacityType"])
    reported = planned["labels"]
    return asked == (config.nodepool, config.kind, config.labels[ZONE], config.labels[CAPACITY]) and all(
        value == reported.get(key, value) for key, value in config.labels.items()
    )
