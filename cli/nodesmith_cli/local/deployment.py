"""What `cdk deploy` makes, made in the imitated AWS: table, bucket, queues, rules.

Names, timeouts and cadences are those of `infra/`, which cannot be imported without the CDK; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.settings import INDEXES, PATTERNS, physical_name
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
    tick_minutes: int
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
    Concern("provisioning", 1, 60),
    Concern("interruption", 1, 20, batch_size=100, window_seconds=1, takes_notices=True),
    Concern("disruption", 1, 60),
    Concern("lifecycle", 1, 60),
    Concern("termination", 1, 60),
    Concern("readiness", 5, 120),
    Concern("observation", 1, 60),
    Concern("repair", 1, 60),
    Concern("garbagecollection", 2, 120),
)
ROUTING = Concern("routing", 5, 10, takes_notices=True)
"""All clusters of a region share it."""
WOKEN_BY_QUEUES = (*CONCERNS, ROUTING)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The names that functions and forwarder are told. `queue_urls` and `dead_letter_urls` go by concern."""

    cluster: str
    region: str
    bucket: str
    node_role: str
    queue_urls: Mapping[str, str]
    dead_letter_urls: Mapping[str, str]

    def environment(self) -> dict[str, str]:
        """Give what `nodesmith.settings` reads, as the functions' environment variables."""
        urls = {f"{concern.upper()}_QUEUE_URL": url for concern, url in self.queue_urls.items()}
        return {
            "CLUSTER_NAME": self.cluster,
            "AWS_REGION": self.region,
            "TABLE_NAME": TABLE_NAME,
            "BUCKET_NAME": self.bucket,
            "DEFAULT_NODE_ROLE": self.node_role,
            **urls,
        }


def deploy(client: Client, cluster: str, region: str, node_role: str = "") -> Deployment:
    """Make everything for one cluster, and what it would share with others."""
    bucket = bucket_name(region)
    _make_table(client("dynamodb"))
    _make_bucket(client("s3"), bucket, region)
    live, dead = {}, {}
    for concern in WOKEN_BY_QUEUES:
        live[concern.name], dead[concern.name] = _make_queues(client("sqs"), cluster, concern)
    for name, pattern in PATTERNS.items():
        _pass_on(client("events"), name, pattern, queue_arn(region, cluster, ROUTING.name))
    return Deployment(cluster, region, bucket, node_role, live, dead)


def bucket_name(region: str) -> str:
    """Return the name of the bucket, in the account's own namespace."""
    return f"nodesmith-{ACCOUNT_ID}-{region}-an"


def queue_name(cluster: str, concern: str) -> str:
    """Name a concern's queue."""
    return f"nodesmith-{concern}" if concern == ROUTING.name else physical_name(cluster, concern)


def queue_arn(region: str, cluster: str, concern: str) -> str:
    """Write the ARN of a concern's queue."""
    return f"arn:aws:sqs:{region}:{ACCOUNT_ID}:{queue_name(cluster, concern)}"


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


def _make_queues(sqs: Any, cluster: str, concern: Concern) -> tuple[str, str]:
    name = queue_name(cluster, concern.name)
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
