"""Reading everything that connect and doctor need to know about a cluster from AWS. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith_cli.access.awssession import asking, if_there
from nodesmith_cli.access.kubeconfigs import regions_of
from nodesmith_cli.connecting.accountreading import AccountReading
from nodesmith_cli.connecting.eksreading import EksReading, cluster_of
from nodesmith_cli.connecting.observed import Account, Cluster
from nodesmith_cli.connecting.problems import talking_roles
from nodesmith_cli.connecting.wanted import Wanted, default_node_role, readable


class AwsReading(AccountReading, EksReading):
    """Reads an account and EKS."""

    def account(self, wanted: Wanted) -> Account:
        """Return what AWS has for a cluster. Raises Rejected if the cluster does not exist, Transient."""
        caller = self.caller()
        cluster = self.cluster(wanted.cluster)
        stack = self.stack()
        parameter = self.parameter(wanted.cluster)
        watched = self.parameter(wanted.cluster, observed=True)
        known = readable(wanted.cluster, parameter if parameter is not None else watched)
        vpc = wanted.vpc if wanted.vpc is not None else (known.reached_from if known else "")
        default = default_node_role(wanted.cluster)
        named = [wanted.node_role or "", *(known.node_roles if known else ()), default]
        names = dict.fromkeys(filter(None, named))
        partition, account = caller["Arn"].split(":")[1], caller["Account"]
        roles = frozenset(name for name in talking_roles(self.region, vpc) if self.role(name) is not None)
        principals = [f"arn:{partition}:iam::{account}:role/{name}" for name in (*sorted(roles), *names)]
        return Account(
            account,
            partition,
            self.region,
            caller["Arn"],
            cluster,
            stack=stack,
            cdk_stack=self.cdk_stack(wanted.cluster),
            roles=roles,
            entries=self.entries(cluster, principals),
            association=self.association(cluster.name),
            has_agent=self.has_agent(cluster.name),
            has_spot_role=self.has_spot_role(),
            subnets=self.subnets(cluster),
            groups=self.groups(cluster),
            node_roles=self.node_roles(wanted.cluster, names),
            parameter=parameter,
            watched=watched,
            denied=tuple(dict.fromkeys(self.denied)),
        )

    def caller(self) -> Mapping[str, str]:
        """Return the identity of the caller. Raises Rejected without credentials."""
        with asking("sts:GetCallerIdentity", "*"):
            found: Mapping[str, str] = self.client("sts").get_caller_identity()
        return found

    def cluster(self, name: str) -> Cluster:
        """Describe the cluster. Raises Rejected, with the existing clusters, if it does not exist."""
        with asking("eks:DescribeCluster", f"cluster/{name}"):
            found = if_there(lambda: self.client("eks").describe_cluster(name=name))
        if found is None:
            raise Rejected(self._unknown(name))
        return cluster_of(found["cluster"])

    def _unknown(self, name: str) -> str:
        elsewhere = sorted(regions_of(name) - {self.region})
        if elsewhere:
            return (
                f"there is no cluster {name!r} in {self.region}; your kubeconfig has one of that name in "
                f"{' and '.join(elsewhere)}: use --region {elsewhere[0]}"
            )
        names = self.ask("eks:ListClusters", "*", self._cluster_names, list[str]())
        hint = did_you_mean(name, names) or (
            f"; clusters: {', '.join(names[:10])}" if names else ", which has no clusters"
        )
        return f"there is no cluster {name!r} in {self.region}{hint}"

    def _cluster_names(self) -> list[str]:
        pages = self.client("eks").get_paginator("list_clusters").paginate()
        return sorted(name for page in pages for name in page["clusters"])
