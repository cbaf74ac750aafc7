"""A stack's resources, created in the simulated AWS with the template's properties. None is ignored silently."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.deployed.stacks import bucket_name, role_name, rule_name
from tests.infra.templates import Template

Client = Callable[[str], Any]
Properties = Mapping[str, Any]

_PARAMETER = "AWS::SSM::Parameter"
READ_ELSEWHERE = frozenset(
    {
        "AWS::EKS::AccessEntry",
        "AWS::EKS::PodIdentityAssociation",
        "AWS::Lambda::Alias",
        "AWS::Lambda::EventInvokeConfig",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::Lambda::LayerVersion",
        "AWS::Lambda::Permission",
        "AWS::Lambda::Version",
        "AWS::Scheduler::Schedule",
    }
)
"""Types that this package's other modules read from the template and simulate."""

CHANGED_ELSEWHERE = frozenset({"AWS::Lambda::Alias", "AWS::Lambda::Function", "AWS::Lambda::LayerVersion"})
"""Types for which other modules follow changes of properties in an update."""
MADE_ELSEWHERE = frozenset({"AWS::Lambda::Alias", "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Version"})
"""Types that other modules create and remove in an update."""

NOT_IMITATED = {
    "AWS::CloudWatch::Alarm": "not used here",
    "AWS::CloudWatch::Dashboard": "not used here",
    "AWS::Logs::LogGroup": "functions write to files, one per process",
    "AWS::S3::BucketPolicy": "asks for TLS, which moto does not speak",
    "AWS::SQS::QueuePolicy": "asks for TLS, which moto does not speak",
    "AWS::Scheduler::ScheduleGroup": "a name",
}
"""Types without effect here, and why."""

_RULE = "AWS::Events::Rule"
_OF_RULES = {"Description", "EventPattern", "Name", "State", "Tags", "Targets"}
_OF_TARGETS = {"Arn", "Id"}
_QUEUE_ATTRIBUTES = (
    "DelaySeconds",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
)


def make(stack: str, template: Template, client: Client, region: str) -> None:
    """Create all resources of a stack. Raises ValueError for an unknown type or property of a queue or rule."""
    makers: dict[str, Callable[[Properties], None]] = {
        "AWS::IAM::Policy": lambda each: _policy(client("iam"), each),
        "AWS::DynamoDB::Table": lambda each: _table(client("dynamodb"), each),
        "AWS::S3::Bucket": lambda each: _bucket(client("s3"), each, region),
        "AWS::SQS::Queue": lambda each: _queue(client("sqs"), each),
        _PARAMETER: lambda each: _parameter(client("ssm"), each),
    }
    known = makers.keys() | READ_ELSEWHERE | NOT_IMITATED.keys() | {"AWS::IAM::Role", _RULE}
    unknown = {each["Type"] for each in template.resources.values()} - known
    if unknown:
        raise ValueError(
            f"resources of unknown types: {', '.join(sorted(unknown))}: simulate them, or say why not"
        )
    for id_, each in template.resources.items():
        if each["Type"] == "AWS::IAM::Role":
            _role(client("iam"), role_name(stack, id_, each["Properties"]), each["Properties"])
    # In the template, dead-letter queues precede their queues.
    for id_, each in template.resources.items():
        if each["Type"] in makers:
            makers[each["Type"]](each["Properties"])
        elif each["Type"] == _RULE:
            _rule(client("events"), rule_name(stack, id_, each["Properties"]), each["Properties"])


def update(before: Template, after: Template, client: Client) -> None:
    """Create and change what a stack's update does. Raises ValueError for a change that is not simulated."""
    for id_ in sorted(before.resources.keys() | after.resources.keys()):
        old, new = before.resources.get(id_, {}), after.resources.get(id_, {})
        if old.get("Properties") == new.get("Properties"):
            continue
        kind = (new or old)["Type"]
        if kind == _PARAMETER:
            if new:
                _parameter(client("ssm"), new["Properties"], is_known=bool(old))
        elif kind not in (CHANGED_ELSEWHERE if old and new else MADE_ELSEWHERE):
            raise ValueError(f"resource {id_}: changes of {kind} are not imitated")


def clean_up(before: Template, after: Template, client: Client) -> None:
    """Delete resources that the stack no longer has, as CloudFormation does at the end of an update."""
    for id_ in sorted(before.resources.keys() - after.resources.keys()):
        if before.resources[id_]["Type"] == _PARAMETER:
            client("ssm").delete_parameter(Name=before.resources[id_]["Properties"]["Name"])


def _role(iam: Any, name: str, properties: Properties) -> None:
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
    for policy in properties.get("Policies", ()):
        document = json.dumps(policy["PolicyDocument"])
        iam.put_role_policy(RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=document)


def _policy(iam: Any, properties: Properties) -> None:
    document = json.dumps(properties["PolicyDocument"])
    for role in properties["Roles"]:
        iam.put_role_policy(RoleName=role, PolicyName=properties["PolicyName"], PolicyDocument=document)


def _table(dynamodb: Any, properties: Properties) -> None:
    name = properties["TableName"]
    keys = ("AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema")
    asked = {key: properties[key] for key in keys}
    dynamodb.create_table(TableName=name, **asked)
    dynamodb.update_time_to_live(
        TableName=name, TimeToLiveSpecification=properties["TimeToLiveSpecification"]
    )


def _bucket(s3: Any, properties: Properties, region: str) -> None:
    name = bucket_name(properties, region)
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=name, **where)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=properties["VersioningConfiguration"])


def _queue(sqs: Any, properties: Properties) -> None:
    unknown = properties.keys() - {"QueueName", "Tags", *_QUEUE_ATTRIBUTES}
    if unknown:
        raise ValueError(f"queue {properties['QueueName']}: unknown properties {', '.join(sorted(unknown))}")
    attributes = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in properties.items()
        if name in _QUEUE_ATTRIBUTES
    }
    sqs.create_queue(QueueName=properties["QueueName"], Attributes=attributes)


def _parameter(ssm: Any, properties: Properties, *, is_known: bool = False) -> None:
    name, value, kind = (properties[key] for key in ("Name", "Value", "Type"))
    ssm.put_parameter(Name=name, Value=value, Type=kind, Overwrite=is_known)


def _rule(events: Any, name: str, properties: Properties) -> None:
    unknown = properties.keys() - _OF_RULES
    for target in properties["Targets"]:
        unknown |= target.keys() - _OF_TARGETS
    if unknown:
        raise ValueError(f"rule {name}: unknown properties {', '.join(sorted(unknown))}")
    pattern = json.dumps(properties["EventPattern"])
    events.put_rule(Name=name, EventPattern=pattern, State=properties["State"])
    events.put_targets(Rule=name, Targets=list(properties["Targets"]))
