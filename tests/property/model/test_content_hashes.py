"""The content hash of an object changes exactly when its parsed content changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.model.apimachinery.problems import Parsed
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.schema.fields import Kind
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.schema.reading import read_manifest
from nodesmith.observation.reduction.objects import reduce_custom
from tests import builders
from tests.samples import sampled

Manifest = dict[str, Any]
NODEPOOL: Manifest = {
    "metadata": {
        "name": "default",
        "uid": "uid-default",
        "generation": 3,
        "labels": {"team": "web"},
        "annotations": {"nodesmith.dev/node-surcharge-hourly": "0.01", "example.com/owner": "web"},
    },
    "spec": {
        **builders.nodepool_manifest(
            labels={"team": "web"},
            taints=[{"key": "dedicated", "value": "web", "effect": "NoSchedule"}],
            startup_taints=[{"key": "cilium", "effect": "NoExecute"}],
            limits={"cpu": "100", "memory": "400Gi"},
            weight=10,
        )["spec"],
        "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "10%", "reasons": ["Drifted"]}]},
    },
    "status": {"nodes": 3, "conditions": [{"type": "Ready", "status": "True"}]},
}
NODECLASS: Manifest = {
    "metadata": {"name": "default", "uid": "uid-nodeclass", "generation": 2, "annotations": {"a": "b"}},
    "spec": {
        **builders.nodeclass_manifest()["spec"],
        "userData": "#!/bin/sh\necho hello",
        "tags": {"team": "web"},
        "kubelet": {"maxPods": 50, "evictionHard": {"memory.available": "5%"}, "clusterDNS": ["10.0.0.10"]},
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "50Gi", "encrypted": True, "iops": 3000}}
        ],
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "detailedMonitoring": False,
    },
    "status": {"amis": [{"id": "ami-1"}]},
}
OBJECTS: dict[str, tuple[Manifest, Kind, Callable[[Manifest], Parsed[Any]]]] = {
    "NodePool": (NODEPOOL, NODE_POOL, parse_nodepool),
    "EC2NodeClass": (NODECLASS, EC2_NODE_CLASS, parse_nodeclass),
}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=0, max_value=100),
    st.sampled_from(["", "1", "30s", "Never", "NoExecute", "100Gi", "ami-0123456789abcdef0", "other"]),
    st.just([]),
    st.just({}),
)


def paths(value: Any, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every field of a manifest, nested fields included."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [p for key, inner in items for p in ((*before, key), *paths(inner, (*before, key)))]


def changed(manifest: Manifest, path: tuple[str | int, ...], value: Any, *, remove: bool) -> Manifest:
    """Return a copy with one field replaced or removed."""
    made: Any = copy.deepcopy(manifest)
    at = made
    for key in path[:-1]:
        at = at[key]
    if remove:
        del at[path[-1]]
    elif path == ("status",):
        at["status"] = {"nodes": 7}
    else:
        at[path[-1]] = value
    found: Manifest = made
    return found


def content(manifest: Manifest, parse: Callable[[Manifest], Parsed[Any]]) -> str:
    """Return the content hash of a manifest as a snapshot holds it; "" if it cannot be parsed."""
    read = parse(reduce_custom(manifest)).value
    return str(read.content) if read is not None else ""


@settings(max_examples=sampled(100, whole=300))
@given(data=st.data())
def test_the_hash_changes_exactly_when_the_parsed_spec_changes(data: st.DataObject) -> None:
    before, kind, parse = OBJECTS[data.draw(st.sampled_from(sorted(OBJECTS)))]
    path = data.draw(
        st.sampled_from([*(p for p in paths(before) if len(p) > 1 and p[0] == "spec"), ("status",)])
    )
    after = changed(before, path, data.draw(VALUES), remove=data.draw(st.booleans()))

    one, other = content(before, parse), content(after, parse)
    if not other:
        return  # it is refused, so nothing is launched from it
    read = [read_manifest(kind, reduce_custom(each)).spec for each in (before, after)]
    same = json.dumps(read[0], sort_keys=True) == json.dumps(read[1], sort_keys=True)
    assert (one == other) is same, path
    assert len(one) == 64


@given(
    key=st.sampled_from(["uid", "generation", "deletionTimestamp", "nodesmith.dev/launch-timeout"]),
    of=st.sampled_from(sorted(OBJECTS)),
)
def test_the_hash_covers_an_objects_identity_and_option_annotations(key: str, of: str) -> None:
    before, _, parse = OBJECTS[of]
    after = copy.deepcopy(before)
    match key:
        case "generation":
            after["metadata"][key] += 1
        case "deletionTimestamp":
            after["metadata"][key] = "2026-11-21T12:00:00Z"
        case "uid":
            after["metadata"][key] = "uid-another"
        case _:
            after["metadata"]["annotations"][key] = "20m"
    assert content(before, parse) != content(after, parse)


@given(
    part=st.sampled_from(["labels", "annotations"]),
    key=st.sampled_from(["example.com/a", "karpenter.sh/nodepool-hash", "app.kubernetes.io/name"]),
    of=st.sampled_from(sorted(OBJECTS)),
)
def test_foreign_labels_and_annotations_do_not_change_the_hash(part: str, key: str, of: str) -> None:
    before, _, parse = OBJECTS[of]
    after = copy.deepcopy(before)
    after["metadata"].setdefault(part, {})[key] = "changed"
    assert content(before, parse) == content(after, parse)
