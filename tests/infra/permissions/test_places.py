"""Ten clusters in three VPCs, some with public endpoints: each is served from where it can be reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodesmith.model.functions import OBSERVED_TICK_MINUTES, TALKING, TICK_MINUTES, Concern
from nodesmith.settings import function_name, function_vpc
from tests.infra.deployment import ACCOUNT, REGION, code_on_empty_layers, synthesise
from tests.infra.iam import allows
from tests.infra.templates import Template

VPCS = ("apps", "data", "edge")
REACHED_FROM = {f"cluster-{number}": ("", "", *VPCS)[number % 5] for number in range(10)}
REGIONS: dict[str, Any] = {
    REGION: {
        "vpcs": {
            name: {
                "subnetIds": [f"subnet-0{number}0{number}0{number}0a"],
                "securityGroupIds": ["sg-0b0b0b0b"],
            }
            for number, name in enumerate(VPCS)
        }
    }
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    """Return the templates of the clusters by name, and that of the region under the empty name."""
    folder: Path = tmp_path_factory.mktemp("places")
    clusters = [
        {"name": name, "region": REGION, "vpcId": "vpc-0a0a0a0a", **({"reachedFrom": vpc} if vpc else {})}
        for name, vpc in REACHED_FROM.items()
    ]
    output = synthesise(code_on_empty_layers(folder / "layers"), clusters, folder / "out", REGIONS)
    names = {name: f"nodesmith-{REGION}-{name}" for name in REACHED_FROM}
    stacks = {"": f"nodesmith-{REGION}", **names}
    return {name: Template.read(output / f"{stack}.template.json") for name, stack in stacks.items()}


def served() -> Iterator[tuple[str, Concern, str]]:
    """Yield each cluster's concerns, and the VPC in which their functions run."""
    for cluster, reached_from in REACHED_FROM.items():
        for concern in TICK_MINUTES:
            yield cluster, concern, function_vpc(concern, reached_from)


def test_every_concern_has_a_function_where_the_cluster_is_reached_from(
    templates: dict[str, Template],
) -> None:
    vpcs = REGIONS[REGION]["vpcs"]
    for cluster, concern, vpc in served():
        function = templates[""].function(concern, vpc)
        subnets = function.get("VpcConfig", {}).get("SubnetIds", [])
        assert subnets == (vpcs[vpc]["subnetIds"] if vpc else []), (cluster, concern)


def test_the_functions_of_one_place_serve_all_clusters_reached_from_there(
    templates: dict[str, Template],
) -> None:
    functions = templates[""].of_type("Lambda::Function")
    assert len(functions) == len({*TICK_MINUTES, *OBSERVED_TICK_MINUTES}) + 3 + len(VPCS) * len(TALKING)
    assert len(templates[""].resources) < 500, "the limit of a CloudFormation stack"


def test_the_api_server_admits_only_the_functions_that_serve_its_cluster(
    templates: dict[str, Template],
) -> None:
    for cluster, reached_from in REACHED_FROM.items():
        known = {each["PrincipalArn"] for each in templates[cluster].of_type("EKS::AccessEntry").values()}
        roles = [f"{function_name(concern, reached_from)}-{REGION}" for concern in TALKING]
        assert known == {f"arn:aws:iam::{ACCOUNT}:role/{role}" for role in roles}


@pytest.mark.parametrize("waker", ["forwarder", "dispatch", "provisioning", "interruption"])
def test_roles_outside_vpcs_wake_functions_in_every_vpc(templates: dict[str, Template], waker: str) -> None:
    region = templates[""]
    name = f"nodesmith-{waker}-{REGION}"
    statements = region.statements(region.role_named(name))
    for _, concern, vpc in served():
        if concern != Concern.LIFECYCLE:
            continue
        function = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function_name(concern, vpc)}:live"
        assert allows(statements, "lambda:InvokeFunction", function)


def test_roles_stay_within_iams_size(templates: dict[str, Template]) -> None:
    region = templates[""]
    for role in region.of_type("IAM::Role"):
        assert len(json.dumps(region.statements(role), separators=(",", ":"))) <= 10_240
