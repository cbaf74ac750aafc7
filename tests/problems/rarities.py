"""Rare features for pods of random problems: sidecars, overhead, gates, matchLabelKeys, priorities and others.

Drawn from an existing problem with a random generator of their own, so that problems without them stay unchanged.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.builders import expression

Manifest = dict[str, Any]
OVERHEAD = {"cpu": "120m", "memory": "64Mi"}
_CPU = "karpenter.kwok.sh/instance-cpu"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_rarities(seed: int, manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the problem's objects; some groups of pending pods get rare features."""
    for manifest in manifests:
        name = str(manifest["metadata"]["name"])
        if manifest["kind"] != "Pod" or manifest["spec"].get("nodeName"):
            yield manifest
            continue
        dice = random.Random(f"{seed} {name.rpartition('-')[0]}")  # noqa: S311 (the same for identical pods)
        yield {**manifest, "spec": _spec(dice, copy.deepcopy(manifest["spec"]))}


def _spec(dice: random.Random, spec: Manifest) -> Manifest:
    init = [one for one in (_setup(dice), _sidecar(dice), _setup(dice)) if one]
    if init:
        spec["initContainers"] = [{**one, "name": f"i{number}"} for number, one in enumerate(init)]
    network = {"hostNetwork": True} if dice.random() < 0.1 else {}
    if network:
        spec["containers"][0]["ports"] = [{"containerPort": dice.choice((80, 8080, 9000))}]
    if dice.random() < 0.1:
        _narrow(spec, expression(_CPU, dice.choice(("Gt", "Lt")), dice.choice(("1", "2", "4"))))
    for term in _terms(spec):
        if dice.random() < 0.3:
            term[dice.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    rare = {
        "overhead": (0.1, dict(OVERHEAD)),
        "resources": (0.1, {"requests": {"cpu": dice.choice(("2", "3"))}}),
        "priority": (0.2, dice.choice((-5, 10, 1000))),
        "schedulingGates": (0.04, [{"name": "example.com/quota"}]),
        "resourceClaims": (0.03, [{"name": "device", "resourceClaimName": "one"}]),
    }
    return spec | network | {name: value for name, (chance, value) in rare.items() if dice.random() < chance}


def _setup(dice: random.Random) -> Manifest:
    """Return an init container that ends before the pod starts, or an empty dict."""
    if dice.random() < 0.9:
        return {}
    ports = [{"containerPort": 80, "hostPort": 80}]
    return {"image": "setup:1", "resources": {"requests": {"cpu": dice.choice(("1", "2"))}}, "ports": ports}


def _sidecar(dice: random.Random) -> Manifest:
    if dice.random() < 0.8:
        return {}
    ports = [{"containerPort": 80, "hostPort": dice.choice((80, 8080))}] if dice.random() < 0.5 else []
    resources = {"requests": {"cpu": dice.choice(("50m", "300m"))}}
    return {"image": "proxy:1", "restartPolicy": "Always", "resources": resources, "ports": ports}


def _narrow(spec: Manifest, also: Mapping[str, Any]) -> None:
    """Add one more expression to each alternative of the node affinity."""
    node = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = node.setdefault(_REQUIRED, {"nodeSelectorTerms": [{}]})["nodeSelectorTerms"]
    for term in terms:
        term["matchExpressions"] = [*term.get("matchExpressions", ()), dict(also)]


def _terms(spec: Manifest) -> Iterator[Manifest]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from (affinity.get(kind) or {}).get(_REQUIRED) or ()
