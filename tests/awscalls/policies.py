"""The statements of every role for any cluster: synthesised once, for a cluster whose names are put in afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2 import ec2_backends
from moto.eks import eks_backends
from moto.iam import iam_backends
from moto.ssm import ssm_backends

from tests.awscalls.acting import Role
from tests.awscalls.judging import Statements
from tests.e2e.deployed.stacks import Stacks
from tests.infra.templates import Template

ROOT = Path(__file__).resolve().parents[2]
FORWARDER = "forwarder"
_BUILT = ROOT / "build" / "policies"
_CLUSTER, _REGION, _VPC = "a-cluster-of-tests", "eu-central-2", "vpc-00000000000000000"
_NODE_ROLE = "a-node-role-of-tests"
_PARAMETER = "a-parameter-of-tests"
_ENTRY = {
    "name": _CLUSTER,
    "region": _REGION,
    "vpcId": _VPC,
    "nodeRoles": [_NODE_ROLE],
    "ssmParameters": [_PARAMETER],
}
_LAYERS = ("core", "vendor", "kubernetes", "packing")


@lru_cache(maxsize=64)
def roles_of(
    cluster: str, region: str, vpc_id: str = _VPC, named_arns: tuple[str, ...] = ()
) -> dict[str, Statements]:
    """Return the statements of the forwarder and of each concern's function, of the region's own too.

    `named_arns` are those of the roles and parameters that cdk.json would name.
    """

    def named(text: str) -> str:
        return text.replace(_CLUSTER, cluster).replace(_REGION, region).replace(_VPC, vpc_id)

    account, own = (named(text) for text in templates())
    stacks = Stacks.read(account, own, region, "https://sqs")

    def statements(template: Template, arn: str) -> Statements:
        return [_with(each, named_arns) for each in template.statements(arn.rpartition("/")[2])]

    found = {
        each["FunctionName"].rpartition("-")[2]: statements(template, each["Role"])
        for template in (stacks.account, stacks.cluster)
        for each in template.of_type("Lambda::Function").values()
    }
    forwarder = stacks.cluster.only("EKS::PodIdentityAssociation")["RoleArn"]
    return {**found, FORWARDER: statements(stacks.cluster, forwarder)}


def statements_of(role: Role) -> Statements:
    """Return the statements of a role whose cluster has the VPC, the roles for nodes and the parameters of moto now."""
    return roles_of(
        role.cluster or _CLUSTER, role.region, _vpc_of(role), (*_node_roles(), *_own_parameters(role.region))
    )[role.concern]


def _with(statement: Mapping[str, Any], arns: tuple[str, ...]) -> dict[str, Any]:
    """Put what the account has for what the templates name."""
    resources = list(statement["Resource"])
    for placeholder in (f":role/{_NODE_ROLE}", f":parameter/{_PARAMETER}"):
        kind = placeholder.partition("/")[0] + "/"
        if any(each.endswith(placeholder) for each in resources):
            resources = [each for each in resources if not each.endswith(placeholder)]
            resources += [arn for arn in arns if kind in arn]
    return {**statement, "Resource": resources}


def _node_roles() -> tuple[str, ...]:
    """Return the ARNs of the roles that instances may have: those that trust EC2."""
    roles = list(iam_backends[DEFAULT_ACCOUNT_ID]["aws"].roles.values())
    return tuple(
        sorted(each.arn for each in roles if "ec2.amazonaws.com" in each.assume_role_policy_document)
    )


def _own_parameters(region: str) -> tuple[str, ...]:
    """Return the ARNs of the parameters that are not AWS's own."""
    found = sorted(
        name for name in list(ssm_backends[DEFAULT_ACCOUNT_ID][region]._parameters) if name[:5] != "/aws/"
    )
    return tuple(
        f"arn:aws:ssm:{region}:{DEFAULT_ACCOUNT_ID}:parameter/{name.removeprefix('/')}" for name in found
    )


def _vpc_of(role: Role) -> str:
    """Return the VPC of the subnets that EKS was told of; no VPC for a cluster that EKS does not know."""
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][role.region].clusters.get(role.cluster)
    if cluster is None:
        return _VPC
    (first, *_) = cluster.resources_vpc_config["subnetIds"]
    of_zones = list(ec2_backends[DEFAULT_ACCOUNT_ID][role.region].subnets.values())
    return str(next(subnets[first].vpc_id for subnets in of_zones if first in subnets))


@cache
def templates() -> tuple[str, str]:
    """Return the templates of the region's stack and of the cluster's, from build/ where the sources are the same."""
    folder = _BUILT / _digest()
    _BUILT.mkdir(parents=True, exist_ok=True)
    with (_BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            draft = folder.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            _synthesise(draft)
            draft.rename(folder)
    account, cluster = (f"nodesmith-{_REGION}", f"nodesmith-{_REGION}-{_CLUSTER}")
    return (folder / f"{account}.template.json").read_text(), (
        folder / f"{cluster}.template.json"
    ).read_text()


def _synthesise(output: Path) -> None:
    """Synthesise in a process of its own, on empty layers: no policy depends on what is in them."""
    layers = {name: str(_BUILT / "layers" / name) for name in _LAYERS}
    for layer in layers.values():
        (Path(layer) / "python").mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "layers" / "core" / "python")))
    command = [
        sys.executable,
        "-m",
        "tests.e2e.synthesise",
        json.dumps(_ENTRY),
        json.dumps(layers),
        str(output),
    ]
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=True)


def _digest() -> str:
    sources = [*(ROOT / "infra").glob("*.py"), ROOT / "cdk.json", ROOT / "requirements" / "infra.txt"]
    sources += (ROOT / "layers" / "core" / "python" / "nodesmith").glob("*.py")
    text = b"".join(path.name.encode() + path.read_bytes() for path in sorted(sources))
    return sha256(json.dumps(_ENTRY).encode() + text).hexdigest()[:16]
