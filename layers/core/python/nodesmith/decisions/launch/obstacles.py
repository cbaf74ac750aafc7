"""Why an EC2NodeClass cannot be launched from, and the settings that its image family does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodesmith.model.nodeclasses.instancesettings import (
    AL2023,
    BOTTLEROCKET,
    CUSTOM,
    WINDOWS_FAMILIES,
    KubeletConfiguration,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a NodeClass cannot be launched from: a condition's reason, and a message that explains what to do.

    `field` is the field to change, empty if the cause is not in the NodeClass. `line` is a line of the field's text,
    counted from 1; 0 if it is not a text, or no single line is wrong.
    """

    reason: str
    message: str
    field: str = ""
    line: int = 0


PID = "pid"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in ("h", "m", "s", "ms")))


def family_obstacle(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    """Return the first setting that the NodeClass's image family does not have, None if there is none.

    Without that, it would be ignored, and nodes would differ from what their owner asked for.
    """
    if nodeclass.ami_family in WINDOWS_FAMILIES and (found := _not_for_windows(nodeclass, cluster)):
        return found
    unknown = next(_unmapped(nodeclass), None)
    if unknown is None:
        return None
    field, why = unknown
    message = f"spec.kubelet.{field}: {why}"
    return Obstacle("UnsupportedKubeletConfiguration", message, f"spec.kubelet.{field}")


def _not_for_windows(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    family = nodeclass.ami_family
    if cluster.ip_family == "ipv6":
        return Obstacle(
            "UnsupportedAMIFamily",
            f"spec.amiFamily is {family}, and Windows nodes cannot join an IPv6 cluster: use a Linux family",
            "spec.amiFamily",
        )
    if nodeclass.instance_store_policy:
        policy = nodeclass.instance_store_policy
        message = f"spec.instanceStorePolicy is {policy}, and {family} does not combine disks: remove it"
        return Obstacle("UnsupportedField", message, "spec.instanceStorePolicy")
    return None


def _not_for_bottlerocket(kubelet: KubeletConfiguration) -> Iterator[tuple[str, str]]:
    """Yield what Bottlerocket's model of settings refuses. The node would start without any of its settings."""
    if kubelet.pods_per_core is not None:
        yield "podsPerCore", "Bottlerocket has no such setting: use maxPods"
    for name, reserved in (
        ("systemReserved", kubelet.system_reserved),
        ("kubeReserved", kubelet.kube_reserved),
    ):
        if PID in reserved:
            yield (
                f"{name}.{PID}",
                "Bottlerocket reserves cpu, memory and ephemeral-storage only: leave it out",
            )
    for name, signals in (("evictionHard", kubelet.eviction_hard), ("evictionSoft", kubelet.eviction_soft)):
        for signal in sorted(signals):
            if signals[signal].endswith("%") and float(signals[signal][:-1]) >= 100:
                yield (
                    f"{name}[{signal}]",
                    "Bottlerocket allows less than 100%: write 0% to switch the signal off",
                )
    periods = kubelet.eviction_soft_grace_period
    for signal in sorted(periods):
        if not _DURATION.fullmatch(periods[signal]):
            why = f"is {periods[signal]}, and Bottlerocket reads h, m, s and ms in this order: write 1m30s"
            yield f"evictionSoftGracePeriod[{signal}]", why


def _unmapped(nodeclass: EC2NodeClass) -> Iterator[tuple[str, str]]:
    """Yield the kubelet settings that the family's user data cannot express, each with what to do."""
    family, kubelet = nodeclass.ami_family, nodeclass.kubelet
    if family in (AL2023, CUSTOM):
        return
    if family == BOTTLEROCKET:
        yield from _not_for_bottlerocket(kubelet)
    elif len(kubelet.cluster_dns) > 1:
        count = len(kubelet.cluster_dns)
        yield (
            "clusterDNS",
            f"has {count} addresses, and {family} passes one to the kubelet: keep one, or use AL2023",
        )
    for name in sorted(kubelet.other):
        yield (
            name,
            f"{family} cannot set it: leave it out, or use AL2023, which can set any field of the kubelet",
        )
