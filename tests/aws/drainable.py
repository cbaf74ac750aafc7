"""A cluster with node groups to drain: moto's EKS and Auto Scaling, an API server, and Kubernetes' stand-ins.

moto's node groups have no Auto Scaling group, and moto's Auto Scaling accepts more than AWS does. Both are corrected
here. nodesmith is reduced to one rule: while a pod is unschedulable, it adds a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from moto.autoscaling import autoscaling_backends
from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks.exceptions import ResourceInUseException
from moto.eks.models import EKSBackend

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith_cli.connecting.inspection import Environment
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.migration.draining.command import Action, DrainOptions, run_on_groups
from nodesmith_cli.migration.draining.groups import SIZE_TAG, AwsGroups
from nodesmith_cli.migration.draining.objects import ServedObjects, instance_of
from nodesmith_cli.migration.draining.running import USUAL, Drain, Rules
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_local.apiserver import ApiServer as InMemory
from nodesmith_local.apiserver import Store
from nodesmith_local.cluster import Cluster, Pace, register_node
from tests.aws.account import REGION, client
from tests.aws.connectable import CLUSTER, Connectable, Served, connectable_on
from tests.aws.nodegroups import ACCOUNT
from tests.objects.savingsclusters import nodepool
from tests.smallworld.world import Killed

Json = dict[str, Any]
PACE = Pace(start_seconds=1, run_seconds=10, stop_seconds=1)
START = datetime(2026, 11, 2, tzinfo=UTC)
ROLE = f"arn:aws:iam::{ACCOUNT}:role/NodeRole"
ENABLED = {"k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{CLUSTER}": "owned"}
_BUILT_IN = "2026-01-01T00:00:00Z"


@dataclass(slots=True)
class Life:
    """The boundaries that a command has passed, and the one at which it dies; 0 for none."""

    fatal: int = 0
    passed: int = 0

    def cross(self, where: str) -> None:
        """Pass one boundary."""
        self.passed += 1
        if self.passed == self.fatal:
            raise Killed(where)


@dataclass(slots=True)
class Mortal:
    """A port with a boundary before and after each call. `others` replace some of its methods."""

    port: Any
    others: dict[str, Callable[..., Any]] = field(default_factory=dict)
    life: Life = field(default_factory=Life)

    def __getattr__(self, name: str) -> Any:
        method = self.others.get(name) or getattr(self.port, name)

        def called(*given: Any, **named: Any) -> Any:
            self.life.cross(f"before {name}")
            answer = method(*given, **named)
            self.life.cross(f"after {name}")
            return answer

        return called


@dataclass(slots=True)
class Drainable:
    """The cluster, its account and its clock. `meanwhile` runs each time a command waits."""

    account: Connectable
    store: Store
    cluster: Cluster
    time: datetime = START
    buys: bool = True
    updates: list[Callable[[], None]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    bought: int = 0

    def run(self, what: Action, *names: str, **how: Any) -> int:
        """Run a command without questions, with its result as JSON."""
        return run_on_groups(what, CLUSTER, names, self.around(), DrainOptions("json", is_asked=False, **how))

    def around(self) -> Environment:
        """Return the surroundings of a command."""
        credentials = Credentials("none", "none")
        return Environment(self.account.client, REGION, lambda: credentials, self.now, self.sleep)

    def drain(self, *names: str, **how: Any) -> int:
        return self.run(Action.DRAIN, *names, **how)

    def undo(self, *names: str, **how: Any) -> int:
        return self.run(Action.UNDO, *names, **how)

    def drain_run(self, rules: Rules = USUAL) -> Drain:
        """Return the surroundings of a drain without questions."""
        return Drain(
            AwsGroups(self.account.client, CLUSTER),
            ServedObjects(self.around().server(self.described()), self.now),
            embedded_catalog(REGION),
            self.now,
            self.sleep,
            lambda _: None,
            lambda _: True,
            rules,
        )

    def mortal(self, run: Drain, fatal: int) -> Drain:
        """Return the same surroundings, in which the command dies at the boundary `fatal`."""
        life = Life(fatal)
        groups, objects = Mortal(run.groups, {}, life), Mortal(run.objects, {}, life)
        return replace(run, groups=groups, objects=objects)

    def described(self) -> Any:
        """Return the cluster as EKS describes it."""
        return AwsReading(self.account.client, REGION).cluster(CLUSTER)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let time pass: AWS completes its updates, nodes join and leave, nodesmith buys, pods move."""
        self.time += timedelta(seconds=seconds)
        for update in self.updates:
            update()
        self.updates.clear()
        self.settle()
        self.meanwhile()

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        self._join_and_leave()
        self.cluster.settle()
        waiting = any(
            condition.get("reason") == "Unschedulable"
            for pod in self.store.list("pods")
            for condition in (pod.get("status") or {}).get("conditions") or ()
        )
        if self.buys and waiting:
            self.bought += 1
            self.add_node(f"new-{self.bought}", {"karpenter.sh/nodepool": "default"}, cpu="16")
            self.cluster.settle()

    def group(self, name: str) -> Any:
        """Return moto's Auto Scaling group."""
        return autoscaling_backends[DEFAULT_ACCOUNT_ID][REGION].autoscaling_groups[name]

    def size(self, name: str) -> tuple[int, int, int]:
        """Return the minimum, desired and maximum size of an Auto Scaling group."""
        group = self.group(name)
        return group.min_size, group.desired_capacity, group.max_size

    def instances(self, name: str) -> list[str]:
        return sorted(each.instance.id for each in self.group(name).instance_states)

    def remembered(self, name: str) -> str | None:
        """Return the value of the tag with the size before a drain."""
        return next((tag["Value"] for tag in self.group(name).tags if tag["Key"] == SIZE_TAG), None)

    def nodes(self, name: str) -> list[Json]:
        """Return the nodes of an Auto Scaling group."""
        members = self.instances(name)
        return [dict(each) for each in self.store.list("nodes") if instance_of(each) in members]

    def places(self) -> dict[str, str]:
        """Return the node of each pod that is not being deleted; an empty string for pods without one."""
        return {
            each["metadata"]["name"]: each["spec"].get("nodeName", "")
            for each in self.store.list("pods")
            if not each["metadata"].get("deletionTimestamp")
        }

    def add_managed(self, name: str, desired: int, minimum: int = 1, maximum: int = 5) -> None:
        """Create a managed node group; EKS calls its Auto Scaling group `eks-NAME`."""
        self.add_own(f"eks-{name}", desired, minimum, maximum, {"eks:nodegroup-name": name, **ENABLED})
        client("eks").create_nodegroup(
            clusterName=CLUSTER,
            nodegroupName=name,
            nodeRole=ROLE,
            subnets=[*self.account.network.subnets.values()],
            scalingConfig={"minSize": minimum, "desiredSize": desired, "maxSize": maximum},
        )
        self.account.eks().nodegroups[name].resources = {"autoScalingGroups": [{"name": f"eks-{name}"}]}
        self.settle()

    def add_own(
        self, name: str, desired: int, minimum: int = 0, maximum: int = 5, tags: Json | None = None
    ) -> None:
        """Create an Auto Scaling group of the cluster."""
        given = {f"kubernetes.io/cluster/{CLUSTER}": "owned", **(tags or {})}
        client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateName": "nodes", "Version": "1"},
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            VPCZoneIdentifier=",".join(self.account.network.subnets.values()),
            Tags=[{"Key": k, "Value": v, "PropagateAtLaunch": True} for k, v in given.items()],
        )
        self.settle()

    def add_node(self, name: str, labels: Json, cpu: str = "2", provider: str = "") -> None:
        """Register a node as a kubelet does."""
        room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        own = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"{REGION}a"}
        node: Json = {
            "metadata": {"name": name, "labels": {**own, **labels}},
            "spec": {"providerID": provider} if provider else {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}],
            },
        }
        register_node(self.store, node)

    def _join_and_leave(self) -> None:
        backend = autoscaling_backends[DEFAULT_ACCOUNT_ID][REGION]
        members = {
            state.instance.id: group.name
            for group in backend.autoscaling_groups.values()
            for state in group.instance_states
        }
        there = {instance_of(each): each["metadata"]["name"] for each in self.store.list("nodes")}
        for instance in sorted(set(members) - set(there)):
            self.add_node(f"node-{instance[2:8]}", {"group": members[instance]}, provider=_provider(instance))
        for instance in sorted(each for each in there if each and each not in members):
            self.store.delete("nodes", there[instance])

    def add_web(self, replicas: int, name: str = "web", cpu: str = "500m", **pod: Any) -> None:
        """Create a Deployment."""
        labels = {"app": name}
        annotations = pod.pop("annotations", {})
        container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
        template = {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": [container], **pod},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.store.create("deployments", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        self.settle()
        self.sleep(5)

    def add_budget(self, name: str, app: str = "web", **spec: Any) -> None:
        """Create a PodDisruptionBudget."""
        selector = {"selector": {"matchLabels": {"app": app}}}
        metadata = {"name": name, "namespace": "default"}
        self.store.create("poddisruptionbudgets", {"metadata": metadata, "spec": {**selector, **spec}})
        self.settle()

    def add_autoscaler(self, *arguments: str) -> None:
        """Create the Deployment of Cluster Autoscaler, without its pods."""
        labels = {"app.kubernetes.io/name": "aws-cluster-autoscaler"}
        container = {"name": "main", "image": "ca:1", "command": ["./cluster-autoscaler", *arguments]}
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }
        metadata = {"name": "cluster-autoscaler", "namespace": "kube-system", "labels": labels}
        self.account.server.create(
            "/apis/apps/v1/namespaces/kube-system/deployments", {"metadata": metadata, "spec": spec}
        )

    def set_ready(self, status: str, message: str = "", kind: str = "Ready") -> None:
        """Write the NodePool's condition, as nodesmith does."""
        condition = {
            "type": kind,
            "status": status,
            "reason": kind,
            "message": message,
            "lastTransitionTime": _BUILT_IN,
        }
        path = "/apis/karpenter.sh/v1/nodepools/default/status"
        self.account.server.patch(path, {"status": {"conditions": [condition]}})


def _provider(instance: str) -> str:
    return f"aws:///{REGION}a/{instance}"


@contextmanager
def drainable() -> Iterator[Drainable]:
    """Yield a cluster with a Ready NodePool and no group."""
    made: list[Drainable] = []
    store = Store(lambda: made[0].time if made else START, custom_resource_definitions())
    with ExitStack() as stack:
        server = stack.enter_context(InMemory(now=store.now, store=store))
        served = Served(server.url, "", "anybody", server.kubeconfig())
        account = stack.enter_context(connectable_on(served))
        cluster = Cluster(store, pace=PACE, node_grace_seconds=1e9)
        here = Drainable(account, store, cluster)
        made.append(here)
        stack.enter_context(strict_groups(here.updates.append))
        data = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large"}
        client("ec2").create_launch_template(LaunchTemplateName="nodes", LaunchTemplateData=data)
        store.create("nodepools", nodepool())
        here.set_ready("True")
        here.settle()
        yield here
        cluster.stop()


@contextmanager
def strict_groups(later: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Let EKS change a node group's Auto Scaling group, `later`, and Auto Scaling refuse what AWS refuses."""
    update, terminate = EKSBackend.update_nodegroup_config, AutoScalingBackend.terminate_instance

    def updated(backend: EKSBackend, cluster_name: str, nodegroup_name: str, **config: Any) -> Json:
        group = backend.clusters[cluster_name].nodegroups[nodegroup_name]
        if group.status != "ACTIVE":
            raise ResourceInUseException(
                clusterName=cluster_name,
                nodegroupName=nodegroup_name,
                addonName=None,
                message=f"Nodegroup cannot be updated as it is currently not in Active State: {group.status}",
            )
        reported = update(backend, cluster_name, nodegroup_name, **config)
        group.status, sizes = "UPDATING", config["scaling_config"]

        def settled() -> None:
            (linked,) = group.resources["autoScalingGroups"]
            name = linked["name"]  # type: ignore[index]
            scaled = autoscaling_backends[DEFAULT_ACCOUNT_ID][backend.region_name].autoscaling_groups[name]
            scaled.min_size = sizes.get("minSize", scaled.min_size)
            scaled.max_size = sizes.get("maxSize", scaled.max_size)
            scaled.set_desired_capacity(sizes.get("desiredSize", scaled.desired_capacity))
            group.status = "ACTIVE"

        later(settled)
        return reported

    def terminated(backend: AutoScalingBackend, instance_id: str, should_decrement: bool) -> Any:
        groups = backend.autoscaling_groups.values()
        group = next((g for g in groups if instance_id in [s.instance.id for s in g.instance_states]), None)
        if group is None:
            raise ValidationError(
                f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
            )
        if should_decrement and (group.desired_capacity or 0) <= (group.min_size or 0):
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                "replacement will violate group's min size constraint."
            )
        return terminate(backend, instance_id, should_decrement)

    with (
        patch.object(EKSBackend, "update_nodegroup_config", updated),
        patch.object(AutoScalingBackend, "terminate_instance", terminated),
    ):
        yield


def denied(action: str, operation: str) -> ClientError:
    """Return the error of a call that the caller may not make."""
    message = f"User: arn:aws:iam::{ACCOUNT}:user/me is not authorized to perform: {action}"
    return ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, operation)
