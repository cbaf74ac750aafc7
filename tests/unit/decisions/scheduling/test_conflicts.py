"""Which pods may share a node, as groups and caps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nodesmith.decisions.scheduling import conflicts as rules_module
from nodesmith.decisions.scheduling.conflicts import UNLIMITED, LabelSets, PodConflicts
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.kubernetes.pods import Shape
from tests.builders import anti_affinity, daemon, expression, shape, spread

HOSTNAME = "kubernetes.io/hostname"


def port(number: int = 80, ip: str = "") -> dict[str, Any]:
    return {"containers": [{"name": "m", "ports": [{"hostPort": number, **({"hostIP": ip} if ip else {})}]}]}


def may_share(conflicts: PodConflicts, *some: Shape) -> bool:
    """Return whether a node may hold one pod for each shape given, as the packing reads the rules."""
    rules = [conflicts.rules(one) for one in some]
    held = [group for each in rules for group in each.groups]
    return all(held.count(group) <= most for each in rules for group, most in each.caps)


def together(*some: Shape) -> bool:
    return may_share(PodConflicts(some), *some)


def test_anti_affinity_keeps_two_shapes_apart_whichever_has_the_term() -> None:
    hermit, web = shape(app="hermit", affinity=anti_affinity("web")), shape()

    assert not together(hermit, web)
    assert together(hermit, hermit)
    assert together(hermit, shape(app="db"))
    assert together(hermit, shape(namespace="other"))


def test_pods_that_repel_each_other_go_one_to_a_node() -> None:
    web = shape(affinity=anti_affinity())

    assert not together(web, web)
    assert PodConflicts([web]).rules(web).per_node == 1
    assert PodConflicts([other := shape(app="db"), web]).rules(other).per_node == UNLIMITED


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        (port(), port(), False),
        (port(), port(81), True),
        (port(), port(ip="10.0.0.1"), False),
        (port(ip="10.0.0.1"), port(ip="10.0.0.2"), True),
        (port(ip="10.0.0.1"), port(ip="10.0.0.1"), False),
        (port(ip="::"), port(ip="10.0.0.1"), False),
    ],
)
def test_a_host_port_is_used_once_per_node(one: dict[str, Any], other: dict[str, Any], share: bool) -> None:
    first, second = shape(app="a", **one), shape(app="b", **other)

    assert together(first, second) is share
    assert PodConflicts([first, second]).conflict(first, second) is not share


def test_a_spread_counts_all_selected_pods_including_those_of_other_shapes() -> None:
    web = shape(topologySpreadConstraints=spread(HOSTNAME, hard=True, max_skew=2))
    canary, db = shape("2"), shape(app="db")

    assert together(web, canary)
    assert not together(web, canary, canary)
    assert together(canary, canary, canary)
    assert together(web, web, db)


def test_the_spread_of_a_running_pod_does_not_limit_later_pods() -> None:
    web = shape(topologySpreadConstraints=spread(HOSTNAME, hard=True))

    assert not PodConflicts([web]).rules(web, running=True).caps


def test_preferences_are_not_rules() -> None:
    preferred = {"weight": 1, "podAffinityTerm": anti_affinity()["podAntiAffinity"]
                 ["requiredDuringSchedulingIgnoredDuringExecution"][0]}  # fmt: skip
    relaxation = shape(
        topologySpreadConstraints=spread(HOSTNAME, hard=False),
        affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}},
    )

    assert together(relaxation, relaxation)


def test_a_daemonset_conflicts_with_pods_that_it_repels_or_whose_port_it_uses() -> None:
    agent = daemon(affinity=anti_affinity(namespaces=["default"]), **port())
    web, other = shape(), shape(app="other", **port())

    conflicts = PodConflicts([agent, web, other, db := shape(app="db")])

    assert conflicts.conflict(web, agent)
    assert conflicts.conflict(other, agent)
    assert not conflicts.conflict(db, agent)


@pytest.mark.parametrize(
    ("expressions", "selected"),
    [
        ([expression("app", "In", "a", "b")], "ab"),
        ([expression("app", "NotIn", "a")], "bc-"),
        ([expression("app", "Exists")], "abc"),
        ([expression("app", "DoesNotExist")], "-"),
        ([expression("app", "In", "a", "b"), expression("app", "NotIn", "a")], "b"),
        ([expression("app", "In", "nowhere")], ""),
        ([], "abc-"),
    ],
)
def test_a_selector_selects_from_all_shapes_what_it_selects_from_each(
    expressions: Sequence[dict[str, Any]], selected: str
) -> None:
    chosen = parse_selector({"matchExpressions": expressions})
    assert chosen is not None
    some = {name: Shape("default", {"app": name} if name != "-" else {}) for name in "abc-"}
    asking = shape(
        topologySpreadConstraints=[
            {**spread(hard=True)[0], "labelSelector": {"matchExpressions": expressions}}
        ]
    )

    sets = LabelSets([*some.values(), asking])

    assert "".join(n for n, one in some.items() if sets.selects(chosen, None, one)) == selected
    assert "".join(n for n, one in some.items() if chosen.matches(one.labels)) == selected
    assert not any(sets.selects(chosen, frozenset({"other"}), one) for one in some.values())


def test_pods_with_too_broad_selectors_get_nodes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules_module, "_MOST_MEMBERSHIPS", 2)
    others = [shape(app=f"db-{n}") for n in range(3)]
    shy = shape(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": [expression("app", "NotIn", "db-0")]}}
    ]}})  # fmt: skip

    conflicts = PodConflicts([shy, *others])

    assert not may_share(conflicts, shy, others[1])
    assert not may_share(conflicts, shy, others[0]), "more than it asks for"
    assert may_share(conflicts, *others)
