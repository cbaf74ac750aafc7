"""Which NodeClasses cannot be launched from, and the messages that explain it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodesmith.decisions.launch import launch_obstacle
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.nodeclasses.instancesettings import NetworkInterface
from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm, EC2NodeClass
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import NODECLASS


def message_for(nodeclass: EC2NodeClass) -> str:
    obstacle = launch_obstacle(nodeclass, CLUSTER)
    return f"{obstacle.reason}: {obstacle.message}" if obstacle else ""


def test_an_ordinary_nodeclass_has_no_obstacle() -> None:
    assert message_for(NODECLASS) == ""
    assert message_for(replace(NODECLASS, ami_family="Custom", user_data="anything")) == ""


def test_a_public_address_for_an_instance_with_several_interfaces_is_refused() -> None:
    several = (NetworkInterface(0, 0, "interface"), NetworkInterface(0, 1, "efa-only"))
    public = replace(NODECLASS, associate_public_ip_address=True)
    found = message_for(replace(public, network_interfaces=several))
    assert found.startswith(
        "PublicIPAddressInvalid: spec.associatePublicIPAddress is true, but EC2 assigns no"
    )
    assert message_for(replace(public, network_interfaces=several[:1])) == ""
    assert message_for(replace(public, network_interfaces=several, associate_public_ip_address=False)) == ""


def test_al2023_needs_the_service_cidr_and_custom_does_not() -> None:
    unknown = replace(CLUSTER, service_cidr="")
    obstacle = launch_obstacle(NODECLASS, unknown)
    assert obstacle is not None
    assert obstacle.reason == "ClusterCIDRResolutionFailed"
    assert "CLUSTER_SERVICE_CIDR" in obstacle.message
    assert launch_obstacle(replace(NODECLASS, ami_family="Custom"), unknown) is None


@pytest.mark.parametrize(
    "key",
    [
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
        "eks:eks-cluster-name",
        "nodesmith.dev/managed-by",
        "nodesmith.dev/keep-volumes",
        "kubernetes.io/cluster/other",
        "aws:created-by",
        "AWS:created-by",
        "x" * 129,
        "",
    ],
)
def test_a_tag_that_ec2_or_nodesmith_reserves_is_named(key: str) -> None:
    found = message_for(replace(NODECLASS, tags={"fine": "yes", key: "v"}))
    assert found.startswith("TagValidationFailed: spec.tags[")
    assert key[:100] in found


def test_a_tag_value_that_is_too_long_and_too_many_tags_are_found() -> None:
    assert message_for(replace(NODECLASS, tags={"k": "v" * 257})).startswith(
        "TagValidationFailed: spec.tags['k']"
    )
    assert message_for(replace(NODECLASS, tags={"k": "v" * 256})) == ""
    assert "42 tags" in message_for(replace(NODECLASS, tags={f"k{n}": "v" for n in range(42)}))
    assert message_for(replace(NODECLASS, tags={f"k{n}": "v" for n in range(41)})) == ""


def test_user_data_that_is_too_large_for_ec2_is_found_with_its_size() -> None:
    found = message_for(replace(NODECLASS, user_data="#!/bin/sh\n" + "#" * 16_000))
    assert found.startswith("UserDataSizeLimitExceeded: spec.userData")
    assert "16384" in found
    assert message_for(replace(NODECLASS, user_data="#!/bin/sh\n" + "#" * 15_000)) == ""


def test_an_alias_with_an_impossible_version_is_found() -> None:
    terms = (AMISelectorTerm(alias="al2023@20250821"),)
    assert message_for(replace(NODECLASS, ami_selector_terms=terms)).startswith(
        "AMINotFound: spec.amiSelectorTerms: alias al2023@20250821"
    )


def test_the_size_limit_counts_bytes() -> None:
    custom = replace(NODECLASS, ami_family="Custom")
    assert message_for(replace(custom, user_data="é" * 8_192)) == ""
    assert message_for(replace(custom, user_data="é" * 8_193)).startswith("UserDataSizeLimitExceeded")


def test_a_mime_document_without_parts_is_found() -> None:
    text = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="XX"\n\n--YY\nhello\n'
    assert message_for(replace(NODECLASS, user_data=text)).startswith(
        "UserDataInvalid: spec.userData: the MIME document"
    )


def test_user_data_that_is_too_large_by_itself_is_not_parsed() -> None:
    levels = "".join(f'Content-Type: multipart/mixed; boundary="b{n}"\n\n--b{n}\n' for n in range(400))
    found = message_for(replace(NODECLASS, user_data=f"MIME-Version: 1.0\n{levels}{'x' * 20_000}"))
    assert found.startswith("UserDataSizeLimitExceeded: spec.userData: ")


def test_user_data_that_is_not_text_is_refused() -> None:
    assert message_for(replace(NODECLASS, user_data="#!/bin/sh \ud800")).startswith(
        "UserDataInvalid: spec.userData: "
    )


@pytest.mark.parametrize(
    "key", ["EKS:eks-cluster-name", "Kubernetes.io/cluster/other", "Karpenter.sh/NodePool"]
)
def test_a_tag_that_iam_cannot_distinguish_from_nodesmiths_is_refused(key: str) -> None:
    assert "is set by nodesmith itself" in message_for(replace(NODECLASS, tags=FrozenMap({key: "other"})))
