"""EC2NodeClasses whose launches fail: which reasons count against them, when that shows, and when it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.provisioning.nodepools.onsale import considered
from nodesmith.decisions.readiness.launchconditions import launch_fault, remedy, shown
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool, parsed_nodepools
from nodesmith.model.ledger.learned import Ending, RegistrationHealth, basis_of
from nodesmith_cli.views.explaining.commands import pool_lines
from tests import builders

ENA = (
    "InvalidParameterCombination: Enhanced networking with the Elastic Network Adapter (ENA) is required for the "
    "'c7i.large' instance type. Ensure that you are using an AMI that is enabled for ENA."
)


def health(failures: int, reason: str = "LaunchFailed", message: str = ENA) -> RegistrationHealth:
    endings = tuple(Ending(f"c-{number}", False) for number in range(failures))
    return RegistrationHealth("basis", endings=endings, reason=reason, message=message)


def pools(*names: str) -> list[NodePool]:
    return [*parsed_nodepools(tuple(builders.nodepool_manifest(name) for name in names)).values()]


def test_the_third_failure_for_a_reason_in_the_nodeclass_shows() -> None:
    assert launch_fault("default", pools("a"), {"a": health(2)}) is None
    fault = launch_fault("default", pools("a"), {"a": health(3)})
    assert fault is not None
    assert (fault.type, fault.status, fault.reason) == ("LaunchHealthy", "False", "LaunchFailed")
    assert "3 of its latest launches failed" in fault.message
    assert "registered with ENA support" in fault.message


def test_failures_of_all_nodepools_of_the_nodeclass_count() -> None:
    both = {"a": health(1), "b": health(2)}
    assert launch_fault("default", pools("a", "b"), both) is not None
    assert launch_fault("other", pools("a", "b"), both) is None


@pytest.mark.parametrize(
    ("reason", "message", "part"),
    [
        ("InstanceProfileNameInvalid", "InvalidParameterValue: x", "spec.role"),
        ("UserDataSizeLimitExceeded", "InvalidParameterValue: User data is limited", "spec.userData"),
        ("AMINotFound", "InvalidAMIID.NotFound: gone", "spec.amiSelectorTerms"),
        ("Unauthorized", "UnauthorizedOperation: iam:PassRole", "spec.role"),
        ("LaunchFailed", "InvalidBlockDeviceMapping: iops", "the field"),
        ("RegistrationTimeout", "no Node has registered", ""),
        ("FreeTierIneligible", "InvalidParameterCombination: Free Tier", ""),
        ("LaunchFailed", "OptInRequired: subscribe", ""),
    ],
)
def test_only_reasons_in_the_nodeclass_count_and_say_what_to_do(reason: str, message: str, part: str) -> None:
    assert part in remedy(reason, message)
    found = launch_fault("default", pools("a"), {"a": health(4, reason, message)})
    assert (found is not None) is bool(part)


def test_a_fault_that_is_over_is_shown_as_over_and_otherwise_nothing_is() -> None:
    fault = launch_fault("default", pools("a"), {"a": health(3)})
    assert fault is not None
    assert shown(fault, {}) == [fault]
    assert shown(None, {}) == []
    manifest = {"status": {"conditions": [{"type": fault.type, "status": "False"}]}}
    assert [(c.type, c.status) for c in shown(None, manifest)] == [("LaunchHealthy", "True")]


def test_explain_nodepool_says_so() -> None:
    status = builders.nodeclass_status()
    pool: Any = parse_nodepool(builders.nodepool_manifest()).value
    known = replace(health(3), basis=basis_of(pool, status))
    (found,) = considered(builders.inputs(ledger=builders.ledger(health={"default": known})))
    assert found.nodeclass_fault.startswith(
        "EC2NodeClass default: LaunchFailed: 3 of its latest launches failed"
    )
    assert any(line.startswith("  launches  EC2NodeClass default") for line in pool_lines(found))
    (sound,) = considered(builders.inputs())
    assert sound.nodeclass_fault == ""
