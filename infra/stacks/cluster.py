"""The stack of a cluster that cdk.json names: its registration and its access in both directions. All of it is free."""

from __future__ import annotations

from aws_cdk import Environment, Stack, Tags
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra import names
from infra.access import access_entries, forwarder_identity
from infra.context.clusters import ClusterContext
from nodesmith.registration import parameter_name


class ClusterStack(Stack):
    """Makes the region's functions serve one cluster. It refers to the region's stack by name and imports nothing."""

    def __init__(self, scope: Construct, cluster: ClusterContext) -> None:
        super().__init__(
            scope,
            f"nodesmith-{cluster.region}-{cluster.name}",
            stack_name=cluster.stack_name,
            env=Environment(region=cluster.region),
            description=f"nodesmith: registers the EKS cluster {cluster.name}",
        )
        Tags.of(self).add(names.TAG, cluster.name)
        registration = cluster.registration
        access_entries(self, cluster.region, cluster.name, registration.reached_from)
        forwarder_identity(self, cluster.region, cluster.name)
        ssm.CfnParameter(
            self,
            "Registration",
            name=parameter_name(cluster.name),
            description=f"How nodesmith serves the EKS cluster {cluster.name}",
            type="String",
            tier="Standard",
            value=registration.to_json(),
        )
