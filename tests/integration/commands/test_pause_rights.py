"""`nodesmith pause` and `resume` need the rights that docs/operations.md names, and no others."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith_cli.access.ledger import pause, resume
from tests.aws.tables import TABLE, table
from tests.builders import CLUSTER, NOW, cluster_info

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def documented(command: str) -> set[str]:
    (actions,) = re.findall(
        rf"`nodesmith\s+{command}`\s+needs\s+((?:`dynamodb:\w+`(?:,\s+|\s+and\s+)?)+)", PAGE
    )
    return set(re.findall(r"dynamodb:(\w+)", actions))


def called(dynamodb: Any) -> list[str]:
    calls: list[str] = []
    dynamodb.meta.events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
    return calls


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_the_page_names_the_actions_that_the_command_takes(command: str) -> None:
    with table() as dynamodb:
        DynamoStore(dynamodb, TABLE, CLUSTER, lambda: NOW).save_cluster(cluster_info())
        calls = called(dynamodb)
        store = DynamoStore(dynamodb, TABLE, CLUSTER, lambda: NOW + timedelta(hours=1))
        if command == "pause":
            pause(store, CLUSTER, "release week", NOW)
        else:
            resume(store, CLUSTER, NOW)

    assert set(calls) == documented(command)
