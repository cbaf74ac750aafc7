"""The writes of `nodesmith top`, each after a confirmation: cordons, and the pause of voluntary disruption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.writes import object_path, pod_path
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.access.ledger import TABLE, ledger_of, pause, resume
from nodesmith_cli.sharing.ownership import listed
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.rows import duration
from nodesmith_formats.wording import printable

_PAUSE_REASON = "nodesmith top"


@dataclass(frozen=True, slots=True)
class Actions:
    """Reads and writes on request. `cluster` is the name of the EKS cluster, empty if it was not given."""

    server: ApiServer
    fleet: Fleet
    cluster: str = ""
    region: str = ""

    def cordon(self, node: str, *, unschedulable: bool) -> str:
        """Cordon or uncordon a node, and return a message. Raises Rejected or Transient."""
        patched = self.server.patch(object_path("Node", node), {"spec": {"unschedulable": unschedulable}})
        if patched is None:
            raise Rejected(f"node {node} is gone")
        return f"node {node} is {'cordoned' if unschedulable else 'uncordoned'}"

    def pause(self) -> str:
        """Pause disruption, and return a message. Raises Rejected or Transient."""
        with ledger_of(TABLE, self._named(), self.region) as store:
            return pause(store, self.cluster, _PAUSE_REASON, datetime.now(UTC))

    def resume(self) -> str:
        """Resume disruption, and return a message. Raises Rejected or Transient."""
        with ledger_of(TABLE, self._named(), self.region) as store:
            return resume(store, self.cluster, datetime.now(UTC))

    def explained(self, key: str, now: datetime) -> Iterator[str]:
        """Yield what is known about a pod, with its Events, the newest first. Raises Rejected or Transient."""
        pod = self.server.get(pod_path(key))
        if pod is None:
            raise Rejected(f"pod {key} is gone")
        status, node = pod.get("status") or {}, (pod.get("spec") or {}).get("nodeName")
        yield f"Pod {printable(key)}: {printable(str(status.get('phase')))}" + (
            f" on {printable(node)}" if node else ""
        )
        refusal = self.fleet.reason_of(key)
        if refusal:
            yield from ("", refusal)
        selector = quote(f"involvedObject.uid={pod['metadata'].get('uid')}", safe="=")
        path = f"/api/v1/namespaces/{quote(key.partition('/')[0], safe='')}/events"
        events = listed(self.server, path, f"fieldSelector={selector}")
        yield ""
        for event in sorted(events, key=_at, reverse=True)[:20]:
            ago = duration((now - parse_time(_at(event))).total_seconds()) if _at(event) else "?"
            yield f"{ago:>4} {printable(str(event.get('reason')))}: {printable(str(event.get('message'))[:500])}"
        if not events:
            yield "It has no Events."

    def _named(self) -> str:
        if not self.cluster:
            raise Rejected("the cluster's name is not known: start `nodesmith top` with --cluster NAME")
        return self.cluster


def _at(event: Mapping[str, object]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")
