"""What cdk.json may list before IAM or CloudFormation refuse the deployment for its size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.cx_api import CloudAssembly

from infra.functions.function import Code
from infra.permissions.sizes import LARGEST_TEMPLATE, refuse_sizes
from tests.infra.deployment import REGION, assembled

KEY = f"arn:aws:kms:{REGION}:111122223333:key/1234abcd-12ab-34cd-56ef-12345678%04d"
Deploy = Callable[[Mapping[str, Any]], CloudAssembly]


@pytest.fixture
def deployed(code: Code, tmp_path: Path) -> Deploy:
    """Synthesise one region with this entry of cdk.json."""
    return lambda entry: assembled(code, [], tmp_path, {REGION: entry})


def vpcs(count: int) -> dict[str, Any]:
    place = {"subnetIds": ["subnet-0a0a0a0a0a0a0a0a0"], "securityGroupIds": ["sg-0b0b0b0b0b0b0b0b0"]}
    return {f"vpc-number-{number:05d}": place for number in range(count)}


@pytest.mark.parametrize(
    "entry",
    [
        {"nodeRoles": [f"team-{number:03d}-eks-node-role-production" for number in range(40)]},
        {"kmsKeyArns": [KEY % number for number in range(12)]},
    ],
    ids=lambda entry: next(iter(entry)),
)
def test_a_role_that_iam_would_refuse_is_named_before_the_deployment(
    deployed: Deploy, entry: Mapping[str, Any]
) -> None:
    with pytest.raises(ValueError, match="the policy of role nodesmith-") as raised:
        refuse_sizes(deployed(entry))
    assert "IAM allows 10,240: list fewer nodeRoles" in str(raised.value)


def test_six_vpcs_fit_into_roles_and_template(deployed: Deploy) -> None:
    assembly = deployed({"vpcs": vpcs(6)})
    refuse_sizes(assembly)
    (stack,) = assembly.stacks
    assert len(Path(stack.template_full_path).read_bytes()) < LARGEST_TEMPLATE
    assert len(json.dumps(stack.template)) > 0.6 * LARGEST_TEMPLATE
