"""A cluster of Kubernetes' own parts on this machine, with nodesmith's CRDs and permissions."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

import yaml

from nodesmith.errors import Rejected
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_formats.kubernetes.objects import Object, is_true
from nodesmith_formats.shipped import shipped
from nodesmith_local.apiserver.storage.store import Write
from nodesmith_local.backends.ekstokens import access_key_of
from nodesmith_local.backends.objects import Objects
from nodesmith_local.backends.serverobjects import ServerObjects
from nodesmith_local.composite import Started
from nodesmith_local.controlplane import ControlPlane, User, find_binaries
from nodesmith_local.controlplane.authenticator import Authenticate, no_user
from nodesmith_local.controlplane.plane import Stage

_CRD = "customresourcedefinitions.apiextensions.k8s.io"
_ESTABLISHED_WITHIN_SECONDS = 60
_RBAC = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_ADMISSION = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
_FUNCTIONS = "nodesmith:functions"
"""The group of functions that all sign with one key: they read and write, and cannot be distinguished."""
CLUSTER_NAME = "CLUSTER_NAME"
"""The placeholder for the cluster's name in the manifests; forwarder/kustomization.yaml replaces it."""


def functions_of(access_key: str, cluster: str) -> Authenticate:
    """Return an authenticator that accepts a cluster's functions by the access key that signs their tokens.

    Access entries on EKS identify the functions by their roles instead.
    """
    user = User(f"nodesmith:writer:{cluster}", (_FUNCTIONS,))
    return lambda token: user if access_key_of(token) == access_key else None


class RealCluster(Started):
    """A context manager; inside it kube-apiserver, controllers, scheduler and kwok run. Logs go to `folder`.

    `authenticate` accepts bearer tokens that the API server does not know. `rights` names a cluster whose functions get
    the permissions of a deployment's manifests, empty for none. Port 0 takes a free one. With `pod_groups`, PodGroups
    are served.
    """

    kwok = True

    def __init__(
        self,
        folder: Path,
        *,
        authenticate: Authenticate = no_user,
        rights: str = "",
        port: int = 0,
        ip_family: str = "ipv4",
        pod_groups: bool = False,
        stage: Stage = lambda what: nullcontext(),  # noqa: ARG005
    ) -> None:
        self.plane = ControlPlane(
            find_binaries(),
            folder,
            port=port,
            authenticate=authenticate,
            ip_family=ip_family,
            pod_groups=pod_groups,
            stage=stage,
        )
        self._rights = rights
        self.objects: Objects

    @property
    def url(self) -> str:
        """The API server's base URL, without a trailing slash."""
        return self.plane.url

    @property
    def ca_bundle(self) -> str:
        """The CA's certificate, PEM in base64."""
        return self.plane.ca_bundle

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self.plane.admin_token

    def kubeconfig(self) -> Object:
        """Return the administrator's kubeconfig, to be written as JSON or YAML."""
        return self.plane.kubeconfig()

    def _start(self, stack: ExitStack) -> None:
        """Start the control plane and prepare it. Raises Rejected if a part does not become ready."""
        stack.enter_context(self.plane)
        self.objects = ServerObjects(self.url, self.ca_bundle, self.token)
        install_crds(self.objects)
        if self._rights:
            grant_rights(self.objects, self._rights)


def install_crds(objects: Objects) -> None:
    """Create nodesmith's CRDs and wait until they are served. Raises Rejected if that takes more than a minute."""
    pending_names = {objects.create(_CRD, crd)["metadata"]["name"] for crd in custom_resource_definitions()}
    until = time.monotonic() + _ESTABLISHED_WITHIN_SECONDS
    while pending_names := {
        name for name in pending_names if not is_true(objects.get(_CRD, name), "Established")
    }:
        if time.monotonic() > until:
            raise Rejected(f"the API server does not serve {', '.join(sorted(pending_names))}: see its log")
        time.sleep(0.05)


def grant_rights(objects: Objects, cluster: str) -> None:
    """Grant the users `nodesmith:reader:<cluster>` and `nodesmith:writer:<cluster>` the manifests' permissions.

    Admission policies restrict them where the API server supports those; the embedded one does not.
    """
    kinds = _RBAC | {resource.kind for resource in objects.registry} & _ADMISSION
    for path in sorted(shipped("_base", "forwarder/base").glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if manifest["kind"] in kinds:
                resource = objects.registry.of(manifest).name
                objects.apply(resource, _bound(manifest, cluster), write=Write("nodesmith", force=True))


def _bound(manifest: Object, cluster: str) -> Object:
    """Put the cluster's name into the users of a binding; readers also include the functions' group."""
    subjects = manifest.get("subjects") or []
    for subject in subjects:
        subject["name"] = subject["name"].replace(CLUSTER_NAME, cluster)
    if subjects and manifest["metadata"]["name"] == "nodesmith-reader":
        subjects.append({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": _FUNCTIONS})
    return manifest
