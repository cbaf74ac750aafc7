"""What `cdk deploy` makes, made in the imitated AWS: table, bucket, queues, rules; and registrations of clusters.

Names and timeouts are those of `infra/`, which cannot be imported without the CDK; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.registration import Registration, parameter_name
from nodesmith.settings import INDEXES, PATTERNS, function_name
from nodesmith_cli.local.lineage import RecursiveLoop

ACCOUNT_ID = "123456789012"
TABLE_NAME = "nodesmith"
RECEIVES = 10
NOTICE_SLACK_SECONDS = 10
BATCH_SIZE = 10

Client = Callable[[str], Any]
"""Gives the boto3 client of a service."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One function that a queue wakes."""

    name: str
    timeout_seconds: int
    batch_size: int = BATCH_SIZE
    window_seconds: int = 0
    recursive_loop: RecursiveLoop = "Allow"
    takes_notices: bool = False

    @property
    def visibility_seconds(self) -> int:
        """How long a message is hidden while it is worked on; notices of EC2 have to come again sooner."""
        return self.timeout_seconds + NOTICE_SLACK_SECONDS if self.takes_notices else 6 * self.timeout_seconds


CONCERNS = (
    Concern("provisioning", 60),
    Concern("interruption", 20, batch_size=100, window_seconds=1, takes_notices=True),
    Concern("disruption", 60),
    Concern("lifecycle", 60),
    Concern("termination", 60),
    Concern("readiness", 120),
    Concern("observation", 60),
    Concern("repair", 60),
    Concern("garbagecollection", 120),
)
ROUTING = Concern("routing", 10, takes_notices=True)
WOKEN_BY_QUEUES = (*CONCERNS, ROUTING)
DISPATCH = "dispatch"
"""The function that a schedule invokes once a minute."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The names that functions and forwarders are told. `queue_urls` and `dead_letter_urls` go by concern."""

    region: str
    bucket: str
    queues_url: str
    queue_urls: Mapping[str, str]
    dead_letter_urls: Mapping[str, str]

    def environment(self) -> dict[str, str]:
        """Give what `nodesmith.settings` reads, as the functions' environment variables."""
        return {
            "AWS_REGION": self.region,
            "TABLE_NAME": TABLE_NAME,
            "BUCKET_NAME": self.bucket,
            "QUEUES_URL": self.queues_url,
        }


def deploy(client: Client, region: str) -> Deployment:
    """Make everything for the clusters of a region."""
    bucket = bucket_name(region)
    _make_table(client("dynamodb"))
    _make_bucket(client("s3"), bucket, region)
    live, dead = {}, {}
    for concern in WOKEN_BY_QUEUES:
        live[concern.name], dead[concern.name] = _make_queues(client("sqs"), concern)
    for name, pattern in PATTERNS.items():
        _pass_on(client("events"), name, pattern, queue_arn(region, ROUTING.name))
    queues_url = live[ROUTING.name].rpartition("/")[0]
    return Deployment(region, bucket, queues_url, live, dead)


def register(client: Client, registration: Registration) -> None:
    """Let the functions serve a cluster from now on, or by other settings."""
    name, value = parameter_name(registration.cluster), registration.to_json()
    client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)


def bucket_name(region: str) -> str:
    """Return the name of the bucket, in the account's own namespace."""
    return f"nodesmith-{ACCOUNT_ID}-{region}-an"


def queue_arn(region: str, concern: str) -> str:
    """Write the ARN of a concern's queue."""
    return f"arn:aws:sqs:{region}:{ACCOUNT_ID}:{function_name(concern)}"


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
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=bucket, **where)


def _make_queues(sqs: Any, concern: Concern) -> tuple[str, str]:
    name = function_name(concern.name)
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES}
    attributes = {"VisibilityTimeout": str(concern.visibility_seconds), "RedrivePolicy": json.dumps(redrive)}
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"], dead


def _pass_on(events: Any, name: str, pattern: Mapping[str, Any], queue: str) -> None:
    """Notices are passed on as they are."""
    rule = f"nodesmith-{name}"
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern), State="ENABLED")
    events.put_targets(Rule=rule, Targets=[{"Id": ROUTING.name, "Arn": queue}])
