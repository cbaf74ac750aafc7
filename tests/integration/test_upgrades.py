"""Two versions take turns on one ledger through a working day, and no law of the small world is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from nodesmith.model.karpenter.nodeclaims import Phase
from tests import versions
from tests.fakes.table import FakeTable
from tests.tables import TABLE
from tests.upgrades import PAIR, Day, UpgradedWorld, day, missing
from tests.versioned import Traffic, VersionedClient
from tests.versions import BEFORE, NEXT, Version
from tests.world import pod_manifest

SEEDS = (11, 12)


@cache
def lived(seed: int) -> Day:
    return day(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_law_is_broken_while_functions_are_switched_between_versions(seed: int) -> None:
    assert lived(seed).violations == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_versions_take_turns_die_and_read_what_the_other_has_written(seed: int) -> None:
    passed = lived(seed)
    assert passed.switches > 200
    assert passed.deaths > 5
    assert passed.read_of_next > 1000


def test_all_of_a_nodes_life_is_in_these_days() -> None:
    assert missing(sum((lived(seed).seen for seed in SEEDS), Counter[str]())) == []


def test_a_function_that_cannot_read_what_the_other_version_writes_is_noticed() -> None:
    """The day itself can fail: a version that writes another phase than today's is not read."""

    def in_words_of_its_own(document: object, layout: versions.Layout) -> object:
        written = versions.later(document, layout)
        is_claim = isinstance(written, Mapping) and "phase_since" in written
        return {**written, "phase": "Warming"} if is_claim else written

    odd = replace(NEXT, written=in_words_of_its_own)
    world = UpgradedWorld(FakeTable(), {"web-0": pod_manifest("web-0")}, 1, (odd,))
    with pytest.raises(ValueError, match="Warming"):
        world.settle()


def written_by(*by: Version) -> dict[str, object]:
    table, traffic = FakeTable(), Traffic()
    claim = {"phase": str(Phase.LAUNCHED), "served": ["a"], "nodeclass": {"name": "default"}}
    for version in by:
        client = VersionedClient(table, version, traffic)
        found = client.query(
            TableName=TABLE,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": "CLUSTER#test"}},
        )["Items"]
        item = found[0] if found else _item(claim)
        client.put_item(TableName=TABLE, Item=item)
    return dict(table.items["CLUSTER#test", "CLAIM#a"])


def _item(document: object) -> dict[str, object]:
    return {
        "pk": {"S": "CLUSTER#test"},
        "sk": {"S": "CLAIM#a"},
        "doc": {"S": versions.rewritten("{}", versions.CLAIM, lambda *_: document)},
    }


def test_the_later_version_adds_to_objects_on_every_level_and_to_the_item() -> None:
    item = written_by(NEXT)
    assert str(item["doc"]).count(versions.LATER) == 2
    assert versions.LATER in item


def test_the_version_before_drops_what_it_does_not_know_when_it_writes_anew() -> None:
    item = written_by(NEXT, BEFORE)
    assert versions.LATER not in str(item["doc"])
    assert "served" not in str(item["doc"])


def test_the_two_versions_differ_in_what_they_write() -> None:
    first, second = (written_by(version) for version in PAIR)
    assert first != second
