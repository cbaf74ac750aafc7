"""What docs/operations.md promises of the deployment."""

from __future__ import annotations

import re

from infra.cdk import VERSION
from infra.clustercontext import CLUSTER_KEYS
from infra.regioncontext import REGION_KEYS
from nodesmith.registration import SETTINGS
from tests.infra.deployment import ROOT
from tests.infra.templates import Template

TEXT = (ROOT / "docs" / "operations.md").read_text()


def test_every_alarm_is_explained(plain: Template) -> None:
    names = {each["AlarmName"] for each in plain.of_type("CloudWatch::Alarm").values()}
    explained = re.findall(r"^\| `…(-[a-z-]+)` \|", TEXT, re.MULTILINE)
    assert {name for name in names if not name.endswith(tuple(explained))} == set()
    assert {end for end in explained if not any(name.endswith(end) for name in names)} == set()


def test_the_bill_counts_the_alarms_that_there_are(plain: Template) -> None:
    assert f"{len(plain.of_type('CloudWatch::Alarm'))} alarms" in TEXT


def test_the_sum_of_the_bill_is_right() -> None:
    costs = [float(cost) for cost in re.findall(r"^\|[^*\n]* \| (\d+\.\d\d) \|$", TEXT, re.MULTILINE)]
    (total,) = re.findall(r"\*\*(\d+\.\d\d)\*\*", TEXT)
    assert len(costs) == 9
    assert round(sum(costs), 2) == float(total)


def test_every_key_of_a_region_and_of_a_cluster_and_every_setting_is_told() -> None:
    assert [key for key in (*REGION_KEYS, *CLUSTER_KEYS) if f"`{key}`" not in TEXT] == []
    assert [name for name in SETTINGS if f"`{name}`" not in TEXT] == []


def test_the_version_of_the_cdk_command_is_the_one_that_is_run() -> None:
    assert f"**{VERSION}**" in TEXT
    assert set(re.findall(r"aws-cdk@([\d.]+)", TEXT)) <= {VERSION}
