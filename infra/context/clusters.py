"""An entry of `clusters` in cdk.json: a registration and its region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.context.faults import did_you_mean, text
from infra.context.regions import REGION, REGION_KEYS
from nodesmith.registration import (
    FORMAT,
    LONGEST_ROLE_NAME,
    LONGEST_VALUE,
    Registration,
    default_node_role,
    registration_faults,
)

CLUSTER_KEYS = ("name", "region", "vpcId", "nodeRoles", "reachedFrom", "settings")


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One entry of `clusters`."""

    region: str
    registration: Registration

    @property
    def name(self) -> str:
        """The name of the EKS cluster."""
        return self.registration.cluster

    @property
    def stack_name(self) -> str:
        """The name of the cluster's stack; stack names may not contain underscores."""
        return f"nodesmith-{self.region}-{self.name.replace('_', '-')}"


def read_cluster(entry: Mapping[str, Any]) -> ClusterContext:
    """Read an entry that has been checked for faults."""
    registration = Registration(
        entry["name"],
        entry["vpcId"],
        tuple(entry.get("nodeRoles") or [default_node_role(entry["name"])]),
        entry.get("reachedFrom", ""),
        dict(entry.get("settings", {})),
    )
    return ClusterContext(entry["region"], registration)


def cluster_faults(where: str, entry: Any, regions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the faults of an entry; `regions` is the value of `regions` in cdk.json."""
    if not isinstance(entry, dict):
        return [f"{where}: expected an object with name, region and vpcId, found {entry!r}"]
    region = entry.get("region")
    here = regions.get(region, {}) if isinstance(region, str) else {}
    faults = [
        *_unknown(where, entry),
        *text(f"{where}.region", region, REGION, "an AWS region such as us-east-1"),
        *_registration_faults(where, entry),
    ]
    if not faults:
        faults += [*_role_faults(where, entry, here), *_vpc_faults(where, entry, here)]
        length = len(read_cluster(entry).registration.to_json().encode())
        if length > LONGEST_VALUE:
            faults.append(f"{where}: a registration may have at most {LONGEST_VALUE} bytes, found {length}")
    return faults


def doubles(clusters: Sequence[ClusterContext]) -> list[str]:
    """Return a fault for each cluster listed twice in a region, and for each pair whose stacks would share a name."""
    seen: dict[str, str] = {}
    faults = []
    for cluster in clusters:
        other = seen.setdefault(cluster.stack_name, cluster.name)
        if cluster.stack_name in seen and other != cluster.name:
            faults.append(
                f"clusters: {other} and {cluster.name} in {cluster.region} would have the same stack, "
                f"{cluster.stack_name}: connect one of them with `nodesmith connect`"
            )
    named = [(cluster.region, cluster.name) for cluster in clusters]
    twice = sorted({each for each in named if named.count(each) > 1})
    return [*faults, *(f"clusters: {name} in {region} is listed twice" for region, name in twice)]


def _unknown(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(set(entry) - set(CLUSTER_KEYS)):
        remedy = did_you_mean(key, CLUSTER_KEYS)
        if key in REGION_KEYS:
            remedy = f"it belongs to the region: regions.{entry.get('region')}.{key}"
        yield f"{where}.{key}: unknown; {remedy}"


def _registration_faults(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults in the values that the cluster's parameter would hold."""
    name = entry.get("name")
    if not isinstance(name, str):
        yield f"{where}.name: expected the name of an EKS cluster, found {name!r}"
        name = "unnamed"
    value = {
        "format": FORMAT,
        "vpcId": entry.get("vpcId"),
        "nodeRoles": entry.get("nodeRoles", [default_node_role(name)]),
        "reachedFrom": entry.get("reachedFrom", ""),
        "settings": entry.get("settings", {}),
    }
    for fault in registration_faults(name, value):
        yield f"{where}.{fault}{_vpc_hint(entry) if fault.startswith('vpcId:') else ''}"


def _vpc_hint(entry: Mapping[str, Any]) -> str:
    """Return a hint with the command that prints the id of the VPC of this entry's cluster."""
    command = f"aws eks describe-cluster --name {entry.get('name')} --region {entry.get('region')}"
    return f"; `{command} --query cluster.resourcesVpcConfig.vpcId` prints it"


def _role_faults(where: str, entry: Mapping[str, Any], region: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault for each role that is neither the cluster's own by name nor listed for its region.

    A default that IAM cannot have is a fault, too.
    """
    longest = len(default_node_role(entry["name"]))
    if not entry.get("nodeRoles") and longest > LONGEST_ROLE_NAME:
        yield (
            f"{where}.nodeRoles: the default, {default_node_role('<name>')}, would have {longest} characters, and IAM "
            f"allows {LONGEST_ROLE_NAME}: name another role, which regions.{entry['region']}.nodeRoles lists as well"
        )
    named = region.get("nodeRoles", [])
    known = [default_node_role(entry["name"]), *(named if isinstance(named, list) else [])]
    for at, role in enumerate(entry.get("nodeRoles", [])):
        if role not in known:
            yield (
                f"{where}.nodeRoles[{at}]: expected {known[0]}, or a role that regions.{entry['region']}.nodeRoles "
                f"lists, found {role!r}; {did_you_mean(role, [each for each in known if isinstance(each, str)])}"
            )


def _vpc_faults(where: str, entry: Mapping[str, Any], region: Mapping[str, Any]) -> Iterator[str]:
    raw, found = region.get("vpcs", {}), entry.get("reachedFrom", "")
    vpcs = list(raw) if isinstance(raw, dict) else []
    if found and found not in vpcs:
        yield (
            f"{where}.reachedFrom: expected the name of a VPC in regions.{entry['region']}.vpcs, found {found!r}; "
            f"{did_you_mean(found, vpcs)}"
        )
