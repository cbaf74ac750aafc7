"""Node groups as a drain reads and changes them: an Auto Scaling group each, with the size that it had before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, error_message, rows
from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith_cli.access.awssession import Client, asking, if_there
from nodesmith_cli.migration.nodegroups.groups import Kind
from nodesmith_cli.migration.nodegroups.reading import OTHERS_TAGS, tags_of_cluster

SIZE_TAG = "nodesmith.dev/size-before-drain"
"""The tag of an Auto Scaling group that a drain has begun with, and the way back reads."""
REBALANCE = "AZRebalance"
"""The process that ends instances in one zone, even with pods on them, and launches others elsewhere."""
_SIZE = re.compile(
    r"min=(?P<minimum>\d{1,5}) desired=(?P<desired>\d{1,5}) max=(?P<maximum>\d{1,5})"
    r"(?P<rebalances> rebalance)?",
    re.ASCII,
)
_LEAVING = ("Terminating", "Terminated", "Detaching", "Detached")
_BUSY = frozenset({"UPDATING", "CREATING"})
_NO_SUCH_INSTANCE = "No managed instance found"
_PASSING = frozenset({"ScalingActivityInProgress", "ResourceContention", "ResourceInUseException"})


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a group in instances."""

    minimum: int
    desired: int
    maximum: int

    def __str__(self) -> str:
        return f"min={self.minimum} desired={self.desired} max={self.maximum}"


@dataclass(frozen=True, slots=True)
class Before:
    """How a group was before its drain: its size, and whether it balanced its instances between zones."""

    size: Size
    rebalances: bool

    def __str__(self) -> str:
        return f"{self.size} rebalance" if self.rebalances else str(self.size)


def before_of(tags: Mapping[str, str], group: str) -> Before | None:
    """Return how a group was before its drain, None if no drain has begun. Raises Rejected for an unreadable tag."""
    text = tags.get(SIZE_TAG)
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise Rejected(
            f"group {group}: tag {SIZE_TAG} is {text[:80]!r}: expected such as 'min=1 desired=3 max=5'. "
            "Correct the tag, or remove it if you have restored the group's size yourself"
        )
    sizes = {name: int(value) for name, value in match.groupdict().items() if name != "rebalances"}
    return Before(Size(**sizes), match["rebalances"] is not None)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group with the ids of its instances, without those that are leaving it.

    `weights` are what instances count for in the group's size, if that is not 1 (mixed instances with weights).
    `before` is how it was when its drain began, or None. `obstacle` is why it cannot be drained or restored now.
    """

    name: str
    kind: Kind
    scaling_group: str
    size: Size
    instances: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    rebalances: bool = True
    before: Before | None = None
    obstacle: str = ""
    is_busy: bool = False
    weights: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def weight_of(self, instances: Iterable[str]) -> int:
        """Return what instances count for in the group's size."""
        return sum(self.weights.get(instance, 1) for instance in instances)


class Groups(Protocol):
    """The node groups of a cluster."""

    def names(self) -> Sequence[str]:
        """Return the names of all groups, sorted."""

    def read(self, name: str) -> NodeGroup:
        """Return a group. Raises Rejected if there is none of this name."""

    def remember(self, group: NodeGroup, before: Before) -> None:
        """Tag a group with how it is before its drain."""

    def forget(self, group: NodeGroup) -> None:
        """Remove that tag."""

    def allow_empty(self, group: NodeGroup) -> None:
        """Set the minimum size to 0."""

    def resize(self, group: NodeGroup, size: Size) -> None:
        """Set the size."""

    def rebalance(self, group: NodeGroup, *, is_wanted: bool) -> None:
        """Let a group balance its instances between zones, or not."""

    def end(self, instance: str) -> None:
        """Terminate an instance and lower its group's desired size by one. Does nothing if it has left the group."""


@dataclass(frozen=True, slots=True)
class AwsGroups:
    """The groups of a cluster in EKS and EC2 Auto Scaling. Every call may raise Denied, Transient or Rejected."""

    client: Client
    cluster: str

    def names(self) -> Sequence[str]:
        """Return the names of all groups, sorted."""
        with asking("eks:ListNodegroups", f"cluster/{self.cluster}"):
            eks = self.client("eks")
            managed = [*rows(eks, "list_nodegroups", "nodegroups", clusterName=self.cluster)]
        filters = [{"Name": "tag-key", "Values": tags_of_cluster(self.cluster)}]
        own = [
            described["AutoScalingGroupName"]
            for described in self._described(Filters=filters)
            if _is_own(described)
        ]
        return sorted({*managed, *own})

    def read(self, name: str) -> NodeGroup:
        """Return a group. Raises Rejected if there is none of this name."""
        with asking("eks:DescribeNodegroup", f"nodegroup/{self.cluster}/{name}"):
            call = self.client("eks").describe_nodegroup
            found = if_there(lambda: call(clusterName=self.cluster, nodegroupName=name))
        if found is not None:
            return self._managed(name, found["nodegroup"])
        for described in self._described(AutoScalingGroupNames=[name]):
            if _is_own(described) and _has_any_tag(described, tags_of_cluster(self.cluster)):
                return _group(name, Kind.SELF_MANAGED, described)
        names = self.names()
        hint = did_you_mean(name, names) or f"; groups: {', '.join(names) or 'none'}"
        raise Rejected(f"--group {name}: {self.cluster} has no such group{hint}")

    def _managed(self, name: str, shown: Mapping[str, Any]) -> NodeGroup:
        status = str(shown.get("status") or "")
        held = [group["name"] for group in (shown.get("resources") or {}).get("autoScalingGroups") or ()]
        described = list(self._described(AutoScalingGroupNames=held)) if held else []
        if len(described) != 1:
            there = f"{len(described)} Auto Scaling groups" if described else "no Auto Scaling group"
            nothing = Size(0, 0, 0)
            return NodeGroup(name, Kind.MANAGED, "", nothing, obstacle=f"it has {there}, expected one")
        wrong = "" if status in ("ACTIVE", "DEGRADED", *_BUSY) else f"its status is {status}"
        return _group(name, Kind.MANAGED, described[0], obstacle=wrong, is_busy=status in _BUSY)

    def _described(self, **asked: Any) -> Iterator[Mapping[str, Any]]:
        with asking("autoscaling:DescribeAutoScalingGroups", "*"):
            scaling = self.client("autoscaling")
            yield from [*rows(scaling, "describe_auto_scaling_groups", "AutoScalingGroups", **asked)]

    def remember(self, group: NodeGroup, before: Before) -> None:
        """Tag a group with how it is before its drain."""
        tag = {**_tag(group), "Value": str(before), "PropagateAtLaunch": False}
        with _changing("autoscaling:CreateOrUpdateTags", group):
            self.client("autoscaling").create_or_update_tags(Tags=[tag])

    def forget(self, group: NodeGroup) -> None:
        """Remove that tag."""
        with _changing("autoscaling:DeleteTags", group):
            self.client("autoscaling").delete_tags(Tags=[_tag(group)])

    def allow_empty(self, group: NodeGroup) -> None:
        """Set the minimum size to 0."""
        self._set(group, {"minSize": 0})

    def resize(self, group: NodeGroup, size: Size) -> None:
        """Set the size."""
        self._set(group, {"minSize": size.minimum, "desiredSize": size.desired, "maxSize": size.maximum})

    def _set(self, group: NodeGroup, sizes: Mapping[str, int]) -> None:
        if group.kind is Kind.MANAGED:
            with _changing("eks:UpdateNodegroupConfig", group):
                self.client("eks").update_nodegroup_config(
                    clusterName=self.cluster, nodegroupName=group.name, scalingConfig=dict(sizes)
                )
            return
        names = {"minSize": "MinSize", "desiredSize": "DesiredCapacity", "maxSize": "MaxSize"}
        with _changing("autoscaling:UpdateAutoScalingGroup", group):
            self.client("autoscaling").update_auto_scaling_group(
                AutoScalingGroupName=group.scaling_group,
                **{names[name]: value for name, value in sizes.items()},
            )

    def rebalance(self, group: NodeGroup, *, is_wanted: bool) -> None:
        """Let a group balance its instances between zones, or not."""
        autoscaling = self.client("autoscaling")
        parameters = {"AutoScalingGroupName": group.scaling_group, "ScalingProcesses": [REBALANCE]}
        if is_wanted:
            with _changing("autoscaling:ResumeProcesses", group):
                autoscaling.resume_processes(**parameters)
        else:
            with _changing("autoscaling:SuspendProcesses", group):
                autoscaling.suspend_processes(**parameters)

    def end(self, instance: str) -> None:
        """Terminate an instance and lower its group's desired size by one. Does nothing if it has left the group."""
        call = self.client("autoscaling").terminate_instance_in_auto_scaling_group
        with _changing("autoscaling:TerminateInstanceInAutoScalingGroup", instance):
            try:
                call(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
            except ClientError as error:
                if _NO_SUCH_INSTANCE not in error_message(error):
                    raise


@contextmanager
def _changing(action: str, resource: object) -> Iterator[None]:
    """Translate the errors of a call that changes a group. Those of a change in progress are Transient."""
    with asking(action, str(resource)):
        try:
            yield
        except ClientError as error:
            if error_code(error) not in _PASSING:
                raise
            raise Transient(f"{resource}: {error_message(error)}", error_code(error)) from None


def _tag(group: NodeGroup) -> dict[str, str]:
    return {"ResourceId": group.scaling_group, "ResourceType": "auto-scaling-group", "Key": SIZE_TAG}


def _is_own(shown: Mapping[str, Any]) -> bool:
    """Return whether no other software manages an Auto Scaling group, such as EKS."""
    return OTHERS_TAGS.isdisjoint(tag["Key"] for tag in shown.get("Tags") or ())


def _has_any_tag(shown: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return any(tag["Key"] in keys for tag in shown.get("Tags") or ())


def _group(
    name: str, kind: Kind, shown: Mapping[str, Any], obstacle: str = "", *, is_busy: bool = False
) -> NodeGroup:
    tags = {tag["Key"]: str(tag.get("Value") or "") for tag in shown.get("Tags") or ()}
    suspended = {process["ProcessName"] for process in shown.get("SuspendedProcesses") or ()}
    members = {
        instance["InstanceId"]: int(instance.get("WeightedCapacity") or 1)
        for instance in shown.get("Instances") or ()
        if not str(instance.get("LifecycleState") or "").startswith(_LEAVING)
    }
    return NodeGroup(
        name,
        kind,
        str(shown["AutoScalingGroupName"]),
        Size(int(shown["MinSize"]), int(shown["DesiredCapacity"]), int(shown["MaxSize"])),
        tuple(sorted(members)),
        tags,
        REBALANCE not in suspended,
        before_of(tags, name),
        obstacle or (f"its status is {shown['Status']}" if shown.get("Status") else ""),
        is_busy,
        {type_name: weight for type_name, weight in members.items() if weight != 1},
    )
