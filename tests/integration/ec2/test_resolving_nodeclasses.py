"""Resolution of EC2NodeClasses in an account, and the conditions for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2 import ec2_backends

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.ownedresources import profile_name
from nodesmith.composition.parts import system_time
from nodesmith.errors import Rejected
from nodesmith.model.nodeclasses.nodeclasses import (
    AMISelectorTerm,
    EC2NodeClass,
    PlacementGroupSelector,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from nodesmith.model.nodeclasses.status import NodeClassStatus, StatusCondition
from nodesmith_local.aws.account import make_role, put_parameter
from tests.aws.account import DISCOVERY, NODECLASS, REGION, SETTINGS, ZONES, Account, account, client
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def world() -> Iterator[Account]:
    with account() as furnished:
        furnished.strict.limit_rates(on=False)  # many resolutions at one moment, each with dry runs
        yield furnished


READINESS = acting(client, Role("readiness", CLUSTER.name, REGION))
ANYBODY = client
"""For calls that readiness may not make on AWS, or not in a test's order."""


def resolved(
    nodeclass: EC2NodeClass, now: datetime = NOW, who: Callable[[str], Any] = READINESS, **changes: Any
) -> NodeClassStatus:
    return AwsCloud(who, replace(SETTINGS, **changes), system_time).resolve(nodeclass, CLUSTER, now)


def condition(status: NodeClassStatus, kind: str) -> StatusCondition:
    return next(c for c in status.conditions if c.type == kind)


def with_images(*terms: AMISelectorTerm, family: str = "AL2023") -> EC2NodeClass:
    return replace(NODECLASS, ami_selector_terms=terms, ami_family=family)


def register(name: str, tags: dict[str, str] | None = None) -> str:
    image = client("ec2").register_image(Name=name)["ImageId"]
    ec2_backends[DEFAULT_ACCOUNT_ID][REGION].amis[image].architecture = "arm64"  # moto drops it
    if tags:
        client("ec2").create_tags(Resources=[image], Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
    return str(image)


def test_subnets_are_selected_by_tag_tag_key_and_id(world: Account) -> None:
    ids = set(world.network.subnets.values())
    for terms in (
        (SubnetSelectorTerm(DISCOVERY),),
        (SubnetSelectorTerm({"karpenter.sh/discovery": "*"}),),
        tuple(SubnetSelectorTerm(id=one) for one in sorted(ids)),
    ):
        found = resolved(replace(NODECLASS, subnet_selector_terms=terms)).subnets
        assert {subnet.id for subnet in found} == ids
        assert {subnet.zone for subnet in found} == set(ZONES)
        assert all(subnet.zone_id and subnet.free_ips > 4000 for subnet in found)


def test_terms_are_combined_with_or_and_tags_of_a_term_with_and(world: Account) -> None:
    a, b = world.network.subnets["us-east-1a"], world.network.subnets["us-east-1b"]
    both = {**DISCOVERY, "Name": "express-us-east-1b"}
    terms = (SubnetSelectorTerm(id=a), SubnetSelectorTerm(both))
    found = resolved(replace(NODECLASS, subnet_selector_terms=terms)).subnets
    assert {subnet.id for subnet in found} == {a, b}


def test_subnets_with_most_free_addresses_come_first(world: Account) -> None:
    client("ec2").create_network_interface(SubnetId=world.network.subnets["us-east-1a"])
    free = [subnet.free_ips for subnet in resolved(NODECLASS).subnets]
    assert free == sorted(free, reverse=True)
    assert free[-1] == free[0] - 1


def test_security_groups_are_selected_by_tag_name_and_id(world: Account) -> None:
    group = world.network.security_group_id
    for term in (
        SecurityGroupSelectorTerm(DISCOVERY),
        SecurityGroupSelectorTerm(name="express-node"),
        SecurityGroupSelectorTerm(id=group),
    ):
        found = resolved(replace(NODECLASS, security_group_selector_terms=(term,))).security_groups
        assert [(g.id, g.name) for g in found] == [(group, "express-node")]


def test_selectors_without_a_match_are_quoted_with_a_remedy_and_the_rest_is_resolved() -> None:
    nodeclass = replace(
        NODECLASS,
        subnet_selector_terms=(SubnetSelectorTerm({"team": "nobody"}), SubnetSelectorTerm(id="subnet-0")),
        security_group_selector_terms=(SecurityGroupSelectorTerm(name="nobody"),),
        ami_selector_terms=(AMISelectorTerm(name="nothing-*", owner="self"),),
    )
    status = resolved(nodeclass)
    subnets, groups = condition(status, "SubnetsReady"), condition(status, "SecurityGroupsReady")
    assert (subnets.status, subnets.reason) == ("False", "SubnetsNotFound")
    assert "spec.subnetSelectorTerms [tags team=nobody; id subnet-0]: tag the subnets" in subnets.message
    assert (groups.status, groups.reason) == ("False", "SecurityGroupsNotFound")
    assert "[name nobody]" in groups.message
    images = condition(status, "AMIsReady")
    assert (images.status, images.reason) == ("False", "AMINotFound")
    assert "[name nothing-* owner self]" in images.message
    validation = condition(status, "ValidationSucceeded")
    assert validation.reason == "DependenciesNotReady"
    assert validation.message == "waiting for AMIsReady, SubnetsReady, SecurityGroupsReady"
    assert condition(status, "InstanceProfileReady").status == "True"
    assert not status.is_ready
    assert (status.subnets, status.security_groups, status.images) == ((), (), ())


def test_an_alias_yields_one_image_for_each_kind_of_instance() -> None:
    found = resolved(NODECLASS).images
    assert len(found) == 5
    assert all(image.name.endswith("-v20261112") and not image.deprecated for image in found)
    standard = [
        i for i in found if i.requirements["kubernetes.io/arch"].allows("amd64") and "standard" in i.name
    ]
    assert len(standard) == 1


def test_a_pinned_alias_yields_the_images_of_that_release() -> None:
    found = resolved(with_images(AMISelectorTerm(alias="al2023@v20261015"))).images
    assert {image.name.rpartition("-")[2] for image in found} == {"v20261015"}


def test_an_image_that_serves_two_kinds_of_instance_is_listed_for_both() -> None:
    found = resolved(with_images(AMISelectorTerm(alias="bottlerocket@latest"), family="Custom")).images
    ids = [image.id for image in found]
    assert len(ids) == 5
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("year", "build"), [("2019", "10.0.17763"), ("2022", "10.0.20348"), ("2025", "10.0.26100")]
)
def test_a_windows_alias_yields_an_image_for_its_build(year: str, build: str) -> None:
    if year == "2025":
        reported = condition(
            resolved(with_images(AMISelectorTerm(alias="windows2025@latest"), family="Windows2025")),
            "AMIsReady",
        )
        assert (reported.reason, "1.35 or later, found 1.33" in reported.message) == (
            "UnsupportedAlias",
            True,
        )
        return
    status = resolved(with_images(AMISelectorTerm(alias=f"windows{year}@latest"), family=f"Windows{year}"))
    (image,) = status.images
    assert image.name == f"Windows_Server-{year}-English-Core-EKS_Optimized-1.33-2026.11.12"
    assert {key: sorted(image.requirements[key].values) for key in image.requirements} == {
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["windows"],
        "node.kubernetes.io/windows-build": [build],
    }
    assert status.is_ready, status.first_obstacle


def test_a_fips_image_is_selected_by_its_parameter_and_boots_on_any_type_of_its_architecture() -> None:
    image = register("bottlerocket-aws-k8s-1.33-fips-aarch64-v1.50.0-5d9ac849")
    path = "/aws/service/bottlerocket/aws-k8s-1.33-fips/arm64/latest/image_id"
    put_parameter(REGION, path, image)
    (found,) = resolved(with_images(AMISelectorTerm(ssm_parameter=path), family="Bottlerocket")).images
    assert (found.id, [str(found.requirements[key]) for key in found.requirements]) == (
        image,
        ["kubernetes.io/arch In [arm64]"],
    )


@pytest.mark.parametrize(
    ("family", "text", "reason"),
    [
        ("Bottlerocket", "[settings]\na = 1\na = 2\n", "UserDataInvalid"),
        ("Bottlerocket", "[settings.motd]\ntext = '" + "x" * 16_300 + "'\n", "UserDataSizeLimitExceeded"),
        ("AL2", 'Content-Type: multipart/mixed; boundary="B"\n\nhello\n', "UserDataInvalid"),
        ("Windows2022", "dir\n</powershell>\n", "UserDataInvalid"),
        ("AL2023", "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: [\n", "UserDataInvalid"),
    ],
)
def test_a_nodeclass_with_user_data_that_cannot_be_merged_is_not_ready(
    family: str, text: str, reason: str
) -> None:
    status = resolved(replace(NODECLASS, ami_family=family, user_data=text))
    reported = condition(status, "ValidationSucceeded")
    assert (reported.status, reported.reason) == ("False", reason)
    assert reported.message.startswith("spec.userData: ")
    assert not status.is_ready


def test_a_missing_release_is_named() -> None:
    reported = condition(resolved(with_images(AMISelectorTerm(alias="al2023@v20990101"))), "AMIsReady")
    assert reported.reason == "AMINotFound"
    assert "alias al2023@v20990101" in reported.message
    assert reported.message.endswith("for Kubernetes 1.33: use v20261112, the newest, or @latest")


def test_a_missing_release_of_bottlerocket_is_named_with_the_newest() -> None:
    missing = with_images(AMISelectorTerm(alias="bottlerocket@v1.99.9"), family="Bottlerocket")
    assert "use v1.50.0, the newest" in condition(resolved(missing), "AMIsReady").message


def test_an_alias_that_is_too_old_for_the_cluster_is_unsupported() -> None:
    reported = condition(resolved(with_images(AMISelectorTerm(alias="al2@latest"))), "AMIsReady")
    assert reported.reason == "UnsupportedAlias"
    assert "1.33" in reported.message


def test_images_are_selected_by_id_name_tags_and_parameter() -> None:
    image = register("team-image-1", {"team": "express"})
    client("ssm").put_parameter(Name="/team/image", Value=image, Type="String")
    for term in (
        AMISelectorTerm(id=image),
        AMISelectorTerm(name="team-image-*"),
        AMISelectorTerm(name="team-image-*", owner="self"),
        AMISelectorTerm(tags={"team": "express"}),
        AMISelectorTerm(tags={"team": "*"}),
        AMISelectorTerm(ssm_parameter="/team/image"),
    ):
        assert [found.id for found in resolved(with_images(term)).images] == [image], term


def test_a_parameter_without_an_image_selects_none() -> None:
    client("ssm").put_parameter(Name="/team/image", Value="latest", Type="String")
    for name in ("/team/image", "/team/missing"):
        found = resolved(with_images(AMISelectorTerm(ssm_parameter=name)), who=ANYBODY)
        reported = condition(found, "AMIsReady")
        assert reported.reason == "AMINotFound"
        assert name in reported.message


def test_the_newest_of_equal_images_is_kept_and_a_deprecated_one_only_without_alternative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def image(name: str, created: str, deprecated: str = "") -> dict[str, str]:
        ends = {"DeprecationTime": deprecated} if deprecated else {}
        return {
            "ImageId": f"ami-{name}",
            "Name": name,
            "Architecture": "x86_64",
            "CreationDate": created,
            **ends,
        }

    old, new = image("old", "2026-01-01T00:00:00.000Z"), image("new", "2026-06-01T00:00:00.000Z")
    stale = image("stale", "2026-10-01T00:00:00.000Z", "2026-11-01T00:00:00.000Z")
    coming = image("coming", "2026-09-01T00:00:00.000Z", "2027-11-01T00:00:00.000Z")
    twin = image("newer-name", "2026-06-01T00:00:00.000Z")
    mac = {
        **new,
        "ImageId": "ami-mac",
        "Architecture": "x86_64_mac",
        "CreationDate": "2026-11-01T00:00:00.000Z",
    }
    for found, kept in (
        ([old, new], "ami-new"),
        ([stale, old], "ami-old"),
        ([stale], "ami-stale"),
        ([coming, new], "ami-coming"),
        ([new, twin], "ami-newer-name"),
        ([mac, old], "ami-old"),
    ):
        monkeypatch.setattr(
            "nodesmith.adapters.nodeclasses.images._describe", lambda *_, found=found, **__: iter(found)
        )
        (image_kept,) = resolved(with_images(AMISelectorTerm(id="ami-any"))).images
        assert image_kept.id == kept
        assert image_kept.deprecated == (kept == "ami-stale")
        reported = condition(resolved(with_images(AMISelectorTerm(id="ami-any"))), "AMIsReady")
        assert reported.status == "True"
        assert reported.message == (
            "deprecated, and nothing newer is selected: stale" if image_kept.deprecated else ""
        )


def test_a_tagged_profile_is_created_for_a_role() -> None:
    status = resolved(replace(NODECLASS, tags={"team": "express"}))
    profile = client("iam").get_instance_profile(InstanceProfileName=status.instance_profile)[
        "InstanceProfile"
    ]
    assert [role["RoleName"] for role in profile["Roles"]] == [NODECLASS.role]
    assert profile["Path"] == f"/nodesmith/{REGION}/express/uid-default/"
    tags = {tag["Key"]: tag["Value"] for tag in profile["Tags"]}
    assert tags == {
        "team": "express",
        "kubernetes.io/cluster/express": "owned",
        "eks:eks-cluster-name": "express",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "topology.kubernetes.io/region": REGION,
    }


def test_a_profile_is_created_once_and_completed_after_an_interruption() -> None:
    name = profile_name(NODECLASS, CLUSTER.name, REGION)
    client("iam").create_instance_profile(InstanceProfileName=name)
    for _ in range(2):
        assert resolved(NODECLASS, who=ANYBODY).instance_profile == name
    profile = client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [NODECLASS.role]


def test_another_role_has_another_profile_and_another_path_the_same() -> None:
    make_role(client("iam"), "other")
    first = resolved(NODECLASS).instance_profile
    assert resolved(replace(NODECLASS, role="other")).instance_profile != first
    assert resolved(replace(NODECLASS, role=f"service/{NODECLASS.role}")).instance_profile == first


def test_a_missing_role_is_named() -> None:
    reported = condition(resolved(replace(NODECLASS, role="nobody"), who=ANYBODY), "InstanceProfileReady")
    assert (reported.status, reported.reason) == ("False", "RoleNotFound")
    assert "spec.role 'nobody'" in reported.message


@pytest.mark.parametrize(
    ("tags", "where"),
    [
        ({"stages": "dev,test"}, "spec.tags['stages']"),
        ({"Owner": "é ü", "cost#1": "1"}, "spec.tags['cost#1']"),
    ],
)
def test_a_tag_that_ec2_takes_and_iam_does_not_is_named(tags: dict[str, str], where: str) -> None:
    reported = condition(resolved(replace(NODECLASS, tags=tags)), "InstanceProfileReady")
    assert (reported.status, reported.reason) == ("False", "TagValidationFailed")
    assert reported.message.startswith(where)
    assert "spec.instanceProfile" in reported.message


def test_a_nodeclass_without_a_role_gets_the_default_one_which_its_status_shows() -> None:
    status = resolved(replace(NODECLASS, role=""), default_node_role=NODECLASS.role)

    iam = client("iam")
    profile = iam.get_instance_profile(InstanceProfileName=status.instance_profile)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [NODECLASS.role]
    reported = condition(status, "InstanceProfileReady")
    assert (reported.status, reported.message) == (
        "True",
        f"no role is named: nodes get the cluster's first node role, {NODECLASS.role}",
    )


def test_a_nodeclass_without_a_role_is_not_ready_without_a_default() -> None:
    reported = condition(resolved(replace(NODECLASS, role="")), "InstanceProfileReady")
    assert (reported.status, reported.reason) == ("False", "RoleNotFound")
    assert "DEFAULT_NODE_ROLE is not set" in reported.message


def test_a_role_that_is_only_a_path_is_refused() -> None:
    found = condition(resolved(replace(NODECLASS, role="path/")), "InstanceProfileReady")
    assert (found.status, found.reason) == ("False", "RoleNotFound")
    assert not client("iam").list_instance_profiles()["InstanceProfiles"]


def test_the_message_about_very_long_selectors_is_shortened() -> None:
    tags = {f"key-{n}": "v" * 250 for n in range(20)}
    status = resolved(replace(NODECLASS, subnet_selector_terms=(SubnetSelectorTerm(tags),) * 5))
    assert condition(status, "SubnetsReady").message.startswith("no subnet matches")
    assert max(len(c.message) for c in status.conditions) <= 1024


def test_a_users_own_profile_is_used_without_calling_iam() -> None:
    nodeclass = replace(NODECLASS, role="", instance_profile="their-own")
    assert resolved(nodeclass, isolated_vpc=True).instance_profile == "their-own"
    assert client("iam").list_instance_profiles()["InstanceProfiles"] == []


def test_profiles_cannot_be_created_in_an_isolated_vpc_which_the_message_explains() -> None:
    reported = condition(resolved(NODECLASS, isolated_vpc=True), "InstanceProfileReady")
    assert reported.status == "False"
    assert "spec.instanceProfile" in reported.message


def test_conditions_have_the_time_of_the_resolution() -> None:
    later = NOW + timedelta(hours=1)
    status = resolved(NODECLASS, later)
    assert {c.since for c in status.conditions} == {later}
    assert status.resolved_at == later


def test_settings_take_precedence_over_eks() -> None:
    info = AwsCloud(
        client, replace(SETTINGS, cluster_endpoint="https://elsewhere"), system_time
    ).cluster_info()
    assert info == replace(CLUSTER, endpoint="https://elsewhere")


def test_with_all_settings_eks_is_not_called() -> None:
    settings = replace(
        SETTINGS,
        cluster_endpoint="https://api",
        cluster_ca_bundle="Q0E=",
        cluster_service_cidr="fd00:1234::/108",
        cluster_version="1.34",
    )

    def nobody(service: str) -> Any:
        raise AssertionError(f"{service} was asked")

    info = AwsCloud(nobody, settings, system_time).cluster_info()
    assert (info.ip_family, info.dns_ip) == ("ipv6", "fd00:1234::a")


def test_an_unknown_cluster_is_rejected_with_the_settings_that_replace_eks() -> None:
    settings = replace(SETTINGS, cluster_name="nobody", cluster_endpoint="https://api")
    with pytest.raises(
        Rejected, match=r"'nobody'.*set CLUSTER_CA_BUNDLE, CLUSTER_SERVICE_CIDR, CLUSTER_VERSION"
    ):
        AwsCloud(client, settings, system_time).cluster_info()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cluster_service_cidr": "10.100.0.0/99"}, "CLUSTER_SERVICE_CIDR='10.100.0.0/99'"),
        ({"cluster_service_cidr": "10.0.0.0/30"}, "too small"),
        ({"cluster_version": "v1.33.2"}, "CLUSTER_VERSION='v1.33.2'"),
    ],
)
def test_invalid_settings_are_quoted(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        AwsCloud(client, replace(SETTINGS, **changes), system_time).cluster_info()


def test_a_nodeclass_without_reservations_and_placement_group_shows_both_conditions_as_true() -> None:
    found = resolved(NODECLASS)
    for kind in ("CapacityReservationsReady", "PlacementGroupReady"):
        assert condition(found, kind) == StatusCondition(kind, "True", kind, "", NOW)


def test_a_selector_that_is_removed_leaves_no_condition_of_its_failure() -> None:
    missing = replace(NODECLASS, placement_group_selector=PlacementGroupSelector(name="nowhere"))
    assert condition(resolved(missing), "PlacementGroupReady").reason == "PlacementGroupNotFound"
    assert condition(resolved(NODECLASS), "PlacementGroupReady").status == "True"
