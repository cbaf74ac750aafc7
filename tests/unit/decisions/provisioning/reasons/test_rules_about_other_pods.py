"""The reasons for pods that rules about other pods keep from every node, and their remedies."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.decisions.provisioning import Unplaced, decide
from nodesmith.model.kubernetes.pods import Shape
from tests.builders import inputs, nodepool_manifest, pods, shape, snapshot, spread


def unplaced(of: Shape, count: int = 1) -> Unplaced:
    seen = snapshot(pods=pods(of, count), nodepools=[nodepool_manifest()])
    (group,) = decide(inputs(snapshot=seen)).unplaced
    return group


def test_pods_that_miss_min_domains_are_told_so_and_not_that_a_zone_is_full() -> None:
    constraint = {**spread(hard=True)[0], "minDomains": 5}

    why = unplaced(shape(topologySpreadConstraints=[constraint]), 5).cause

    assert why.text == (
        "topology spread over topology.kubernetes.io/zone with maxSkew 1: minDomains is 5, but there are only 3"
        " (us-east-1a, us-east-1b, us-east-1c): each of them may have at most 1 matching pods until there are more"
    )
    assert why.fix == "lower minDomains, raise maxSkew, or allow nodes in more domains"


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        (
            {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"app": "cahce"}},
                            }
                        ]
                    }
                }
            },
            "correct the selector of the affinity, or create pods that it matches",
        ),
        (
            {"topologySpreadConstraints": [{**spread(hard=True)[0], "topologyKey": "example.com/rack"}]},
            "correct topologyKey, or give the nodes of a NodePool that label",
        ),
    ],
)
def test_a_rule_that_nothing_can_meet_is_to_be_corrected(spec: dict[str, Any], fix: str) -> None:
    assert unplaced(shape(**spec)).cause.fix == fix
