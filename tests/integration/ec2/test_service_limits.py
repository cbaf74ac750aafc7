"""AWS's documented limits: a request at the limit is accepted, and one beyond it is refused with AWS's code."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.servicelimits import LIMITS, Limit
from tests.aws.account import account
from tests.aws.account import unvalidated_client as client

Call = Callable[[int], object]
TABLE, QUEUE, BUCKET, PROFILE = "limits", "limits", "limits-of-keys", "limits"
UNKNOWN = frozenset(
    {"InvalidInstanceID.NotFound", "InvalidParameterValueException", "ParameterNotFound", "NoSuchKey"}
)
"""Errors of requests within the limits, about resources that do not exist"""


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    with account() as furnished:
        furnished.strict.limit_rates(on=False)
        client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        client("sqs").create_queue(QueueName=QUEUE)
        client("s3").create_bucket(Bucket=BUCKET)
        client("iam").create_instance_profile(InstanceProfileName=PROFILE)
        client("ec2").create_launch_template(
            LaunchTemplateName="existing", LaunchTemplateData={"ImageId": "ami-1", "InstanceType": "m5.large"}
        )
        yield


def refusal(call: Call, size: int) -> str:
    try:
        call(size)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def queue_url() -> str:
    return str(client("sqs").get_queue_url(QueueName=QUEUE)["QueueUrl"])


def tags(count: int) -> list[dict[str, str]]:
    return [{"Key": f"key-{n}", "Value": "v"} for n in range(count)]


def fleet(**changes: Any) -> None:
    """Request a fleet without launching it: DryRun is checked after validation."""
    named = {"LaunchTemplateSpecification": {"LaunchTemplateName": "existing", "Version": "1"}}
    asked = {
        "Type": "instant",
        "LaunchTemplateConfigs": [named],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        **changes,
    }
    try:
        client("ec2").create_fleet(**asked, DryRun=True)
    except ClientError as error:
        if error.response["Error"]["Code"] != "DryRunOperation":
            raise


def configs(count: int, overrides: int = 0) -> list[dict[str, Any]]:
    named = {"LaunchTemplateName": "existing", "Version": "1"}
    some = [{"InstanceType": "m5.large", "Priority": float(n)} for n in range(overrides)]
    return [{"LaunchTemplateSpecification": named, **({"Overrides": some} if some else {})}] * count


def template(name: str = "", **data: Any) -> None:
    made = name or f"t-{abs(hash(str(data)))}"
    client("ec2").create_launch_template(
        LaunchTemplateName=made, LaunchTemplateData={"ImageId": "ami-1", **data}
    )


def volume(**ebs: Any) -> None:
    template(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": "gp3", **ebs}}])


def described(operation: str, **asked: Any) -> None:
    getattr(client("ec2"), operation)(**asked)


def item(size: int, pk: str = "p") -> dict[str, Any]:
    """Return an item of this size, which is the bytes of its attributes' names and values."""
    return {"pk": {"S": pk}, "sk": {"S": "s"}, "doc": {"S": "x" * (size - len("pkskdoc") - len(pk) - 1)}}


def put(key: dict[str, Any]) -> None:
    client("dynamodb").put_item(TableName=TABLE, Item=key)


def transaction(count: int, each_bytes: int = 100) -> None:
    writes = [{"Put": {"TableName": TABLE, "Item": item(each_bytes, f"p{n:04}")}} for n in range(count)]
    client("dynamodb").transact_write_items(TransactItems=writes)


def transaction_of(size: int) -> None:
    """Write this many bytes, in items that are each within the size limit."""
    each = size // 16
    writes = [item(each if n else size - 15 * each, f"p{n:04}") for n in range(16)]
    client("dynamodb").transact_write_items(
        TransactItems=[{"Put": {"TableName": TABLE, "Item": each}} for each in writes]
    )


def batch(count: int, size: int = 100) -> None:
    requests = [{"PutRequest": {"Item": item(size, f"p{n:04}")}} for n in range(count)]
    client("dynamodb").batch_write_item(RequestItems={TABLE: requests})


def read(count: int) -> None:
    keys = [{"pk": {"S": f"p{n}"}, "sk": {"S": "s"}} for n in range(count)]
    client("dynamodb").batch_get_item(RequestItems={TABLE: {"Keys": keys}})


def update(size: int) -> None:
    expression = "SET doc = :v" + " " * (size - 12)
    client("dynamodb").update_item(
        TableName=TABLE,
        Key={"pk": {"S": "p"}, "sk": {"S": "s"}},
        UpdateExpression=expression,
        ExpressionAttributeValues={":v": {"S": "x"}},
    )


def send(**message: Any) -> None:
    client("sqs").send_message(QueueUrl=queue_url(), **{"MessageBody": "x", **message})


def send_batch(bodies: list[str], id_: str = "m") -> None:
    entries = [{"Id": f"{id_}{n or ''}", "MessageBody": body} for n, body in enumerate(bodies)]
    client("sqs").send_message_batch(QueueUrl=queue_url(), Entries=entries)


def receive(**asked: int) -> None:
    client("sqs").receive_message(QueueUrl=queue_url(), **asked)


def stored(size: int) -> None:
    client("s3").put_object(Bucket=BUCKET, Key="k" * size, Body=b"")


def profile(**asked: Any) -> None:
    named = {"InstanceProfileName": f"p-{abs(hash(str(asked)))}", **asked}
    client("iam").create_instance_profile(**named)


def role(name: str) -> None:
    client("iam").create_role(RoleName=name, AssumeRolePolicyDocument='{"Statement": []}')


def roles_in_profile(count: int) -> None:
    name = f"roles-{count}"
    profile(InstanceProfileName=name)
    for number in range(count):
        role(f"{name}-{number}")
        client("iam").add_role_to_instance_profile(InstanceProfileName=name, RoleName=f"{name}-{number}")


def ids(count: int) -> list[str]:
    return [f"i-{n:017x}" for n in range(count)]


def filters(count: int, values: int = 1, length: int = 1) -> list[dict[str, Any]]:
    return [{"Name": "instance-id", "Values": [f"{n}".rjust(length, "i") for n in range(values)]}] * count


def interface(groups: int) -> None:
    """Launch an instance whose interface has this many security groups. EC2's error is inside the response."""
    ec2 = client("ec2")
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    made = [
        ec2.create_security_group(GroupName=f"g-{groups}-{n}", Description="d", VpcId=vpc)["GroupId"]
        for n in range(groups)
    ]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    subnet = next(s for s in ec2.describe_subnets()["Subnets"] if s["VpcId"] == vpc)["SubnetId"]
    name = f"groups-{groups}"
    network = [{"DeviceIndex": 0, "Groups": made}]
    template(name, ImageId=image, InstanceType="m5.large", NetworkInterfaces=network)
    specification = {"LaunchTemplateName": name, "Version": "1"}
    answer = ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": specification,
                "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    )
    for error in answer["Errors"]:
        raise ClientError({"Error": {"Code": error["ErrorCode"], "Message": ""}}, "CreateFleet")


CASES: Mapping[Limit, Call] = {
    limits.FLEET_CONFIGS: lambda n: fleet(LaunchTemplateConfigs=configs(n)),
    limits.FLEET_OVERRIDES: lambda n: fleet(Type="request", LaunchTemplateConfigs=configs(1, n)),
    limits.FLEET_TARGET: lambda n: fleet(
        TargetCapacitySpecification={"TotalTargetCapacity": n, "DefaultTargetCapacityType": "spot"}
    ),
    limits.CLIENT_TOKEN: lambda n: fleet(ClientToken="c" * n),
    limits.TEMPLATE_CLIENT_TOKEN: lambda n: client("ec2").create_launch_template(
        LaunchTemplateName=f"token-{n}", LaunchTemplateData={"ImageId": "ami-1"}, ClientToken="c" * n
    ),
    limits.TEMPLATE_NAME: lambda n: template("n" * n),
    limits.TEMPLATE_DESCRIPTION: lambda n: client("ec2").create_launch_template(
        LaunchTemplateName=f"version-{n}", LaunchTemplateData={"ImageId": "ami-1"}, VersionDescription="d" * n
    ),
    limits.USER_DATA: lambda n: template(UserData=base64.b64encode(b"u" * n).decode()),
    limits.GROUPS_PER_INTERFACE: interface,
    limits.HOP_LIMIT: lambda n: template(MetadataOptions={"HttpPutResponseHopLimit": n}),
    limits.GP3_SIZE: lambda n: volume(VolumeSize=n),
    limits.GP3_IOPS: lambda n: volume(Iops=n),
    limits.GP3_THROUGHPUT: lambda n: volume(Throughput=n, Iops=10_000),
    limits.TAGS: lambda n: fleet(TagSpecifications=[{"ResourceType": "instance", "Tags": tags(n)}]),
    limits.TAG_KEY: lambda n: template(
        TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "k" * n, "Value": ""}]}]
    ),
    limits.TAG_VALUE: lambda n: client("ec2").create_tags(
        Resources=[client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]], Tags=[{"Key": "k", "Value": "v" * n}]
    ),
    limits.RESERVED_TAGS: lambda n: fleet(
        TagSpecifications=[
            {"ResourceType": "fleet", "Tags": [{"Key": f"aws:{i}", "Value": ""} for i in range(n)] + tags(1)}
        ]
    ),
    limits.TAGGED_RESOURCES: lambda n: client("ec2").create_tags(Resources=ids(n), Tags=tags(1)),
    limits.TERMINATED_IDS: lambda n: client("ec2").terminate_instances(InstanceIds=ids(n)),
    limits.DESCRIBED_IDS: lambda n: described("describe_instances", InstanceIds=ids(n)),
    limits.STATUS_IDS: lambda n: described("describe_instance_status", InstanceIds=ids(n)),
    limits.FILTERS: lambda n: described("describe_instances", Filters=filters(n)),
    limits.FILTER_VALUES: lambda n: described("describe_instances", Filters=filters(1, n)),
    limits.FILTER_VALUE: lambda n: described("describe_instances", Filters=filters(1, 1, n)),
    limits.PAGE: lambda n: described("describe_instances", MaxResults=n),
    limits.TEMPLATES_PAGE: lambda n: described("describe_launch_templates", MaxResults=n),
    limits.TRANSACTION_ITEMS: transaction,
    limits.TRANSACTION_BYTES: transaction_of,
    limits.ITEM_BYTES: lambda n: put(item(n)),
    limits.BATCH_WRITE: batch,
    limits.BATCH_GET: read,
    limits.PARTITION_KEY: lambda n: put({"pk": {"S": "p" * n}, "sk": {"S": "s"}}),
    limits.SORT_KEY: lambda n: put({"pk": {"S": "p"}, "sk": {"S": "s" * n}}),
    limits.EXPRESSION: update,
    limits.MESSAGE: lambda n: send(MessageBody="m" * n),
    limits.MESSAGE_BATCH: lambda n: send_batch(["x"] * n),
    limits.MESSAGE_BATCH_BYTES: lambda n: send_batch(["x" * (n // 2), "x" * (n - n // 2)]),
    limits.BATCH_ENTRY_ID: lambda n: send_batch(["x"], "i" * n),
    limits.DELAY: lambda n: send(DelaySeconds=n),
    limits.VISIBILITY: lambda n: receive(VisibilityTimeout=n),
    limits.RECEIVED: lambda n: receive(MaxNumberOfMessages=n),
    limits.WAIT: lambda n: receive(WaitTimeSeconds=n),
    limits.QUEUE_NAME: lambda n: client("sqs").create_queue(QueueName="q" * n),
    limits.OBJECT_KEY: stored,
    limits.PROFILE_NAME: lambda n: profile(InstanceProfileName="p" * n),
    limits.PROFILE_PATH: lambda n: profile(Path="/" + "p" * (n - 2) + "/" if n > 1 else "/" * n),
    limits.PROFILE_TAGS: lambda n: profile(Tags=tags(n)),
    limits.PROFILE_ROLES: roles_in_profile,
    limits.ROLE_NAME: lambda n: role("r" * n),
    limits.PARAMETER_NAME: lambda n: client("ssm").get_parameter(Name="p" * n),
}


def test_every_limit_in_the_table_has_a_test() -> None:
    assert set(CASES) == set(LIMITS)
    assert len({limit.name for limit in LIMITS}) == len(LIMITS) == 50
    assert all(limit.source and limit.code and limit.unit for limit in LIMITS)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_a_request_at_the_limit_is_accepted_and_one_beyond_it_refused_with_awss_code(limit: Limit) -> None:
    call = CASES[limit]
    assert refusal(call, limit.maximum) in UNKNOWN | {""}
    assert refusal(call, limit.maximum + 1) == limit.code
    if limit.minimum is not None:
        assert refusal(call, limit.minimum) in UNKNOWN | {""}
        if limit.minimum > 0:
            assert refusal(call, limit.minimum - 1) == limit.code
