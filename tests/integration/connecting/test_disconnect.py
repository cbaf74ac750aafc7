"""`nodesmith disconnect` with moto and an in-memory API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.karpenter.ownership import CLUSTER_TAG, MANAGED_BY_TAG, owned_tag, tag_list
from nodesmith.registration import parameter_name
from nodesmith_cli.migration.adopting.command import AdoptOptions, release_cluster
from nodesmith_cli.sharing.ownership import listed, observes
from nodesmith_cli.sharing.removal import Settings
from nodesmith_cli.sharing.uninstallcommand import uninstall
from nodesmith_formats.crds import custom_resource_definitions
from tests import builders
from tests.aws.account import REGION, client
from tests.aws.connectable import BUCKET, CLUSTER, CRDS, POOLS, Connectable, connectable, printed
from tests.contract.worlds import lease
from tests.objects.foreign import karpenters_deployment, karpenters_nodeclaim

Json = dict[str, Any]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLASSES, CLAIMS = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses", "/apis/karpenter.sh/v1/nodeclaims"


@pytest.fixture
def cluster() -> Iterator[Connectable]:
    with connectable() as made:
        yield made


def test_connecting_and_disconnecting_leaves_the_account_as_it_was(cluster: Connectable) -> None:
    client("iam").create_service_linked_role(
        AWSServiceName="spot.amazonaws.com"
    )  # stays, since it belongs to the account
    before = cluster.state()
    assert cluster.run() == 0
    assert cluster.run() == 0
    make_at_run_time(cluster)
    assert cluster.state() != before
    assert cluster.leave(node_role=False) == 0
    assert cluster.state() == before
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is None
    assert cluster.server.get(f"{CRDS}/nodepools.karpenter.sh") is None
    cluster.calls.clear()
    assert cluster.leave() == 0
    assert cluster.calls == []


def make_at_run_time(cluster: Connectable) -> None:
    """Create what functions create: a launch template, a profile, objects in several versions, items."""
    tags = [{"Key": "nodesmith.dev/managed-by", "Value": CLUSTER}]
    client("ec2").create_launch_template(
        LaunchTemplateName="nodesmith-1",
        LaunchTemplateData={"ImageId": "ami-0123456789abcdef0"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )
    iam = client("iam")
    iam.create_instance_profile(InstanceProfileName="web_1", Path=f"/nodesmith/{REGION}/{CLUSTER}/uid/")
    iam.add_role_to_instance_profile(InstanceProfileName="web_1", RoleName="KarpenterNodeRole-web")
    cluster.write_snapshot()
    for number in range(30):
        item = {"pk": {"S": f"CLUSTER#{CLUSTER}"}, "sk": {"S": f"CLAIM#{number}"}}
        client("dynamodb").put_item(TableName="nodesmith", Item=item)
    for item in beside_the_ledger(CLUSTER):
        client("dynamodb").put_item(TableName="nodesmith", Item=item)


def beside_the_ledger(cluster: str) -> list[dict[str, Any]]:
    """Return an item of each of a cluster's other partitions."""
    keys = [("FORWARDER", "HEARTBEAT"), ("HEALTH", "lifecycle"), ("NOTICES", "event")]
    return [{"pk": {"S": f"{kind}#{cluster}"}, "sk": {"S": name}} for kind, name in keys]


def test_resources_of_other_clusters_are_left_alone(cluster: Connectable) -> None:
    cluster.run()
    client("s3").put_object(Bucket=BUCKET, Key="clusters/web2/snapshot.json.gz", Body=b"")
    others = [{"pk": {"S": "CLUSTER#web2"}, "sk": {"S": "META"}}, *beside_the_ledger("web2")]
    others.append({"pk": {"S": "HEALTH"}, "sk": {"S": "STATE"}})  # what is the region's
    for other in others:
        client("dynamodb").put_item(TableName="nodesmith", Item=other)
    client("ssm").put_parameter(Name=parameter_name("web2"), Value="{}", Type="String")
    role = client("iam").get_role(RoleName="cluster")["Role"]["Arn"]
    entry = {"clusterName": CLUSTER, "principalArn": role}
    client("eks").create_access_entry(**entry, username="me", type="STANDARD")
    assert cluster.leave() == 0
    state = cluster.state()
    assert state["objects"] == ["clusters/web2/snapshot.json.gz"]
    assert sorted(state["items"], key=str) == sorted(others, key=str)
    assert state["parameters"] == [parameter_name("web2")]
    assert state["entries"] == [role]
    assert "KarpenterNodeRole-web" in state["roles"]


def put_node(cluster: Connectable) -> None:
    cluster.server.create(POOLS, strip(builders.nodepool_manifest("default")))
    labels = {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"}
    metadata = {"name": "node-1", "labels": labels, "finalizers": [TERMINATION_FINALIZER]}
    cluster.server.create("/api/v1/nodes", {"metadata": metadata, "spec": {"providerID": "aws:///a/i-1"}})


def strip(manifest: Any) -> Json:
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}


def test_disconnect_is_refused_while_nodes_are_left_and_lists_them(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    put_node(cluster)
    before = cluster.state()
    capsys.readouterr()
    assert cluster.leave() == 1
    assert printed(capsys)["nodes"] == ["Node/node-1"]
    assert cluster.state() == before


def put_karpenters(cluster: Connectable, *, replicas: int) -> Callable[[], list[list[str]]]:
    """Put Karpenter with a NodePool and a node into the cluster, and return what lists the names of its objects."""
    server = cluster.server
    server.create(
        "/apis/apps/v1/namespaces/kube-system/deployments", karpenters_deployment(replicas=replicas)
    )
    if server.get(f"{CRDS}/nodepools.karpenter.sh") is None:
        for crd in custom_resource_definitions():
            server.create(CRDS, crd)
    put_node(cluster)
    server.create(CLASSES, strip(builders.nodeclass_manifest("default")))
    claim = karpenters_nodeclaim("node-1", instance="i-1")
    server.create(CLAIMS, {**claim, "metadata": {**claim["metadata"], "uid": None}})
    status = {**claim.get("status", {}), "providerID": "aws:///a/i-1"}
    server.patch(f"{CLAIMS}/node-1/status", {"status": status})
    kinds = POOLS, CLASSES, CLAIMS, "/api/v1/nodes", CRDS
    return lambda: [sorted(each["metadata"]["name"] for each in listed(server, path)) for path in kinds]


@pytest.mark.parametrize("replicas", [1, 0])
def test_nothing_of_karpenter_is_removed_from_a_cluster_that_was_only_observed(
    cluster: Connectable, replicas: int, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = put_karpenters(cluster, replicas=replicas)
    before = objects()
    assert cluster.run(observes=True) == 0
    capsys.readouterr()
    assert cluster.leave(output="table") == 0
    said = capsys.readouterr().out
    assert "NodePools and EC2NodeClasses stay, since nodesmith only observed" in said
    assert f"registration {parameter_name(CLUSTER, observed=True)}" in said
    assert objects() == before
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is None
    assert cluster.state()["parameters"] == []


@pytest.mark.parametrize("replicas", [1, 0])
def test_an_interrupted_disconnect_from_an_observed_cluster_is_continued_without_karpenters_objects(
    cluster: Connectable, replicas: int
) -> None:
    objects = put_karpenters(cluster, replicas=replicas)
    before = objects()
    assert cluster.run(observes=True) == 0

    def interrupt() -> None:
        raise KeyboardInterrupt

    assert cluster.leave(meanwhile=interrupt) == 130
    assert cluster.state()["parameters"] == []
    assert cluster.state()["associations"] != []
    assert cluster.leave() == 0
    assert cluster.state()["associations"] == []
    assert objects() == before


def test_a_cluster_that_karpenter_has_never_left_is_released_and_then_disconnected(
    cluster: Connectable,
) -> None:
    objects = put_karpenters(cluster, replicas=1)
    cluster.server.create(LEASES, lease(datetime.now(UTC)))
    assert cluster.run() == 0
    before = objects()
    with pytest.raises(Rejected, match="To leave them to Karpenter, run `nodesmith release CLUSTER`"):
        cluster.leave()
    assert release_cluster(CLUSTER, cluster.around(), AdoptOptions(output="json", is_asked=False)) == 0
    assert cluster.leave() == 0
    assert objects() == before
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is None


def test_uninstall_is_refused_in_a_cluster_that_is_only_observed(cluster: Connectable) -> None:
    objects = put_karpenters(cluster, replicas=0)
    assert cluster.run(observes=True) == 0
    before = objects()
    for dry_run in (True, False):
        with pytest.raises(Rejected, match=r"only observes this cluster.*nodesmith disconnect"):
            uninstall(
                cluster.server,
                Settings(timedelta(minutes=1)),
                output="json",
                dry_run=dry_run,
                yes=True,
                clock=cluster.now,
            )
    assert objects() == before
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is not None
    assert cluster.run() == 0
    assert not observes(cluster.server)


def test_nodes_can_be_kept_with_what_they_need(cluster: Connectable) -> None:
    cluster.run()
    make_at_run_time(cluster)
    put_node(cluster)
    assert cluster.leave(nodes=True, node_role=False) == 0
    state = cluster.state()
    assert state["parameters"] == []
    assert state["associations"] == []
    assert state["entries"] == ["arn:aws:iam::123456789012:role/KarpenterNodeRole-web"]
    assert state["profiles"] == ["web_1"]
    assert len(state["items"]) == 33
    assert cluster.server.get(f"{POOLS}/default") is not None
    assert cluster.server.get("/api/v1/nodes/node-1") is not None
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is None


def test_data_can_be_kept(cluster: Connectable) -> None:
    cluster.run()
    make_at_run_time(cluster)
    assert cluster.leave(data=True) == 0
    state = cluster.state()
    assert len(state["items"]) == 33
    assert len(state["objects"]) == 2
    assert (state["templates"], state["profiles"], state["parameters"]) == ([], [], [])


def test_the_leftovers_of_a_deleted_cluster_in_aws_are_removed(cluster: Connectable) -> None:
    cluster.run()
    make_at_run_time(cluster)
    client("eks").delete_cluster(name=CLUSTER)
    assert cluster.leave(node_role=False) == 0
    assert client("dynamodb").scan(TableName="nodesmith")["Items"] == []
    assert client("ssm").get_parameters_by_path(Path="/nodesmith/clusters")["Parameters"] == []
    with pytest.raises(Rejected, match="there is no cluster 'web' in us-east-1"):
        cluster.leave()


def run_instance(cluster: Connectable, **tags: str) -> str:
    """Run an instance with the tags that nodesmith sets, and others."""
    mine = {CLUSTER_TAG: CLUSTER, MANAGED_BY_TAG: CLUSTER, owned_tag(CLUSTER): "owned", **tags}
    (run,) = client("ec2").run_instances(
        ImageId="ami-12c6146b",
        MinCount=1,
        MaxCount=1,
        SubnetId=next(iter(cluster.network.subnets.values())),
        TagSpecifications=[{"ResourceType": "instance", "Tags": tag_list(mine)}],
    )["Instances"]
    return str(run["InstanceId"])


def test_instances_of_a_deleted_cluster_are_listed_and_nothing_is_removed_before_they_are_gone(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    make_at_run_time(cluster)
    instance = run_instance(cluster)
    client("eks").delete_cluster(name=CLUSTER)
    capsys.readouterr()
    assert cluster.leave() == 1
    assert printed(capsys)["nodes"] == [f"Instance/{instance}"]
    assert client("ssm").get_parameters_by_path(Path="/nodesmith/clusters")["Parameters"] != []
    client("ec2").terminate_instances(InstanceIds=[instance])
    assert cluster.leave() == 0
    assert client("ssm").get_parameters_by_path(Path="/nodesmith/clusters")["Parameters"] == []


def test_an_instance_without_a_node_keeps_the_cluster_connected(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    instance = run_instance(cluster)
    before = cluster.state()
    capsys.readouterr()
    assert cluster.leave() == 1
    assert printed(capsys)["nodes"] == [f"Instance/{instance}"]
    assert cluster.state() == before
    assert cluster.leave(nodes=True) == 0


def test_an_instance_without_a_node_that_no_function_serves_must_be_terminated_by_hand(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    instance = run_instance(cluster)
    assert cluster.leave(nodes=True) == 0
    capsys.readouterr()
    assert cluster.leave(output="table") == 1
    said = capsys.readouterr().out
    assert "no function serves the cluster any more" in said
    assert f"aws ec2 terminate-instances --region {REGION} --instance-ids {instance}" in said


def test_disconnect_waits_for_an_instance_that_was_launched_after_its_check(cluster: Connectable) -> None:
    cluster.run()
    kept = strip(builders.nodepool_manifest("default"))
    kept["metadata"]["finalizers"] = ["example.com/kept"]
    cluster.server.create(POOLS, kept)
    running: list[str] = []

    def meanwhile() -> None:
        if cluster.server.get(f"{POOLS}/default") is not None:
            running.append(run_instance(cluster))
            cluster.server.patch(f"{POOLS}/default", {"metadata": {"finalizers": []}})
        elif running:
            assert cluster.server.get("/api/v1/namespaces/nodesmith") is not None, "functions are needed"
            client("ec2").terminate_instances(InstanceIds=[running.pop()])

    assert cluster.leave(meanwhile=meanwhile) == 0
    assert running == []
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is None


def test_an_instance_of_the_last_run_is_listed_and_the_ledger_stays_until_it_is_gone(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.run()
    make_at_run_time(cluster)
    running: list[str] = []

    def last_run() -> None:
        running.append(run_instance(cluster))

    capsys.readouterr()
    assert cluster.leave(meanwhile=last_run) == 1
    assert printed(capsys)["nodes"] == [f"Instance/{running[0]}"]
    assert len(cluster.state()["items"]) == 33
    assert cluster.state()["parameters"] == []
    client("ec2").terminate_instances(InstanceIds=running)
    assert cluster.leave() == 0
    assert cluster.state()["items"] == []


def test_a_node_role_that_a_cluster_of_another_region_uses_stays(cluster: Connectable) -> None:
    cluster.run()
    make_at_run_time(cluster)
    iam, role = client("iam"), "KarpenterNodeRole-web"
    path = f"/nodesmith/eu-west-1/{CLUSTER}/uid/"
    iam.create_instance_profile(InstanceProfileName="web_2", Path=path)
    iam.add_role_to_instance_profile(InstanceProfileName="web_2", RoleName=role)
    policies = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    assert cluster.leave(node_role=False) == 0
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == policies != []
