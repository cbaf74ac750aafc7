"""Remedies that would let a NodePool buy for pods: for its obstacles, and for selections that none of its nodes meets.

Only a selection that is impossible on its own is explained.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from nodesmith.decisions.scheduling.compatibility import (
    NO_RESERVATION,
    NO_SUBNET,
    NOT_SOLD,
    OFFERING_KEYS,
    matching_types,
    type_refusal,
)
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.labels import OS, RESERVED
from nodesmith.model.apimachinery.problems import nearest
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.kubernetes.pods import Shape

_OBSTACLES = (
    ("no instance type meets", "loosen the requirement that removes most instance types"),
    (
        "none of its",
        "wait until EC2 has capacity again, raise the quota, or allow more types, zones or capacity types",
    ),
    ("its DaemonSets ask", "allow larger instance types, or let the DaemonSets ask for less"),
    ("no instance type can boot", "let its EC2NodeClass select images of an architecture that it may buy"),
    ("its EC2NodeClass", "fix what the status of that EC2NodeClass shows"),
    ("it has spec.replicas", "create a NodePool without spec.replicas"),
    ("its last launch was refused", "fix what EC2 reports; the launch is retried automatically"),
)

_CAUSES = (
    ("is missing or not valid", "create it, correct nodeClassRef, or fix the field that its status shows"),
    ("is being deleted", "let another NodePool take the pods, or create it again"),
    (NO_SUBNET, "let the NodePool allow one of these zones, or add a subnet"),
    (NO_RESERVATION, "let its EC2NodeClass select a capacity reservation, or allow another capacity type"),
    (NOT_SOLD, "allow more instance types, zones or capacity types"),
)
"""Phrases that an obstacle may contain at any place, each with the remedy."""
_MEANT = re.compile(r"did you mean '[^']*'\?")


def of_obstacle(obstacle: str) -> str:
    """Return the remedy that would let a NodePool buy again; empty if unknown."""
    suggestion = _MEANT.search(obstacle)
    remedy = next((fix for phrase, fix in _CAUSES if phrase in obstacle), "")
    return suggestion[0] if suggestion else remedy or first_fix(_OBSTACLES, obstacle)


def first_fix(rows: tuple[tuple[str, str], ...], text: str) -> str:
    """Return the remedy of the first row with a beginning that `text` starts with; empty if there is none."""
    return next((fix for beginning, fix in rows if text.startswith(beginning)), "")


class Exclusion(NamedTuple):
    """A requirement of the pods, the reason why it leaves no node, and the remedy."""

    requirement: Requirement
    reason: str
    fix: str


def exclusions(shape: Shape, template: Template) -> list[Exclusion]:
    """Return, in order of key, the pods' requirements that alone leave no node of the NodePool.

    If the node affinity has several alternatives, only the first one is checked.
    """
    own_requirements = {str(own_requirement) for term in shape.own_terms for own_requirement in term.values()}
    results = []
    for key, requirement in sorted(shape.terms[0].items() if shape.terms else ()):
        match key:
            case labels.ZONE:
                excluded = _of_zone(requirement, template, is_own=str(requirement) in own_requirements)
            case labels.CAPACITY_TYPE:
                excluded = _of_capacity_type(requirement, template)
            case labels.OS:
                excluded = _of_system(requirement, template)
            case _:
                excluded = _of_type(requirement, template)
        if excluded is not None:
            results.append(Exclusion(requirement, *excluded))
    return results


_Explanation = tuple[str, str] | None
"""The reason why a requirement leaves no node, and the remedy."""


def _of_zone(requirement: Requirement, template: Template, *, is_own: bool) -> _Explanation:
    zones = sorted({subnet.zone for subnet in template.status.subnets})
    if template.status.placement_group is not None or template.shifted or any(map(requirement.allows, zones)):
        return None
    name, listed = template.nodeclass.name, ", ".join(zones)
    if requirement.complement or not zones:
        return f"needs {requirement}, but EC2NodeClass {name} launches in {listed or 'no zone'} only", (
            f"allow one of {listed} in the pods" if zones else f"give EC2NodeClass {name} subnets"
        )
    requested = sorted(requirement.values)
    offered_zones = {o.zone for kind in template.types.types for o in kind.offerings}
    if offered_zones.isdisjoint(requested):
        fix = f"use one of {listed}" if is_own else f"use volumes in {listed}"
        return f"no instance type is sold in {' or '.join(requested)}", fix
    named_zones = " or ".join(sorted(offered_zones.intersection(requested)))
    fix = f"give EC2NodeClass {name} a subnet with free addresses in {named_zones}"
    reason = f"needs {requirement}, but EC2NodeClass {name} launches in {listed} only"
    return reason, f"{fix}, or let the pods run in {listed}" if is_own else fix


def _of_capacity_type(requirement: Requirement, template: Template) -> _Explanation:
    if requirement.complement or requirement.values != {RESERVED} or template.reserved.by_type:
        return None
    name = template.nodeclass.name
    reason = f"needs {requirement}, but EC2NodeClass {name} has no free capacity reservation that the NodePool may use"
    return reason, f"select one in EC2NodeClass {name}, or allow another capacity type in the pods"


def _of_system(requirement: Requirement, template: Template) -> _Explanation:
    family = template.nodeclass.ami_family
    systems = sorted(_values(OS, template.types.types))
    if any(map(requirement.allows, systems)) or not systems:
        return None
    reason = f"needs {requirement}, but its nodes run {' or '.join(systems)} (amiFamily {family})"
    if requirement.complement or not requirement.values & {"linux", "windows"}:
        return reason, nearest(min(requirement.values, default=""), ("linux", "windows"))
    return (
        reason,
        f"create a NodePool whose EC2NodeClass has images of {' or '.join(sorted(requirement.values))}",
    )


def _of_type(requirement: Requirement, template: Template) -> _Explanation:
    values = _values(requirement.key, template.every.types)
    if requirement.key in OFFERING_KEYS or requirement.tolerates_absence or not values:
        return None
    if not any(map(requirement.allows, values)):
        return _of_none(requirement, values)
    name = template.nodeclass.name
    having = [kind for kind in template.types.types if _meets(kind, requirement)]
    if not having:
        reason = f"needs {requirement}, but no image of EC2NodeClass {name} boots such instance types"
        return (
            reason,
            f"let EC2NodeClass {name} have images for them, or remove {requirement.key} from the pods",
        )
    pool_requirements = {k: r for k, r in template.requirements.items() if k not in OFFERING_KEYS}
    if any(
        _meets(kind, requirement)
        for kind in matching_types(template.types, Requirements(pool_requirements)).types
    ):
        return None
    blaming = [
        r
        for r in pool_requirements.values()
        if all(type_refusal(Requirements.of(r), kind) for kind in having)
    ]
    cause = str(min(blaming, key=str)) if blaming else "its requirements together"
    reason = f"needs {requirement}, but {cause} of the NodePool excludes all such instance types"
    if not blaming:
        reason = reason.replace("of the NodePool excludes", "exclude")
    return reason, f"allow them in NodePool {template.name}, or remove {requirement.key} from the pods"


def unknown_value(requirement: Requirement, template: Template) -> Exclusion | None:
    """Return why no instance type of the region meets a requirement, and the remedy; None if some type does."""
    values = _values(requirement.key, template.every.types)
    if (
        requirement.key in OFFERING_KEYS
        or requirement.complement
        or not values
        or not values.isdisjoint(requirement.values)
    ):
        return None
    return Exclusion(requirement, *_of_none(requirement, values))


def _of_none(requirement: Requirement, values: Collection[str]) -> tuple[str, str]:
    numbers = sorted(int(value) for value in values if value.isdecimal())
    reason = f"no instance type has {requirement}"
    if not requirement.complement:
        fix = nearest(min(requirement.values, default=""), tuple(sorted(values)))
        return reason, f"remove {requirement.key} from the pods" if fix == "leave it out" else fix
    if numbers:
        reason = f"{reason}: the values are {numbers[0]:,} to {numbers[-1]:,}"
    return reason, f"loosen or remove {requirement.key} in the pods"


def _meets(kind: InstanceType, requirement: Requirement) -> bool:
    value = kind.labels.get(requirement.key)
    return value is not None and requirement.allows(value)


def _values(key: str, types: Iterable[InstanceType]) -> set[str]:
    return {kind.labels[key] for kind in types if key in kind.labels}
