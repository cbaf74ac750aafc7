"""Size limits of IAM and CloudFormation, for the synthesised policies of a role and for a template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk.cx_api import CloudAssembly
from aws_cdk.region_info import RegionInfo

LONGEST_POLICIES = 10_240
"""IAM's limit for the inline policies of a role together, in characters without white space."""
LARGEST_TEMPLATE = 1_000_000
_PSEUDO = {"AWS::AccountId": "0" * 12, "AWS::URLSuffix": "amazonaws.com.cn"}


def refuse_sizes(assembly: CloudAssembly) -> None:
    """Raise ValueError that names every role and template that is too large to be deployed."""
    faults: list[str] = []
    for stack in assembly.stacks:
        faults += _faults(stack.template, stack.environment.region)
    if faults:
        raise ValueError("\n".join(faults))


def _faults(template: Mapping[str, Any], region: str) -> Iterator[str]:
    for resource in template.get("Resources", {}).values():
        if resource["Type"] != "AWS::IAM::Role":
            continue
        role = resource["Properties"]
        documents = [policy["PolicyDocument"] for policy in role.get("Policies", ())]
        pseudo_parameters = {
            **_PSEUDO,
            "AWS::Partition": RegionInfo.get(region).partition or "aws",
            "AWS::Region": region,
        }
        texts = (
            json.dumps(_resolved(document, pseudo_parameters), separators=(",", ":"))
            for document in documents
        )
        size = sum(len("".join(text.split())) for text in texts)
        if size > LONGEST_POLICIES:
            yield (
                f"regions.{region}: the policy of role {role['RoleName']} would have {size:,} characters, and IAM "
                f"allows {LONGEST_POLICIES:,}: list fewer nodeRoles (KarpenterNodeRole-<cluster> needs no "
                "entry), kmsKeyArns, ssmParameters or vpcs"
            )
    size = len(json.dumps(template, separators=(",", ":")))
    if size > LARGEST_TEMPLATE:
        yield (
            f"regions.{region}: the template would have {size:,} bytes, and CloudFormation allows "
            f"{LARGEST_TEMPLATE:,}: list fewer vpcs"
        )


def _resolved(value: Any, pseudo_parameters: Mapping[str, str]) -> Any:
    """Return a value with pseudo parameters and Fn::Join replaced by texts of the right length."""
    if isinstance(value, list):
        return [_resolved(item, pseudo_parameters) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": str() as name}:
            return pseudo_parameters.get(name, name)
        case {"Fn::GetAtt": [str() as id_, str() as attribute]}:
            return f"arn:{pseudo_parameters['AWS::Partition']}:{id_}:{attribute}"
        case {"Fn::Join": [separator, parts]}:
            return separator.join(str(_resolved(part, pseudo_parameters)) for part in parts)
    return {key: _resolved(item, pseudo_parameters) for key, item in value.items()}
