"""The controller of health, a part of dispatch: evaluate what functions have recorded, and report what has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.dispatch import KINDS, findings, judge_trial
from nodesmith.model.functions.health import Finding, Record
from nodesmith.ports.region import DeadLetters, HealthEvents, HealthRecords, Trials
from nodesmith.registration import Registration
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME

LOOK_EVERY = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """What a run needs."""

    records: HealthRecords
    dead_letters: DeadLetters
    events: HealthEvents
    trials: Trials


def is_due(at: datetime) -> bool:
    """Return whether a health check is due in the minute of `at`."""
    return int(at.timestamp()) // 60 % (LOOK_EVERY // timedelta(minutes=1)) == 0


def check_health(
    run: HealthCheck,
    registrations: Sequence[Registration],
    unreadable: Mapping[str, str],
    now: datetime,
) -> list[Finding]:
    """Return all findings, and send an event for each finding that is new or gone.

    `unreadable` maps each cluster whose registration cannot be read to the reason. Raises Transient, Rejected.
    """
    known_since, before = run.records.state()
    since = {"": known_since.get("", now)}
    since |= {each.cluster: known_since.get(each.cluster, now) for each in registrations}
    records = [record for name in since for record in run.records.of(name)]
    served = [(each, since[each.cluster]) for each in registrations]
    found = findings(records, served, since[""], now)
    found += [Finding(cluster, "", "Unreadable", said) for cluster, said in sorted(unreadable.items())]
    found += _trial(run, records, now)
    given_up = run.dead_letters.waiting()
    if given_up:
        found.append(Finding("", "", "GivenUp", f"{given_up} messages wait in {DEAD_LETTER_QUEUE_NAME}"))
    after = frozenset(found)
    if after != before:
        run.events.tell(_changes(before, after))
    if after != before or since != known_since:
        run.records.keep(since, after)
    return sorted(found)


def _trial(run: HealthCheck, records: Sequence[Record], now: datetime) -> list[Finding]:
    """End the trial of a release that fails; return a finding if one was ended, until the next deployment."""
    trial = run.trials.current()
    judged = judge_trial(trial, (each for each in records if each.cluster in trial.clusters), now)
    if judged != trial:
        run.trials.keep(judged)
    return [Finding("", "", "TrialEnded", judged.ended)] if judged.ended else []


def _changes(before: frozenset[Finding], after: frozenset[Finding]) -> Iterator[Mapping[str, str]]:
    for state, changed in (("unwell", after - before), ("well", before - after)):
        for each in sorted(changed):
            yield {
                "state": state,
                "cluster": each.cluster,
                "concern": each.concern,
                "kind": each.kind,
                "meaning": KINDS.get(each.kind, ""),
                "said": each.said,
            }
