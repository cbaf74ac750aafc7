"""`nodesmith explain nodepool`: how a NodePool's instance types are chosen."""

from __future__ import annotations

import gzip
from datetime import timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from nodesmith.decisions.provisioning import canonical, decide, record
from nodesmith.decisions.provisioning.nodepools.onsale import Considered, considered
from nodesmith.keys import decision_key, decision_snapshot_key
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ledger.learned import Backoff
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith_cli.main import app
from nodesmith_cli.views.explaining.commands import pool_item, pool_lines
from nodesmith_formats.decisions.records import Folder
from tests.builders import (
    CLUSTER,
    NOW,
    catalog,
    expression,
    inputs,
    ledger,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

EVERY_TYPE = len(catalog().facts)
TYPE = "node.kubernetes.io/instance-type"
ONE_TYPE = expression(TYPE, "In", "m5.large")
FAMILY = expression("karpenter.k8s.aws/instance-family", "In", "m5", "c5")


def explained(*requirements: dict[str, Any], **known: Any) -> Considered:
    seen = snapshot(nodepools=[nodepool_manifest(requirements=requirements)])
    (pool,) = considered(inputs(snapshot=seen, ledger=ledger(**known)))
    return pool


def removed(pool: Considered, by: str) -> tuple[int, int]:
    """Return the number of types that a condition rules out, and the number that only it rules out."""
    (found,) = [removal for removal in pool.removals if by in removal.condition]
    return found.types, found.alone


def test_a_nodepool_without_requirements_has_every_bootable_and_offered_type() -> None:
    pool = explained()

    assert pool.all == EVERY_TYPE
    assert "arch" not in " ".join(removal.condition for removal in pool.removals)


def test_each_requirement_shows_what_it_rules_out_and_what_it_rules_out_alone() -> None:
    pool = explained(ONE_TYPE, FAMILY)

    assert pool.left == 1
    assert removed(pool, TYPE)[0] == EVERY_TYPE - 1
    assert removed(pool, TYPE)[1] > 0
    assert removed(pool, "instance-family")[1] == 0, "the other condition rules them out too"
    assert pool.removals[0].condition == f"{TYPE} In [m5.large]"


def test_types_without_capacity_on_ec2_are_shown() -> None:
    zones = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f")
    held = Backoff(NOW + timedelta(minutes=3), 1, "InsufficientInstanceCapacity")
    closed = {OfferingKey(kind, "m5.large", zone): held for kind in ("spot", "on-demand") for zone in zones}

    pool = explained(ONE_TYPE, unavailable=closed)

    assert pool.left == 0
    assert removed(pool, "EC2 lately refused it, for lack of capacity, quota or permission") == (1, 1)
    assert "no instance type" in pool.obstacle or "none of its" in pool.obstacle


def test_the_newest_decision_is_explained_even_if_it_launches_nothing(tmp_path: Path) -> None:
    """A NodePool that is new, and so wrong that it launches nothing, is what people ask about."""
    for minute, pools in enumerate((["old"], ["old", "new"], ["later"])):
        seen = snapshot(
            pods=pods(shape(), 1) if minute == 0 else (),
            nodepools=[nodepool_manifest(name, requirements=[ONE_TYPE]) for name in pools],
        )
        at = NOW + timedelta(minutes=minute)
        known = inputs(snapshot=seen, now=at, decision=f"{at:%Y%m%dT%H%M%SZ}-cafecafe")
        plan = decide(known)
        assert bool(plan.nodes) == (minute == 0)
        Folder(tmp_path).put(
            decision_key(CLUSTER, known.decision),
            gzip.compress(canonical(record(known, plan, "00" * 32, {}))),
        )
        if pools != ["later"]:  # its function was killed before it stored the snapshot
            encoded = encode(CLUSTER, at, Observed(nodepools=seen.nodepools))
            Folder(tmp_path).put(decision_snapshot_key(CLUSTER, known.decision), encoded)

    def explained(name: str) -> Result:
        return CliRunner().invoke(app, ["explain", "nodepool", name, "--keep", str(tmp_path)])

    assert "NodePool new: " in explained("new").stdout
    assert "has no NodePool later; NodePools: new, old" in explained("later").stderr


def test_text_and_json_list_the_strictest_requirement_first() -> None:
    pool = explained(ONE_TYPE, FAMILY)

    lines = list(pool_lines(pool))

    assert lines[0] == f"NodePool default: 1 of {EVERY_TYPE:,} instance types can be launched"
    assert lines[1].split() == ["removed", "only", "by", "it", "condition"]
    assert lines[2].endswith(f"{TYPE} In [m5.large]")
    assert pool_item(pool)["removals"][0]["types"] == EVERY_TYPE - 1
