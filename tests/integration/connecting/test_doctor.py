"""`nodesmith doctor` with moto and an in-memory API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.regionitems import DynamoSharedLimits, SharedItems
from nodesmith.model.ledger.region import Region
from nodesmith.model.ledger.spending import Share
from nodesmith.model.limits.spendinglimits import parse_spending_limit
from nodesmith.registration import parameter_name
from nodesmith.settings import role_name
from nodesmith_cli.access.ledger import TABLE
from nodesmith_cli.connecting.checks.network import CNI, CONFIG, ENI_CONFIGS
from nodesmith_cli.connecting.doctorcommand import doctor
from nodesmith_cli.sharing.ownership import CRDS
from tests import builders
from tests.aws.account import REGION, client
from tests.aws.connectable import CLUSTER, PODS, Connectable, connectable, deploy

Json = dict[str, Any]
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"


@pytest.fixture
def cluster(capsys: pytest.CaptureFixture[str]) -> Iterator[Connectable]:
    """Return a connected and healthy cluster."""
    with connectable() as made:
        assert made.run() == 0
        made.put_forwarder()
        capsys.readouterr()
        made.calls.clear()
        yield made
        assert made.calls == [], "doctor writes nothing"


def found(cluster: Connectable, capsys: pytest.CaptureFixture[str]) -> dict[str, list[Json]]:
    """Return the findings of doctor by check, except for the admission policies that the test API server lacks."""
    cluster.calls.clear()
    status = cluster.examine()
    reported: list[Json] = json.loads(capsys.readouterr().out)["findings"]
    assert cluster.calls == []
    assert status == (1 if [each for each in reported if each["severity"] != "info"] else 0)
    by_check: dict[str, list[Json]] = {}
    for each in reported:
        if each["check"] != "admission-policies" and each["severity"] != "info":
            by_check.setdefault(each["check"], []).append(each)
    return by_check


def only(cluster: Connectable, capsys: pytest.CaptureFixture[str], check: str) -> Json:
    reported = found(cluster, capsys)
    assert set(reported) == {check}
    (one,) = reported[check]
    return one


def test_a_healthy_cluster_has_no_findings(cluster: Connectable, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(cluster, capsys) == {}


def test_a_spending_limit_that_is_nearly_used_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = [parse_spending_limit(name, '{"format": 1, "usdPerHour": "1"}') for name in ("near", "far")]
    dynamodb = client("dynamodb")
    DynamoSharedLimits(dynamodb, TABLE).save(limits, [CLUSTER])
    took = Region(CLUSTER, tuple(limits), (CLUSTER,), {limits[0].key: {CLUSTER: Share(850_000)}})
    dynamodb.transact_write_items(TransactItems=[SharedItems(dynamodb, TABLE, CLUSTER).put(took)])
    one = only(cluster, capsys, "limits")
    assert one["object"] == "SpendingLimit near"
    assert one["found"] == "0.85 of 1 USD an hour used (85 %)"
    assert one["remedy"].startswith("raise the limit")


def test_an_unconnected_cluster_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with connectable() as cluster:
        reported = found(cluster, capsys)
    assert reported["registration"][0]["remedy"] == "nodesmith connect web"
    assert "connection" not in reported, "missing resources are not reported for an unconnected cluster"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected a JSON object"),
        ('{"format": 2, "vpcId": "vpc-12345678", "nodeRoles": ["a"]}', "format: expected 1, found 2"),
    ],
)
def test_an_unreadable_registration_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    client("ssm").put_parameter(Name=parameter_name(CLUSTER), Value=text, Overwrite=True)
    reported = found(cluster, capsys)
    assert message in reported["registration"][0]["found"]
    assert [each["object"] for each in reported["connection"]] == [f"registration {parameter_name(CLUSTER)}"]


def test_a_registration_with_a_vpc_without_functions_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy(cluster.stacks, "shared")
    assert cluster.run(vpc="shared") == 0
    for concern in (
        "disruption",
        "lifecycle",
        "termination",
        "readiness",
        "observation",
        "repair",
        "garbagecollection",
    ):
        client("iam").delete_role(RoleName=role_name(concern, REGION, "shared"))
    capsys.readouterr()
    reported = found(cluster, capsys)
    assert reported["vpc"][0]["found"] == "VPC 'shared' has no functions in this region"


def test_a_missing_function_role_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    client("iam").delete_role(RoleName=role_name("repair", REGION))
    reported = found(cluster, capsys)
    assert reported["function-role"][0]["object"] == "role nodesmith-repair-us-east-1"
    assert reported["function-role"][0]["remedy"].endswith("infra.cdk deploy nodesmith-us-east-1")


def test_a_missing_access_entry_is_reported(cluster: Connectable, capsys: pytest.CaptureFixture[str]) -> None:
    principal = f"arn:aws:iam::123456789012:role/{role_name('repair', REGION)}"
    client("eks").delete_access_entry(clusterName=CLUSTER, principalArn=principal)
    one = only(cluster, capsys, "connection")
    assert one["object"] == "access entry of nodesmith-repair-us-east-1"
    assert one["remedy"] == "nodesmith connect web"


def test_outdated_crds_are_reported(cluster: Connectable, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.karpenter.sh"
    crd = cluster.server.get(path)
    assert crd is not None
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("weight", None)
    cluster.server.patch(path, {"spec": {"versions": crd["spec"]["versions"]}})
    one = only(cluster, capsys, "connection")
    assert (one["object"], one["found"]) == ("CRDs", "differs from this release: nodepools.karpenter.sh")


def test_an_old_snapshot_and_a_stopped_forwarder_are_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.server.delete(f"{PODS}/nodesmith-forwarder-1?gracePeriodSeconds=0")
    later = datetime.now(UTC) + timedelta(minutes=20)
    cluster.now = lambda: later
    reported = found(cluster, capsys)
    assert reported["snapshot"][0]["found"].startswith("the newest is 20 min old")
    assert "the logs of nodesmith-observation in /aws/lambda/nodesmith" in reported["snapshot"][0]["remedy"]
    assert reported["forwarder"][0]["found"].startswith("the forwarder has no pod")


def test_an_old_snapshot_with_a_recent_heartbeat_is_fine(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    later = datetime.now(UTC) + timedelta(minutes=20)
    cluster.now = lambda: later
    assert "snapshot" in found(cluster, capsys)

    cluster.write_heartbeat(later - timedelta(minutes=1), later - timedelta(minutes=20))
    assert "snapshot" not in found(cluster, capsys)


def test_a_budget_that_never_allows_an_eviction_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    for name, spec in (
        ("tight", {"minAvailable": 3}),
        ("zero", {"maxUnavailable": 0}),
        ("fine", {"minAvailable": 2}),
    ):
        cluster.server.create(path, {"metadata": {"name": name}, "spec": {**spec, "selector": {}}})
        status = {"expectedPods": 3, "currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": 0}
        cluster.server.patch(f"{path}/{name}/status", {"status": status})
    reported = found(cluster, capsys)
    assert set(reported) == {"budget"}
    assert [(each["object"], each["found"]) for each in reported["budget"]] == [
        ("PodDisruptionBudget default/tight", "minAvailable 3 of 3 pods: no pod can ever be evicted"),
        ("PodDisruptionBudget default/zero", "maxUnavailable 0: no pod can ever be evicted"),
    ]


def strip(manifest: Any) -> Json:
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}


def test_a_nodepool_without_its_nodeclass_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.server.create(CLASSES, strip(builders.nodeclass_manifest("defaults")))
    cluster.server.create(POOLS, strip(builders.nodepool_manifest("default")))
    one = only(cluster, capsys, "nodepool")
    assert one["found"] == "its EC2NodeClass 'default' does not exist, did you mean 'defaults'?"


def test_a_nodepool_without_instance_types_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.server.create(CLASSES, strip(builders.nodeclass_manifest()))
    pool = strip(builders.nodepool_manifest("none"))
    wanted = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["3"]}
    pool["spec"]["template"]["spec"]["requirements"] = [wanted]
    cluster.server.create(POOLS, pool)
    one = only(cluster, capsys, "nodepool")
    assert one["object"] == "NodePool none"
    assert "leaves none of" in one["found"]


def test_an_unready_nodeclass_is_reported_with_its_reason(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.server.create(CLASSES, strip(builders.nodeclass_manifest()))
    conditions = [
        {
            "type": "SubnetsReady",
            "status": "False",
            "message": "no subnet matches",
            "reason": "SubnetsNotFound",
        },
        {
            "type": "Ready",
            "status": "False",
            "message": "SubnetsReady=False",
            "reason": "UnhealthyDependents",
        },
    ]
    stamped = [{**each, "lastTransitionTime": "2026-11-01T00:00:00Z"} for each in conditions]
    cluster.server.patch(f"{CLASSES}/default/status", {"status": {"conditions": stamped}})
    one = only(cluster, capsys, "nodeclass")
    assert one["found"] == "is not ready: no subnet matches"


def test_subnets_with_few_addresses_are_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = [{"Key": "karpenter.sh/discovery", "Value": CLUSTER}]
    made = client("ec2").create_subnet(VpcId=cluster.network.vpc_id, CidrBlock="10.0.240.0/28")["Subnet"]
    client("ec2").create_tags(Resources=[made["SubnetId"]], Tags=tags)
    one = only(cluster, capsys, "subnet-addresses")
    assert one["object"] == f"subnet {made['SubnetId']}"
    assert one["found"].startswith("has 11 free addresses")


def test_a_lambda_quota_that_is_too_small_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.quotas.concurrency = 10
    one = only(cluster, capsys, "lambda-concurrency")
    assert one["found"] == "10 are available to all functions, and nodesmith may need 26"


def put_cni(cluster: Connectable, *eni_configs: str, **environment: str) -> None:
    """Create the VPC CNI's DaemonSet with these variables, and ENIConfigs if any are named."""
    env = [{"name": name, "value": value} for name, value in environment.items()]
    labels = {"k8s-app": "aws-node"}
    container = {"name": "aws-node", "image": "amazon-k8s-cni", "env": env}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    daemonsets, _, name = CNI.rpartition("/")
    cluster.server.create(daemonsets, {"metadata": {"name": name}, "spec": spec})
    if not eni_configs:
        return
    group, version = "crd.k8s.amazonaws.com", "v1alpha1"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    names = {"kind": "ENIConfig", "plural": "eniconfigs"}
    crd = {
        "metadata": {"name": f"eniconfigs.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [served]},
    }
    cluster.server.create(CRDS, crd)
    for each in eni_configs:
        made = {"apiVersion": f"{group}/{version}", "kind": "ENIConfig", "metadata": {"name": each}}
        cluster.server.create(ENI_CONFIGS, made)


CUSTOM = {"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "true", "ENI_CONFIG_LABEL_DEF": "topology.kubernetes.io/zone"}
ENI_CONFIGS_OF_ZONES = tuple(f"{REGION}{letter}" for letter in "abc")


def cni_findings(cluster: Connectable, capsys: pytest.CaptureFixture[str], **settings: str) -> list[str]:
    """Connect with these settings, and return what doctor finds about the VPC CNI, with the remedy."""
    assert cluster.run(settings=settings) == 0
    capsys.readouterr()
    reported = found(cluster, capsys).get("vpc-cni", [])
    return [f"{each['severity']}: {each['found']}: {each['remedy']}" for each in reported]


def test_custom_networking_without_a_reserved_interface_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster, *ENI_CONFIGS_OF_ZONES, **CUSTOM)
    (reported,) = cni_findings(cluster, capsys)
    assert "no ordinary pod uses the first interface, but RESERVED_ENIS is 0" in reported
    assert reported.endswith("nodesmith connect web --setting RESERVED_ENIS=1")
    assert cni_findings(cluster, capsys, RESERVED_ENIS="1") == []


def test_security_groups_for_pods_take_an_interface_too(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster, *ENI_CONFIGS_OF_ZONES, ENABLE_POD_ENI="true", **CUSTOM)
    (reported,) = cni_findings(cluster, capsys, RESERVED_ENIS="1")
    assert "no ordinary pod uses the trunk interface, but RESERVED_ENIS is 1" in reported
    assert reported.endswith("RESERVED_ENIS=2")
    assert cni_findings(cluster, capsys, RESERVED_ENIS="2") == []


def test_an_interface_that_is_reserved_for_nothing_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster)
    (reported,) = cni_findings(cluster, capsys, RESERVED_ENIS="1")
    assert "RESERVED_ENIS is 1, but all interfaces serve pods" in reported


def test_prefix_delegation_that_only_one_side_knows_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster, ENABLE_PREFIX_DELEGATION="true")
    (reported,) = cni_findings(cluster, capsys)
    assert "ENABLE_PREFIX_DELEGATION=true, but PREFIX_DELEGATION is false" in reported
    assert cni_findings(cluster, capsys, PREFIX_DELEGATION="true") == []
    cluster.server.delete(CNI)
    put_cni(cluster)
    (reported,) = cni_findings(cluster, capsys, PREFIX_DELEGATION="true")
    assert "PREFIX_DELEGATION is true, but ENABLE_PREFIX_DELEGATION is not" in reported


def test_prefixes_of_windows_nodes_that_only_one_side_knows_are_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster)
    data = {"enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true"}
    cluster.server.create(CONFIG.rpartition("/")[0], {"metadata": {"name": "amazon-vpc-cni"}, "data": data})
    (reported,) = cni_findings(cluster, capsys)
    assert "enable-windows-prefix-delegation is true, but WINDOWS_PREFIX_DELEGATION is false" in reported
    assert cni_findings(cluster, capsys, WINDOWS_PREFIX_DELEGATION="true") == []
    cluster.server.delete(CONFIG)
    (reported,) = cni_findings(cluster, capsys, WINDOWS_PREFIX_DELEGATION="true")
    assert "WINDOWS_PREFIX_DELEGATION is true, but enable-windows-ipam" in reported


def test_zones_without_an_eniconfig_are_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster, f"{REGION}a", **CUSTOM)
    (reported,) = cni_findings(cluster, capsys, RESERVED_ENIS="1")
    assert f"none is named {REGION}b" in reported


def test_custom_networking_without_any_eniconfig_is_reported(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run(settings={"RESERVED_ENIS": "1"}) == 0
    capsys.readouterr()
    put_cni(cluster, **CUSTOM)
    one = only(cluster, capsys, "vpc-cni")
    assert (one["severity"], "there is no ENIConfig" in one["found"]) == ("warning", True)


def test_the_cni_of_an_ipv6_cluster_needs_no_setting(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    put_cni(cluster, ENABLE_IPv6="true", ENABLE_PREFIX_DELEGATION="true")
    assert cni_findings(cluster, capsys) == []


def test_a_wide_table_names_the_check_and_names_are_those_of_the_objects(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for output in ("json", "name", "wide", "table"):
        doctor(CLUSTER, cluster.around(), output)
        shown[output] = capsys.readouterr().out
    (reported,) = [each for each in json.loads(shown["json"])["findings"] if each["severity"] != "info"]
    assert reported["object"] in shown["name"].splitlines()
    assert f"({reported['check']})" in shown["wide"]
    assert f"({reported['check']})" not in shown["table"]
