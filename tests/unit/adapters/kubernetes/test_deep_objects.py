"""A deeply nested object is refused by name, and does not affect others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import DEEPEST_LEVEL, read_json
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import NODECLASSES, Mirror, observed
from nodesmith.observation.reduction.objects import reduce_custom
from nodesmith_forwarder.watching import _events
from tests import builders


def deep(levels: int, name: str = "deep") -> str:
    """Return an EC2NodeClass whose kubelet configuration is nested this many levels deep."""
    manifest = builders.nodeclass_manifest(name)
    manifest["metadata"]["creationTimestamp"] = "2026-11-21T12:00:00Z"
    manifest["spec"]["kubelet"] = {"odd": "HERE"}
    return json.dumps(manifest).replace('"HERE"', '{"a]}\\"":[' * levels + '"x"' + "]}" * levels)


@pytest.mark.parametrize("levels", [20, 300, 5_000])
def test_a_deeply_nested_nodeclass_is_refused_and_others_are_read(levels: int) -> None:
    text = f'{{"items": [{deep(levels)}, {deep(1, "good")}], "kind": "List"}}'
    mirror = Mirror(NODECLASSES)
    for manifest in read_json(text.encode())["items"]:
        mirror.put(manifest)
    snapshot = decode(encode("c", builders.NOW, observed([mirror])))
    refused, good = (parse_nodeclass(manifest) for manifest in snapshot.nodeclasses)
    assert "nested at most 16 levels deep" in str(refused.fatal[0])
    assert good.value is not None


@pytest.mark.parametrize("levels", [1, 5_000])
def test_a_watch_survives_a_deeply_nested_event(levels: int) -> None:
    line = f'{{"type": "ADDED", "object": {deep(levels)}}}'.encode()
    (event,) = _events(iter([line]))
    assert event["object"]["metadata"]["name"] == "deep"


def test_an_object_that_is_not_too_deep_is_read_completely() -> None:
    text = b'{"a": [1, "]}[{\\"", {"b": null}]}'
    assert read_json(text) == json.loads(text)


def test_only_values_that_are_too_deep_are_cut() -> None:
    value: Any = read_json(b'[1, "a]", ' + b"[" * 200_000 + b"]" * 200_000 + b', "z"]')
    assert (value[0], value[1], value[3]) == (1, "a]", "z")
    depth, inner = 1, value[2]
    while inner:
        depth, inner = depth + 1, inner[0]
    assert (depth, inner) == (DEEPEST_LEVEL, None)


def test_a_reduced_object_is_cut_at_the_deepest_meaningful_level() -> None:
    reduced = reduce_custom(json.loads(deep(100)))
    depth, inner = 0, reduced["spec"]["kubelet"]["odd"]
    while inner is not None:
        depth, inner = depth + 1, next(iter(inner.values()))[0] if isinstance(inner, dict) else None
    assert 16 < depth < 40


def test_a_reduced_object_that_is_not_deep_is_unchanged() -> None:
    manifest = builders.nodeclass_manifest()
    assert reduce_custom(manifest)["spec"] == manifest["spec"]
