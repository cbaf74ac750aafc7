"""`nodesmith migrate` on values: thirty node groups as AWS shows them, and what each of their fields becomes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import boto3
import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.launch.userdata.starting import MalformedUserData
from nodesmith_cli.manifests.validating.command import check
from nodesmith_cli.migration.nodegroups.command import Migration, as_yaml, manifests_of, migrated, report
from nodesmith_cli.migration.nodegroups.fields import Account, FieldReport, Outcome
from nodesmith_cli.migration.nodegroups.groups import (
    NODEGROUP,
    SCALING_GROUP,
    TEMPLATE,
    Found,
    Group,
    GroupContext,
    Kind,
)
from nodesmith_cli.migration.nodegroups.merging import Merged
from nodesmith_cli.migration.nodegroups.pools import Converted, converted
from nodesmith_cli.migration.nodegroups.reading import GroupReading
from nodesmith_cli.migration.nodegroups.userdata import carried, decoded
from nodesmith_formats.manifests.manifests import Document, load_manifests
from tests.aws.nodegroups import (
    BOOTSTRAP,
    CLUSTER,
    NODE_CONFIG,
    POWERSHELL,
    REGION,
    TOML,
    Clients,
    Json,
    managed,
    mixed,
    scaling,
    thirty,
    unaccounted,
    with_template,
)

pytestmark = pytest.mark.xdist_group("migrate")  # tests of the thirty groups share one migration
AROUND = GroupContext(CLUSTER, "1.34", "sg-0c", embedded_catalog(REGION), {"subnet-00": "us-east-1a"})


def done(groups: list[Json], *, apart: bool = True, **fault: Any) -> Migration:
    found = GroupReading(Clients(groups, **fault), REGION).groups_of(CLUSTER)
    return migrated(found, apart=apart)


@lru_cache(maxsize=2)
def of_thirty(*, apart: bool) -> Migration:
    """Return the migration of the thirty groups, which takes seconds and which no test changes."""
    return done(thirty(), apart=apart)


def whole() -> Mapping[str, Merged]:
    """Return the thirty groups, each converted alone."""
    return {each.members[0].group.name: each for each in of_thirty(apart=True).found}


def spec(name: str) -> Json:
    found: Json = whole()[name].nodeclass["spec"]
    return found


def pool(name: str) -> Json:
    found: Json = whole()[name].pool["spec"]
    return found


def requirement(name: str, key: str) -> list[str]:
    found = pool(name)["template"]["spec"]["requirements"]
    return next((each.get("values", [each["operator"]]) for each in found if each["key"] == key), [])


def report_of(name: str, field: str) -> FieldReport:
    (member,) = whole()[name].members
    return next(each for each in member.account.all() if each.field == field)


def test_every_field_of_thirty_groups_is_accounted_for() -> None:
    unknown = [
        (name, field)
        for name, found in whole().items()
        for field in unaccounted(found.members[0].account.all())
    ]
    unexplained = [
        (name, each.field)
        for name, found in whole().items()
        for each in found.members[0].account.all()
        if each.outcome is not Outcome.KEPT and not each.explanation
    ]
    assert len(whole()) == 30
    assert (unknown, unexplained) == ([], [])


@pytest.mark.parametrize("apart", [True, False])
def test_what_is_written_passes_validate(tmp_path: Any, apart: bool) -> None:
    written = tmp_path / "all.yaml"
    result = of_thirty(apart=apart)
    written.write_text(as_yaml(manifests_of(result.found)))
    documents = load_manifests([str(written)]).documents
    assert [str(each) for each in check(documents, REGION) if each.is_error] == []
    assert sum(len(each.members) for each in result.found) == 30
    assert result.problems == ()


def test_groups_that_differ_in_zone_and_size_alone_become_one_nodepool() -> None:
    found = {each.name: each for each in of_thirty(apart=False).found}
    zone = found["zone"]
    assert [member.group.name for member in zone.members] == ["zone-a", "zone-b", "zone-c"]
    assert zone.pool["spec"]["limits"] == {"nodes": "19"}
    subnets = [term["id"] for term in zone.nodeclass["spec"]["subnetSelectorTerms"]]
    assert subnets == ["subnet-00", "subnet-10", "subnet-20"]
    assert [m.group.name for m in found["on-demand"].members] == ["on-demand", "reachable"]


def test_equal_nodeclasses_are_shared_and_named_after_their_image() -> None:
    found = {each.name: each.nodeclass["metadata"]["name"] for each in of_thirty(apart=True).found}
    assert found["gpu"] == found["on-demand"] == "al2023-v20260112"
    assert found["bottlerocket"] == "bottlerocket"


def test_sizes_become_limits_and_a_fixed_size_becomes_replicas() -> None:
    assert pool("on-demand")["limits"] == {"nodes": "5"}
    assert pool("fixed")["replicas"] == 3
    assert "limits" not in pool("fixed")
    least = report_of("zone-c", "nodegroup.scalingConfig.minSize")
    assert (least.outcome, "CapacityBuffer" in least.explanation) == (Outcome.NO_EQUAL, True)


def test_update_settings_become_budgets_for_drift() -> None:
    assert pool("lagging")["disruption"]["budgets"][0] == {"nodes": "33%", "reasons": ["Drifted"]}
    assert pool("on-demand")["disruption"]["budgets"][0] == {"nodes": "1", "reasons": ["Drifted"]}


def test_images_of_eks_become_aliases_of_the_same_release() -> None:
    aliases = {
        name: spec(name)["amiSelectorTerms"][0].get("alias")
        for name in ("on-demand", "bottlerocket", "windows", "nodeadm", "rocket", "win")
    }
    assert aliases == {
        "on-demand": "al2023@v20260112",
        "bottlerocket": "bottlerocket@v1.50.0",
        "windows": "windows2022@latest",
        "nodeadm": "al2023@v20260112",
        "rocket": "bottlerocket@v1.50.0",
        "win": "windows2022@latest",
    }


def test_images_that_no_alias_names_are_kept_by_id_or_parameter() -> None:
    assert spec("mixed")["amiSelectorTerms"] == [{"id": "ami-0old"}]  # of an older version of Kubernetes
    assert spec("mixed")["amiFamily"] == "AL2023"
    assert spec("attributes")["amiSelectorTerms"] == [{"ssmParameter": "/web/ami"}]
    assert spec("custom")["amiFamily"] == "AL2"
    assert "1.34-fips/arm64" in spec("fips")["amiSelectorTerms"][0]["ssmParameter"]


def test_amazon_linux_2_stays_where_kubernetes_still_has_it() -> None:
    group = managed("old", amiType="AL2_x86_64", version="1.32", releaseVersion="1.32.3-20250801")
    around = GroupContext(CLUSTER, "1.32", "sg-0c", embedded_catalog(REGION))
    found = converted(Group(Kind.MANAGED, "old", {NODEGROUP: group}), around)
    assert isinstance(found, Converted)
    assert found.nodeclass["amiSelectorTerms"] == [{"alias": "al2@v20250801"}]
    assert spec("amazon-linux-2")["amiSelectorTerms"] == [{"alias": "al2023@latest"}]
    assert report_of("amazon-linux-2", "nodegroup.amiType").outcome is Outcome.CHANGED


def test_capacity_types_are_those_of_the_group() -> None:
    key = "karpenter.sh/capacity-type"
    assert [requirement(name, key) for name in ("on-demand", "spot", "mixed", "attributes", "block")] == [
        ["on-demand"],
        ["spot"],
        ["spot", "on-demand"],
        ["spot"],
        ["reserved"],
    ]
    assert spec("block")["capacityReservationSelectorTerms"] == [{"id": "cr-0block"}]


def test_instance_requirements_select_what_ec2_would_select() -> None:
    result = done([each for each in thirty() if each.get("AutoScalingGroupName") == "attributes"])
    families = requirement("attributes", "karpenter.k8s.aws/instance-family")
    assert {"m5", "m6i", "r5"} <= set(families)
    assert not {"c5", "t3"} & set(families)
    assert "m5.large" in requirement("attributes", "node.kubernetes.io/instance-type")  # NotIn
    assert requirement("attributes", "karpenter.k8s.aws/instance-gpu-count") == ["DoesNotExist"]
    assert result.problems == ()


def test_attributes_without_a_label_are_named() -> None:
    wanted = {
        "VCpuCount": {"Min": 2},
        "MemoryMiB": {"Min": 1024},
        "NetworkInterfaceCount": {"Min": 2},
        "Newer": "x",
    }
    (found,) = done(
        [scaling("odd", {"InstanceType": None}, **mixed("odd", [{"InstanceRequirements": wanted}]))]
    ).found
    field = "autoScalingGroup.MixedInstancesPolicy.LaunchTemplate.Overrides"
    (said,) = (each for each in found.members[0].account.all() if each.field == field)
    assert said.outcome is Outcome.CHANGED
    assert "NetworkInterfaceCount" in said.explanation
    assert "Newer" in said.explanation


def test_labels_and_taints_are_kept_and_those_of_instances_are_not_set() -> None:
    assert pool("labelled")["template"]["metadata"]["labels"] == {"team": "web"}
    assert report_of("labelled", "nodegroup.labels[kubernetes.io/arch]").outcome is Outcome.NO_EQUAL
    assert pool("tainted")["template"]["spec"]["taints"] == [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "slow", "effect": "PreferNoSchedule"},
    ]


def test_the_group_s_name_is_a_requirement_only_if_pods_select_by_it() -> None:
    def named(selected: frozenset[str]) -> list[Json]:
        sources = {NODEGROUP: managed("a")}
        around = GroupContext(CLUSTER, "1.34", "sg-0c", AROUND.catalog, selected=selected)
        found = migrated(Found((Group(Kind.MANAGED, "a", sources),), around), apart=False).found
        return [
            each
            for each in found[0].pool["spec"]["template"]["spec"]["requirements"]
            if each["key"] == "eks.amazonaws.com/nodegroup"
        ]

    assert named(frozenset()) == []
    assert named(frozenset({"eks.amazonaws.com/nodegroup"}))[0]["values"] == ["a"]


def test_tags_of_cluster_autoscaler_describe_the_nodes() -> None:
    found = whole()["tagged"]
    template = pool("tagged")["template"]
    assert template["metadata"]["labels"] == {"team": "tagged"}
    assert template["spec"]["taints"] == [{"key": "team", "value": "tagged", "effect": "NoSchedule"}]
    assert pool("tagged")["disruption"]["consolidateAfter"] == "30m"
    assert found.overlay is not None
    assert found.overlay["spec"]["capacity"] == {"example.com/dongle": "2"}
    assert spec("tagged")["tags"] == {"Name": "node"}
    assert "scaledownutilizationthreshold" in report_of("tagged", "autoScalingGroup.Tags").explanation


def test_volumes_metadata_and_network_are_those_of_the_launch_template() -> None:
    (root,) = spec("volumes")["blockDeviceMappings"]
    assert root["ebs"]["volumeSize"] == "80Gi"
    assert root["ebs"]["kmsKeyID"] == "alias/nodes"
    assert "/dev/sdb" in report_of("volumes", "launchTemplate.BlockDeviceMappings").explanation
    assert spec("volumes")["metadataOptions"] == {
        "httpTokens": "optional",
        "httpPutResponseHopLimit": 3,
        "httpEndpoint": "enabled",
    }
    assert spec("volumes")["detailedMonitoring"] is True
    assert spec("volumes")["tags"] == {"cost": "web"}
    assert spec("network")["securityGroupSelectorTerms"] == [{"id": "sg-0b"}, {"id": "sg-0c"}]
    assert spec("network")["associatePublicIPAddress"] is False
    assert spec("network")["connectionTracking"] == {"udpTimeout": 40}
    assert spec("network")["placementGroupSelector"] == {"name": "near"}
    assert spec("on-demand")["securityGroupSelectorTerms"] == [{"id": "sg-0c1u57e7"}]
    assert spec("bottlerocket")["blockDeviceMappings"][1]["ebs"]["volumeSize"] == "40Gi"


def test_what_has_no_equal_has_a_remedy() -> None:
    lost = {
        ("reachable", "nodegroup.remoteAccess.ec2SshKey"): "Session Manager",
        ("repaired", "nodegroup.warmPoolConfig"): "CapacityBuffer",
        ("dedicated", "launchTemplate.EnclaveOptions"): "keep the group",
        ("tagged", "autoScalingGroup.TargetGroupARNs"): "TargetGroupBinding",
        ("script", "launchTemplate.CreditSpecification"): "modify-default-credit-specification",
    }
    for (name, field), remedy in lost.items():
        assert report_of(name, field).outcome is Outcome.NO_EQUAL
        assert remedy in report_of(name, field).explanation


def test_lifetime_repair_and_rebalance_are_kept() -> None:
    assert pool("nodeadm")["template"]["spec"]["expireAfter"] == "604800s"
    assert pool("on-demand")["template"]["spec"]["expireAfter"] == "Never"
    assert whole()["nodeadm"].pool["metadata"]["annotations"] == {"nodesmith.dev/rebalance": "Replace"}
    assert whole()["repaired"].pool["metadata"]["annotations"] == {"nodesmith.dev/node-repair": "On"}


def test_a_bootstrap_call_is_removed_and_its_flags_move() -> None:
    found = carried(BOOTSTRAP, "AL2")
    assert "bootstrap.sh web" not in found.text
    assert "yum install -y amazon-ssm-agent" in found.text
    assert found.labels == {"team": "data", "tier": "batch"}
    assert found.taints == [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    assert found.kubelet == {"maxPods": 58}


def test_what_a_script_does_not_say_plainly_is_reported() -> None:
    found = carried(
        '/etc/eks/bootstrap.sh web --kubelet-extra-args "--node-labels=a=$B" --pause 1 && reboot\n', "AL2"
    )
    assert any("$B" in note for note in found.notes)
    assert any("--pause" in note for note in found.notes)
    assert any("reboot" in note for note in found.notes)
    assert found.text == ""
    with pytest.raises(MalformedUserData):
        carried("/etc/eks/bootstrap.sh 'web\n", "AL2")


def test_a_node_config_keeps_what_nodesmith_does_not_set() -> None:
    found = carried(NODE_CONFIG, "AL2023")
    assert found.labels == {"team": "web", "arch": "arm"}
    assert found.taints == [{"key": "arm", "value": "yes", "effect": "NoSchedule"}]
    assert found.kubelet == {"maxPods": 42}
    assert "--v=3" in found.text
    assert "certificateAuthority" not in found.text
    aliased = NODE_CONFIG.replace("arm, value", "&a arm, value").replace('"yes"', "*a")
    assert carried(aliased, "AL2023").text == aliased


def test_settings_of_bottlerocket_and_windows_are_read() -> None:
    rocket, windows = carried(TOML, "Bottlerocket"), carried(POWERSHELL, "Windows2022")
    assert (rocket.text, rocket.labels, rocket.kubelet) == (TOML, {"team": "edge"}, {"maxPods": 29})
    assert rocket.taints == [{"key": "edge", "value": "true", "effect": "NoSchedule"}]
    assert windows.labels == {"os": "win"}
    assert "-EKSClusterName" not in windows.text
    assert "Write-Host hello" in windows.text


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("[settings]\nkubernetes = {node-labels = 3}\n", "Bottlerocket"),
        ("settings = 3\n", "Bottlerocket"),
        ("apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: {config: {registerWithTaints: 3}}}\n", "AL2023"),
        ("apiVersion: node.eks.aws/v1alpha1\nspec: {instance: 3}\n", "AL2023"),
        ("apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: {flags: 3}}\n", "AL2023"),
    ],
)
def test_settings_of_unexpected_types_are_refused(text: str, family: str) -> None:
    with pytest.raises(MalformedUserData):
        carried(text, family)


def test_groups_are_not_joined_if_one_nodeclass_cannot_select_all_their_subnets() -> None:
    groups = [managed(f"g{n}", subnets=[f"subnet-{n}{m}a" for m in range(16)]) for n in range(2)]
    assert len(done(groups, apart=False).found) == 2
    assert len(done([{**each, "subnets": each["subnets"][:15]} for each in groups], apart=False).found) == 1


def test_user_data_that_cannot_be_merged_is_left_out_and_told() -> None:
    broken = [
        with_template("a", {"UserData": base64.b64encode(b"\xff\xfe").decode()}),
        with_template(
            "b", {"UserData": base64.b64encode(b"kind: [\napiVersion: node.eks.aws/v1alpha1\n").decode()}
        ),
        with_template("c", {"UserData": base64.b64encode(b"#!/bin/sh\n" + b"#" * 20000).decode()}),
    ]
    for each in done(broken).found:
        said = next(t for t in each.members[0].account.all() if t.field == "launchTemplate.UserData")
        assert (said.outcome, "userData" in each.nodeclass["spec"]) == (Outcome.NO_EQUAL, False)
        assert "spec.userData" in said.explanation
    assert len(done(broken).found) == 3
    with pytest.raises(MalformedUserData):
        decoded(base64.b64encode(b"\x1f\x8bxx").decode())


def test_a_group_that_cannot_be_converted_is_reported_and_the_rest_goes_on() -> None:
    groups = [
        managed("fine"),
        managed("leaving", status="DELETING"),
        with_template("lost", {}),
        managed("odd", instanceTypes=["x99.huge"]),
        managed("partly", instanceTypes=["m5.larg", "m5.large"]),
        managed("nowhere", subnets=[]),
        scaling("bare", {}, LaunchTemplate=None),
        scaling("unknown", {"ImageId": None}),
    ]
    result = done(groups, gone=frozenset({"lt-lost"}))
    assert [each.name for each in result.found] == ["fine", "partly"]
    said = "\n".join(result.problems)
    for name, why in (
        ("leaving", "DELETING"),
        ("lost", "version 3 of its launch template lt-lost is gone"),
        ("odd", "x99.huge"),
        ("nowhere", "subnets"),
        ("bare", "no launch template"),
        ("unknown", "ImageId"),
    ):
        assert f" {name}: not converted" in said
        assert why in said
    partly = next(each for each in result.found if each.name == "partly")
    types = next(t for t in partly.members[0].account.all() if t.field == "nodegroup.instanceTypes")
    assert "did you mean 'm5.large'" in types.explanation


@pytest.mark.parametrize(
    ("action", "left"),
    [
        ("eks:ListNodegroups", 7),
        ("eks:DescribeNodegroup", 7),
        ("autoscaling:DescribeAutoScalingGroups", 23),
        ("ec2:DescribeLaunchTemplateVersions", 18),
        ("ec2:DescribeImages", 30),
        ("ec2:DescribeSubnets", 30),
    ],
)
def test_a_missing_right_is_named_and_the_rest_goes_on(action: str, left: int) -> None:
    result = done(thirty(), denied=frozenset({action}))
    assert any(f"not allowed to call {action}" in problem for problem in result.problems)
    assert len(result.found) == left


def test_a_degraded_group_is_converted_and_its_issues_are_reported() -> None:
    issues = {"issues": [{"code": "AsgInstanceLaunchFailures", "message": "no capacity"}]}
    (found,) = done([managed("ill", status="DEGRADED", health=issues)]).found
    said = {each.field: each for each in found.members[0].account.all()}
    assert "DEGRADED" in said["nodegroup.health"].explanation
    assert not said["nodegroup.health"].is_quiet


def test_a_launch_configuration_is_read_like_a_launch_template() -> None:
    configuration = {
        "LaunchConfigurationName": "old",
        "ImageId": "ami-0a2023",
        "InstanceType": "m7g.large",
        "SecurityGroups": ["sg-0a"],
        "IamInstanceProfile": "nodes",
        "KeyName": "",
        "UserData": "",
        "InstanceMonitoring": {"Enabled": False},
        "SpotPrice": "0.1",
        "AssociatePublicIpAddress": True,
    }
    group = scaling("old", {}, LaunchTemplate=None, LaunchConfigurationName="old") | {
        "configuration": configuration
    }
    (found,) = done([group]).found
    made = found.nodeclass["spec"]
    assert (made["instanceProfile"], made["associatePublicIPAddress"]) == ("nodes", True)
    assert made["securityGroupSelectorTerms"] == [{"id": "sg-0a"}]
    assert unaccounted(found.members[0].account.all()) == []


def members(shape: Any, seen: tuple[str, ...] = ()) -> Any:
    """Return a value with every member of a botocore shape."""
    if shape.type_name == "structure":
        inner = (*seen, shape.name)
        return {n: members(s, inner) for n, s in shape.members.items() if s.name not in inner}
    if shape.type_name == "list":
        return [members(shape.member, seen)]
    plain = {"integer": 1, "double": 1.0, "boolean": True, "map": {"k": "v"}, "timestamp": "2026-01-01"}
    return plain.get(shape.type_name, "x")


def test_every_field_that_aws_documents_is_known() -> None:
    session = boto3.Session(region_name=REGION)
    eks, ec2, scalings = (session.client(name).meta.service_model for name in ("eks", "ec2", "autoscaling"))
    template = members(ec2.shape_for("ResponseLaunchTemplateData"))
    template |= {"ImageId": "ami-1", "InstanceRequirements": None, "UserData": ""}
    nodegroup = members(eks.shape_for("Nodegroup")) | {"instanceTypes": ["m5.large"]}
    group = members(scalings.shape_for("AutoScalingGroup"))
    group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"] = [{"InstanceType": "m5.large"}]
    unknown = [
        *unknown_fields(Group(Kind.MANAGED, "a", {NODEGROUP: nodegroup, TEMPLATE: template})),
        *unknown_fields(Group(Kind.SELF_MANAGED, "b", {SCALING_GROUP: group, TEMPLATE: template})),
    ]
    assert unknown == []


def unknown_fields(group: Group) -> list[str]:
    found = converted(group, AROUND)
    assert isinstance(found, Converted), found
    return unaccounted(found.account.all())


def test_a_field_that_no_one_accounts_for_is_told_as_unknown() -> None:
    account = Account({NODEGROUP: {"known": {"a": 1, "b": None}, "newer": {"deep": ["x"]}}})
    account.record_kept((NODEGROUP, "known"), "something")
    assert [(each.field, each.outcome) for each in account.all()] == [
        ("nodegroup.known", Outcome.KEPT),
        ("nodegroup.newer.deep", Outcome.NO_EQUAL),
    ]


def test_the_report_has_every_field_with_its_outcome_and_reason_or_remedy() -> None:
    data = report(of_thirty(apart=False))
    fields = [field for each in data["nodePools"] for group in each["groups"] for field in group["fields"]]
    assert {field["outcome"] for field in fields} == {"kept", "changed", "no equal"}
    assert all(field.get("remedy") for field in fields if field["outcome"] == "no equal")
    assert all(field.get("reason") for field in fields if field["outcome"] == "changed")
    assert data["pods"] is None


def errors(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    documents = [Document(each, "a", n) for n, each in enumerate(manifests)]
    return [str(each) for each in check(documents, REGION) if each.is_error]


def test_a_nodepool_of_reservations_alone_is_no_error_where_only_the_cluster_knows_them() -> None:
    block = whole()["block"]
    assert errors([block.nodeclass, block.pool]) == []
    spec = {name: value for name, value in block.nodeclass["spec"].items() if "Reservation" not in name}
    assert "leaves none" in "".join(errors([{**block.nodeclass, "spec": spec}, block.pool]))
