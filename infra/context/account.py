"""The `account` of cdk.json: who is notified of the account's costs, and from which amounts. Off by default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.context.faults import list_faults, number_faults, text_faults, unknown_key_faults

BILLING_REGION = "us-east-1"
ACCOUNT_KEYS = (
    "topicArn",
    "emails",
    "estimatedChargesUsd",
    "budgetUsdPerMonth",
    "anomalyUsd",
    "anomalyMonitorArn",
)
_AMOUNTS = ("estimatedChargesUsd", "budgetUsdPerMonth", "anomalyUsd")
MOST_USD = 1_000_000_000
MOST_EMAILS = 10
TOPIC = re.compile(rf"arn:aws:sns:{BILLING_REGION}:\d{{12}}:[\w-]{{1,256}}", re.ASCII)
MONITOR = re.compile(r"arn:aws:ce::\d{12}:anomalymonitor/[\w-]{1,64}", re.ASCII)
EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AccountContext:
    """Who is notified, and from which amounts in US dollars; None for no such notice.

    `anomaly_monitor_arn` is an existing monitor of Cost Anomaly Detection; without it, one is made.
    """

    topic_arn: str = ""
    emails: tuple[str, ...] = ()
    estimated_charges_usd: int | None = None
    budget_usd_per_month: int | None = None
    anomaly_usd: int | None = None
    anomaly_monitor_arn: str = ""


def account_faults(entry: Any) -> Iterator[str]:
    """Yield the faults of the value of `account`."""
    if not isinstance(entry, dict):
        yield f"account: expected an object with some of {', '.join(ACCOUNT_KEYS)}, found {entry!r}"
        return
    yield from unknown_key_faults("account", entry, ACCOUNT_KEYS)
    for key in _AMOUNTS:
        if (amount := entry.get(key)) is not None:
            yield from number_faults(f"account.{key}", amount, 1, MOST_USD)
    for key, pattern, expected in (
        ("topicArn", TOPIC, f"the ARN of an SNS topic in {BILLING_REGION}"),
        ("anomalyMonitorArn", MONITOR, "the ARN of a monitor of Cost Anomaly Detection"),
    ):
        if key in entry:
            yield from text_faults(f"account.{key}", entry[key], pattern, expected)
    yield from list_faults("account.emails", entry.get("emails", []), EMAIL, "addresses of email")
    if isinstance(entry.get("emails"), list) and len(entry["emails"]) > MOST_EMAILS:
        yield f"account.emails: expected at most {MOST_EMAILS} addresses, found {len(entry['emails'])}"
    if not any(key in entry for key in _AMOUNTS):
        yield f"account: expected an amount in {', '.join(_AMOUNTS)}, found none"
    if "estimatedChargesUsd" in entry and not entry.get("topicArn"):
        yield "account.topicArn: expected a topic, which an alarm on estimated charges needs, found none"
    if not entry.get("topicArn") and not entry.get("emails"):
        yield "account: expected topicArn or emails to notify, found neither"


def read_account(entry: Mapping[str, Any]) -> AccountContext:
    """Read a value that has been checked for faults."""
    charges, budget, anomaly = (entry.get(key) for key in _AMOUNTS)
    monitor = entry.get("anomalyMonitorArn", "")
    notified = entry.get("topicArn", ""), tuple(entry.get("emails", ()))
    return AccountContext(*notified, charges, budget, anomaly, monitor)
