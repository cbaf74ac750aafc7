"""Replacements that save money whichever offering EC2 picks, and limits on the replacement of spot by spot.

A fleet request lists many offerings, and EC2 does not choose among them by price alone. The list is therefore cut so
that even its most expensive offerings cost less than the sources: Karpenter's rule, for any number of replacements. A
spot node is replaced by spot only if enough types are cheaper (15, or as its NodePool specifies), and only by the
cheapest of them; otherwise successive replacements would follow the price down to the scarcest type. A smaller size of
the same family is always allowed, because it follows the need and not the price.
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
    """Return the total price of nodes if EC2 picks the most expensive offering of each; reserved nodes cost nothing."""
    return fsum(
        0.0 if node.request.reservations else max(o.price_hourly_usd for o in node.request.overrides)
        for node in nodes
    )


def cut(
    nodes: Sequence[PlannedNode], most_hourly_usd: float, templates: Mapping[str, Template]
) -> tuple[PlannedNode, ...] | None:
    """Cut the offerings of nodes so that together they cost at most `most_hourly_usd`, whichever EC2 picks.

    Return None if that leaves a node without offerings or with too few for minValues. `templates` are by NodePool. Each
    node's list is cut at the same multiple of its cheapest offering.
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
    """Return a spot node cut to its cheapest types; None if it has too few.

    It keeps `least_types`, or as many more as minValues need. Nodes that are not spot are returned unchanged.
    """
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
    """Return a spot node cut to smaller sizes than the nodes that it replaces; None if there are none.

    `largest` is the largest number of cpus among the replaced nodes, by instance family.
    """
    labels = {choice.type.name: choice.type.labels for choice in template.choices}
    kept = [
        override
        for override in node.request.overrides
        if cpus(labels[override.instance_type]) < largest.get(family(labels[override.instance_type]), 0)
    ]
    return only(node, kept, template)


def family(labels: Mapping[str, str]) -> str:
    """Return the instance family in the labels of an instance type or a node."""
    return labels.get(INSTANCE_FAMILY, "")


def cpus(labels: Mapping[str, str]) -> int:
    """Return the number of cpus in the labels of an instance type or a node; 0 if there is none."""
    text = labels.get(INSTANCE_CPU, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _below(node: PlannedNode, most_hourly_usd: float, template: Template) -> PlannedNode | None:
    if node.request.reservations:
        return node
    return only(node, [o for o in node.request.overrides if o.price_hourly_usd <= most_hourly_usd], template)


def only(node: PlannedNode, kept: Sequence[Override], template: Template) -> PlannedNode | None:
    """Return a node restricted to these of its offerings; None if its NodePool's minValues forbid that."""
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
    """Return whether offerings violate the NodePool's minValues, unless these were relaxed for the node."""
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
