"""Grants: one IAM statement each, with the reason for every wildcard beside it, where cdk-nag and people read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Acknowledgment, Aws, Validations
from aws_cdk import aws_iam as iam


@dataclass(frozen=True, slots=True)
class Grant:
    """What may be done to what, under which conditions. `wildcard` says why a resource can not be named in full."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    wildcard: str = ""
    effect: iam.Effect = iam.Effect.ALLOW

    def statement(self) -> iam.PolicyStatement:
        """Write the statement."""
        return iam.PolicyStatement(
            sid=self.sid,
            effect=self.effect,
            actions=list(self.actions),
            resources=list(self.resources),
            conditions={operator: dict(keys) for operator, keys in self.conditions.items()},
        )

    def findings(self) -> list[str]:
        """Name what cdk-nag finds in it. Raises ValueError for a wildcard without a reason, or a reason without one."""
        found = [_finding(resource) for resource in self.resources if "*" in resource]
        if bool(found) != bool(self.wildcard):
            raise ValueError(f"grant {self.sid}: wildcards {found}, reason {self.wildcard!r}")
        return found


def attach(role: iam.Role, grants: Iterable[Grant]) -> None:
    """Give a role these grants, and acknowledge each wildcard with its own reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for grant in grants:
        role.add_to_policy(grant.statement())
        for finding in grant.findings():
            reasons[finding].append(f"{grant.sid}: {grant.wildcard}")
    acknowledgments = [Acknowledgment(id=found, reason="; ".join(why)) for found, why in reasons.items()]
    Validations.of(role).acknowledge(*acknowledgments)


def _finding(resource: str) -> str:
    for pseudo, name in ((Aws.PARTITION, "<AWS::Partition>"), (Aws.ACCOUNT_ID, "<AWS::AccountId>")):
        resource = resource.replace(pseudo, name)
    return f"AwsSolutions-IAM5[Resource::{resource}]"
