"""Grants compared with calls: every call in the code is granted, and every granted action is called."""

from __future__ import annotations

import re
from pathlib import Path

import botocore.session
from botocore import xform_name

from tests.infra.deployment import ROOT
from tests.infra.iam import NOT_CALLED
from tests.infra.templates import Template

SERVICES = [
    "arc-zonal-shift",
    "dynamodb",
    "ec2",
    "eks",
    "events",
    "iam",
    "lambda",
    "pricing",
    "s3",
    "savingsplans",
    "sqs",
    "ssm",
]
CODE = [ROOT / "layers/core/python/nodesmith", ROOT / "forwarder/nodesmith_forwarder"]

# Calls that IAM authorizes under the names of their parts.
PARTS = {
    "dynamodb:TransactWriteItems": {"dynamodb:PutItem", "dynamodb:UpdateItem"},
    "lambda:Invoke": {"lambda:InvokeFunction"},
    "s3:ListObjectVersions": {"s3:ListBucketVersions"},
}


def operations() -> dict[str, set[str]]:
    """Return, by name of a client's method, the actions that it may stand for."""
    found: dict[str, set[str]] = {}
    session = botocore.session.get_session()
    for service in SERVICES:
        for name in session.get_service_model(service).operation_names:
            found.setdefault(xform_name(name), set()).add(f"{service}:{name}")
    return found


def called() -> dict[str, set[str]]:
    """Return the client methods that the code names, as calls or strings, with the actions they may stand for."""
    known = operations()
    text = "\n".join(path.read_text() for folder in CODE for path in sorted(Path(folder).rglob("*.py")))
    names = {first or second for first, second in re.findall(r'\.([a-z_]+)\(|"([a-z]+(?:_[a-z]+)+)"', text)}
    names |= set(re.findall(r'get_paginator\("([a-z_]+)"\)', text))
    return {name: known[name] for name in names & known.keys()}


def granted(templates: dict[str, Template]) -> set[str]:
    """Return every action that some role is allowed."""
    return {
        action
        for template in templates.values()
        for role, each in template.resources.items()
        if each["Type"] == "AWS::IAM::Role"
        for statement in template.statements(role)
        if statement["Effect"] == "Allow"
        for action in statement["Action"]
    }


def test_whatever_the_code_calls_is_granted(templates: dict[str, Template]) -> None:
    have = granted(templates)
    needed = {name: [PARTS.get(action, {action}) for action in actions] for name, actions in called().items()}
    assert len(needed) > 15
    assert {name for name, ways in needed.items() if not any(way <= have for way in ways)} == set()


def test_whatever_is_granted_is_called(templates: dict[str, Template]) -> None:
    calls = {action for actions in called().values() for action in actions}
    assert granted(templates) - calls - NOT_CALLED.keys() == set()
