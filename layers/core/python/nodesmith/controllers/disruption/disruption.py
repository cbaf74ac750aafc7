"""The controller of disruption: remove taints left without a move, carry on moves in progress, search for new ones.

It also shows which NodeOverlays apply, since they decide which nodes are cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nodesmith.controllers.disruption.moves.moves import carry_on
from nodesmith.controllers.disruption.moves.runstate import (
    Disruption,
    RunState,
    close,
    note_search,
    open_again,
    timed,
)
from nodesmith.controllers.nodeclaims.objects import rewrite
from nodesmith.controllers.observation import newest_data, own_snapshot
from nodesmith.controllers.runs import tick_for, wait_until
from nodesmith.decisions.disruption.drift import Drift, drifting, judged, noted
from nodesmith.decisions.disruption.moves import SECOND_LOOK, leftovers
from nodesmith.decisions.disruption.proposals import Proposal, in_batches
from nodesmith.decisions.disruption.search.search import LATEST, next_change, next_search, propose, record
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.readiness.readiness import name_of, nodeoverlay_update
from nodesmith.decisions.reporting import events
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.decisions.takeover import standby
from nodesmith.errors import Conflict, Failures
from nodesmith.model.apimachinery.times import first
from nodesmith.model.karpenter.nodeoverlays import parse_nodeoverlays
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster, Store

SHORTEST_REST, LONGEST_REST = timedelta(seconds=2), timedelta(seconds=20)
"""Bounds of the rest between the end of a search and the next one, which is twice as long as the search took."""
SEEN_WITHIN = timedelta(seconds=5)
"""The time within which the snapshot shows a new taint."""
ENOUGH = timedelta(seconds=20)
"""After carrying on moves for this long, a run leaves the search to the next: it must not last longer than a minute."""
EVENTS_AT_ONCE = 40
"""The most Events about nodes that stay, in one run. Later runs publish the others."""
MOST_DRIFT_WRITES = 200
"""The most claims that one run writes. A new image may affect thousands, and budgets let few of them go at a time."""
_TRIES = 2
"""How often one run tries to record drift: other functions change claims at the same time."""
_TIMELESS = datetime.min.replace(tzinfo=UTC)


def disrupt(run: Disruption) -> RunState | None:
    """Do what is due; return what was seen and done, None if there is no snapshot yet.

    Raises Transient if a call failed, after everything else is done.
    """
    data = newest_data(run.blobs, run.cluster_name)
    if data is None:
        return None
    state = RunState(run, own_snapshot(data, run.cluster_name), data, run.store.load())
    if (held := standby(state.ledger, state.snapshot, run.clock())) is not None:
        state.due = held.until
        return state
    with state.failures as failures:
        with failures.of():
            open_again(state, leftovers(state.step_inputs()))
        if state.snapshot.nodeoverlays:
            with failures.of("NodeOverlays"):
                _show_overlays(state)
        began = run.clock()
        carry_on(state)
        if run.clock() - began < ENOUGH and _is_worthwhile(state):
            _note_drift(state)
            _search_rested(state)
        _wake_when_due(state)
        state.due = _due(state)
    return state


def _show_overlays(state: RunState) -> None:
    """Show in the statuses of NodeOverlays whether they apply, which depends on the catalogue."""
    run, inputs = state.run, state.inputs()
    overlays = overlays_of(inputs.snapshot, inputs.catalog, inputs.settings)
    parsed = parse_nodeoverlays(inputs.snapshot.nodeoverlays)
    for manifest, result in zip(inputs.snapshot.nodeoverlays, parsed, strict=True):
        contradiction = str(overlays.contradicting.get(name_of(manifest), ""))
        update = nodeoverlay_update(manifest, result, contradiction, inputs.now)
        if update is not None:
            with state.failures.of(f"NodeOverlay {update.name}"):
                run.cluster.merge_status(update.kind, update.name, update.status)
                run.publish_new(update.events)
                state.done["StatusesWritten"] += 1


def _due(state: RunState) -> datetime | None:
    """Return when to look again: now, unless no move is in progress and a search of the current state found none."""
    memory, now = state.run.memory, state.run.clock()
    if not state.ledger.moves and memory.seen is not None and memory.seen == _search_basis(state):
        return first((tick_for(memory.due, now), memory.next_search))
    return now


def _is_worthwhile(state: RunState) -> bool:
    """Return whether a search may have a different result than the last one."""
    memory, now = state.run.memory, state.run.clock()
    is_same = memory.seen is not None and memory.seen == _search_basis(state)
    return not (is_same and memory.until is not None and now < memory.until)


def _search_rested(state: RunState) -> None:
    """Search if the last search is long enough ago; otherwise wake up when it is."""
    run, memory = state.run, state.run.memory
    began = run.clock()
    if memory.rests_until is not None and began < memory.rests_until:
        run.wake_me(memory.rests_until - began)
        return
    _search(state)
    finished = run.clock()
    memory.rests_until = finished + min(max(SHORTEST_REST, 2 * (finished - began)), LONGEST_REST)


def _wake_when_due(state: RunState) -> None:
    """Schedule the next look for the moment at which time alone may change something, instead of the tick after it."""
    wait = wait_until(state.run.memory.due, state.run.clock())
    if wait is not None and wait > timedelta(0):
        state.run.wake_me(wait)


def note_drift(
    drift: Mapping[str, Drift], inputs: Inputs, store: Store, cluster: Cluster, failures: Failures
) -> tuple[int, int]:
    """Record which claims drift now or no longer do; return how many were written, and how many should have been.

    The oldest come first, as in disruption.
    """
    changed = noted(judged(inputs.snapshot, inputs.ledger), drift, inputs.now)
    changed.sort(key=lambda claim: (claim.created_at, claim.name))
    due = changed[:MOST_DRIFT_WRITES]
    return rewrite(due, store, cluster, failures), len(due)


def _note_drift(state: RunState) -> None:
    """Record drift before the search, which may take long, and also if no search is due.

    A move may begin at once, and its nodes must show why.
    """
    for _ in range(_TRIES):
        inputs = state.inputs()
        drift = drifting(inputs.snapshot, inputs.ledger, inputs.catalog, inputs.now)
        written, due = note_drift(drift, inputs, state.run.store, state.run.cluster, state.failures)
        state.done["ClaimsDrifting"] += written
        if due:
            state.reload()
        if written == due:
            return


def _search_basis(state: RunState) -> tuple[Snapshot, Ledger]:
    """Return what a search looks at, except the time. Content that has not changed is the same object if read again."""
    return replace(state.snapshot, taken_at=_TIMELESS), state.ledger


def _search(state: RunState) -> None:
    """Search for moves and begin them; remember if there are none."""
    run, memory, inputs = state.run, state.run.memory, state.inputs()
    looked_at, memory.seen, memory.due = memory.looked_at, None, next_change(inputs)
    with run.metrics.timed("scheduler_scheduling_duration_seconds", controller="disruption"):
        proposals = propose(inputs, looked_at, timed=timed(run.metrics))
    note_search(state, proposals)
    memory.looked_at = proposals.looked_at
    state.done["NodesBlocked"] = len(proposals.blocked)
    # A catalogue without offerings is soon replaced.
    has_offerings = any(inputs.catalog.offerings.values())
    if proposals.proposals:
        written = record(inputs, proposals.proposals, state.digest, looked_at=looked_at)
        state.keep_snapshot(inputs.decision)
        state.write_down(inputs.decision, written)
        if not _begin(state, inputs, in_batches(proposals.proposals)):
            state.supersede(inputs.decision, written)
    elif proposals.is_finished and has_offerings:
        memory.seen, memory.next_search = _search_basis(state), next_search(inputs)
        memory.until = min(memory.next_search or inputs.now + LATEST, inputs.now + LATEST)
    with state.failures.of():
        run.publish_new(events.of_staying(proposals, state.ledger.claims), EVENTS_AT_ONCE)


def _begin(state: RunState, inputs: Inputs, proposals: Sequence[Proposal]) -> int:
    """Commit moves, then taint their sources; return the number of moves. A conflict with another run ends the loop."""
    run, version, begun = state.run, inputs.ledger.version, list[Move]()
    try:
        for number, proposal in enumerate(proposals):
            move = _move(f"{inputs.decision}-{number}", proposal, inputs.now)
            run.store.commit(version + number, (), inputs.decision, move)
            begun.append(move)
    except Conflict:
        state.done["Conflict"] += 1
    state.done["MovesProposed"] += len(begun)
    for move in begun:
        with state.failures.of(f"move {move.id}"):
            sources = state.claims(move.sources)
            close(state, sources, move.reason)
            run.publish_new(events.of_proposal(move, sources))
    for reason in sorted({move.reason for move in begun}):
        run.wake_me(SEEN_WITHIN if reason is Reason.DRIFTED else SECOND_LOOK)
    return len(begun)


def _move(id_: str, proposal: Proposal, now: datetime) -> Move:
    return Move(
        id_,
        proposal.reason,
        proposal.sources,
        Stage.PROPOSED,
        now,
        now,
        saving_hourly_usd=proposal.saving_hourly_usd,
        eviction_cost=proposal.eviction_cost,
        message=proposal.message,
    )
