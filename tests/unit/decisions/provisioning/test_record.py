"""The record of a decision: it names the inputs, and a replay gives the same decision."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from nodesmith.controllers.launching.launch import recorded
from nodesmith.decisions.provisioning import (
    Inputs,
    Plan,
    canonical,
    decide,
    decision_id,
    plan_item,
    record,
    replay,
)
from nodesmith.keys import decision_key
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.items import ledger_item
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.policies import SYSTEM_SPREADS, MinValuesPolicy, NodeSettings, PreferencePolicy
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom
from nodesmith.observation.reduction.pods import reduce_daemonset, reduce_pod
from tests.builders import (
    CLUSTER,
    NOW,
    ZONES,
    catalog,
    claim,
    inputs,
    ledger,
    node,
    nodeclass_manifest,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)
from tests.fakes.blobs import FakeBlobs
from tests.smallworld.world import pod_manifest

DIGEST = "ab" * 32
SETTINGS = NodeSettings(
    reserved_enis=1,
    preference_policy=PreferencePolicy.IGNORE,
    min_values_policy=MinValuesPolicy.BEST_EFFORT,
    default_spreads=SYSTEM_SPREADS,
)


def busy() -> Inputs:
    """A decision in which everything occurs: placed, waiting, unplaced, ignored, bought, obstacles, problems."""
    web = shape(topologySpreadConstraints=spread(hard=True))
    some = [
        *pods(web, 9),
        *pods(shape(app="waits")),
        *pods(shape("10000", app="huge")),
        *pods(shape(app="gated"), unschedulable=False),
        *pods(shape("500m", app="small"), 3),
    ]
    seen = snapshot(
        pods=some,
        nodes=[node(cpu="2")],
        nodepools=[nodepool_manifest(limits={"cpu": "500"}), nodepool_manifest("bad", limits={"cpu": "x"})],
    )
    known = ledger(
        version=12,
        claims=(
            claim("z", nominated=("default/waits-0000",)),
            claim("a", phase=Phase.PENDING, nominated=("default/waits-0000",)),
        ),
        unavailable={
            OfferingKey("spot", "c6a.xlarge", ZONES[0]): Backoff(NOW + timedelta(minutes=3), 1, "ICE")
        },
    )
    return inputs(snapshot=seen, ledger=known, settings=SETTINGS)


def written(made_from: Inputs) -> dict[str, Any]:
    """Return the record as read back from storage."""
    plan = decide(made_from)
    read: dict[str, Any] = json.loads(canonical(record(made_from, plan, DIGEST, {"decide": 3.14159})))
    return read


def test_the_busy_decision_has_something_of_everything() -> None:
    plan = decide(busy())

    assert all(
        (plan.nodes, plan.placed, plan.waiting, plan.unplaced, plan.ignored, plan.obstacles, plan.problems)
    )


def test_a_replay_from_the_stored_record_gives_the_same_bytes() -> None:
    made_from = busy()
    read = written(made_from)

    assert replay(read, made_from.snapshot, made_from.catalog) == canonical(read["plan"])


def test_a_replay_from_the_snapshots_own_bytes_gives_the_same_bytes() -> None:
    manifests = {
        f"web-{n}": pod_manifest(f"web-{n}", topologySpreadConstraints=spread(hard=False)) for n in range(7)
    }
    manifests["odd"] = pod_manifest("odd", cpu="1gb")
    daemonset = {
        "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {
            "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "50m"}}}]}}
        },
    }
    observed = Observed(
        pods=[reduced for m in manifests.values() if (reduced := reduce_pod(m)) is not None],
        daemonsets=[reduce_daemonset(daemonset)],
        nodepools=[reduce_custom(nodepool_manifest()), reduce_custom(nodepool_manifest("also", weight=3))],
        nodeclasses=[reduce_custom(nodeclass_manifest())],
    )
    data = encode(CLUSTER, NOW, observed)
    read = written(inputs(snapshot=decode(data)))

    assert len(read["plan"]["nodes"]) == 3
    assert replay(read, decode(data), catalog()) == canonical(read["plan"])


def test_a_record_names_what_it_was_made_from() -> None:
    read = written(busy())

    assert (read["format"], read["version"], read["concern"]) == ("nodesmith-decision", 1, "provisioning")
    assert (read["id"], read["cluster"], read["at"]) == (
        "20261121T120000Z-test",
        CLUSTER,
        "2026-11-21T12:00:00+00:00",
    )
    assert read["inputs"]["snapshot"] == {"sha256": DIGEST, "takenAt": "2026-11-21T12:00:00+00:00"}
    assert read["inputs"]["catalog"] == {"region": "us-east-1", "ref": catalog().ref}
    assert read["inputs"]["ledger"]["version"] == 12
    assert read["inputs"]["settings"]["reserved_enis"] == 1
    assert read["durationsMs"] == {"decide": 3.1}


def test_settings_are_read_back_as_they_were_and_those_of_an_earlier_release_with_defaults() -> None:
    assert NodeSettings.of(written(busy())["inputs"]["settings"]) == SETTINGS
    assert NodeSettings.of({"reserved_enis": 1}) == NodeSettings(reserved_enis=1)


def test_the_hash_of_the_inputs_changes_with_each_of_them_and_with_nothing_else() -> None:
    base = busy()

    def digest(made_from: Inputs, *, snapshot_digest: str = DIGEST, took: float = 1.0) -> str:
        return str(record(made_from, Plan(), snapshot_digest, {"decide": took})["inputsHash"])

    assert digest(base) == digest(base, took=9.0)
    others = [
        digest(base, snapshot_digest="cd" * 32),
        digest(replace(base, ledger=ledger())),
        digest(replace(base, settings=NodeSettings())),
        digest(replace(base, catalog=replace(base.catalog, ref="other"))),
    ]
    assert len({digest(base), *others}) == 5


def test_equal_data_has_the_same_text_in_any_order() -> None:
    assert (
        canonical({"b": [1, 2], "a": "é"})
        == canonical({"a": "é", "b": [1, 2]})
        == b'{"a":"\\u00e9","b":[1,2]}'
    )


def test_a_record_has_the_same_bytes_as_if_all_of_it_were_encoded_at_once() -> None:
    made_from = busy()
    stored = canonical(record(made_from, decide(made_from), DIGEST, {"decide": 3.14159}))
    plain = json.loads(stored)

    assert json.dumps(plain, sort_keys=True, separators=(",", ":")).encode() == stored
    assert plain["inputs"]["ledger"] == json.loads(json.dumps(ledger_item(made_from.ledger)))
    stated = json.dumps(plain["inputs"], sort_keys=True, separators=(",", ":")).encode()
    assert plain["inputsHash"] == hashlib.sha256(stated).hexdigest()


def test_inputs_of_a_record_in_memory_can_be_read_like_those_of_a_stored_one() -> None:
    made_from = busy()
    made = record(made_from, decide(made_from), DIGEST, {})

    assert dict(made["inputs"]) == json.loads(canonical(made))["inputs"]
    assert replay(made, made_from.snapshot, made_from.catalog) == canonical(made["plan"])


def test_an_idle_plan_is_written_too() -> None:
    item = plan_item(Plan())

    assert item["nodes"] == item["unplaced"] == []
    assert (item["priceHourlyUsd"], item["placed"]) == (0, {})


def test_decision_ids_sort_by_time_and_differ_by_inputs() -> None:
    first = decision_id("ab", 1, NOW)

    assert first.startswith("20261121T120000Z-")
    assert first < decision_id("ab", 1, NOW + timedelta(seconds=1))
    assert len({first, decision_id("ac", 1, NOW), decision_id("ab", 2, NOW)}) == 3


def test_the_claims_of_a_large_cluster_are_recorded_after_ec2_was_asked() -> None:
    many = ledger(claims=tuple(claim(f"default-{number:04}", phase=Phase.GIVEN_UP) for number in range(1000)))
    seen = inputs(ledger=many, pods=pods(shape(), 2))
    plan, run = decide(seen), SimpleNamespace(cluster_name=CLUSTER, blobs=FakeBlobs())
    key, before = decision_key(CLUSTER, seen.decision), list[Any]()

    def carry_out() -> bool:
        before.append(json.loads(gzip.decompress(run.blobs.objects[key])))
        return True

    assert recorded(run, seen, plan, b"snapshot", {}, carry_out)
    after = json.loads(gzip.decompress(run.blobs.objects[key]))
    assert before[0]["plan"] == after["plan"]
    assert not before[0]["inputs"]["ledger"]["claims"]
    assert len(after["inputs"]["ledger"]["claims"]) == 1000
    assert not after["superseded"]
    assert replay(after, seen.snapshot, seen.catalog) == canonical(after["plan"])
    assert recorded(run, seen, plan, b"snapshot", {}, lambda: None) is None
    assert json.loads(gzip.decompress(run.blobs.objects[key]))["superseded"]
