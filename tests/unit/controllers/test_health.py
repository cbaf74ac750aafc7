"""Findings about a deployment, derived from the records of its functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.aws.messaging import HealthEvents
from nodesmith.adapters.aws.registrations import SsmTrials
from nodesmith.adapters.dynamodb.healthrecords import (
    HealthRecords,
    HealthWriter,
    SqsDeadLetters,
)
from nodesmith.controllers.region.dispatch import HealthCheck, check_health, is_due
from nodesmith.decisions.dispatch import KINDS, PATIENCE, findings
from nodesmith.errors import Transient
from nodesmith.model.functions import (
    AT_ONCE,
    GOES_ON,
    REGION_TICK_MINUTES,
    SYMPTOMS,
    TICK_MINUTES,
    Concern,
    Finding,
    Record,
    Symptom,
)
from nodesmith.registration import NO_TRIAL, Registration, Trial
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from tests.aws.account import REGION, client, strict_aws
from tests.builders import NOW
from tests.clocks import StillClock

EAST = Registration("east", "vpc-01234567", ("nodes",))
CATALOG = REGION_TICK_MINUTES[Concern.CATALOG]
LONG_AGO = NOW - timedelta(days=1)
MINUTE = timedelta(minutes=1)


def well(now: datetime = NOW) -> list[Record]:
    """Return the records of a healthy region with the cluster `east`."""
    own = [Record("east", concern, now) for concern in TICK_MINUTES]
    return [*own, Record("", Concern.ROUTING, now), Record("", Concern.CATALOG, now)]


def with_record(record: Record) -> list[Record]:
    return [*(r for r in well() if (r.cluster, r.concern) != (record.cluster, record.concern)), record]


def judged(records: Iterable[Record], since: datetime = LONG_AGO) -> list[tuple[str, str, str]]:
    found = findings(records, [(EAST, since)], since, NOW)
    return [(each.cluster, each.concern, each.kind) for each in found]


def test_there_are_no_findings_if_every_concern_has_recently_succeeded() -> None:
    assert judged(well()) == []


@pytest.mark.parametrize(("minutes", "is_found"), [(14, False), (16, True)])
def test_a_concern_without_success_for_a_quarter_of_an_hour_is_a_finding(
    minutes: int, is_found: bool
) -> None:
    old = Record("east", "lifecycle", NOW - minutes * MINUTE, due=NOW - minutes * MINUTE)

    assert (judged(with_record(old)) == [("east", "lifecycle", "NoSuccess")]) is is_found


def test_a_concern_has_a_quarter_of_an_hour_from_its_next_regular_run() -> None:
    def is_found(minutes: int, due: datetime | None) -> bool:
        return bool(judged(with_record(Record("east", "lifecycle", NOW - minutes * MINUTE, due=due))))

    assert not is_found(44, due=None)
    assert is_found(46, due=None)
    assert not is_found(44, due=NOW + MINUTE)
    assert is_found(46, due=NOW + MINUTE)


def test_a_concern_has_a_quarter_of_an_hour_from_when_it_is_due() -> None:
    def is_found(minutes: int) -> bool:
        due = Record("east", "lifecycle", NOW - 20 * MINUTE, due=NOW - minutes * MINUTE)
        return bool(judged(with_record(due)))

    assert not is_found(14)
    assert is_found(16)


def test_a_concern_whose_runs_fail_is_a_finding_without_delay() -> None:
    fails_at_each_look = Record("east", "lifecycle", NOW - 16 * MINUTE, due=NOW - 16 * MINUTE)
    for minute in range(15, 0, -1):
        fails_at_each_look = fails_at_each_look.after(False, {}, NOW - minute * MINUTE)
    assert judged(with_record(fails_at_each_look)) == [("east", "lifecycle", "NoSuccess")]

    fails_since_a_look = Record("east", "lifecycle", NOW - 30 * MINUTE)
    for minute in range(16, 0, -1):
        fails_since_a_look = fails_since_a_look.after(False, {}, NOW - minute * MINUTE)
    assert judged(with_record(fails_since_a_look)) == [("east", "lifecycle", "NoSuccess")]


def test_one_success_ends_a_series_of_failures() -> None:
    record = Record("east", "lifecycle", NOW - 30 * MINUTE).after(False, {}, NOW - 20 * MINUTE)

    assert record.due == NOW - 20 * MINUTE
    assert record.after(True, {}, NOW, None).due is None


def test_a_run_with_a_symptom_makes_its_concern_due_again() -> None:
    record = Record("east", "lifecycle").after(True, {"Rejected": "why"}, NOW, None)

    assert record.is_due(NOW)


def test_a_concern_without_a_due_time_is_due_at_once() -> None:
    assert Record("east", "lifecycle").after(True, {}, NOW).due == NOW


def test_a_concern_of_the_region_is_judged_by_its_schedule_alone() -> None:
    old = Record("", Concern.ROUTING, NOW - 16 * MINUTE)

    assert judged(with_record(old)) == [("", "routing", "NoSuccess")]


def test_a_concern_that_runs_every_few_hours_has_an_extra_hour() -> None:
    assert judged(with_record(Record("", Concern.CATALOG, NOW - (CATALOG + 59) * MINUTE))) == []
    assert judged(with_record(Record("", Concern.CATALOG, NOW - (CATALOG + 61) * MINUTE))) == [
        ("", "catalog", "NoSuccess")
    ]


def test_nothing_is_expected_of_a_new_cluster() -> None:
    assert judged([], since=NOW - 10 * MINUTE) == []
    assert ("east", "lifecycle", "NoSuccess") in judged([], since=NOW - 20 * MINUTE)


def test_a_cluster_that_is_no_longer_registered_has_no_findings() -> None:
    gone = Record("west", "lifecycle", LONG_AGO)

    assert judged([*well(), gone]) == []


@pytest.mark.parametrize("name", sorted(SYMPTOMS))
def test_a_lasting_symptom_is_a_finding(name: str) -> None:
    lasting = Record("east", "lifecycle", NOW, {name: Symptom(NOW - SYMPTOMS[name], NOW, "why")})

    assert judged(with_record(lasting)) == [("east", "lifecycle", name)]
    assert name in KINDS


def test_a_symptom_that_later_runs_may_fix_is_not_a_finding_at_first() -> None:
    brief = Record("east", "lifecycle", NOW, {"Rejected": Symptom(NOW - 9 * MINUTE, NOW, "why")})

    assert judged(with_record(brief)) == []


def test_a_symptom_that_has_stopped_is_not_a_finding() -> None:
    over = Symptom(LONG_AGO, NOW - GOES_ON - MINUTE)

    assert judged(with_record(Record("east", "lifecycle", NOW, {"Rejected": over}))) == []


def test_a_recurring_symptom_counts_from_when_it_was_first_seen() -> None:
    record = Record("east", "lifecycle")
    for minute in range(0, 20, 5):
        record = record.after(True, {"Rejected": f"at {minute}"}, NOW + minute * MINUTE)

    assert record.symptoms["Rejected"] == Symptom(NOW, NOW + 15 * MINUTE, "at 15")
    assert record.after(True, {}, NOW + timedelta(hours=1)).symptoms == {}


def test_a_failed_run_does_not_change_the_last_success() -> None:
    record = Record("east", "lifecycle", NOW).after(False, {}, NOW + MINUTE)

    assert record.succeeded_at == NOW


def test_a_record_is_read_back_equal() -> None:
    record = Record("east", "lifecycle", NOW, {"Rejected": Symptom(LONG_AGO, NOW, "why")}, NOW + MINUTE)

    assert Record.from_document("east", "lifecycle", record.to_document()) == record


# Checking, and reporting changes


class PublishedEvents:
    def __init__(self) -> None:
        self.changes: list[tuple[str, str, str, str]] = []

    def publish(self, changes: Iterable[Mapping[str, str]]) -> None:
        self.changes += [(c["state"], c["cluster"], c["concern"], c["kind"]) for c in changes]


class Waiting:
    """A dead-letter queue with this many messages."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def waiting(self) -> int:
        return self.count


class OnTrial:
    """A trial release, or none."""

    def __init__(self, trial: Trial = NO_TRIAL) -> None:
        self.trial = trial

    def current(self) -> Trial:
        return self.trial

    def keep(self, trial: Trial) -> None:
        self.trial = trial


class Kept:
    """Records in memory."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        self.since: Mapping[str, datetime] = {"": LONG_AGO, "east": LONG_AGO}
        self.found: frozenset[Finding] = frozenset()
        self.writes = 0

    def of(self, cluster: str) -> list[Record]:
        return [record for record in self.records if record.cluster == cluster]

    def state(self) -> tuple[Mapping[str, datetime], frozenset[Finding]]:
        return self.since, self.found

    def keep(self, since: Mapping[str, datetime], found: Iterable[Finding]) -> None:
        self.since, self.found, self.writes = since, frozenset(found), self.writes + 1


def test_checking_a_healthy_region_writes_nothing() -> None:
    kept, reported = Kept(well()), PublishedEvents()

    assert check_health(HealthCheck(kept, Waiting(), reported, OnTrial()), [EAST], {}, NOW) == []
    assert (kept.writes, reported.changes) == (0, [])


def test_new_and_resolved_findings_are_reported_once() -> None:
    kept, reported = Kept(with_record(Record("east", "lifecycle", LONG_AGO))), PublishedEvents()
    check = HealthCheck(kept, Waiting(), reported, OnTrial())
    for _ in range(2):
        assert len(check_health(check, [EAST], {}, NOW)) == 1
    kept.records = well()
    for _ in range(2):
        assert check_health(check, [EAST], {}, NOW) == []

    said = ("east", "lifecycle", "NoSuccess")
    assert reported.changes == [("unhealthy", *said), ("healthy", *said)]


def test_findings_about_limits_hold_while_limits_cannot_be_read() -> None:
    kept, reported = Kept(well()), PublishedEvents()
    check = HealthCheck(kept, Waiting(), reported, OnTrial())
    full = Finding("", "", "LimitReached", "SpendingLimit team: 100 USD a month")
    assert check_health(check, [EAST], {}, NOW, [full]) == [full]
    assert check_health(check, [EAST], {}, NOW, None) == [full]
    assert check_health(check, [EAST], {}, NOW, []) == []
    assert [state for state, *_ in reported.changes] == ["unhealthy", "healthy"]


def test_dead_letters_and_unreadable_registrations_are_findings() -> None:
    check = HealthCheck(Kept(well()), Waiting(2), PublishedEvents(), OnTrial())

    found = check_health(check, [EAST], {"west": "no JSON"}, NOW)

    assert [(each.cluster, each.concern, each.kind) for each in found] == [
        ("", "", "GivenUp"),
        ("west", "", "Unreadable"),
    ]
    assert found[0].message == "2 messages wait in nodesmith-dead"


def test_a_cluster_is_known_from_the_first_check_after_registration_until_it_is_deregistered() -> None:
    kept = Kept(well())
    kept.since = {"": LONG_AGO}
    check = HealthCheck(kept, Waiting(), PublishedEvents(), OnTrial())

    check_health(check, [EAST], {}, NOW)
    assert kept.since == {"": LONG_AGO, "east": NOW}
    check_health(check, [], {}, NOW + MINUTE)
    assert kept.since == {"": LONG_AGO}


def test_health_is_checked_every_five_minutes() -> None:
    minutes = [minute for minute in range(60) if is_due(NOW.replace(minute=minute))]

    assert minutes == list(range(0, 60, 5))


# In DynamoDB


@pytest.fixture
def aws() -> Iterator[None]:
    with strict_aws():
        deploy(client, REGION)
        yield


def written() -> list[Record]:
    return HealthRecords(client("dynamodb"), TABLE_NAME).of("east")


class Process:
    """A process that serves a cluster for a concern, and counts its DynamoDB calls."""

    def __init__(self, clock: StillClock) -> None:
        self.clock, dynamodb = clock, client("dynamodb")
        self.calls: Counter[str] = Counter()
        dynamodb.meta.events.register("before-call", self._count)
        self.writer = HealthWriter(dynamodb, TABLE_NAME, "east", "lifecycle", clock)

    def ran(self, due: datetime | None = None, *, succeeded: bool = True, **seen: str) -> Counter[str]:
        """Run once and return the calls that it made."""
        self.calls.clear()
        self.writer.ran(succeeded, seen, due)
        return Counter(self.calls)

    def _count(self, model: Any, **_: object) -> None:
        self.calls[model.name] += 1


READ_AND_WRITE, WRITE, NOTHING = Counter(Query=1, PutItem=1), Counter(PutItem=1), Counter[str]()


@pytest.fixture
def clock(aws: None) -> StillClock:
    del aws
    return StillClock(NOW)


@pytest.fixture
def process(clock: StillClock) -> Process:
    return Process(clock)


def test_a_process_records_its_successes_every_five_minutes_and_a_symptom_at_once(
    clock: StillClock, process: Process
) -> None:
    assert process.ran() == READ_AND_WRITE
    clock.time += MINUTE
    assert process.ran() == NOTHING
    assert written() == [Record("east", "lifecycle", NOW)]

    assert process.ran(Rejected="why") == WRITE
    (record,) = written()
    assert record.symptoms == {"Rejected": Symptom(NOW + MINUTE, NOW + MINUTE, "why")}
    assert (record.succeeded_at, record.due) == (NOW + MINUTE, NOW + MINUTE)


def test_an_earlier_due_time_is_recorded_at_once(clock: StillClock, process: Process) -> None:
    process.ran()
    for due in (NOW + 30 * MINUTE, NOW + 20 * MINUTE, clock.time):
        clock.time += timedelta(seconds=1)
        assert process.ran(due) == WRITE
        assert written()[0].due == max(due, clock.time)


def test_a_later_due_time_is_recorded_when_the_earlier_one_has_passed(
    clock: StillClock, process: Process
) -> None:
    process.ran(NOW + 2 * MINUTE)
    clock.time += MINUTE
    assert process.ran(NOW + 30 * MINUTE) == NOTHING
    clock.time += MINUTE
    assert process.ran(NOW + 30 * MINUTE) == WRITE
    assert written()[0].due == NOW + 30 * MINUTE


def test_a_concern_that_is_always_due_is_recorded_no_more_often_than_others(
    clock: StillClock, process: Process
) -> None:
    process.ran(AT_ONCE)
    writes = 0
    for _ in range(20):
        clock.time += MINUTE
        writes += process.ran(clock.time + timedelta(seconds=30))["PutItem"]
    assert writes == 4
    assert written()[0].is_due(clock.time + MINUTE)


def test_no_longer_being_due_is_recorded_at_least_twenty_seconds_after_the_last_write(
    clock: StillClock, process: Process
) -> None:
    process.ran(AT_ONCE)
    clock.time += timedelta(seconds=19)
    assert process.ran(None) == NOTHING
    clock.time += timedelta(seconds=1)
    assert process.ran(None) == WRITE
    assert written()[0].due is None


def test_a_failed_run_and_the_next_success_are_recorded_at_once(clock: StillClock, process: Process) -> None:
    process.ran()
    clock.time += timedelta(seconds=1)
    assert process.ran(succeeded=False) == WRITE
    assert written() == [Record("east", "lifecycle", NOW, due=clock.time)]
    clock.time += MINUTE
    assert process.ran() == WRITE
    assert written() == [Record("east", "lifecycle", clock.time)]


def test_repeated_failures_keep_the_time_of_the_first_one(clock: StillClock, process: Process) -> None:
    process.ran()
    began = clock.time + MINUTE
    for _ in range(5):
        clock.time += MINUTE
        process.ran(succeeded=False)
    assert written() == [Record("east", "lifecycle", NOW, due=began)]


def test_a_failure_is_recorded_even_if_another_process_has_succeeded_since(
    clock: StillClock, process: Process
) -> None:
    other = Process(clock)
    process.ran(succeeded=False)
    clock.time += MINUTE
    other.ran()
    clock.time += MINUTE
    process.ran(succeeded=False)
    assert written() == [Record("east", "lifecycle", NOW + MINUTE, due=clock.time)]


def test_two_processes_of_a_concern_share_a_record(clock: StillClock, process: Process) -> None:
    other = Process(clock)
    process.ran(Rejected="why")
    clock.time += 5 * MINUTE
    other.ran(succeeded=False, Rejected="still")
    clock.time += 5 * MINUTE
    assert process.ran(SnapshotsWritten="1") == Counter(PutItem=2, Query=1)

    (record,) = written()
    assert record.symptoms == {
        "Rejected": Symptom(NOW, NOW + 5 * MINUTE, "still"),
        "SnapshotsWritten": Symptom(clock.time, clock.time, "1"),
    }


@pytest.mark.parametrize("document", ['{"succeeded": "soon"}', "[]", "{"])
def test_an_unreadable_record_is_rewritten(clock: StillClock, process: Process, document: str) -> None:
    item = {"pk": {"S": "HEALTH#east"}, "sk": {"S": "lifecycle"}, "doc": {"S": document}}
    client("dynamodb").put_item(TableName=TABLE_NAME, Item=item)
    assert written() == [Record("east", "lifecycle")]

    process.ran()
    assert written() == [Record("east", "lifecycle", NOW)]
    clock.time += 5 * MINUTE
    assert process.ran() == WRITE


@pytest.mark.usefixtures("aws")
def test_findings_are_stored_for_the_next_check() -> None:
    records = HealthRecords(client("dynamodb"), TABLE_NAME)
    assert records.state() == ({}, frozenset())
    found = frozenset({Finding("east", "lifecycle", "NoSuccess", "there was none yet")})

    records.keep({"": NOW, "east": NOW}, found)

    assert records.state() == ({"": NOW, "east": NOW}, found)
    assert records.of("") == []


@pytest.mark.usefixtures("aws")
def test_dead_letters_are_counted_in_the_dead_letter_queue() -> None:
    sqs = client("sqs")
    waiting, dead = (
        sqs.create_queue(QueueName=f"nodesmith-{name}")["QueueUrl"] for name in ("waiting", "dead")
    )
    for url in (waiting, dead, dead):
        sqs.send_message(QueueUrl=url, MessageBody="given up")

    assert SqsDeadLetters(client, waiting).waiting() == 2


FAILING = Record("east", "lifecycle", NOW - PATIENCE - MINUTE, due=NOW - PATIENCE)


@pytest.mark.parametrize(
    ("record", "ended"),
    [
        (FAILING, True),
        (replace(FAILING, succeeded_at=None), True),
        (replace(FAILING, due=NOW - PATIENCE + MINUTE), False),  # not for so long
        (replace(FAILING, succeeded_at=NOW - MINUTE), False),  # it has succeeded since
        (replace(FAILING, due=None), False),
        (replace(FAILING, cluster="west"), False),  # not on trial
    ],
)
def test_a_trial_ends_if_its_release_fails_for_a_cluster_and_is_reported_until_the_next(
    record: Record, ended: bool
) -> None:
    on_trial = OnTrial(Trial(frozenset({"east"}), "2-b"))
    others = [each for each in well() if each.concern != "lifecycle"]
    check = HealthCheck(Kept([*others, record]), Waiting(), PublishedEvents(), on_trial)

    for _ in range(2):
        found = [each.message for each in check_health(check, [EAST], {}, NOW) if each.kind == "TrialEnded"]
        said = "release 2-b failed for 10 minutes: lifecycle of east"
        assert found == ([said] if ended else [])
        assert on_trial.trial.clusters == (frozenset() if ended else {"east"})


@pytest.mark.usefixtures("aws")
def test_a_trial_is_stored_in_the_parameter_that_functions_read() -> None:
    trials = SsmTrials(lambda: client("ssm"))
    assert trials.current() == NO_TRIAL

    trial = Trial(frozenset({"east"}), "2-b", "")
    trials.keep(trial)

    assert trials.current() == trial


class Bus:
    def __init__(self, failed: int = 0) -> None:
        self.failed = failed
        self.entries: list[Mapping[str, str]] = []

    def put_events(self, **asked: list[Mapping[str, str]]) -> Mapping[str, int]:
        assert len(asked["Entries"]) <= 10
        self.entries += asked["Entries"]
        return {"FailedEntryCount": self.failed}


def test_any_number_of_changes_is_sent_to_the_bus_with_the_region() -> None:
    bus = Bus()

    HealthEvents(bus, "eu-west-1").publish({"state": "unhealthy", "kind": str(n)} for n in range(23))

    assert len(bus.entries) == 23
    assert {(each["Source"], each["DetailType"]) for each in bus.entries} == {
        ("nodesmith", "nodesmith Health Change")
    }
    assert bus.entries[0]["Detail"] == '{"region": "eu-west-1", "state": "unhealthy", "kind": "0"}'


def test_an_event_that_is_not_accepted_is_sent_again_by_the_next_check() -> None:
    with pytest.raises(Transient, match="1 events were not accepted"):
        HealthEvents(Bus(failed=1), "eu-west-1").publish([{"state": "unhealthy"}])


@pytest.mark.usefixtures("aws")
def test_the_findings_of_an_outage_in_many_clusters_are_kept() -> None:
    """An item of DynamoDB holds 400 KB."""
    said = "ec2:DescribeInstances: RequestLimitExceeded: Request limit exceeded. " * 7
    clusters = [f"cluster-{number:03}" for number in range(100)]
    found = [Finding(cluster, concern, "Failed", said) for cluster in clusters for concern in Concern]
    records = HealthRecords(client("dynamodb"), TABLE_NAME)
    records.keep(dict.fromkeys(clusters, NOW), found)
    since, kept = records.state()
    assert set(since) == set(clusters)
    assert kept == frozenset(found)
    records.keep({"east": NOW}, found[:1])
    assert [each.message for each in records.state()[1]] == [said]
