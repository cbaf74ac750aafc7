"""The statements of every role, synthesised once with a placeholder for the region; and the tags of sessions."""

from __future__ import annotations

import fcntl
import json
import shutil
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

from nodesmith.registration import CLUSTER_TAG, VPC_TAG
from nodesmith.settings import role_name
from tests.awscalls.acting import Role
from tests.awscalls.judging import Statements
from tests.e2e.deployed.invocations import concern_of
from tests.e2e.deployed.stacks import Stacks
from tests.processes.synthesis import synthesise

ROOT = Path(__file__).resolve().parents[2]
FORWARDER = "forwarder"
_BUILT = ROOT / "build" / "policies"
_REGION = "eu-central-2"
_NODE_ROLE = "a-node-role-of-tests"
_PARAMETER = "a-parameter-of-tests"
_ENTRY = {"nodeRoles": [_NODE_ROLE], "ssmParameters": [_PARAMETER], "commitments": True}
_CONTEXT = {"regions": {_REGION: _ENTRY}, "clusters": []}
_LAYERS = ("core", "vendor", "packing")


@lru_cache(maxsize=64)
def roles_of(region: str, named_arns: tuple[str, ...] = ()) -> dict[str, Statements]:
    """Return the statements of the forwarder and of each concern's function.

    `named_arns` are the ARNs of roles and parameters that cdk.json would name.
    """
    stacks = Stacks.read(region_template().replace(_REGION, region), {}, region, "https://sqs")

    def statements(arn: str) -> Statements:
        role = stacks.region.role_named(arn.rpartition("/")[2])
        return [_with(each, named_arns) for each in stacks.region.statements(role)]

    functions = stacks.region.of_type("Lambda::Function").values()
    found = {concern_of(each["FunctionName"]): statements(each["Role"]) for each in functions}
    return {**found, FORWARDER: statements(role_name(FORWARDER, region))}


def statements_of(role: Role) -> Statements:
    """Return the statements of a role, with the node roles and parameters that moto holds now."""
    named = (*_node_roles(), *_own_parameters(role.region))
    return roles_of(role.region, named)[role.concern]


def tags_of(role: Role) -> dict[str, str]:
    """Return the tags of a role's session for its cluster, as condition keys; empty without a session."""
    if not role.cluster:
        return {}
    if role.concern == FORWARDER:
        return {"aws:PrincipalTag/eks-cluster-name": role.cluster}
    tags = {CLUSTER_TAG: role.cluster, VPC_TAG: _vpc_of(role)}
    return {f"aws:PrincipalTag/{key}": value for key, value in tags.items()}


def _with(statement: Mapping[str, Any], arns: tuple[str, ...]) -> dict[str, Any]:
    """Replace the placeholders in the templates with the account's resources."""
    resources = list(statement["Resource"])
    for placeholder in (f":role/{_NODE_ROLE}", f":parameter/{_PARAMETER}"):
        kind = placeholder.partition("/")[0] + "/"
        if any(each.endswith(placeholder) for each in resources):
            resources = [each for each in resources if not each.endswith(placeholder)]
            resources += [arn for arn in arns if kind in arn]
    return {**statement, "Resource": resources}


def _node_roles() -> tuple[str, ...]:
    """Return the ARNs of the roles that instances may have, which are those that trust EC2."""
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
    """Return the VPC of the cluster's subnets in EKS, or a placeholder for a cluster that EKS does not have."""
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][role.region].clusters.get(role.cluster)
    if cluster is None:
        return "vpc-00000000000000000"
    (first, *_) = cluster.resources_vpc_config["subnetIds"]
    of_zones = list(ec2_backends[DEFAULT_ACCOUNT_ID][role.region].subnets.values())
    return str(next(subnets[first].vpc_id for subnets in of_zones if first in subnets))


@cache
def region_template() -> str:
    """Return the template of the region's stack, from build/ if the sources have not changed."""
    folder = _BUILT / _digest()
    _BUILT.mkdir(parents=True, exist_ok=True)
    with (_BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            draft = folder.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            _synthesise(draft)
            draft.rename(folder)
    return (folder / f"nodesmith-{_REGION}.template.json").read_text()


def _synthesise(output: Path) -> None:
    """Synthesise in a separate process, on empty layers: no policy depends on the content of layers."""
    layers = {name: _BUILT / "layers" / name for name in _LAYERS}
    for layer in layers.values():
        (layer / "python").mkdir(parents=True, exist_ok=True)
    synthesise(_CONTEXT, ROOT / "functions", layers, output)


def _digest() -> str:
    sources = [*(ROOT / "infra").rglob("*.py"), ROOT / "cdk.json", ROOT / "requirements" / "infra.txt"]
    core = ROOT / "layers" / "core" / "python" / "nodesmith"
    sources += [*core.glob("*.py"), core / "model" / "functions.py"]
    text = b"".join(path.name.encode() + path.read_bytes() for path in sorted(sources))
    return sha256(json.dumps(_CONTEXT).encode() + text).hexdigest()[:16]
