"""Removing nodesmith from a cluster: its NodePools and nodes first, and its RBAC only once these are gone.

Every step reads the cluster again, and deletes only what still exists, so an interrupted removal can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.writes import without_finalizer
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER, TERMINATION_FINALIZER
from nodesmith.model.karpenter.ownership import provider_id
from nodesmith.observation.mirror import NODECLAIMS, NODECLASSES, NODES
from nodesmith_cli.sharing import removalplan
from nodesmith_cli.sharing.ownership import ClusterOwnership, listed, read_ownership
from nodesmith_cli.sharing.removalplan import KeptObject, Target
from nodesmith_cli.sharing.waiting import Awaited, awaited
from nodesmith_formats.kubernetes.objects import name_of

POLL_SECONDS = 5.0
LAUNCH_LOOKS = 6
"""How many looks after the last NodePool's deletion must find no NodeClaim: a launch is shown within half a minute."""
_LAUNCHES = "NodeClaims of launches that have just begun"
_NO_OBJECT = "it has neither Node nor NodeClaim; functions add a NodeClaim or terminate it within minutes"
_LABELLED = "labelSelector=app.kubernetes.io%2Fname%3Dnodesmith"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_INSTALLED = (
    (f"{_ADMISSION}/validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    (f"{_ADMISSION}/validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    ("/api/v1/namespaces", "Namespace"),
    (f"{_RBAC}/clusterrolebindings", "ClusterRoleBinding"),
    (f"{_RBAC}/clusterroles", "ClusterRole"),
)
"""The cluster-scoped objects of forwarder/base. All its other objects are in the namespace."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to wait for nodes to drain, and whether to remove the finalizers of those left after that."""

    timeout: timedelta
    lift_finalizers: bool = False


@dataclass(slots=True)
class Outcome:
    """What was deleted (`Kind/name`), what stays and why, and what should have been deleted but is left.

    `instances` are the provider ids of Nodes and NodeClaims whose finalizer was removed. They were not terminated.
    """

    deleted: list[str] = field(default_factory=list)
    kept: list[KeptObject] = field(default_factory=list)
    left: list[Awaited] = field(default_factory=list)
    instances: list[str] = field(default_factory=list)


class Removal:
    """One run. `say` is called with each line of progress; `sleep` waits for a number of seconds.

    `instances` returns the ids of nodesmith's instances. Such an instance may have neither Node nor NodeClaim yet.
    """

    def __init__(
        self,
        server: ApiServer,
        settings: Settings,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None],
        say: Callable[[str], None],
        instances: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._server, self._settings = server, settings
        self._clock, self._sleep, self._say, self._instances = clock, sleep, say, instances
        self.outcome = Outcome()

    def run(self) -> bool:
        """Remove everything of nodesmith, and return whether nothing is left. Raises Transient, Rejected.

        Raises Rejected before it deletes anything if a Karpenter controller is running.
        """
        ownership = self._read_ownership()
        refuse_beside_karpenter(ownership)
        self.outcome.kept = list(removalplan.others(ownership))
        if not self._end_nodes():
            return False
        self._end_classes()
        self._delete(self._installed())
        targets, kept = removalplan.definitions(self._read_ownership())
        self._delete(targets)
        self.outcome.kept += kept
        return True

    def take_out(self) -> None:
        """Remove only the forwarder and the functions' RBAC. Raises Transient, Rejected."""
        self._delete(self._installed())

    def _end_nodes(self) -> bool:
        end, shown, looks = self._clock() + self._settings.timeout, "", LAUNCH_LOOKS
        while True:
            ownership = self._read_ownership()
            buyers = removalplan.buyers(ownership)
            # A node that a function is launching for a NodePool's pods has no NodeClaim yet.
            looks = 0 if buyers else looks + 1
            self._delete([*buyers, *removalplan.claims(ownership)])
            ownership = self._read_ownership()
            left = awaited(ownership) or self._unseen()
            remaining_targets = list(removalplan.buyers(ownership))
            is_empty = not left and not remaining_targets
            if is_empty and looks >= LAUNCH_LOOKS:
                return True
            if (text := "; ".join(map(str, left or remaining_targets)) or _LAUNCHES) != shown:
                self._say(f"waiting for {text}")
                shown = text
            if self._clock() >= end:
                return is_empty or self._give_up(ownership, left)
            self._sleep(POLL_SECONDS)

    def _unseen(self) -> list[Awaited]:
        """Return the instances that run without an object, such as those that were launched a moment ago."""
        return [Awaited("Instance", instance, _NO_OBJECT) for instance in self._instances()]

    def _give_up(self, ownership: ClusterOwnership, still_awaited: list[Awaited]) -> bool:
        if not self._settings.lift_finalizers:
            self.outcome.left = still_awaited
            return False
        for path, kind, objects in (
            (NODECLAIMS.path, "NodeClaim", ownership.nodeclaims),
            (NODES.path, "Node", ownership.nodes),
        ):
            for obj in objects:
                spec = obj.get("spec") or {}
                self.outcome.instances.append(provider_id(obj) or str(spec.get("providerID") or ""))
                self._delete([Target(path, kind, name_of(obj), obj["metadata"]["uid"])])
                self._lift(path, kind, name_of(obj), TERMINATION_FINALIZER)
        self.outcome.instances = sorted(set(self.outcome.instances) - {""})
        return True

    def _end_classes(self) -> None:
        """Delete EC2NodeClasses, and remove their finalizer, since no Karpenter is running to do so."""
        targets = removalplan.classes(self._read_ownership())
        self._delete(targets)
        for target in targets:
            if target.path == NODECLASSES.path:
                self._lift(target.path, target.kind, target.name, NODECLASS_FINALIZER)

    def _installed(self) -> list[Target]:
        return [
            Target(path, kind, name_of(item), str(item["metadata"].get("uid") or ""))
            for path, kind in _INSTALLED
            for item in listed(self._server, path, _LABELLED)
        ]

    def _read_ownership(self) -> ClusterOwnership:
        return read_ownership(self._server, self._clock())

    def _delete(self, targets: Iterable[Target]) -> None:
        for target in targets:
            path = f"{target.path}/{quote(target.name, safe='')}"
            there = self._server.get(path)
            if there is None or there["metadata"].get("deletionTimestamp"):
                continue
            try:
                self._server.delete(path, target.uid, orphan=target.orphan)
            except Conflict:
                continue  # another object has this name now; the next pass handles it
            self.outcome.deleted.append(str(target))
            self._say(f"deleted {target}")

    def _lift(self, path: str, kind: str, name: str, finalizer: str) -> None:
        there = self._server.get(f"{path}/{quote(name, safe='')}")
        if there is None or finalizer not in (there["metadata"].get("finalizers") or ()):
            return
        kept = without_finalizer(there, finalizer)["metadata"]["finalizers"]
        version = there["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": kept, "resourceVersion": version}}
        try:
            self._server.patch(f"{path}/{quote(name, safe='')}", patch)
        except Conflict as error:
            raise Transient(
                f"{kind}/{name}: changed while its finalizer was removed: {error}", "Conflict"
            ) from error
        self._say(f"removed the finalizer {finalizer} from {kind}/{name}")


def refuse_beside_karpenter(ownership: ClusterOwnership) -> None:
    """Raise Rejected if a Karpenter controller is running, since it serves the NodePools that would be deleted."""
    for reason in ownership.karpenter:
        raise Rejected(
            f"a Karpenter controller is running (it {reason}) and serves the same NodePools: nothing was deleted. "
            "To leave them to Karpenter, run `nodesmith release CLUSTER` and `nodesmith disconnect CLUSTER`. To delete "
            "them, scale Karpenter to zero replicas during the removal; its NodeClaims and their nodes are left alone"
        )
