"""The two stacks with every name that CloudFormation would give, so that nothing in a template is left to resolve."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from tests.infra.templates import Template, resolve

ACCOUNT, CLUSTER = "account", "cluster"
_PSEUDO = {"AWS::Partition": "aws", "AWS::AccountId": DEFAULT_ACCOUNT_ID, "AWS::URLSuffix": "amazonaws.com"}


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stack of the account and that of the cluster, resolved."""

    account: Template
    cluster: Template

    @classmethod
    def read(cls, account: str, cluster: str, region: str, url: str) -> Stacks:
        """Read both templates' JSON. `url` is where SQS is, for queues are referred to by their URL."""
        here = _Place(region, url)
        return cls(_resolved(account, ACCOUNT, here), _resolved(cluster, CLUSTER, here))


@dataclass(frozen=True, slots=True)
class _Place:
    region: str
    url: str


def role_name(stack: str, id_: str) -> str:
    """Name a role as CloudFormation does: by stack and logical id."""
    return f"{stack}-{id_}"


def bucket_name(properties: Mapping[str, Any], region: str) -> str:
    """Return the name that S3 gives a bucket in the account's own namespace. Raises KeyError for any other bucket."""
    assert properties["BucketNamespace"] == "account-regional"
    return f"{properties['BucketNamePrefix']}-{DEFAULT_ACCOUNT_ID}-{region}-an"


def _resolved(text: str, stack: str, here: _Place) -> Template:
    pseudo = {**_PSEUDO, "AWS::Region": here.region}
    known = dict(pseudo)
    for id_, resource in json.loads(text)["Resources"].items():
        properties = resolve(resource.get("Properties", {}), pseudo)
        known |= _references(stack, id_, resource["Type"], properties, here)
    return Template.parse(text, known)


def _references(
    stack: str, id_: str, kind: str, properties: Mapping[str, Any], place: _Place
) -> dict[str, str]:
    """Give what Ref and GetAtt of a resource come to."""
    here, url = f"{place.region}:{DEFAULT_ACCOUNT_ID}", place.url
    match kind:
        case "AWS::SQS::Queue":
            name = properties["QueueName"]
            return {id_: f"{url}/{DEFAULT_ACCOUNT_ID}/{name}", f"{id_}.Arn": f"arn:aws:sqs:{here}:{name}"}
        case "AWS::IAM::Role":
            name = role_name(stack, id_)
            return {id_: name, f"{id_}.Arn": f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{name}"}
        case "AWS::Lambda::Function":
            name = properties["FunctionName"]
            return {id_: name, f"{id_}.Arn": f"arn:aws:lambda:{here}:function:{name}"}
        case "AWS::Logs::LogGroup":
            name = properties["LogGroupName"]
            return {id_: name, f"{id_}.Arn": f"arn:aws:logs:{here}:log-group:{name}:*"}
        case "AWS::S3::Bucket":
            name = bucket_name(properties, place.region)
            return {id_: name, f"{id_}.Arn": f"arn:aws:s3:::{name}"}
        case _:
            return {}
