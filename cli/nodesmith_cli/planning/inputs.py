"""The inputs of a decision on manifests: snapshot, ledger and catalogue."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nodesmith.decisions.provisioning import Inputs, as_read, decision_id
from nodesmith.decisions.scheduling.demands import buys_from
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.zonalshifts import AUTOSHIFT, UNTOLD_END, ZonalShift, shown_shifts
from nodesmith.model.karpenter.disruption import SCHEDULE
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import WATCHED, Mirror, observed
from nodesmith_cli.planning.ledger import claims, priced
from nodesmith_cli.planning.manifests import Manifests
from nodesmith_cli.planning.nodeclasses import (
    assumed_cluster,
    assumed_nodeclass,
    assumed_zones,
    judged,
    statuses,
)

CLUSTER = "plan"
MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
"""The default time of a plan. It is fixed, so that the same files always give the same plan."""
_EXAMPLE = "examples/express-test/nodepool.yaml"


def plan_inputs(
    manifests: Manifests,
    catalog: Catalog,
    *,
    settings: NodeSettings | None = None,
    now: datetime = MOMENT,
) -> Inputs:
    """Return the inputs for manifests, built like those of a live cluster: reduced, encoded as a snapshot, and decoded.

    Raises Rejected if there is no NodePool.
    """
    nodepools = list(manifests.of_kind("NodePool"))
    if not nodepools:
        raise Rejected(
            f"no NodePool found, so there are no nodes to choose from. Add one with -f; see {_EXAMPLE}"
        )
    nodeclasses = list(manifests.of_kind("EC2NodeClass")) or [
        assumed_nodeclass(name) for name in sorted(set(map(_nodeclass_name, nodepools)))
    ]
    mirrors = {kind.kind: Mirror(kind) for kind in WATCHED}
    for manifest in (*map(_open, (d.manifest for d in manifests.documents)), *nodeclasses):
        if manifest["kind"] in mirrors:
            mirrors[manifest["kind"]].put(manifest)
    data = encode(CLUSTER, now, observed(mirrors.values()))
    resolved = statuses(nodeclasses, assumed_zones(catalog))
    family = _ip_family(manifests, settings)
    cluster = assumed_cluster(CLUSTER, family or "ipv4")
    for manifest in nodeclasses:
        name = str(manifest["metadata"]["name"])
        if name in resolved:
            resolved[name] = judged(resolved[name], manifest, cluster if family else None)
    ledger = Ledger(
        claims=priced(claims(manifests.of_kind("NodeClaim"), now), catalog),
        nodeclasses=resolved,
        cluster=cluster,
    )
    content = gzip.decompress(data)  # hash the content, since compressed bytes depend on the zlib version
    decision = decision_id(hashlib.sha256(content).hexdigest(), ledger.version, now)
    snapshot = decode(data)
    snapshot = replace(snapshot, pods=tuple(_having_waited(pod, now) for pod in snapshot.pods), grown=())
    rules = (settings or NodeSettings()).in_cluster(cluster)
    return Inputs(snapshot, as_read(ledger, snapshot), catalog, rules, now, decision)


def zonal_shifts(inputs: Inputs, zones: Iterable[str], *, live: bool) -> tuple[ZonalShift, ...]:
    """Return the zonal shifts that NodePools show, and one away from each of `zones`, which are names or ids.

    The shifts of a live cluster count until they end; those in files always count. Raises Rejected for an unknown zone.
    """
    now = datetime.now(UTC) if live else inputs.now
    shifts = {s.zone: s for s in shown_shifts(inputs.snapshot.nodepools, now) if s.holds(now)}
    zone_ids = {o.zone: o.zone_id for offered in inputs.catalog.offerings.values() for o in offered}
    names = {id_: name for name, id_ in zone_ids.items() if id_}
    for zone in zones:
        name = names.get(zone, zone)
        if name not in zone_ids:
            hint = did_you_mean(zone, zone_ids) or f"; zones: {', '.join(sorted(zone_ids))}"
            raise Rejected(f"--shifted-zone {zone}: the catalogue has no such zone{hint}")
        shifts[name] = ZonalShift(name, zone_ids[name], inputs.now + UNTOLD_END, AUTOSHIFT)
    return tuple(shifts[zone] for zone in sorted(shifts))


def _open(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a NodePool without its schedule, if that is valid: a plan shows the nodes of an open NodePool."""
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations")
    if manifest["kind"] != "NodePool" or not annotations or SCHEDULE not in annotations:
        return manifest
    pool = parse_nodepool(manifest).value
    if pool is None or pool.windows is None:
        return manifest
    others = {key: value for key, value in annotations.items() if key != SCHEDULE}
    return {**manifest, "metadata": {**metadata, "annotations": others}}


def _having_waited(pod: Pod, now: datetime) -> Pod:
    """Return a pod with its pod-scale-up-delay over at `now`: a plan shows the nodes that the pod gets afterwards."""
    until = buys_from(pod)
    return pod if until is None or until <= now else replace(pod, created_at=pod.created_at - (until - now))


def _ip_family(manifests: Manifests, settings: NodeSettings | None) -> str:
    """Return the IP family of the cluster: that of its nodes' addresses, or ipv6 by the settings; empty if unknown."""
    if settings is not None and settings.ipv6:
        return "ipv6"
    for node in manifests.of_kind("Node"):
        for address in (node.get("status") or {}).get("addresses") or ():
            if address.get("type") == "InternalIP":
                return "ipv6" if ":" in str(address.get("address")) else "ipv4"
    return ""


def _nodeclass_name(nodepool: Mapping[str, Any]) -> str:
    spec: Any = nodepool.get("spec")
    try:
        return str(spec["template"]["spec"]["nodeClassRef"]["name"])
    except (KeyError, TypeError):
        return "default"
