"""Grants: one IAM statement each, with the reason for every wildcard, which cdk-nag and reviewers read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aws_cdk import Acknowledgment, Aws, Validations
from aws_cdk import aws_iam as iam
from constructs import Construct

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
Conditions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Grant:
    """The permitted actions, resources and conditions. `wildcard` is the reason for a resource not named in full."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)
    wildcard: str = ""
    effect: iam.Effect = iam.Effect.ALLOW

    def with_conditions(self, conditions: Conditions) -> Grant:
        """Return the same grant under more conditions."""
        operators = dict.fromkeys([*self.conditions, *conditions])
        merged = {
            operator: {**self.conditions.get(operator, {}), **conditions.get(operator, {})}
            for operator in operators
        }
        return replace(self, conditions=merged)

    def statement(self) -> iam.PolicyStatement:
        """Return the IAM statement."""
        return iam.PolicyStatement(
            sid=self.sid,
            effect=self.effect,
            actions=list(self.actions),
            resources=list(self.resources),
            conditions={operator: dict(keys) for operator, keys in self.conditions.items()},
        )

    def findings(self) -> list[str]:
        """Return cdk-nag's findings. Raises ValueError unless wildcards have a reason, and reasons a wildcard."""
        wildcards = [_finding(resource) for resource in self.resources if "*" in resource]
        if bool(wildcards) != bool(self.wildcard):
            raise ValueError(f"grant {self.sid}: wildcards {wildcards}, reason {self.wildcard!r}")
        return wildcards


def make_role(
    scope: Construct, id_: str, name: str | None, trusted: iam.IPrincipal, grants: Iterable[Grant]
) -> iam.Role:
    """Make a role with these grants as its inline policy, and acknowledge each wildcard with its grant's reason."""
    granted = list(grants)
    document = iam.PolicyDocument(statements=[grant.statement() for grant in granted])
    role = iam.Role(scope, id_, role_name=name, assumed_by=trusted, inline_policies={"nodesmith": document})
    reasons: dict[str, list[str]] = defaultdict(list)
    for grant in granted:
        for finding in grant.findings():
            reasons[finding].append(f"{grant.sid}: {grant.wildcard}")
    acknowledgments = [
        Acknowledgment(id=finding_id, reason="; ".join(grant_reasons))
        for finding_id, grant_reasons in reasons.items()
    ]
    Validations.of(role).acknowledge(*acknowledgments)
    return role


def _finding(resource: str) -> str:
    """Return the name that cdk-nag gives a finding: it puts CloudFormation's and IAM's variables in angle brackets."""
    for pseudo, name in ((Aws.PARTITION, "<AWS::Partition>"), (Aws.ACCOUNT_ID, "<AWS::AccountId>")):
        resource = resource.replace(pseudo, name)
    named_resource = _VARIABLE.sub(r"<\1>", resource)
    return f"AwsSolutions-IAM5[Resource::{named_resource}]"
