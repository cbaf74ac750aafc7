"""Each format as JSON: what today's version writes of the values, and what it reads out of a document of any version.

Of the table a document is the list of its items, with the JSON text of each item's `doc` as JSON. Of objects that are
compressed it is what they hold.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from nodesmith.adapters.catalog import catalogs
from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats, HealthRecords, HealthWriter
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.dynamodb.regionitems import DynamoNotices, DynamoRegionNotices
from nodesmith.controllers.allocations import State
from nodesmith.controllers.launching.unschedulable import Refused, write_unplaced
from nodesmith.decisions.allocations.nodes import Price
from nodesmith.decisions.provisioning import Plan
from nodesmith.decisions.provisioning.plan import Inputs, Unplaced, inputs_of, record
from nodesmith.keys import unplaced_key
from nodesmith.model.apimachinery.frozen import FrozenMap, canonical
from nodesmith.model.costs.allocations import Allocation, Kind, MoveOutcome, Owner, to_book
from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.ec2.notices import KeptEvent
from nodesmith.model.functions import (
    Concern,
    DelayedInvocation,
    Finding,
    Heartbeat,
    Hint,
    Record,
    hints_of,
    hints_payload,
)
from nodesmith.model.kubernetes.pods import Reason
from nodesmith.model.ledger import moves
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Metrics, labelled
from nodesmith.model.metrics.objects import (
    MetricsObject,
    OfferingOnSale,
    TypeOnSale,
    read_on_sale,
    write_on_sale,
)
from nodesmith.model.policies import DefaultSpread
from nodesmith.observation import decoding
from nodesmith.observation.mirror import BUDGETS, NODECLAIMS, NODES, PODS
from nodesmith.registration import Registration, Trial, read_registration, read_trial
from nodesmith_forwarder.changes import ChangedObject, Changes, Part
from nodesmith_forwarder.recording import Recorder
from tests import builders
from tests.aws.tables import TABLE, items, table
from tests.fakes.blobs import FakeBlobs
from tests.formats import versions
from tests.formats.observed import OBSERVED
from tests.formats.values import GONE, LAUNCHING, LEDGER, NOW
from tests.formats.versions import Layout
from tests.smallworld.world import catalog

CLUSTER = builders.CLUSTER
REGISTRATION = Registration(CLUSTER, "vpc-01234567", ("nodes",), "shared", {"RESERVED_ENIS": "1"})
TRIAL = Trial(frozenset({"dev"}), "r1", "it failed")
HINT = Hint(CLUSTER, "pods are pending", 2)
DELAYED = DelayedInvocation(Concern.LIFECYCLE, "shared", hints_payload([HINT]))
ON_SALE = {"m5.large": TypeOnSale(2, 2**33, (OfferingOnSale("spot", "us-east-1a", 0.03, True),))}
FINDING = Finding(CLUSTER, "lifecycle", "Rejected", "it was said")
WHOLE = NOW.replace(microsecond=0)
"""Records hold whole seconds."""
SYMPTOMS = {"Rejected": "a name is wrong"}
DECISIONS = "voluntary_disruption_decisions_total"
PLAN = Plan(
    placed={"default-a": ("default/web-1",)},
    waiting={"default/web-2": "default-b"},
    unplaced=(Unplaced(("default/web-3",), Reason("too large", "default", "resource cpu", "ask for less")),),
    obstacles={"default": "no type is left"},
    without_types={"default": "no type is left"},
    problems=("a NodePool cannot be read",),
    tried=("default/web-3",),
)
ENDED_MOVE = moves.Move(
    "m-9", moves.Reason.EMPTY, ("default-gone",), moves.Stage.ENDING, NOW, NOW, saving_hourly_usd=0.1
)
ALLOCATION = Allocation(
    window_start=WHOLE,
    window_end=WHOLE + timedelta(hours=1),
    node="node-1",
    instance_id="i-1",
    nodepool="default",
    instance_type="m5.large",
    zone="us-east-1a",
    capacity_type="spot",
    manager="nodesmith",
    owner=Owner(Kind.WORKLOAD, "shop", "Deployment/web", FrozenMap({"team": "red"})),
    pods=1,
    seconds=2,
    cpu_milli_seconds=3,
    memory_mib_seconds=4,
    gpu_seconds=5,
    hourly_nano_usd=6,
    cpu_nano_usd=7,
    memory_nano_usd=8,
    gpu_nano_usd=9,
    committed_nano_usd=10,
    nano_usd=24,
    estimated=True,
)
OUTCOME = MoveOutcome("m-9", "Empty", WHOLE, "empty", ("a",), ("b",), 1, 2, 3, 4, ("b",), ("Drifted",), WHOLE)
BOOKED = State(WHOLE, "tag", {"linux/spot/m5.large/us-east-1a": Price(5, estimated=True)}, (OUTCOME,))
REFUSED = Refused({"NodePool/static": "a limit"}, {"NodeClaim/mine": "nothing fits"})
INPUTS = Inputs(
    replace(builders.snapshot(), budgets=()),
    LEDGER,
    catalog(),
    replace(
        builders.inputs().settings, default_spreads=(DefaultSpread("topology.kubernetes.io/zone", 1, False),)
    ),
    NOW,
    "20261121T083015Z-abc",
    ("default/web-3",),
)


@dataclass(frozen=True, slots=True)
class Format:
    """One format. `write` gives its document as today's version writes the values, `read` what a document says.

    `value` is what today's document says; `layout` how another version's may differ.
    """

    name: str
    write: Callable[[], Any]
    read: Callable[[Any], object]
    value: object
    layout: Layout


def _write_table() -> Any:
    with table() as dynamodb:
        _write_ledger(DynamoStore(dynamodb, TABLE, CLUSTER, lambda: NOW))
        DynamoRegionNotices(dynamodb, TABLE, lambda: NOW).keep(CLUSTER, "e-1", "{}", builders.ACCOUNT)
        DynamoHeartbeats(dynamodb, TABLE, CLUSTER).write_heartbeat(NOW, NOW - timedelta(minutes=1))
        HealthWriter(dynamodb, TABLE, CLUSTER, "lifecycle", lambda: NOW).ran(
            True, SYMPTOMS, NOW + timedelta(minutes=3)
        )
        HealthRecords(dynamodb, TABLE).keep({CLUSTER: NOW}, [FINDING])
        return [_opened(item) for item in items(dynamodb)]


def _write_ledger(store: DynamoStore) -> None:
    ledger = LEDGER
    move, gang = replace(ledger.moves[0], revision=0), replace(ledger.gangs[0], revision=0)
    store.commit(0, ledger.claims, "20261121T083015Z-abc", move, gang)
    for status in ledger.nodeclasses.values():
        store.save_nodeclass(status)
    assert ledger.cluster is not None
    store.save_cluster(ledger.cluster)
    store.save_unavailable(ledger.unavailable)
    store.save_subnet_backoffs(ledger.subnet_backoffs)
    store.save_zonal_shifts(ledger.zonal_shifts)
    for nodepool, backoff in ledger.nodepool_backoffs.items():
        store.save_nodepool_backoff(nodepool, backoff)
    for nodepool, health in ledger.health.items():
        store.save_health(nodepool, replace(health, revision=0))
    store.pause(ledger.paused)
    assert ledger.handover is not None
    store.hand_over(ledger.handover)
    store.save_risks(ledger.risks)
    for nodepool, drain_time in ledger.drain_times.items():
        store.save_drain_time(nodepool, drain_time)
    for kind, backoff in ledger.move_backoffs.items():
        store.save_move_backoff(kind, backoff)
    _end(store)
    store.save_contents(ledger.contents)
    store.learn(ledger.learned)
    store.take_lock(Concern.INTERRUPTION, NOW, NOW + timedelta(minutes=1))
    store.take_lock(Concern.INTERRUPTION, NOW, NOW + timedelta(minutes=1))
    _let_go(store)


def _end(store: DynamoStore) -> None:
    """Let a move come and go, so that it is there to be booked."""
    saved = store.save_move(ENDED_MOVE)
    store.forget_move(saved)


def _let_go(store: DynamoStore) -> None:
    """Let a claim come and go, so that its departure is there."""
    store.commit(1, [GONE], "20261121T083015Z-abd")
    store.forget(next(claim for claim in store.load().claims if claim.name == GONE.name))


def _opened(item: Mapping[str, Any]) -> dict[str, Any]:
    if "doc" not in item:
        return dict(item)
    return {**item, "doc": json.loads(item["doc"]["S"])}


def _closed(item: Mapping[str, Any]) -> dict[str, Any]:
    if "doc" not in item:
        return dict(item)
    return {**item, "doc": {"S": json.dumps(item["doc"], separators=(",", ":"))}}


def _read_table(document: Any) -> object:
    with table() as dynamodb:
        for item in document:
            dynamodb.put_item(TableName=TABLE, Item=_closed(item))
        store = DynamoStore(dynamodb, TABLE, CLUSTER, lambda: NOW)
        ledger = replace(store.load(), learned=store.learned())
        launching = next((c for c in ledger.claims if c.name == LAUNCHING.name), LAUNCHING)
        request = LaunchRequest.from_item(launching.name, launching.launch)
        busy = store.take_lock(Concern.INTERRUPTION, NOW, NOW + timedelta(minutes=2))
        records = HealthRecords(dynamodb, TABLE)
        since, found = records.state()
        return {
            "ledger": _without_launches(ledger),
            "launch": request,
            "turn": (busy, store.release_lock(Concern.INTERRUPTION, NOW + timedelta(minutes=1))),
            "notices": DynamoNotices(dynamodb, TABLE, CLUSTER).pending(),
            "heartbeat": DynamoHeartbeats(dynamodb, TABLE, CLUSTER).last(),
            "records": records.of(CLUSTER),
            "since": dict(since),
            "findings": [(each, each.message) for each in sorted(found)],
            "unbooked": _unbooked(store),
        }


def _unbooked(store: DynamoStore) -> object:
    claims, moved = store.unbooked.all()
    return [replace(claim, launch=FrozenMap()) for claim in claims], moved


def _without_launches(ledger: Ledger) -> Ledger:
    """Leave out what is kept as it is found, for the effects alone to read."""
    return replace(ledger, claims=tuple(replace(claim, launch=FrozenMap()) for claim in ledger.claims))


def _change_table(document: Any, change: Callable[[Any, Layout], Any]) -> Any:
    """Change each item's document as its kind is built."""
    return [
        {**item, "doc": change(item["doc"], versions.layout_of(item["pk"]["S"], item["sk"]["S"]))}
        if "doc" in item
        else item
        for item in document
    ]


def changed(format_: Format, document: Any, change: Callable[[Any, Layout], Any]) -> Any:
    """Return a document as another version has it."""
    return _change_table(document, change) if format_.name == "table" else change(document, format_.layout)


def _write_decision() -> Any:
    return json.loads(canonical(record(INPUTS, PLAN, "d" * 64, {"decide": 12.34})))


def _read_decision(document: Any) -> object:
    return _comparable(inputs_of(document, INPUTS.snapshot, INPUTS.catalog))


def _comparable(inputs: Inputs) -> Inputs:
    return replace(inputs, ledger=_without_launches(inputs.ledger))


def _write_unplaced() -> Any:
    blobs = FakeBlobs()
    write_unplaced(blobs, CLUSTER, PLAN, NOW, REFUSED)
    return json.loads(blobs.objects[unplaced_key(CLUSTER)])


def _metrics() -> MetricsObject:
    metrics = Metrics()
    metrics.count(DECISIONS, 3, decision="delete", reason="empty", consolidation_type="empty")
    metrics.observe("scheduler_scheduling_duration_seconds", 0.2, controller="disruption")
    metrics.show("voluntary_disruption_eligible_nodes", {labelled(reason="empty"): 2.0}, NOW)
    return MetricsObject(metrics.take(), {"a": 4})


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _snapshot() -> bytes:
    return decoding.encode(CLUSTER, NOW, OBSERVED)


_BASE = decoding.encode(CLUSTER, NOW, OBSERVED)


def _delta() -> Any:
    """Return a delta in which a pod, a node and a budget came and others changed or went."""
    pod, machine, guard = OBSERVED.pods[0], OBSERVED.nodes[0], OBSERVED.poddisruptionbudgets[0]
    recorder = Recorder(CLUSTER, Changes(), lambda: OBSERVED, small_bytes=0)
    recorder.encoded(NOW, None)
    moved, other = (
        replace(pod, node="node-b"),
        replace(pod, name="new", shape=pod.shape.replace("cpu", "gpu")),
    )
    status = {**machine["status"], "conditions": []}
    fewer = {**guard, "status": {**guard["status"], "disruptionsAllowed": 0}}
    touched = {
        PODS.name: {"default/a": ChangedObject(pod, moved), "default/new": ChangedObject(None, other)},
        NODES.name: {machine["metadata"]["name"]: ChangedObject(machine, {**machine, "status": status})},
        NODECLAIMS.name: {
            each["metadata"]["name"]: ChangedObject(each, None) for each in OBSERVED.nodeclaims
        },
        BUDGETS.name: {"default/web": ChangedObject(guard, fewer)},
    }
    rest = replace(OBSERVED, nodepools=(), nodeoverlays=())
    tied = {f"{each.namespace}/{each.name}": each for each in OBSERVED.pods if each.claims or each.devices}
    events = {machine["metadata"]["name"]: 1_763_712_000}
    data = recorder.delta(NOW, Part(touched, events, rest, tied, 0, ((), ("", ""))))
    assert data is not None
    return {**_unzipped(data), "base": "its digest"}  # which differs between versions of zlib


def _changed(document: Any) -> str:
    delta = {**document, "base": hashlib.sha256(_BASE).hexdigest()}
    return repr(decoding.decode(gzip.compress(_bytes(delta)) + _BASE))


def _said(document: Any) -> object:
    """Return what lifecycle and provisioning read of the pods that stay without a node."""
    from nodesmith.controllers.launching.unschedulable import _messages, read_tried, read_unschedulable

    blobs = FakeBlobs({unplaced_key(CLUSTER): _bytes(document)})
    at, unschedulable = read_unschedulable(blobs, CLUSTER, NOW)
    return at, dict(unschedulable), read_tried(blobs, CLUSTER), list(_messages(document)), document["refused"]


def _invocation(document: Any) -> object:
    delayed = DelayedInvocation.from_json(json.dumps(document))
    return delayed.concern, delayed.vpc, hints_of(delayed.payload)


def _unzipped(data: bytes) -> Any:
    return json.loads(gzip.decompress(data))


def _table() -> object:
    return {
        "ledger": _without_launches(LEDGER),
        "launch": LaunchRequest.from_item(LAUNCHING.name, LAUNCHING.launch),
        "turn": (False, True),
        "notices": [KeptEvent("e-1", "{}", builders.ACCOUNT)],
        "heartbeat": Heartbeat(NOW, NOW - timedelta(minutes=1)),
        "records": [Record(CLUSTER, "lifecycle").after(True, SYMPTOMS, WHOLE, WHOLE)],
        "since": {CLUSTER: WHOLE},
        "findings": [(FINDING, FINDING.message)],
        "unbooked": ([to_book(replace(GONE, revision=1), NOW)], [replace(ENDED_MOVE, revision=1)]),
    }


def _formats() -> list[Format]:
    reported = catalog()
    return [
        Format("table", _write_table, _read_table, _table(), Layout()),
        Format(
            "snapshot",
            lambda: _unzipped(_snapshot()),
            lambda document: repr(
                decoding.decode(gzip.compress(_bytes(document)))
            ),  # shapes compare by identity
            repr(decoding.decode(_snapshot())),
            versions.SNAPSHOT,
        ),
        Format("delta", _delta, _changed, _changed(_delta()), versions.DELTA),
        Format(
            "catalog",
            lambda: _unzipped(catalogs.encode(reported)),
            lambda document: catalogs.decode(gzip.compress(_bytes(document))),
            catalogs.decode(catalogs.encode(reported)),
            versions.CATALOG,
        ),
        Format(
            "metrics",
            lambda: json.loads(_metrics().to_bytes()),
            lambda document: MetricsObject.from_bytes(_bytes(document)),
            _metrics(),
            versions.METRICS,
        ),
        Format(
            "onsale",
            lambda: json.loads(write_on_sale(ON_SALE)),
            lambda document: read_on_sale(_bytes(document)),
            ON_SALE,
            versions.ON_SALE,
        ),
        Format("unplaced", _write_unplaced, _said, _said(_write_unplaced()), versions.UNPLACED),
        Format("decision", _write_decision, _read_decision, _comparable(INPUTS), versions.DECISION),
        Format(
            "registration",
            lambda: json.loads(REGISTRATION.to_json()),
            lambda document: read_registration(CLUSTER, json.dumps(document), of_any_release=True),
            REGISTRATION,
            versions.REGISTRATION,
        ),
        Format(
            "trial",
            lambda: json.loads(TRIAL.to_json()),
            lambda document: read_trial(json.dumps(document)),
            TRIAL,
            versions.TRIAL,
        ),
        Format(
            "allocations",
            lambda: [ALLOCATION.to_row(), OUTCOME.to_row()],
            lambda document: [Allocation.from_row(document[0]), MoveOutcome.from_row(document[1])],
            [ALLOCATION, OUTCOME],
            versions.ALLOCATIONS,
        ),
        Format(
            "booked",
            lambda: json.loads(BOOKED.to_json()),
            lambda document: State.from_json(_bytes(document)),
            BOOKED,
            versions.BOOKED,
        ),
        Format("event", lambda: hints_payload([HINT]), hints_of, ([HINT], []), versions.EVENT),
        Format(
            "delayedinvocation",
            lambda: json.loads(DELAYED.to_json()),
            _invocation,
            (DELAYED.concern, DELAYED.vpc, ([HINT], [])),
            versions.DELAYED,
        ),
    ]


FORMATS: Mapping[str, Format] = {each.name: each for each in _formats()}
