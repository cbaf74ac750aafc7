"""What nodesmith itself costs a month, from the usage of a simulated period, at list prices of us-east-1.

The bill has two parts: what a region costs, however many clusters it serves, and what each cluster adds. As in
docs/operations.md, the assumptions are: a run waits 0.1 s for calls (garbage collection 0.5 s, dispatch 0.15 s) in
addition to the processor time measured here, which is scaled by the function's share of a processor. A process that is
idle for ten minutes ends, and each start is paid for: `_START_SECONDS` of a whole processor, and `_SESSION_SECONDS` for
each further cluster. Lambda polls the only queue 15 times a minute. A run writes 0.45 KB of logs. Not counted are
nodes, NAT or endpoints, and AWS's free allowances. STS is free of charge.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.functions.concerns import (
    CATALOG_MEMORY_MIB,
    CLUSTER_CONCERNS,
    DISPATCH_MEMORY_MIB,
    ROUTING_MEMORY_MIB,
)
from infra.storage import DECISION_DAYS, VERSION_DAYS
from nodesmith.adapters.dynamodb.healthrecords import WRITE_EVERY
from nodesmith.controllers.region.dispatch import LOOK_EVERY
from nodesmith.model.functions import REGION_TICK_MINUTES, SCHEDULED, Concern
from nodesmith.model.ledger.items import claim_to_item
from tests.scenarios.weeks import Fleet

MONTH_HOURS = 730
ALARMS = 2
_WHOLE_CPU_MIB = 1769
_WAIT_SECONDS = {"garbagecollection": 0.5}
_USUAL_WAIT_SECONDS = 0.1
_SHARED = {
    Concern.CATALOG: (CATALOG_MEMORY_MIB, 20.0),
    Concern.DISPATCH: (DISPATCH_MEMORY_MIB, 0.15),
    Concern.ROUTING: (ROUTING_MEMORY_MIB, 0.05),
}
"""Memory and seconds of a run of each of the region's functions.

A run of dispatch takes 0.0125 s of a whole processor, which is 0.09 s at its share, and calls four services. A run of
routing takes 0.003 s and calls one service.
"""
_START_SECONDS = 0.35
"""Processor time of a process's start with the first run for a cluster.

Measured from the interpreter's first instruction, in the Lambda runtime on the local AWS. Among runs that find nothing
to do, observation and repair take 0.28 s, and interruption 0.36 s.
"""
_SESSION_SECONDS = 0.05
"""Processor time of a process's first run for a further cluster, which needs its own session and clients.

See `tests.benchmarks.aws.sessions`.
"""
_REQUEST_SECONDS = 0.03
"""How long booking waits for a request to S3."""
_LOAD_SECONDS_PER_CLAIM = 15e-6
"""Processor time of reading a claim from DynamoDB, see `tests.benchmarks.aws.ticks`."""
_POLLS_A_MINUTE = 15
_LATER_REQUESTS = 3
"""Requests to SQS for a delayed hint: send, receive, delete."""
_LOG_BYTES_A_RUN = 450
"""One line of the function's own. Lambda itself logs nothing about a successful run."""
_LOOK_MINUTES = LOOK_EVERY.total_seconds() / 60
_MARKS_UNITS = 1.0
"""Read units of dispatch's look at a cluster's two marks, eventually consistent: half a unit each."""
_RECORDS_UNITS = 0.5
"""Read units of a look at the records of a cluster's concerns, which are less than 4 KB."""
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Prices:
    """USD, list prices of us-east-1 in November 2026, with the item of each service's price list."""

    lambda_gb_second: float = 0.0000133334
    """Lambda, duration on arm64."""
    lambda_run: float = 0.20e-6
    """Lambda, a request; an asynchronous request of up to 256 KB is one."""
    sqs_request: float = 0.40e-6
    """SQS, a request to a standard queue."""
    schedule: float = 1.00e-6
    """EventBridge Scheduler, an invocation."""
    dynamodb_read: float = 0.125e-6
    """DynamoDB on demand, a read request unit: 4 KB strongly consistent, 8 KB eventually consistent."""
    dynamodb_write: float = 0.625e-6
    """DynamoDB on demand, a write request unit: 1 KB."""
    s3_get: float = 0.40e-6
    """S3 Standard, GET and all other requests."""
    s3_put: float = 5.00e-6
    """S3 Standard, PUT, COPY, POST and LIST."""
    s3_gb_month: float = 0.023
    """S3 Standard, storage."""
    log_gb: float = 0.50
    """CloudWatch Logs, ingestion."""
    log_gb_month: float = 0.03
    """CloudWatch Logs, storage."""
    alarm_month: float = 0.10
    """CloudWatch, a standard-resolution alarm on one metric."""


PRICES = Prices()


def region_bill(prices: Prices = PRICES) -> Mapping[str, float]:
    """Return what a region's stack costs while it serves no cluster, in USD a month by service."""
    ticks = {concern: _a_month(minutes) for concern, minutes in REGION_TICK_MINUTES.items()}
    runs, scheduled = sum(ticks.values()), sum(ticks[concern] for concern in SCHEDULED)
    gb_seconds = sum(ticks[concern] * _run_gb_seconds(concern) for concern in _SHARED)
    # Only the catalogue's process ends between two runs.
    gb_seconds += ticks[Concern.CATALOG] * _computed_gb_seconds(_START_SECONDS, CATALOG_MEMORY_MIB)
    looks = _a_month(_LOOK_MINUTES)
    # Runs of routing and of the catalogue.
    recorded = _a_month(WRITE_EVERY.total_seconds() / 60) + ticks[Concern.CATALOG]
    return {
        "Lambda": gb_seconds * prices.lambda_gb_second + runs * prices.lambda_run,
        "SQS": (_POLLS_A_MINUTE * _a_month(1) + looks)
        * prices.sqs_request,  # one look at the dead-letter queue
        "EventBridge Scheduler": scheduled * prices.schedule,
        "DynamoDB": (looks * 2 + ticks[Concern.DISPATCH]) * prices.dynamodb_read  # and a look at the limits
        + recorded * prices.dynamodb_write,
        "S3": ticks[Concern.CATALOG] * prices.s3_put,
        "CloudWatch": _logs(runs, prices) + ALARMS * prices.alarm_month,
    }


def cluster_bill(
    fleet: Fleet, hours: float, prices: Prices = PRICES, *, is_first: bool = False
) -> Mapping[str, float]:
    """Return what a cluster adds, in USD a month by service, for a fleet that was simulated for `hours`.

    Only the first cluster pays for processes that its ticks start. Further clusters are looked at within the same
    minutes, so they only pay for a session in each process.
    """
    months = hours / MONTH_HOURS
    runs, gb_seconds = _lambda(fleet, months)
    routed = fleet.usage.routed / months
    runs, gb_seconds = runs + routed, gb_seconds + routed * _run_gb_seconds(Concern.ROUTING)
    gb_seconds += sum(_first_looks(fleet, is_first=is_first)) / months
    reads, writes = _dynamodb(fleet)
    written = fleet.records_written + fleet.ledgers_marked
    reads += fleet.records_written + (_MARKS_UNITS + _RECORDS_UNITS) * hours * 60
    reads += 9 / 8 * _a_month(_LOOK_MINUTES) * months  # dispatch evaluates the records, too
    beats = hours * 60
    gets, puts, stored_gb = _s3(fleet, months)
    later = sum(fleet.usage.later.values()) / months
    return {
        "Lambda": gb_seconds * prices.lambda_gb_second + runs * prices.lambda_run,
        "SQS": later * _LATER_REQUESTS * prices.sqs_request,
        "DynamoDB": (reads * prices.dynamodb_read + (writes + written + beats) * prices.dynamodb_write)
        / months,
        "S3": gets * prices.s3_get + puts * prices.s3_put + stored_gb * prices.s3_gb_month,
        "CloudWatch": _logs(runs, prices),
    }


@dataclass(frozen=True, slots=True)
class BookingUse:
    """What cost allocation has used in a simulated time. `seconds` are those of a whole processor."""

    puts: int
    lists: int
    gets: int
    stored_bytes: float
    """what the bucket holds once the time has gone on for as long as objects are kept"""
    items: int
    """items that were written to the ledger's table and deleted again"""
    item_bytes: int
    seconds: float


def booking_bill(use: BookingUse, hours: float, prices: Prices = PRICES) -> Mapping[str, float]:
    """Return what cost allocation costs, in USD a month by what is paid for; it is a part of `cluster_bill`."""
    months = hours / MONTH_HOURS
    memory = next(each.memory_mib for each in CLUSTER_CONCERNS if each.name == Concern.GARBAGECOLLECTION)
    units = -(-use.item_bytes // 1024)
    gb_seconds = _computed_gb_seconds(use.seconds, memory)
    gb_seconds += (use.puts + use.lists + use.gets) * _REQUEST_SECONDS * memory / 1024
    return {
        "S3 writes": use.puts / months * prices.s3_put,
        "S3 lists": use.lists / months * prices.s3_put,
        "S3 reads": use.gets / months * prices.s3_get,
        "S3 storage": use.stored_bytes / _GB * prices.s3_gb_month,
        "DynamoDB": 2 * units * use.items / months * prices.dynamodb_write,
        "Lambda": gb_seconds / months * prices.lambda_gb_second,
    }


def _logs(runs: float, prices: Prices) -> float:
    """Return the monthly cost of logs for this many runs a month, with a retention of one month."""
    return runs * _LOG_BYTES_A_RUN / _GB * (prices.log_gb + prices.log_gb_month)


def _run_gb_seconds(concern: Concern) -> float:
    """Return the GB-seconds of a run of one of the region's functions."""
    memory, seconds = _SHARED[concern]
    return seconds * memory / 1024


def _computed_gb_seconds(seconds: float, memory_mib: int) -> float:
    """Return the GB-seconds of this much whole-processor time in a function with a share of a processor."""
    return seconds * max(1.0, _WHOLE_CPU_MIB / memory_mib) * memory_mib / 1024


def _first_looks(fleet: Fleet, *, is_first: bool) -> Iterator[float]:
    """Yield the GB-seconds of what processes do once per cluster, which includes their start for the first cluster."""
    cold = {str(concern): count for concern, count in fleet.cold.items()}
    for concern in CLUSTER_CONCERNS:
        seconds = _START_SECONDS if is_first else _SESSION_SECONDS
        yield cold.get(concern.name, 0) * _computed_gb_seconds(seconds, concern.memory_mib)


def together(*bills: Mapping[str, float]) -> Mapping[str, float]:
    """Return the sum of bills by service."""
    services = dict.fromkeys(service for bill in bills for service in bill)
    return {service: sum(bill.get(service, 0.0) for bill in bills) for service in services}


def _a_month(every_minutes: float) -> float:
    return MONTH_HOURS * 60 / every_minutes


def _lambda(fleet: Fleet, months: float) -> tuple[float, float]:
    """Return runs and GB-seconds a month. A concern outside the simulation counts as idle runs at its ticks."""
    usage = fleet.usage
    all_runs, gb_seconds = 0.0, 0.0
    read_share = usage.claims_read * _LOAD_SECONDS_PER_CLAIM / max(1, usage.runs.total())
    lived = {str(concern): count for concern, count in usage.runs.items()}
    ticks = {str(concern): count for concern, count in fleet.ticks.items()}
    spent = {str(concern): seconds for concern, seconds in usage.cpu_seconds.items()}
    for concern in CLUSTER_CONCERNS:
        runs = (lived.get(concern.name) or ticks.get(concern.name, 0)) / months
        if not runs:
            continue
        computed = spent.get(concern.name, 0.0) / months / runs + read_share
        seconds = _WAIT_SECONDS.get(concern.name, _USUAL_WAIT_SECONDS)
        waited = seconds * concern.memory_mib / 1024
        all_runs += runs
        gb_seconds += runs * (waited + _computed_gb_seconds(computed, concern.memory_mib))
    return all_runs, gb_seconds


def _dynamodb(fleet: Fleet) -> tuple[float, float]:
    """Return read and write units: 4 KB per strongly consistent read, 1 KB per write, double in a transaction."""
    calls, claims = fleet.usage.calls, fleet.store.claims.values()
    size = sum(len(json.dumps(claim_to_item(claim))) + 100 for claim in claims) / max(1, len(claims))
    searches = fleet.ticks[Concern.DISRUPTION]  # not simulated; each loads the ledger
    read = fleet.usage.claims_read + searches * len(claims)
    reads = read * size / 4096 + 2 * (calls["FakeStore.load"] + searches) + calls["FakeStore.learned"]
    units = -(-size // 1024)
    commits = 2 * (calls["FakeStore.commit"] + units * fleet.launched)
    # Two items that clusters share are read with the metadata, and by readiness alone. Idle clusters write none.
    reads += 2 * (calls["FakeStore.load"] + searches + calls["FakeStore.save_shares"])
    saved = sum(count for call, count in calls.items() if call.startswith("FakeStore.save_"))
    others = 2 * (saved - calls["FakeStore.save_shares"])
    others += 2 * calls["FakeStore.forget"]  # what cost allocation needs of a claim, until it is booked
    others += calls["FakeStore.take_lock"] + calls["FakeStore.release_lock"]
    # Reads of the notices are strongly consistent, reads of an index are not. Kept notices are deleted later.
    reads += calls["FakeNotices.pending"] + calls["FakeRoutes.of_instance"] / 2
    others += 2 * calls["FakeNotices.keep"]
    return reads, commits + units * (calls["FakeStore.save"] + calls["FakeStore.forget"]) + others


def _s3(fleet: Fleet, months: float) -> tuple[float, float, float]:
    """Return reads and writes a month, and the GB of replaced snapshots and records stored for their retention."""
    usage = fleet.usage
    catalogs = sum(
        count for concern, count in usage.runs.items() if concern in {"provisioning", "interruption"}
    )
    gets = (usage.calls["Bucket.get"] + catalogs + fleet.ticks[Concern.OBSERVATION]) / months
    # The first run of a new process of these concerns writes what it counts, and reads what was written before.
    measured = fleet.cold[Concern.GARBAGECOLLECTION] + fleet.cold[Concern.DISRUPTION]
    gets += (measured + usage.calls["Bucket.read"] + usage.calls["Bucket.old_version"]) / months
    puts = (usage.snapshot_puts + usage.calls["Bucket.put"] + measured) / months
    puts += (usage.calls["Bucket.replace"] + usage.calls["Bucket.written"]) / months  # a list costs as much
    days = months * MONTH_HOURS / 24
    stored = (usage.snapshot_bytes * VERSION_DAYS + usage.record_bytes * DECISION_DAYS) / days / _GB
    return gets, puts, stored
