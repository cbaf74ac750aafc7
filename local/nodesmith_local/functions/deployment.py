"""The resources of `cdk deploy`, created in the imitated AWS, and registrations of clusters.

These are table, bucket, queues and rules. Names and timeouts are those of `infra/`, which cannot be imported without
the CDK; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.registration import Registration, parameter_name
from nodesmith.settings import (
    ALIAS,
    DEAD_LETTER_QUEUE_NAME,
    INDEXES,
    PATTERNS,
    QUEUE_NAME,
    function_name,
)
from nodesmith_local.functions.loopdetection import RecursiveLoop

ACCOUNT_ID = "123456789012"
TABLE_NAME = "nodesmith"
VISIBILITY_SECONDS = 360
RECEIVES = 10
BATCH_SIZE = 10
RETRIES = 2
LONGEST_AGE_SECONDS = 21_600

Client = Callable[[str], Any]
"""Returns the boto3 client of a service."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A function, with its timeout and recursive-loop setting."""

    name: str
    timeout_seconds: int
    recursive_loop: RecursiveLoop = "Allow"


CONCERNS = (
    Concern("provisioning", 60),
    Concern("interruption", 20),
    Concern("disruption", 60),
    Concern("lifecycle", 60),
    Concern("termination", 60),
    Concern("readiness", 120),
    Concern("observation", 60),
    Concern("repair", 60),
    Concern("garbagecollection", 120),
    Concern("shadow", 300),
)
"""The functions that serve clusters."""
ROUTING = Concern("routing", 10)
DISPATCH = Concern("dispatch", 60)
"""A schedule invokes it once a minute, and it takes the messages that have waited in the queue."""
FUNCTIONS = (*CONCERNS, ROUTING, DISPATCH)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The names that functions and forwarders need, and the URL of the dead-letter queue."""

    region: str
    bucket: str
    queue_url: str
    dead_letters_url: str

    def environment(self) -> dict[str, str]:
        """Return the functions' environment variables, which `nodesmith.settings` reads."""
        return {
            "AWS_REGION": self.region,
            "TABLE_NAME": TABLE_NAME,
            "BUCKET_NAME": self.bucket,
            "QUEUE_URL": self.queue_url,
        }


def deploy(client: Client, region: str) -> Deployment:
    """Create everything for the clusters of a region except the functions, which an Invoker adds."""
    bucket = bucket_name(region)
    _make_table(client("dynamodb"))
    _make_bucket(client("s3"), bucket, region)
    waiting, dead = _make_queues(client("sqs"), region)
    for name, pattern in PATTERNS.items():
        _pass_on(client("events"), name, pattern, function_arn(region, ROUTING.name))
    return Deployment(region, bucket, waiting, dead)


def register(client: Client, registration: Registration) -> None:
    """Register a cluster with the functions, or change its settings."""
    name, value = parameter_name(registration.cluster, observed=registration.observed), registration.to_json()
    client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)


def bucket_name(region: str) -> str:
    """Return the name of the bucket, in the account's own namespace."""
    return f"nodesmith-{ACCOUNT_ID}-{region}-an"


def queue_arn(region: str, name: str) -> str:
    """Return the ARN of a queue."""
    return f"arn:aws:sqs:{region}:{ACCOUNT_ID}:{name}"


def function_arn(region: str, concern: str) -> str:
    """Return the ARN with which a concern's function is invoked, that of its alias."""
    return f"arn:aws:lambda:{region}:{ACCOUNT_ID}:function:{function_name(concern)}:{ALIAS}"


def _make_table(dynamodb: Any) -> None:
    dynamodb.create_table(
        TableName=TABLE_NAME,
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", *INDEXES)
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": name,
                "KeySchema": [{"AttributeName": name, "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for name in INDEXES
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def _make_bucket(s3: Any, bucket: str, region: str) -> None:
    location = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=bucket, **location)


def _make_queues(sqs: Any, region: str) -> tuple[str, str]:
    dead = sqs.create_queue(QueueName=DEAD_LETTER_QUEUE_NAME)["QueueUrl"]
    redrive = {"deadLetterTargetArn": queue_arn(region, DEAD_LETTER_QUEUE_NAME), "maxReceiveCount": RECEIVES}
    attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS), "RedrivePolicy": json.dumps(redrive)}
    return sqs.create_queue(QueueName=QUEUE_NAME, Attributes=attributes)["QueueUrl"], dead


def _pass_on(events: Any, name: str, pattern: Mapping[str, Any], function: str) -> None:
    """Create a rule that passes events on unchanged."""
    rule = f"nodesmith-{name}"
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern), State="ENABLED")
    events.put_targets(Rule=rule, Targets=[{"Id": ROUTING.name, "Arn": function}])
