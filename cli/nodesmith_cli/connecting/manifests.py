"""The objects of a connected cluster: CRDs, RBAC, policies and the forwarder, as in `kubectl apply -k forwarder/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from nodesmith_cli.sharing.ownership import SHARED_CRDS
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.shipped import shipped

Manifest = dict[str, Any]
NAMESPACE = "nodesmith"
FORWARDER = "nodesmith-forwarder"
"""The name of the Deployment, of its service account, of its ConfigMap (before the hash) and of its repository."""
WRITER = "nodesmith-writer"
"""The name of the ClusterRole of the functions that write, and of its binding."""
PLACEHOLDER = "CLUSTER_NAME"
CRD = "CustomResourceDefinition"
ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
"""Available since Kubernetes 1.30."""
_ORDER = (
    "Namespace",
    CRD,
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    *ADMISSION,
    "NetworkPolicy",
    "ConfigMap",
    "Deployment",
)
_HASH_LETTERS = str.maketrans("013ae", "ghkmt")
"""kustomize replaces these hexadecimal digits, so that hashes do not spell words."""
_HTML = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"}


@dataclass(frozen=True, slots=True)
class Served:
    """The values of one cluster in the manifests. `image` is the forwarder's image, with a tag or digest."""

    cluster: str
    region: str
    bucket: str
    table_name: str
    reached_from: str
    image: str
    is_observed: bool = False
    """Whether nothing may be written in the cluster: then only readers are bound, and no CRD or policy is needed."""
    allocation_labels: str = ""


def manifests(served: Served, *, shared_crds: bool = True) -> list[Manifest]:
    """Return all objects in the order of application.

    Without `shared_crds`, the CRDs of NodePool and NodeClaim are omitted.
    """
    crds = [crd for crd in custom_resource_definitions() if shared_crds or name_of(crd) not in SHARED_CRDS]
    settings = _config_map(served)
    base = [_of_cluster(manifest, served, name_of(settings)) for manifest in _base()]
    if served.is_observed:
        crds, base = [], [manifest for manifest in base if not _is_of_writers(manifest)]
    return sorted([*crds, *base, settings], key=lambda each: _ORDER.index(each["kind"]))


def forwarder_settings(served: Served) -> dict[str, str]:
    """Return the settings in `forwarder.env`, with those of the cluster filled in."""
    return {
        **dict(_env_file()),
        "CLUSTER_NAME": served.cluster,
        "AWS_REGION": served.region,
        "BUCKET_NAME": served.bucket,
        "TABLE_NAME": served.table_name,
        "REACHED_FROM": served.reached_from,
        "ALLOCATION_LABELS": served.allocation_labels,
        **({"OBSERVE": "true"} if served.is_observed else {}),
    }


def hashed_name(name: str, data: Mapping[str, str]) -> str:
    """Return a ConfigMap name with a content hash, as kustomize does, so that a changed setting causes a rollout."""
    text = json.dumps({"data": data, "kind": "ConfigMap", "name": ""}, sort_keys=True, separators=(",", ":"))
    for letter, escaped in _HTML.items():  # as escaped by Go's JSON encoder, which kustomize uses
        text = text.replace(letter, escaped)
    digits = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{name}-{digits.translate(_HASH_LETTERS)}"


def _is_of_writers(manifest: Manifest) -> bool:
    return manifest["kind"] in ADMISSION or name_of(manifest) == WRITER


def _config_map(served: Served) -> Manifest:
    data = forwarder_settings(served)
    metadata = {"name": hashed_name(FORWARDER, data), "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _of_cluster(manifest: Manifest, served: Served, settings: str) -> Manifest:
    match manifest["kind"]:
        case "ClusterRoleBinding":
            for subject in manifest["subjects"]:
                subject["name"] = subject["name"].replace(PLACEHOLDER, served.cluster)
        case "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            container["image"] = served.image
            for source in container["envFrom"]:
                source["configMapRef"]["name"] = settings
    return manifest


def _base() -> tuple[Manifest, ...]:
    """Return copies to fill in: reading the files takes longer than a look at the whole cluster."""
    return deepcopy(_shipped_base())


@cache
def _shipped_base() -> tuple[Manifest, ...]:
    paths = sorted(shipped("_base", "forwarder/base").glob("*.yaml"))
    texts = [path.read_text(encoding="utf-8") for path in paths if path.name != "kustomization.yaml"]
    return tuple(manifest for text in texts for manifest in yaml.safe_load_all(text))


def _env_file() -> Iterator[tuple[str, str]]:
    text = (shipped("_forwarder", "forwarder") / "forwarder.env").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value
