"""The fields of EC2NodeClass v1, read from the CRD in the repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

_CRD = Path(__file__).parents[2] / "forwarder" / "crds" / "karpenter.k8s.aws_ec2nodeclasses.yaml"
Schema = Mapping[str, Any]


@lru_cache
def schemas() -> dict[str, Schema]:
    """Return the schema of each field of `spec` that holds no further fields, by path: `tags`, `a[].b`."""
    crd = yaml.safe_load(_CRD.read_text())
    (v1,) = (version for version in crd["spec"]["versions"] if version["name"] == "v1")
    return dict(_leaves(v1["schema"]["openAPIV3Schema"]["properties"]["spec"], ""))


def _leaves(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    if schema.get("type") == "array":
        yield from _leaves(schema["items"], f"{path}[]")
    elif "properties" in schema:
        for name, field in schema["properties"].items():
            yield from _leaves(field, f"{path}.{name}" if path else name)
    else:
        yield path, schema


SPEC: dict[str, Any] = {
    "subnetSelectorTerms": [{"tags": {"a": "b"}}, {"id": "subnet-1"}],
    "securityGroupSelectorTerms": [{"tags": {"a": "b"}}, {"id": "sg-1"}, {"name": "nodes"}],
    "capacityReservationSelectorTerms": [
        {"tags": {"a": "b"}, "ownerID": "123456789012", "instanceMatchCriteria": "open"},
        {"id": "cr-1"},
    ],
    "placementGroupSelector": {"name": "close"},
    "associatePublicIPAddress": False,
    "ipPrefixCount": 2,
    "amiFamily": "AL2023",
    "amiSelectorTerms": [
        {"id": "ami-1"},
        {"name": "mine-*", "owner": "self", "tags": {"a": "b"}},
        {"ssmParameter": "/a/b"},
    ],
    "userData": "echo hello",
    "role": "nodes",
    "tags": {"team": "a"},
    "kubelet": {
        "clusterDNS": ["10.100.0.10"],
        "maxPods": 40,
        "podsPerCore": 10,
        "systemReserved": {"cpu": "100m"},
        "kubeReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "5%"},
        "evictionSoft": {"nodefs.available": "10%"},
        "evictionSoftGracePeriod": {"nodefs.available": "2m"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": False,
    },
    "blockDeviceMappings": [
        {
            "deviceName": "/dev/xvda",
            "rootVolume": True,
            "ebs": {
                "deleteOnTermination": True,
                "encrypted": True,
                "iops": 4000,
                "kmsKeyID": "key",
                "snapshotID": "snap-1",
                "throughput": 300,
                "volumeInitializationRate": 200,
                "volumeSize": "100Gi",
                "volumeType": "gp3",
            },
        }
    ],
    "instanceStorePolicy": "RAID0",
    "networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "interface"},
    ],
    "detailedMonitoring": True,
    "metadataOptions": {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    },
    "connectionTracking": {"tcpEstablishedTimeout": 3600, "udpStreamTimeout": 90, "udpTimeout": 45},
    "cpuOptions": {"nestedVirtualization": "disabled"},
    "context": "context-1",
}
"""A spec with a value for every field, except those that exclude others: alias, instanceProfile, a group's id."""
