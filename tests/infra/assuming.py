"""Which principal may assume which role, by the caller's own statements and by the role's trust policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.infra.deployment import ACCOUNT
from tests.infra.iam import Context, allows, conditions_hold
from tests.infra.templates import Template


def role_arn(template: Template, role: str) -> str:
    """Return the ARN of a role, by its logical id."""
    return f"arn:aws:iam::{ACCOUNT}:role/{template.of_type('IAM::Role')[role]['RoleName']}"


def may_assume(
    template: Template, caller: str, role: str, name: str, tags: Mapping[str, str], by: Context | None = None
) -> bool:
    """Return whether a role (logical id) may start a session of another, with this name and these tags.

    `by` are the caller's own tags. As in STS, AssumeRole and TagSession are checked, and both sides must allow both: a
    role that trusts an account leaves the rest to that account's own statements.
    """
    asked: dict[str, str | list[str]] = {
        **(by or {}),
        "aws:PrincipalArn": role_arn(template, caller),
        **{f"aws:RequestTag/{key}": value for key, value in tags.items()},
        **({"aws:TagKeys": list(tags)} if tags else {}),
    }
    contexts = {"sts:AssumeRole": {**asked, "sts:RoleSessionName": name}}
    if tags:
        contexts["sts:TagSession"] = asked  # IAM does not document the session name for it
    return all(
        allows(template.statements(caller), action, role_arn(template, role), context)
        and any(_trusts(each, action, context) for each in template.trust(role))
        for action, context in contexts.items()
    )


def may_be_assumed_by(service: str, statements: list[dict[str, Any]], context: Context) -> bool:
    """Return whether a role's trust policy lets a service assume it and tag the session."""
    return all(
        any(
            each["Principal"] == {"Service": service}
            and action in each["Action"]
            and conditions_hold(each, context)
            for each in statements
        )
        for action in ("sts:AssumeRole", "sts:TagSession")
    )


def _trusts(statement: Mapping[str, Any], action: str, context: Context) -> bool:
    return (
        statement["Effect"] == "Allow"
        and statement["Principal"] == {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
        and action in statement["Action"]
        and conditions_hold(statement, context)
    )
