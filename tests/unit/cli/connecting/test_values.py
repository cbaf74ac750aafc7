"""The pure functions of connect, disconnect and doctor: leftovers, quotas, CRDs, principals, URLs, images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.connecting.checks.capacity import QUOTAS, QuotaReading, Quotas, quota_findings
from nodesmith_cli.connecting.manifests import Served, hashed_name, manifests
from nodesmith_cli.connecting.observed import Cluster, Entry, NodeRole
from nodesmith_cli.connecting.optionchecks import refuse_image
from nodesmith_cli.connecting.reading.apiserver import is_same, principal_of, refuse_without_rights
from nodesmith_cli.connecting.reading.cluster import Age, age
from nodesmith_cli.connecting.steps.actions import DeleteEntries, ResourceState
from nodesmith_cli.connecting.steps.leftovers import KeepOptions, Leftovers, removals
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_forwarder.settings import read_forwarder_settings

if TYPE_CHECKING:
    from nodesmith_cli.connecting.applying import Applier

SERVED = Served("web", "us-east-1", "bucket", "nodesmith", "shared", "forwarder:1")
ROLE = "arn:aws:iam::1:role"


def test_a_config_map_name_has_the_same_content_hash_as_in_kustomize() -> None:
    names = "AWS_REGION BUCKET_NAME DISRUPTION_QUEUE_URL LIFECYCLE_QUEUE_URL PROVISIONING_QUEUE_URL".split()
    data = {
        **dict.fromkeys([*names, "READINESS_QUEUE_URL", "TERMINATION_QUEUE_URL"], ""),
        "BATCH_IDLE_DURATION": "1s",
        "BATCH_MAX_DURATION": "10s",
        "CLUSTER_NAME": "web",
        "LOG_LEVEL": "info",
    }
    assert hashed_name("nodesmith-forwarder", data) == "nodesmith-forwarder-72629m4mf7"  # kubectl kustomize's


def test_the_forwarder_settings_include_the_table_and_the_vpc() -> None:
    (written,) = [each for each in manifests(SERVED) if each["kind"] == "ConfigMap"]
    settings = read_forwarder_settings(written["data"])
    assert (settings.table_name, settings.reached_from) == ("nodesmith", "shared")


def test_nothing_of_another_cluster_is_bound() -> None:
    subjects = [
        subject["name"]
        for each in manifests(SERVED)
        if each["kind"] == "ClusterRoleBinding"
        for subject in each["subjects"]
    ]
    assert sorted(subjects) == ["nodesmith-forwarder", "nodesmith:reader:web", "nodesmith:writer:web"]


def test_the_namespace_and_the_crds_come_first_and_the_deployment_last() -> None:
    kinds = [each["kind"] for each in manifests(SERVED)]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-1] == "Deployment"


@pytest.mark.parametrize(
    ("host", "endpoint", "same"),
    [
        ("https://A.eks.amazonaws.com", "https://a.eks.amazonaws.com/", True),
        ("https://a.eks.amazonaws.com:443", "https://a.eks.amazonaws.com", True),
        ("https://b.eks.amazonaws.com", "https://a.eks.amazonaws.com", False),
        ("https://127.0.0.1:6443", "https://127.0.0.1:6444", False),
        ("", "", False),
    ],
)
def test_urls_with_the_same_host_and_port_are_the_same_api_server(
    host: str, endpoint: str, same: bool
) -> None:
    assert is_same(host, endpoint) is same


def test_the_principal_of_a_session_is_its_role() -> None:
    assert principal_of("arn:aws:sts::1:assumed-role/Admin/me@example.org") == f"{ROLE}/Admin"
    assert principal_of("arn:aws:iam::1:user/me") == "arn:aws:iam::1:user/me"


@pytest.mark.parametrize(
    "image", ["nodesmith-forwarder", "repo/image", "repo:5000/image", "a b:1", "x@sha256:12"]
)
def test_an_image_without_tag_or_digest_is_refused(image: str) -> None:
    with pytest.raises(Rejected, match="with a tag or digest"):
        refuse_image(image)


@pytest.mark.parametrize(
    "image", ["forwarder:0.1.0", "r.example:5000/a/b:1", f"a/b@sha256:{'0' * 64}", f"b:1@sha256:{'0' * 64}"]
)
def test_an_image_with_tag_or_digest_is_accepted(image: str) -> None:
    refuse_image(image)


def changed(crd: dict[str, Any], *, without: str = "", more: str = "") -> dict[str, Any]:
    (version, *rest) = crd["spec"]["versions"]
    properties = dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])
    properties.pop(without, None)
    if more:
        properties[more] = {"type": "string"}
    schema = version["schema"]["openAPIV3Schema"]
    spec = {**schema["properties"]["spec"], "properties": properties}
    whole = {**schema, "properties": {**schema["properties"], "spec": spec}}
    return {
        **crd,
        "spec": {**crd["spec"], "versions": [{**version, "schema": {"openAPIV3Schema": whole}}, *rest]},
    }


def test_the_crd_with_more_fields_is_newer() -> None:
    ours = custom_resource_definitions()[0]
    assert age(ours, ours) is Age.SAME
    assert age(changed(ours, without="weight"), ours) is Age.OLDER
    assert age(changed(ours, more="gravity"), ours) is Age.NEWER
    assert age(changed(ours, without="weight", more="gravity"), ours) is Age.DIFFERENT


# Disconnect


def test_access_entries_of_functions_in_any_vpc_are_removed_and_others_stay() -> None:
    names = (
        "nodesmith-lifecycle-us-east-1",
        "nodesmith-shared-vpc-repair-us-east-1",
        "nodesmith-lifecycle-us-west-2",
        "nodesmith-forwarder-us-east-1",
        "admin",
    )
    left = Leftovers("web", "us-east-1", entries={f"{ROLE}/{name}": Entry("STANDARD") for name in names})
    (row,) = removals(left, KeepOptions())
    assert isinstance(row.action, DeleteEntries)
    assert set(row.action.principals) == {f"{ROLE}/{names[0]}", f"{ROLE}/{names[1]}"}


def test_the_node_role_is_deleted_only_if_connect_created_it_and_only_on_request() -> None:
    def standings(role: NodeRole, keeping: KeepOptions) -> list[str]:
        return [row.standing for row in removals(Leftovers("web", "r", node_roles=(role,)), keeping)]

    made, own = NodeRole("nodes", is_made=True), NodeRole("nodes")
    assert standings(own, KeepOptions(node_role=False)) == []
    assert standings(made, KeepOptions()) == [ResourceState.KEPT]
    assert standings(made, KeepOptions(node_role=False)) == [ResourceState.REMOVED]
    assert standings(made, KeepOptions(nodes=True, node_role=False)) == [ResourceState.KEPT]


def test_an_agent_that_other_software_uses_stays() -> None:
    rows = removals(Leftovers("web", "r", is_agent_made=True, is_only_association=False), KeepOptions())
    assert [row.standing for row in rows] == [ResourceState.KEPT]


# Quotas


def test_a_quota_used_to_80_percent_is_reported() -> None:
    quotas = Quotas({"spot": 100, "on-demand": 100}, {"spot": 80, "on-demand": 79}, concurrency=1000)
    (found,) = quota_findings(quotas, "us-east-1")
    assert found.object == "EC2 quota of spot vCPUs"
    assert found.found == "80 of 100 vCPUs are in use"
    assert "--quota-code L-34B43A08 --desired-value 200" in found.remedy


def test_quotas_without_read_permission_are_reported_as_not_checked() -> None:
    (found,) = quota_findings(
        Quotas(denied=("you are not allowed to call servicequotas:GetServiceQuota on ec2",)), "r"
    )
    assert found.severity == "info"


def test_only_vcpus_of_the_quotas_instance_families_count() -> None:
    def instance(kind: str, cores: int, **more: Any) -> dict[str, Any]:
        return {"InstanceType": kind, "CpuOptions": {"CoreCount": cores, "ThreadsPerCore": 2}, **more}

    instances = [
        instance("m5.large", 1),
        instance("c7i.xlarge", 2, InstanceLifecycle="spot"),
        instance("g5.xlarge", 2),
        instance("inf2.xlarge", 2),
    ]

    class Client:
        def get_service_quota(self, ServiceCode: str, QuotaCode: str) -> Any:  # noqa: N803 (AWS's names)
            return {"Quota": {"Value": 5.0 if (ServiceCode, QuotaCode) == ("ec2", QUOTAS["spot"]) else 64.0}}

        def get_paginator(self, name: str) -> Any:
            assert name == "describe_instances"
            return self

        def paginate(self, Filters: Any) -> Any:  # noqa: N803
            assert Filters[0]["Values"] == ["pending", "running"]
            return [{"Reservations": [{"Instances": instances}]}]

        def get_account_settings(self) -> Any:
            return {"AccountLimit": {"UnreservedConcurrentExecutions": 900}}

    read = QuotaReading(lambda _: Client(), "us-east-1").quotas()
    assert read.used == {"on-demand": 2, "spot": 4}
    assert read.vcpus == {"on-demand": 64.0, "spot": 5.0}
    assert read.concurrency == 900


@pytest.mark.parametrize("partition", ["aws", "aws-us-gov", "aws-cn"])
def test_the_policy_to_ask_for_is_that_of_the_callers_partition(partition: str) -> None:
    server = cast("Applier", SimpleNamespace(ask=lambda *_, **__: (401, {})))
    caller = f"arn:{partition}:sts::123456789012:assumed-role/Admin/me"
    of_role = f"--principal-arn arn:{partition}:iam::123456789012:role/Admin "
    policy = f"--policy-arn arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy`"
    cluster = Cluster("web", "ACTIVE", "1.34", "API", "vpc-1", "https://web", "")
    with pytest.raises(Rejected, match=f"{of_role}.*{policy}"):
        refuse_without_rights(server, cluster, "us-gov-west-1", caller)
