"""Claims that are read from their NodeClaim objects."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith_formats.nodeclaims import shown_claim
from tests.builders import claim

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
NOW = START + timedelta(hours=1)
LIFE = (Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED)
END = (Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED)


def lived(*phases: Phase) -> NodeClaim:
    """Return a claim that has passed through these phases, a minute each."""
    found = claim(phase=Phase.PENDING, created_at=START, phase_since=START)
    for minute, phase in enumerate(phases, start=1):
        found = found.advanced(phase, START + timedelta(minutes=minute), "Waits", "for it")
    known: dict[str, Any] = {"instance_type": "m5.large", "zone": "us-east-1a", "capacity_type": "spot"}
    return replace(found, provider_id="aws:///us-east-1a/i-1", instance_id="i-1", node_name="n1", **known)


def shown(of: NodeClaim, deleted: datetime | None = None) -> NodeClaim:
    raw: dict[str, Any] = manifest(of)
    raw["metadata"]["creationTimestamp"] = START.isoformat()
    if deleted:
        raw["metadata"]["deletionTimestamp"] = deleted.isoformat()
    found = shown_claim(raw, NOW).value
    assert found is not None
    return found


TIMES = (
    "phase phase_since launched_at registered_at initialized_at terminating_at drained_at detached_at".split()
)
FACTS = "name nodepool provider_id instance_id node_name instance_type zone capacity_type capacity".split()


@pytest.mark.parametrize("steps", range(len(LIFE + END) + 1))
def test_a_shown_claim_has_its_phase_and_times(steps: int) -> None:
    before = lived(*(LIFE + END)[:steps])
    deleted = before.terminating_at
    after = shown(before, deleted)
    assert {n: getattr(after, n) for n in (*TIMES, *FACTS)} == {
        n: getattr(before, n) for n in (*TIMES, *FACTS)
    }
    waits = ("", "") if before.phase in (Phase.INITIALIZED, Phase.TERMINATED) else ("Waits", "for it")
    assert (after.reason, after.message) == (waits if steps else ("", ""))


def test_an_end_that_has_just_begun_is_known_by_its_conditions() -> None:
    ending = lived(*LIFE, Phase.TERMINATING)
    assert shown(ending).terminating_at == ending.terminating_at


def test_a_deleted_claim_ends_from_its_deletion_on() -> None:
    deleted = START + timedelta(minutes=9)
    found = shown(lived(*LIFE), deleted)
    assert (found.phase, found.phase_since, found.terminating_at) == (Phase.TERMINATING, deleted, deleted)


def test_an_object_that_is_not_a_nodeclaim_gives_none() -> None:
    assert shown_claim({"kind": "NodeClaim", "metadata": {"name": "x"}, "spec": {}}, NOW).value is None
