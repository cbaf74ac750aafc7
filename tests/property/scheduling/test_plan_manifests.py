"""Any set of manifests gets a plan or a reason, and a bad object never affects another one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import decide
from nodesmith_cli.planning import plan_inputs, plan_json, read_manifests
from nodesmith_formats.manifests.manifests import Document
from tests.builders import nodeclass_manifest, nodepool_manifest
from tests.property.observation.clusters import CATALOG
from tests.samples import sampled

Manifest = dict[str, Any]
Path = tuple[str | int, ...]

CONTAINER = {
    "name": "c",
    "image": "x",
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    "ports": [{"containerPort": 80, "hostPort": 80}],
}
ZONE_IN = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}
TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
SPEC = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always"}],
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [ZONE_IN]}]
            }
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
    },
    "topologySpreadConstraints": [
        {
            **TERM,
            "topologyKey": "topology.kubernetes.io/zone",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
        }
    ],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": SPEC}
SELECTED = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
JOB = {"parallelism": 2, "template": {**TEMPLATE, "spec": {**SPEC, "restartPolicy": "Never"}}}
CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "fast",
    "resources": {"requests": {"storage": "1Gi"}},
}


def thing(api_version: str, kind: str, name: str, **fields: Any) -> Manifest:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": "web"}},
        **fields,
    }


EVERYTHING: tuple[Manifest, ...] = (
    thing(
        "v1", "Pod", "pod", spec=SPEC, status={"phase": "Pending", "conditions": [{"type": "PodScheduled"}]}
    ),
    thing("apps/v1", "Deployment", "web", spec=SELECTED),
    thing("apps/v1", "ReplicaSet", "rs", spec=SELECTED),
    thing("apps/v1", "DaemonSet", "agent", spec={"selector": SELECTED["selector"], "template": TEMPLATE}),
    thing(
        "apps/v1",
        "StatefulSet",
        "db",
        spec={**SELECTED, "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": CLAIM}]},
    ),
    thing("v1", "ReplicationController", "rc", spec={"selector": {"app": "web"}, "template": TEMPLATE}),
    thing("batch/v1", "Job", "job", spec=JOB, status={"succeeded": 1, "conditions": [{"type": "Complete"}]}),
    thing("batch/v1", "CronJob", "cron", spec={"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}),
    thing(
        "v1",
        "Node",
        "n1",
        spec={"providerID": "aws:///us-east-1a/i-1", "taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={"capacity": {"cpu": "4", "memory": "8Gi", "pods": "20"}, "conditions": [{"type": "Ready"}]},
    ),
    thing(
        "karpenter.sh/v1",
        "NodeClaim",
        "claim",
        spec={
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [ZONE_IN],
        },
        status={
            "providerID": "aws:///us-east-1a/i-2",
            "allocatable": {"cpu": "4"},
            "conditions": [{"type": "Launched", "status": "True"}],
        },
    ),
    thing("v1", "PersistentVolumeClaim", "data", spec=CLAIM),
    thing("v1", "PersistentVolume", "pv", spec={"capacity": {"storage": "1Gi"}, "storageClassName": "fast"}),
    thing(
        "storage.k8s.io/v1",
        "StorageClass",
        "fast",
        provisioner="ebs.csi.aws.com",
        volumeBindingMode="WaitForFirstConsumer",
    ),
    thing(
        "storage.k8s.io/v1",
        "CSINode",
        "n1",
        spec={"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i", "allocatable": {"count": 2}}]},
    ),
    thing("scheduling.k8s.io/v1", "PriorityClass", "high", value=5, globalDefault=True),
    thing(
        "node.k8s.io/v1",
        "RuntimeClass",
        "gvisor",
        handler="x",
        overhead={"podFixed": {"cpu": "1m"}},
        scheduling={"nodeSelector": {}},
    ),
    thing("v1", "Namespace", "default"),
    thing(
        "policy/v1",
        "PodDisruptionBudget",
        "pdb",
        spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    ),
    {**nodepool_manifest("other"), "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    {
        **nodeclass_manifest(),
        "status": {
            "subnets": [{"id": "s", "zone": "us-east-1a"}],
            "amis": [{"id": "a", "requirements": [ZONE_IN]}],
            "conditions": [],
        },
    },
)
JUNK: tuple[Any, ...] = (
    None,
    "",
    "x",
    0,
    -1,
    10**30,
    1.5,
    True,
    [],
    [None],
    ["x"],
    {},
    {"x": None},
    {"x": {"y": 1}},
    "9" * 40,
)


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """Yield the path of everything inside an object, except for what makes it an object at all."""
    inside: list[tuple[str | int, Any]] = list(value.items()) if isinstance(value, dict) else []
    inside += list(enumerate(value)) if isinstance(value, list) else []
    for step, inner in inside:
        if (*here, step) not in {("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")}:
            yield (*here, step)
        yield from paths(inner, (*here, step))


PLACES = [(index, path) for index, manifest in enumerate(EVERYTHING) for path in paths(manifest)]


def broken(manifest: Manifest, path: Path, junk: Any) -> Manifest:
    changed = copy.deepcopy(manifest)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = junk
    return changed


def planned(*manifests: Manifest) -> dict[str, Any]:
    documents = [Document(manifest, "test", number) for number, manifest in enumerate(manifests)]
    made_from = plan_inputs(read_manifests((), documents), CATALOG)
    return plan_json(decide(made_from))


@settings(max_examples=sampled(15, whole=300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.sampled_from(PLACES), junk=st.sampled_from(JUNK))
def test_an_invalid_value_in_one_field_never_prevents_a_plan(place: tuple[int, Path], junk: Any) -> None:
    index, path = place
    objects = [broken(m, path, junk) if at == index else m for at, m in enumerate(EVERYTHING)]
    offer = thing("v1", "Pod", "good", spec={"containers": [{"name": "c", "image": "x"}]})

    plan = planned(nodepool_manifest(), *objects, offer)

    held = [pod for node in plan["nodes"] for pod in node["pods"]]
    held += [pod for node in plan["existing"] for pod in node["pods"]]
    reported = held + [entry["pod"] for entry in plan["unplaced"]]
    assert "default/good" in reported
    assert len(reported) == len(set(reported))
