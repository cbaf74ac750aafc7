"""Tags of single claims, written on instances in the background after a CreateFleet call that served several claims.

Karpenter writes them in the background as well (its tagging controller). Nothing waits for them: an instance is found
by the id in its claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from nodesmith.controllers.runs.concurrently import Spread
from nodesmith.controllers.runs.outside import Outside
from nodesmith.decisions.provisioning.outcomes import tags_due
from nodesmith.effects import show
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.karpenter.nodeclaims import NodeClaim

MOST = 40
"""The most instances tagged in one run. Each takes a call, and launches share EC2's limit on mutating calls."""
AGAIN = timedelta(seconds=10)
"""The wait until the next run continues: by then EC2's token bucket has gained 50 calls."""


def write_tags(
    run: Outside, claims: Sequence[NodeClaim], spread: Spread, done: Counter[str], failures: Failures
) -> timedelta | None:
    """Write the tags that are due, and record on each claim that they are written. Each step can be repeated.

    Return the wait until the next run continues, None if nothing is left or a call failed.
    """
    due = [claim for claim in claims if claim.instance_id and tags_due(claim)]

    def write(claim: NodeClaim) -> str:
        try:
            run.cloud.tag(claim.instance_id, tags_due(claim))
            saved = run.store.save(replace(claim, launch=FrozenMap()))
            if saved.registered_at is not None:  # its object was written before, without the tags
                show(saved, run.cluster)
        except Conflict:
            return "Conflict"  # the claim has moved on meanwhile, and is tagged again
        except Transient as error:
            return str(error)
        return ""

    found = list(spread(write, due[:MOST]))
    written, trouble = found.count(""), [why for why in found if why not in ("", "Conflict")]
    done.update({"Tagged": written} if written else {})
    if trouble:
        failures.add(Transient(f"{len(trouble)} instances are not tagged yet: {trouble[0]}"))
        return None
    return AGAIN if written < len(due) else None
