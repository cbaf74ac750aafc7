"""Forged snapshots must launch nothing, whatever a field of a NodePool or EC2NodeClass says."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from tests import builders
from tests.benchmarks.figures import Figure
from tests.objects.forgeries import FORGERIES, Document, Forgery, forged_world, launches, with_nodeclaim

SEED = 27_11
SHOWN_FOR = timedelta(minutes=3)
"""How long each forged snapshot is shown."""
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    7,
    "other",
    "30s",
    "Never",
    "NoExecute",
    "100Gi",
    "ami-0123456789abcdef0",
    [],
    {},
)
TRUE: Document = {
    "nodepools": [builders.nodepool_manifest(limits={"cpu": "100"}, labels={"team": "web"}, weight=1)],
    "nodeclasses": [builders.nodeclass_manifest()],
}
"""The API server's objects."""


def figures(random_forgeries: int = 150) -> list[Figure]:
    """Show every named kind of forgery, and `random_forgeries` random changes of one field."""
    forgeries = [*FORGERIES.values(), *_random_forgeries(random_forgeries)]
    launched = sum(_launched(forgery) for forgery in forgeries) + _launched(with_nodeclaim, pods=0)
    note = f"{len(forgeries) + 1} forged snapshots, each for {SHOWN_FOR.seconds} s"
    return [Figure("forged-launches", launched, "launches", at_most=0, note=note)]


def _launched(forgery: Forgery, pods: int = 2) -> int:
    world = forged_world(forgery, nodepool=TRUE["nodepools"][0], pods=pods)
    world.observe()
    world.live(SHOWN_FOR)
    return launches(world)


def _random_forgeries(count: int) -> Iterator[Forgery]:
    """Yield changes of one field each that can still be parsed, but with a different result."""
    dice = random.Random(SEED)  # noqa: S311
    while count:
        kind = dice.choice(sorted(TRUE))
        path, value = dice.choice(_paths(TRUE[kind][0]["spec"])), dice.choice(_VALUES)
        forged = copy.deepcopy(TRUE)
        _change(forged, kind, path, value)
        contents = _content(kind, TRUE), _content(kind, forged)
        if contents[1] and contents[0] != contents[1]:
            yield partial(_change, kind=kind, path=path, value=value)
            count -= 1


def _content(kind: str, document: Document) -> str:
    """Return the content hash of the only object of a kind; "" if it cannot be parsed."""
    (manifest,) = document[kind]
    read = parse_nodepool(manifest).value if kind == "nodepools" else parse_nodeclass(manifest).value
    return read.content if read is not None else ""


def _paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, each in inner for path in ((*before, key), *_paths(each, (*before, key)))]


def _change(document: Document, kind: str, path: tuple[Any, ...], value: Any) -> None:
    """Set one field of the spec in all objects of a kind."""
    for manifest in document[kind]:
        at: Any = manifest["spec"]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = copy.deepcopy(value)
