"""For a cluster that is only observed, no role may launch, end or write anything but the cluster's shadows."""

from __future__ import annotations

import pytest

from infra.functions.concerns import CLUSTER_CONCERNS
from nodesmith.model.functions import OBSERVED_TICK_MINUTES
from nodesmith.registration import parameter_name
from tests.infra.deployment import ACCOUNT, REGION
from tests.infra.iam import session
from tests.infra.isolation import ASKING, _is_allowed
from tests.infra.templates import Template
from tests.infra.universe import cluster_calls, shared_calls

OBSERVING = sorted(OBSERVED_TICK_MINUTES)
_READS = ("Describe", "Get", "List", "Query", "BatchGetItem")
_WRITTEN = {
    "shadow": {"the shadows (S3)", "the cluster's health"},
    "observation": {"the snapshot (S3)", "the cluster's health"},
}
"""What each function that works for observed clusters may write there."""


@pytest.mark.parametrize("concern", OBSERVING)
def test_a_session_for_an_observed_cluster_launches_ends_and_writes_nothing(
    region: Template, concern: str
) -> None:
    statements = region.statements(region.role_of(concern))
    role = f"arn:aws:iam::{ACCOUNT}:role/nodesmith-{concern}-{REGION}"
    caller = session(ASKING.name, ASKING.vpc_id)
    calls = [*cluster_calls(ASKING, ASKING), *shared_calls(role)]
    allowed = [call for call in calls if _is_allowed(statements, call, caller)]
    written = {call.about for call in allowed if not call.action.partition(":")[2].startswith(_READS)}
    assert written == _WRITTEN[concern]
    assert not [call.action for call in allowed if call.action.startswith(("ec2:", "iam:", "sts:"))]


def test_only_functions_without_such_rights_can_find_an_observed_cluster(region: Template) -> None:
    parameter = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter{parameter_name('alpha', observed=True)}"
    finding = [
        concern.name
        for concern in CLUSTER_CONCERNS
        if any(parameter.startswith(each.rstrip("*")) for each in _registrations(region, concern.name))
    ]
    assert sorted(finding) == OBSERVING


def _registrations(region: Template, concern: str) -> list[str]:
    statements = region.statements(region.role_of(concern))
    return [
        each
        for statement in statements
        if statement["Sid"] == "Registrations"
        for each in statement["Resource"]
    ]
