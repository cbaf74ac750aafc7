"""AWS's documented limits on requests, each with its source and AWS's error code.

A limit whose source is a service model is part of botocore's model, and `models` enforces it. The other modules of this
package enforce the rest. Pages are cited by title and guide.
"""

from __future__ import annotations

from dataclasses import dataclass

_EC2_MODEL = "botocore's service model of ec2"
_DYNAMODB_QUOTAS = "Quotas in Amazon DynamoDB, Amazon DynamoDB Developer Guide"
_SQS_QUOTAS = "Amazon SQS message quotas, Amazon SQS Developer Guide"
_IAM_QUOTAS = "IAM and AWS STS quotas, IAM User Guide"
_TAG_PAGE = "Tag your Amazon EC2 resources, Amazon EC2 User Guide"
_FILTER_PAGE = "Find your Amazon EC2 resources, Amazon EC2 User Guide"
_INVALID = "InvalidParameterValue"
KIB, MIB = 2**10, 2**20


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `maximum` (inclusive) and at least `minimum` of `unit`; a request outside gets the error `code`."""

    name: str
    maximum: int
    unit: str
    code: str
    source: str
    minimum: int | None = None


FLEET_CONFIGS = Limit(
    "launch template configs of a fleet", 50, "configs", _INVALID, f"{_EC2_MODEL}: CreateFleet"
)
FLEET_OVERRIDES = Limit(
    "overrides of a request or maintain fleet",
    300,
    "overrides",
    "InvalidParameterValue",
    f"{_EC2_MODEL}: CreateFleet",
)
FLEET_TARGET = Limit(
    "target capacity of a fleet",
    10_000,
    "instances",
    "TargetCapacityLimitExceededException",
    "Quotas for EC2 Fleet and Spot Fleet, Amazon EC2 User Guide",
    minimum=1,
)
CLIENT_TOKEN = Limit(
    "client token",
    64,
    "ASCII characters",
    _INVALID,
    "Ensuring idempotency in Amazon EC2 API requests, Developer Guide",
)
TEMPLATE_CLIENT_TOKEN = Limit(
    "client token of a launch template",
    128,
    "ASCII characters",
    _INVALID,
    f"{_EC2_MODEL}: CreateLaunchTemplate",
)
TEMPLATE_NAME = Limit(
    "name of a launch template",
    128,
    "characters",
    "InvalidLaunchTemplateName.MalformedException",
    "Error codes for the Amazon EC2 API, Developer Guide",
    minimum=3,
)
TEMPLATE_DESCRIPTION = Limit(
    "description of a launch template", 255, "characters", _INVALID, f"{_EC2_MODEL}: VersionDescription"
)
USER_DATA = Limit(
    "user data before base64",
    16 * KIB,
    "bytes",
    "InvalidUserData.Malformed",
    "Run commands at launch, EC2 User Guide",
)
GROUPS_PER_INTERFACE = Limit(
    "security groups of a network interface",
    5,
    "security groups",
    "SecurityGroupsPerInterfaceLimitExceeded",
    "Amazon VPC quotas, Amazon VPC User Guide (the default)",
)
HOP_LIMIT = Limit(
    "hop limit of instance metadata",
    64,
    "hops",
    _INVALID,
    f"{_EC2_MODEL}: HttpPutResponseHopLimit",
    minimum=1,
)
GP3_SIZE = Limit("size of a gp3 volume", 65_536, "GiB", _INVALID, f"{_EC2_MODEL}: EbsBlockDevice", minimum=1)
GP3_IOPS = Limit(
    "IOPS of a gp3 volume", 80_000, "IOPS", _INVALID, f"{_EC2_MODEL}: EbsBlockDevice", minimum=3000
)
GP3_THROUGHPUT = Limit(
    "throughput of a gp3 volume", 2000, "MiB/s", _INVALID, f"{_EC2_MODEL}: EbsBlockDevice", minimum=125
)
TAGS = Limit("tags of an EC2 resource", 50, "tags", "TagLimitExceeded", _TAG_PAGE)
TAG_KEY = Limit("key of an EC2 tag", 127, "characters", _INVALID, f"{_EC2_MODEL}: Tag", minimum=1)
TAG_VALUE = Limit("value of an EC2 tag", 256, "characters", _INVALID, f"{_EC2_MODEL}: Tag")
RESERVED_TAGS = Limit("tags under the prefix aws:", 0, "tags", _INVALID, _TAG_PAGE)
TAGGED_RESOURCES = Limit("resources of a CreateTags call", 1000, "ids", _INVALID, f"{_EC2_MODEL}: CreateTags")
TERMINATED_IDS = Limit(
    "instances of a TerminateInstances call", 1000, "ids", _INVALID, f"{_EC2_MODEL}: TerminateInstances"
)
DESCRIBED_IDS = Limit(
    "ids of a DescribeInstances call",
    1000,
    "ids",
    _INVALID,
    "Pagination in the Amazon EC2 API, Developer Guide",
)
STATUS_IDS = Limit(
    "ids of a DescribeInstanceStatus call", 100, "ids", _INVALID, f"{_EC2_MODEL}: DescribeInstanceStatus"
)
FILTERS = Limit("filters of a describe call", 50, "filters", "FilterLimitExceeded", _FILTER_PAGE)
FILTER_VALUES = Limit("filter values of a describe call", 200, "values", "FilterLimitExceeded", _FILTER_PAGE)
FILTER_VALUE = Limit(
    "length of a filter value", 255, "characters", "FilterLimitExceeded", "Error codes for the Amazon EC2 API"
)
PAGE = Limit("page of a describe call", 1000, "results", _INVALID, f"{_EC2_MODEL}: MaxResults", minimum=5)
TEMPLATES_PAGE = Limit(
    "page of DescribeLaunchTemplates",
    200,
    "results",
    _INVALID,
    f"{_EC2_MODEL}: DescribeLaunchTemplates",
    minimum=1,
)

TRANSACTION_ITEMS = Limit(
    "items of a transaction",
    100,
    "items",
    "ValidationException",
    "botocore's service model of dynamodb",
    minimum=1,
)
TRANSACTION_BYTES = Limit("size of a transaction", 4 * MIB, "bytes", "ValidationException", _DYNAMODB_QUOTAS)
ITEM_BYTES = Limit("size of an item", 400 * KIB, "bytes", "ValidationException", _DYNAMODB_QUOTAS)
BATCH_WRITE = Limit("items of a BatchWriteItem call", 25, "items", "ValidationException", _DYNAMODB_QUOTAS)
BATCH_GET = Limit("items of a BatchGetItem call", 100, "items", "ValidationException", _DYNAMODB_QUOTAS)
PARTITION_KEY = Limit("partition key", 2048, "bytes", "ValidationException", _DYNAMODB_QUOTAS, minimum=1)
SORT_KEY = Limit("sort key", 1024, "bytes", "ValidationException", _DYNAMODB_QUOTAS, minimum=1)
EXPRESSION = Limit("expression", 4 * KIB, "bytes", "ValidationException", _DYNAMODB_QUOTAS)

MESSAGE = Limit("message body", MIB, "bytes", _INVALID, _SQS_QUOTAS, minimum=1)
MESSAGE_BATCH = Limit(
    "messages of a batch", 10, "messages", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", _SQS_QUOTAS
)
MESSAGE_BATCH_BYTES = Limit(
    "size of a batch", MIB, "bytes", "AWS.SimpleQueueService.BatchRequestTooLong", _SQS_QUOTAS
)
BATCH_ENTRY_ID = Limit(
    "id of a message in a batch",
    80,
    "characters",
    "AWS.SimpleQueueService.InvalidBatchEntryId",
    _SQS_QUOTAS,
    minimum=1,
)
DELAY = Limit("delay of a message", 900, "seconds", _INVALID, _SQS_QUOTAS, minimum=0)
VISIBILITY = Limit("visibility timeout", 43_200, "seconds", _INVALID, _SQS_QUOTAS, minimum=0)
RECEIVED = Limit("messages of a ReceiveMessage call", 10, "messages", _INVALID, _SQS_QUOTAS, minimum=1)
WAIT = Limit("wait of a ReceiveMessage call", 20, "seconds", _INVALID, _SQS_QUOTAS, minimum=0)
QUEUE_NAME = Limit(
    "name of a queue", 80, "characters", _INVALID, "Amazon SQS queue quotas, Developer Guide", minimum=1
)

OBJECT_KEY = Limit(
    "object key", 1024, "bytes", "KeyTooLongError", "Naming Amazon S3 objects, Amazon S3 User Guide"
)
PROFILE_NAME = Limit(
    "name of an instance profile", 128, "characters", "ValidationError", _IAM_QUOTAS, minimum=1
)
PROFILE_PATH = Limit(
    "path of an instance profile", 512, "characters", "ValidationError", _IAM_QUOTAS, minimum=1
)
PROFILE_TAGS = Limit("tags of an instance profile", 50, "tags", "ValidationError", _IAM_QUOTAS)
PROFILE_ROLES = Limit("roles of an instance profile", 1, "roles", "LimitExceeded", _IAM_QUOTAS)
ROLE_NAME = Limit("name of a role", 64, "characters", "ValidationError", _IAM_QUOTAS, minimum=1)
PARAMETER_NAME = Limit(
    "name of an SSM parameter",
    2048,
    "characters",
    "ValidationException",
    "botocore's service model of ssm",
    minimum=1,
)

LIMITS: tuple[Limit, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Limit))
