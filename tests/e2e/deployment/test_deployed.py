"""The deployment as a whole: AWS does what the template says, and forbidden calls are found."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.credentials import Credentials as BotoCredentials

from nodesmith.adapters.aws.eks import eks_token
from nodesmith.model.karpenter.nodepools import REGISTRATION_TIMEOUT
from nodesmith.settings import role_name
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.apiserver import ApiServer
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.functions.sqsclock import queues_run_on
from tests import builders
from tests.e2e.deployed import Deployed
from tests.e2e.deployed.access import Authenticator, Credentials
from tests.e2e.deployed.assembled import NAME, REGION, Edit, changed, cluster_template, unchanged
from tests.e2e.deployed.assembly import Assembly
from tests.patience import eventually
from tests.servers.served import created
from tests.smallworld.world import pod_manifest

WRITER, READER = "nodesmith:writer:{{SessionName}}", "nodesmith:reader:{{SessionName}}"
CA_BUNDLE = base64.b64encode(b"plain HTTP").decode()


@contextmanager
def deployed(folder: Path, speed: float, edit: Edit = unchanged) -> Iterator[Deployed]:
    """Yield a running deployment beside an API server with a NodePool and a pending pod."""
    clock, stopping = LocalClock(speed), threading.Event()
    with (
        queues_run_on(clock, stopping),
        ApiServer(0, custom_resource_definitions(), now=clock.now) as api,
        LocalAws(
            REGION,
            cluster=NAME,
            endpoint=Endpoint(api.url, CA_BUNDLE),
            clock=clock,
            zones=(f"{REGION}a",),
        ) as aws,
    ):
        _populate(api)
        with Deployed(aws, folder / "functions", clock, edit=edit) as deployment:
            yield deployment
            stopping.set()


def _populate(api: ApiServer) -> None:
    terms = [{"tags": {"karpenter.sh/discovery": NAME}}]
    nodeclass = builders.nodeclass_manifest(
        role=f"KarpenterNodeRole-{NAME}", subnetSelectorTerms=terms, securityGroupSelectorTerms=terms
    )
    created(api.store, "ec2nodeclasses", nodeclass)
    nodepool = builders.nodepool_manifest()
    # No instance boots here, so the claim soon times out, and lifecycle records that.
    nodepool["metadata"]["annotations"] = {REGISTRATION_TIMEOUT: "2m"}
    created(api.store, "nodepools", nodepool)
    pod = pod_manifest("web")
    pod["spec"]["containers"][0]["image"] = "web"
    created(api.store, "pods", pod)


def test_the_templates_roles_grant_every_call_that_a_pods_node_needs(folder: Path) -> None:
    with deployed(folder, speed=10) as deployment:
        eventually(lambda: not _uncalled(deployment), tell=lambda: str(_uncalled(deployment)))
        calls = deployment.calls()
        assert deployment.ungranted() == []
        assert deployment.undelivered == []
        assert {feed.failures for feed in deployment.feeds.values()} == {0}, _errors(deployment)
    assert calls["ticks"] == {"lambda:InvokeFunction"}


NEEDED = {
    "provisioning": {
        *("ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "dynamodb:PutItem")
    },
    "lifecycle": {"ec2:DescribeInstances"},
    "readiness": {"iam:CreateInstanceProfile", "iam:PassRole", "ssm:GetParameter"},
    "observation": {"s3:ListBucket", "s3:PutObject", "eks:DescribeCluster"},
    "garbagecollection": {"ec2:DescribeVolumes", "iam:ListInstanceProfiles", "dynamodb:Query"},
    "dispatch": {"ssm:GetParametersByPath", "lambda:InvokeFunction", "sqs:ReceiveMessage"},
}


def _uncalled(deployment: Deployed) -> dict[str, set[str]]:
    """Return the needed actions that have not been called yet, by role."""
    calls = deployment.calls()
    left = {role: needed - set(calls.get(role, ())) for role, needed in NEEDED.items()}
    return {role: actions for role, actions in left.items() if actions}


def test_access_entries_name_functions_users_after_the_cluster_they_work_for(assembly: Assembly) -> None:
    let_in = cluster_template(assembly).of_type("EKS::AccessEntry").values()
    assert {concern_of(each["PrincipalArn"]): each["Username"] for each in let_in} == {
        "disruption": WRITER,
        "lifecycle": WRITER,
        "termination": WRITER,
        "readiness": WRITER,
        "observation": READER,
        "repair": WRITER,
        "garbagecollection": WRITER,
    }


def concern_of(role_arn: str) -> str:
    return role_arn.rpartition("/")[2].removeprefix("nodesmith-").removesuffix(f"-{REGION}")


def test_calls_without_a_grant_are_found_with_their_resource_and_unused_grants_are_listed(
    folder: Path,
) -> None:
    def other_partition(text: str) -> str:
        own = "${aws:PrincipalTag/nodesmith-cluster}"
        return text.replace(f'"CLUSTER#{own}"', '"CLUSTER#other"').replace(
            '"eks:DescribeCluster"', '"eks:ListClusters"'
        )

    with deployed(folder, speed=10, edit=other_partition) as deployment:
        eventually(lambda: any("eks:DescribeCluster" in each for each in deployment.ungranted()))
        eventually(lambda: any("provisioning: dynamodb:Query" in each for each in deployment.ungranted()))
        eventually(lambda: "sqs:ReceiveMessage" in deployment.calls().get("dispatch", ()))
        ungranted, unused = deployment.ungranted(), deployment.unused()
    cluster = f"arn:aws:eks:{REGION}:123456789012:cluster/{NAME}"
    table = f"arn:aws:dynamodb:{REGION}:123456789012:table/nodesmith"
    assert any(
        each.startswith(f"observation: eks:DescribeCluster on {cluster}, session") for each in ungranted
    )
    assert any(each.startswith(f"provisioning: dynamodb:Query on {table}, session") for each in ungranted)
    assert "observation: eks:ListClusters" in unused
    assert not [each for each in unused if "logs:" in each or "sqs:ReceiveMessage" in each]


def _errors(deployment: Deployed) -> dict[str, str]:
    return {name: feed.last_error for name, feed in deployment.feeds.items()}


def test_the_event_of_a_killed_function_is_delivered_again(folder: Path) -> None:
    once = changed("AWS::Scheduler::Schedule", "Tickerdispatch", ScheduleExpression="rate(1 day)")
    with deployed(folder, speed=20, edit=once) as deployment:
        events = deployment.feeds["observation"]
        eventually(lambda: deployment.kill("observation"))  # as it starts
        eventually(lambda: events.failures > 0)
        assert "ExitError" in events.last_error
        eventually(lambda: "s3:PutObject" in deployment.calls().get("observation", ()))


# Tokens

ROLE = f"arn:aws:iam::123456789012:role/{role_name('lifecycle', REGION)}"
SIGNER = Credentials(ROLE, NAME, "ASIALIFECYCLE", "secret", "session token/+=")


def token(cluster: str = NAME, signer: Credentials = SIGNER, region: str = REGION) -> str:
    return eks_token(BotoCredentials(signer.access_key, signer.secret, signer.token), cluster, region)


def authenticator(
    assembly: Assembly, later: timedelta = timedelta(), signer: Credentials = SIGNER
) -> Authenticator:
    known = {signer.access_key: signer}
    return Authenticator(cluster_template(assembly), NAME, known.get, now=lambda: datetime.now(UTC) + later)


def test_a_functions_token_authenticates_it_as_its_access_entrys_user_without_groups(
    assembly: Assembly,
) -> None:
    assert authenticator(assembly).authenticate(token()) == (f"nodesmith:writer:{NAME}", ())


def test_a_function_has_another_user_in_its_session_for_another_cluster(assembly: Assembly) -> None:
    other = replace(SIGNER, session="another")
    user = authenticator(assembly, signer=other).authenticate(token(signer=other))
    assert user == ("nodesmith:writer:another", ())


@pytest.mark.parametrize(
    "presented",
    [
        "",
        "k8s-aws-v1.",
        "k8s-aws-v1.bm8gdXJs",
        "k8s-aws-v2." + token().partition(".")[2],
        token(cluster="another"),
        token(signer=replace(SIGNER, secret="guessed")),
        token(signer=replace(SIGNER, access_key="ASIAUNKNOWN")),
    ],
    ids=["none", "prefix", "no URL", "other prefix", "other cluster", "wrong secret", "unknown key"],
)
def test_an_invalid_token_is_refused(assembly: Assembly, presented: str) -> None:
    assert authenticator(assembly).authenticate(presented) is None


def test_a_token_is_valid_for_fifteen_minutes(assembly: Assembly) -> None:
    assert authenticator(assembly, timedelta(minutes=14)).authenticate(token())
    assert authenticator(assembly, timedelta(minutes=16)).authenticate(token()) is None


def test_a_role_without_an_access_entry_is_refused(assembly: Assembly) -> None:
    buyer = replace(SIGNER, role_arn=ROLE.replace("lifecycle", "provisioning"))
    assert authenticator(assembly, signer=buyer).authenticate(token(signer=buyer)) is None
