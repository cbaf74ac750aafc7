"""Our resources that AwsCloud finds in EC2 and IAM, and their deletion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.ownedresources import profile_name
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan
from nodesmith.errors import Transient
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.ec2.launches import Launched
from tests.aws.account import NODECLASS, REGION, SETTINGS, Account, account, client
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NOW, options

OURS = {
    "kubernetes.io/cluster/express": "owned",
    "eks:eks-cluster-name": "express",
    "nodesmith.dev/managed-by": "express",
    "karpenter.sh/nodepool": "default",
}


@pytest.fixture(autouse=True)
def world() -> Iterator[Account]:
    # So that a missing instance does not match. Other tests cover delayed visibility.
    with account(delayed=False) as furnished:
        yield furnished


@pytest.fixture
def cloud() -> AwsCloud:
    return AwsCloud(acting(client, Role("garbagecollection", CLUSTER.name, REGION)), SETTINGS, system_time)


def tagged(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]


def volume(tags: dict[str, str]) -> str:
    zone = f"{REGION}a"
    made = client("ec2").create_volume(
        AvailabilityZone=zone, Size=1, TagSpecifications=tagged("volume", tags)
    )
    return str(made["VolumeId"])


def interface(world: Account, tags: dict[str, str]) -> str:
    subnet = next(iter(world.network.subnets.values()))
    made = client("ec2").create_network_interface(
        SubnetId=subnet, TagSpecifications=tagged("network-interface", tags)
    )
    return str(made["NetworkInterface"]["NetworkInterfaceId"])


def launched(claim: str = CLAIM.name) -> Launched:
    """Launch an instance as other functions do before garbage collection runs."""
    cloud = AwsCloud(client, SETTINGS, system_time)
    status = cloud.resolve(NODECLASS, CLUSTER, NOW)
    offered = options(["m5.large"], NODECLASS)
    request, templates = launch_plan(replace(CLAIM, name=claim), offered, NODECLASS, status, CLUSTER)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Launched)
    return outcome


def ids(found: list[Owned]) -> list[str]:
    return [owned.id for owned in found]


def test_only_our_detached_volumes_are_found_and_deleted(cloud: AwsCloud) -> None:
    launched()
    loose = volume({**OURS, "karpenter.sh/nodeclaim": "default-gone"})
    volume({**OURS, "nodesmith.dev/managed-by": "other"})
    volume({"kubernetes.io/cluster/express": "owned"})  # with the EBS CSI driver's tags for a pod's volume
    volume({**OURS, "nodesmith.dev/keep-volumes": "true"})
    (found,) = cloud.owned(OwnedKind.VOLUME)
    assert (found.id, found.claim) == (loose, "default-gone")
    cloud.remove(found)
    cloud.remove(found)
    assert cloud.owned(OwnedKind.VOLUME) == []
    assert len(client("ec2").describe_volumes()["Volumes"]) == 4


def test_only_our_detached_interfaces_are_found_and_deleted(world: Account, cloud: AwsCloud) -> None:
    launched()
    loose = interface(world, OURS)
    kept = interface(world, {"cluster.k8s.amazonaws.com/name": "express"})  # with the VPC CNI's tags
    assert ids(cloud.owned(OwnedKind.NETWORK_INTERFACE)) == [loose]
    cloud.remove(Owned(OwnedKind.NETWORK_INTERFACE, loose))
    cloud.remove(Owned(OwnedKind.NETWORK_INTERFACE, loose))
    assert cloud.owned(OwnedKind.NETWORK_INTERFACE) == []
    left = client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    assert kept in {each["NetworkInterfaceId"] for each in left}


def test_a_profile_is_found_by_our_path_and_deleted_after_removing_its_role(cloud: AwsCloud) -> None:
    client("iam").create_instance_profile(InstanceProfileName="somebody-elses")
    instance = launched().instance
    (found,) = cloud.owned(OwnedKind.INSTANCE_PROFILE)
    assert found.name == profile_name(NODECLASS, "express", REGION)
    assert found.owner_uid == NODECLASS.uid
    assert found.created_at is not None
    assert abs(found.created_at - datetime.now(UTC)).total_seconds() < 60
    assert [i.instance_profile for i in cloud.owned_instances() if i.id == instance.id] == [found.name]
    cloud.remove(found)
    cloud.remove(found)
    assert cloud.owned(OwnedKind.INSTANCE_PROFILE) == []
    client("iam").get_role(RoleName=NODECLASS.role)
    left = client("iam").list_instance_profiles()["InstanceProfiles"]
    assert [each["InstanceProfileName"] for each in left] == ["somebody-elses"]


def test_a_profile_whose_role_was_removed_before_a_crash_is_deleted(cloud: AwsCloud) -> None:
    launched()
    (found,) = cloud.owned(OwnedKind.INSTANCE_PROFILE)
    client("iam").remove_role_from_instance_profile(InstanceProfileName=found.id, RoleName=NODECLASS.role)
    cloud.remove(found)
    assert cloud.owned(OwnedKind.INSTANCE_PROFILE) == []


def test_iam_is_not_called_where_it_is_unreachable() -> None:
    isolated = AwsCloud(
        lambda service: pytest.fail(service), replace(SETTINGS, isolated_vpc=True), system_time
    )
    assert isolated.owned(OwnedKind.INSTANCE_PROFILE) == []


def test_an_instance_that_ec2_refuses_to_terminate_is_named_and_does_not_affect_others(
    cloud: AwsCloud,
) -> None:
    protected, other = launched("a").instance.id, launched("b").instance.id
    client("ec2").modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})
    with pytest.raises(Transient, match=rf"{protected}: OperationNotPermitted"):
        # Not in the role's name, because IAM has no tags of a missing instance.
        AwsCloud(client, SETTINGS, system_time).terminate([protected, other, "i-0123456789abcdef0"])
    assert [instance.id for instance in cloud.owned_instances()] == [protected]


def test_a_resource_in_use_is_reported_and_not_deleted(cloud: AwsCloud) -> None:
    described = client("ec2").describe_instances(InstanceIds=[launched().instance.id])
    (device,) = described["Reservations"][0]["Instances"][0]["BlockDeviceMappings"]
    with pytest.raises(Transient, match="VolumeInUse"):
        cloud.remove(Owned(OwnedKind.VOLUME, device["Ebs"]["VolumeId"]))


def test_a_process_recreates_a_template_that_garbage_collection_has_deleted(
    world: Account,
) -> None:
    times = [datetime(2026, 11, 21, 8, tzinfo=UTC)]
    cloud = AwsCloud(client, SETTINGS, lambda: times[0])
    launched("a")
    for owned in cloud.owned(OwnedKind.LAUNCH_TEMPLATE):
        cloud.remove(owned)
    times[0] = datetime(2026, 11, 21, 9, tzinfo=UTC)
    launched("b")
    assert world.seam.calls["CreateLaunchTemplate"] == 4  # two to launch from, and two for dry runs


def test_a_throttled_listing_is_transient(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    def throttled(_client: object, operation: str, _arguments: object) -> None:
        raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": "slow down"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", throttled)
    for kind in OwnedKind:
        with pytest.raises(Transient, match=f"listing of kind {kind}: RequestLimitExceeded"):
            cloud.owned(kind)
        with pytest.raises(Transient, match="RequestLimitExceeded"):
            cloud.remove(Owned(kind, "x-1"))
