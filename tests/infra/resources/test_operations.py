"""What docs/operations.md promises about the deployment."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from infra.cdk import VERSION
from infra.context.clusters import CLUSTER_KEYS
from infra.context.regions import REGION_KEYS
from nodesmith.decisions.dispatch import KINDS
from nodesmith.registration import SETTINGS
from tests.benchmarks.aws.bill import ALARMS
from tests.benchmarks.commands.idle import BILLED_HOURS, BILLED_NODES, idle_bills
from tests.infra.deployment import ROOT
from tests.infra.templates import Template

TEXT, HEALTH = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("operations", "health"))


def test_every_alarm_is_explained(plain: Template) -> None:
    names = {each["AlarmName"] for each in plain.of_type("CloudWatch::Alarm").values()}
    assert set(re.findall(r"^\| `(nodesmith-[a-z-]+)` \|", HEALTH, re.MULTILINE)) == names


def test_every_kind_of_finding_is_explained() -> None:
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", HEALTH, re.MULTILINE)) == KINDS.keys()


def test_the_bill_counts_the_deployed_alarms(plain: Template) -> None:
    assert f"{len(plain.of_type('CloudWatch::Alarm'))} alarms" in TEXT
    assert len(plain.of_type("CloudWatch::Alarm")) == ALARMS


ROWS = re.findall(
    r"^\| *([\w ]*?) *\|[^*\n]* \| (\d+\.\d\d) \| (\d+\.\d\d) \| (\d+\.\d\d) \|$", TEXT, re.MULTILINE
)
"""Rows of the bill: a service, empty for CloudWatch's alarms, and three columns of USD."""


def test_the_totals_of_the_bill_are_correct() -> None:
    columns = list(zip(*ROWS, strict=True))[1:]
    totals = re.findall(r"\*\*(\d+\.\d\d)\*\*", TEXT)
    assert len(ROWS) == 7
    assert [f"{sum(map(float, column)):.2f}" for column in columns] == totals


def test_the_bill_matches_a_simulated_day() -> None:
    for column, counted in enumerate(idle_bills(BILLED_NODES, BILLED_HOURS), start=1):
        said: Counter[str] = Counter()
        for row in ROWS:
            said[row[0] or "CloudWatch"] += float(row[column])  # type: ignore[assignment]
        assert {service: said[service] for service in counted} == pytest.approx(counted, abs=0.011)
        assert sum(said.values()) == pytest.approx(sum(counted.values()), abs=0.02)


def test_every_key_and_every_setting_is_documented() -> None:
    assert [key for key in (*REGION_KEYS, *CLUSTER_KEYS) if f"`{key}`" not in TEXT] == []
    assert [name for name in SETTINGS if f"`{name}`" not in TEXT] == []


def test_the_documented_version_of_the_cdk_command_is_the_one_that_runs() -> None:
    assert f"**{VERSION}**" in TEXT
    assert set(re.findall(r"aws-cdk@([\d.]+)", TEXT)) <= {VERSION}
