"""Reading an AWS account: the region's stack, registrations, roles, subnets and security groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.adapters.ownedresources import bare_role_name
from nodesmith.registration import LONGEST_ROLE_NAME, parameter_name
from nodesmith_cli.access.awssession import AwsCaller, if_there
from nodesmith_cli.connecting.observed import DISCOVERY_TAG, Cluster, NodeRole, RegionStack, Tagged, is_made

SPOT_PATH = "/aws-service-role/spot.amazonaws.com/"


class AccountReading(AwsCaller):
    """Reads everything outside EKS."""

    def stack(self) -> RegionStack | None:
        """Return the outputs of the region's stack, or None without a stack."""
        described = self._stack(f"nodesmith-{self.region}")
        if described is None:
            return None
        outputs = {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs") or ()}
        roles = outputs.get("NodeRoles")
        return RegionStack(
            outputs.get("Version", ""),
            outputs.get("BucketName", ""),
            outputs.get("TableName", ""),
            outputs.get("ForwarderRoleArn", ""),
            None if roles is None else tuple(filter(None, (name.strip() for name in roles.split(",")))),
        )

    def cdk_stack(self, cluster: str) -> str:
        """Return the name of the stack for a cluster in `clusters` of cdk.json, or an empty string."""
        name = f"nodesmith-{self.region}-{cluster}"
        return name if self._stack(name) is not None else ""

    def _stack(self, name: str) -> Mapping[str, Any] | None:
        def read() -> Mapping[str, Any] | None:
            try:
                stacks = self.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
            except ClientError as error:
                # CloudFormation's error for a stack that does not exist.
                if error_code(error) == "ValidationError":
                    return None
                raise
            there = [stack for stack in stacks if not str(stack["StackStatus"]).startswith("DELETE_COMPLETE")]
            return there[0] if there else None

        return self.ask("cloudformation:DescribeStacks", f"stack/{name}", read, None)

    def parameter(self, cluster: str, *, observed: bool = False) -> str | None:
        """Return the text of the registration, or None."""
        name = parameter_name(cluster, observed=observed)

        def read() -> str | None:
            response = if_there(lambda: self.client("ssm").get_parameter(Name=name))
            return None if response is None else str(response["Parameter"]["Value"])

        return self.ask("ssm:GetParameter", f"parameter{name}", read, None)

    def has_spot_role(self) -> bool:
        """Return whether the account has EC2 Spot's service-linked role."""

        def read() -> bool:
            return bool(self.client("iam").list_roles(PathPrefix=SPOT_PATH)["Roles"])

        return self.ask("iam:ListRoles", "role/aws-service-role/*", read, True)

    def subnets(self, cluster: Cluster) -> tuple[Tagged, ...]:
        """Return the subnets of the cluster's VPC."""

        def read() -> tuple[Tagged, ...]:
            found = rows(self.client("ec2"), "describe_subnets", "Subnets", Filters=_of(cluster.vpc_id))
            return tuple(_subnet(subnet, cluster.name) for subnet in found)

        return self.ask("ec2:DescribeSubnets", "*", read, ())

    def groups(self, cluster: Cluster) -> tuple[Tagged, ...]:
        """Return the security groups of the cluster's VPC."""

        def read() -> tuple[Tagged, ...]:
            ec2, filters = self.client("ec2"), _of(cluster.vpc_id)
            found = rows(ec2, "describe_security_groups", "SecurityGroups", Filters=filters)
            return tuple(_tagged(group["GroupId"], group, cluster.name) for group in found)

        return self.ask("ec2:DescribeSecurityGroups", "*", read, ())

    def node_roles(self, cluster: str, names: Iterable[str]) -> dict[str, NodeRole]:
        """Return the named roles that exist, by name."""
        roles = {}
        for name in names:
            role = self.role(name)
            if role is not None:
                roles[name] = NodeRole(
                    name,
                    frozenset(self._policies(name)),
                    _trusts_ec2(role.get("AssumeRolePolicyDocument") or {}),
                    is_made({tag["Key"]: tag["Value"] for tag in role.get("Tags") or ()}, cluster),
                    role.get("Path") or "/",
                )
        return roles

    def role(self, name: str) -> Mapping[str, Any] | None:
        def read() -> Mapping[str, Any] | None:
            answer = if_there(lambda: self.client("iam").get_role(RoleName=bare_role_name(name)))
            return None if answer is None else answer["Role"]

        return self.ask("iam:GetRole", f"role/{name}", read, None)

    def _policies(self, role: str) -> list[str]:
        def read() -> list[str]:
            iam, name = self.client("iam"), bare_role_name(role)
            found = rows(iam, "list_attached_role_policies", "AttachedPolicies", RoleName=name)
            return [policy["PolicyArn"] for policy in found]

        return self.ask("iam:ListAttachedRolePolicies", f"role/{role}", read, list[str]())


def possible_names(names: Iterable[str]) -> dict[str, None]:
    """Return the names, each once, that IAM can have as names of roles; a path does not count."""
    return dict.fromkeys(name for name in names if name and len(bare_role_name(name)) <= LONGEST_ROLE_NAME)


def _of(vpc_id: str) -> list[dict[str, Any]]:
    return [{"Name": "vpc-id", "Values": [vpc_id]}]


def _subnet(subnet: Mapping[str, Any], cluster: str) -> Tagged:
    free = int(subnet.get("AvailableIpAddressCount") or 0)
    return _tagged(subnet["SubnetId"], subnet, cluster, free, subnet.get("AvailabilityZone", ""))


def _tagged(id_: str, resource: Mapping[str, Any], cluster: str, free: int = 0, zone: str = "") -> Tagged:
    tags = {tag["Key"]: tag["Value"] for tag in resource.get("Tags") or ()}
    return Tagged(id_, tags.get(DISCOVERY_TAG, ""), free, zone, is_made(tags, cluster))


def _trusts_ec2(policy: Mapping[str, Any]) -> bool:
    statements = policy.get("Statement") or []
    for statement in statements if isinstance(statements, list) else [statements]:
        principals = (
            (statement.get("Principal") or {}).get("Service", [])
            if isinstance(statement.get("Principal"), dict)
            else []
        )
        named = [principals] if isinstance(principals, str) else principals
        if statement.get("Effect") == "Allow" and any(
            str(name).startswith("ec2.amazonaws.com") for name in named
        ):
            return True
    return False
