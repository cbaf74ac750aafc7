"""`nodesmith connect` with moto and an in-memory API server."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from typer.testing import CliRunner

from nodesmith import __version__
from nodesmith.errors import Rejected
from nodesmith.model.functions import TALKING
from nodesmith.registration import parameter_name, read_registration
from nodesmith.settings import role_name
from nodesmith_cli.access.awssession import AwsSession
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.connectcommand import ConnectOptions
from nodesmith_cli.connecting.connectcommand import connect as connect_cluster
from nodesmith_cli.connecting.images import push as push_to
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.connecting.reading.cluster import image_of
from nodesmith_cli.connecting.request import ConnectRequest
from nodesmith_cli.main import app
from nodesmith_formats.localsystem.contexts import kubeconfig_of
from tests.aws.account import REGION, client
from tests.aws.connectable import (
    CLUSTER,
    CRDS,
    IMAGE,
    PODS,
    Connectable,
    connectable,
    deploy,
    deploy_roles,
    printed,
)
from tests.contract.worlds import lease
from tests.objects.foreign import karpenters_deployment
from tests.samples import sampled

REGISTRATION = parameter_name(CLUSTER)
Json = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[Connectable]:
    with connectable() as made:
        yield made


def checks(report: Json, severity: str = "error") -> list[str]:
    return [each["check"] for each in report["findings"] if each["severity"] == severity]


def refused(capsys: pytest.CaptureFixture[str], cluster: Connectable, **wanted: Any) -> Json:
    """Run connect with a problem, and check that nothing was written."""
    cluster.calls.clear()
    assert cluster.run(**wanted) == 1
    assert cluster.calls == []
    return printed(capsys)


@contextmanager
def denied(service: str, operation: str, message: str) -> Iterator[None]:
    """Make AWS deny one operation."""

    with answered(service, operation, 403, "AccessDeniedException", message):
        yield


@contextmanager
def answered(service: str, operation: str, status: int, code: str, message: str) -> Iterator[None]:
    """Make AWS answer one operation with an error."""

    def answer(**_: Any) -> Any:
        http = type("Http", (), {"status_code": status})()
        error = {"Code": code, "Message": message}
        return http, {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}

    event = f"before-call.{service}.{operation}"
    client(service).meta.events.register(event, answer, unique_id=event)
    try:
        yield
    finally:
        client(service).meta.events.unregister(event, unique_id=event)


def test_a_cluster_is_connected_and_connecting_it_again_writes_nothing(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run() == 0
    assert printed(capsys)["state"] == "connected"
    cluster.calls.clear()
    assert cluster.run() == 0
    report = printed(capsys)
    assert {row["standing"] for row in report["rows"]} == {"present"}
    assert cluster.calls == []


def test_the_registration_is_written_after_all_else_in_aws_and_before_the_cluster(
    cluster: Connectable,
) -> None:
    cluster.run()
    written = cluster.calls.index("PutParameter")
    assert not [call for call in cluster.calls[:written] if "/" in call]
    # The forwarder's.
    assert [call for call in cluster.calls[written + 1 :] if "/" not in call] == ["PutObject"]
    text = client("ssm").get_parameter(Name=REGISTRATION)["Parameter"]["Value"]
    found = read_registration(CLUSTER, text)
    assert (found.vpc_id, found.node_roles) == (cluster.network.vpc_id, ("KarpenterNodeRole-web",))


def test_functions_get_usernames_with_their_session_name(cluster: Connectable) -> None:
    cluster.run()
    users = {}
    for principal in client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]:
        entry = client("eks").describe_access_entry(clusterName=CLUSTER, principalArn=principal)[
            "accessEntry"
        ]
        users[principal.rpartition("/")[2]] = (entry["type"], entry["username"], entry["kubernetesGroups"])
    writers = ("disruption", "lifecycle", "termination", "readiness", "repair", "garbagecollection")
    assert users.pop("KarpenterNodeRole-web")[0] == "EC2_LINUX"
    assert users == {
        **{role_name(each, REGION): ("STANDARD", "nodesmith:writer:{{SessionName}}", []) for each in writers},
        role_name("observation", REGION): ("STANDARD", "nodesmith:reader:{{SessionName}}", []),
    }


def test_connect_repairs_what_is_broken_and_changes_nothing_else(cluster: Connectable) -> None:
    cluster.run()
    eks = client("eks")
    lifecycle, repair = (
        f"arn:aws:iam::123456789012:role/{role_name(each, REGION)}" for each in ("lifecycle", "repair")
    )
    eks.update_access_entry(clusterName=CLUSTER, principalArn=lifecycle, username="someone")
    eks.delete_access_entry(clusterName=CLUSTER, principalArn=repair)
    cluster.server.patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodesmith-writer", {"rules": []})
    cluster.server.delete(f"{CRDS}/provisioners.karpenter.sh")
    cluster.calls.clear()
    assert cluster.run() == 0
    assert sorted(cluster.calls) == [
        "CreateAccessEntry",
        f"PATCH {CRDS}/provisioners.karpenter.sh",
        "PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/nodesmith-writer",
        "PutObject",
        "UpdateAccessEntry",
    ]


WATCHED = parameter_name(CLUSTER, observed=True)


def test_an_observed_cluster_is_only_read(cluster: Connectable, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.run(observes=True) == 0
    assert printed(capsys)["state"] == "connected"
    names = [each["Name"] for each in client("ssm").describe_parameters()["Parameters"]]
    assert WATCHED in names
    assert REGISTRATION not in names
    entries = client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]
    assert [each.rpartition("/")[2] for each in entries] == [role_name("observation", REGION)]
    server = cluster.server
    roles = (server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles") or {})["items"]
    ours = [each for each in roles if each["metadata"]["name"].startswith("nodesmith")]
    assert {verb for each in ours for rule in each["rules"] for verb in rule["verbs"]} == {
        "get",
        "list",
        "watch",
    }
    settings = (server.get("/api/v1/namespaces/nodesmith/configmaps") or {})["items"]
    assert [each["data"]["OBSERVE"] for each in settings] == ["true"]
    cluster.calls.clear()
    assert cluster.run(observes=True) == 0
    assert cluster.calls == []


def test_connecting_an_observed_cluster_without_the_option_has_it_served_and_warns_of_that(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run(observes=True, settings={"RESERVED_ENIS": "1"}) == 0
    capsys.readouterr()
    assert cluster.run(is_dry=True) == 0
    (found,) = (each for each in printed(capsys)["findings"] if each["check"] == "registration")
    assert (found["severity"], found["remedy"]) == (
        "warning",
        f"to keep it observed: nodesmith connect {CLUSTER} --observe",
    )
    assert cluster.run() == 0
    assert "will serve it" in capsys.readouterr().out
    cluster.run()
    assert "will serve it" not in capsys.readouterr().out
    names = [each["Name"] for each in client("ssm").describe_parameters()["Parameters"]]
    assert REGISTRATION in names
    assert WATCHED not in names
    text = client("ssm").get_parameter(Name=REGISTRATION)["Parameter"]["Value"]
    assert read_registration(CLUSTER, text).settings == {"RESERVED_ENIS": "1"}
    entries = client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]
    assert len(entries) > 7


def test_an_observed_cluster_is_examined_and_disconnected_like_a_served_one(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run(observes=True) == 0
    capsys.readouterr()
    cluster.examine()
    report = printed(capsys)
    assert not [
        each
        for each in report["findings"]
        if each["check"] in ("registration", "connection", "function-role")
    ]
    assert cluster.leave() == 0
    names = [each["Name"] for each in client("ssm").describe_parameters()["Parameters"]]
    assert WATCHED not in names
    assert client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"] == []


def test_remedies_for_an_observed_cluster_leave_it_observed(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run(observes=True) == 0
    (reader,) = client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]
    client("eks").delete_access_entry(clusterName=CLUSTER, principalArn=reader)
    client("ssm").put_parameter(Name=WATCHED, Value="{", Type="String", Overwrite=True)
    capsys.readouterr()
    assert cluster.examine() == 1
    found = {each["check"]: each for each in printed(capsys)["findings"]}
    assert found["connection"]["remedy"] == f"nodesmith connect {CLUSTER} --observe"
    assert found["registration"]["remedy"].startswith(f"nodesmith connect {CLUSTER} --observe,")
    assert found["registration"]["object"] == f"registration {WATCHED}"


def test_a_served_cluster_cannot_be_observed(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run() == 0
    capsys.readouterr()
    report = refused(capsys, cluster, observes=True)
    (finding,) = [each for each in report["findings"] if each["check"] == "registration"]
    assert finding["found"].startswith("nodesmith serves it, so it cannot be only observed")
    assert "leave out --observe" in finding["remedy"]


def test_a_changed_setting_changes_the_registration_alone(cluster: Connectable) -> None:
    cluster.run(settings={"RESERVED_ENIS": "1"})
    cluster.calls.clear()
    assert cluster.run(settings={"PREFIX_DELEGATION": "true"}) == 0
    assert cluster.calls == ["PutParameter", "PutObject"]
    text = client("ssm").get_parameter(Name=REGISTRATION)["Parameter"]["Value"]
    assert read_registration(CLUSTER, text).settings == {"RESERVED_ENIS": "1", "PREFIX_DELEGATION": "true"}
    cluster.run(settings={"RESERVED_ENIS": ""})
    text = client("ssm").get_parameter(Name=REGISTRATION)["Parameter"]["Value"]
    assert read_registration(CLUSTER, text).settings == {"PREFIX_DELEGATION": "true"}


def test_a_dry_run_shows_what_would_be_created_and_creates_nothing(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run(is_dry=True) == 0
    report = printed(capsys)
    assert report["state"] == "planned"
    assert {"CRDs", "role KarpenterNodeRole-web"} <= {
        row["object"] for row in report["rows"] if row["standing"] == "will be made"
    }
    assert cluster.calls == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("calls", sampled((6, 19), whole=(1, 6, 12, 19, 24)))
def test_an_interrupted_connect_is_continued_by_the_next_run(cluster: Connectable, calls: int) -> None:
    class CutOff(BaseException):
        pass

    def stop(*_: Any, **__: Any) -> None:
        if len(cluster.calls) > calls:
            raise CutOff

    for service in ("eks", "iam", "ssm", "ec2", "s3"):
        client(service).meta.events.register("before-call", stop, unique_id="cut-off")
    try:
        with pytest.raises(CutOff):
            cluster.run()
    finally:
        for service in ("eks", "iam", "ssm", "ec2", "s3"):
            client(service).meta.events.unregister("before-call", unique_id="cut-off")
    assert cluster.run() == 0
    cluster.calls.clear()
    assert cluster.run() == 0
    assert cluster.calls == []


def test_two_concurrent_runs_connect_the_cluster_once(
    cluster: Connectable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second run finishes while the first waits for confirmation, so the planned resources already exist."""

    def confirm(_: str) -> bool:
        return cluster.run() == 0

    monkeypatch.setattr(typer, "confirm", confirm)
    how = ConnectOptions("table", timeout=timedelta(minutes=1))
    assert connect_cluster(ConnectRequest(CLUSTER, image=IMAGE), cluster.around(), how) == 0
    cluster.calls.clear()
    capsys.readouterr()
    assert cluster.run() == 0
    assert cluster.calls == []


def test_throttled_calls_are_retried(cluster: Connectable) -> None:
    left = {"CreateAccessEntry": 2, "PutParameter": 1}

    def throttle(request: Any, event_name: str, **_: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        if not left.get(operation):
            return None
        left[operation] -= 1
        body = b'{"__type": "ThrottlingException", "message": "Rate exceeded"}'
        headers = HTTPHeaders()
        headers["x-amzn-ErrorType"] = "ThrottlingException"

        class Raw:
            def stream(self, **_: Any) -> Iterator[bytes]:
                yield body

        return AWSResponse(request.url, 429, headers, Raw())

    for service in ("eks", "ssm"):
        client(service).meta.events.register_first("before-send", throttle, unique_id="throttle")
    try:
        assert cluster.run() == 0
    finally:
        for service in ("eks", "ssm"):
            client(service).meta.events.unregister("before-send", unique_id="throttle")
    assert set(left.values()) == {0}


# Bad input


def test_an_unknown_cluster_is_answered_with_a_similar_name(cluster: Connectable) -> None:
    around, how = cluster.around(), ConnectOptions("json", is_asked=False)
    with pytest.raises(Rejected, match=r"there is no cluster 'webb' in us-east-1, did you mean 'web'\?"):
        connect_cluster(ConnectRequest("webb"), around, how)
    with pytest.raises(Rejected, match="there is no cluster 'production' in us-east-1; clusters: web"):
        connect_cluster(ConnectRequest("production"), around, how)


def test_a_cluster_in_another_region_is_found_in_the_kubeconfig(
    cluster: Connectable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("name: arn:aws:eks:eu-west-1:123456789012:cluster/shop\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(
        Rejected, match="your kubeconfig has one of that name in eu-west-1: use --region eu-west-1"
    ):
        connect_cluster(ConnectRequest("shop"), cluster.around(), ConnectOptions("json", is_asked=False))


def test_a_kubeconfig_of_another_cluster_is_refused(cluster: Connectable, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig_of("other", "https://other.eks.amazonaws.com")))
    around = cluster.around(kubeconfig=str(file))
    with pytest.raises(Rejected, match=r"is for the API server https://other.*aws eks update-kubeconfig"):
        connect_cluster(ConnectRequest(CLUSTER, image=IMAGE), around, ConnectOptions("json", is_asked=False))
    assert cluster.calls == []


def test_a_kubeconfig_of_the_cluster_is_used(cluster: Connectable, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(cluster.kubeconfig))
    around = cluster.around(kubeconfig=str(file))
    assert (
        connect_cluster(ConnectRequest(CLUSTER, image=IMAGE), around, ConnectOptions("json", is_asked=False))
        == 0
    )


def test_entries_are_made_again_after_the_region_was_deployed_again(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    names = [role_name(concern, REGION) for concern in TALKING]
    for name in names:
        client("iam").delete_role(RoleName=name)
    deploy_roles()
    capsys.readouterr()
    assert cluster.examine() == 1
    assert "older than the role" in capsys.readouterr().out
    cluster.calls.clear()
    cluster.stacks.outputs[f"nodesmith-{REGION}-{CLUSTER}"] = {}
    (found,) = (each for each in refused(capsys, cluster)["findings"] if each["check"] == "cdk")
    assert "destroy nodesmith-us-east-1-web, then" in found["remedy"]
    del cluster.stacks.outputs[f"nodesmith-{REGION}-{CLUSTER}"]
    assert cluster.run() == 0
    written = [call for call in cluster.calls if call.endswith("AccessEntry")]
    assert written == ["DeleteAccessEntry", "CreateAccessEntry"] * len(names)
    cluster.calls.clear()
    assert cluster.run() == 0
    assert cluster.calls == []


def test_a_cluster_without_access_entries_is_only_switched_on_request(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.access.mode = "CONFIG_MAP"
    report = refused(capsys, cluster)
    (found,) = [each for each in report["findings"] if each["check"] == "authentication-mode"]
    assert "update-cluster-config" in found["remedy"]
    assert "cannot be undone" in found["remedy"]
    assert cluster.run(is_to_switch_mode=True) == 0
    assert cluster.access.mode == "API_AND_CONFIG_MAP"


def test_all_missing_permissions_are_reported_at_once(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    user = "User: arn:aws:iam::123456789012:user/me is not authorized to perform:"
    parameter = f"arn:aws:ssm:us-east-1:123456789012:parameter{REGISTRATION}"
    with (
        denied("ssm", "GetParameter", f"{user} ssm:GetParameter on resource: {parameter} because no policy"),
        denied("ec2", "DescribeSubnets", "You are not authorized to perform this operation."),
    ):
        report = refused(capsys, cluster)
    assert [each["found"] for each in report["findings"] if each["check"] == "rights"] == [
        f"you are not allowed to call ssm:GetParameter on {parameter}",
        "you are not allowed to call ec2:DescribeSubnets on *",
    ]


def test_a_permission_missing_midway_is_reported_and_the_next_run_continues(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    parameter = f"arn:aws:ssm:us-east-1:123456789012:parameter{REGISTRATION}"
    user = "User: arn:aws:iam::123456789012:user/me is not authorized to perform:"
    with (
        denied("ssm", "PutParameter", f"{user} ssm:PutParameter on resource: {parameter} because no policy"),
        pytest.raises(Rejected, match=f"you are not allowed to call ssm:PutParameter on {parameter}"),
    ):
        cluster.run()
    assert not [call for call in cluster.calls if "/" in call]
    assert "not created registration /nodesmith/clusters/web" in capsys.readouterr().err
    assert cluster.run() == 0


def test_a_private_endpoint_needs_a_vpc_that_is_deployed(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.eks().resources_vpc_config |= {"endpointPublicAccess": False, "endpointPrivateAccess": True}
    assert checks(refused(capsys, cluster)) == ["endpoint"]
    assert checks(refused(capsys, cluster, vpc="shared")) == ["vpc"]
    deploy(cluster.stacks, "shared")
    assert cluster.run(vpc="shared") == 0
    text = client("ssm").get_parameter(Name=REGISTRATION)["Parameter"]["Value"]
    assert read_registration(CLUSTER, text).reached_from == "shared"
    principals = client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]
    assert f"arn:aws:iam::123456789012:role/{role_name('lifecycle', REGION, 'shared')}" in principals


def test_a_missing_regional_stack_is_reported_with_the_deploy_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with connectable(is_deployed=False) as cluster:
        report = refused(capsys, cluster)
    (found,) = [each for each in report["findings"] if each["check"] == "stack"]
    assert found["remedy"].endswith("infra.cdk deploy nodesmith-us-east-1")


def test_a_node_role_must_exist_and_be_passable(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    report = refused(capsys, cluster, node_role="my-nodes")
    assert [each["found"] for each in report["findings"] if each["check"] == "node-role"] == [
        "does not exist",
        "functions may not pass it, only KarpenterNodeRole-web, shared-nodes",
    ]


def test_a_karpenter_without_a_lease_is_an_error_for_connect_since_nodesmith_would_not_notice_it(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/deployments"
    cluster.server.create(path, karpenters_deployment())
    assert checks(refused(capsys, cluster)) == ["karpenter-controller"]


def test_a_cluster_is_connected_while_karpenter_holds_its_lease(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.server.create(
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        lease(datetime.now(UTC)),
    )
    assert cluster.run() == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = (each for each in findings if each["check"] == "karpenter-controller")
    assert (found["check"], found["severity"]) == ("karpenter-controller", "warning")
    assert "nodesmith adopt" in found["remedy"]


def test_with_auto_mode_the_shared_crds_are_left_alone(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    capsys.readouterr()
    labels = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "eks"}}}
    for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh"):
        cluster.server.patch(f"{CRDS}/{name}", {**labels, "spec": {"names": {"shortNames": ["other"]}}})
    cluster.calls.clear()
    assert cluster.run() == 0
    assert cluster.calls == []
    assert "shared-crds" in checks(printed(capsys), "info")


def test_a_newer_crd_is_not_changed(cluster: Connectable, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.run()
    capsys.readouterr()
    path = f"{CRDS}/ec2nodeclasses.karpenter.k8s.aws"
    crd = cluster.server.get(path)
    assert crd is not None
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["hypervisor"] = {"type": "string"}
    cluster.server.patch(path, {"spec": {"versions": crd["spec"]["versions"]}})
    cluster.calls.clear()
    assert cluster.run() == 0
    assert cluster.calls == []
    (found,) = [each for each in printed(capsys)["findings"] if each["check"] == "crds"]
    assert "newer" in found["found"]


# The first snapshot


def test_a_pod_without_credentials_is_replaced(cluster: Connectable) -> None:
    cluster.run()
    cluster.put_forwarder(has_credentials=False)
    cluster.calls.clear()
    assert cluster.run() == 0
    assert cluster.calls == [f"DELETE {PODS}/nodesmith-forwarder-1", "PutObject"]


def test_a_pod_created_before_the_association_is_replaced_during_the_wait(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[bool] = []

    def deployment_controller() -> None:
        pod = cluster.server.get(f"{PODS}/nodesmith-forwarder-1")
        if pod is not None and pod["metadata"].get("deletionTimestamp"):
            cluster.server.delete(f"{PODS}/nodesmith-forwarder-1?gracePeriodSeconds=0")
        elif pod is None:
            cluster.put_forwarder(has_credentials=bool(made))
            made.append(True)
        elif len(made) > 1:
            cluster.write_snapshot()

    cluster.meanwhile = deployment_controller
    assert cluster.run() == 0
    assert len(made) == 2
    assert "replacing nodesmith-forwarder-1" in capsys.readouterr().err


def test_a_heartbeat_shows_that_an_unchanged_cluster_is_served(
    cluster: Connectable,
) -> None:
    cluster.run()
    begun = datetime.now(UTC) + timedelta(minutes=20)
    cluster.now = lambda: begun + timedelta(seconds=cluster.waited)
    cluster.meanwhile = lambda: cluster.write_heartbeat(cluster.now(), begun - timedelta(minutes=20))
    cluster.calls.clear()

    assert cluster.run() == 0

    assert "PutObject" not in cluster.calls


def test_a_missing_snapshot_is_reported_with_what_to_check(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = datetime.now(UTC)
    cluster.now = lambda: begun + timedelta(seconds=cluster.waited)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pull = {"name": "forwarder", "state": {"waiting": waiting}, "ready": False, "restartCount": 0}

    def pulls() -> None:
        if cluster.server.get(f"{PODS}/nodesmith-forwarder-1") is None:
            cluster.put_forwarder(containerStatuses=[{**pull, "image": IMAGE, "imageID": ""}])

    cluster.meanwhile = pulls
    assert cluster.run() == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["state"] == "waiting"
    assert "pod nodesmith-forwarder-1: ImagePullBackOff: no such image" in said.err
    assert "no snapshot arrived within 0:01:00" in said.err


# From the command line


def test_the_command_connects_and_asks_for_confirmation(
    cluster: Connectable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AwsSession, "client", lambda _, service: cluster.client(service))
    monkeypatch.setattr(time, "sleep", cluster.sleep)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    arguments = ["connect", CLUSTER, "--region", REGION, "--image", IMAGE]
    refused = CliRunner().invoke(app, arguments, input="n\n")
    assert isinstance(refused.exception, Rejected)
    assert str(refused.exception) == "nothing was changed"
    assert cluster.calls == []
    reported = CliRunner().invoke(app, [*arguments, "--setting", "RESERVED_ENIS=1"], input="y\n")
    assert (reported.exit_code, reported.exception) == (0, None), reported.output
    assert "Connect web (" in reported.output
    assert reported.output.rstrip().endswith("connected")
    examined = CliRunner().invoke(app, ["doctor", CLUSTER, "--region", REGION])
    assert "admission-policies" not in examined.output  # a table for people: it says what, not by which check
    assert "Kubernetes 1.34 has no ValidatingAdmissionPolicies" in examined.output
    left = CliRunner().invoke(app, ["disconnect", CLUSTER, "--region", REGION, "--yes"])
    assert (left.exit_code, left.exception) == (0, None), left.output
    assert left.output.rstrip().endswith("disconnected")


@pytest.mark.parametrize("output", ["json", "yaml", "name", "jsonpath={.state}"])
def test_output_for_programs_does_not_prompt(cluster: Connectable, output: str) -> None:
    with pytest.raises(Rejected, match=f"-o {re.escape(output)} does not prompt: add --yes"):
        connect_cluster(ConnectRequest(CLUSTER, image=IMAGE), cluster.around(), ConnectOptions(output))


def test_what_would_be_done_is_printed_as_names_or_by_a_template(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ConnectRequest(CLUSTER, image=IMAGE)
    shown = {}
    for output in ("json", "name", 'jsonpath={range .rows[*]}{.object}{"\\n"}{end}'):
        assert connect_cluster(wanted, cluster.around(), ConnectOptions(output, is_dry=True)) == 0
        shown[output[:8]] = capsys.readouterr().out
    objects = [row["object"] for row in json.loads(shown["json"])["rows"]]
    assert shown["name"].splitlines() == objects
    assert shown["jsonpath"].rstrip().splitlines() == objects


def test_an_unreachable_api_server_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.eks().endpoint = "https://127.0.0.1:1"
    report = refused(capsys, cluster)
    (found,) = [each for each in report["findings"] if each["check"] == "kubernetes-rights"]
    assert found["found"].startswith("the API server of web cannot be reached: ")


@pytest.mark.parametrize(
    ("status", "words"), [(401, "does not know you"), (201, "does not give you full access")]
)
def test_missing_cluster_permissions_are_reported_with_the_commands_to_get_them(
    cluster: Connectable,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    words: str,
) -> None:
    answer = (status, {"status": {"allowed": False}})
    monkeypatch.setattr(Applier, "ask", lambda *_, **__: answer)
    report = refused(capsys, cluster)
    (found,) = [each for each in report["findings"] if each["check"] == "kubernetes-rights"]
    assert words in found["found"]
    assert "create-access-entry --cluster-name web --principal-arn" in found["found"]
    assert "AmazonEKSClusterAdminPolicy" in found["found"]


def test_incomplete_aws_configuration_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Rejected, match="no AWS region is set: use --region"):
        AwsSession()
    with pytest.raises(Rejected, match=r"--profile 'work': .*profiles: none"):
        AwsSession(REGION, "work")
    session = AwsSession(REGION)
    with pytest.raises(Rejected, match="no AWS credentials found: log in"):
        session.credentials()
    with pytest.raises(Rejected, match="no AWS credentials found: log in"):
        AwsReading(session.client, REGION).caller()


def test_aws_resources_of_a_cluster_stack_are_not_changed(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.stacks.outputs[f"nodesmith-{REGION}-{CLUSTER}"] = {}
    report = refused(capsys, cluster)
    assert checks(report) == ["cdk"]
    with pytest.raises(Rejected, match=r"infra\.cdk destroy nodesmith-us-east-1-web"):
        cluster.leave()


# Images


def test_the_image_of_this_version_in_ecr_is_used_by_digest(
    cluster: Connectable,
) -> None:
    ecr = client("ecr")
    uri = ecr.create_repository(repositoryName="nodesmith-forwarder")["repository"]["repositoryUri"]
    media = "application/vnd.oci.image.index.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": media, "manifests": []})
    pushed = ecr.put_image(
        repositoryName="nodesmith-forwarder",
        imageManifest=manifest,
        imageManifestMediaType=media,
        imageTag=__version__,
    )
    assert cluster.run(image="") == 0
    assert image_of(cluster.server) == f"{uri}@{pushed['image']['imageId']['imageDigest']}"


def test_a_missing_image_is_reported_with_how_to_push_one(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    report = refused(capsys, cluster, image="")
    (found,) = [each for each in report["findings"] if each["check"] == "image"]
    assert "--push 123456789012.dkr.ecr.us-east-1.amazonaws.com/nodesmith-forwarder" in found["remedy"]


def test_the_running_image_is_kept_if_none_is_named(cluster: Connectable) -> None:
    cluster.run()
    cluster.calls.clear()
    assert cluster.run(image="") == 0
    assert cluster.calls == []


def test_an_image_is_pushed_after_all_checks_and_used_by_digest(cluster: Connectable) -> None:
    digest = f"repo/forwarder@sha256:{'1' * 64}"

    def push() -> str:
        assert cluster.calls == []
        return digest

    how = ConnectOptions("json", is_asked=False, push=push)
    assert connect_cluster(ConnectRequest(CLUSTER, image="repo/forwarder"), cluster.around(), how) == 0
    assert image_of(cluster.server) == digest


def test_nothing_is_pushed_if_a_check_fails(cluster: Connectable) -> None:
    def push() -> str:
        raise AssertionError("pushed")

    cluster.access.mode = "CONFIG_MAP"
    how = ConnectOptions("json", is_asked=False, push=push)
    assert connect_cluster(ConnectRequest(CLUSTER, image="repo/forwarder"), cluster.around(), how) == 1


def test_push_does_what_image_push_does(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def push_image(repository: str, *, on_step: Callable[[str, int], None]) -> Any:
        for what in ("fetching wheels", "fetching wheels", "pushing"):
            on_step(what, 1)
        return SimpleNamespace(reference_by_digest=f"{repository}@sha256:1")

    monkeypatch.setitem(sys.modules, "nodesmith_cli.deployment.image", SimpleNamespace())
    monkeypatch.setitem(
        sys.modules, "nodesmith_cli.deployment.image.pushing", SimpleNamespace(push_image=push_image)
    )
    assert push_to("registry/forwarder", said.append) == "registry/forwarder@sha256:1"
    assert said == ["fetching wheels", "pushing"]


def test_input_that_iam_refuses_is_no_resource_that_exists(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    """IAM says InvalidInput of a service-linked role that exists, and of input that it refuses elsewhere."""
    refusal = "Duplicate tag keys found. Please note that Tag keys are case insensitive."
    taken = "Service role name AWSServiceRoleForEC2Spot has been taken in this account"
    with (
        answered("iam", "CreateServiceLinkedRole", 400, "InvalidInput", taken),
        answered("iam", "CreateRole", 400, "InvalidInput", refusal),
        pytest.raises(Rejected, match="InvalidInput: Duplicate tag keys found"),
    ):
        cluster.run()
    said = capsys.readouterr().err
    assert "not created role KarpenterNodeRole-web" in said
    assert "\ncreated service-linked role of EC2 Spot" in said


def test_a_new_iam_role_is_retried_until_eks_knows_it(cluster: Connectable) -> None:
    left = [3]

    def unknown(params: Any, **_: Any) -> Any:
        if b"KarpenterNodeRole" not in params["body"] or not left[0]:
            return None
        left[0] -= 1
        error = {"Code": "InvalidParameterException", "Message": "invalid principal"}
        http = type("Http", (), {"status_code": 400})()
        return http, {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}

    event = "before-call.eks.CreateAccessEntry"
    client("eks").meta.events.register(event, unknown, unique_id="unknown")
    try:
        assert cluster.run() == 0
    finally:
        client("eks").meta.events.unregister(event, unique_id="unknown")
    assert left == [0]
    assert cluster.waited == 3 * 5


def test_a_role_that_eks_never_knows_is_reported(cluster: Connectable) -> None:
    gone = role_name("repair", REGION)

    def delete(**_: Any) -> None:
        if gone in [role["RoleName"] for role in client("iam").list_roles()["Roles"]]:
            client("iam").delete_role(RoleName=gone)

    event = "before-call.eks.CreateAccessEntry"
    client("eks").meta.events.register(event, delete, unique_id="delete")
    try:
        with pytest.raises(Rejected, match=f"InvalidParameterException: .*{gone}"):
            cluster.run()
    finally:
        client("eks").meta.events.unregister(event, unique_id="delete")
    assert cluster.waited == 60
