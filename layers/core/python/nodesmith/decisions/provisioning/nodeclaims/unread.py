"""Objects that the snapshot shows differently than readiness has read them: nothing is launched from them."""

from __future__ import annotations

from dataclasses import replace

from nodesmith.decisions.provisioning.nodeclaims.nodeclaims import unread_nodeclaims
from nodesmith.decisions.provisioning.nodeclaims.unlaunched import unclaimed
from nodesmith.decisions.provisioning.nodepooltiers import parsed_nodeclasses
from nodesmith.model.karpenter.nodeclaimobjects import nodeclaim_content
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def as_read(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Return the ledger as if readiness had read everything that the snapshot shows.

    This serves decisions from manifests alone, without a cluster. Unresolved EC2NodeClasses stay unresolved.
    """
    contents = {f"NodePool/{name}": p.content for name, p in parsed_nodepools(snapshot.nodepools).items()}
    for manifest in unclaimed(snapshot, ledger.claims):
        contents[f"NodeClaim/{manifest['metadata']['name']}"] = nodeclaim_content(manifest)
    known = parsed_nodeclasses(snapshot)
    statuses = {
        name: replace(status, content=known[name].content) if name in known else status
        for name, status in ledger.nodeclasses.items()
    }
    return replace(ledger, contents=contents, nodeclasses=statuses)


def unread(snapshot: Snapshot, ledger: Ledger) -> list[str]:
    """Return the `Kind/name` of the NodePools, EC2NodeClasses and users' NodeClaims that readiness has yet to read."""
    pools = sorted(parsed_nodepools(snapshot.nodepools).items())
    nodeclasses = sorted(parsed_nodeclasses(snapshot).items())
    return [
        *(f"NodePool/{name}" for name, pool in pools if not ledger.has_read(pool)),
        *(f"EC2NodeClass/{name}" for name, nodeclass in nodeclasses if not ledger.has_read(nodeclass)),
        *(f"NodeClaim/{name}" for name in unread_nodeclaims(snapshot, ledger)),
    ]
