"""An entry of `clusters` in cdk.json: a registration and its region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.context.faults import did_you_mean, text_faults
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


def cluster_faults(path: str, entry: Any, regions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the faults of an entry; `regions` is the value of `regions` in cdk.json."""
    if not isinstance(entry, dict):
        return [f"{path}: expected an object with name, region and vpcId, found {entry!r}"]
    region = entry.get("region")
    region_entry = regions.get(region, {}) if isinstance(region, str) else {}
    faults = [
        *_unknown_key_faults(path, entry),
        *text_faults(f"{path}.region", region, REGION, "an AWS region such as us-east-1"),
        *_registration_faults(path, entry),
    ]
    if not faults:
        faults += [*_role_faults(path, entry, region_entry), *_vpc_faults(path, entry, region_entry)]
        length = len(read_cluster(entry).registration.to_json().encode())
        if length > LONGEST_VALUE:
            faults.append(f"{path}: a registration may have at most {LONGEST_VALUE} bytes, found {length}")
    return faults


def duplicate_faults(clusters: Sequence[ClusterContext]) -> list[str]:
    """Return a fault for each cluster listed twice in a region, and for each pair whose stacks would share a name."""
    names_by_stack: dict[str, str] = {}
    faults = []
    for cluster in clusters:
        other = names_by_stack.setdefault(cluster.stack_name, cluster.name)
        if cluster.stack_name in names_by_stack and other != cluster.name:
            faults.append(
                f"clusters: {other} and {cluster.name} in {cluster.region} would have the same stack, "
                f"{cluster.stack_name}: connect one of them with `nodesmith connect`"
            )
    identities = [(cluster.region, cluster.name) for cluster in clusters]
    duplicates = sorted({identity for identity in identities if identities.count(identity) > 1})
    return [*faults, *(f"clusters: {name} in {region} is listed twice" for region, name in duplicates)]


def _unknown_key_faults(path: str, entry: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(set(entry) - set(CLUSTER_KEYS)):
        remedy = did_you_mean(key, CLUSTER_KEYS)
        if key in REGION_KEYS:
            remedy = f"it belongs to the region: regions.{entry.get('region')}.{key}"
        yield f"{path}.{key}: unknown; {remedy}"


def _registration_faults(path: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults in the values that the cluster's parameter would hold."""
    name = entry.get("name")
    if not isinstance(name, str):
        yield f"{path}.name: expected the name of an EKS cluster, found {name!r}"
        name = "unnamed"
    value = {
        "format": FORMAT,
        "vpcId": entry.get("vpcId"),
        "nodeRoles": entry.get("nodeRoles", [default_node_role(name)]),
        "reachedFrom": entry.get("reachedFrom", ""),
        "settings": entry.get("settings", {}),
    }
    for fault in registration_faults(name, value):
        yield f"{path}.{fault}{_vpc_hint(entry) if fault.startswith('vpcId:') else ''}"


def _vpc_hint(entry: Mapping[str, Any]) -> str:
    """Return a hint with the command that prints the id of the VPC of this entry's cluster."""
    command = f"aws eks describe-cluster --name {entry.get('name')} --region {entry.get('region')}"
    return f"; `{command} --query cluster.resourcesVpcConfig.vpcId` prints it"


def _role_faults(path: str, entry: Mapping[str, Any], region: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault for each role that is neither the cluster's own by name nor listed for its region.

    A default that IAM cannot have is a fault, too.
    """
    longest = len(default_node_role(entry["name"]))
    if not entry.get("nodeRoles") and longest > LONGEST_ROLE_NAME:
        yield (
            f"{path}.nodeRoles: the default, {default_node_role('<name>')}, would have {longest} characters, and IAM "
            f"allows {LONGEST_ROLE_NAME}: name another role, which regions.{entry['region']}.nodeRoles lists as well"
        )
    region_roles = region.get("nodeRoles", [])
    own_role = default_node_role(entry["name"])
    allowed_roles = [own_role, *(region_roles if isinstance(region_roles, list) else [])]
    names = [role for role in allowed_roles if isinstance(role, str)]
    for index, role in enumerate(entry.get("nodeRoles", [])):
        if role not in allowed_roles:
            yield (
                f"{path}.nodeRoles[{index}]: expected {own_role}, or a role that regions.{entry['region']}.nodeRoles "
                f"lists, found {role!r}; {did_you_mean(role, names)}"
            )


def _vpc_faults(path: str, entry: Mapping[str, Any], region: Mapping[str, Any]) -> Iterator[str]:
    configured, vpc_name = region.get("vpcs", {}), entry.get("reachedFrom", "")
    vpcs = list(configured) if isinstance(configured, dict) else []
    if vpc_name and vpc_name not in vpcs:
        yield (
            f"{path}.reachedFrom: expected the name of a VPC in regions.{entry['region']}.vpcs, found {vpc_name!r}; "
            f"{did_you_mean(vpc_name, vpcs)}"
        )
