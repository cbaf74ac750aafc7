"""An EC2NodeClass that EC2 would refuse is told with the remedy, buys nothing, and does not affect others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.nodeclasses.status import StatusCondition
from tests import builders
from tests.builders import expression
from tests.smallworld.world import World, pod_manifest

INTERFACES = [{"networkCardIndex": 0, "deviceIndex": index, "interfaceType": "interface"} for index in (0, 1)]
MIME = (
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
    "--B\nContent-Type: text/x-shelscript\n\nx\n--B--\n"
)
BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "gp3 with 20,000 IOPS": (
        {
            "blockDeviceMappings": [
                {
                    "deviceName": "/dev/xvda",
                    "ebs": {"volumeType": "gp3", "volumeSize": "20Gi", "iops": 20_000},
                }
            ]
        },
        "BlockDeviceMappingInvalid",
        (
            "spec.blockDeviceMappings[0].ebs.iops is 20,000, but gp3 volumes of 20 GiB have 10,000 at most (500 per "
            "GiB): lower it, or set volumeSize to 40Gi or more"
        ),
    ),
    "an IPv6 DNS server in an IPv4 cluster": (
        {"kubelet": {"clusterDNS": ["fd00::a"]}},
        "IPFamilyMismatch",
        "spec.kubelet.clusterDNS[0] is 'fd00::a', an IPv6 address, but the cluster is IPv4: leave it out",
    ),
    "TOML with a table that is defined twice": (
        {
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "userData": "[settings.motd]\n[settings.kubernetes]\n[settings.motd]\n",
        },
        "UserDataInvalid",
        "spec.userData: line 3: it is not TOML: Cannot declare ('settings', 'motd') twice",
    ),
    "a MIME part of an unknown type": (
        {"userData": MIME},
        "UserDataInvalid",
        (
            "spec.userData: line 5: nothing on the node reads a MIME part of type text/x-shelscript, did you mean "
            "'text/x-shellscript'?"
        ),
    ),
    "an alias of a version that never was": (
        {"amiSelectorTerms": [{"alias": "al2023@20250821"}]},
        "AMINotFound",
        (
            "spec.amiSelectorTerms: alias al2023@20250821: '20250821' is not a version of its images: use latest or a "
            "date such as v20250821"
        ),
    ),
    "tags that mark instances as owned": (
        {"tags": {"Kubernetes.io/cluster/test": "owned"}},
        "TagValidationFailed",
        "spec.tags['Kubernetes.io/cluster/test'] is set by nodesmith itself: remove it",
    ),
    "a public address for two interfaces": (
        {"associatePublicIPAddress": True, "networkInterfaces": INTERFACES},
        "PublicIPAddressInvalid",
        (
            "spec.associatePublicIPAddress is true, but EC2 assigns no public address to an instance with 2 network "
            "interfaces: leave it out, and reach the internet through a NAT gateway"
        ),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_nodeclass_that_ec2_would_refuse_is_reported_and_the_others_go_on(name: str) -> None:
    spec, reason, message = BROKEN[name]
    pods = {each: pod_manifest(each, nodeSelector={NODEPOOL: each}) for each in ("default", "broken")}
    world = World(pods)
    world.cluster.nodepools["broken"] = builders.nodepool_manifest("broken", nodeclass="broken")
    world.cluster.nodeclasses["broken"] = builders.nodeclass_manifest("broken", **spec)

    world.live(timedelta(minutes=5))

    assert [claim.nodepool for claim in world.store.claims.values()] == ["default"]
    assert world.pods["default"]["spec"].get("nodeName")
    assert not world.pods["broken"]["spec"].get("nodeName")
    conditions = {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in world.cluster.nodeclasses["broken"]["status"]["conditions"]
    }
    assert conditions["ValidationSucceeded"] == ("False", reason, message)
    assert conditions["Ready"][0] == "False"
    assert world.cluster.nodeclasses["default"]["status"]["conditions"][-1]["status"] == "True"


ELSEWHERE = "placement group training: its instances are in us-east-1d, where spec.subnetSelectorTerms select no subnet"
ENDED = "Capacity Block cr-1 has ended at 2026-11-21T11:00:00Z: remove it"


@pytest.mark.parametrize(
    ("spec", "condition"),
    [
        (
            {"placementGroupSelector": {"name": "training"}},
            StatusCondition("PlacementGroupReady", "False", "PlacementGroupResolutionFailed", ELSEWHERE),
        ),
        (
            {"capacityReservationSelectorTerms": [{"id": "cr-1"}]},
            StatusCondition("CapacityReservationsReady", "True", "CapacityReservationsReady", ENDED),
        ),
    ],
)
def test_a_group_elsewhere_and_a_block_that_has_ended_are_reported_and_the_others_go_on(
    spec: dict[str, Any], condition: StatusCondition
) -> None:
    """Tests of the adapters show that EC2's answers lead to these conditions."""
    pods = {each: pod_manifest(each, nodeSelector={NODEPOOL: each}) for each in ("default", "broken")}
    world = World(pods)
    reserved = [expression("karpenter.sh/capacity-type", "In", "reserved")]
    world.cluster.nodepools["broken"] = builders.nodepool_manifest(
        "broken", nodeclass="broken", requirements=reserved
    )
    world.cluster.nodeclasses["broken"] = builders.nodeclass_manifest("broken", **spec)
    status = builders.nodeclass_status("broken")
    others = tuple(each for each in status.conditions if each.type != condition.type)
    world.cloud.statuses["broken"] = replace(status, conditions=(*others, condition))

    world.live(timedelta(minutes=5))

    assert [claim.nodepool for claim in world.store.claims.values()] == ["default"]
    assert world.pods["default"]["spec"].get("nodeName")
    shown = {each["type"]: each for each in world.cluster.nodeclasses["broken"]["status"]["conditions"]}
    assert shown[condition.type]["message"] == condition.message
    assert shown["Ready"]["status"] == condition.status
