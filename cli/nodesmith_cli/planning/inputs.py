"""What a decision about manifests is made from: snapshot, ledger, catalogue, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nodesmith.decisions.provisioning import Inputs, as_read, decision_id
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith.observation.decoding import decode, encode
from nodesmith.observation.mirror import WATCHED, Mirror, observed
from nodesmith_cli.planning.claims import claims
from nodesmith_cli.planning.launching import judged
from nodesmith_cli.planning.manifests import Manifests
from nodesmith_cli.planning.nodeclasses import KUBERNETES, assumed_nodeclass, assumed_zones, statuses

CLUSTER = "plan"
MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
"""When plans are made, unless said: the same files give the same plan at any time of day."""
_EXAMPLE = "examples/express-test/nodepool.yaml"


def plan_inputs(
    manifests: Manifests,
    catalog: Catalog,
    *,
    settings: NodeSettings | None = None,
    now: datetime = MOMENT,
) -> Inputs:
    """Take the way of a live cluster: objects reduced as the forwarder does, to a snapshot as bytes, and read.

    Raises Rejected where there is no NodePool.
    """
    nodepools = list(manifests.of_kind("NodePool"))
    if not nodepools:
        raise Rejected(
            f"no NodePool: nothing says which nodes may be bought. Add one with -f; {_EXAMPLE} is an example"
        )
    nodeclasses = list(manifests.of_kind("EC2NodeClass")) or [
        assumed_nodeclass(name) for name in sorted(set(map(_nodeclass_name, nodepools)))
    ]
    mirrors = {kind.kind: Mirror(kind) for kind in WATCHED}
    for manifest in (*(d.manifest for d in manifests.documents), *nodeclasses):
        if manifest["kind"] in mirrors:
            mirrors[manifest["kind"]].put(manifest)
    data = encode(CLUSTER, now, observed(mirrors.values()))
    resolved = statuses(nodeclasses, assumed_zones(catalog))
    for manifest in nodeclasses:
        name = str(manifest["metadata"]["name"])
        if name in resolved:
            resolved[name] = judged(resolved[name], manifest)
    ledger = Ledger(
        claims=claims(manifests.of_kind("NodeClaim"), now),
        nodeclasses=resolved,
        cluster=ClusterInfo(CLUSTER, "https://plan.invalid", "", "10.100.0.0/16", KUBERNETES),
    )
    content = gzip.decompress(data)  # whoever compresses: another zlib writes other bytes
    decision = decision_id(hashlib.sha256(content).hexdigest(), ledger.version, now)
    snapshot = decode(data)
    return Inputs(snapshot, as_read(ledger, snapshot), catalog, settings or NodeSettings(), now, decision)


def _nodeclass_name(nodepool: Mapping[str, Any]) -> str:
    spec: Any = nodepool.get("spec")
    try:
        return str(spec["template"]["spec"]["nodeClassRef"]["name"])
    except (KeyError, TypeError):
        return "default"
