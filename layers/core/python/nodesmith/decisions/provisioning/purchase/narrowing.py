"""A planned node restricted to some of its offerings, so that it never costs more than these, whichever EC2 picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import least_resources
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, MIN_VALUES_RELAXED, ZONE
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.launches import Override


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
    templates = tuple(each for each in node.templates if each.name in used)
    return PlannedNode(claim, request, templates, node.surcharge_hourly_usd)


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
