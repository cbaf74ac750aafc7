"""The reason for pods whose node selector or affinity no node of a NodePool can have, and what would help."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Unplaced, decide
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.learned import Backoff
from tests.builders import (
    NOW,
    ZONES,
    expression,
    inputs,
    ledger,
    node_affinity,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

TYPE, FAMILY = "node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family"
CPU, GENERATION = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-generation"
ZONE, OS = "topology.kubernetes.io/zone", "kubernetes.io/os"
CAPACITY_TYPE = "karpenter.sh/capacity-type"


def unplaced(of: Shape, ledger_: Any = None, **fields: Any) -> Unplaced:
    pool = nodepool_manifest(requirements=fields.pop("requirements", ()))
    seen = snapshot(pods=pods(of), nodepools=[pool])
    plan = decide(inputs(snapshot=seen, ledger=ledger_ or ledger()))
    assert not plan.nodes
    (group,) = plan.unplaced
    return group


@pytest.mark.parametrize(
    ("key", "value", "why", "fix"),
    [
        (FAMILY, "m55", f"no instance type has {FAMILY} In [m55]", "did you mean 'm5'?"),
        (TYPE, "m5.lrage", f"no instance type has {TYPE} In [m5.lrage]", "did you mean 'm5.large'?"),
        (
            ZONE,
            "us-east-1x",
            "no instance type is sold in us-east-1x",
            "use one of us-east-1a, us-east-1b, us-east-1c",
        ),
        (
            ZONE,
            "us-east-1f",
            (
                f"needs {ZONE} In [us-east-1f], but EC2NodeClass default launches in"
                " us-east-1a, us-east-1b, us-east-1c only"
            ),
            (
                "give EC2NodeClass default a subnet with free addresses in us-east-1f,"
                " or let the pods run in us-east-1a, us-east-1b, us-east-1c"
            ),
        ),
        (
            OS,
            "windows",
            f"needs {OS} In [windows], but its nodes run linux (amiFamily AL2023)",
            "create a NodePool whose EC2NodeClass has images of windows",
        ),
        (
            CAPACITY_TYPE,
            "reserved",
            (
                f"needs {CAPACITY_TYPE} In [reserved], but EC2NodeClass default has no free capacity reservation"
                " that the NodePool may use"
            ),
            "select one in EC2NodeClass default, or allow another capacity type in the pods",
        ),
    ],
)
def test_a_value_that_no_node_has_is_named_with_what_would_do(
    key: str, value: str, why: str, fix: str
) -> None:
    group = unplaced(shape(nodeSelector={key: value}))

    assert (group.cause.text, group.cause.fix) == (f"NodePool default: {why}", fix)
    assert group.cause.blocking == f"requirement {key} In [{value}]"


def test_a_bound_beyond_all_types_is_named_with_the_values_that_there_are() -> None:
    of = shape(affinity=node_affinity([expression(CPU, "Gt", "1000")]))

    assert f"no instance type has {CPU} >=1001: the values are 1 to 896" in unplaced(of).cause.text


def test_types_that_the_nodepool_excludes_name_its_requirement() -> None:
    generation = expression(GENERATION, "Gt", "5")

    group = unplaced(shape(nodeSelector={FAMILY: "m5"}), requirements=[generation])

    assert group.cause.text == (
        f"NodePool default: needs {FAMILY} In [m5], but {GENERATION} >=6 of the NodePool excludes all such"
        " instance types"
    )
    assert group.cause.fix == f"allow them in NodePool default, or remove {FAMILY} from the pods"


def test_two_impossible_values_are_both_named() -> None:
    group = unplaced(shape(nodeSelector={FAMILY: "m55", ZONE: "us-east-1x"}))

    assert (
        f"no instance type has {FAMILY} In [m55]; and no instance type is sold in us-east-1x"
        in group.cause.text
    )
    assert group.cause.fix == "did you mean 'm5'?; and use one of us-east-1a, us-east-1b, us-east-1c"


def test_values_that_exclude_each_other_are_named_together() -> None:
    group = unplaced(shape(nodeSelector={FAMILY: "m5", GENERATION: "6"}))

    assert f"has what the pods select together ({FAMILY} In [m5]; {GENERATION} In [6])" in group.cause.text


def test_a_selected_type_that_ec2_refused_lately_is_not_to_be_unselected() -> None:
    short = {
        OfferingKey(kind, "m5.large", zone): Backoff(
            NOW + timedelta(minutes=3), 1, "InsufficientInstanceCapacity"
        )
        for kind in ("spot", "on-demand")
        for zone in ZONES
    }

    group = unplaced(shape(nodeSelector={TYPE: "m5.large"}), ledger(unavailable=short))

    assert (
        "EC2 lately refused all instance types that the pods select, for lack of capacity" in group.cause.text
    )
    assert group.cause.fix.startswith("wait, ")


def test_a_zone_that_only_volumes_require_is_not_to_be_removed_from_the_pods() -> None:
    reach = Requirements.of(requirement(ZONE, "In", ["us-east-1f"]))
    of = shape()
    object.__setattr__(of, "terms", (reach,))

    group = unplaced(of)

    assert group.cause.text.endswith(f"(for their volumes: {ZONE} In [us-east-1f])")
    assert group.cause.fix == "give EC2NodeClass default a subnet with free addresses in us-east-1f"


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("alhpa", "allow team In [alhpa] in NodePool default, did you mean 'alpha'?"),
        ("beta-2", "allow team In [beta-2] in NodePool default"),
        ("gamma", "allow team In [gamma] in NodePool default"),
    ],
)
def test_a_misspelt_label_of_a_nodepool_is_corrected(value: str, fix: str) -> None:
    team = [expression("team", "In", "alpha", "beta-1")]

    assert unplaced(shape(nodeSelector={"team": value}), requirements=team).cause.fix == fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("nvidia.com/gpus", "did you mean 'nvidia.com/gpu'?"),
        ("nvidia.com/gpu", "allow instance types with nvidia.com/gpu"),
        (
            "example.com/fpga",
            "no instance type of EC2 has it: correct the name, or declare it on a NodeOverlay",
        ),
    ],
)
def test_a_resource_that_ec2_does_not_have_is_not_to_be_allowed(name: str, fix: str) -> None:
    assert unplaced(shape(requests={name: "1"})).cause.fix == fix


@pytest.mark.parametrize(
    ("requirements", "why", "fix"),
    [
        (
            [expression(TYPE, "In", "m5.lrage")],
            f"{TYPE} In [m5.lrage] (did you mean 'm5.large'?) removes",
            "did you mean 'm5.large'?",
        ),
        (
            [expression(ZONE, "In", "us-east-1f")],
            f"it requires {ZONE} In [us-east-1f], and its EC2NodeClass launches in",
            "let the NodePool allow one of these zones, or add a subnet",
        ),
        (
            [expression(CAPACITY_TYPE, "In", "reserved")],
            f"it requires {CAPACITY_TYPE} In [reserved], and its EC2NodeClass has no free capacity reservation",
            "let its EC2NodeClass select a capacity reservation, or allow another capacity type",
        ),
    ],
)
def test_a_nodepool_without_anything_to_buy_names_the_cause(
    requirements: list[dict[str, Any]], why: str, fix: str
) -> None:
    found = unplaced(shape(), requirements=requirements).cause

    assert why in found.text
    assert found.fix == fix


def test_a_nodepool_whose_types_ec2_refused_is_told_how_many_offerings() -> None:
    short = {
        OfferingKey(kind, "m5.large", zone): Backoff(
            NOW + timedelta(minutes=3), 1, "InsufficientInstanceCapacity"
        )
        for kind in ("spot", "on-demand")
        for zone in ZONES
    }
    only = [expression(TYPE, "In", "m5.large")]

    found = unplaced(shape(), ledger(unavailable=short), requirements=only).cause

    assert found.text == (
        "NodePool default: none of its 1 instance types has an offering left: EC2 lately refused all 6 that it may"
        " buy, for lack of capacity, quota or permission"
    )
    assert found.fix.startswith("wait until EC2 has capacity again")


def test_types_that_no_image_boots_are_not_said_to_be_missing() -> None:
    group = unplaced(shape(nodeSelector={FAMILY: "g5"}))

    assert (
        f"needs {FAMILY} In [g5], but no image of EC2NodeClass default boots such instance types"
        in group.cause.text
    )
