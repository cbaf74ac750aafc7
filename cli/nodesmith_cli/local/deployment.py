"""What `cdk deploy` makes, made in the imitated AWS: table, bucket, queues, rule.

Names, timeouts and cadences are those of `infra/`, which cannot be imported without the CDK; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.settings import PATTERNS

ACCOUNT_ID = "123456789012"
TABLE_NAME = "nodesmith"
RECEIVES = 5
BATCH_SIZE = 10
NEWS = ("running", "shutting-down", "stopped", "stopping", "terminated")
GONE = ("terminated",)

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

    @property
    def visibility_seconds(self) -> int:
        """How long a message is hidden while it is worked on."""
        return 6 * self.timeout_seconds


CONCERNS = (
    Concern("provisioning", 1, 60),
    Concern("interruption", 1, 60, batch_size=100, window_seconds=1),
    Concern("disruption", 1, 60),
    Concern("lifecycle", 1, 60),
    Concern("termination", 1, 60),
    Concern("readiness", 5, 120),
    Concern("observation", 1, 60),
    Concern("repair", 1, 60),
    Concern("garbagecollection", 2, 120),
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The names that functions and forwarder are told. `queue_urls` and `dead_letter_urls` go by concern."""

    cluster: str
    region: str
    bucket: str
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
            **urls,
        }


def deploy(client: Client, cluster: str, region: str) -> Deployment:
    """Make everything for one cluster."""
    bucket = f"nodesmith-{ACCOUNT_ID}-{region}"
    _make_table(client("dynamodb"))
    _make_bucket(client("s3"), bucket, region)
    live, dead = {}, {}
    for concern in CONCERNS:
        live[concern.name], dead[concern.name] = _make_queues(client("sqs"), cluster, concern)
    _make_rule(client("events"), cluster, region, "lifecycle", NEWS)
    _make_rule(client("events"), cluster, region, "termination", GONE)
    for name, pattern in PATTERNS.items():
        _pass_on(client("events"), cluster, region, name, pattern)
    return Deployment(cluster, region, bucket, live, dead)


def queue_name(cluster: str, concern: str) -> str:
    """Name a concern's queue."""
    return f"nodesmith-{cluster}-{concern}"


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
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
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


def _make_rule(events: Any, cluster: str, region: str, concern: str, states: Sequence[str]) -> None:
    """EC2's news of instances become hints."""
    name = f"{queue_name(cluster, concern)}-instances"
    pattern = {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": list(states)},
    }
    transformer = {
        "InputPathsMap": {"instance": "$.detail.instance-id", "state": "$.detail.state"},
        "InputTemplate": f'{{"cluster":"{cluster}","why":"<instance> is <state>"}}',
    }
    arn = queue_arn(region, cluster, concern)
    events.put_rule(Name=name, EventPattern=json.dumps(pattern), State="ENABLED")
    events.put_targets(Rule=name, Targets=[{"Id": concern, "Arn": arn, "InputTransformer": transformer}])


def _pass_on(events: Any, cluster: str, region: str, name: str, pattern: Mapping[str, Any]) -> None:
    """Notices reach interruption as they are."""
    queue = queue_name(cluster, "interruption")
    events.put_rule(Name=f"{queue}-{name}", EventPattern=json.dumps(pattern), State="ENABLED")
    target = {"Id": "interruption", "Arn": queue_arn(region, cluster, "interruption")}
    events.put_targets(Rule=f"{queue}-{name}", Targets=[target])
