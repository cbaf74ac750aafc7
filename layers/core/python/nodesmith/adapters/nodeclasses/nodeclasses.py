"""Resolution of an EC2NodeClass in this account, with conditions by Karpenter's types and reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from botocore.exceptions import ClientError, ParamValidationError

from nodesmith.adapters.aws.calls import error_code, error_message, transient_errors
from nodesmith.adapters.nodeclasses.images import deprecation_notice, images
from nodesmith.adapters.nodeclasses.instanceprofiles import ensure_profile
from nodesmith.adapters.nodeclasses.selectedresources import (
    capacity_reservations,
    placement_group,
    security_groups,
    subnets,
)
from nodesmith.decisions.launch import launch_obstacle
from nodesmith.model.kubernetes.events import shortened
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    ClusterInfo,
    NodeClassStatus,
    StatusCondition,
    Unresolved,
)
from nodesmith.settings import Settings

T = TypeVar("T")
DryRun = Callable[[EC2NodeClass, NodeClassStatus, ClusterInfo], None]
VALIDATION = "ValidationSucceeded"


def resolve(
    client: Callable[[str], Any],
    settings: Settings,
    nodeclass: EC2NodeClass,
    cluster: ClusterInfo,
    now: datetime,
    dry_run: DryRun,
) -> NodeClassStatus:
    """Resolve a NodeClass to a status, which reports invalid fields as conditions. Raises Transient.

    `dry_run` raises Unresolved if EC2 denies a launch.
    """
    conditions: list[StatusCondition] = []

    def step(kind: str, find: Callable[[], T], said: str = "") -> T | None:
        found, condition = _attempt(kind, find, now, said)
        conditions.append(condition)
        return found

    terms = nodeclass.subnet_selector_terms, nodeclass.security_group_selector_terms
    found = step("AMIsReady", lambda: images(client, nodeclass.ami_selector_terms, cluster.version, now))
    conditions[-1] = replace(
        conditions[-1], message=conditions[-1].message or deprecation_notice(found or ())
    )
    vpc = settings.vpc_id
    nets = step("SubnetsReady", lambda: subnets(client("ec2"), terms[0], cluster.ip_family, vpc))
    if nets is not None:
        conditions[-1] = replace(conditions[-1], message=shortened(nets[1]))
    groups = step("SecurityGroupsReady", lambda: security_groups(client("ec2"), terms[1], vpc))
    with_role, said = _with_role(nodeclass, settings.default_node_role)
    profile = step("InstanceProfileReady", lambda: _profile(client, settings, with_role), said)
    reserved: tuple[CapacityReservation, ...] | None = ()
    if nodeclass.capacity_reservation_selector_terms:
        notes: list[str] = []
        wanted = nodeclass.capacity_reservation_selector_terms
        reserved = step(
            "CapacityReservationsReady", lambda: capacity_reservations(client("ec2"), wanted, now, notes)
        )
        if notes and reserved is not None:
            conditions[-1] = replace(conditions[-1], message=shortened("; ".join(notes)))
    selector, group = nodeclass.placement_group_selector, None
    if selector is not None:
        group = step(
            "PlacementGroupReady", lambda: placement_group(client("ec2"), selector, nets[0] if nets else ())
        )
    status = NodeClassStatus(
        nodeclass.name,
        nodeclass.generation,
        nodeclass.hash,
        now,
        nets[0] if nets else (),
        groups or (),
        found or (),
        profile or "",
        capacity_reservations=reserved or (),
        content=nodeclass.content,
        placement_group=group,
    )
    step(VALIDATION, lambda: _validate(with_role, status, cluster, conditions, dry_run))
    return replace(status, conditions=tuple(conditions))


def _attempt(kind: str, find: Callable[[], T], now: datetime, said: str) -> tuple[T | None, StatusCondition]:
    try:
        with transient_errors(kind):
            return find(), StatusCondition(kind, "True", kind, said, now)
    except Unresolved as obstacle:
        return None, _failing(kind, obstacle.reason, obstacle.message, now)
    except (ClientError, ParamValidationError) as error:
        # AWS rejects a value of the NodeClass (a malformed owner) or denies a permission. Users need to see both.
        code = error_code(error)
        return None, _failing(kind, code or "AWSError", f"{code}: {error_message(error)}", now)


def _failing(kind: str, reason: str, message: str, now: datetime) -> StatusCondition:
    return StatusCondition(kind, "False", reason, shortened(message), now)


def _with_role(nodeclass: EC2NodeClass, default: str) -> tuple[EC2NodeClass, str]:
    """Return the NodeClass, with the default role if it names none, and the condition's message about that."""
    if nodeclass.role or nodeclass.instance_profile or not default:
        return nodeclass, ""
    return replace(
        nodeclass, role=default
    ), f"no role is named: nodes get the cluster's first node role, {default}"


def _profile(client: Callable[[str], Any], settings: Settings, nodeclass: EC2NodeClass) -> str:
    if nodeclass.instance_profile:
        return nodeclass.instance_profile
    if not nodeclass.role:
        raise Unresolved(
            "RoleNotFound", "no role is named and DEFAULT_NODE_ROLE is not set: set spec.instanceProfile"
        )
    if settings.isolated_vpc:
        raise Unresolved(
            "RoleNotAllowed",
            f"spec.role {nodeclass.role!r}: IAM cannot be reached from an isolated VPC: set spec.instanceProfile",
        )
    return ensure_profile(client("iam"), nodeclass, settings.cluster_name, settings.region)


def _validate(
    nodeclass: EC2NodeClass,
    status: NodeClassStatus,
    cluster: ClusterInfo,
    others: list[StatusCondition],
    dry_run: DryRun,
) -> bool:
    obstacle = launch_obstacle(nodeclass, cluster)
    if obstacle:
        raise Unresolved(obstacle.reason, obstacle.message)
    waiting = [condition.type for condition in others if condition.status != "True"]
    if waiting:
        raise Unresolved("DependenciesNotReady", f"waiting for {', '.join(waiting)}")
    dry_run(nodeclass, status, cluster)
    return True
