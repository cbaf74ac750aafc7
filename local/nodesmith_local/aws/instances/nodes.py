"""Node objects as the kubelet, the cloud controller and the CNI write them for an instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    ARCH,
    HOSTNAME,
    INSTANCE_TYPE,
    OS,
    REGION,
    WINDOWS_BUILD,
    ZONE,
    Effect,
    Taint,
)
from nodesmith.model.apimachinery.quantities import format_resources, parse_resources
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import WINDOWS_BUILDS, InstanceType, instance_types
from nodesmith.model.nodeclasses.instancesettings import (
    AL2,
    AL2023,
    BOTTLEROCKET,
    DEFAULT_BLOCK_DEVICES,
    KubeletConfiguration,
)
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings
from nodesmith_local.aws.instances.userdata.bootstrap import Bootstrap
from nodesmith_local.aws.instances.userdata.reading import family_of_image, pulled_images

UNINITIALIZED = Taint("node.cloudprovider.kubernetes.io/uninitialized", Effect.NO_SCHEDULE, "true")
_HYPERVISOR_SHARE = 0.045
"""Share of memory, measured on Nitro instances; less than the 7.5% assumed before a node reports its own."""
_KUBELETS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
DATA_DEVICE = DEFAULT_BLOCK_DEVICES[BOTTLEROCKET][-1].device_name
"""The device of Bottlerocket's second volume, which holds images and pods."""
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_SYSTEMS = {AL2023: "Amazon Linux 2023", AL2: "Amazon Linux 2", BOTTLEROCKET: "Bottlerocket OS"}
_KERNELS = {AL2: "5.10.0-amzn2", BOTTLEROCKET: "6.12.0"}
_CLOUD_LABELS = {
    ZONE: "failure-domain.beta.kubernetes.io/zone",
    REGION: "failure-domain.beta.kubernetes.io/region",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of an EC2 instance that show in a node. Times are aware; `user_data` is plain text.

    `cluster` is the value of the tag `eks:eks-cluster-name`, or empty without that tag. `data_volume_bytes` is the size
    of Bottlerocket's second volume, 0 without one.
    """

    id: str
    instance_type: str
    zone: str
    region: str
    state: str
    user_data: str
    private_dns_name: str
    private_ip: str
    launched_at: datetime
    root_volume_bytes: int
    ipv6: str = ""
    """its IPv6 address, empty without one"""
    image_id: str = ""
    cluster: str = ""
    image_name: str = ""
    data_volume_bytes: int = 0

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


def registered_node(
    machine: Machine, bootstrap: Bootstrap, catalog: Catalog, version: str, now: datetime
) -> dict[str, Any]:
    """Return the Node as the kubelet registers it: own labels and taints, capacity and allocatable, not ready."""
    resolved = _resolved(machine, bootstrap, catalog)
    arch, name = resolved.labels[ARCH], machine.private_dns_name
    system = resolved.labels[OS]
    own = {HOSTNAME: name, ARCH: arch, OS: system, f"beta.{ARCH}": arch, f"beta.{OS}": system}
    if WINDOWS_BUILD in resolved.labels:
        own[WINDOWS_BUILD] = resolved.labels[WINDOWS_BUILD]
    taints = [*bootstrap.taints, UNINITIALIZED]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**bootstrap.labels, **own}, "annotations": _KUBELETS},
        "spec": {"providerID": machine.provider_id, "taints": [_taint(taint) for taint in taints]},
        "status": {
            "capacity": format_resources(resolved.capacity),
            "allocatable": format_resources(resolved.allocatable),
            "conditions": conditions(False, now),
            "addresses": [
                {"type": "InternalIP", "address": machine.ipv6 if bootstrap.is_ipv6 else machine.private_ip},
                {"type": "InternalDNS", "address": name},
                {"type": "Hostname", "address": name},
            ],
            "images": [{"names": [image]} for image in pulled_images(machine.user_data, machine.image_name)],
            "nodeInfo": _node_info(machine, _family(machine, bootstrap), arch, version),
        },
    }


def cloud_labels(machine: Machine) -> dict[str, str]:
    """Return the labels that the cloud controller adds for an instance, and the EBS CSI driver's zone label."""
    labels = {ZONE: machine.zone, REGION: machine.region}
    return {
        **labels,
        **{_CLOUD_LABELS[key]: value for key, value in labels.items()},
        INSTANCE_TYPE: machine.instance_type,
        "beta.kubernetes.io/instance-type": machine.instance_type,
        "topology.ebs.csi.aws.com/zone": machine.zone,
    }


def conditions(ready: bool, since: datetime) -> list[dict[str, Any]]:
    """Return the kubelet's conditions; a node is not ready while its CNI is down."""
    timestamps = {"lastTransitionTime": format_time(since), "lastHeartbeatTime": format_time(since)}
    calm = [
        {"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", "message": "", **timestamps}
        for kind in _PRESSURES
    ]
    condition = (
        {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        if ready
        else {
            "status": "False",
            "reason": "KubeletNotReady",
            "message": "container runtime network not ready: cni plugin not initialized",
        }
    )
    return [*calm, {"type": "Ready", **condition, **timestamps}]


def without_taint(taints: list[Mapping[str, Any]], removed: Taint) -> list[Mapping[str, Any]]:
    """Return the taints without those that have the key and effect of `removed`."""
    return [t for t in taints if (t.get("key"), t.get("effect")) != (removed.key, removed.effect)]


def _resolved(machine: Machine, bootstrap: Bootstrap, catalog: Catalog) -> InstanceType:
    """Return the machine's real resources: its type's, less the shares of the hypervisor and the kubelet."""
    name = machine.instance_type
    alone = replace(catalog, ref=f"{catalog.ref}/{name}", facts={name: catalog.facts[name]}, offerings={})
    family = _family(machine, bootstrap)
    data = machine.data_volume_bytes if family == BOTTLEROCKET else 0
    configuration = NodeConfiguration(
        ami_family=family,
        root_volume_bytes=data or machine.root_volume_bytes,
        instance_store_policy=bootstrap.local_storage,
        kubelet=_kubelet(bootstrap.kubelet),
    )
    settings = NodeSettings(vm_memory_overhead_percent=_HYPERVISOR_SHARE, ipv6=bootstrap.is_ipv6)
    return instance_types(alone, configuration, settings)[0]


def _family(machine: Machine, bootstrap: Bootstrap) -> str:
    """Return the image family; user data alone does not show which version of Windows it is."""
    return family_of_image(machine.image_name) or bootstrap.family


def _kubelet(config: Mapping[str, Any]) -> KubeletConfiguration:
    """Return the kubelet settings that change a node's resources."""
    return KubeletConfiguration(
        max_pods=config.get("maxPods"),
        pods_per_core=config.get("podsPerCore"),
        system_reserved=parse_resources(config.get("systemReserved")),
        kube_reserved=parse_resources(config.get("kubeReserved")),
        eviction_hard=FrozenMap(config.get("evictionHard")),
    )


def _node_info(machine: Machine, family: str, arch: str, version: str) -> dict[str, str]:
    return {
        "architecture": arch,
        "operatingSystem": "windows" if family in WINDOWS_BUILDS else "linux",
        "osImage": f"{_SYSTEMS.get(family, family)} (simulated)",
        "kernelVersion": WINDOWS_BUILDS.get(family) or _KERNELS.get(family, "6.12.0-amzn2023"),
        "kubeletVersion": f"v{version}.0-eks-local",
        "kubeProxyVersion": f"v{version}.0-eks-local",
        "containerRuntimeVersion": "containerd://2.1.0",
        "machineID": machine.id.removeprefix("i-"),
        "systemUUID": machine.id,
        "bootID": machine.id,
    }


def _taint(taint: Taint) -> dict[str, str]:
    taint_object = {"key": taint.key, "effect": str(taint.effect)}
    return {**taint_object, "value": taint.value} if taint.value else taint_object
