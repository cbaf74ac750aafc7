"""The smallest problem that still shows a fault, for the report of that fault.

`python -m tests.problems.shrinking SEED KIND [small|large]` prints it; KIND is a kind of violation, or crash, missed,
dearer or bound.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.errors import NodesmithError
from nodesmith_cli.audit import audit
from tests.problems.bruteforce import TooLarge, best_plan
from tests.problems.drawing import LARGE, SMALL, Problem, draw
from tests.problems.planning import inputs_of, planned, timed

Manifest = dict[str, Any]
_FIELDS = (
    ("spec", "affinity", "podAffinity"),
    ("spec", "affinity", "podAntiAffinity"),
    ("spec", "affinity", "nodeAffinity"),
    ("spec", "affinity"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "volumes"),
    ("spec", "topologySpreadConstraints"),
    ("spec", "limits"),
    ("spec", "weight"),
    ("spec", "template", "metadata"),
    ("spec", "template", "spec", "taints"),
    ("spec", "template", "spec", "startupTaints"),
)


def shrunk(problem: Problem, still: Callable[[Problem], bool]) -> Problem:
    """Leave out as much as possible while `still` confirms the fault."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(problem):
            if still(candidate):
                problem, smaller = candidate, True
                break
    return problem


def _smaller(problem: Problem) -> Iterator[Problem]:
    for index, manifest in enumerate(problem.manifests):
        if manifest["kind"] not in {"Namespace", "StorageClass", "CSINode"}:
            rest = problem.manifests[:index] + problem.manifests[index + 1 :]
            yield replace(problem, manifests=tuple(m for m in rest if not _is_on(m, manifest)))
    for index in range(len(problem.types)):
        yield replace(problem, types=problem.types[:index] + problem.types[index + 1 :])
    for index, kind in enumerate(problem.types):
        for offer in range(len(kind["offerings"])):
            fewer = {**kind, "offerings": kind["offerings"][:offer] + kind["offerings"][offer + 1 :]}
            yield replace(problem, types=(*problem.types[:index], fewer, *problem.types[index + 1 :]))
    for index, manifest in enumerate(problem.manifests):
        for lesser in _lesser(manifest):
            yield replace(
                problem, manifests=(*problem.manifests[:index], lesser, *problem.manifests[index + 1 :])
            )


def _is_on(pod: Manifest, node: Manifest) -> bool:
    where = _at(pod, ("spec", "nodeName"))
    return bool(node["kind"] == "Node" and where == node["metadata"]["name"])


def _lesser(manifest: Manifest) -> Iterator[Manifest]:
    for path in _FIELDS:
        if _at(manifest, path[:-1]) and _at(manifest, path):
            copy = json.loads(json.dumps(manifest))
            del _at(copy, path[:-1])[path[-1]]
            yield copy
    for path in (("spec", "topologySpreadConstraints"), ("spec", "template", "spec", "requirements")):
        for number in range(len(_at(manifest, path) or ())):
            copy = json.loads(json.dumps(manifest))
            del _at(copy, path)[number]
            yield copy


def _at(manifest: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        manifest = manifest.get(name) if isinstance(manifest, Mapping) else None
    return manifest


def shows(problem: Problem, kind: str) -> bool:
    """Return whether a problem shows a fault of this kind."""
    try:
        inputs = inputs_of(problem.manifests, problem.catalog)
    except (NodesmithError, AssertionError, KeyError):
        return False  # no longer a valid problem: something that the rest refers to is gone
    try:
        made = timed(inputs)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError):
        return kind == "crash"
    if kind in {"missed", "dearer", "bound"}:
        return _beside_best(problem, kind, made.price_hourly_usd, made.bound_hourly_usd, bool(made.unplaced))
    return kind in {str(v.kind) for v in audit(problem.manifests, problem.catalog, made.plan)}


def _beside_best(problem: Problem, kind: str, price: float, bound: float, is_partial: bool) -> bool:
    try:
        best = best_plan(problem)
    except (TooLarge, KeyError):
        return False
    if best is None:
        return False
    if kind == "missed":
        return is_partial
    return not is_partial and (price if kind == "dearer" else bound) > best.price_hourly_usd + 1e-6


def _main(seed: str, kind: str, size: str = "small") -> None:
    found = shrunk(
        draw(int(seed), {"small": SMALL, "large": LARGE}[size]), lambda problem: shows(problem, kind)
    )
    for one in (*found.types, *found.manifests):
        print(json.dumps(one))
    made = planned(found.manifests, found.catalog)
    print(json.dumps(made.plan))
    for violation in audit(found.manifests, found.catalog, made.plan):
        print(violation)


if __name__ == "__main__":
    _main(*sys.argv[1:])
