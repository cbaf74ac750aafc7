"""Moves end: once a workload no longer changes, neither do its nodes, whatever the pods and NodePools ask for."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith_local.simulation.simulation import Simulation
from nodesmith_local.simulation.trace import Chances, Slot, Trace
from tests import builders
from tests.problems.drawing import Manifest, Mix, draw
from tests.problems.planning import inputs_of
from tests.samples import sampled

NOW, MINUTE, HOUR = builders.NOW, timedelta(minutes=1), timedelta(hours=1)
CHANGES = timedelta(hours=4)
"""Pods come within the first hour, and go within three hours after that."""
SETTLED = CHANGES + HOUR
QUICK = (0, 1, 2, 3, 4, 5, 6, 23, 117)
"""Seeds of a second each. In 23 and 117, pods with preferences were evicted again and again before their scheduler
bound them as kube-scheduler does."""


def still_trace(seed: int, lasts: timedelta) -> Trace:
    """Return a random workload under random NodePools that allow consolidation. Half of the pods stay."""
    dice = random.Random(seed)  # noqa: S311 a workload, not a secret
    mix = Mix(most_pods=7, most_shapes=4, most_types=6, soft=bool(seed % 2), weights=bool(seed % 3))
    problem = draw(seed, mix)
    manifests = [each for each in problem.manifests if not _is_there_already(each)]
    for manifest in manifests:
        if manifest["kind"] == "NodePool":
            manifest["spec"].pop("limits", None)
            manifest["spec"]["disruption"] = {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": dice.choice(("0s", "30s", "5m")),
                "budgets": [{"nodes": dice.choice(("100%", "10%", "1"))}],
            }
    inputs = inputs_of(manifests, problem.catalog)
    slots = []
    for number, pod in enumerate(inputs.snapshot.pods):
        owner = pod.shape.owner or f"ReplicaSet/app-{number % 5}"
        arrives = NOW + MINUTE * dice.randint(0, 60)
        end = arrives + MINUTE * dice.randint(30, 180) if dice.random() < 0.5 else None
        shape = replace(pod.shape, owner=owner)
        ends = None if end is None else (end, end)
        slots.append(Slot(pod.key, f"{shape.namespace}/{owner}", shape, arrives, ends))
    return Trace(replace(inputs, snapshot=replace(inputs.snapshot, pods=())), tuple(slots), NOW, NOW + lasts)


def _is_there_already(manifest: Manifest) -> bool:
    return manifest["kind"] == "Node" or (
        manifest["kind"] == "Pod" and bool(manifest["spec"].get("nodeName"))
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", sampled(QUICK, whole=tuple(range(120))))
def test_no_node_comes_or_goes_an_hour_after_the_last_pod(seed: int) -> None:
    at_first, later = (
        Simulation(still_trace(seed, lasts), seed, Chances(0.0)).run()
        for lasts in (SETTLED, SETTLED + 3 * HOUR)
    )
    for count in ("nodesLaunched", "evictions", "podsWithoutNode"):
        assert later[count] == at_first[count]
