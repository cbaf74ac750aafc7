"""The JSON schemas of cdk.json and of registrations: `python -m infra.context.schema` writes them.

Editors complete and check cdk.json with its schema, which describes the shape of each value. `read_context`
also checks how values fit together, such as a VPC that a cluster names and its region lacks; its messages are the
authority.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from infra.context.account import EMAIL, MONITOR, MOST_EMAILS, MOST_USD, TOPIC
from infra.context.regions import (
    ID,
    LEAST_CONCURRENCY,
    LIMIT_NAME,
    MOST_CONCURRENCY,
    PARAMETER_NAME,
    REGION,
)
from nodesmith.registration import CLUSTER_NAME, FORMAT, ROLE_NAME, SETTINGS, VPC_ID, VPC_NAME
from nodesmith.settings import MOST_LAUNCHES, Settings

PATH = Path(__file__).parents[1] / "cdk.schema.json"
REGISTRATION_PATH = Path(__file__).parents[2] / "docs/schemas/registration.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LAUNCHES = {"type": "integer", "minimum": 1, "maximum": MOST_LAUNCHES}
_DOLLARS = {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": r"^\d+(\.\d+)?$"}


def _text(pattern: re.Pattern[str], description: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^({pattern.pattern})$", "description": description}


def _texts(pattern: re.Pattern[str], description: str, **keywords: Any) -> dict[str, Any]:
    items = {"type": "string", "pattern": f"^({pattern.pattern})$"}
    return {"type": "array", "items": items, "description": description, **keywords}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "default": False, "description": description}


def _object(properties: dict[str, Any], description: str, *required: str, **keywords: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **keywords,
    }


def _named(pattern: re.Pattern[str], entry: dict[str, Any], description: str) -> dict[str, Any]:
    names = {"pattern": f"^({pattern.pattern})$"}
    return {
        "type": "object",
        "propertyNames": names,
        "additionalProperties": entry,
        "description": description,
    }


def context_schema() -> dict[str, Any]:
    """Return the schema of cdk.json. It does not restrict the CDK's own keys."""
    context = {
        "regions": _named(REGION, _region(), "what the clusters of a region share, by region"),
        "clusters": {"type": "array", "items": _cluster(), "description": "clusters to connect"},
        "account": _account(),
    }
    return {
        "$schema": _DIALECT,
        "title": "cdk.json of nodesmith",
        "type": "object",
        "properties": {"context": {"type": "object", "properties": context}},
    }


def _region() -> dict[str, Any]:
    ids = {
        "subnetIds": _texts(ID["subnet"], "subnets of the functions", minItems=1),
        "securityGroupIds": _texts(ID["sg"], "security groups of the functions", minItems=1),
    }
    vpc = _object(ids, "where functions run that call private API servers", *ids)
    concurrency = {
        "type": "integer",
        "minimum": LEAST_CONCURRENCY,
        "maximum": MOST_CONCURRENCY,
        "description": "reserved Lambda concurrency of interruption, and as much of routing",
    }
    properties = {
        "nodeRoles": _texts(ROLE_NAME, "names of IAM roles that nodes of any cluster may have"),
        "kmsKeyArns": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^arn:[a-z-]+:kms:[a-z0-9-]+:\d{12}:key/[\w-]{1,256}$"},
            "description": "ARNs of the keys that encrypt volumes of nodes",
        },
        "ssmParameters": _texts(PARAMETER_NAME, "names of own SSM parameters that hold images"),
        "alarmTopicArn": {
            "type": "string",
            "pattern": r"^(arn:[a-z-]+:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256})?$",
            "description": "the SNS topic of the region that receives every alarm",
        },
        "interruptionConcurrency": concurrency,
        "isolated": _flag("the price list cannot be reached"),
        "tracing": _flag("X-Ray traces of all functions"),
        "dashboard": _flag("a CloudWatch dashboard and its metrics"),
        "notifications": {**_flag("events for people and programs on the default bus"), "default": True},
        "allocationTables": _flag("tables with which Athena queries cost allocation"),
        "spendingLimits": _named(LIMIT_NAME, _spending_limit(), "SpendingLimits by name"),
        "commitments": _commitments(),
        "vpcs": _named(VPC_NAME, vpc, "VPCs in which functions reach API servers, by name"),
    }
    return _object(properties, "what the clusters of this region share")


def _spending_limit() -> dict[str, Any]:
    clusters = {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "all if absent"}
    selector = {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": {"type": "object", "required": ["key", "operator"]}},
    }
    properties = {
        "clusters": clusters,
        "selector": _object(selector, "labels of the nodes that count; all if absent"),
        "usdPerHour": {**_DOLLARS, "description": "US dollars an hour"},
        "usdPerMonth": {**_DOLLARS, "description": "US dollars a calendar month"},
        "launchesPerHour": {**_LAUNCHES, "description": "launches an hour, without clusters and selector"},
    }
    return _object(properties, "a limit over the nodes of several clusters")


def _commitments() -> dict[str, Any]:
    properties = {
        "payerRoleArn": {"type": "string", "description": "the role to read the payer's commitments with"},
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "description": "the share to use"},
        "listed": {"type": "array", "items": {"type": "object", "required": ["kind", "ends"]}},
    }
    object_schema = _object(properties, "which Savings Plans and Reserved Instances are used first")
    return {
        "anyOf": [{"type": "boolean", "default": False}, object_schema],
        "description": object_schema["description"],
    }


def _cluster() -> dict[str, Any]:
    properties = {
        "name": _text(CLUSTER_NAME, "the EKS cluster"),
        "region": _text(REGION, "its region"),
        "vpcId": _text(VPC_ID, "its VPC, in which nodes are launched"),
        "nodeRoles": _texts(ROLE_NAME, "IAM roles that its nodes may have; the first is the default"),
        "reachedFrom": {
            "type": "string",
            "pattern": f"^({VPC_NAME.pattern})?$",
            "description": "the VPC of vpcs from which functions reach its API server",
        },
        "settings": _object(
            {name: _setting(name) for name in sorted(SETTINGS)}, "settings of the cluster, as text"
        ),
    }
    return _object(properties, "a cluster to connect", "name", "region", "vpcId")


def registration_schema() -> dict[str, Any]:
    """Return the schema of a registration, the value of a cluster's SSM parameter."""
    of_cluster = _cluster()["properties"]
    properties = {
        "format": {"const": FORMAT, "description": "the version of this format"},
        **{name: of_cluster[name] for name in ("vpcId", "nodeRoles", "reachedFrom", "settings")},
    }
    properties["nodeRoles"] = {**properties["nodeRoles"], "minItems": 1}
    schema = _object(properties, "a cluster that nodesmith serves", "format", "vpcId", "nodeRoles")
    address = "https://nodesmith.dev/schemas/registration.schema.json"
    return {"$schema": _DIALECT, "$id": address, "title": "registration of nodesmith", **schema}


def _setting(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "description": SETTINGS[name]["meaning"]}
    default = next(setting.default for setting in fields(Settings) if setting.metadata["env"] == name)
    if isinstance(default, bool):
        return {**schema, "enum": ["true", "false"], "default": str(default).lower()}
    if isinstance(default, StrEnum):
        return {**schema, "enum": [str(choice) for choice in type(default)], "default": str(default)}
    return {**schema, "default": str(default)} if isinstance(default, (int, float)) else schema


def _account() -> dict[str, Any]:
    amount = {"type": "integer", "minimum": 1, "maximum": MOST_USD}
    properties = {
        "topicArn": _text(TOPIC, "the SNS topic to notify"),
        "emails": _texts(EMAIL, "addresses to notify", maxItems=MOST_EMAILS),
        "estimatedChargesUsd": {**amount, "description": "alarm on the charges of the month"},
        "budgetUsdPerMonth": {**amount, "description": "budget of a month"},
        "anomalyUsd": {**amount, "description": "least impact of an anomaly"},
        "anomalyMonitorArn": _text(MONITOR, "an existing monitor of Cost Anomaly Detection"),
    }
    return _object(properties, "notices of AWS about what the account costs")


if __name__ == "__main__":
    PATH.write_text(json.dumps(context_schema(), indent=2) + "\n")
    REGISTRATION_PATH.write_text(json.dumps(registration_schema(), indent=2) + "\n")
