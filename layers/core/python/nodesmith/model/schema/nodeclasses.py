"""Schema of an EC2NodeClass, except for its selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.quantities import LONGEST_QUANTITY
from nodesmith.model.schema.fields import (
    ALIAS_FAMILIES,
    AMIS,
    CAPACITY_RESERVATIONS,
    INT32,
    PLACEMENT_GROUP,
    SECURITY_GROUPS,
    SUBNETS,
    Array,
    Boolean,
    Integer,
    Kind,
    Map,
    Object,
    Quantity,
    Rule,
    Text,
    family_matches_alias,
)

_SIGNALS = Text(
    enum=(
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    )
)
_THRESHOLD = Text(
    pattern=r"^(([0-9]{1,2}(\.[0-9]{1,2})?|100(\.0{1,2})?)%|\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?)$",
    example="5% or 100Mi",
    rules=(
        Rule("", f"must have at most {LONGEST_QUANTITY} characters", lambda t: len(t) <= LONGEST_QUANTITY),
    ),
)
_GRACE = Text(pattern=r"^([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h))+$", example="1m30s")


def _reserved(owner: str) -> Map:
    keys = Text(enum=("cpu", "memory", "ephemeral-storage", "pid"))
    return Map(Quantity(), f"Resources reserved for {owner}.", keys=keys, max_entries=len(keys.enum))


def _signals(of: Text, doc: str) -> Map:
    return Map(of, doc, keys=_SIGNALS, max_entries=len(_SIGNALS.enum))


def _same_signals(kubelet: Mapping[str, Any]) -> bool:
    return set(kubelet.get("evictionSoft", ())) == set(kubelet.get("evictionSoftGracePeriod", ()))


def _thresholds_are_ordered(kubelet: Mapping[str, Any]) -> bool:
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    return high is None or low is None or bool(high > low)


KUBELET = Object(
    {
        "clusterDNS": Array(Text(), "IP addresses of the cluster's DNS. Defaults to the kube-dns service."),
        "maxPods": Integer("Maximum number of pods on a node.", 0, INT32),
        "podsPerCore": Integer("Maximum number of pods per CPU on a node. Not for Bottlerocket.", 0, INT32),
        "systemReserved": _reserved("the operating system"),
        "kubeReserved": _reserved("the processes of Kubernetes"),
        "evictionHard": _signals(_THRESHOLD, "Thresholds of signals at which pods are evicted immediately."),
        "evictionSoft": _signals(
            _THRESHOLD, "Thresholds of signals at which pods are evicted after a grace period."
        ),
        "evictionSoftGracePeriod": _signals(_GRACE, "Grace period of each soft signal."),
        "evictionMaxPodGracePeriod": Integer(
            "Maximum grace period of a soft eviction, in seconds.", 0, INT32
        ),
        "imageGCHighThresholdPercent": Integer(
            "Disk usage, in percent, at which image garbage collection starts.", 0, 100
        ),
        "imageGCLowThresholdPercent": Integer(
            "Disk usage, in percent, at which image garbage collection stops.", 0, 100
        ),
        "cpuCFSQuota": Boolean("Whether CPU limits are enforced."),
    },
    "Settings of the kubelet. AL2023 supports any field of the kubelet's configuration file; other AMI families "
    "support only the listed fields.",
    open=True,
    rules=(
        Rule(
            "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || "
            "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
            "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
            _thresholds_are_ordered,
            field="imageGCHighThresholdPercent",
        ),
        Rule(
            "(!has(self.evictionSoft) || self.evictionSoft.all(k, has(self.evictionSoftGracePeriod) && "
            "k in self.evictionSoftGracePeriod)) && (!has(self.evictionSoftGracePeriod) || "
            "self.evictionSoftGracePeriod.all(k, has(self.evictionSoft) && k in self.evictionSoft))",
            "each signal of evictionSoft needs an entry in evictionSoftGracePeriod, and vice versa",
            _same_signals,
        ),
        Rule(
            "",
            "leave it out and set taints in the NodePool",
            lambda kubelet: "registerWithTaints" not in kubelet,
            field="registerWithTaints",
        ),
    ),
)


ENABLED = ("enabled", "disabled")

_EBS = Object(
    {
        "deleteOnTermination": Boolean("Whether the volume is deleted with the instance."),
        "encrypted": Boolean("Whether the volume is encrypted."),
        "iops": Integer("I/O operations per second, for gp3, io1 and io2."),
        "kmsKeyID": Text("KMS key that encrypts the volume."),
        "snapshotID": Text("Snapshot that the volume is created from."),
        "throughput": Integer("MiB per second, for gp3."),
        "volumeInitializationRate": Integer(
            "MiB per second at which the snapshot's blocks are downloaded to the volume.", 100, 300
        ),
        "volumeSize": Text(
            "Size of the volume.",
            "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|"
            "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|"
            "([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$",
            "100Gi",
        ),
        "volumeType": Text(
            "Type of the volume.", enum=("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
        ),
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
BLOCK_DEVICES = Array(
    Object(
        {
            "deviceName": Text("Name of the device, for example /dev/xvda."),
            "rootVolume": Boolean("Whether the kubelet's directory is on this volume."),
            "ebs": _EBS,
        }
    ),
    "Volumes of every node. Defaults to those of the AMI family.",
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
    return [interface["networkCardIndex"] for interface in interfaces if interface["interfaceType"] == kind]


def _has_a_primary(interfaces: list[Mapping[str, Any]]) -> bool:
    primary = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    return not interfaces or primary in interfaces


NETWORK_INTERFACES = Array(
    Object(
        {
            "networkCardIndex": Integer("Index of the network card.", 0, INT32),
            "deviceIndex": Integer("Index of the device on the network card.", 0, INT32),
            "interfaceType": Text(
                "Type of the interface: interface, or efa-only for EFA traffic only.",
                enum=("interface", "efa-only"),
            ),
        },
        required=("networkCardIndex", "deviceIndex", "interfaceType"),
    ),
    "Network interfaces of every node. Defaults to those that the instance type needs.",
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
            "each card and device may occur only once",
            lambda each: len({(x["networkCardIndex"], x["deviceIndex"]) for x in each}) == len(each),
        ),
        Rule(
            "self.all(x, x.interfaceType != 'efa-only' || self.exists_one(y, y.interfaceType == 'efa-only' && "
            "x.networkCardIndex == y.networkCardIndex))",
            "a card may have only one efa-only interface",
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
METADATA = Object(
    {
        "httpEndpoint": Text(
            "Whether the metadata service is available on nodes.", enum=ENABLED, default="enabled"
        ),
        "httpProtocolIPv6": Text(
            "Whether the metadata service answers over IPv6.", enum=ENABLED, default="disabled"
        ),
        "httpPutResponseHopLimit": Integer(
            "Network hops that responses may travel; 1 keeps pods out.", 1, 64, default=1
        ),
        "httpTokens": Text(
            "Whether requests need a session token.", enum=("required", "optional"), default="required"
        ),
    },
    "The instance metadata service of every node.",
    default=_METADATA_DEFAULTS,
)
_TIMEOUTS = ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")
CONNECTION_TRACKING = Object(
    {
        "tcpEstablishedTimeout": Integer("Idle timeout of TCP connections, in seconds.", 60, 432000),
        "udpStreamTimeout": Integer(
            "Idle timeout of UDP flows with more than one request and response, in seconds.", 60, 180
        ),
        "udpTimeout": Integer("Idle timeout of other UDP flows, in seconds.", 30, 60),
    },
    "Idle timeouts of tracked connections.",
    rules=(
        Rule(
            " || ".join(f"has(self.{name})" for name in _TIMEOUTS),
            f"at least one of {', '.join(_TIMEOUTS)} is needed",
            bool,
        ),
    ),
)


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
    "Tags of all AWS resources that are created for this EC2NodeClass.",
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

_ROLE_RULE = Rule(
    "has(self.role) != has(self.instanceProfile)",
    "exactly one of role and instanceProfile is needed",
    lambda spec: ("role" in spec) != ("instanceProfile" in spec),
    field="role",
)
_SPEC_RULES = (
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
                "Whether nodes get public IP addresses. Defaults to the setting of the subnet."
            ),
            "ipPrefixCount": Integer("IP prefixes on the primary interface.", 0, INT32),
            "amiSelectorTerms": AMIS,
            "amiFamily": Text(
                "AMI family that determines the format of user data. Defaults to the family of the alias.",
                enum=(*ALIAS_FAMILIES.values(), "Custom"),
            ),
            "userData": Text("User data that is merged with what the node needs to join the cluster."),
            "role": Text("IAM role of the nodes. An instance profile is created for it.", min_length=1),
            "instanceProfile": Text("Name of an existing instance profile.", min_length=1),
            "tags": _TAGS,
            "kubelet": KUBELET,
            "blockDeviceMappings": BLOCK_DEVICES,
            "instanceStorePolicy": Text(
                "RAID0 combines the instance store disks into one volume for pods.", enum=("RAID0",)
            ),
            "networkInterfaces": NETWORK_INTERFACES,
            "detailedMonitoring": Boolean("Whether CloudWatch collects metrics of nodes every minute."),
            "metadataOptions": METADATA,
            "connectionTracking": CONNECTION_TRACKING,
            "cpuOptions": Object(
                {"nestedVirtualization": Text("Whether nodes may run virtual machines.", enum=ENABLED)},
                "Options of the processor.",
            ),
            "context": Text("Passed on to EC2 as the fleet's Context."),
        },
        "How nodes are launched on EC2.",
        required=("subnetSelectorTerms", "securityGroupSelectorTerms", "amiSelectorTerms"),
        rules=(_ROLE_RULE, *_SPEC_RULES),
    ),
    "How nodes are launched on EC2.",
)
EC2_NODE_CLASS_OF_DEFAULT_ROLE = EC2_NODE_CLASS._replace(spec=EC2_NODE_CLASS.spec._replace(rules=_SPEC_RULES))
"""The kind for a v1alpha5 or v1alpha1 object that names no role."""
