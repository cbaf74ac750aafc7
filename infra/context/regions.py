"""An entry of `regions` in cdk.json: what all clusters of a region share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.context.faults import flag_faults, list_faults, number_faults, text_faults, unknown_key_faults
from nodesmith.model.limits.spendinglimits import LIMIT_FORMAT, read_spending_limit
from nodesmith.registration import ROLE_NAME, VPC_NAME
from nodesmith.settings import setting_faults

REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d", re.ASCII)
REGION_KEYS = (
    "nodeRoles",
    "kmsKeyArns",
    "ssmParameters",
    "alarmTopicArn",
    "interruptionConcurrency",
    "isolated",
    "tracing",
    "dashboard",
    "notifications",
    "allocationTables",
    "spendingLimits",
    "commitments",
    "vpcs",
)
VPC_KEYS = ("subnetIds", "securityGroupIds")
LEAST_CONCURRENCY, MOST_CONCURRENCY = 2, 1000
_LONGEST_COMMITMENTS = 2500
_FLAGS = ("isolated", "tracing", "dashboard", "notifications", "allocationTables")
ID = {kind: re.compile(rf"{kind}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", re.ASCII) for kind in ("subnet", "sg")}
LIMIT_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
PARAMETER_NAME = re.compile(r"/?[\w.-]+(/[\w.-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Vpc:
    """Where the functions run that call private API server endpoints."""

    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegionContext:
    """One entry of `regions`.

    `node_roles` are roles that nodes of all clusters may have, `kms_key_arns` the keys of their volumes, and
    `ssm_parameters` the names of the account's own parameters that hold images. `vpcs` are keyed by their name in
    cdk.json. `spending_limits` are values of SSM parameters, by the limit's name. `isolated` means that functions
    cannot reach the price list. With `allocation_tables`, Athena can query cost allocation. `interruption_concurrency`
    is reserved for notices. `notifications` is False to send none. `commitments` is the setting for the functions,
    empty unless commitments are used; `payer_role_arn` is the role to read the payer's with.
    """

    name: str
    node_roles: tuple[str, ...] = ()
    kms_key_arns: tuple[str, ...] = ()
    ssm_parameters: tuple[str, ...] = ()
    alarm_topic_arn: str = ""
    interruption_concurrency: int | None = None
    isolated: bool = False
    tracing: bool = False
    dashboard: bool = False
    notifications: bool = True
    allocation_tables: bool = False
    commitments: str = ""
    payer_role_arn: str = ""
    vpcs: Mapping[str, Vpc] = field(default_factory=dict)
    spending_limits: Mapping[str, str] = field(default_factory=dict)


def read_region(name: str, entry: Mapping[str, Any]) -> RegionContext:
    """Read an entry that has been checked for faults."""
    vpcs, commitments = entry.get("vpcs", {}), entry.get("commitments", False)
    return RegionContext(
        name=name,
        node_roles=tuple(entry.get("nodeRoles", ())),
        kms_key_arns=tuple(entry.get("kmsKeyArns", ())),
        ssm_parameters=tuple(entry.get("ssmParameters", ())),
        alarm_topic_arn=entry.get("alarmTopicArn", ""),
        interruption_concurrency=entry.get("interruptionConcurrency"),
        isolated=entry.get("isolated", False),
        tracing=entry.get("tracing", False),
        dashboard=entry.get("dashboard", False),
        notifications=entry.get("notifications", True),
        allocation_tables=entry.get("allocationTables", False),
        spending_limits={
            entry_name: json.dumps({"format": LIMIT_FORMAT, **limit}, separators=(",", ":"))
            for entry_name, limit in sorted(entry.get("spendingLimits", {}).items())
        },
        commitments=json.dumps(commitments, sort_keys=True, separators=(",", ":")) if commitments else "",
        payer_role_arn=commitments.get("payerRoleArn", "") if isinstance(commitments, dict) else "",
        vpcs={
            entry_name: Vpc(*(tuple(vpcs[entry_name][key]) for key in VPC_KEYS))
            for entry_name in sorted(vpcs)
        },
    )


def region_faults(name: str, entry: Any) -> Iterator[str]:
    """Yield the faults of an entry and of its name."""
    path = f"regions.{name}"
    yield from text_faults(path, name, REGION, "an AWS region such as us-east-1")
    if not isinstance(entry, dict):
        yield f"{path}: expected an object with some of {', '.join(REGION_KEYS)}, found {entry!r}"
        return
    yield from unknown_key_faults(path, entry, REGION_KEYS)
    yield from _names_and_arns(path, name, entry)
    if (reserved := entry.get("interruptionConcurrency")) is not None:
        yield from number_faults(
            f"{path}.interruptionConcurrency", reserved, LEAST_CONCURRENCY, MOST_CONCURRENCY
        )
    for key in _FLAGS:
        yield from flag_faults(f"{path}.{key}", entry.get(key, False))
    yield from _limits_faults(f"{path}.spendingLimits", entry.get("spendingLimits", {}))
    yield from _commitments_faults(f"{path}.commitments", entry.get("commitments", False))
    yield from _vpcs_faults(f"{path}.vpcs", entry.get("vpcs", {}))


def _names_and_arns(path: str, name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    region = re.escape(name)
    key = re.compile(rf"arn:[a-z-]+:kms:{region}:\d{{12}}:key/[\w-]{{1,256}}", re.ASCII)
    topic = re.compile(rf"arn:[a-z-]+:sns:{region}:\d{{12}}:[\w-]{{1,256}}", re.ASCII)
    lists = {
        "nodeRoles": (ROLE_NAME, "names (not ARNs) of IAM roles"),
        "kmsKeyArns": (key, f"ARNs of KMS keys (not aliases) in {name}"),
        "ssmParameters": (PARAMETER_NAME, "names (not ARNs) of SSM parameters"),
    }
    for setting, (pattern, expected) in lists.items():
        yield from list_faults(f"{path}.{setting}", entry.get(setting, []), pattern, expected)
    if entry.get("alarmTopicArn", "") != "":
        expected = f"the ARN of an SNS topic in {name}"
        yield from text_faults(f"{path}.alarmTopicArn", entry["alarmTopicArn"], topic, expected)


def _limits_faults(path: str, limits: Any) -> Iterator[str]:
    if not isinstance(limits, dict):
        yield f"{path}: expected an object of limits by name, found {limits!r}"
        return
    for name, limit in limits.items():
        yield from text_faults(f"{path}.{name}", name, LIMIT_NAME, "a name of letters, digits, -, _ and .")
        spec = {"format": LIMIT_FORMAT, **limit} if isinstance(limit, dict) else limit
        for fault in read_spending_limit(name, spec)[1]:
            yield f"{path}.{name}.{fault}"


def _commitments_faults(path: str, value: Any) -> Iterator[str]:
    yield from setting_faults(path, value)
    length = len(json.dumps(value, separators=(",", ":")))
    if length > _LONGEST_COMMITMENTS:
        yield (
            f"{path}: expected at most {_LONGEST_COMMITMENTS:,} characters, because a function's environment holds"
            f" 4 KB, found {length:,}; list fewer, or let payerRoleArn read them"
        )


def _vpcs_faults(path: str, vpcs: Any) -> Iterator[str]:
    if not isinstance(vpcs, dict):
        yield f"{path}: expected an object of VPCs by name, found {vpcs!r}"
        return
    for name, vpc in vpcs.items():
        vpc_path = f"{path}.{name}"
        expected = "a name of at most 16 characters (a-z, 0-9, -) that starts with a letter"
        yield from text_faults(vpc_path, name, VPC_NAME, expected)
        if not isinstance(vpc, dict):
            yield f"{vpc_path}: expected an object with {' and '.join(VPC_KEYS)}, found {vpc!r}"
            continue
        yield from unknown_key_faults(vpc_path, vpc, VPC_KEYS)
        for key, kind, ids in zip(VPC_KEYS, ID, ("subnet ids", "security group ids"), strict=True):
            yield from list_faults(f"{vpc_path}.{key}", vpc.get(key), ID[kind], ids, least=1)
