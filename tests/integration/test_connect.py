"""`nodesmith connect` on an account of moto's and an API server in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.account import REGION, client
from tests.connectable import CLUSTER, Connectable, connectable


@pytest.fixture
def cluster() -> Iterator[Connectable]:
    with connectable() as made:
        yield made


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_cluster_is_connected_and_connecting_it_again_writes_nothing(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run() == 0
    assert told(capsys)["state"] == "connected"
    cluster.calls.clear()
    assert cluster.run() == 0
    report = told(capsys)
    assert {row["standing"] for row in report["rows"]} == {"present"}
    assert cluster.calls == []
