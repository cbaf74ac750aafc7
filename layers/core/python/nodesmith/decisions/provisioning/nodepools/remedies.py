"""What would let a NodePool buy for pods: remedies for its obstacles, and for selections that no node of it can meet.

A selection is explained if it is impossible on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
"""What an obstacle says anywhere, and the remedy."""
_MEANT = re.compile(r"did you mean '[^']*'\?")


def of_obstacle(why: str) -> str:
    """Return what would let a NodePool buy again; empty if unknown."""
    meant = _MEANT.search(why)
    named = next((fix for what, fix in _CAUSES if what in why), "")
    return meant[0] if meant else named or first_fix(_OBSTACLES, why)


def first_fix(rows: tuple[tuple[str, str], ...], text: str) -> str:
    """Return the remedy of the first row whose beginning begins `text`; empty if there is none."""
    return next((fix for beginning, fix in rows if text.startswith(beginning)), "")


class Exclusion(NamedTuple):
    """The requirement of the pods, why it leaves no node, and what would help."""

    wanted: Requirement
    why: str
    fix: str


def exclusions(shape: Shape, template: Template) -> list[Exclusion]:
    """Return the pods' requirements, by key, that leave no node of the NodePool even without the others.

    Of several alternatives of the node affinity, the first one counts.
    """
    own = {str(one) for term in shape.own_terms for one in term.values()}
    found = []
    for key, wanted in sorted(shape.terms[0].items() if shape.terms else ()):
        match key:
            case labels.ZONE:
                excluded = _of_zone(wanted, template, is_own=str(wanted) in own)
            case labels.CAPACITY_TYPE:
                excluded = _of_capacity_type(wanted, template)
            case labels.OS:
                excluded = _of_system(wanted, template)
            case _:
                excluded = _of_type(wanted, template)
        if excluded is not None:
            found.append(Exclusion(wanted, *excluded))
    return found


_Found = tuple[str, str] | None
"""Why a requirement leaves no node, and what would help."""


def _of_zone(wanted: Requirement, template: Template, *, is_own: bool) -> _Found:
    ours = sorted({subnet.zone for subnet in template.status.subnets})
    if template.status.placement_group is not None or template.shifted or any(map(wanted.allows, ours)):
        return None
    name, listed = template.nodeclass.name, ", ".join(ours)
    if wanted.complement or not ours:
        return f"needs {wanted}, but EC2NodeClass {name} launches in {listed or 'no zone'} only", (
            f"allow one of {listed} in the pods" if ours else f"give EC2NodeClass {name} subnets"
        )
    asked = sorted(wanted.values)
    sold = {o.zone for kind in template.types.types for o in kind.offerings}
    if sold.isdisjoint(asked):
        fix = f"use one of {listed}" if is_own else f"use volumes in {listed}"
        return f"no instance type is sold in {' or '.join(asked)}", fix
    known = " or ".join(sorted(sold.intersection(asked)))
    fix = f"give EC2NodeClass {name} a subnet with free addresses in {known}"
    why = f"needs {wanted}, but EC2NodeClass {name} launches in {listed} only"
    return why, f"{fix}, or let the pods run in {listed}" if is_own else fix


def _of_capacity_type(wanted: Requirement, template: Template) -> _Found:
    if wanted.complement or wanted.values != {RESERVED} or template.reserved.by_type:
        return None
    name = template.nodeclass.name
    why = (
        f"needs {wanted}, but EC2NodeClass {name} has no free capacity reservation that the NodePool may use"
    )
    return why, f"select one in EC2NodeClass {name}, or allow another capacity type in the pods"


def _of_system(wanted: Requirement, template: Template) -> _Found:
    family = template.nodeclass.ami_family
    systems = sorted(_values(OS, template.types.types))
    if any(map(wanted.allows, systems)) or not systems:
        return None
    why = f"needs {wanted}, but its nodes run {' or '.join(systems)} (amiFamily {family})"
    if wanted.complement or not wanted.values & {"linux", "windows"}:
        return why, nearest(min(wanted.values, default=""), ("linux", "windows"))
    return why, f"create a NodePool whose EC2NodeClass has images of {' or '.join(sorted(wanted.values))}"


def _of_type(wanted: Requirement, template: Template) -> _Found:
    alone = Requirements.of(wanted)
    every = template.every.types
    if wanted.key in OFFERING_KEYS or wanted.tolerates_absence or not _values(wanted.key, every):
        return None
    if not any(_has(kind, wanted, alone) for kind in every):
        return _of_none(wanted, every)
    name = template.nodeclass.name
    having = [kind for kind in template.types.types if _has(kind, wanted, alone)]
    if not having:
        why = f"needs {wanted}, but no image of EC2NodeClass {name} boots such instance types"
        return why, f"let EC2NodeClass {name} have images for them, or remove {wanted.key} from the pods"
    own = {k: r for k, r in template.requirements.items() if k not in OFFERING_KEYS}
    if any(_has(kind, wanted, alone) for kind in matching_types(template.types, Requirements(own)).types):
        return None
    blaming = [r for r in own.values() if all(type_refusal(Requirements.of(r), kind) for kind in having)]
    who = str(min(blaming, key=str)) if blaming else "its requirements together"
    why = f"needs {wanted}, but {who} of the NodePool excludes all such instance types"
    if not blaming:
        why = why.replace("of the NodePool excludes", "exclude")
    return why, f"allow them in NodePool {template.name}, or remove {wanted.key} from the pods"


def unknown_value(wanted: Requirement, template: Template) -> Exclusion | None:
    """Return why no instance type of the region has what pods select, and what would help; None if some type has it."""
    every = template.every.types
    known = _values(wanted.key, every)
    if wanted.key in OFFERING_KEYS or wanted.complement or not known or not known.isdisjoint(wanted.values):
        return None
    return Exclusion(wanted, *_of_none(wanted, every))


def _of_none(wanted: Requirement, every: Sequence[InstanceType]) -> tuple[str, str]:
    values = _values(wanted.key, every)
    numbers = sorted(int(value) for value in values if value.isdecimal())
    why = f"no instance type has {wanted}"
    if not wanted.complement:
        fix = nearest(min(wanted.values, default=""), tuple(sorted(values)))
        return why, f"remove {wanted.key} from the pods" if fix == "leave it out" else fix
    if numbers:
        why = f"{why}: the values are {numbers[0]:,} to {numbers[-1]:,}"
    return why, f"loosen or remove {wanted.key} in the pods"


def _has(kind: InstanceType, wanted: Requirement, alone: Requirements) -> bool:
    return wanted.key in kind.labels and type_refusal(alone, kind) is None


def _values(key: str, types: Iterable[InstanceType]) -> set[str]:
    return {kind.labels[key] for kind in types if key in kind.labels}
