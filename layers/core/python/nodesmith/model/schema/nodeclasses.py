"""Schema of an EC2NodeClass."""

from __future__ import annotations

from nodesmith.model.schema.devices import (
    BLOCK_DEVICES,
    CONNECTION_TRACKING,
    ENABLED,
    METADATA,
    NETWORK_INTERFACES,
)
from nodesmith.model.schema.fields import (
    INT32,
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
