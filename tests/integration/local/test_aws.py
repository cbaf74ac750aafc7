"""AWS on a local port: what a cluster finds there, and what its instances send to EventBridge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http.client import HTTPConnection
from io import BytesIO
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from moto.core import serialize
from moto.sqs.responses import SQSResponse

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.cloud import AwsCloud
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan
from nodesmith.errors import Rejected
from nodesmith.model.ec2.launches import Instance, Launched
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith_local.apiserver import Store
from nodesmith_local.aws import Endpoint, LocalAws
from nodesmith_local.aws.instances.machines import MotoMachines
from nodesmith_local.aws.services import timed_by
from tests.aws.account import NODECLASS, SETTINGS
from tests.objects.launching import CLAIM, options

ENDPOINT = Endpoint("https://api.express.test", "Q0E=")


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws(
        "us-east-1", cluster="express", endpoint=ENDPOINT, no_capacity=["spot:m5.large:us-east-1a"]
    ) as aws:
        yield aws


@pytest.fixture
def cloud(aws: LocalAws) -> AwsCloud:
    return AwsCloud(lru_cache(aws.client), SETTINGS, system_time)


@pytest.fixture(scope="module")
def instance(aws: LocalAws) -> str:
    """Launch one instance for all tests that need any: EC2's bucket for RunInstances holds only five requests."""
    ec2 = aws.client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    launched = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large")
    return str(launched["Instances"][0]["InstanceId"])


@pytest.fixture(scope="module")
def table(aws: LocalAws) -> str:
    item = {
        "pk": {"S": "one"},
        "many": {"N": "3"},
        "tags": {"SS": ["x"]},
        "doc": {"M": {"inner": {"S": "y"}, "other": {"BOOL": True}}},
        "parts": {"L": [{"S": "a"}, {"S": "b"}]},
    }
    aws.client("dynamodb").create_table(
        TableName="items",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    aws.client("dynamodb").put_item(TableName="items", Item=item)
    return "items"


def launched(cloud: AwsCloud, cluster: ClusterInfo) -> Launched:
    status = cloud.resolve(NODECLASS, cluster, datetime.now(UTC))
    request, templates = launch_plan(CLAIM, options(["m5.large"]), NODECLASS, status, cluster)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Launched)
    return outcome


def queue_of_ec2_events(aws: LocalAws) -> str:
    url = str(aws.client("sqs").create_queue(QueueName="ec2-events")["QueueUrl"])
    arn = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]}
    aws.client("events").put_rule(Name="ec2", EventPattern=json.dumps(pattern))
    aws.client("events").put_targets(Rule="ec2", Targets=[{"Id": "queue", "Arn": arn}])
    return url


def received(aws: LocalAws, url: str) -> list[dict[str, Any]]:
    messages = aws.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(message["Body"]) for message in messages]


def test_from_an_empty_account_to_a_ready_node_that_goes_with_its_instance(
    aws: LocalAws, cloud: AwsCloud
) -> None:
    url, store, start = queue_of_ec2_events(aws), Store(lambda: datetime.now(UTC)), datetime.now(UTC)
    kubelets = aws.kubelets(store)
    outcome = launched(cloud, cloud.cluster_info())
    assert [str(s.offering) for s in outcome.shortfalls] == ["spot m5.large in us-east-1a"]
    kubelets.step(start)
    kubelets.step(start + timedelta(seconds=60))
    assert kubelets.failures() == {}
    (node,) = store.list("nodes")
    assert node["spec"]["providerID"] == outcome.instance.provider_id
    assert node["metadata"]["labels"]["karpenter.sh/capacity-type"] == "spot"
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()
    aws.strict.visibility.settle()
    assert seen(cloud).state == "running"
    cloud.terminate([outcome.instance.id])
    kubelets.step(start + timedelta(seconds=61))
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}  # the controllers' part
    store.patch("nodes", node["metadata"]["name"], silent, subresource="status")
    kubelets.step(start + timedelta(seconds=66))
    assert store.list("nodes") == []
    events = received(aws, url)
    assert sorted(event["detail"]["state"] for event in events) == ["pending", "running", "terminated"]
    assert {event["detail"]["instance-id"] for event in events} == {outcome.instance.id}
    assert {event["source"] for event in events} == {"aws.ec2"}


def seen(cloud: AwsCloud) -> Instance:
    (instance,) = cloud.instances_of([CLAIM.name])[CLAIM.name]
    return instance


def test_spot_prices_are_the_catalogues(aws: LocalAws) -> None:
    history = aws.client("ec2").describe_spot_price_history(
        InstanceTypes=["m5.large"], ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"]
    offered = {
        offering.zone: f"{offering.price_hourly_usd:.6f}"
        for offering in embedded_catalog("us-east-1").offerings["m5.large"]
        if offering.capacity_type == "spot"
    }
    assert {entry["AvailabilityZone"]: entry["SpotPrice"] for entry in history} == offered
    assert len(history) == len(offered)


def test_resources_have_the_tags_that_a_list_of_all_tags_returns(aws: LocalAws) -> None:
    subnets = {each["SubnetId"]: each["Tags"] for each in aws.client("ec2").describe_subnets()["Subnets"]}
    listed = aws.client("ec2").describe_tags(Filters=[{"Name": "resource-type", "Values": ["subnet"]}])[
        "Tags"
    ]
    for subnet in aws.network.subnets.values():
        tags = [(tag["Key"], tag["Value"]) for tag in listed if tag["ResourceId"] == subnet]
        assert tags
        assert [(tag["Key"], tag["Value"]) for tag in subnets[subnet]] == tags


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        ("many, tags, absent", {"many": {"N": "3"}, "tags": {"SS": ["x"]}}),
        ("doc.inner, absent", {"doc": {"M": {"inner": {"S": "y"}}}}),
        ("many, parts[1]", {"many": {"N": "3"}, "parts": {"L": [{"S": "b"}]}}),
    ],
)
def test_a_query_returns_the_requested_attributes_of_an_item(
    table: str, aws: LocalAws, projection: str, expected: dict[str, Any]
) -> None:
    answer = aws.client("dynamodb").query(
        TableName=table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "one"}},
        ProjectionExpression=projection,
    )
    assert answer["Items"] == [expected]


@pytest.mark.parametrize(("kind", "keys"), [("S", ["a", "aa", "b"]), ("N", ["2", "10", "11"])])
def test_a_query_returns_items_in_the_order_of_their_keys(aws: LocalAws, kind: str, keys: list[str]) -> None:
    dynamodb = aws.client("dynamodb")
    dynamodb.create_table(
        TableName=f"sorted-{kind}",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": kind},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    for sk in reversed(keys):
        dynamodb.put_item(TableName=f"sorted-{kind}", Item={"pk": {"S": "several"}, "sk": {kind: sk}})
    answer = dynamodb.query(
        TableName=f"sorted-{kind}",
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "several"}},
    )
    assert [item["sk"][kind] for item in answer["Items"]] == keys


@pytest.mark.usefixtures("instance")
@pytest.mark.parametrize("kind", ["instances", "images", "subnets", "security_groups"])
def test_described_resources_have_every_member_that_a_search_by_all_names_finds(
    aws: LocalAws, kind: str
) -> None:
    ec2 = aws.client("ec2")

    def described() -> list[Any]:
        pages = ec2.get_paginator(f"describe_{kind}").paginate()
        return [{**page, "ResponseMetadata": None} for page in pages]

    searched_once, known = described(), described()
    with ExitStack() as stack:
        for picker in (serialize.AttributePicker, serialize.XFormedAttributePicker):
            searching = picker.get_possible_keys.__wrapped__  # type: ignore[attr-defined]
            stack.enter_context(patch.object(picker, "get_possible_keys", searching))
        assert described() == searched_once == known
    assert any(page.values() for page in known)


def test_a_connection_is_kept_for_the_next_request(aws: LocalAws) -> None:
    connection = HTTPConnection(aws.url.removeprefix("http://"), timeout=10)
    scope = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/s3/aws4_request"
    connected = set()
    for key in ("one", "another"):
        connection.request("GET", f"/no-bucket/{key}", headers={"Authorization": scope})
        response = connection.getresponse()
        assert b"NoSuchBucket" in response.read()
        connected.add(connection.sock)
    connection.close()
    assert len(connected - {None}) == 1


def test_a_second_local_aws_is_refused_and_does_not_affect_the_first(aws: LocalAws) -> None:
    subnets = aws.client("ec2").describe_subnets()["Subnets"]
    with (
        pytest.raises(RuntimeError, match="another LocalAws runs in this process"),
        LocalAws("us-east-1", cluster="second", endpoint=ENDPOINT),
    ):
        pass
    assert aws.client("ec2").describe_subnets()["Subnets"] == subnets


def test_there_is_a_subnet_in_every_zone(aws: LocalAws) -> None:
    sold = {o.zone for offers in embedded_catalog("us-east-1").offerings.values() for o in offers}
    assert set(aws.network.subnets) == sold


def test_a_role_that_a_manifest_names_can_be_created_repeatedly(aws: LocalAws) -> None:
    aws.ensure_role("team-role")
    aws.ensure_role("team-role")
    assert aws.client("iam").get_role(RoleName="team-role")["Role"]["RoleName"] == "team-role"


def test_the_network_is_found_by_tags_that_a_manifest_names(aws: LocalAws) -> None:
    aws.ensure_tags({"team": "blue"}, {"tier": "nodes"})
    ec2 = aws.client("ec2")
    subnets = ec2.describe_subnets(Filters=[{"Name": "tag:team", "Values": ["blue"]}])["Subnets"]
    groups = ec2.describe_security_groups(Filters=[{"Name": "tag:tier", "Values": ["nodes"]}])[
        "SecurityGroups"
    ]
    assert {subnet["SubnetId"] for subnet in subnets} == set(aws.network.subnets.values())
    assert [group["GroupId"] for group in groups] == [aws.network.security_group_id]


def test_a_table_returns_attribute_values_of_every_type_unchanged(aws: LocalAws) -> None:
    dynamodb = aws.client("dynamodb")
    dynamodb.create_table(
        TableName="values",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    plain: dict[str, Any] = {
        "text": {"S": "a"},
        "number": {"N": "1.5"},
        "truth": {"BOOL": False},
        "nothing": {"NULL": True},
        "texts": {"SS": ["a", "b"]},
        "numbers": {"NS": ["1", "2"]},
        "list": {"L": [{"S": ""}, {"L": []}, {"M": {}}]},
    }
    bytes_: dict[str, Any] = {"bytes": {"B": b"\xff\x00"}, "deep": {"M": {"of": {"L": [{"B": b"\xff"}]}}}}
    item = {"key": {"S": "1"}, **plain, "map": {"M": plain}, **bytes_}
    dynamodb.put_item(TableName="values", Item=item)

    found = dynamodb.query(
        TableName="values",
        KeyConditionExpression="#key = :key",
        ExpressionAttributeNames={"#key": "key"},
        ExpressionAttributeValues={":key": {"S": "1"}},
    )["Items"]

    assert found == [item]
    assert dynamodb.get_item(TableName="values", Key={"key": {"S": "1"}})["Item"] == item


def test_an_sdk_needs_only_the_environment_variables(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    assert boto3.client("eks").describe_cluster(name="express")["cluster"]["endpoint"] == ENDPOINT.url


@pytest.mark.parametrize(("region", "pool"), [("us-east-9", ""), ("us-east-1", "m5.lareg")])
def test_a_region_or_pool_that_does_not_exist_is_quoted(region: str, pool: str) -> None:
    with pytest.raises(Rejected, match=pool or region):
        LocalAws(region, cluster="express", endpoint=ENDPOINT, no_capacity=[pool] if pool else [])


def test_an_instance_is_of_the_cluster_that_its_tag_names(aws: LocalAws) -> None:
    ec2 = aws.client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "eks:eks-cluster-name", "Value": "other"}]}]
    how = {"ImageId": image, "MinCount": 1, "MaxCount": 1, "InstanceType": "m5.large"}
    tagged, untagged = (
        ec2.run_instances(**how, **more)["Instances"][0]["InstanceId"]
        for more in ({"TagSpecifications": tags}, {})
    )
    of_other = [machine.id for machine in MotoMachines("us-east-1", "other".__eq__).all()]
    of_none = [machine.id for machine in MotoMachines("us-east-1", "".__eq__).all()]
    ec2.terminate_instances(InstanceIds=[tagged, untagged])
    assert of_other == [tagged]
    assert untagged in of_none
    assert tagged not in of_none


def test_other_processes_reach_over_a_connection_what_clients_of_this_process_wrote(aws: LocalAws) -> None:
    s3, body = aws.client("s3"), bytes(range(256))
    s3.create_bucket(Bucket="reached")
    s3.put_object(Bucket="reached", Key="dir/a key", Body=body, Metadata={"by": "us"})
    answer = s3.get_object(Bucket="reached", Key="dir/a key")
    assert (answer["Body"].read(), answer["Metadata"]) == (body, {"by": "us"})
    host, port = aws.url.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port))
    connection.request(
        "GET", "/reached/dir/a%20key", headers={"Authorization": "AWS4 Credential=a/b/us-east-1/s3/c,"}
    )
    response = connection.getresponse()
    assert (response.status, response.read(), response.headers["x-amz-meta-by"]) == (200, body, "us")
    connection.close()


def test_instances_end_and_objects_are_written_at_the_time_of_the_clock(aws: LocalAws) -> None:
    at = datetime(2021, 5, 6, 7, 8, 9, tzinfo=UTC)
    ec2, s3 = aws.client("ec2"), aws.client("s3")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    s3.create_bucket(Bucket="clock")
    with timed_by(lambda: at):
        launched = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large")
        named = [launched["Instances"][0]["InstanceId"]]
        ec2.terminate_instances(InstanceIds=named)
        s3.put_object(Bucket="clock", Key="k", Body=b"v")
    (ended,) = ec2.describe_instances(InstanceIds=named)["Reservations"][0]["Instances"]
    assert "2021-05-06 07:08:09" in ended["StateTransitionReason"]
    assert [each["LastModified"] for each in s3.list_objects_v2(Bucket="clock")["Contents"]] == [at]


def test_a_body_that_is_read_from_a_file_is_stored_too(aws: LocalAws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="streamed")
    s3.put_object(Bucket="streamed", Key="file", Body=BytesIO(b"from a file"))
    assert s3.get_object(Bucket="streamed", Key="file")["Body"].read() == b"from a file"


def test_a_call_is_repeated_after_an_error_of_moto_itself(aws: LocalAws) -> None:
    errors = [RuntimeError("dictionary changed size during iteration")]
    list_queues = SQSResponse.list_queues

    def fails_once(response: SQSResponse) -> Any:
        if errors:
            raise errors.pop()
        return list_queues(response)

    with patch.object(SQSResponse, "list_queues", fails_once):
        aws.client("sqs").list_queues()
    assert errors == []
