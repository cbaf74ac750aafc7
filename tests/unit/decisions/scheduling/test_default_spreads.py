"""Default topology spread constraints for pods without any of their own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import SYSTEM_SPREADS, DefaultSpread, NodeSettings, parse_default_spreads
from nodesmith.model.snapshot import with_default_spreads
from tests.builders import bind, inputs, pods, shape, snapshot, spread

HARD = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
SOFT = {"topologyKey": HOSTNAME, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
READ = (DefaultSpread(ZONE, 1, hard=True), DefaultSpread(HOSTNAME, 2, hard=False))


@pytest.mark.parametrize(
    "config",
    [
        [HARD, SOFT],
        {"defaultConstraints": [HARD, SOFT]},
        {"podTopologySpread": {"defaultConstraints": [HARD, SOFT]}},
    ],
)
def test_constraints_are_read_from_a_schedulers_configuration(config: object) -> None:
    assert parse_default_spreads(json.dumps(config)) == READ


def test_list_means_none_and_system_means_kube_schedulers_own() -> None:
    assert parse_default_spreads("List") == ()
    assert [(s.topology_key, s.max_skew, s.hard) for s in parse_default_spreads("System")] == [
        (HOSTNAME, 3, False),
        (ZONE, 5, False),
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("none", "must be List, System or JSON"),
        ("[" * 100_000, "must be List, System or JSON"),
        ("7", "defaultConstraints must be a list"),
        ("{}", "defaultConstraints must be a list"),
        ('{"defaultConstraint": []}', "unknown field 'defaultConstraint', did you mean 'defaultConstraints'"),
        ('{"podTopologySpread": {}, "x": 1}', "unknown field 'x'"),
        ("[3]", "a constraint must be a map of maxSkew, topologyKey, whenUnsatisfiable, found 3"),
        ([HARD, HARD], "must not name a topologyKey twice"),
        (
            [{**HARD, "labelSelector": {}}],
            "unknown field 'labelSelector': a default constraint has only maxSkew",
        ),
        ([{**HARD, "maxSkew": 0}], "maxSkew is 0: must be a whole number, 1 or more"),
        ([{**HARD, "maxSkew": True}], "maxSkew is True"),
        ([{**HARD, "topologyKey": ""}], "topologyKey is '': must be a label of nodes"),
        ([{**HARD, "whenUnsatisfiable": "Never"}], "must be DoNotSchedule or ScheduleAnyway"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_reason(config: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_default_spreads(config if isinstance(config, str) else json.dumps(config))


def spread_by(defaults: tuple[DefaultSpread, ...], *shapes: Shape) -> list[Shape]:
    seen = with_default_spreads(snapshot(pods=[pods(each)[0] for each in shapes]), defaults)
    return [pod.shape for pod in seen.pods]


def test_a_pod_without_constraints_gets_the_defaults_for_the_pods_of_its_controller() -> None:
    web, other, alike = spread_by(
        READ,
        shape(owner="ReplicaSet/web"),
        shape(owner="ReplicaSet/other"),
        shape(owner="StatefulSet/web"),
    )

    assert [(s.topology_key, s.max_skew, s.hard) for s in web.spreads] == [
        (ZONE, 1, True),
        (HOSTNAME, 2, False),
    ]
    for found in web.spreads:
        assert found.selector is not None
        assert [found.selector.matches(each.labels) for each in (web, other, alike)] == [True, False, False]


def test_a_pod_with_its_own_constraints_keeps_them_but_is_counted_with_its_controller() -> None:
    own = shape(owner="ReplicaSet/web", topologySpreadConstraints=spread(HOSTNAME, hard=False))
    plain, kept = spread_by(READ, shape(owner="ReplicaSet/web"), own)

    assert kept.spreads == own.spreads
    selector = plain.spreads[0].selector
    assert selector is not None
    assert selector.matches(kept.labels)


@pytest.mark.parametrize("owner", ["Job/j", "DaemonSet/d", "Node/n", "Custom/c"])
def test_a_pod_that_no_controller_with_a_selector_owns_gets_none(owner: str) -> None:
    given = shape(owner=owner)

    assert spread_by(READ, given) == [given]


def test_pods_of_one_shape_keep_sharing_it_and_bound_pods_count_too() -> None:
    web = shape(owner="ReplicaSet/web")
    seen = with_default_spreads(snapshot(pods=[*pods(web, 3), *bind(web, "n1", 2)]), SYSTEM_SPREADS)

    assert len({pod.shape for pod in seen.pods}) == 1
    assert seen.pods[0].shape.requests == web.requests


def test_without_defaults_the_snapshot_is_the_same() -> None:
    seen = snapshot(pods=pods(shape(owner="ReplicaSet/web"), 2))

    assert with_default_spreads(seen, ()) is seen


def test_a_decision_respects_a_hard_default_like_the_pods_own_constraint() -> None:
    waiting = pods(shape(cpu="100m", owner="ReplicaSet/web"), 3)
    settings = NodeSettings(default_spreads=(DefaultSpread(ZONE, 1, hard=True),))
    seen = inputs(pods=waiting)

    def zones(given: Inputs) -> list[str]:
        return sorted(node.request.overrides[0].zone for node in decide(given).nodes)

    assert len(zones(seen)) == 1
    assert len(set(zones(replace(seen, settings=settings)))) == 3
