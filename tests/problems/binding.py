"""What a plan leaves to the order of binding: pods whose spread would not let them in after all the others.

kube-scheduler binds in an order of its own, and pods that have no spread wait for nobody: they may all come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.problems.drawing import Problem
from tests.problems.kubescheduler import HOSTNAME, Cluster, Node, is_even
from tests.problems.supplies import CAPACITY, ZONE, Config, Supply, supply


def uneven(problem: Problem, plan: Mapping[str, Any]) -> list[str]:
    """Give the pods of a plan (as JSON) whose hard spreads do not hold once every pod is where the plan has it."""
    given = supply(problem)
    names = [node.labels[HOSTNAME] for node in given.nodes] + [node["name"] for node in plan["nodes"]]
    new = [_bought(given, node) for node in plan["nodes"]]
    cluster = Cluster([*given.nodes, *new], given.namespaces)
    where = {key: n["node"] for n in plan["existing"] for key in n["pods"]}
    where |= {key: n["name"] for n in plan["nodes"] for key in n["pods"]}
    placed = [(pod, names.index(where[pod.key])) for pod in given.pending if pod.key in where]
    found = []
    for pod, host in placed:
        cluster.bound = [*given.running, *((other, at) for other, at in placed if other is not pod)]
        if not is_even(cluster, pod, host, {}):
            found.append(pod.key)
    return found


def _bought(given: Supply, planned: Mapping[str, Any]) -> Node:
    config = next(config for config in given.configs if _is(config, planned))
    return Node({**config.labels, HOSTNAME: planned["name"]}, config.taints, config.node.free)


def _is(config: Config, planned: Mapping[str, Any]) -> bool:
    asked = (planned["nodePool"], planned["instanceType"], planned["zone"], planned["capacityType"])
    told = planned["labels"]
    return asked == (config.nodepool, config.kind, config.labels[ZONE], config.labels[CAPACITY]) and all(
        value == told.get(key, value) for key, value in config.labels.items()
    )
