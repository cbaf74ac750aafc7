"""The stacks with every name that CloudFormation would assign, so that all references are resolved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from tests.infra.templates import Template, resolve

_PSEUDO = {"AWS::Partition": "aws", "AWS::AccountId": DEFAULT_ACCOUNT_ID, "AWS::URLSuffix": "amazonaws.com"}


@dataclass(frozen=True, slots=True)
class Stacks:
    """The region's stack and its clusters' stacks by cluster name, resolved."""

    region: Template
    clusters: Mapping[str, Template]

    @classmethod
    def read(
        cls,
        region: str,
        clusters: Mapping[str, str],
        where: str,
        url: str,
        numbers: Mapping[str, str] | None = None,
    ) -> Stacks:
        """Read the templates' JSON. `where` is the region; `url` is SQS's endpoint.

        `numbers` are the numbers of functions' versions by logical ID; without it, all are 1.
        """
        here = _Place(where, url, numbers or {})
        found = {name: _resolved(text, name, here) for name, text in clusters.items()}
        return cls(_resolved(region, "region", here), found)


@dataclass(frozen=True, slots=True)
class _Place:
    region: str
    url: str
    numbers: Mapping[str, str]


def role_name(stack: str, id_: str, properties: Mapping[str, Any]) -> str:
    """Return a role's name as CloudFormation does: from the template, else from stack and logical ID."""
    return str(properties.get("RoleName", f"{stack}-{id_}"))


def rule_name(stack: str, id_: str, properties: Mapping[str, Any]) -> str:
    """Return an EventBridge rule's name in the same way."""
    return str(properties.get("Name", f"{stack}-{id_}"))


def bucket_name(properties: Mapping[str, Any], region: str) -> str:
    """Return the name that S3 gives a bucket in the account's own namespace.

    Raises AssertionError for any other bucket.
    """
    assert properties["BucketNamespace"] == "account-regional"
    return f"{properties['BucketNamePrefix']}-{DEFAULT_ACCOUNT_ID}-{region}-an"


def _resolved(text: str, stack: str, here: _Place) -> Template:
    known = {**_PSEUDO, "AWS::Region": here.region}
    for _ in range(2):  # the second pass resolves versions and aliases, which need functions' names
        for id_, resource in json.loads(text)["Resources"].items():
            properties = resolve(resource.get("Properties", {}), known)
            known |= _references(stack, id_, resource["Type"], properties, here)
    return Template.parse(text, known)


def _references(
    stack: str, id_: str, kind: str, properties: Mapping[str, Any], place: _Place
) -> dict[str, str]:
    """Return the values of a resource's Ref and GetAtt."""
    here, url = f"{place.region}:{DEFAULT_ACCOUNT_ID}", place.url
    match kind:
        case "AWS::SQS::Queue":
            name = properties["QueueName"]
            return {id_: f"{url}/{DEFAULT_ACCOUNT_ID}/{name}", f"{id_}.Arn": f"arn:aws:sqs:{here}:{name}"}
        case "AWS::IAM::Role":
            name = role_name(stack, id_, properties)
            return {id_: name, f"{id_}.Arn": f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{name}"}
        case "AWS::Lambda::Function":
            name = properties["FunctionName"]
            return {id_: name, f"{id_}.Arn": f"arn:aws:lambda:{here}:function:{name}"}
        case "AWS::Lambda::Version":
            number = place.numbers.get(id_, "1")
            arn = f"arn:aws:lambda:{here}:function:{properties['FunctionName']}:{number}"
            return {id_: arn, f"{id_}.Version": number}
        case "AWS::Lambda::Alias":
            return {id_: f"arn:aws:lambda:{here}:function:{properties['FunctionName']}:{properties['Name']}"}
        case "AWS::Events::Rule":
            name = rule_name(stack, id_, properties)
            return {id_: name, f"{id_}.Arn": f"arn:aws:events:{here}:rule/{name}"}
        case "AWS::Logs::LogGroup":
            name = properties["LogGroupName"]
            return {id_: name, f"{id_}.Arn": f"arn:aws:logs:{here}:log-group:{name}:*"}
        case "AWS::S3::Bucket":
            name = bucket_name(properties, place.region)
            return {id_: name, f"{id_}.Arn": f"arn:aws:s3:::{name}"}
        case _:
            return {}
