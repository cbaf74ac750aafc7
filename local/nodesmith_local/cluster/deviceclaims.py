"""ResourceClaims of pods: made from templates, and given back when their pods end, like kube-controller-manager's."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_formats.kubernetes.objects import Object, View, dig, name_of, namespace_of
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_active, is_over
from nodesmith_local.cluster.workloads.replicas import owner_reference

CLAIMS, TEMPLATES = "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"


class DeviceClaims(Controller):
    """Makes the claims of pods from templates, and takes devices back from pods that have ended. Keys are pods'."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        mirrors["pods"].listen(self._pod_changed)
        mirrors[TEMPLATES].listen(lambda _before, after: self._template_changed(after))

    def reconcile(self, key: Key) -> bool:
        """Make the missing claims of one pod, or give back those of a pod that has ended or is gone."""
        pod = self.mirrors.pods.get(key)
        if pod is None or is_over(pod):
            return sum(self._give_back(claim, key, pod) for claim in self._reserved(key)) > 0
        if not is_active(pod):
            return False
        claims_made = {
            claim_status["name"]: claim_status["resourceClaimName"] for claim_status in _statuses(pod)
        }
        missing = [template for template in _from_templates(pod) if template["name"] not in claims_made]
        claims_made |= {template["name"]: name for template in missing if (name := self._make(pod, template))}
        statuses = [{"name": name, "resourceClaimName": claim} for name, claim in sorted(claims_made.items())]
        if len(claims_made) == len(_statuses(pod)):
            return False
        status = {"status": {"resourceClaimStatuses": statuses}}
        self.store.patch("pods", key[1], status, key[0], subresource="status")
        return True

    def _make(self, pod: View, reference: View) -> str:
        """Return the name of a new claim, empty if its template does not exist."""
        namespace = namespace_of(pod)
        template = self.store.find(TEMPLATES, reference["resourceClaimTemplateName"], namespace)
        if template is None:
            return ""
        template_metadata = dig(template, "spec", "metadata") or {}
        metadata: Object = {
            "generateName": f"{name_of(pod)}-{reference['name']}-",
            "namespace": namespace,
            "ownerReferences": [owner_reference(pod)],
            "labels": template_metadata.get("labels") or {},
            "annotations": {
                **(template_metadata.get("annotations") or {}),
                "resource.kubernetes.io/pod-claim-name": reference["name"],
            },
        }
        return name_of(self.store.create(CLAIMS, {"metadata": metadata, "spec": template["spec"]["spec"]}))

    def _reserved(self, key: Key) -> Iterator[View]:
        """Yield the claims that are reserved for a pod."""
        for claim in self.store.list(CLAIMS, key[0]):
            if any(consumer.get("name") == key[1] for consumer in dig(claim, "status", "reservedFor") or ()):
                yield claim

    def _give_back(self, claim: View, key: Key, pod: View | None) -> bool:
        """Release a claim of a pod, or delete it if the pod owns it. Devices are free once no pod uses their claim."""
        users = [consumer for consumer in claim["status"]["reservedFor"] if consumer.get("name") != key[1]]
        status = {"reservedFor": users or None, **({} if users else {"allocation": None})}
        self.store.patch(CLAIMS, name_of(claim), {"status": status}, key[0], subresource="status")
        owners = claim["metadata"].get("ownerReferences") or ()
        if pod is not None and any(owner["uid"] == pod["metadata"]["uid"] for owner in owners):
            self.store.delete(CLAIMS, name_of(claim), key[0])
        return True

    def _pod_changed(self, before: View | None, after: View | None) -> None:
        pod = after or before
        if pod is not None and pod["spec"].get("resourceClaims"):
            self.touch((namespace_of(pod), name_of(pod)))

    def _template_changed(self, after: View | None) -> None:
        for key, pod in self.mirrors.pods.items() if after is not None else ():
            if any(True for _ in _from_templates(pod)):
                self.touch(key)


def _from_templates(pod: View) -> Iterator[View]:
    return (
        resource_claim
        for resource_claim in pod["spec"].get("resourceClaims") or ()
        if resource_claim.get("resourceClaimTemplateName")
    )


def _statuses(pod: View) -> list[View]:
    return list(dig(pod, "status", "resourceClaimStatuses") or ())


def claim_names(pod: View) -> list[str]:
    """Return the names of a pod's ResourceClaims; an empty one is still to be made from its template."""
    claims_made = {
        claim_status["name"]: str(claim_status.get("resourceClaimName") or "")
        for claim_status in _statuses(pod)
    }
    references = pod["spec"].get("resourceClaims") or ()
    return [
        str(reference.get("resourceClaimName") or claims_made.get(reference["name"], ""))
        for reference in references
    ]
