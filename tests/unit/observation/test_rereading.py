"""Successive snapshots: each is read as it is, whatever was read before."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.observation.decoding import Reader, decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from tests import builders
from tests.objects.clusters import node, rolled

NOW = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def observed(*numbers: int, **annotations: str) -> Observed:
    pool = builders.nodepool_manifest()
    pool["metadata"]["annotations"] = annotations
    return Observed(
        nodes=[reduce_node(node(number, rolled(number))) for number in numbers],
        nodepools=[reduce_custom(pool)],
    )


def rewritten(data: bytes, **fields: Any) -> bytes:
    return gzip.compress(json.dumps({**json.loads(gzip.decompress(data)), **fields}).encode())


def test_an_unchanged_snapshot_is_parsed_once_and_gets_its_new_time() -> None:
    reader, same = Reader(), observed(1, 2)
    first = reader.read(encode("c", NOW, same))
    second = reader.read(encode("c", LATER, same))
    assert second.nodes is first.nodes
    assert second == decode(encode("c", LATER, same))


SNAPSHOTS = {
    "of two nodes": encode("c", NOW, observed(1, 2)),
    "of another node": encode("c", NOW, observed(1, 3)),
    "of another cluster": encode("d", NOW, observed(1, 2)),
    "taken later": encode("c", LATER, observed(1, 2)),
    "with a field of that name": encode("c", LATER, observed(1, 2, takenAt="2020-01-01T00:00:00Z")),
    "with another in it": encode("c", LATER, observed(1, 2, takenAt="2021-01-01T00:00:00Z")),
    "that others wrote": rewritten(encode("c", LATER, observed(1)), takenAt="2026-11-21T13:00:00+01:00"),
}


@pytest.mark.parametrize(("first", "second"), list(permutations(SNAPSHOTS, 2)), ids=" then ".join)
def test_a_snapshot_reads_the_same_whatever_was_read_before(first: str, second: str) -> None:
    reader = Reader()
    for name in (first, second, first):
        assert repr(reader.read(SNAPSHOTS[name])) == repr(decode(SNAPSHOTS[name]))


@pytest.mark.parametrize(
    "taken_at", ["", "yesterday", 7, None, "2026-13-01T00:00:00Z", 'a "quoted" time'], ids=repr
)
def test_an_unreadable_time_is_refused_although_the_rest_is_known(taken_at: object) -> None:
    reader = Reader()
    known = encode("c", NOW, observed(1))
    reader.read(known)
    with pytest.raises(Rejected, match="snapshot: "):
        reader.read(rewritten(known, takenAt=taken_at))


def test_damage_is_refused_although_the_snapshot_is_known() -> None:
    reader = Reader()
    known = encode("c", NOW, observed(1))
    reader.read(known)
    with pytest.raises(Rejected, match="truncated or damaged"):
        reader.read(known[:-9])
