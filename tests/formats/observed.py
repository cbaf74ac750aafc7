"""A small cluster as the forwarder sees it, in which something of everything that a snapshot holds is there."""

from __future__ import annotations

from typing import Any

from nodesmith.observation.observed import Observed, ReducedAttachment
from nodesmith.observation.reduction.devices import (
    reduce_claim_template,
    reduce_device_class,
    reduce_slice,
)
from nodesmith.observation.reduction.objects import (
    reduce_budget,
    reduce_buffer,
    reduce_custom,
    reduce_namespace,
    reduce_node,
    reduce_request,
)
from nodesmith.observation.reduction.pods import (
    reduce_daemonset,
    reduce_growing,
    reduce_pod,
    reduce_pod_template,
    reduce_scalable,
)
from tests import builders
from tests.objects.quotas import quota_manifest
from tests.scenarios.gangs import request_manifest
from tests.smallworld.world import pod_manifest

Manifest = dict[str, Any]
CREATED = "2026-11-21T08:00:00Z"
NODE: Manifest = {
    "metadata": {
        "name": "node-a",
        "uid": "uid-node-a",
        "creationTimestamp": CREATED,
        "deletionTimestamp": "2026-11-21T08:30:00Z",
        "labels": {"kubernetes.io/hostname": "node-a"},
    },
    "spec": {"providerID": "aws:///us-east-1a/i-1", "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
        "allocatable": {"cpu": "1930m", "memory": "7Gi", "pods": "29"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
CLAIM: Manifest = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "default-a", "uid": "uid-default-a", "generation": 1},
    "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
    "status": {"providerID": "aws:///us-east-1a/i-1", "nodeName": "node-a"},
}
DAEMONSET: Manifest = {
    "metadata": {"name": "agent", "namespace": "default", "uid": "uid-agent"},
    "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]},
        },
    },
}
TEMPLATE: Manifest = {
    "metadata": {"name": "room", "namespace": "default", "generation": 2},
    "template": DAEMONSET["spec"]["template"],
}
DEPLOYMENT: Manifest = {
    "metadata": {"name": "web", "namespace": "default", "generation": 4},
    "spec": {"replicas": 3, "template": DAEMONSET["spec"]["template"]},
}
REPLICA_SET: Manifest = {
    "metadata": {"name": "web-1", "namespace": "default", "generation": 2, "creationTimestamp": CREATED},
    "spec": {"replicas": 5, "template": DAEMONSET["spec"]["template"]},
}
NAMESPACE: Manifest = {
    "metadata": {"name": "default", "annotations": {"nodesmith.dev/proactive-scale-up": "true"}}
}
BUFFER: Manifest = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "room", "namespace": "default", "generation": 1, "creationTimestamp": CREATED},
    "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 50},
    "status": {"replicas": 2, "conditions": [{"type": "ReadyForProvisioning", "status": "True"}]},
}
BUDGET: Manifest = {
    "metadata": {"name": "web", "namespace": "default", "generation": 1},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1},
}


def _running() -> Manifest:
    pod = pod_manifest("web-running", nodeName="node-a")
    pod["status"] = {
        "phase": "Running",
        "startTime": CREATED,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
    }
    return pod


def _ending() -> Manifest:
    pod = pod_manifest("web-ending", nodeName="node-a")
    pod["metadata"] |= {"deletionTimestamp": "2026-11-21T08:31:00Z", "deletionGracePeriodSeconds": 30}
    pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return pod


def _nominated() -> Manifest:
    pod = pod_manifest("web-nominated")
    pod["status"]["nominatedNodeName"] = "node-a"
    return pod


def _claiming() -> Manifest:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return pod_manifest("web-claiming", resourceClaims=claims)


SLICE: Manifest = {
    "metadata": {"name": "node-a-gpu"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "a100"}}}],
    },
}
ASKED: Manifest = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
CLASS: Manifest = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
_PODS = (pod_manifest("web-pending"), _running(), _ending(), _nominated(), _claiming())
OBSERVED = Observed(
    pods=[reduced for pod in _PODS if (reduced := reduce_pod(pod)) is not None],
    daemonsets=[reduce_daemonset(DAEMONSET)],
    nodes=[reduce_node(NODE)],
    nodepools=[reduce_custom(builders.nodepool_manifest())],
    nodeclasses=[reduce_custom(builders.nodeclass_manifest())],
    nodeclaims=[reduce_custom(CLAIM)],
    capacitybuffers=[reduce_buffer(BUFFER)],
    deployments=[reduce_scalable(DEPLOYMENT)],
    podtemplates=[reduce_pod_template(TEMPLATE)],
    capacityquotas=[reduce_custom(quota_manifest())],
    provisioningrequests=[reduce_request(request_manifest("job", 3))],
    poddisruptionbudgets=[reduce_budget(BUDGET)],
    volumeattachments=[ReducedAttachment("pv-1", "node-a", "pv-1")],
    resourceclaimtemplates=[
        reduce_claim_template({"metadata": {"namespace": "default", "name": "gpu"}, "spec": {"spec": ASKED}})
    ],
    deviceclasses=[reduce_device_class(CLASS)],
    resourceslices=[reduce_slice(SLICE)],
    departures={"node-a": 1_763_713_000},
    karpenter_wrote=("2026-11-21T08:30:15Z", "NodeClaim"),
    namespaces=[reduce_namespace(NAMESPACE)],
    replicasets=[reduce_growing(REPLICA_SET)],
    growths={"ReplicaSet/default/web-1": int(builders.NOW.timestamp()) - 2},
    problems=["Pod/default/odd: cannot be read"],
)
