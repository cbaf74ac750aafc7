"""The deployed functions in Lambda's runtime, with AWS and an API server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from moto.ec2 import ec2_backends
from moto.sqs import sqs_backends

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.dynamodb.regionitems import DynamoRegionNotices
from nodesmith.adapters.kubernetes.apiserver import ApiServer as ApiClient
from nodesmith.adapters.kubernetes.apiserver import connect
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.keys import catalog_key, metrics_key, snapshot_key
from nodesmith.model.functions import Concern, DelayedInvocation, Hint, hints_payload
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.observation.decoding import decode
from nodesmith.registration import Registration
from nodesmith.settings import QUEUE_NAME, role_name
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_forwarder.forwarder import Forwarder
from nodesmith_local.apiserver import ApiServer
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.functions.deployment import ACCOUNT_ID, TABLE_NAME, Deployment, deploy, register
from tests import builders
from tests.awscalls.acting import Role, access_key, acting
from tests.fakes.heartbeats import FakeHeartbeats
from tests.fakes.hints import FakeHints
from tests.processes.accepted import Accepted, accepting
from tests.processes.lambdaruntime import LambdaFunction
from tests.processes.runtimeapi import Answer
from tests.servers.served import created, now
from tests.smallworld.world import pod_manifest

CLUSTER = "functions"
REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
MOST_MODULES = 236
"""Of nodesmith's own, that provisioning may import. Each adds a third of a millisecond to a cold start."""
SECRETS = ("s3cr3t-user-data", "s3cr3t-argument")
HINT = Hint(CLUSTER, "test").to_document()
CA_BUNDLE = base64.b64encode(b"plain HTTP").decode()


@dataclass
class Run:
    """One function's run in the scenario below."""

    answers: list[Answer] = field(default_factory=list)
    said: str = ""
    imported: frozenset[str] = frozenset()


@dataclass
class Site:
    """AWS and the cluster, and the runs of each function."""

    aws: LocalAws
    api: ApiServer
    deployment: Deployment
    folder: Path
    accepted: Mapping[Concern, Accepted]
    runs: dict[str, Run] = field(default_factory=dict)
    leaked: str = ""

    def run(
        self,
        concern: str,
        *batches: tuple[object, ...],
        settings: Mapping[str, str] | None = None,
        **environment: str,
    ) -> Run:
        """Start a function, send it events with these messages one after another, and stop it.

        `settings` are those in the cluster's registration.
        """
        # One node for all pods, so that the tests know what to expect.
        own = {"FRAGILITY_TOLERANCE": "0", **(settings or {})}
        register(self.aws.client, Registration(CLUSTER, self.aws.network.vpc_id, ("nodes",), settings=own))
        variables = {
            **self.aws.environment,
            **self.deployment.environment(),
            "AWS_ACCESS_KEY_ID": access_key(Role(concern, "", REGION)),
            "SESSION_ROLE_ARN": f"arn:aws:iam::{ACCOUNT_ID}:role/{role_name(concern, REGION)}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "POWERTOOLS_TRACE_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **environment,
        }
        place = self.folder / f"{concern}-{len(list(self.folder.iterdir()))}"
        run = Run()
        with LambdaFunction(concern, place, variables) as function:
            run.answers = [function.invoke_with(*batch) for batch in batches]
        run.said, run.imported = function.said(), function.imported()
        return run

    def ledger(self) -> DynamoStore:
        return DynamoStore(self.aws.client("dynamodb"), TABLE_NAME, CLUSTER, now)

    def keep(self, *events: str) -> None:
        """Store events for the cluster, as routing does."""
        notices = DynamoRegionNotices(self.aws.client("dynamodb"), TABLE_NAME, now)
        for number, event in enumerate(events):
            notices.keep(CLUSTER, str(number), event, ACCOUNT_ID)

    def delayed(self) -> str:
        """Return the only delayed invocation, regardless of its delay."""
        queue = sqs_backends[ACCOUNT_ID][REGION].get_queue(QUEUE_NAME)
        (message,) = queue._messages
        return str(message.body)

    def blob(self, key: str) -> bytes:
        found: bytes = self.aws.client("s3").get_object(Bucket=self.deployment.bucket, Key=key)["Body"].read()
        return found

    def instances(self) -> list[Mapping[str, Any]]:
        self.aws.strict.visibility.settle()
        found = self.aws.client("ec2").describe_instances()["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A deployed cluster with two pending pods, for which every function has run once, in order."""
    with (
        ApiServer(0, custom_resource_definitions(), now=now) as api,
        LocalAws(REGION, cluster=CLUSTER, endpoint=Endpoint(api.url, CA_BUNDLE), zones=ZONES) as aws,
    ):
        aws.ensure_role("nodes")
        deployment = deploy(aws.client, REGION)
        accepted = accepting(aws.lambdas, REGION)
        made = Site(aws, api, deployment, tmp_path_factory.mktemp("lambda"), accepted)
        _populate(api)
        made.runs["observation"] = made.run("observation", (HINT,))
        made.runs["readiness"] = made.run("readiness", (HINT,))
        made.runs["observation again"] = made.run(
            "observation", (HINT,), settings={"HEARTBEAT_STALE_SECONDS": "0"}
        )
        made.runs["readiness again"] = made.run("readiness", (HINT,))
        made.runs["provisioning"] = made.run("provisioning", (HINT, HINT), ("no JSON", HINT))
        made.runs["lifecycle"] = made.run("lifecycle", (HINT,))
        made.keep("no JSON", builders.spot_warning("i-00000001", now()))
        made.runs["interruption"] = made.run("interruption", (HINT,), ("no JSON", HINT))
        made.leaked = _leaked(aws)
        made.runs["disruption"] = made.run("disruption", (HINT,))
        made.runs["repair"] = made.run("repair", (HINT,))
        made.runs["garbagecollection"] = made.run("garbagecollection", (HINT, HINT))
        yield made


def _leaked(aws: LocalAws) -> str:
    """Launch an instance with all of our tags, and backdate it by an hour, for which moto has no API."""
    tags = {
        f"kubernetes.io/cluster/{CLUSTER}": "owned",
        "eks:eks-cluster-name": CLUSTER,
        "nodesmith.dev/managed-by": CLUSTER,
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/nodeclaim": "default-forgotten",
    }
    ec2 = aws.client("ec2")
    (image, *_) = ec2.describe_images(Owners=["602401143452"])["Images"]
    specification = {
        "ResourceType": "instance",
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    made = ec2.run_instances(
        ImageId=image["ImageId"], MinCount=1, MaxCount=1, TagSpecifications=[specification]
    )
    leaked: str = made["Instances"][0]["InstanceId"]
    launched_at = datetime.now(UTC) - timedelta(hours=1)
    instance: Any = ec2_backends[ACCOUNT_ID][REGION].get_instance(leaked)
    instance.launch_time = launched_at.replace(tzinfo=None)  # moto has naive times
    return leaked


def _populate(api: ApiServer) -> None:
    nodeclass = builders.nodeclass_manifest(
        userData=f"#!/bin/bash\necho {SECRETS[0]}",
        subnetSelectorTerms=[{"tags": {"karpenter.sh/discovery": CLUSTER}}],
        securityGroupSelectorTerms=[{"tags": {"karpenter.sh/discovery": CLUSTER}}],
    )
    created(api.store, "ec2nodeclasses", nodeclass)
    created(api.store, "nodepools", builders.nodepool_manifest())
    for name in ("web-0", "web-1"):
        pod = pod_manifest(name)
        pod["spec"]["containers"][0] |= {"image": "web", "args": [f"--token={SECRETS[1]}"]}
        created(api.store, "pods", pod)


def conditions(obj: Mapping[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in obj["status"]["conditions"]}


@pytest.mark.parametrize(
    "concern",
    [
        "observation",
        "readiness",
        "observation again",
        "readiness again",
        "provisioning",
        "lifecycle",
        "interruption",
        "disruption",
        "repair",
        "garbagecollection",
    ],
)
def test_a_batch_of_messages_is_processed_without_error(site: Site, concern: str) -> None:
    run = site.runs[concern]
    assert [a.error for a in run.answers] == [""] * len(run.answers), run.said[-3000:]


def test_observation_writes_the_snapshot_that_the_forwarder_would_write(site: Site) -> None:
    snapshot = decode(site.blob(snapshot_key(CLUSTER)))
    assert [pod.key for pod in snapshot.pods] == ["default/web-0", "default/web-1"]
    assert len(snapshot.nodepools) == len(snapshot.nodeclasses) == 1


def test_readiness_resolves_the_nodeclass_into_the_ledger_and_onto_the_object(site: Site) -> None:
    status = site.ledger().load().nodeclasses["default"]
    assert status.is_ready
    assert {subnet.zone for subnet in status.subnets} == set(ZONES)
    shown = site.api.store.get("ec2nodeclasses", "default")
    assert conditions(shown)["Ready"] == "True"
    assert {i["id"] for i in shown["status"]["amis"]} == {image.id for image in status.images}


def test_readiness_writes_nothing_if_the_objects_are_up_to_date(site: Site) -> None:
    assert '"StatusesWritten"' in site.runs["readiness"].said
    assert '"StatusesWritten"' not in site.runs["readiness again"].said


def test_provisioning_buys_one_instance_with_its_claims_tag(site: Site) -> None:
    (claim,) = site.ledger().load().claims
    (instance,) = (each for each in site.instances() if each["InstanceId"] != site.leaked)
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["karpenter.sh/nodeclaim"] == claim.name
    assert (claim.phase, claim.instance_id) == (Phase.LAUNCHED, instance["InstanceId"])
    assert claim.nominated == ("default/web-0", "default/web-1")
    assert site.aws.seam.calls["CreateFleet"] == 1


def test_provisioning_sends_lifecycle_a_hint(site: Site) -> None:
    woken = {hint.cluster for hint in site.accepted[Concern.LIFECYCLE].hints}
    assert woken == {CLUSTER}


def test_lifecycle_shows_the_claim_on_the_api_server(site: Site) -> None:
    (claim,) = site.ledger().load().claims
    shown = site.api.store.get("nodeclaims", claim.name)
    assert conditions(shown)["Launched"] == "True"
    assert shown["status"]["providerID"] == claim.provider_id


def test_garbage_collection_terminates_only_the_instance_that_is_not_in_the_ledger(site: Site) -> None:
    states = {each["InstanceId"]: each["State"]["Name"] for each in site.instances()}
    assert states.pop(site.leaked) == "terminated"
    assert list(states.values()) == ["pending"]
    assert f'"collected":["{site.leaked}"]' in site.runs["garbagecollection"].said
    assert '"InstancesUnclaimed":1' in site.runs["garbagecollection"].said
    assert site.api.store.get("nodeclaims", site.ledger().load().claims[0].name)


def test_provisioning_never_imports_what_calls_the_api_server(site: Site) -> None:
    imported = site.runs["provisioning"].imported
    assert {"nodesmith.controllers.provisioning", "botocore.client"} <= imported
    assert [name for name in imported if name.startswith("nodesmith.adapters.kubernetes.")] == []


def test_provisioning_starts_with_few_modules_and_buys_for_few_pods_without_numpy(site: Site) -> None:
    imported = site.runs["provisioning"].imported
    assert sum(name.startswith("nodesmith.") for name in imported) <= MOST_MODULES
    assert {"highspy", "numpy"} & imported == set()


def test_no_function_imports_the_official_kubernetes_client(site: Site) -> None:
    assert "nodesmith.adapters.kubernetes.connection" in site.runs["lifecycle"].imported
    for run in site.runs.values():
        assert [name for name in run.imported if name.split(".")[0] == "kubernetes"] == []


def test_the_forwarder_serves_the_functions_metrics_to_prometheus(site: Site) -> None:
    lines = served_metrics(site)
    asked = 'karpenter_cloudprovider_duration_seconds_count{controller="%s",method="%s",provider="aws"} 1.0'
    assert asked % ("provisioner", "Create") in lines
    assert asked % ("nodeclaim.garbagecollection", "List") in lines
    decided = 'karpenter_scheduler_scheduling_duration_seconds_count{controller="provisioner"}'
    assert f"{decided} 1.0" in lines
    site.run("provisioning", (HINT,))  # in a separate process, in which the pods wait for their node
    lines = served_metrics(site)
    assert f"{decided} 2.0" in lines
    assert len([line for line in lines if line.startswith(PRICE)]) > 100
    assert len(json.loads(site.blob(metrics_key(CLUSTER, "provisioning")))["writers"]) == 2


PRICE = "karpenter_cloudprovider_instance_type_offering_price_estimate{"
ANSWERS = 30


def served_metrics(site: Site) -> list[str]:
    """Return the metrics that a newly started forwarder serves with its own permissions, once it has read all of them.

    An answer waits a second for S3, which a busy machine may exceed; prices are read last.
    """
    client = acting(site.aws.client, Role("forwarder", CLUSTER, REGION))
    bucket = S3Blobs(client("s3"), site.deployment.bucket)
    server = ApiClient(connect(site.api.url, "", lambda: "token"))
    forwarder = Forwarder(CLUSTER, server, bucket, FakeHints(), FakeHeartbeats(), LocalClock())
    answers = (forwarder.metrics().decode().splitlines() for _ in range(ANSWERS))
    return next((lines for lines in answers if any(line.startswith(PRICE) for line in lines)), [])


def test_a_message_that_is_not_a_hint_is_logged_and_the_others_are_processed(site: Site) -> None:
    assert (
        "expected an object with the text field 'cluster', found 'no JSON'" in site.runs["provisioning"].said
    )


def test_a_message_for_a_cluster_that_is_not_registered_is_logged_and_acknowledged(site: Site) -> None:
    run = site.run("provisioning", (Hint("another").to_document(),))
    assert [a.error for a in run.answers] == [""]
    assert "cluster 'another' is not registered" in run.said
    assert '"message":"done"' not in run.said


def test_a_run_with_a_transient_error_is_queued_for_a_retry(site: Site) -> None:
    run = site.run("provisioning", (HINT,), AWS_ENDPOINT_URL_S3="http://127.0.0.1:9")
    assert [a.error for a in run.answers] == [""]
    assert '"failed"' in run.said
    body = site.delayed()
    assert DelayedInvocation.from_json(body) == DelayedInvocation(
        Concern.PROVISIONING, "", hints_payload([Hint(CLUSTER, "test", attempt=1)])
    )


def test_a_run_whose_retry_cannot_be_queued_is_raised_so_that_lambda_retries_it(site: Site) -> None:
    nowhere = "http://127.0.0.1:9"
    run = site.run("provisioning", (HINT,), AWS_ENDPOINT_URL_S3=nowhere, AWS_ENDPOINT_URL_SQS=nowhere)
    assert [a.error.split(":")[0] for a in run.answers] == ["Transient"]


def test_a_damaged_snapshot_is_logged_and_acknowledged(site: Site) -> None:
    whole = site.blob(snapshot_key(CLUSTER))
    s3 = site.aws.client("s3")
    s3.put_object(Bucket=site.deployment.bucket, Key=snapshot_key(CLUSTER), Body=whole[: len(whole) // 2])
    try:
        run = site.run("provisioning", (HINT,))
    finally:
        s3.put_object(Bucket=site.deployment.bucket, Key=snapshot_key(CLUSTER), Body=whole)
    assert [a.error for a in run.answers] == [""]
    assert '"rejected"' in run.said
    assert "snapshot" in run.said


def test_a_function_without_its_settings_names_the_missing_ones(site: Site) -> None:
    run = site.run("lifecycle", (HINT,), TABLE_NAME="", QUEUE_URL="")
    assert "TABLE_NAME, QUEUE_URL not set" in run.answers[0].error


def test_the_catalogue_is_refreshed_by_a_schedule_without_a_message(site: Site) -> None:
    run = site.run("catalog", (), ISOLATED_VPC="true")
    assert [a.error for a in run.answers] == [""], run.said[-3000:]
    assert len(site.blob(catalog_key(REGION))) > 10_000
    assert len(embedded_catalog(REGION).facts) > 500


def test_logs_contain_no_user_data_arguments_or_tokens(site: Site) -> None:
    said = "\n".join(run.said for run in site.runs.values())
    assert said.count('"message":"done"') >= 5
    assert [secret for secret in (*SECRETS, "k8s-aws-v1.") if secret in said] == []
    assert '"spec"' not in said
    assert '"userData"' not in said


def test_interruption_reads_ec2s_state_and_drops_events_of_other_instances(site: Site) -> None:
    run = site.runs["interruption"]
    assert "expected a JSON object, found 'no JSON'" in run.said
    assert '"NoticesOfOthers":1' in run.said
    assert "SweepsFailed" not in run.said
    assert [name for name in run.imported if name.startswith("nodesmith.adapters.kubernetes.")] == []


def test_an_interrupted_instance_is_replaced_by_the_run_that_reads_the_notice(site: Site) -> None:
    """Must run last, because it changes the state that other tests check."""
    (claim,) = site.ledger().load().claims
    site.keep(builders.spot_warning(claim.instance_id, now()))
    run = site.run("interruption", (HINT,))
    assert [answer.error for answer in run.answers] == [""]
    claims = {each.name: each for each in site.ledger().load().claims}
    assert claims[claim.name].cause == "SpotInterrupted"
    assert '"SpotInterrupted":1' in run.said
