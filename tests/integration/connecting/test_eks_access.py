"""Access entries, Pod Identity associations and add-ons next to moto's EKS: requests that EKS accepts or refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from nodesmith_formats.localsystem.clients import local_client
from nodesmith_local.aws.account import make_role
from nodesmith_local.aws.eks.access import eks_access
from tests.aws.account import REGION, client, strict_aws

USER = "nodesmith:writer:{{SessionName}}"


@pytest.fixture
def role() -> Iterator[str]:
    """Return the ARN of a role, in an account with the cluster `web`."""
    with strict_aws(), eks_access():
        yield make_account(client)


def make_account(give: Callable[[str], Any]) -> str:
    role = make_role(give("iam"), "lifecycle")
    give("eks").create_cluster(name="web", version="1.34", roleArn=role, resourcesVpcConfig={"subnetIds": []})
    return role


def entry(principal: str, **more: Any) -> Any:
    made = client("eks").create_access_entry(clusterName="web", principalArn=principal, **more)
    return made["accessEntry"]


def test_an_entry_is_stored_as_created_and_updated(role: str) -> None:
    made = entry(role, username=USER, tags={"a": "b"})
    assert (made["type"], made["username"], made["kubernetesGroups"]) == ("STANDARD", USER, [])
    eks = client("eks")
    assert eks.list_access_entries(clusterName="web")["accessEntries"] == [role]
    eks.update_access_entry(clusterName="web", principalArn=role, kubernetesGroups=["readers"])
    kept = eks.describe_access_entry(clusterName="web", principalArn=role)["accessEntry"]
    assert (kept["username"], kept["kubernetesGroups"], kept["tags"]) == (USER, ["readers"], {"a": "b"})
    eks.delete_access_entry(clusterName="web", principalArn=role)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        eks.describe_access_entry(clusterName="web", principalArn=role)


@pytest.mark.parametrize(
    ("principal", "more", "code", "words"),
    [
        ("arn:aws:iam::123456789012:role/none", {}, "InvalidParameterException", "invalid principal"),
        ("lifecycle", {}, "InvalidParameterException", "invalid principal"),
        ("", {"username": "system:node:1"}, "InvalidParameterException", "reserved prefix"),
        ("", {"username": "{{SessionName}}"}, "InvalidParameterException", "colon"),
        ("", {"type": "LINUX"}, "InvalidParameterException", "not valid"),
        ("", {"type": "EC2_LINUX", "username": "me"}, "InvalidParameterException", "can't be set"),
    ],
)
def test_entries_that_eks_refuses_are_refused(
    role: str, principal: str, more: Any, code: str, words: str
) -> None:
    with pytest.raises(ClientError, match=words) as caught:
        entry(principal or role, **more)
    assert caught.value.response["Error"]["Code"] == code
    assert client("eks").list_access_entries(clusterName="web")["accessEntries"] == []


def test_duplicates_are_refused(role: str) -> None:
    eks = client("eks")
    association = {"clusterName": "web", "namespace": "n", "serviceAccount": "s", "roleArn": role}
    makers: tuple[Callable[[], Any], ...] = (
        lambda: entry(role),
        lambda: eks.create_pod_identity_association(**association),
        lambda: eks.create_addon(clusterName="web", addonName="eks-pod-identity-agent"),
    )
    for make in makers:
        make()
        with pytest.raises(ClientError, match="ResourceInUseException"):
            make()


def test_the_authentication_mode_cannot_be_reverted_to_config_map(role: str) -> None:
    eks = client("eks")
    assert (
        eks.describe_cluster(name="web")["cluster"]["accessConfig"]["authenticationMode"]
        == "API_AND_CONFIG_MAP"
    )
    eks.update_cluster_config(name="web", accessConfig={"authenticationMode": "API"})
    assert eks.describe_cluster(name="web")["cluster"]["accessConfig"]["authenticationMode"] == "API"
    with pytest.raises(ClientError, match="Unsupported authentication mode update from API to CONFIG_MAP"):
        eks.update_cluster_config(name="web", accessConfig={"authenticationMode": "CONFIG_MAP"})
    entry(role)


def test_an_association_is_found_by_its_service_account(role: str) -> None:
    eks = client("eks")
    for namespace in ("one", "two"):
        eks.create_pod_identity_association(
            clusterName="web", namespace=namespace, serviceAccount="s", roleArn=role
        )
    (found,) = eks.list_pod_identity_associations(clusterName="web", namespace="two")["associations"]
    kept = eks.describe_pod_identity_association(clusterName="web", associationId=found["associationId"])
    assert (kept["association"]["namespace"], kept["association"]["roleArn"]) == ("two", role)


def test_requests_for_a_missing_cluster_are_refused(role: str) -> None:
    with pytest.raises(ClientError, match="No cluster found"):
        client("eks").list_access_entries(clusterName="none")
    with pytest.raises(ClientError, match="No cluster found"):
        client("eks").create_access_entry(clusterName="none", principalArn=role)


def test_motos_server_handles_the_requests_too() -> None:
    with eks_access():
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            give = partial(local_client, region=REGION, url=f"http://{host}:{port}")
            role = make_account(give)
            eks = give("eks")
            eks.create_access_entry(clusterName="web", principalArn=role, username=USER)
            kept = eks.describe_access_entry(clusterName="web", principalArn=role)["accessEntry"]
            assert kept["username"] == USER
            eks.create_addon(clusterName="web", addonName="eks-pod-identity-agent")
            assert eks.list_addons(clusterName="web")["addons"] == ["eks-pod-identity-agent"]
        finally:
            server.stop()
