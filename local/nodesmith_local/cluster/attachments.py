"""Volume attachment: attach before the first pod that mounts the volume starts, detach after the last has gone.

Imitates the attach/detach controller and the CSI driver. A dead kubelet cannot report that it has unmounted a volume,
so such a volume is detached by force six minutes after its pods left.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256

from nodesmith_formats.kubernetes.objects import Object, View, dig, name_of, parse_timestamp
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_over, node_name
from nodesmith_local.cluster.scheduler.needs import claims_of

ATTACHMENTS = "volumeattachments.storage.k8s.io"
_CLAIMS, _VOLUMES = "persistentvolumeclaims", "persistentvolumes"
_ATTACHING = timedelta(seconds=2)
_DETACHING = timedelta(seconds=5)
_FORCED_AFTER = timedelta(minutes=6)
_ALONE = {"ReadWriteOnce", "ReadWriteOncePod"}


class Attachments(Controller):
    """Keeps a VolumeAttachment for each CSI volume on each node; keys are (node, volume)."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        self._due: dict[Key, datetime] = {}  # when an unused volume is detached
        mirrors["pods"].listen(self._touch_mounted)
        mirrors[_CLAIMS].listen(self._touch_claimed)
        mirrors[ATTACHMENTS].listen(self._touch_attached)

    def reconcile(self, key: Key) -> bool:
        """Attach one volume to a node, or detach it."""
        node, volume = key
        attachment = self._attachment(key)
        users = (pod for pod in self.mirrors.pods_on(node) if not is_over(pod))
        if any(volume in csi_volumes(pod, self.mirrors) for pod in users):
            self._due.pop(key, None)
            return self._attach(key, attachment)
        if attachment is None:
            self._due.pop(key, None)
            return False
        can_unmount = self.mirrors.node(node) is not None and self.mirrors.has_kubelet(node)
        end = self._due.setdefault(key, self.store.now() + (_DETACHING if can_unmount else _FORCED_AFTER))
        if self.store.now() < end:
            self.look_again(key, end)
            return False
        self.store.delete(ATTACHMENTS, name_of(attachment))
        return True

    def _attach(self, key: Key, attachment: View | None) -> bool:
        node, volume = key
        volume_object = self.mirrors[_VOLUMES].objects.get(("", volume))
        if attachment is None and volume_object is not None and self.mirrors.node(node) is not None:
            if self._is_elsewhere(volume_object):
                return False  # its detachment touches this key
            self.store.create(ATTACHMENTS, _manifest(node, volume_object))
            return True
        if attachment is None or dig(attachment, "status", "attached"):
            return False
        attaching_since = parse_timestamp(attachment["metadata"]["creationTimestamp"]) or self.store.now()
        if self.store.now() < attaching_since + _ATTACHING:
            self.look_again(key, attaching_since + _ATTACHING)
            return False
        self.store.patch(
            ATTACHMENTS, name_of(attachment), {"status": {"attached": True}}, subresource="status"
        )
        return True

    def _attachment(self, key: Key) -> View | None:
        return self.mirrors[ATTACHMENTS].objects.get(("", _name(*key)))

    def _is_elsewhere(self, volume: View) -> bool:
        alone = _ALONE & set(dig(volume, "spec", "accessModes") or ())
        return bool(alone) and any(
            _place(attachment)[1] == name_of(volume)
            for attachment in self.mirrors[ATTACHMENTS].objects.values()
        )

    def _touch_mounted(self, before: View | None, after: View | None) -> None:
        pod = after or before
        if pod is None or not node_name(pod):
            return
        self._touch_pod(pod)
        if after is None:  # its claims may be gone already
            for attachment in self.mirrors[ATTACHMENTS].objects.values():
                if _place(attachment)[0] == node_name(pod):
                    self.touch(_place(attachment))

    def _touch_claimed(self, _before: View | None, claim: View | None) -> None:
        if claim is not None and dig(claim, "spec", "volumeName"):
            self._touch_mounting((claim["metadata"]["namespace"], name_of(claim)))

    def _touch_attached(self, before: View | None, after: View | None) -> None:
        attachment = after or before
        if attachment is None:
            return
        self.touch(_place(attachment))
        volume = self.mirrors[_VOLUMES].objects.get(("", _place(attachment)[1]))
        if after is None and volume is not None:  # pods that wait for it elsewhere may have it now
            claim = dig(volume, "spec", "claimRef") or {}
            self._touch_mounting((claim.get("namespace", ""), claim.get("name", "")))

    def _touch_mounting(self, claim: Key) -> None:
        for (namespace, _), pod in self.mirrors.pods.items():
            if namespace == claim[0] and claim[1] in claims_of(pod["spec"]):
                self._touch_pod(pod)

    def _touch_pod(self, pod: View) -> None:
        for volume in _volumes(pod, self.mirrors) if node_name(pod) else ():
            self.touch((node_name(pod), volume))


def csi_volumes(pod: View, mirrors: Mirrors) -> list[str]:
    """Return the names of the CSI PersistentVolumes that a pod mounts; unbound claims have none."""
    volumes = ((name, mirrors[_VOLUMES].objects.get(("", name))) for name in _volumes(pod, mirrors))
    return [name for name, volume in volumes if dig(volume, "spec", "csi")]


def are_attached(pod: View, mirrors: Mirrors) -> bool:
    """Return whether the volumes that a pod mounts are attached to its node."""
    attachments = (
        mirrors[ATTACHMENTS].objects.get(("", _name(node_name(pod), volume)))
        for volume in csi_volumes(pod, mirrors)
    )
    return all(dig(attachment, "status", "attached") for attachment in attachments)


def _volumes(pod: View, mirrors: Mirrors) -> list[str]:
    namespace = pod["metadata"]["namespace"]
    claims = (mirrors[_CLAIMS].objects.get((namespace, name)) for name in claims_of(pod["spec"]))
    return [str(name) for claim in claims if claim and (name := dig(claim, "spec", "volumeName"))]


def _manifest(node: str, volume: View) -> Object:
    source = {"persistentVolumeName": name_of(volume)}
    spec = {"attacher": dig(volume, "spec", "csi", "driver"), "nodeName": node, "source": source}
    return {"metadata": {"name": _name(node, name_of(volume))}, "spec": spec}


def _place(attachment: View) -> Key:
    spec = attachment["spec"]
    return str(spec["nodeName"]), str(dig(spec, "source", "persistentVolumeName") or "")


def _name(node: str, volume: str) -> str:
    return f"csi-{sha256(f'{volume}/{node}'.encode()).hexdigest()}"
