"""The API models of the busiest services, reduced to the operations that nodesmith calls.

botocore reads a service's whole model to make a client, and EC2's describes 700 operations in 20 MB of JSON, which
would take most of a cold start. What remains is unchanged, so clients behave the same.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

OPERATIONS = {
    "arc-zonal-shift": frozenset({"GetManagedResource", "ListManagedResources"}),
    "dynamodb": frozenset(
        {
            "BatchGetItem",
            "BatchWriteItem",
            "DeleteItem",
            "PutItem",
            "Query",
            "TransactWriteItems",
            "UpdateItem",
        }
    ),
    "ec2": frozenset(
        {
            "CreateFleet",
            "CreateLaunchTemplate",
            "CreateTags",
            "DeleteLaunchTemplate",
            "DeleteNetworkInterface",
            "DeleteVolume",
            "DescribeAvailabilityZones",
            "DescribeCapacityReservations",
            "DescribeImages",
            "DescribeInstanceStatus",
            "DescribeInstanceTypeOfferings",
            "DescribeInstanceTypes",
            "DescribeInstances",
            "DescribeLaunchTemplates",
            "DescribeNetworkInterfaces",
            "DescribePlacementGroups",
            "DescribeReservedInstances",
            "DescribeSecurityGroups",
            "DescribeSpotInstanceRequests",
            "DescribeSpotPriceHistory",
            "DescribeSubnets",
            "DescribeVolumes",
            "RunInstances",
            "StartInstances",
            "StopInstances",
            "TerminateInstances",
        }
    ),
    "savingsplans": frozenset({"DescribeSavingsPlanRates", "DescribeSavingsPlans"}),
    # botocore calls HeadBucket when redirected
    "s3": frozenset({"GetObject", "HeadBucket", "ListObjectVersions", "PutObject"}),
    "ssm": frozenset({"GetParameter", "GetParameters", "GetParametersByPath", "PutParameter"}),
    "sts": frozenset({"AssumeRole"}),
    "lambda": frozenset({"Invoke"}),
    "sqs": frozenset({"GetQueueAttributes", "SendMessage"}),
}
"""The operations that functions call, by service."""


def cut_models(data: Path) -> None:
    """Reduce the models in botocore's data folder in place and drop older API versions. Missing ones are ignored."""
    for service, operations in OPERATIONS.items():
        versions = sorted(data.glob(f"{service}/*/"))
        for older in versions[:-1]:
            shutil.rmtree(older)
        for newest in versions[-1:]:
            path = newest / "service-2.json.gz"
            model = json.loads(gzip.decompress(path.read_bytes()))
            reduced = json.dumps(trimmed(model, operations), separators=(",", ":")).encode()
            path.write_bytes(gzip.compress(reduced, 9, mtime=0))


def trimmed(model: Mapping[str, Any], operations: Iterable[str]) -> dict[str, Any]:
    """Return the model with only these operations and the shapes that they reach, without documentation.

    Raises KeyError for an operation that the service does not have.
    """
    selected = {name: _plain(model["operations"][name]) for name in sorted(operations)}
    reached = _reached(selected.values(), model["shapes"])
    shapes = {name: _plain(model["shapes"][name]) for name in sorted(reached)}
    return {**model, "operations": selected, "shapes": shapes}


def _reached(roots: Iterable[Any], shapes: Mapping[str, Any]) -> set[str]:
    reached: set[str] = set()
    waiting = [name for root in roots for name in _references(root)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _references(shapes[name])
    return reached


def _references(part: Any) -> list[str]:
    """Return the names that this part of a model refers to with `shape`."""
    if isinstance(part, Mapping):
        own = [part["shape"]] if isinstance(part.get("shape"), str) else []
        return own + [name for inner in part.values() for name in _references(inner)]
    return [name for inner in part for name in _references(inner)] if isinstance(part, list) else []


def _plain(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {
            key: _plain(inner)
            for key, inner in part.items()
            if not (key == "documentation" and isinstance(inner, str))
        }
    return [_plain(inner) for inner in part] if isinstance(part, list) else part
