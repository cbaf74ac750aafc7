"""The parts of an EC2NodeClass and of the operator's settings that affect what a node of an instance type offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from nodesmith.model.nodeclasses.instancesettings import (
    AL2023,
    DEFAULT_KUBELET,
    GIB,
    WINDOWS_FAMILIES,
    KubeletConfiguration,
    NetworkInterface,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith.model.policies import DefaultSpread, MinValuesPolicy, PreferencePolicy


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of an operator for a whole cluster."""

    vm_memory_overhead_percent: float = 0.075
    """the hypervisor's share of memory, as a fraction: 0.075 means 7.5 %"""
    reserved_enis: int = 0
    """network interfaces that the VPC CNI does not use for pods (custom networking)"""
    prefix_delegation: bool = False
    """True if the VPC CNI assigns /28 prefixes on Nitro instances"""
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    fragility_tolerance: float = 0.01
    """how much more a plan may cost so that no node has all pods of a kind, as a fraction"""
    few_nodes_tolerance: float = 0.0
    """how much more a plan may cost because it has fewer nodes, as a fraction"""
    interruption_cost_hours: float = 1.0
    """the assumed cost of one interruption, in hours of the node's price"""
    default_spreads: tuple[DefaultSpread, ...] = ()
    """constraints for pods without a topology spread constraint of their own"""
    windows_prefix_delegation: bool = False
    """True if Windows nodes on Nitro get /28 prefixes for their pods"""
    cluster_limits: tuple[tuple[str, int], ...] = ()
    """limits over all nodes of the cluster: resource and amount in its unit, sorted by name"""
    expendable_priority_cutoff: int | None = None
    """pods of a lower priority neither cause purchases nor keep nodes; None if there are no such pods"""
    ipv6: bool = False
    """True in an IPv6 cluster, whose VPC CNI gives each node an address range of practically any size"""

    ignore_dra_requests: bool = False
    """whether pods that claim devices are left alone"""
    shared_provisioning_classes: bool = True
    """whether ProvisioningRequests of Cluster Autoscaler's classes are served"""
    proactive_pod_limit: int = 5000
    """no pod is planned before it exists while this many are pending or planned"""

    def in_cluster(self, cluster: ClusterInfo | None) -> NodeSettings:
        """Return the settings as they apply in a cluster; unchanged if it is not known."""
        ipv6 = cluster is not None and cluster.ip_family == "ipv6"
        return replace(self, ipv6=True) if ipv6 and not self.ipv6 else self

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> NodeSettings:
        """Read settings that were written with `dataclasses.asdict`.

        Missing settings get their defaults. Unknown names are ignored.
        """
        known = _known(cls, written)
        spreads = written.get("default_spreads", ())
        known["default_spreads"] = tuple(DefaultSpread(**_known(DefaultSpread, each)) for each in spreads)
        limits = written.get("cluster_limits", ())
        known["cluster_limits"] = tuple((str(name), int(amount)) for name, amount in limits)
        for name, policy in (("preference_policy", PreferencePolicy), ("min_values_policy", MinValuesPolicy)):
            if name in known:
                known[name] = policy(known[name])
        return cls(**known)


def _known(kind: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in written.items() if name in names}


SHARED: tuple[str, ...] = ("default",)
"""The tenancy of nodes unless a NodePool or pods ask for another: hardware that is shared with other accounts."""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """The part of an EC2NodeClass that affects what a node of an instance type offers. Hashable."""

    ami_family: str = AL2023
    root_volume_bytes: int = 20 * GIB
    instance_store_policy: str = ""
    kubelet: KubeletConfiguration = DEFAULT_KUBELET
    network_interfaces: tuple[NetworkInterface, ...] = ()
    connection_tracking: bool = False
    nested_virtualization: bool = False
    placement_group: bool = False
    volumes: int = 1
    """number of EBS volumes that a node is launched with, including the root volume"""
    tenancies: tuple[str, ...] = SHARED
    """the tenancies that nodes may be bought with, `default` and `dedicated`: each has prices of its own"""
    one_interface: bool = False
    """True if a node gets a public address, which EC2 assigns only where it has a single network interface"""

    @classmethod
    def of(cls, nodeclass: EC2NodeClass, tenancies: tuple[str, ...] = SHARED) -> NodeConfiguration:
        """Return the configuration of an EC2NodeClass, for nodes with these tenancies."""
        return cls(
            ami_family=nodeclass.ami_family,
            root_volume_bytes=nodeclass.root_volume_bytes,
            instance_store_policy=nodeclass.instance_store_policy,
            kubelet=nodeclass.kubelet,
            network_interfaces=nodeclass.network_interfaces,
            connection_tracking=nodeclass.connection_tracking is not None,
            nested_virtualization=nodeclass.nested_virtualization == "enabled",
            placement_group=nodeclass.placement_group_selector is not None,
            volumes=max(1, len(nodeclass.block_devices)),
            tenancies=tenancies,
            one_interface=bool(nodeclass.associate_public_ip_address),
        )

    @property
    def windows(self) -> bool:
        """True for the Windows families."""
        return self.ami_family in WINDOWS_FAMILIES
