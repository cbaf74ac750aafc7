"""Ticks: EventBridge Scheduler invokes functions periodically. The next tick makes up for a lost one."""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import names
from infra.permissions.grants import Grant, make_role

SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
"""EventBridge Scheduler replaces this in a message with the time that the schedule was due."""


class Ticker(Construct):
    """The ticks of one stack: their group, and a role that may call only `action` on `targets` (ARNs).

    The schedules are created after `after`.
    """

    def __init__(
        self, scope: Construct, name: str, action: str, targets: tuple[str, ...], after: Construct
    ) -> None:
        super().__init__(scope, "Ticker")
        self._after = after
        self._group = scheduler.CfnScheduleGroup(self, "Group", name=name)
        group_arn = names.arn("scheduler", f"schedule-group/{name}", region=Stack.of(self).region)
        own_group = {
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnEquals": {"aws:SourceArn": group_arn},
        }
        trusted = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=own_group)
        self._role = make_role(self, "Role", None, trusted, [Grant("Tick", (action,), targets)])

    def every(self, minutes: int, name: str, target_arn: str, message: str) -> None:
        """Send `message`, a JSON text, to a target every `minutes` minutes."""
        unit = "minute" if minutes == 1 else "minutes"
        schedule = scheduler.CfnSchedule(
            self,
            name,
            group_name=self._group.ref,
            schedule_expression=f"rate({minutes} {unit})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=target_arn,
                role_arn=self._role.role_arn,
                input=message,
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=0
                ),
            ),
        )
        schedule.node.add_dependency(self._after)
