"""Apply manifests to the API server one by one; a refused object becomes a fault and does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from nodesmith.model.apimachinery.problems import Parsed, meant
from nodesmith.model.karpenter.nodeoverlays import parse_nodeoverlay
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.manifests.manifests import Document, Fault
from nodesmith_local.apiserver.storage.store import Write
from nodesmith_local.backends.objects import Objects

WORKLOADS = frozenset({"Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"})
_FIRST = frozenset({"Namespace", "CustomResourceDefinition"})
_MANAGER = "nodesmith"
_TODAY = {"Machine": "NodeClaim"}
"""Current names of kinds that are no longer served."""
_READERS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Parsed[Any]]] = {
    ("karpenter.sh/v1", "NodePool"): parse_nodepool,
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): parse_nodeclass,
    ("karpenter.sh/v1alpha1", "NodeOverlay"): parse_nodeoverlay,
}


def is_read(manifest: Mapping[str, Any]) -> bool:
    """Return whether nodesmith reads objects of this kind in this API version."""
    return (manifest["apiVersion"], manifest["kind"]) in _READERS


def surroundings_first(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """Return the objects that pods depend on, namespaces first, and the workloads, each in file order."""
    ordered = sorted(documents, key=lambda document: document.manifest["kind"] not in _FIRST)
    workloads = [document for document in ordered if document.manifest["kind"] in WORKLOADS]
    return [document for document in ordered if document not in workloads], workloads


def apply_documents(objects: Objects, documents: Sequence[Document]) -> list[Fault]:
    """Create each object, or apply it server-side if it exists; return the faults found in the objects.

    A field outside the schema is a fault too, although the object is created without it.
    """
    faults: list[Fault] = []
    for document in documents:
        refused = _applied(objects, document)
        faults += _own_words(document) or refused
    return faults


def _applied(objects: Objects, document: Document) -> list[Fault]:
    """Apply one object and return the server's refusals and warnings."""
    write, manifest = Write(manager=_MANAGER, force=True), dict(document.manifest)
    refused: list[Fault] = []
    try:
        resource = objects.registry.of(manifest).name
        _created_or_applied(objects, resource, manifest, write)
    except ApiError as error:
        causes = error.details.get("causes") or ()
        refused = [document.fault(str(c["message"]), str(c["field"])) for c in causes]
        refused = refused or [_refused(objects, document, error)]
    return refused + [_left_out(document, warning) for warning in write.warnings]


def _created_or_applied(objects: Objects, resource: str, manifest: Mapping[str, Any], write: Write) -> None:
    """Create an object, or apply it if it exists.

    Server-side apply refuses an object with a field outside the schema; creation only warns.
    """
    try:
        objects.create(resource, manifest, write)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        objects.apply(resource, manifest, write=write)


def _refused(objects: Objects, document: Document, error: ApiError) -> Fault:
    """Return the server's refusal; for an unknown kind or namespace, with a hint at the remedy."""
    metadata = document.manifest["metadata"]
    if error.code == HTTPStatus.BAD_REQUEST and (nearest_kind := _nearest(objects, document.manifest)):
        return document.fault(f"{error.message}, did you mean {nearest_kind}?", "kind")
    namespace = metadata.get("namespace")
    if error.code == HTTPStatus.NOT_FOUND and namespace and not objects.find("namespaces", namespace):
        return document.fault(f"{error.message}: add a Namespace with that name", "metadata.namespace")
    return document.fault(error.message)


def _nearest(objects: Objects, manifest: Mapping[str, Any]) -> str:
    """Return the kind that was probably meant, as `NodePool of karpenter.sh/v1`.

    Return "" for a kind that is served, or where no kind is similar.
    """
    served = {
        resource.kind: "/".join(filter(None, (resource.group, resource.versions[0])))
        for resource in objects.registry
    }
    kind = str(manifest["kind"])
    if served.get(kind) == manifest["apiVersion"]:
        return ""
    nearest_kind = _TODAY.get(kind) or next(iter(meant(kind, served)), "")
    return f"{nearest_kind} of {served[nearest_kind]}" if nearest_kind in served else ""


def _own_words(document: Document) -> list[Fault]:
    """Return nodesmith's own findings for the kinds that it reads; they go beyond the schema and name a remedy."""
    parse = _READERS.get((document.manifest["apiVersion"], document.manifest["kind"]))
    problems = parse(document.manifest).problems if parse else ()
    return [document.fault(f"is {problem.found}: {problem.remedy}", problem.field) for problem in problems]


def _left_out(document: Document, warning: str) -> Fault:
    """Return the fault of a field that the server drops, from its warning `unknown field "spec.tempalte"`."""
    message, quote, path = warning.partition('"')
    field = path.rstrip('"') if quote else ""
    return document.fault(f"{message.strip()}; it is ignored" if field else warning, field)
