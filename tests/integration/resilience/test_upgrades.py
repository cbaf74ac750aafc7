"""Two versions alternate on one ledger for a working day, and no invariant of the small world is violated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.model.karpenter.nodeclaims import Phase
from tests.aws.tables import TABLE
from tests.fakes.table import FakeTable
from tests.formats import versions
from tests.formats.versioned import Traffic, VersionedClient
from tests.formats.versions import BEFORE, NEXT, Version
from tests.samples import sampled
from tests.scenarios.upgrades import DAY, PAIR, Day, UpgradedWorld, day, missing
from tests.smallworld.world import pod_manifest

SEEDS, LENGTH = sampled(((1,), timedelta(minutes=60)), whole=((1, 12), DAY))
"""The first day alone covers the life of a node, also if it is shorter. A whole one takes ten seconds."""


@pytest.fixture(scope="module")
def days() -> dict[int, Day]:
    """Return the result of each day by its seed. The scope keeps the tests of these days in one process."""
    return {seed: day(seed, length=LENGTH) for seed in SEEDS}


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", SEEDS)
def test_no_invariant_is_violated_while_functions_switch_versions(days: dict[int, Day], seed: int) -> None:
    assert days[seed].violations == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", SEEDS)
def test_both_versions_run_crash_and_read_each_others_data(days: dict[int, Day], seed: int) -> None:
    passed = days[seed]
    assert passed.switches > 150
    assert passed.deaths > 5
    assert passed.read_of_next > 1000


@pytest.mark.exhaustive
def test_these_days_cover_the_whole_life_of_a_node(days: dict[int, Day]) -> None:
    assert missing(sum((passed.seen for passed in days.values()), Counter[str]())) == []


def test_a_version_that_cannot_read_the_others_data_is_detected() -> None:
    """The day can fail: a version that writes an unknown phase cannot be read."""

    def in_words_of_its_own(document: object, layout: versions.Layout) -> object:
        written = versions.later(document, layout)
        is_claim = isinstance(written, Mapping) and "phase_since" in written
        return {**written, "phase": "Dancing"} if is_claim else written

    odd = replace(NEXT, written=in_words_of_its_own)
    world = UpgradedWorld(FakeTable(), {"web-0": pod_manifest("web-0")}, 1, (odd,))
    with pytest.raises(ValueError, match="Dancing"):
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


def test_the_later_version_adds_fields_at_every_level_and_attributes_to_the_item() -> None:
    item = written_by(NEXT)
    assert str(item["doc"]).count(versions.LATER) == 2
    assert versions.LATER in item


def test_the_previous_version_drops_unknown_fields_when_it_rewrites() -> None:
    item = written_by(NEXT, BEFORE)
    assert versions.LATER not in str(item["doc"])
    assert "served" not in str(item["doc"])


def test_the_two_versions_write_different_data() -> None:
    first, second = (written_by(version) for version in PAIR)
    assert first != second
