"""Trials of plans: create a problem's cluster and its plan's nodes on a real control plane, then release the pods.

The order is as in production: pods that already have room are bound first. Then the bought nodes lose the unregistered
taint, and their pods are nominated. To judge placements, pods that already have room are nominated too, although the
functions leave those to kube-scheduler. Nodes are kwok's. One of the offerings requested for a planned node is drawn at
random, because EC2 may choose any. Pods have a scheduling gate until their nodes exist, so only their order is left to
chance, and it is drawn as well.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Unfit, connect
from nodesmith.adapters.kubernetes.writes import clear_nominations, nominate, pod_path
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning import Inputs, Plan, PlannedNode, decide
from nodesmith.errors import Conflict
from nodesmith.model.apimachinery.labels import HOSTNAME, UNREGISTERED, ZONE
from nodesmith.model.apimachinery.quantities import cpu_milli, format_resources
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaimobjects import labels_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import pod_requests
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_local.aws.instances.nodes import conditions
from nodesmith_local.controlplane import ControlPlane
from tests.objects.storage import volume
from tests.patience import eventually, patient
from tests.problems.drawing import Problem
from tests.problems.planning import inputs_of
from tests.problems.rarities import OVERHEAD

Manifest = dict[str, Any]
GATE = [{"name": "nodesmith.dev/all-nodes-are-there"}]
NAMESPACES = ("default", "other", "kube-system")
_PATHS = {
    "DaemonSet": ("/apis/apps/v1", "daemonsets"),
    "Pod": ("/api/v1", "pods"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Node": ("/api/v1", "nodes"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses"),
    "CSINode": ("/apis/storage.k8s.io/v1", "csinodes"),
}
"""In the order of deletion, so that no controller recreates a pod."""
_PRIORITY_CLASSES = {-5: "least", 10: "more", 1000: "most"}
"""The classes for the priorities that `tests.problems.rarities` draws, because a pod may only name a class."""
_CLASSES: Mapping[str, Sequence[Manifest]] = {
    "/apis/scheduling.k8s.io/v1/priorityclasses": [
        {"metadata": {"name": name}, "value": value} for value, name in _PRIORITY_CLASSES.items()
    ],
    "/apis/node.k8s.io/v1/runtimeclasses": [
        {"metadata": {"name": "heavy"}, "handler": "heavy", "overhead": {"podFixed": OVERHEAD}}
    ],
}
_AT_ONCE = 8
_UNGATED = {"op": "remove", "path": "/spec/schedulingGates"}
_UNREGISTERED = {"key": UNREGISTERED.key, "effect": str(UNREGISTERED.effect)}
_GLANCE_SECONDS = 0.05
_LOOKS_EVERY_SECONDS = 1.0  # lifecycle runs at least that often while nodes start and pods are bound
_FORGOTTEN_SECONDS = 3.0
_NOMINATED_SECONDS = 8.0  # NOMINATION is 20 s in production
_PATIENCE_SECONDS = 20.0  # kube-scheduler retries a pod after 1, 2, 4, 8 and 10 s
_FAKE = {"kwok.x-k8s.io/node": "fake"}
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_EBS_ZONE = "topology.ebs.csi.aws.com/zone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one plan: how many pods have a node in it, and how many of them run on that node.

    `missed` maps pods that do not run to kube-scheduler's reason. `trials` is the number of plans: two if the remaining
    pods were planned for again, three if empty nodes had to end first.
    """

    seed: int
    placed: int
    as_planned: int
    missed: Mapping[str, str] = field(default_factory=dict)
    trials: int = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem and its plan."""

    problem: Problem
    inputs: Inputs
    plan: Plan

    @classmethod
    def of(cls, problem: Problem) -> Trial:
        """Plan for a problem, without the pods that an API server would reject."""
        problem = replace(problem, manifests=tuple(m for m in problem.manifests if _is_valid(m)))
        inputs = inputs_of(problem.manifests, problem.catalog)
        return cls(problem, inputs, decide(inputs))

    def bought(self) -> dict[str, str]:
        """Return the pods that nodes are bought for, each with its node."""
        return {pod: node.claim.name for node in self.plan.nodes for pod in node.claim.nominated}

    def placed(self) -> dict[str, str]:
        """Return all pods that have a node in the plan, each with its node."""
        there = {pod: node for node, pods in (self.plan.placed or {}).items() for pod in pods}
        return {**there, **self.bought()}

    def next(self, standing: Iterable[Manifest], decision: str) -> Trial:
        """Plan for the remaining pods, with the cluster as it is now."""
        problem = self._later(standing)
        inputs = replace(inputs_of(problem.manifests, problem.catalog), decision=decision)
        return Trial(problem, inputs, decide(inputs))

    def superfluous(self, standing: Iterable[Manifest], claims: Iterable[NodeClaim]) -> set[str]:
        """Return the names of the empty bought nodes that disruption ends an hour after the last pod event."""
        problem = self._later(standing)
        there = {node["metadata"]["name"] for node in problem.of_kind("Node")}
        inputs = inputs_of(problem.manifests, problem.catalog)
        ledger = replace(inputs.ledger, claims=tuple(claim for claim in claims if claim.name in there))
        found = propose(replace(inputs, ledger=ledger, now=datetime.now(UTC) + timedelta(hours=1)))
        return {name for one in found.proposals if one.reason is Reason.EMPTY for name in one.sources}

    def _later(self, standing: Iterable[Manifest]) -> Problem:
        kept = (m for m in self.problem.manifests if m["kind"] not in _PATHS)
        return replace(self.problem, manifests=(*kept, *map(_as_seen, standing)))

    def nodes(self) -> list[Manifest]:
        """Return the planned nodes."""
        return [_node(claim) for claim in self.claims()]

    def claims(self) -> list[NodeClaim]:
        """Return the claims of the planned nodes, each with an offering drawn from those requested for it."""
        dice = random.Random(self.problem.seed)  # noqa: S311
        types = instance_types(self.inputs.catalog, NodeConfiguration(), self.inputs.settings)
        return [_claim(node, {kind.name: kind for kind in types}, dice) for node in self.plan.nodes]


class Court:
    """A control plane that tries one plan after another and is cleared between them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._server = ApiServer(connect(plane.url, plane.ca_bundle, lambda: plane.admin_token))
        self._threads = ThreadPoolExecutor(_AT_ONCE)

    def prepare(self, problem: Problem) -> None:
        """Create the namespaces that all problems share, and the classes that pods may name."""
        for manifest in problem.of_kind("Namespace"):
            try:
                self._server.create("/api/v1/namespaces", manifest)
            except Conflict:
                self._server.patch(f"/api/v1/namespaces/{manifest['metadata']['name']}", manifest)
        for path, classes in _CLASSES.items():
            for each in classes:
                self._server.create(path, each)
        self._until(lambda: all(self._server.get(_account(name)) for name in NAMESPACES), "service accounts")

    def judge(self, trial: Trial) -> Verdict:
        """Try a plan, then plans for the remaining pods, and clear the cluster.

        The second plan for remaining pods follows after disruption has ended the empty nodes, because a spread counts
        their zones, and there may be no offering in those zones for the remaining pods.
        """
        try:
            self._make(trial)
            verdict, claims = self._tried(trial), trial.claims()
            for decision in ("the next one", "the one after"):
                if not verdict.missed:
                    break
                if verdict.trials > 1:
                    self._end_empty_nodes(trial, claims)
                following = trial.next(self._standing(), decision)
                self._create(following.nodes())
                self._until(self._all_nodes_open, "nodes without the not-ready taint")
                self._tried(following)
                claims += following.claims()
                missed = self._homeless({*verdict.missed, *following.placed()})
                verdict = replace(verdict, missed=missed, trials=verdict.trials + 1)
            return verdict
        finally:
            self._clear()

    def _end_empty_nodes(self, trial: Trial, claims: Sequence[NodeClaim]) -> None:
        """End empty nodes as disruption does, as many at once as budgets allow."""
        while ended := trial.superfluous(self._standing(), claims):
            self._delete([n for n in self._list("Node") if n["metadata"]["name"] in ended])
            self._until(
                lambda: ended.isdisjoint(n["metadata"]["name"] for n in self._list("Node")),
                "the nodes' deletion",
            )

    def _standing(self) -> list[Manifest]:
        return [each for kind in _PATHS for each in self._list(kind)]

    def _homeless(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return those of the `wanted` pods that do not run, with kube-scheduler's reason."""
        pods = {_key(pod): pod for pod in self._list("Pod")}
        return {key: _why(pods.get(key)) for key in sorted(wanted) if not _node_of(pods.get(key))}

    def _make(self, trial: Trial) -> None:
        of_kind = trial.problem.of_kind
        for kind in ("StorageClass", "PersistentVolume", "PersistentVolumeClaim", "CSINode"):
            self._create(map(_made_by_hand, of_kind(kind)))
        self._create([*map(_there, of_kind("Node")), *trial.nodes()])
        running, waiting = _split(of_kind("Pod"))
        self._create(running)
        self._create(of_kind("DaemonSet"))
        self._create([{**pod, "spec": {**pod["spec"], "schedulingGates": GATE}} for pod in waiting])
        self._until(self._all_nodes_open, "nodes without the not-ready taint")
        self._until(self._all_claims_bound, "claims bound to their named volumes")

    def _tried(self, trial: Trial) -> Verdict:
        placed, bought = trial.placed(), trial.bought()
        there = {pod: node for pod, node in placed.items() if pod not in bought}
        self._bind(there, trial.problem.seed)
        self._open(trial)
        self._bind(bought, trial.problem.seed)
        pods = {_key(pod): pod for pod in self._list("Pod")}
        went = {key: _node_of(pods.get(key)) for key in placed}
        return Verdict(
            trial.problem.seed,
            len(placed),
            sum(went[key] == node for key, node in placed.items()),
            self._homeless(placed),
        )

    def _bind(self, wanted: Mapping[str, str], seed: int) -> None:
        self._tell(nominate, wanted)
        self._release(wanted, seed)
        self._settle(wanted)

    def _release(self, pods: Collection[str], seed: int) -> None:
        """Remove the pods' scheduling gates in an order that is drawn."""
        drawn = random.Random(seed).sample(sorted(pods), len(pods))  # noqa: S311
        for pod in drawn:
            with suppress(Unfit):  # it has already been released
                self._server.patch_if(pod_path(pod), [_UNGATED], read_seconds=10)

    def _open(self, trial: Trial) -> None:
        for node in trial.nodes():
            taints = [t for t in node["spec"]["taints"] if t != _UNREGISTERED]
            self._server.patch(_object_path(node), {"spec": {"taints": taints}})

    def _settle(self, wanted: Mapping[str, str]) -> None:
        """Wait until all pods are bound or time is up. Renew and finally clear nominations, as lifecycle does.

        kube-scheduler forgets a pod whose affinity has a namespaceSelector when the pod it waits for is bound, because
        its queueing hint ignores namespaces. It retries all pods after five minutes; here a patch makes it retry after
        three seconds.
        """
        started = looked = time.monotonic()
        forgotten = False
        while True:
            bound = {_key(pod) for pod in self._list("Pod") if pod["spec"].get("nodeName")}
            waiting = sorted(wanted.keys() - bound)
            if not waiting or time.monotonic() - started > patient(_PATIENCE_SECONDS):
                return
            self._provision()
            if time.monotonic() - looked > _LOOKS_EVERY_SECONDS:
                looked = time.monotonic()
                over = looked - started > patient(_NOMINATED_SECONDS)
                self._tell(clear_nominations if over else nominate, {key: wanted[key] for key in waiting})
            if not forgotten and time.monotonic() - started > _FORGOTTEN_SECONDS:
                forgotten = True
                for key in waiting:
                    self._server.patch(
                        pod_path(key), {"metadata": {"labels": {"look-again": f"{looked:.0f}"}}}
                    )
            time.sleep(_GLANCE_SECONDS)

    def _tell(
        self, write: Callable[[ApiServer, str, Sequence[str]], None], wanted: Mapping[str, str]
    ) -> None:
        for node in sorted(set(wanted.values())):
            write(self._server, node, sorted(key for key, where in wanted.items() if where == node))

    def _all_nodes_open(self) -> bool:
        taints = [t["key"] for node in self._list("Node") for t in node["spec"].get("taints") or ()]
        return "node.kubernetes.io/not-ready" not in taints

    def _all_claims_bound(self) -> bool:
        named = [c for c in self._list("PersistentVolumeClaim") if "volumeName" in c["spec"]]
        return all(claim.get("status", {}).get("phase") == "Bound" for claim in named)

    def _provision(self) -> None:
        """Create the volumes of claims for which a node has been chosen, as the EBS CSI driver does."""
        for claim in self._list("PersistentVolumeClaim"):
            node = claim["metadata"].get("annotations", {}).get(_SELECTED_NODE)
            if node and not claim["spec"].get("volumeName"):
                try:
                    made = self._volume(claim, node)
                    self._server.create(_path(made), made)
                except Conflict:
                    continue  # it is being bound

    def _volume(self, claim: Manifest, node: str) -> Manifest:
        there = self._server.get(_object_path({"kind": "Node", "metadata": {"name": node}}))
        assert there is not None
        metadata = claim["metadata"]
        manifest = volume(
            f"pvc-{metadata['uid']}",
            there["metadata"]["labels"][ZONE],
            storage=claim["spec"]["resources"]["requests"]["storage"],
            storageClassName=claim["spec"]["storageClassName"],
            claimRef={
                "kind": "PersistentVolumeClaim",
                **{k: metadata[k] for k in ("namespace", "name", "uid")},
            },
        )
        del manifest["status"]
        return {**manifest, "apiVersion": "v1", "kind": "PersistentVolume"}

    def _clear(self) -> None:
        left = ["Pod", *(kind for kind in _PATHS if self._delete(self._list(kind)))]
        self._until(lambda: not any(self._list(kind) for kind in left), "an empty cluster")

    def _create(self, manifests: Iterable[Manifest]) -> None:
        list(self._threads.map(lambda manifest: self._server.create(_path(manifest), manifest), manifests))

    def _list(self, kind: str) -> list[Manifest]:
        pages = self._server.pages("/".join(_PATHS[kind]))
        return [{**item, "kind": kind} for page in pages for item in page["items"]]

    def _delete(self, manifests: Sequence[Manifest]) -> bool:
        """Delete objects, and return whether there were any."""

        def one(manifest: Manifest) -> None:
            path = _object_path(manifest)
            if manifest["metadata"].get("finalizers"):
                self._server.patch(path, {"metadata": {"finalizers": None}})
            self._server.delete(f"{path}?gracePeriodSeconds=0")

        list(self._threads.map(one, manifests))
        return bool(manifests)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        eventually(holds, what, _PATIENCE_SECONDS)


def _claim(planned: PlannedNode, types: Mapping[str, InstanceType], dice: random.Random) -> NodeClaim:
    chosen, now = dice.choice(planned.request.overrides), datetime.now(UTC)
    kind, name = types[chosen.instance_type], planned.claim.name
    sold = chosen.zone, planned.request.capacity_type
    instance = Instance(f"i-{name}", name, kind.name, *sold, "ami-1", "running", now, "subnet-1")
    return replace(
        launched_claim(planned.claim, instance, kind, now), phase=Phase.INITIALIZED, initialized_at=now
    )


def _node(claim: NodeClaim) -> Manifest:
    name, offered = claim.name, format_resources(claim.allocatable)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels_of(claim), HOSTNAME: name, _EBS_ZONE: claim.zone, **_FAKE},
        },
        "spec": {
            "providerID": claim.provider_id,
            "taints": [
                {"key": t.key, "effect": str(t.effect), **({"value": t.value} if t.value else {})}
                for t in (*claim.taints, UNREGISTERED)
            ],
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": conditions(True, datetime.now(UTC)),
        },
    }


def _made_by_hand(manifest: Manifest) -> Manifest:
    """Drop what the volume controller writes, and retain volumes so that nothing deletes them."""
    made = {key: value for key, value in manifest.items() if key != "status"}
    made["metadata"] = {key: value for key, value in manifest["metadata"].items() if key != "annotations"}
    if manifest["kind"] == "PersistentVolume":
        made["spec"] = {**manifest["spec"], "persistentVolumeReclaimPolicy": "Retain"}
    return made


def _there(node: Manifest) -> Manifest:
    """Return a problem's own node as kwok simulates it."""
    metadata, labels = node["metadata"], node["metadata"]["labels"]
    status = {**node["status"], "conditions": conditions(True, datetime.now(UTC))}
    labels = {**labels, _EBS_ZONE: labels[ZONE], **_FAKE}
    return {**node, "metadata": {**metadata, "labels": labels}, "status": status}


def _as_seen(manifest: Manifest) -> Manifest:
    """Return a live object as nodesmith reads it: without nominations, and with its classes resolved."""
    group = _PATHS[manifest["kind"]][0].removeprefix("/apis/").removeprefix("/api/")
    seen = {**manifest, "apiVersion": group}
    if manifest["kind"] == "Pod":
        classes = {"priorityClassName", "runtimeClassName"}
        seen["spec"] = {key: value for key, value in manifest["spec"].items() if key not in classes}
        seen["status"] = {k: v for k, v in manifest["status"].items() if k != "nominatedNodeName"}
    return seen


def _is_valid(manifest: Manifest) -> bool:
    """Return whether the API server accepts a pod: its own cpu request must cover those of its containers."""
    spec = manifest.get("spec", {})
    if manifest["kind"] != "Pod" or "resources" not in spec:
        return True
    own = {part: spec[part] for part in ("containers", "initContainers") if part in spec}
    return pod_requests(own).cpu_milli <= cpu_milli(spec["resources"]["requests"]["cpu"])


def _split(pods: Iterable[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
    """Split pods into those that run already and those that wait."""
    split: tuple[list[Manifest], list[Manifest]] = [], []
    for pod in pods:
        split["nodeName" not in pod["spec"]].append({**pod, "spec": _admitted(pod["spec"])})
    return split


def _admitted(spec: Manifest) -> Manifest:
    """Return a pod's spec as the API server accepts it: with names of classes, and with limits."""
    given = {key: value for key, value in spec.items() if key not in {"priority", "overhead"}}
    given["containers"] = [_limited(container) for container in spec["containers"]]
    if "priority" in spec:
        given["priorityClassName"] = _PRIORITY_CLASSES[spec["priority"]]
    if "overhead" in spec:
        given["runtimeClassName"] = "heavy"
    return given


def _limited(container: Manifest) -> Manifest:
    """Return a container with limits, which the API server requires for extended resources."""
    requests = container["resources"]["requests"]
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    return {**container, "resources": {"requests": requests, "limits": limits}}


def _node_of(pod: Manifest | None) -> str:
    return str(pod["spec"].get("nodeName") or "") if pod else ""


def _why(pod: Manifest | None) -> str:
    if pod is None:
        return "preempted"
    conditions_ = pod.get("status", {}).get("conditions") or ()
    return next((str(c.get("message")) for c in conditions_ if c["type"] == "PodScheduled"), "never tried")


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _path(manifest: Manifest) -> str:
    group, plural = _PATHS[manifest["kind"]]
    namespace = manifest["metadata"].get("namespace")
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"


def _object_path(manifest: Manifest) -> str:
    return f"{_path(manifest)}/{manifest['metadata']['name']}"


def _account(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
