"""What is left of a decision when another run was first."""

from __future__ import annotations

import gzip
import json
from typing import Any

from nodesmith.controllers.provisioning import provision
from tests.smallworld.world import World, pod_manifest


def test_a_decision_that_lost_the_race_says_so_in_its_record_and_the_next_one_counts() -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    world.store.lose_next_commit()

    outcome = provision(world.provisioning())

    records: list[dict[str, Any]] = [
        json.loads(gzip.decompress(data))
        for key, data in world.blobs.objects.items()
        if "/decisions/" in key and "snapshot" not in key
    ]
    assert sorted(record["superseded"] for record in records) == [False, True]
    assert outcome.decisions == [record["id"] for record in records if not record["superseded"]]
    assert len(world.cloud.alive()) == 1
