"""AWS requests as IAM sees them: actions, resources, and the condition keys that the request determines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, unquote

from moto.core import DEFAULT_ACCOUNT_ID

Context = Mapping[str, "str | list[str]"]
_SCOPE = re.compile(r"Credential=([^/,]+)/\d+/([^/]+)/([^/]+)/aws4_request")


@dataclass(frozen=True, slots=True)
class Call:
    """One action on one resource; `resource` is empty if only the action is known."""

    action: str
    resource: str = ""
    context: Context = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A signed request and the status of its answer."""

    region: str
    service: str
    method: str
    path: str
    target: str
    body: bytes
    status: int
    query: str = ""

    def arn(self, resource: str, account: str = DEFAULT_ACCOUNT_ID) -> str:
        """Return the ARN of a resource of this service and region."""
        return f"arn:aws:{self.service}:{self.region}:{account}:{resource}"

    @property
    def operation(self) -> str:
        """The operation of a JSON or query protocol."""
        return self.target.rpartition(".")[2] or self.parameters.get("Action", "")

    @property
    def document(self) -> Mapping[str, Any]:
        """The body of a JSON protocol."""
        document: Mapping[str, Any] = json.loads(self.body or b"{}")
        return document

    @property
    def parameters(self) -> Mapping[str, str]:
        """The body of a query protocol."""
        return {
            key: values[0] for key, values in parse_qs(self.body.decode(), keep_blank_values=True).items()
        }


def credential_scope(authorization: str) -> tuple[str, str, str] | None:
    """Return access key, region and service of a signature, or None if there is none."""
    found = _SCOPE.search(authorization)
    return (found[1], found[2], found[3]) if found else None


def unknown(request: Request) -> Iterator[Call]:
    """Yield a request that cannot be parsed as an action that no role is granted."""
    yield Call(f"{request.service}:{request.operation or f'{request.method} {request.path}'}")


def _s3(request: Request) -> Iterator[Call]:
    """Yield the calls of a request to S3: permission to list tells a missing object (404) from a forbidden one (403).

    Readers of metrics treat a refusal as a missing object.
    """
    bucket, _, key = unquote(request.path).strip("/").partition("/")
    owner = {"aws:ResourceAccount": DEFAULT_ACCOUNT_ID}
    verbs = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
    asked = parse_qs(request.query, keep_blank_values=True)
    if not key and "versions" in asked:
        prefix = {"s3:prefix": asked.get("prefix", [""])[0]}
        yield Call("s3:ListBucketVersions", f"arn:aws:s3:::{bucket}", {**owner, **prefix})
        return
    if request.method == "GET" and "versionId" in asked:
        yield Call("s3:GetObjectVersion", f"arn:aws:s3:::{bucket}/{key}", owner)
        return
    if not key or request.method not in verbs:
        yield Call("s3:ListBucket" if request.method in {"GET", "HEAD"} else f"s3:{request.method} {bucket}")
        return
    yield Call(f"s3:{verbs[request.method]}", f"arn:aws:s3:::{bucket}/{key}", owner)
    if request.method in {"GET", "HEAD"} and request.status == 404 and "/metrics/" not in key:
        yield Call("s3:ListBucket", f"arn:aws:s3:::{bucket}", owner)


def _sqs(request: Request) -> Iterator[Call]:
    queue = request.document.get("QueueUrl", "").rpartition("/")[2] or request.document.get("QueueName", "")
    yield Call(f"sqs:{request.operation.removesuffix('Batch')}", request.arn(queue))


def _eks(request: Request) -> Iterator[Call]:
    found = re.fullmatch(r"/clusters/([^/]+)", request.path)
    if request.method == "GET" and found:
        yield Call("eks:DescribeCluster", request.arn(f"cluster/{found[1]}"))
    else:
        yield from unknown(request)


def _arc(request: Request) -> Iterator[Call]:
    _, _, named = request.path.partition("/managedresources/")
    if named:
        resource = {"arc-zonal-shift:ResourceIdentifier": unquote(named)}
        yield Call("arc-zonal-shift:GetManagedResource", unquote(named), resource)
    else:
        yield Call("arc-zonal-shift:ListManagedResources", "*")


def _savings_plans(request: Request) -> Iterator[Call]:
    yield Call(f"savingsplans:{request.path.strip('/')}", "*")


def _ssm(request: Request) -> Iterator[Call]:
    asked = request.document
    for name in asked.get("Names") or [asked.get("Name") or asked.get("Path", "")]:
        account = "" if name.startswith("/aws/service/") and "Path" not in asked else DEFAULT_ACCOUNT_ID
        yield Call(f"ssm:{request.operation}", request.arn(f"parameter/{name.lstrip('/')}", account))


def _sts(request: Request) -> Iterator[Call]:
    """Yield the calls of a request to STS: a session with tags needs two permissions."""
    if request.operation != "AssumeRole":
        yield from unknown(request)
        return
    asked, number, tags = request.parameters, 1, {}
    while key := asked.get(f"Tags.member.{number}.Key"):
        tags[key] = asked.get(f"Tags.member.{number}.Value", "")
        number += 1
    context = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    context |= {"sts:RoleSessionName": asked["RoleSessionName"]}
    for action in ("AssumeRole", "TagSession") if tags else ("AssumeRole",):
        yield Call(f"sts:{action}", asked["RoleArn"], {**context, "aws:TagKeys": sorted(tags)})


def _lambda(request: Request) -> Iterator[Call]:
    """Yield the call of an invocation: its resource is the alias, if the path or the query names one."""
    found = re.fullmatch(r"/[\d-]+/functions/(.+)/invocations", unquote(request.path))
    if request.method != "POST" or not found:
        yield from unknown(request)
        return
    name = found[1].rpartition("function:")[2]
    alias = parse_qs(request.query).get("Qualifier", [""])[0]
    resource = f"function:{name}:{alias}" if alias else f"function:{name}"
    yield Call("lambda:InvokeFunction", request.arn(resource))


def _dynamodb(request: Request) -> Iterator[Call]:
    asked = request.document
    match request.operation:
        case "TransactWriteItems":
            for item in asked["TransactItems"]:
                ((kind, part),) = item.items()
                action = {"ConditionCheck": "ConditionCheckItem"}.get(kind, f"{kind}Item")
                yield _on_item(request, action, part["TableName"], part.get("Item") or part["Key"])
        case "BatchGetItem" | "BatchWriteItem":
            for table, part in asked["RequestItems"].items():
                for key in _keys(part):
                    call = _on_item(request, request.operation, table, key)
                    yield replace(call, context={**call.context, **_projected(part, key)})
        case "Query" if "IndexName" in asked:
            index = f"table/{asked['TableName']}/index/{asked['IndexName']}"
            yield Call("dynamodb:Query", request.arn(index))
        case "Query":
            found = re.search(r"\bpk\s*=\s*(:\w+)", asked["KeyConditionExpression"])
            leading = asked["ExpressionAttributeValues"][found[1]] if found else {"S": ""}
            yield _on_item(request, "Query", asked["TableName"], {"pk": leading})
        case operation if "Key" in asked or "Item" in asked:
            yield _on_item(request, operation, asked["TableName"], asked.get("Item") or asked["Key"])
        case operation:
            yield Call(f"dynamodb:{operation}", request.arn(f"table/{asked.get('TableName', '')}"))


def _keys(part: Any) -> list[Mapping[str, Any]]:
    """Return the keys of one table's part of a batch, or the items that contain them."""
    if isinstance(part, dict):
        return list(part["Keys"])
    writes = [next(iter(write.values())) for write in part]
    return [write.get("Item") or write["Key"] for write in writes]


def _projected(part: Any, key: Mapping[str, Any]) -> Context:
    """Return the attributes that a read projects, including the key's; empty if it reads all attributes."""
    if not isinstance(part, dict) or "ProjectionExpression" not in part:
        return {}
    names = part.get("ExpressionAttributeNames", {})
    asked = {each.strip().split(".")[0] for each in part["ProjectionExpression"].split(",")}
    attributes = sorted({names.get(name, name) for name in asked} | key.keys())
    return {"dynamodb:Attributes": attributes, "dynamodb:Select": "SPECIFIC_ATTRIBUTES"}


def _on_item(request: Request, action: str, table: str, key: Mapping[str, Any]) -> Call:
    leading = {"dynamodb:LeadingKeys": [key["pk"]["S"]]}
    return Call(f"dynamodb:{action}", request.arn(f"table/{table}"), leading)


READERS: Mapping[str, Callable[[Request], Iterator[Call]]] = {
    "arc-zonal-shift": _arc,
    "dynamodb": _dynamodb,
    "eks": _eks,
    "lambda": _lambda,
    "s3": _s3,
    "savingsplans": _savings_plans,
    "sqs": _sqs,
    "ssm": _ssm,
    "sts": _sts,
}
"""The readers by service, except those of EC2 and IAM."""
