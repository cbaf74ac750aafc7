"""In which turn shapes are placed, and which new nodes a spread looks at."""

from __future__ import annotations

import pytest

from nodesmith.decisions.scheduling.conflicts import LabelSets
from nodesmith.decisions.scheduling.offerings.launchable import TemplateLaunching
from nodesmith.decisions.scheduling.topology.domains import TopologyDependencies
from nodesmith.decisions.scheduling.topology.topology import View, kept_out, spread_rules, undecided
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.kubernetes.pods import Shape
from tests.builders import anti_affinity, shape, spread

ZONE, CAPACITY, NODEPOOL = (
    "topology.kubernetes.io/zone",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
)
RACK, HOSTNAME = "example.com/rack", "kubernetes.io/hostname"
NOTHING_SOLD = TemplateLaunching(())
ON_DEMAND = Requirement(CAPACITY, frozenset({"on-demand"}))
LOOKS_AT_ON_DEMAND = View(leaving=False, terms=(Requirements.of(ON_DEMAND),))


def turns(*shapes: Shape) -> list[int]:
    dependencies = TopologyDependencies(shapes, LabelSets(shapes), NOTHING_SOLD)
    return [dependencies.turn(one) for one in shapes]


def test_pods_on_which_nothing_depends_come_last() -> None:
    follower = shape(
        app="db",
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}
                ]
            }
        },
    )

    assert turns(shape(), shape(topologySpreadConstraints=spread(hard=True, app="other"))) == [3, 1]
    assert turns(shape(), follower, shape(app="cache")) == [3, 2, 0]


def test_pods_that_spreads_of_others_count_come_first_and_those_that_also_spread_over_nodes_come_next() -> (
    None
):
    counting = shape("2", topologySpreadConstraints=spread(hard=True))
    alone = shape(topologySpreadConstraints=spread(HOSTNAME, hard=True))

    assert turns(shape(), counting) == [0, 1]
    assert turns(alone, counting) == [1, 1]


def test_pods_that_others_repel_come_first_only_if_their_own_terms_name_the_key() -> None:
    shy = shape(app="shy", affinity=anti_affinity(key=ZONE))

    assert turns(shy, shape(nodeSelector={ZONE: "a"}), shape(), shape(nodeSelector={CAPACITY: "spot"})) == [
        1,
        0,
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("asked", "pins", "is_undecided"),
    [
        pytest.param({}, {}, True, id="a node of either kind"),
        pytest.param({CAPACITY: "on-demand"}, {}, False, id="a node that counts"),
        pytest.param({CAPACITY: "spot"}, {}, False, id="a node that does not count"),
        pytest.param({}, {CAPACITY: "on-demand"}, False, id="a node pinned to what counts"),
    ],
)
def test_whether_a_spread_looks_at_a_new_node_is_undecided_while_its_labels_are(
    asked: dict[str, str], pins: dict[str, str], is_undecided: bool
) -> None:
    picky = shape(topologySpreadConstraints=spread(hard=True), nodeSelector={CAPACITY: "on-demand"})
    rules = spread_rules(picky, LabelSets([picky]), NOTHING_SOLD)

    views = undecided(shape(nodeSelector=asked), rules, pins)

    assert views == ([LOOKS_AT_ON_DEMAND] if is_undecided else [])


def test_a_rule_keeps_the_numbers_of_its_spread() -> None:
    constraint = {**spread(hard=True, max_skew=3)[0], "minDomains": 2}
    even = shape(
        topologySpreadConstraints=[constraint, *spread(HOSTNAME, hard=True), *spread(RACK, hard=False)]
    )

    (rule,) = spread_rules(even, LabelSets([even]), NOTHING_SOLD)

    assert (rule.key, rule.spread.max_skew, rule.spread.min_domains) == (ZONE, 3, 2)
    assert rule.view.keys == ()


@pytest.mark.parametrize(("nodepool", "is_shown"), [("red", False), ("blue", True), ("", True)])
def test_a_spread_does_not_look_at_new_nodes_of_a_nodepool_whose_taints_are_not_tolerated(
    nodepool: str, is_shown: bool
) -> None:
    view = View(leaving=False, closed=frozenset({"red", "green"}))
    asked = {NODEPOOL: nodepool} if nodepool else {}

    assert view.may_show(shape(nodeSelector=asked), {}) == is_shown


@pytest.mark.parametrize(
    ("view", "pins", "expected"),
    [
        pytest.param(
            LOOKS_AT_ON_DEMAND,
            {},
            Requirement(CAPACITY, frozenset({"on-demand"}), complement=True),
            id="by another value of what the view names",
        ),
        pytest.param(
            View(leaving=False, keys=(ZONE, RACK)),
            {},
            Requirement(RACK),
            id="by lacking a label that it needs",
        ),
        pytest.param(
            View(leaving=False, keys=(ZONE,)), {}, None, id="not where every new node has the label"
        ),
        pytest.param(
            View(leaving=False, tolerations=(), closed=frozenset({"red"})),
            {},
            Requirement(NODEPOOL, frozenset({"red"})),
            id="in a nodepool whose taints are not tolerated",
        ),
        pytest.param(
            View(leaving=False, keys=(RACK,), tolerations=(), closed=frozenset({"red"})),
            {RACK: "1"},
            Requirement(NODEPOOL, frozenset({"red"})),
            id="not by a label to which the node is pinned",
        ),
    ],
)
def test_pods_are_kept_out_of_a_view(view: View, pins: dict[str, str], expected: Requirement | None) -> None:
    free = shape(tolerations=[{"operator": "Exists"}])

    kept = kept_out(free, [view], pins, lambda _: True)

    assert kept.terms == (free.terms if expected is None else (Requirements.of(expected),))
    assert kept_out(free, [view], pins, lambda _: False) is free
