"""The cluster stack: for each concern a queue, a function, a tick and alarms; and the two ways into the cluster."""

from __future__ import annotations

from functools import partial

from aws_cdk import CfnOutput, Environment, Stack, Tags
from constructs import Construct

from infra import names
from infra.access import access_entry, forwarder_access
from infra.alarms import (
    own_metric,
    watch_forwarder,
    watch_function,
    watch_interruptions,
    watch_queue,
    watch_registrations,
    watch_waiting,
)
from infra.concerns import CLUSTER_CONCERNS, Concern
from infra.context import ClusterContext
from infra.dashboard import dashboard
from infra.functions import Code, FunctionSpec, function, layer
from infra.launching import made_by_us
from infra.permissions import Scope
from infra.queues import feed, queues
from infra.ticks import Ticker
from nodesmith.settings import WOKEN

LAYERS = ("core", "vendor", "kubernetes", "packing")


class ClusterStack(Stack):
    """Everything that serves one cluster. It shares nothing with another cluster's stack but names of the account's."""

    def __init__(self, scope: Construct, cluster: ClusterContext, code: Code) -> None:
        super().__init__(
            scope,
            f"nodesmith-{cluster.region}-{cluster.name}",
            env=Environment(region=cluster.region),
            description=f"nodesmith: serves the EKS cluster {cluster.name}",
        )
        Tags.of(self).add(names.TAG, cluster.name)
        self._cluster, self._code = cluster, code
        self._scope = Scope(
            cluster.name,
            cluster.region,
            cluster.vpc_id,
            cluster.node_roles,
            cluster.kms_key_arns,
            cluster.ssm_parameters,
        )
        self._layers = {name: layer(self, code, name) for name in LAYERS}
        self._rooms = {
            concern.name: Construct(self, concern.name.capitalize()) for concern in CLUSTER_CONCERNS
        }
        self._queues = {
            concern.name: queues(
                self._rooms[concern.name],
                partial(names.physical_name, cluster.name),
                concern.name,
                concern.timeout_seconds,
                try_again=concern.tried_again,
            )
            for concern in CLUSTER_CONCERNS
        }
        for concern in CLUSTER_CONCERNS:
            self._serve(concern)
        self._tick()
        watch_forwarder(self, cluster.name, cluster.alarm_topic_arn)
        watch_registrations(self, cluster.name, cluster.alarm_topic_arn)
        watch_interruptions(self, cluster.name, cluster.alarm_topic_arn)
        dashboard(self, cluster.region, cluster.name, list(self._queues))
        self._output(forwarder_access(self, self._scope).role_arn)

    def _serve(self, concern: Concern) -> None:
        """Make the concern's function, wake it by its queue, watch both, and let it into the cluster where it must."""
        room, pair, cluster = self._rooms[concern.name], self._queues[concern.name], self._cluster
        talks = bool(concern.kubernetes_group)
        name = names.physical_name(cluster.name, concern.name)
        spec = FunctionSpec(
            name=name,
            concern=concern.name,
            timeout_seconds=concern.timeout_seconds,
            memory_mib=concern.memory_mib,
            environment=self._environment(),
            grants=tuple(concern.grants(self._scope)),
            vpc=cluster.vpc if talks else None,
            own_interfaces=made_by_us(cluster.name) if concern.deletes_interfaces else {},
            reserved_concurrency=cluster.interruption_concurrency if concern.name == "interruption" else None,
        )
        shared = [self._layers[kind] for kind in concern.layers]
        made, role = function(room, spec, self._code, shared)
        feed(made, pair.live, concern.batch_size, concern.window_seconds)
        if pair.again is not None:
            feed(made, pair.again, concern.batch_size, concern.window_seconds)
            again = names.physical_name(cluster.name, f"{concern.name}-again")
            watch_waiting(room, again, cluster.alarm_topic_arn)
        if talks:
            access_entry(room, cluster.name, role, concern.kubernetes_group)
        rejected = own_metric("Rejected", cluster.name, concern.name)
        watch_function(room, name, rejected, concern.tick_minutes, cluster.alarm_topic_arn)
        dead = names.physical_name(cluster.name, f"{concern.name}-dead")
        watch_queue(room, name, dead, cluster.alarm_topic_arn)

    def _environment(self) -> dict[str, str]:
        """Give what `nodesmith.settings` reads. AWS_REGION comes from Lambda."""
        urls = {f"{name.upper()}_QUEUE_URL": self._queues[name].live.queue_url for name in WOKEN}
        return {
            "CLUSTER_NAME": self._cluster.name,
            "TABLE_NAME": names.TABLE_NAME,
            "BUCKET_NAME": names.bucket_name(self._cluster.region),
            "DEFAULT_NODE_ROLE": self._cluster.node_roles[0],
            **urls,
            **self._cluster.settings,
        }

    def _tick(self) -> None:
        """Make every concern look from time to time, whatever was lost."""
        arns = {name: pair.live.queue_arn for name, pair in self._queues.items()}
        ticker = Ticker(
            self, names.physical_name(self._cluster.name, "ticks"), "sqs:SendMessage", tuple(arns.values())
        )
        for concern in CLUSTER_CONCERNS:
            message = {"cluster": self._cluster.name, "why": "tick"}
            ticker.every(concern.tick_minutes, concern.name, arns[concern.name], message)

    def _output(self, forwarder_role_arn: str) -> None:
        """Say what the forwarder's configuration needs, and what people look for."""
        CfnOutput(self, "BucketName", value=names.bucket_name(self._cluster.region))
        for name in WOKEN:
            CfnOutput(self, f"{name.capitalize()}QueueUrl", value=self._queues[name].live.queue_url)
        CfnOutput(self, "ForwarderRoleArn", value=forwarder_role_arn)
