"""What an EC2NodeClass may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.schema.fields import (
    INT32,
    Array,
    Boolean,
    Integer,
    Kind,
    Map,
    Object,
    Rule,
    Text,
)
from nodesmith.model.schema.kubelet import KUBELET
from nodesmith.model.schema.selectors import (
    ALIAS_FAMILIES,
    AMIS,
    CAPACITY_RESERVATIONS,
    PLACEMENT_GROUP,
    SECURITY_GROUPS,
    SUBNETS,
    family_matches_alias,
)

_ENABLED = ("enabled", "disabled")
_OWN_TAGS = (
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
)


def _is_ours(key: str) -> bool:
    return key in _OWN_TAGS or key.startswith("kubernetes.io/cluster")


_TAGS = Map(
    Text(),
    "Tags of everything that is made for this class.",
    keys=Text(
        min_length=1,
        rules=(
            Rule(
                f"!(self in [{', '.join(repr(key) for key in _OWN_TAGS)}]) && "
                "!self.startsWith('kubernetes.io/cluster')",
                "this tag is set automatically, leave it out",
                lambda key: not _is_ours(key),
            ),
        ),
    ),
)

_EBS = Object(
    {
        "deleteOnTermination": Boolean("Whether the volume goes with the instance."),
        "encrypted": Boolean("Whether the volume is encrypted."),
        "iops": Integer("I/O operations per second, for gp3, io1 and io2."),
        "kmsKeyID": Text("KMS key that encrypts it."),
        "snapshotID": Text("Snapshot that it starts from."),
        "throughput": Integer("MiB per second, for gp3."),
        "volumeInitializationRate": Integer(
            "MiB per second at which the snapshot is fetched ahead of use.", 100, 300
        ),
        "volumeSize": Text(
            "Size of the volume.",
            "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|"
            "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|"
            "([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$",
            "100Gi",
        ),
        "volumeType": Text("Kind of volume.", enum=("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")),
    },
    "The EBS volume behind the device.",
    rules=(
        Rule(
            "has(self.snapshotID) || has(self.volumeSize)",
            "volumeSize or snapshotID is needed",
            lambda ebs: "snapshotID" in ebs or "volumeSize" in ebs,
        ),
        Rule(
            "!has(self.volumeInitializationRate) || has(self.snapshotID)",
            "volumeInitializationRate needs a snapshotID",
            lambda ebs: "volumeInitializationRate" not in ebs or "snapshotID" in ebs,
        ),
    ),
)
_BLOCK_DEVICES = Array(
    Object(
        {
            "deviceName": Text("Name of the device, for example /dev/xvda."),
            "rootVolume": Boolean("Marks the volume that holds the kubelet's directory."),
            "ebs": _EBS,
        }
    ),
    "Volumes of every node; unset takes those of the AMI family.",
    max_items=50,
    rules=(
        Rule(
            "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
            "only one mapping may be the rootVolume",
            lambda mappings: sum(m.get("rootVolume", False) for m in mappings) <= 1,
        ),
    ),
)


def _cards(interfaces: list[Mapping[str, Any]], kind: str) -> list[int]:
    return [each["networkCardIndex"] for each in interfaces if each["interfaceType"] == kind]


def _has_a_primary(interfaces: list[Mapping[str, Any]]) -> bool:
    first = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    return not interfaces or first in interfaces


_NETWORK_INTERFACES = Array(
    Object(
        {
            "networkCardIndex": Integer("Network card that it sits on.", 0, INT32),
            "deviceIndex": Integer("Its place on the card.", 0, INT32),
            "interfaceType": Text("Ordinary, or for EFA traffic only.", enum=("interface", "efa-only")),
        },
        required=("networkCardIndex", "deviceIndex", "interfaceType"),
    ),
    "Network interfaces of every node; unset makes the one that the type needs.",
    max_items=150,
    rules=(
        Rule(
            "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && "
            "x.interfaceType == 'interface')",
            "one of them must be an interface at card 0, device 0",
            _has_a_primary,
        ),
        Rule(
            "self.all(x, self.exists_one(y, x.networkCardIndex == y.networkCardIndex && "
            "x.deviceIndex == y.deviceIndex))",
            "each card and device may occur once only",
            lambda each: len({(x["networkCardIndex"], x["deviceIndex"]) for x in each}) == len(each),
        ),
        Rule(
            "self.all(x, x.interfaceType != 'efa-only' || self.exists_one(y, y.interfaceType == 'efa-only' && "
            "x.networkCardIndex == y.networkCardIndex))",
            "a card may have one efa-only interface only",
            lambda each: len(set(_cards(each, "efa-only"))) == len(_cards(each, "efa-only")),
        ),
    ),
)

_METADATA_DEFAULTS = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}
_METADATA = Object(
    {
        "httpEndpoint": Text("Whether nodes have the metadata service.", enum=_ENABLED, default="enabled"),
        "httpProtocolIPv6": Text("Whether it answers over IPv6.", enum=_ENABLED, default="disabled"),
        "httpPutResponseHopLimit": Integer(
            "Hops that its answers travel; 1 keeps pods out.", 1, 64, default=1
        ),
        "httpTokens": Text(
            "Whether session tokens are a must.", enum=("required", "optional"), default="required"
        ),
    },
    "The instance metadata service of every node.",
    default=_METADATA_DEFAULTS,
)
_TIMEOUTS = ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")
_CONNECTION_TRACKING = Object(
    {
        "tcpEstablishedTimeout": Integer("Seconds for idle TCP connections.", 60, 432000),
        "udpStreamTimeout": Integer("Seconds for UDP flows with several answers.", 60, 180),
        "udpTimeout": Integer("Seconds for other UDP flows.", 30, 60),
    },
    "Idle time-outs of tracked connections.",
    rules=(
        Rule(
            " || ".join(f"has(self.{name})" for name in _TIMEOUTS),
            f"at least one of {', '.join(_TIMEOUTS)} is needed",
            bool,
        ),
    ),
)

_SPEC_RULES = (
    Rule(
        "has(self.role) != has(self.instanceProfile)",
        "exactly one of role and instanceProfile is needed",
        lambda spec: ("role" in spec) != ("instanceProfile" in spec),
        field="role",
    ),
    Rule(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",
        "amiFamily is needed where no term has an alias",
        lambda spec: "amiFamily" in spec or any("alias" in term for term in spec["amiSelectorTerms"]),
        field="amiFamily",
    ),
    Rule(
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(x, !has(x.alias) || "
        f"x.alias.startsWith({ {family: f'{alias}@' for alias, family in ALIAS_FAMILIES.items()} }[self.amiFamily]))",
        "amiFamily must be the alias's own family, or Custom",
        family_matches_alias,
        field="amiFamily",
    ),
)

EC2_NODE_CLASS = Kind(
    "karpenter.k8s.aws",
    "EC2NodeClass",
    "ec2nodeclasses",
    Object(
        {
            "subnetSelectorTerms": SUBNETS,
            "securityGroupSelectorTerms": SECURITY_GROUPS,
            "capacityReservationSelectorTerms": CAPACITY_RESERVATIONS,
            "placementGroupSelector": PLACEMENT_GROUP,
            "associatePublicIPAddress": Boolean(
                "Whether nodes get public addresses; unset leaves it to the subnet."
            ),
            "ipPrefixCount": Integer("IP prefixes on the primary interface.", 0, INT32),
            "amiSelectorTerms": AMIS,
            "amiFamily": Text(
                "How user data is made; unset takes the family of the alias.",
                enum=(*ALIAS_FAMILIES.values(), "Custom"),
            ),
            "userData": Text("User data that is merged with what the node needs to join."),
            "role": Text("IAM role of the nodes; an instance profile is made for it.", min_length=1),
            "instanceProfile": Text("Instance profile that exists already.", min_length=1),
            "tags": _TAGS,
            "kubelet": KUBELET,
            "blockDeviceMappings": _BLOCK_DEVICES,
            "instanceStorePolicy": Text(
                "RAID0 joins the instance's own disks for pods to use.", enum=("RAID0",)
            ),
            "networkInterfaces": _NETWORK_INTERFACES,
            "detailedMonitoring": Boolean("Whether CloudWatch samples nodes every minute."),
            "metadataOptions": _METADATA,
            "connectionTracking": _CONNECTION_TRACKING,
            "cpuOptions": Object(
                {"nestedVirtualization": Text("Whether nodes may run virtual machines.", enum=_ENABLED)},
                "Options of the processor.",
            ),
            "context": Text("Passed on to EC2 as the fleet's Context."),
        },
        "How nodes are built on EC2.",
        required=("subnetSelectorTerms", "securityGroupSelectorTerms", "amiSelectorTerms"),
        rules=_SPEC_RULES,
    ),
    "How nodes are built on EC2.",
)
