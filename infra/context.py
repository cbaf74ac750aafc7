"""The `clusters` of cdk.json's context: what they may say, with defaults, and what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from difflib import get_close_matches
from typing import Any

from infra.queues import CONCURRENCY
from nodesmith.settings import Settings

CLUSTER_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")  # as EKS has it
REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d")
EC2_ID = {kind: re.compile(rf"{kind}-([0-9a-f]{{8}}|[0-9a-f]{{17}})") for kind in ("subnet", "sg", "vpc")}
ROLE_NAME = re.compile(r"[\w+=,.@/-]{1,512}")
KMS_KEY = r"arn:[a-z-]+:kms:{region}:\d{{12}}:key/[\w-]{{1,256}}"
PARAMETER_NAME = re.compile(r"/?[\w.-]+(/[\w.-]+)*")
CLUSTER_KEYS = (
    "name",
    "region",
    "vpcId",
    "nodeRoles",
    "kmsKeyArns",
    "ssmParameters",
    "vpc",
    "settings",
    "alarmTopicArn",
    "interruptionConcurrency",
)
VPC_KEYS = ("subnetIds", "securityGroupIds")
# Set by the stacks themselves, or meant for a laptop: not for cdk.json.
RESERVED_SETTINGS = {
    "CLUSTER_NAME",
    "AWS_REGION",
    "TABLE_NAME",
    "BUCKET_NAME",
    "CLOCK_SPEED",
    "DEFAULT_NODE_ROLE",
}
SETTINGS = {
    about.metadata["env"]: about.metadata
    for about in fields_of(Settings)
    if about.metadata["env"] not in RESERVED_SETTINGS and not about.metadata["env"].endswith("_QUEUE_URL")
}


@dataclass(frozen=True, slots=True)
class Vpc:
    """Where functions run that must reach a private API server endpoint."""

    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One entry of `clusters`. `settings` are environment variables of `nodesmith.settings`, by name.

    `vpc_id` is the cluster's VPC, `vpc` is where functions run, `kms_key_arns` are the keys of nodes' volumes,
    `ssm_parameters` are the names of the account's own parameters that hold images.
    """

    name: str
    region: str
    vpc_id: str
    node_roles: tuple[str, ...]
    kms_key_arns: tuple[str, ...] = ()
    ssm_parameters: tuple[str, ...] = ()
    vpc: Vpc | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    alarm_topic_arn: str = ""
    interruption_concurrency: int | None = None


def read_clusters(raw: Any) -> tuple[ClusterContext, ...]:
    """Read the context value (a list, or its JSON as `cdk -c clusters=…` gives it).

    Raises ValueError with every fault: where it is, what was found and what would be right.
    """
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError as error:
            raise ValueError(f"clusters: expected a JSON list, found {raw[:80]!r} ({error})") from None
    if not isinstance(raw, list) or not raw:
        raise ValueError(f"clusters: expected a list with at least one cluster, found {raw!r}")
    faults = [fault for at, entry in enumerate(raw) for fault in _faults(f"clusters[{at}]", entry)]
    if not faults:
        clusters = tuple(_cluster(entry) for entry in raw)
        seen = [(cluster.region, cluster.name) for cluster in clusters]
        faults = [f"clusters: {name} in {region} is listed twice" for region, name in _doubles(seen)]
        if not faults:
            return clusters
    raise ValueError("\n".join(faults))


def _cluster(entry: Mapping[str, Any]) -> ClusterContext:
    vpc = entry.get("vpc")
    return ClusterContext(
        name=entry["name"],
        region=entry["region"],
        vpc_id=entry["vpcId"],
        node_roles=tuple(entry.get("nodeRoles", [f"KarpenterNodeRole-{entry['name']}"])),
        kms_key_arns=tuple(entry.get("kmsKeyArns", ())),
        ssm_parameters=tuple(entry.get("ssmParameters", ())),
        vpc=Vpc(tuple(vpc["subnetIds"]), tuple(vpc["securityGroupIds"])) if vpc else None,
        settings=dict(entry.get("settings", {})),
        alarm_topic_arn=entry.get("alarmTopicArn", ""),
        interruption_concurrency=entry.get("interruptionConcurrency"),
    )


def _doubles(seen: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted({each for each in seen if seen.count(each) > 1})


def _faults(where: str, entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{where}: expected an object with name and region, found {entry!r}"
        return
    yield from _unknown(where, entry, CLUSTER_KEYS)
    yield from _text(f"{where}.name", entry.get("name"), CLUSTER_NAME, "the name of an EKS cluster")
    yield from _text(f"{where}.region", entry.get("region"), REGION, "an AWS region such as us-east-1")
    yield from _text(f"{where}.vpcId", entry.get("vpcId"), EC2_ID["vpc"], _vpc_id_of(entry))
    if "alarmTopicArn" in entry:
        topic = rf"arn:[a-z-]+:sns:{re.escape(str(entry.get('region')))}:\d{{12}}:[\w-]{{1,256}}"
        expected = f"the ARN of an SNS topic in {entry.get('region')}"
        yield from _text(f"{where}.alarmTopicArn", entry["alarmTopicArn"], re.compile(topic), expected)
    reserved = entry.get("interruptionConcurrency")
    if reserved is not None and (type(reserved) is not int or not CONCURRENCY <= reserved <= 1000):
        yield f"{where}.interruptionConcurrency: expected a number from {CONCURRENCY} to 1000, found {reserved!r}"
    roles = entry.get("nodeRoles", ["default"])
    yield from _texts(f"{where}.nodeRoles", roles, ROLE_NAME, "names (not ARNs) of IAM roles")
    if "kmsKeyArns" in entry:
        key = re.compile(KMS_KEY.format(region=re.escape(str(entry.get("region")))))
        expected = f"ARNs of KMS keys (not aliases) in {entry.get('region')}"
        yield from _texts(f"{where}.kmsKeyArns", entry["kmsKeyArns"], key, expected)
    if "ssmParameters" in entry:
        expected = "names (not ARNs) of SSM parameters"
        yield from _texts(f"{where}.ssmParameters", entry["ssmParameters"], PARAMETER_NAME, expected)
    if entry.get("vpc") is not None:
        yield from _vpc_faults(f"{where}.vpc", entry["vpc"])
    yield from _settings_faults(f"{where}.settings", entry.get("settings", {}))


def _vpc_id_of(entry: Mapping[str, Any]) -> str:
    """Return what is expected of `vpcId`, with the command that prints it for the cluster of this entry."""
    name, region = entry.get("name"), entry.get("region")
    command = f"aws eks describe-cluster --name {name} --region {region}"
    return f"the id of the cluster's VPC, as `{command} --query cluster.resourcesVpcConfig.vpcId` prints it"


def _vpc_faults(where: str, vpc: Any) -> Iterator[str]:
    if not isinstance(vpc, dict):
        yield f"{where}: expected an object with {' and '.join(VPC_KEYS)}, found {vpc!r}"
        return
    yield from _unknown(where, vpc, VPC_KEYS)
    yield from _texts(f"{where}.subnetIds", vpc.get("subnetIds"), EC2_ID["subnet"], "subnet ids")
    groups = vpc.get("securityGroupIds")
    yield from _texts(f"{where}.securityGroupIds", groups, EC2_ID["sg"], "security group ids")


def _settings_faults(where: str, settings: Any) -> Iterator[str]:
    if not isinstance(settings, dict):
        yield f"{where}: expected an object of environment variables, found {settings!r}"
        return
    yield from _unknown(where, settings, tuple(SETTINGS))
    for name, value in settings.items():
        if name not in SETTINGS:
            continue
        if not isinstance(value, str):
            yield f"{where}.{name}: expected text, found {value!r}"
            continue
        try:
            SETTINGS[name]["read"](value)
        except ValueError as error:
            yield f"{where}.{name}: {error}, found {value!r} ({SETTINGS[name]['meaning']})"


def _unknown(where: str, found: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[str]:
    for key in sorted(set(found) - set(known)):
        close = get_close_matches(key, known, n=1, cutoff=0.5)
        remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        yield f"{where}.{key}: unknown; {remedy}"


def _text(where: str, value: Any, pattern: re.Pattern[str], expected: str) -> Iterator[str]:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        yield f"{where}: expected {expected}, found {value!r}"


def _texts(where: str, values: Any, pattern: re.Pattern[str], expected: str) -> Iterator[str]:
    if not isinstance(values, list) or not values:
        yield f"{where}: expected a list of {expected}, found {values!r}"
        return
    for at, value in enumerate(values):
        yield from _text(f"{where}[{at}]", value, pattern, expected)
