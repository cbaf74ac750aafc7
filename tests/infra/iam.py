"""A small IAM that evaluates whether statements allow a call. It raises for features that our policies do not use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tests.infra.templates import Template

NOT_CALLED = {
    "ec2:RunInstances": "what CreateFleet does",
    "iam:PassRole": "the role in a launch template, or put into an instance profile",
    "iam:TagInstanceProfile": "tags given to CreateInstanceProfile",
    "s3:ListBucket": "to get 404 for a missing object",
    "s3:ListBucketVersions": "the permission of ListObjectVersions",
    "s3:GetObjectVersion": "the permission of GetObject with a version",
    **dict.fromkeys(
        [
            "kms:CreateGrant",
            "kms:Decrypt",
            "kms:DescribeKey",
            "kms:GenerateDataKeyWithoutPlaintext",
            "kms:ReEncryptFrom",
            "kms:ReEncryptTo",
        ],
        "what EBS does for a volume that is encrypted with a customer managed key",
    ),
    "lambda:InvokeFunction": "the client calls it Invoke",
    "sts:AssumeRole": "botocore asks for the credentials of a session",
    "sts:TagSession": "tags given to AssumeRole",
    **dict.fromkeys(["logs:CreateLogStream", "logs:PutLogEvents"], "Lambda writes the log"),
    **dict.fromkeys(["xray:PutTelemetryRecords", "xray:PutTraceSegments"], "Lambda traces"),
    **dict.fromkeys(
        [
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
            "sqs:ReceiveMessage",
        ],
        "Lambda polls the queue",
    ),
    **dict.fromkeys(
        [
            "ec2:AssignPrivateIpAddresses",
            "ec2:CreateNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:UnassignPrivateIpAddresses",
        ],
        "Lambda attaches to the VPC",
    ),
}
"""Actions that AWS takes on the function's behalf, or that IAM requires for another call, and the reason for each."""

Context = Mapping[str, str | list[str]]
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def allows(
    statements: Iterable[Mapping[str, Any]], action: str, resource: str, context: Context | None = None
) -> bool:
    """Evaluate as IAM does: denied unless a statement allows it and none denies it."""
    effects = {each["Effect"] for each in statements if applies(each, action, resource, context or {})}
    return effects == {"Allow"}


def may(template: Template, concern: str, action: str, resource: str, **context: Any) -> bool:
    """Ask for the role of a concern's function itself, without a session; write `__` for `:` in condition keys."""
    statements = template.statements(template.role_of(concern))
    return allows(
        statements, action, resource, {key.replace("__", ":"): each for key, each in context.items()}
    )


def session(cluster: str, vpc_id: str) -> dict[str, str | list[str]]:
    """Return the tags of the session in which a function works for a cluster, as IAM sees them."""
    return {
        "aws:PrincipalTag/nodesmith-cluster": cluster,
        "aws:PrincipalTag/nodesmith-vpc": vpc_id,
    }


def applies(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    """Return whether a statement matches this call."""
    return (
        action in statement["Action"]
        and any(_is_named(resource, pattern, context) for pattern in statement["Resource"])
        and conditions_hold(statement, context)
    )


def conditions_hold(statement: Mapping[str, Any], context: Context) -> bool:
    """Return whether all conditions of a statement hold."""
    return all(
        _holds(operator, key, expected, context)
        for operator, keys in statement.get("Condition", {}).items()
        for key, expected in keys.items()
    )


def _is_named(resource: str, pattern: str, context: Context) -> bool:
    wanted = _filled(pattern, context, as_pattern=True)
    return wanted is not None and fnmatchcase(resource, wanted)


def _filled(text: str, context: Context, *, as_pattern: bool) -> str | None:
    """Substitute values for variables; return None if one has no value. Patterns escape wildcards in values."""
    values = {name: context.get(name) for name in _VARIABLE.findall(text)}
    if not all(isinstance(value, str) for value in values.values()):
        return None

    def value_of(found: re.Match[str]) -> str:
        value = str(values[found[1]])
        return re.sub(r"([*?\[])", r"[\1]", value) if as_pattern else value

    return _VARIABLE.sub(value_of, text)


def _holds(operator: str, key: str, expected: str | list[str], context: Context) -> bool:
    as_pattern = "Like" in operator or operator.startswith("Arn")
    filled = [_filled(each, context, as_pattern=as_pattern) for each in _list(expected)]
    wanted, found = [each for each in filled if each is not None], _list(context.get(key, []))
    if len(wanted) < len(filled):
        return False  # a variable without a value: the statement does not apply
    match operator:
        case "StringEquals" | "StringEqualsIfExists":
            return found[0] in wanted if found else operator.endswith("IfExists")
        case "ArnEquals" | "ArnLike":
            return bool(found) and any(_is_like(found[0], pattern) for pattern in wanted)
        case "StringNotEquals":
            return not found or found[0] not in wanted
        case "StringLike":
            return bool(found) and any(fnmatchcase(found[0], pattern) for pattern in wanted)
        case "ForAllValues:StringEquals":
            return set(found) <= set(wanted)
        case "ForAllValues:StringLike":
            return all(any(fnmatchcase(each, pattern) for pattern in wanted) for each in found)
        case "Null":
            return (not found) == (expected == "true")
        case "Bool":
            return found == wanted
        case _:
            raise NotImplementedError(operator)


def _is_like(arn: str, pattern: str) -> bool:
    """Return whether an ARN matches a pattern: both operators compare part by part, with wildcards within each part."""
    parts, patterns = arn.split(":", 5), pattern.split(":", 5)
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
