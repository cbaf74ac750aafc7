"""Groups with identical nodes as one NodePool, and the objects with their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.labels import AWS_DOMAIN, NODEPOOL
from nodesmith_cli.migration.nodegroups.pools import Converted
from nodesmith_cli.migration.nodegroups.types import allows

Manifest = dict[str, Any]
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_LONGEST_NAME = 52
"""Leaves room in a name of 63 characters for the suffix of NodeClaims."""
_SHORTEST_PREFIX = 3
_MOST_SUBNETS = 30
"""The most selectors of subnets in an EC2NodeClass."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The objects of one or more groups. `nodeclass` is the name of the EC2NodeClass, which NodePools may share."""

    name: str
    members: tuple[Converted, ...]
    pool: Manifest
    nodeclass: Manifest
    overlay: Manifest | None = None

    @property
    def manifests(self) -> list[Manifest]:
        """The objects, in the order of what refers to what."""
        return [self.nodeclass, self.pool, *([self.overlay] if self.overlay else [])]


def merged(groups: Iterable[Converted], *, apart: bool) -> list[Merged]:
    """Return NodePools for groups: one for groups that differ in subnets and sizes alone, or one each if `apart`.

    Groups of a fixed size stay apart. EC2NodeClasses that are equal become one.
    """
    alike: list[list[Converted]] = []
    for group in groups:
        first = next((found for found in alike if not apart and _joins(found, group)), None)
        if first is None:
            alike.append([group])
        else:
            first.append(group)
    names: set[str] = set()
    named = [(_name([member.group.name for member in members], names), members) for members in alike]
    classes = _classes(named, names)
    return [_merged(name, members, classes) for name, members in named]


def _joins(converted_groups: Sequence[Converted], other: Converted) -> bool:
    """Return whether a group can become one NodePool with these."""
    subnets = _class_spec((*converted_groups, other))["subnetSelectorTerms"]
    return _same(converted_groups[0], other) and len(subnets) <= _MOST_SUBNETS


def _same(one: Converted, other: Converted) -> bool:
    if "replicas" in one.pool or "replicas" in other.pool:
        return False
    return _nodes(one) == _nodes(other) and one.identity.keys() == other.identity.keys()


def _nodes(converted: Converted) -> tuple[Any, ...]:
    """Return the fields that define the nodes of a group."""
    nodeclass = {name: value for name, value in converted.nodeclass.items() if name != "subnetSelectorTerms"}
    return converted.pool, nodeclass, converted.annotations, converted.capacity


def _merged(name: str, members: Sequence[Converted], classes: Sequence[Manifest]) -> Merged:
    first, spec = members[0], _class_spec(members)
    nodeclass = next(existing for existing in classes if existing["spec"] == spec)
    pool = _pool(name, members, str(nodeclass["metadata"]["name"]))
    overlay = _overlay(name, first.capacity) if first.capacity else None
    return Merged(name, tuple(members), pool, nodeclass, overlay)


def _classes(named: Sequence[tuple[str, Sequence[Converted]]], names: set[str]) -> list[Manifest]:
    """Return EC2NodeClasses, each once: with the NodePool's name, or the image's if several NodePools share it."""
    users: list[tuple[Manifest, list[str]]] = []
    for name, members in named:
        spec = _class_spec(members)
        equal = next((used for nodeclass, used in users if nodeclass == spec), None)
        if equal is None:
            users.append((spec, [name]))
        else:
            equal.append(name)
    return [
        {
            "apiVersion": f"{AWS_DOMAIN}/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": used[0] if len(used) == 1 else _name([_image(spec)], names)},
            "spec": spec,
        }
        for spec, used in users
    ]


def _image(spec: Mapping[str, Any]) -> str:
    alias = str(spec["amiSelectorTerms"][0].get("alias") or "")
    return alias.replace("@", "-") or str(spec["amiFamily"])


def _class_spec(members: Sequence[Converted]) -> Manifest:
    subnets = sorted({term["id"] for member in members for term in member.nodeclass["subnetSelectorTerms"]})
    return {**members[0].nodeclass, "subnetSelectorTerms": [{"id": subnet} for subnet in subnets]}


def _pool(name: str, members: Sequence[Converted], nodeclass: str) -> Manifest:
    first = members[0]
    spec = deepcopy(first.pool)
    template = spec["template"]["spec"]
    template["nodeClassRef"] = {"group": AWS_DOMAIN, "kind": "EC2NodeClass", "name": nodeclass}
    for key in sorted(first.identity):
        template["requirements"].append(allows(key, *sorted({member.identity[key] for member in members})))
    limits = [member.limit for member in members if member.limit is not None]
    if limits:
        spec["limits"] = {"nodes": str(sum(limits))}
    metadata = {"name": name, **({"annotations": first.annotations} if first.annotations else {})}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": spec}


def _overlay(name: str, capacity: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": [allows(NODEPOOL, name)], "capacity": dict(capacity)},
    }


def _name(groups: Sequence[str], names: set[str]) -> str:
    """Return a name for the objects: the group's, or what the groups' names begin with."""
    shared = _valid(_beginning(groups))
    whole = shared if len(shared) >= _SHORTEST_PREFIX else _valid(groups[0])
    name, number = whole or "group", 1
    while name in names:
        number += 1
        name = f"{whole or 'group'}-{number}"
    names.add(name)
    return name


def _beginning(names: Sequence[str]) -> str:
    """Return the longest text that all names begin with."""
    first = names[0]
    return next(
        (first[:n] for n in range(len(first), 0, -1) if all(name.startswith(first[:n]) for name in names)), ""
    )


def _valid(name: str) -> str:
    return _NOT_IN_NAMES.sub("-", name.lower())[:_LONGEST_NAME].strip("-")
