"""The stack of a region: everything that costs money, once for all clusters of the account in that region."""

from __future__ import annotations

import json

from aws_cdk import CfnOutput, Environment, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra import names
from infra.access import forwarder_role
from infra.allocationtables import allocation_tables
from infra.context.regions import RegionContext
from infra.functions.concerns import (
    CLUSTER_CONCERNS,
    Concern,
)
from infra.functions.function import Code, FunctionSpec, function, platform
from infra.functions.queues import feed, queues
from infra.functions.shared import catalog, dispatch, routing
from infra.functions.ticks import SCHEDULED_TIME, Ticker
from infra.functions.trial import Serving
from infra.monitoring import dashboard, watch_health
from infra.permissions.clusters import Scope
from infra.permissions.sessions import wake_grant
from infra.storage import make_bucket, make_table
from nodesmith import __version__
from nodesmith.registration import CANARY_PARAMETER, LIMIT_PARAMETERS, Trial
from nodesmith.settings import COMMITMENTS, COMMITMENTS_MINUTES, REGION_TICK_MINUTES, SCHEDULED
from nodesmith.settings import Concern as Scheduled

TICK = {"reason": "tick"}


class RegionStack(Stack):
    """Serves all clusters of one region. The table and the bucket outlive it.

    With a `trial`, the new code serves only some clusters; the versions that serve today keep serving the others.
    """

    def __init__(
        self, scope: Construct, region: RegionContext, code: Code, trial: Serving | None = None
    ) -> None:
        super().__init__(
            scope,
            f"nodesmith-{region.name}",
            env=Environment(region=region.name),
            description="nodesmith: serves the clusters of this region",
            suppress_template_indentation=True,  # it would be half of the megabyte that a template may have
        )
        Tags.of(self).add(names.TAG, "shared")
        self._region = region
        self._grant_scope = Scope(
            region.name,
            region.node_roles,
            region.kms_key_arns,
            region.ssm_parameters,
            tuple(region.vpcs),
            bool(region.commitments),
            region.payer_role_arn,
            region.notifications,
        )
        self._platform = platform(self, region, code, trial)
        if trial is not None:
            ssm.CfnParameter(
                self,
                "Canary",
                name=CANARY_PARAMETER,
                description="The clusters that the release on trial serves",
                type="String",
                tier="Standard",
                value=Trial(trial.clusters, self._platform.release).to_json(),
            )
        for concern in CLUSTER_CONCERNS:
            for vpc in ("", *region.vpcs) if concern.calls_api_server else ("",):
                self._add_function(concern, vpc)
        self._shared()
        self._limit()
        watch_health(self, region.alarm_topic_arn)
        if region.dashboard:
            dashboard(self, region.name, region.vpcs)
        if region.allocation_tables:
            allocation_tables(self, region.name)
        forwarder = forwarder_role(self, self._grant_scope)
        self._add_ticks()
        self._add_outputs(forwarder)

    def _add_function(self, concern: Concern, vpc: str) -> None:
        """Make the concern's function, in the VPC named `vpc` if that is not empty."""
        name = names.function_name(concern.name, vpc)
        reserved = self._region.interruption_concurrency if concern.name == "interruption" else None
        spec = FunctionSpec(
            concern=concern.name,
            timeout_seconds=concern.timeout_seconds,
            memory_mib=concern.memory_mib,
            grants=(
                wake_grant(
                    self._region.name, self._grant_scope.vpcs, *concern.wakes, itself=(concern.name, vpc)
                ),
            ),
            delays=True,
            session_grants=tuple(concern.grants(self._grant_scope)),
            registrations=concern.registrations,
            environment=concern.environment,
            layers=concern.layers,
            vpc_name=vpc,
            vpc=self._region.vpcs.get(vpc),
            reserved_concurrency=reserved,
        )
        function(Construct(self, name.removeprefix("nodesmith-")), spec, self._platform)

    def _shared(self) -> None:
        """Make the functions that belong to no cluster, and the queue that invokes dispatch."""
        scopes = {name: Construct(self, name) for name in ("catalog", "dispatch", "routing")}
        grant_scope, shared = self._grant_scope, self._platform
        routing(scopes["routing"], grant_scope, shared, self._region.interruption_concurrency)
        region = self._region
        catalog(
            scopes["catalog"], grant_scope, shared, isolated=region.isolated, commitments=region.commitments
        )
        dispatching = dispatch(scopes["dispatch"], grant_scope, shared)
        feed(scopes["dispatch"], grant_scope.region, dispatching, queues(self))

    def _limit(self) -> None:
        """Make a parameter for each SpendingLimit."""
        for name, value in self._region.spending_limits.items():
            ssm.CfnParameter(
                self,
                f"SpendingLimit{name}",
                name=f"{LIMIT_PARAMETERS}/{name}",
                description=f"The SpendingLimit {name}",
                type="String",
                tier="Standard",
                value=value,
            )

    def _add_ticks(self) -> None:
        """Make the bucket and the table last, and the ticks after them, so that a first deployment can be rolled back.

        A rollback deletes what CloudFormation has made. It cannot delete a table with deletion protection, or a bucket
        into which the catalogue has already been written after a tick.
        """
        resources = [child for child in self.node.children if isinstance(child, Construct)]
        bucket, table = make_bucket(self, self._region.name), make_table(self)
        table.node.add_dependency(*resources, bucket)
        arns = {concern: names.function_arn(self._region.name, concern) for concern in SCHEDULED}
        ticker = Ticker(self, "nodesmith-ticks", "lambda:InvokeFunction", tuple(arns.values()), after=table)
        for concern in SCHEDULED:
            message = {**TICK, "at": SCHEDULED_TIME} if concern == "dispatch" else TICK
            ticker.every(
                REGION_TICK_MINUTES[concern],
                concern,
                arns[concern],
                json.dumps(message, separators=(",", ":")),
            )
        if self._region.commitments:
            payload = json.dumps({"reason": COMMITMENTS}, separators=(",", ":"))
            ticker.every(COMMITMENTS_MINUTES, COMMITMENTS, arns[Scheduled.CATALOG], payload)

    def _add_outputs(self, forwarder: iam.Role) -> None:
        """Output what the forwarders' configuration needs, and the deployed version and release."""
        outputs = {
            "BucketName": names.bucket_name(self._region.name),
            "TableName": names.TABLE_NAME,
            "ForwarderRoleArn": forwarder.role_arn,
            "Version": __version__,
            "Release": self._platform.release,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
