"""Many nodes and pods that are as large as real ones, for a watcher to read."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import urllib3

from nodesmith_local.controlplane import ControlPlane, find_binaries
from tests.e2e.incluster import site
from tests.e2e.incluster.site import kwok_node
from tests.objects import manifests
from tests.objects.manifests import many_kinds
from tests.patience import eventually

Manifest = Mapping[str, Any]
_AT_ONCE = 8
_NODES, _PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_IMAGES = 40  # a kubelet reports up to 50
_VARIABLES = 25
_CHURNED_FOR_SECONDS = 5.0
_MADE_WITHIN_SECONDS = 180.0


def kept_large_cluster(nodes: int, pods: int, kinds: int, folder: Path) -> Path:
    """Return etcd's data of a control plane of this size, once its pods run.

    It takes more than a minute to create, so it is kept in `folder` as long as its sources are the same.
    """
    binaries = find_binaries()
    kept = folder / _identity(binaries, nodes, pods, kinds)
    if not kept.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        draft = folder / "draft"
        with ControlPlane(binaries, folder / "plane", data=draft) as plane:
            cluster = LargeCluster(plane)
            cluster.make(nodes, pods, kinds)
            eventually(cluster.settled, "all pods run", _MADE_WITHIN_SECONDS)
            assert cluster.size() == pods, "some were evicted from nodes whose leases had lapsed"
        draft.rename(kept)
    return kept


def _identity(binaries: Path, nodes: int, pods: int, kinds: int) -> str:
    """Return the cluster's name, from its size and a hash of the sources and programs that create it."""
    sources = [Path(module) for module in (__file__, site.__file__, manifests.__file__)]
    program = (binaries / "kube-apiserver").stat()
    digest = hashlib.sha256(f"{program.st_size} {program.st_mtime_ns}".encode())
    for source in sources:
        digest.update(source.read_bytes())
    return f"{nodes}-nodes-{pods}-pods-{kinds}-kinds-{digest.hexdigest()[:16]}"


class LargeCluster:
    """Nodes and pods of one control plane. Uses plain HTTP so that it is less busy than the measured process."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url = plane.url
        self._http = urllib3.PoolManager(
            maxsize=_AT_ONCE,
            ca_cert_data=base64.b64decode(plane.ca_bundle).decode(),
            headers={"Authorization": f"Bearer {plane.admin_token}", "Content-Type": "application/json"},
        )

    def make(self, nodes: int, pods: int, kinds: int) -> None:
        """Create nodes, and pods of `kinds` kinds that are already bound to them; kwok sets the pods running."""
        made = [_node(number) for number in range(nodes)]
        names = [node["metadata"]["name"] for node in made]
        templates = _templates(kinds)
        self._create(_NODES, made)
        self._create(_PODS, (_pod(f"p-{n:05}", templates[n % kinds], names[n % nodes]) for n in range(pods)))

    def settled(self) -> bool:
        """Return whether no pod is pending any more."""
        asked = f"{_PODS}?fieldSelector=status.phase%3DPending&limit=1"
        return not json.loads(self._ask("GET", asked))["items"]

    def size(self) -> int:
        """Return the number of pods."""
        return len(json.loads(self._ask("GET", _PODS, accept=_METADATA))["items"])

    def churn(self, per_second: int, seconds: float) -> int:
        """Create `per_second` pods a second for kube-scheduler, delete each after 5 s, and return their number."""
        templates = _templates(per_second)
        alive: deque[tuple[float, str]] = deque()
        calls: list[Future[bytes]] = []
        began, made = time.monotonic(), 0
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            while (past := time.monotonic() - began) < seconds:
                while made < past * per_second:
                    name = f"run-{made:05}"
                    pod = _pod(name, templates[made % per_second])
                    calls.append(workers.submit(self._ask, "POST", _PODS, pod))
                    alive.append((past + _CHURNED_FOR_SECONDS, name))
                    made += 1
                while alive and alive[0][0] <= past:
                    path = f"{_PODS}/{alive.popleft()[1]}"
                    calls.append(workers.submit(self._ask, "DELETE", path))
                time.sleep(0.02)
        for call in calls:
            call.result()
        return made

    def _create(self, path: str, manifests: Iterable[Manifest]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            list(workers.map(lambda manifest: self._ask("POST", path, manifest), manifests))

    def _ask(
        self, method: str, path: str, manifest: Manifest | None = None, accept: str = "application/json"
    ) -> bytes:
        body = manifest and json.dumps(manifest)
        headers = {**self._http.headers, "Accept": accept}
        answer = self._http.request(method, self._url + path, body=body, headers=headers)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.data!r}"
        return answer.data


def _node(number: int) -> Manifest:
    """Return a node of 16 cores with the labels of EKS and the images that a kubelet has pulled."""
    made = kwok_node(f"ip-10-0-{number // 250}-{number % 250}.ec2.internal", cpu="16", memory="64Gi")
    zone = f"us-east-1{'abc'[number % 3]}"
    made["metadata"]["labels"] |= {
        "node.kubernetes.io/instance-type": "m7i.4xlarge",
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": "us-east-1",
        "karpenter.sh/capacity-type": "on-demand",
        **{f"karpenter.k8s.aws/instance-fact-{fact}": f"{fact * 1_000}" for fact in range(16)},
    }
    made["spec"] = {"providerID": f"aws:///{zone}/i-{number:017x}"}
    made["status"]["images"] = [
        {
            "names": [
                f"602401143452.dkr.ecr.us-east-1.amazonaws.com/eks/part-{image}@sha256:{image:064x}",
                f"602401143452.dkr.ecr.us-east-1.amazonaws.com/eks/part-{image}:v1.36.{image}-eksbuild.1",
            ],
            "sizeBytes": 10_000_000 + image,
        }
        for image in range(_IMAGES)
    ]
    return made


def _templates(kinds: int) -> list[Manifest]:
    """Return pod templates of `kinds` kinds, with settings, probes and volumes that no decision reads."""
    return [_bulky(deployment["spec"]["template"]) for deployment in many_kinds(kinds, kinds)]


def _bulky(template: Manifest) -> Manifest:
    values = ((f"SETTING_{n}", f"https://service-{n}.example.org/v1") for n in range(_VARIABLES))
    container = {
        **template["spec"]["containers"][0],
        "env": [{"name": name, "value": value} for name, value in values],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}},
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings"}],
    }
    volumes = [{"name": "settings", "configMap": {"name": "settings"}}]
    metadata = {**template["metadata"], "annotations": {"prometheus.io/scrape": "true", "checksum": "0" * 64}}
    return {"metadata": metadata, "spec": {**template["spec"], "containers": [container], "volumes": volumes}}


def _pod(name: str, template: Manifest, node: str = "") -> Manifest:
    """Return a pod with a unique label, like those of Jobs and StatefulSets."""
    labels = {**template["metadata"]["labels"], "statefulset.kubernetes.io/pod-name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": name, "labels": labels},
        "spec": {**template["spec"], **({"nodeName": node} if node else {})},
    }
