"""Reading what AWS still has of a cluster, whether the cluster exists or not. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from nodesmith.adapters.aws.calls import rows
from nodesmith.adapters.dynamodb.partition import Partition
from nodesmith.adapters.ec2.instances import LIVING, describe_filter, machines, ours
from nodesmith.adapters.ownedresources import bare_role_name, profile_path
from nodesmith.keys import forwarder_partition_key, health_partition_key, notices_partition_key, partition_key
from nodesmith.model.karpenter.ownership import MANAGED_BY_TAG, owned_tag
from nodesmith.model.ledger.ledger import read_handover
from nodesmith.registration import default_node_role
from nodesmith_cli.access.awssession import if_there
from nodesmith_cli.access.ledger import TABLE
from nodesmith_cli.connecting.observed import DISCOVERY_TAG, MADE_TAG, Cluster, is_made
from nodesmith_cli.connecting.reading.account import possible_names
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.connecting.request import readable
from nodesmith_cli.connecting.steps.actions import AGENT
from nodesmith_cli.connecting.steps.leftovers import Leftovers


class LeftoverReading(AwsReading):
    """Reads the resources that disconnect may remove."""

    def leftovers(self, name: str, cluster: Cluster | None) -> Leftovers:
        """Return all resources. `cluster` is None if it no longer exists in EKS. Raises Transient, Rejected."""
        parameter = self.parameter(name)
        is_served = parameter is not None
        if parameter is None:
            parameter = self.parameter(name, observed=True)
        registration = readable(name, parameter)
        named = [default_node_role(name), *(registration.node_roles if registration else ())]
        roles = possible_names(named)
        stack, profiles = self.stack(), self._profiles(name)
        node_roles = tuple(self.node_roles(name, roles).values())
        made = [bare_role_name(role.name) for role in node_roles if role.is_made]
        return Leftovers(
            name,
            self.region,
            parameter is not None,
            self.entries(cluster, self._principals(cluster)) if cluster else {},
            self.association(name) if cluster else None,
            cluster is not None and self._is_agent_made(name),
            cluster is None or self._associations(name) <= 1,
            self._tagged(name),
            self._templates(name),
            profiles,
            self._objects(stack.bucket, name) if stack and stack.bucket else 0,
            self._items(name) if stack else 0,
            node_roles,
            bool(self._used_profiles(name)),
            stack is not None and bool(stack.table_name) and self._is_released(name, stack.table_name),
            self.instances(name),
            self._holders(made, profiles) if made else {},
            parameter is not None and not is_served,
        )

    def _is_released(self, cluster: str, table: str) -> bool:
        """Return whether the cluster's nodes were released to Karpenter."""

        def read() -> bool:
            found = Partition(self.client("dynamodb"), table, partition_key(cluster)).items("HANDOVER")
            return any(read_handover(json.loads(item["doc"]["S"])).is_settled for item in found)

        return self.ask("dynamodb:Query", f"table/{TABLE}", read, False)

    def _principals(self, cluster: Cluster) -> list[str]:
        if cluster.mode == "CONFIG_MAP":
            return []

        def read() -> list[str]:
            eks = self.client("eks")
            return list(rows(eks, "list_access_entries", "accessEntries", clusterName=cluster.name))

        return self.ask("eks:ListAccessEntries", f"cluster/{cluster.name}", read, list[str]())

    def _associations(self, cluster: str) -> int:
        def read() -> int:
            eks = self.client("eks")
            return len([*rows(eks, "list_pod_identity_associations", "associations", clusterName=cluster)])

        return self.ask("eks:ListPodIdentityAssociations", f"cluster/{cluster}", read, 0)

    def _is_agent_made(self, cluster: str) -> bool:
        def read() -> bool:
            eks = self.client("eks")
            found = if_there(lambda: eks.describe_addon(clusterName=cluster, addonName=AGENT))
            return found is not None and is_made(found["addon"].get("tags"), cluster)

        return self.ask("eks:DescribeAddon", f"addon/{cluster}/{AGENT}", read, False)

    def _tagged(self, cluster: str) -> tuple[str, ...]:
        filters = _tags({DISCOVERY_TAG: cluster, MADE_TAG: cluster})

        def read() -> tuple[str, ...]:
            ec2 = self.client("ec2")
            subnets = rows(ec2, "describe_subnets", "Subnets", Filters=filters)
            groups = rows(ec2, "describe_security_groups", "SecurityGroups", Filters=filters)
            return (*(subnet["SubnetId"] for subnet in subnets), *(group["GroupId"] for group in groups))

        return self.ask("ec2:DescribeSubnets", "*", read, ())

    def _templates(self, cluster: str) -> tuple[str, ...]:
        filters = _tags({MANAGED_BY_TAG: cluster})

        def read() -> tuple[str, ...]:
            found = rows(self.client("ec2"), "describe_launch_templates", "LaunchTemplates", Filters=filters)
            return tuple(template["LaunchTemplateId"] for template in found)

        return self.ask("ec2:DescribeLaunchTemplates", "*", read, ())

    def _profiles(self, cluster: str) -> Mapping[str, tuple[str, ...]]:
        """Return the profiles that no instance uses, with their roles. Nodes released to Karpenter keep theirs."""
        path, used = profile_path(cluster, self.region), self._used_profiles(cluster)

        def read() -> Mapping[str, tuple[str, ...]]:
            iam = self.client("iam")
            return {
                profile["InstanceProfileName"]: _roles_in(profile)
                for profile in rows(iam, "list_instance_profiles", "InstanceProfiles", PathPrefix=path)
                if profile["Path"].startswith(path) and profile["InstanceProfileName"] not in used
            }

        return self.ask("iam:ListInstanceProfiles", f"instance-profile{path}*", read, {})

    def _holders(self, roles: Collection[str], without: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the instance profiles that hold each of these roles, in any region, except those in `without`."""

        def read() -> Mapping[str, tuple[str, ...]]:
            others = {
                profile["InstanceProfileName"]: _roles_in(profile)
                for profile in rows(self.client("iam"), "list_instance_profiles", "InstanceProfiles")
                if profile["InstanceProfileName"] not in without
            }
            return {role: tuple(name for name in sorted(others) if role in others[name]) for role in roles}

        return self.ask("iam:ListInstanceProfiles", "instance-profile/*", read, {})

    def instances(self, cluster: str) -> tuple[str, ...]:
        """Return the living instances that nodesmith has launched or adopted for the cluster, and not released."""

        def read() -> tuple[str, ...]:
            owned_machines = machines(self.client("ec2"), *ours(cluster), LIVING)
            return tuple(sorted(machine.instance.id for machine in owned_machines))

        return self.ask("ec2:DescribeInstances", "*", read, ())

    def _used_profiles(self, cluster: str) -> frozenset[str]:
        """Return the instance profiles of the cluster's living instances."""

        def read() -> frozenset[str]:
            owned = describe_filter(f"tag:{owned_tag(cluster)}", "owned")
            owned_machines = machines(self.client("ec2"), owned, LIVING)
            return frozenset(machine.instance.instance_profile for machine in owned_machines)

        return self.ask("ec2:DescribeInstances", "*", read, frozenset())

    def _objects(self, bucket: str, cluster: str) -> int:
        def read() -> int:
            paginator = self.client("s3").get_paginator("list_object_versions")
            pages = paginator.paginate(Bucket=bucket, Prefix=prefix(cluster))
            return sum(len(page.get("Versions", ())) + len(page.get("DeleteMarkers", ())) for page in pages)

        return self.ask("s3:ListBucketVersions", bucket, read, 0)

    def _items(self, cluster: str) -> int:
        def read() -> int:
            paginator = self.client("dynamodb").get_paginator("query")
            queries = partition_queries(cluster)
            return sum(
                page["Count"] for query in queries for page in paginator.paginate(**query, Select="COUNT")
            )

        return self.ask("dynamodb:Query", f"table/{TABLE}", read, 0)


def prefix(cluster: str) -> str:
    """Return the key prefix of a cluster's objects in the bucket."""
    return f"clusters/{cluster}/"


def partition_queries(cluster: str) -> list[dict[str, Any]]:
    """Return the queries for a cluster's items in the table: ledger, heartbeat, health records, notices."""
    keys = (partition_key, forwarder_partition_key, health_partition_key, notices_partition_key)
    return [
        {
            "TableName": TABLE,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": key(cluster)}},
        }
        for key in keys
    ]


def _roles_in(profile: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(role["RoleName"]) for role in profile.get("Roles") or ())


def _tags(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
