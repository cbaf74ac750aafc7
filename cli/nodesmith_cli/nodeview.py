"""The human-readable output of `nodesmith explain node`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.commitmentview import covered_line
from nodesmith_formats.wording import ago, counted, moment, span

Told = Mapping[str, Any]
_WIDE = ("instanceType", "zone", "capacityType", "nodePool")


def lines(told: Told) -> Iterator[str]:
    """Yield the lines for one node, given the data from `nodesmith_cli.explainnode.tell`."""
    yield f"{'node' if told['node'] else 'NodeClaim'} {told['node'] or told['nodeClaim']}: {_state(told)}"
    if told["cause"]:
        yield f"  cause     {told['cause']}"
    yield from _staying(told["staying"])
    waiting = told["waiting"]
    if waiting:
        yield f"  waits     {waiting['message']}"
        if waiting["fix"]:
            yield f"  fix       {waiting['fix']}"
        yield f"  since     {ago(waiting['since'], waiting['seconds'])}{_spent(waiting)}"
    if told["deadline"]:
        yield f"  deadline  {moment(told['deadline'])}, when the instance terminates with whatever it runs"
    yield f"  node      {_kind(told)}"
    if "commitments" in told:
        yield f"  paid      {covered_line(told['commitments'])}"
    yield f"  age       {span(told['ageSeconds'])}, {counted(told['pods'], 'pod')} to evict"
    for obstacle in told["obstacles"]:
        yield f"  obstacle  {obstacle['message']}"
        yield f"            {obstacle['fix']}"
    yield f"  seen      {ago(told['snapshotAt'], told['snapshotAgeSeconds'])}"


def ending_lines(found: Sequence[Told], *, is_wide: bool = False) -> Iterator[str]:
    """Yield one line for each terminating node, after a summary; wide ones have type, zone and NodePool as well."""
    if not found:
        yield "no node is terminating"
        return
    total = sum(told["priceHourly"] or 0 for told in found)
    yield f"{counted(len(found), 'node')} terminating, ${total:.4f}/hour"
    yield from _rows(found, is_wide=is_wide)


def selected_lines(found: Sequence[Told], *, is_wide: bool = False) -> Iterator[str]:
    """Yield one line for each selected node, after a summary."""
    if not found:
        yield "the selector matches no node"
        return
    total = sum(told["priceHourly"] or 0 for told in found)
    yield f"{counted(len(found), 'node')}, ${total:.4f}/hour"
    yield from _rows(found, is_wide=is_wide)


def _rows(found: Sequence[Told], *, is_wide: bool) -> Iterator[str]:
    width = max(len(_name(told)) for told in found)
    for told in found:
        waiting = told["waiting"]
        why = f"{waiting['message']}, for {span(waiting['seconds'])}" if waiting else _state(told)
        place = "  ".join(str(told[key] or "-") for key in _WIDE) + "  " if is_wide else ""
        yield f"  {_name(told):<{width}}  {_price(told) or '-':>13}  {place}{why}"


def _staying(staying: Told | None) -> Iterator[str]:
    if staying is None:
        return
    yield f"  {'leaves' if staying['leaves'] else 'stays':<9} {staying['message']}"
    if staying["since"]:
        yield f"  since     {ago(staying['since'], staying['seconds'])}{_spent(staying)}"


def _state(told: Told) -> str:
    if told["servedBy"]:
        return f"its NodePool {told['nodePool']} is served by {told['servedBy']}: nodesmith leaves it alone"
    if told["nodeClaim"] is None:
        return "it has no NodeClaim, so nodesmith does not manage it"
    since = f"{told['phase']} since {parse_time(told['phaseSince']):%H:%M:%S} UTC"
    if told["ending"]:
        return f"terminating, {since}" + ("" if told["waiting"] else ": nothing blocks it")
    trouble = "" if told["ready"] or told["node"] is None else ", not Ready"
    return f"{since}{trouble}"


def _kind(told: Told) -> str:
    place = f"{told['instanceType']} in {told['zone']}" if told["instanceType"] else ""
    parts = [
        f"{told['nodeClaim']} of NodePool {told['nodePool']}" if told["nodePool"] else told["nodeClaim"],
        place,
        told["capacityType"],
        told["instanceId"],
        _price(told) or "unknown price",
    ]
    return ", ".join(part for part in parts if part)


def _price(told: Told) -> str:
    if told["priceHourly"] is None:
        return ""
    return f"{'~' * bool(told['priceEstimated'])}${told['priceHourly']:.4f}/hour"


def _spent(waiting: Told) -> str:
    return f", at a cost of ${waiting['cost']:.4f}" if waiting["cost"] is not None else ""


def _name(told: Told) -> str:
    return str(told["node"] or told["nodeClaim"])
