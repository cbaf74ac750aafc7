"""The stack of a region: everything that costs money, once for all clusters of the account there."""

from __future__ import annotations

import json

from aws_cdk import CfnOutput, Environment, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import alarms, names
from infra.access import forwarder_role
from infra.concerns import (
    CLUSTER_CONCERNS,
    Concern,
)
from infra.dashboard import dashboard
from infra.functions import Code, FunctionSpec, function, platform
from infra.permissions import Scope
from infra.queues import feed, queues, refuse_plain_http
from infra.regioncontext import RegionContext
from infra.sessions import poll_grant, wake_grant
from infra.shared import catalog, dispatch, routing
from infra.storage import make_bucket, make_table
from infra.ticks import SCHEDULED_TIME, Ticker
from nodesmith import __version__
from nodesmith.settings import REGION_TICK_MINUTES

TICK = {"why": "tick"}


class RegionStack(Stack):
    """Serves all clusters of one region. Table and bucket outlive it."""

    def __init__(self, scope: Construct, region: RegionContext, code: Code) -> None:
        super().__init__(
            scope,
            f"nodesmith-{region.name}",
            env=Environment(region=region.name),
            description="nodesmith: serves the clusters of this region",
        )
        Tags.of(self).add(names.TAG, "shared")
        self._region = region
        self._may = Scope(
            region.name, region.node_roles, region.kms_key_arns, region.ssm_parameters, tuple(region.vpcs)
        )
        self._platform = platform(self, region.name, code, tracing=region.tracing, metrics=region.dashboard)
        self._queues: list[sqs.Queue] = []
        for concern in CLUSTER_CONCERNS:
            for vpc in ("", *region.vpcs) if concern.talks else ("",):
                self._serve(concern, vpc)
        ticked = self._shared()
        alarms.watch_health(self, region.alarm_topic_arn)
        if region.dashboard:
            dashboard(self, region.name, region.vpcs)
        forwarder = forwarder_role(self, self._may)
        self._tick(ticked)
        self._output(forwarder)

    def _serve(self, concern: Concern, vpc: str) -> None:
        """Make the concern's function, its queues, and what watches both; in a VPC where its name is given."""
        name = names.function_name(concern.name, vpc)
        room = Construct(self, name.removeprefix("nodesmith-"))
        made_queues = queues(room, concern.name, concern.timeout_seconds, vpc, try_again=concern.tried_again)
        kept = self._region.interruption_concurrency if concern.name == "interruption" else None
        spec = FunctionSpec(
            concern=concern.name,
            timeout_seconds=concern.timeout_seconds,
            memory_mib=concern.memory_mib,
            grants=(
                poll_grant(self._region.name, made_queues.names),
                wake_grant(self._region.name, self._may.vpcs, *concern.wakes),
            ),
            session_grants=tuple(concern.grants(self._may)),
            layers=concern.layers,
            vpc_name=vpc,
            vpc=self._region.vpcs.get(vpc),
            reserved_concurrency=kept,
        )
        feed(function(room, spec, self._platform), made_queues, concern.batch_size, concern.window_seconds)
        self._queues += made_queues.every

    def _shared(self) -> dict[str, tuple[int, lambda_.Function]]:
        """Make the functions of no cluster; give them by concern, with the minutes between their ticks."""
        rooms = {name: Construct(self, name) for name in ("catalog", "dispatch", "routing")}
        may, shared = self._may, self._platform
        kept = self._region.interruption_concurrency
        routed, made_queues = routing(rooms["routing"], may, shared, kept)
        self._queues += [each for each in made_queues.every if each is not made_queues.live]
        refuse_plain_http(self, self._queues)
        listed = catalog(rooms["catalog"], may, shared, isolated=self._region.isolated)
        made = {
            "catalog": listed,
            "dispatch": dispatch(rooms["dispatch"], may, shared),
            "routing": routed,
        }
        return {str(c): (minutes, made[c]) for c, minutes in REGION_TICK_MINUTES.items()}

    def _tick(self, ticked: dict[str, tuple[int, lambda_.Function]]) -> None:
        """Make bucket and table once all else is there but the ticks, so that a first deployment can be undone.

        CloudFormation deletes what it has made when it rolls that back. It could not delete a table that is protected
        from deletion, nor a bucket into which a tick has had the catalogue written.
        """
        others = [child for child in self.node.children if isinstance(child, Construct)]
        bucket, table = make_bucket(self, self._region.name), make_table(self)
        table.node.add_dependency(*others, bucket)
        arns = tuple(made.function_arn for _, made in ticked.values())
        ticker = Ticker(self, "nodesmith-ticks", "lambda:InvokeFunction", arns, after=table)
        for concern, (minutes, made) in ticked.items():
            message = {**TICK, "at": SCHEDULED_TIME} if concern == "dispatch" else TICK
            ticker.every(minutes, concern, made.function_arn, json.dumps(message, separators=(",", ":")))

    def _output(self, forwarder: iam.Role) -> None:
        """Say what forwarders' configurations need, and which version this is."""
        told = {
            "BucketName": names.bucket_name(self._region.name),
            "QueuesUrl": names.queues_url(self._region.name),
            "ForwarderRoleArn": forwarder.role_arn,
            "Version": __version__,
        }
        for name, value in told.items():
            CfnOutput(self, name, value=value)
