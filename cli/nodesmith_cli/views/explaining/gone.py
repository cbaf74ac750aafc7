"""Why a node that no longer exists was terminated, and what that saved, as the records of decisions show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith_formats.wording import moment

Record = Mapping[str, Any]
MOST_RECORDS = 1000
"""How many decisions are searched, newest first."""
_NAMES = ("name", "node_name", "instance_id")


def why_gone(name: str, records: Iterable[Record]) -> str:
    """Return why a node ended, in a sentence; empty if no record mentions it. `records` come newest first.

    `name` is that of the Node, its NodeClaim or its instance.
    """
    names, cause, last_mention = {name}, "", ""
    for record in records:
        for claim in record["inputs"]["ledger"].get("claims") or ():
            host = str(claim.get("node_name") or "").partition(".")[0]
            if names & {host, *(claim.get(field) for field in _NAMES)}:
                names.add(claim["name"])
                cause = cause or claim.get("cause") or ""
                last_mention = last_mention or f"decision {record['id']} of {moment(record['at'])}"
        for move in () if record.get("superseded") else record["plan"].get("moves", ()):
            if names & set(move["sources"]) and cause in ("", move["reason"]):
                decision = f"decision {record['id']} of {moment(record['at'])}"
                return f"it is gone: {decision} disrupted it: {move['reason']}: {move['message']}"
    if cause:
        return f"it is gone: {last_mention} saw it terminate because of {cause}"
    return (
        f"the newest snapshot does not contain it; {last_mention} was the last to mention it"
        if last_mention
        else ""
    )
