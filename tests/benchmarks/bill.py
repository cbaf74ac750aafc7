"""What the system itself costs in a month, from what a simulated time has used: list prices of us-east-1.

The bill has two parts: what a region costs, however many clusters it serves, and what each cluster adds. Assumed, as
in docs/operations.md: a run waits 0.1 s for what it asks (garbage collection and dispatch 0.5 s) beside the processor
time that was measured here, which a function has a share of by its memory. Lambda asks each queue 15 times a minute, a
message takes three requests more. A run writes 0.9 KB of logs. Not counted: nodes, NAT or endpoints, AWS's free
allowances.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from infra.concerns import (
    CATALOG_MEMORY_MIB,
    CLUSTER_CONCERNS,
    DISPATCH_MEMORY_MIB,
    ROUTING_MEMORY_MIB,
)
from infra.storage import DECISION_DAYS, VERSION_DAYS
from nodesmith.adapters.healthrecords import WRITE_EVERY
from nodesmith.controllers.health import LOOK_EVERY, dead_letter_queues
from nodesmith.model.nodeclaimitems import to_item
from nodesmith.settings import REGION_TICK_MINUTES, TICK_MINUTES, Concern
from tests.weeks import Fleet

MONTH_HOURS = 730
ALARMS = 3
_WHOLE_CPU_MIB = 1769
_WAIT_SECONDS = {"garbagecollection": 0.5}
_USUAL_WAIT_SECONDS = 0.1
_SHARED = {
    Concern.CATALOG: (CATALOG_MEMORY_MIB, 20.0),
    Concern.DISPATCH: (DISPATCH_MEMORY_MIB, 0.5),
    Concern.ROUTING: (ROUTING_MEMORY_MIB, 0.05),
}
"""The region's functions: memory, and seconds of a run."""
_LOAD_SECONDS_PER_CLAIM = 15e-6
"""Processor time of reading a claim from DynamoDB, see `tests.benchmarks.ticks`."""
_POLLS_A_MINUTE = 15
_REQUESTS_A_MESSAGE = 3
_LOG_BYTES_A_RUN = 900
_HEALTH_MINUTES = WRITE_EVERY.total_seconds() / 60
_LOOK_MINUTES = LOOK_EVERY.total_seconds() / 60
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Prices:
    """USD, list prices of us-east-1 in November 2026."""

    lambda_gb_second: float = 0.0000133334
    lambda_run: float = 0.20e-6
    sqs_request: float = 0.40e-6
    schedule: float = 1.00e-6
    dynamodb_read: float = 0.125e-6
    dynamodb_write: float = 0.625e-6
    s3_get: float = 0.40e-6
    s3_put: float = 5.00e-6
    s3_gb_month: float = 0.023
    log_gb: float = 0.50
    alarm_month: float = 0.10


PRICES = Prices()


def region_bill(prices: Prices = PRICES) -> Mapping[str, float]:
    """Give USD a month by service of a region's stack while it serves no cluster."""
    ticks = {concern: _a_month(minutes) for concern, minutes in REGION_TICK_MINUTES.items()}
    runs = sum(ticks.values())
    gb_seconds = sum(ticks[c] * seconds * memory / 1024 for c, (memory, seconds) in _SHARED.items())
    queues = len(CLUSTER_CONCERNS) + sum(each.tried_again for each in CLUSTER_CONCERNS) + 2  # routing has two
    polls = queues * _POLLS_A_MINUTE * _a_month(1)
    looks = _a_month(_LOOK_MINUTES)
    return {
        "Lambda": gb_seconds * prices.lambda_gb_second + runs * prices.lambda_run,
        "SQS": (polls + looks * len(dead_letter_queues(set()))) * prices.sqs_request,
        "EventBridge Scheduler": runs * prices.schedule,
        "DynamoDB": looks * 2 * prices.dynamodb_read,
        "S3": ticks[Concern.CATALOG] * prices.s3_put,
        "CloudWatch": runs * _LOG_BYTES_A_RUN / _GB * prices.log_gb + ALARMS * prices.alarm_month,
    }


def cluster_bill(fleet: Fleet, hours: float, prices: Prices = PRICES) -> Mapping[str, float]:
    """Give USD a month by service that a cluster adds, for a fleet that has lived for so many hours."""
    months = hours / MONTH_HOURS
    runs, gb_seconds = _lambda(fleet, months)
    reads, writes = _dynamodb(fleet)
    recorded = len(CLUSTER_CONCERNS) * _a_month(_HEALTH_MINUTES)
    reads += (recorded + _a_month(_LOOK_MINUTES)) * months
    gets, puts, stored_gb = _s3(fleet, months)
    sent = fleet.usage.calls["FakeHints.send"] / months
    return {
        "Lambda": gb_seconds * prices.lambda_gb_second + runs * prices.lambda_run,
        "SQS": (runs * _REQUESTS_A_MESSAGE + sent) * prices.sqs_request,
        "DynamoDB": (reads * prices.dynamodb_read + writes * prices.dynamodb_write) / months
        + recorded * prices.dynamodb_write,
        "S3": gets * prices.s3_get + puts * prices.s3_put + stored_gb * prices.s3_gb_month,
        "CloudWatch": runs * _LOG_BYTES_A_RUN / _GB * prices.log_gb,
    }


def together(*bills: Mapping[str, float]) -> Mapping[str, float]:
    """Add bills up, service by service."""
    services = dict.fromkeys(service for bill in bills for service in bill)
    return {service: sum(bill.get(service, 0.0) for bill in bills) for service in services}


def _a_month(every_minutes: float) -> float:
    return MONTH_HOURS * 60 / every_minutes


def _lambda(fleet: Fleet, months: float) -> tuple[float, float]:
    """Give runs and GB-seconds a month. A concern that does not live in the simulation idles."""
    usage = fleet.usage
    all_runs, gb_seconds = 0.0, 0.0
    read_share = usage.claims_read * _LOAD_SECONDS_PER_CLAIM / max(1, usage.runs.total())
    ticks = {str(concern): minutes for concern, minutes in TICK_MINUTES.items()}
    for concern in CLUSTER_CONCERNS:
        lived = {each.value: count for each, count in usage.runs.items()}.get(concern.name)
        runs = lived / months if lived else _a_month(ticks[concern.name])
        measured = {each.value: seconds for each, seconds in usage.cpu_seconds.items()}.get(concern.name, 0.0)
        computed = measured / months / runs + read_share
        seconds = _WAIT_SECONDS.get(concern.name, _USUAL_WAIT_SECONDS)
        seconds += computed * max(1.0, _WHOLE_CPU_MIB / concern.memory_mib)
        all_runs += runs
        gb_seconds += runs * seconds * concern.memory_mib / 1024
    return all_runs, gb_seconds


def _dynamodb(fleet: Fleet) -> tuple[float, float]:
    """Give read and write units: 4 KB of a strongly consistent read, 1 KB of a write, twice that in a transaction."""
    calls, claims = fleet.usage.calls, fleet.store.claims.values()
    size = sum(len(json.dumps(to_item(claim))) + 100 for claim in claims) / max(1, len(claims))
    reads = fleet.usage.claims_read * size / 4096 + 2 * calls["FakeStore.load"] + calls["FakeStore.learned"]
    units = -(-size // 1024)
    commits = 2 * (calls["FakeStore.commit"] + units * len(fleet.cloud.instances))
    others = sum(count for call, count in calls.items() if call.startswith("FakeStore.save_")) * 2
    others += calls["FakeStore.take_turn"] + calls["FakeStore.end_turn"]
    return reads, commits + units * (calls["FakeStore.save"] + calls["FakeStore.forget"]) + others


def _s3(fleet: Fleet, months: float) -> tuple[float, float, float]:
    """Give reads and writes a month, and the GB that lie there: replaced snapshots and records, for their days."""
    usage = fleet.usage
    catalogs = sum(
        count for concern, count in usage.runs.items() if concern in {"provisioning", "interruption"}
    )
    gets = (usage.calls["Bucket.get"] + catalogs) / months + _a_month(1)  # observation looks at the heartbeat
    puts = (usage.snapshot_puts + usage.calls["Bucket.put"]) / months
    days = months * MONTH_HOURS / 24
    stored = (usage.snapshot_bytes * VERSION_DAYS + usage.record_bytes * DECISION_DAYS) / days / _GB
    return gets, puts, stored
