"""The simulated account of local runs contains the images that manifests select."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from nodesmith.adapters.nodeclasses.images import images
from nodesmith.model.apimachinery.labels import ARCH
from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm
from nodesmith_local.aws.selectedimages import publish_selected
from tests.aws.account import REGION, account, client
from tests.fakes.cloud import CLUSTER

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with account():
        yield


@pytest.mark.parametrize(
    ("term", "arch"),
    [
        (AMISelectorTerm(id="ami-0123456789abcdef0"), "amd64"),
        (AMISelectorTerm(name="golden-v3"), "amd64"),
        (AMISelectorTerm(name="golden-arm64-*", owner="111122223333"), "arm64"),
        (AMISelectorTerm(name="golden", owner="amazon"), "amd64"),
        (AMISelectorTerm(tags={"team": "search", "image": "*"}), "amd64"),
        (AMISelectorTerm(ssm_parameter="/golden/image"), "amd64"),
    ],
)
def test_images_that_a_term_selects_are_found(term: AMISelectorTerm, arch: str) -> None:
    publish_selected(REGION, CLUSTER.version, term)
    publish_selected(REGION, CLUSTER.version, term)

    (found,) = images(client, [term], CLUSTER.version, NOW)
    assert found.requirements[ARCH].values == {arch}
    assert found.id == (term.id or found.id)


def test_a_pinned_alias_is_older_than_the_newest_release() -> None:
    publish_selected(REGION, CLUSTER.version, AMISelectorTerm(alias="al2023@v20250821"))

    pinned = images(client, [AMISelectorTerm(alias="al2023@v20250821")], CLUSTER.version, NOW)
    newest = images(client, [AMISelectorTerm(alias="al2023@latest")], CLUSTER.version, NOW)
    assert len(pinned) == len(newest)
    assert {image.name.rpartition("-")[2] for image in pinned} == {"v20250821"}
    assert {image.id for image in pinned}.isdisjoint(image.id for image in newest)
