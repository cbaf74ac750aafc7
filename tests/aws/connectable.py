"""An in-process account with a region's stack and an EKS cluster, on which `nodesmith connect` can be tried."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks import eks_backends
from moto.iam import iam_backends
from moto.iam.models import AWSManagedPolicy

from nodesmith import __version__
from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats
from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.keys import snapshot_key
from nodesmith.model.functions import TALKING
from nodesmith.settings import role_name
from nodesmith_cli.access.ledger import TABLE
from nodesmith_cli.connecting.checks.capacity import QUOTAS
from nodesmith_cli.connecting.connectcommand import ConnectOptions
from nodesmith_cli.connecting.connectcommand import connect as connect_cluster
from nodesmith_cli.connecting.disconnectcommand import DisconnectOptions, disconnect
from nodesmith_cli.connecting.doctorcommand import doctor
from nodesmith_cli.connecting.inspection import Environment
from nodesmith_cli.connecting.request import NODE_POLICIES, ConnectRequest
from nodesmith_cli.connecting.steps.leftovers import KeepOptions
from nodesmith_local.apiserver import ApiServer as InMemory
from nodesmith_local.aws.account import Network, make_network
from nodesmith_local.aws.eks.access import eks_access
from nodesmith_local.aws.eks.state import ClusterAccess, access_of
from tests.aws.account import REGION, client, strict_aws

CLUSTER = "web"
BUCKET = f"nodesmith-{DEFAULT_ACCOUNT_ID}-{REGION}-an"
IMAGE = f"{DEFAULT_ACCOUNT_ID}.dkr.ecr.{REGION}.amazonaws.com/nodesmith-forwarder:{__version__}"
FORWARDER_ROLE = role_name("forwarder", REGION)
PODS = "/api/v1/namespaces/nodesmith/pods"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_READING = ("BatchGet", "Describe", "Get", "List", "Head", "Query")


@dataclass(slots=True)
class Stacks:
    """CloudFormation, reduced to the outputs of stacks, by the stack's name."""

    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    def describe_stacks(self, StackName: str) -> dict[str, Any]:  # noqa: N803 (AWS's name)
        if StackName not in self.outputs:
            said = f"Stack with id {StackName} does not exist"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": said}}, "DescribeStacks")
        outputs = [{"OutputKey": k, "OutputValue": v} for k, v in self.outputs[StackName].items()]
        return {"Stacks": [{"StackName": StackName, "StackStatus": "UPDATE_COMPLETE", "Outputs": outputs}]}


@dataclass(slots=True)
class Quotas:
    """Service Quotas and Lambda, reduced to limits."""

    vcpus: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS.values(), 1000.0))
    concurrency: int = 1000

    def get_service_quota(self, ServiceCode: str, QuotaCode: str) -> dict[str, Any]:  # noqa: N803 (AWS's names)
        assert ServiceCode == "ec2"
        return {"Quota": {"Value": self.vcpus[QuotaCode]}}

    def get_account_settings(self) -> dict[str, Any]:
        return {"AccountLimit": {"UnreservedConcurrentExecutions": self.concurrency}}


@dataclass(slots=True)
class Connectable:
    """The cluster `web`, its account, and the calls made there. `meanwhile` runs each time a command waits."""

    network: Network
    server: ApiServer
    stacks: Stacks
    quotas: Quotas
    kubeconfig: dict[str, Any]
    calls: list[str] = field(default_factory=list)
    """The calls that may have written something: AWS operations, and methods and paths of the API server."""
    waited: float = 0.0
    meanwhile: Callable[[], None] = lambda: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run(self, *, output: str = "json", is_dry: bool = False, **wanted: Any) -> int:
        """Run connect without confirmation."""
        how = ConnectOptions("json" if output == "json" else "table", is_dry, False, timedelta(minutes=1))
        return connect_cluster(ConnectRequest(CLUSTER, **{"image": IMAGE, **wanted}), self.around(), how)

    def around(self, kubeconfig: str = "") -> Environment:
        """Return the surroundings of a command."""
        credentials = Credentials("none", "none")
        return Environment(self.client, REGION, lambda: credentials, self.now, self.sleep, kubeconfig)

    @property
    def access(self) -> ClusterAccess:
        """The access to the cluster that EKS records."""
        return access_of(eks_backends[DEFAULT_ACCOUNT_ID][REGION], CLUSTER)

    def client(self, service: str) -> Any:
        """Return the client of a service. Three are fakes: moto's CloudFormation needs more packages, for example."""
        others = {"cloudformation": self.stacks, "lambda": self.quotas, "service-quotas": self.quotas}
        return others.get(service) or client(service)

    def leave(self, *, meanwhile: Callable[[], None] = lambda: None, **how: Any) -> int:
        """Run disconnect without confirmation. The forwarder writes nothing meanwhile."""
        self.meanwhile = meanwhile
        keeping = KeepOptions(
            **{each: how.pop(each) for each in ("nodes", "data", "node_role") if each in how}
        )
        output = how.pop("output", "json")
        wanted = DisconnectOptions(keeping, output, is_asked=False, timeout=timedelta(minutes=1), **how)
        return disconnect(CLUSTER, self.around(), wanted)

    def examine(self) -> int:
        """Run doctor."""
        return doctor(CLUSTER, self.around(), "json")

    def sleep(self, seconds: float) -> None:
        self.waited += seconds
        self.meanwhile()

    def write_snapshot(self) -> None:
        """Act as the forwarder: write a snapshot."""
        client("s3").put_object(Bucket=BUCKET, Key=snapshot_key(CLUSTER), Body=b"")

    def write_heartbeat(self, at: datetime, changed: datetime) -> None:
        """Act as the forwarder while nothing changes: write a heartbeat."""
        DynamoHeartbeats(client("dynamodb"), TABLE, CLUSTER).write_heartbeat(at, changed)

    def put_forwarder(self, *, has_credentials: bool = True, **status: Any) -> None:
        """Act as the Deployment's controller, EKS Pod Identity and a kubelet: add a running pod."""
        uri = [
            {"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": "http://169.254.170.23/v1/credentials"}
        ]
        container = {"name": "forwarder", "image": IMAGE, "env": uri if has_credentials else []}
        metadata = {"name": "nodesmith-forwarder-1", "labels": {"app.kubernetes.io/component": "forwarder"}}
        pod = {"metadata": metadata, "spec": {"nodeName": "node-1", "containers": [container]}}
        self.server.create(PODS, pod)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.server.patch(f"{PODS}/nodesmith-forwarder-1/status", {"status": status or ready})

    def eks(self) -> Any:
        """Return moto's cluster, to change what EKS reports."""
        return eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER]

    def state(self) -> dict[str, Any]:
        """Return everything that connect may create in the account."""
        ec2, eks, iam = client("ec2"), client("eks"), client("iam")
        kinds = [{"Name": "resource-type", "Values": ["subnet", "security-group"]}]
        tags = ec2.describe_tags(Filters=kinds)["Tags"]
        return {
            "entries": eks.list_access_entries(clusterName=CLUSTER)["accessEntries"],
            "associations": eks.list_pod_identity_associations(clusterName=CLUSTER)["associations"],
            "addons": eks.list_addons(clusterName=CLUSTER)["addons"],
            "roles": sorted(role["RoleName"] for role in iam.list_roles()["Roles"]),
            "profiles": [p["InstanceProfileName"] for p in iam.list_instance_profiles()["InstanceProfiles"]],
            "parameters": _parameters(),
            "tags": sorted((tag["ResourceId"], tag["Key"], tag["Value"]) for tag in tags),
            "templates": ec2.describe_launch_templates()["LaunchTemplates"],
            "objects": [
                o["Key"] for o in client("s3").list_object_versions(Bucket=BUCKET).get("Versions", ())
            ],
            "items": client("dynamodb").scan(TableName="nodesmith")["Items"],
        }


def _parameters() -> list[str]:
    found = client("ssm").get_parameters_by_path(Path="/nodesmith", Recursive=True)["Parameters"]
    return [each["Name"] for each in found]


@dataclass(frozen=True, slots=True)
class Served:
    """A running API server: its URL, the base64 of its CA, a token with all rights, and a kubeconfig."""

    url: str
    ca_bundle: str
    token: str
    kubeconfig: dict[str, Any]


@contextmanager
def connectable(*, is_deployed: bool = True) -> Iterator[Connectable]:
    """Yield a cluster without any part of nodesmith, in an account in which the region's stack is deployed."""
    with InMemory(now=lambda: datetime.now(UTC)) as running:
        served = Served(running.url, "", "anybody", running.kubeconfig())
        with connectable_on(served, is_deployed=is_deployed) as made:
            yield made


@contextmanager
def connectable_on(served: Served, *, is_deployed: bool = True) -> Iterator[Connectable]:
    """Yield the same with a running API server."""
    with strict_aws() as strict, eks_access():
        strict.visibility.instances_after = timedelta()  # instances here have run for long
        network = _network()
        _publish_policies()
        stacks = Stacks()
        if is_deployed:
            deploy(stacks)
        arn = _role("cluster")
        config = {"subnetIds": list(network.subnets.values())}
        client("eks").create_cluster(name=CLUSTER, version="1.34", roleArn=arn, resourcesVpcConfig=config)
        cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER]
        cluster.endpoint, cluster.certificate_authority = served.url, {"data": served.ca_bundle}
        cluster.resources_vpc_config = {
            **config,
            "vpcId": network.vpc_id,
            "clusterSecurityGroupId": network.security_group_id,
            "endpointPublicAccess": True,
            "publicAccessCidrs": ["0.0.0.0/0"],
        }
        made = Connectable(
            network,
            ApiServer(connect(served.url, served.ca_bundle, lambda: served.token)),
            stacks,
            Quotas(),
            served.kubeconfig,
        )
        made.meanwhile = made.write_snapshot
        with recorded(made):
            yield made


@contextmanager
def recorded(made: Connectable) -> Iterator[None]:
    """Record the calls of AWS's clients and of the API server's client that may write."""

    def keep(model: Any, **_: Any) -> None:
        if not model.name.startswith(_READING) and model.name != "AssumeRole":
            made.calls.append(model.name)

    services = ("ec2", "eks", "iam", "ssm", "s3", "dynamodb")
    for service in services:
        client(service).meta.events.register("before-call", keep, unique_id="connectable")
    request = ApiServer._request

    def sent(server: ApiServer, method: str, path: str, *rest: Any) -> Any:
        if method != "GET" and "dryRun" not in path and "accessreviews" not in path:
            made.calls.append(f"{method} {path.partition('?')[0]}")
        return request(server, method, path, *rest)  # type: ignore[arg-type]

    ApiServer._request = sent  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        ApiServer._request = request  # type: ignore[method-assign]
        for service in services:
            client(service).meta.events.unregister("before-call", unique_id="connectable")


def deploy(stacks: Stacks, vpc: str = "") -> None:
    """Make those resources of the region's stack that connect reads."""
    deploy_roles(vpc)
    if vpc:
        return
    forwarder = _role(FORWARDER_ROLE)
    outputs = {
        "BucketName": BUCKET,
        "TableName": "nodesmith",
        "ForwarderRoleArn": forwarder,
        "Version": __version__,
        "NodeRoles": "shared-nodes",
    }
    stacks.outputs[f"nodesmith-{REGION}"] = outputs
    client("s3").create_bucket(Bucket=BUCKET)
    client("s3").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    client("dynamodb").create_table(
        TableName="nodesmith",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
        BillingMode="PAY_PER_REQUEST",
    )


def deploy_roles(vpc: str = "") -> None:
    """Make the roles of the functions that call API servers."""
    for concern in TALKING:
        _role(role_name(concern, REGION, vpc))


def _role(name: str) -> str:
    """Register a role with moto and return its ARN: calls for all of a stack's roles take as long as a connect."""
    roles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    made = roles.create_role(name, trust, "/", None, "", [], "3600")
    return str(made.arn)


def _publish_policies() -> None:
    """Register AWS's policies for nodes with moto: loading all of AWS's policies takes a second."""
    for name in NODE_POLICIES:
        made = "2026-01-01T00:00:00+00:00"
        data = {"Path": "/", "CreateDate": made, "UpdateDate": made, "DefaultVersionId": "v1", "Document": {}}
        policy = AWSManagedPolicy.from_data(name, DEFAULT_ACCOUNT_ID, REGION, data)
        iam_backends[DEFAULT_ACCOUNT_ID]["aws"].managed_policies[policy.arn] = policy


def _network() -> Network:
    """Make a VPC without tags on its subnets and security group."""
    network = make_network(client("ec2"), CLUSTER, ("us-east-1a", "us-east-1b"))
    resources = [*network.subnets.values(), network.security_group_id]
    client("ec2").delete_tags(Resources=resources, Tags=[{"Key": "karpenter.sh/discovery"}])
    return network


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON that a command has printed."""
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found
