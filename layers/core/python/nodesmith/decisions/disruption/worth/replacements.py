"""Replacements that save money whichever of their offerings EC2 picks, and spot that is not changed for scarcer spot.

A fleet request lists many offerings, and EC2 chooses among them by more than price. So the list is cut where the
dearest would cost what the sources cost: Karpenter's rule, for any number of replacements. A spot node may be changed
for another only where so many types are cheaper (15, unless its NodePool says otherwise), and only for the cheapest of
these: the next change would otherwise follow the price down to whatever type is scarcest. A smaller size of its own
family may always stand in for it: that follows the need, and not the price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import least_resources
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_CPU,
    INSTANCE_FAMILY,
    INSTANCE_TYPE,
    MIN_VALUES_RELAXED,
    SPOT,
    ZONE,
)
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.launches import Override


def worst_price(nodes: Sequence[PlannedNode]) -> float:
    """Return what nodes cost together, each as the dearest thing that EC2 may make of it; what is reserved is free."""
    return fsum(
        0.0 if node.request.reservations else max(o.price_hourly_usd for o in node.request.overrides)
        for node in nodes
    )


def cut(
    nodes: Sequence[PlannedNode], most_hourly_usd: float, templates: Mapping[str, Template]
) -> tuple[PlannedNode, ...] | None:
    """Cut the offerings of nodes so that they never cost more together; None where that leaves one too few of them.

    `templates` are by NodePool. Each node's list is cut at the same multiple of its cheapest offering.
    """
    cheapest = fsum(node.price_hourly_usd for node in nodes)
    if cheapest <= 0:
        return tuple(nodes)
    factor = most_hourly_usd / cheapest
    if factor < 1:
        return None
    found = [_below(node, node.price_hourly_usd * factor, templates[node.claim.nodepool]) for node in nodes]
    kept = tuple(node for node in found if node is not None)
    return kept if len(kept) == len(nodes) else None


def for_spot(node: PlannedNode, template: Template, least_types: int) -> PlannedNode | None:
    """Return a spot node that replaces one, cut to its cheapest types; None where there are too few of them."""
    types = list(dict.fromkeys(o.instance_type for o in node.request.overrides))
    if node.request.capacity_type != SPOT:
        return node
    if len(types) < least_types:
        return None
    for number in range(max(1, least_types), len(types) + 1):
        few = frozenset(types[:number])
        found = only(node, [o for o in node.request.overrides if o.instance_type in few], template)
        if found is not None:
            return found
    return None


def downsized(node: PlannedNode, template: Template, largest: Mapping[str, int]) -> PlannedNode | None:
    """Return a spot node cut to sizes below the `largest` cpus of what it replaces, by family; None without any."""
    labels = {choice.type.name: choice.type.labels for choice in template.choices}
    kept = [
        override
        for override in node.request.overrides
        if cpus(labels[override.instance_type]) < largest.get(family(labels[override.instance_type]), 0)
    ]
    return only(node, kept, template)


def family(labels: Mapping[str, str]) -> str:
    """Return the family of an instance type, or of a node's, by its labels."""
    return labels.get(INSTANCE_FAMILY, "")


def cpus(labels: Mapping[str, str]) -> int:
    """Return the cpus of an instance type, or of a node's, by its labels; 0 where they do not say."""
    text = labels.get(INSTANCE_CPU, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _below(node: PlannedNode, most_hourly_usd: float, template: Template) -> PlannedNode | None:
    if node.request.reservations:
        return node
    return only(node, [o for o in node.request.overrides if o.price_hourly_usd <= most_hourly_usd], template)


def only(node: PlannedNode, kept: Sequence[Override], template: Template) -> PlannedNode | None:
    """Return a node that may be these of its offerings only; None where its NodePool's minValues forbid that."""
    if not kept or _lacks_values(node, kept, template):
        return None
    if len(kept) == len(node.request.overrides):
        return node
    request = replace(node.request, overrides=tuple(kept))
    types, zones = frozenset(o.instance_type for o in kept), frozenset(o.zone for o in kept)
    left = {choice.type.name: choice.type for choice in template.choices if choice.type.name in types}
    claim = replace(
        node.claim,
        requirements=node.claim.requirements.adding(
            Requirement(INSTANCE_TYPE, types), Requirement(ZONE, zones)
        ),
        capacity=left[request.overrides[0].instance_type].capacity,
        allocatable=least_resources(kind.allocatable for kind in left.values()),
    )
    used = {override.template for override in kept}
    return PlannedNode(claim, request, tuple(each for each in node.templates if each.name in used))


def _lacks_values(node: PlannedNode, kept: Sequence[Override], template: Template) -> bool:
    """Return whether offerings are too much alike for the NodePool's minValues, unless they were so before."""
    if node.claim.annotations.get(MIN_VALUES_RELAXED) == "true":
        return False
    labels = {choice.type.name: choice.type.labels for choice in template.choices}
    sold = {choice.type.name: choice.offerings for choice in template.choices}
    for requirement in template.requirements.values():
        if not requirement.min_values:
            continue
        if requirement.key == ZONE:
            values = {o.zone for o in kept}
        elif requirement.key == CAPACITY_TYPE:
            values = {offering.capacity_type for o in kept for offering in sold[o.instance_type]}
        else:
            values = {labels[o.instance_type].get(requirement.key, "") for o in kept} - {""}
        if len(values) < requirement.min_values:
            return True
    return False
