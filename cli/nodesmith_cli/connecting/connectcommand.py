"""The implementation of `nodesmith connect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.connecting import printing
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.inspection import Environment, Inspection, inspect_cluster
from nodesmith_cli.connecting.observed import Account
from nodesmith_cli.connecting.reading.cluster import without_credentials
from nodesmith_cli.connecting.request import ConnectRequest, registration
from nodesmith_cli.connecting.steps.actions import Action, ResourceState, RestartForwarder, Row
from nodesmith_cli.connecting.steps.creating import ActionRunner
from nodesmith_cli.connecting.waiting import FRESH, Snapshots, missing_because, wait_for_snapshot
from nodesmith_cli.output.printing import IS_TEXT, WIDE, interruptible, print_report
from nodesmith_formats.wording import counted, some

CONNECTED, NOT_CONNECTED = 0, 1
_MEND_SECONDS = 30.0
_HINDERED = "nothing was changed: fix the errors above, then run the command again"


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How the command runs: output format, dry run, confirmation, timeout and image push."""

    output: str = "table"
    is_dry: bool = False
    is_asked: bool = True
    timeout: timedelta = timedelta(minutes=10)
    push: Callable[[], str] | None = None
    """Builds and pushes the forwarder's image, and returns its reference by digest."""


def connect(request: ConnectRequest, environment: Environment, options: ConnectOptions) -> int:
    """Connect a cluster. Returns 0 once it is served, 1 if something prevents that, 130 after Ctrl-C.

    Raises Rejected, Transient, Conflict.
    """
    return interruptible(lambda: _connect(request, environment, options))


def _connect(request: ConnectRequest, environment: Environment, options: ConnectOptions) -> int:
    with printing.working("reading the account and the cluster"):
        seen = inspect_cluster(request, environment)
    if options.output in IS_TEXT:
        printing.print_rows(seen.rows, seen.findings, is_wide=options.output == WIDE)
    if seen.is_blocked or options.is_dry:
        return _ended(seen, options, "hindered" if seen.is_blocked else "planned")
    if seen.due and options.is_asked:
        _confirm(request.cluster, seen.due, options)
    if options.push is not None:
        seen = inspect_cluster(replace(request, image=options.push()), environment)
    snapshots = _snapshots(seen.account, environment)
    before = snapshots.newest()
    if not seen.due and before is not None and environment.clock() - before.at < FRESH:
        return _ended(seen, options, "connected")
    carrier = ActionRunner(environment.client, seen.server, seen.account, environment.sleep)
    for row in seen.due:
        if isinstance(row.action, Action):
            with printing.step(
                f"{'created' if row.standing is ResourceState.MADE else 'changed'} {row.object}"
            ):
                carrier.carry_out(row.action)
    mending = _PodReplacer(carrier, seen.server, environment.sleep)
    with printing.working("waiting for the first snapshot", options.timeout.total_seconds()):
        snapshot = wait_for_snapshot(
            snapshots, before, options.timeout, clock=environment.clock, sleep=mending.sleep
        )
    if snapshot is not None:
        mending.replace_pods()  # the snapshot may come from observation, not from the forwarder
        return _ended(seen, options, "connected")
    for line in missing_because(seen.server, registration(request, seen.account).reached_from):
        printing.say(line)
    printing.say(f"no snapshot arrived within {options.timeout}: check the above, then run the command again")
    return _ended(seen, options, "waiting")


class _PodReplacer:
    """Replaces pods without credentials while waiting, since a new association takes EKS some seconds."""

    def __init__(self, carrier: ActionRunner, server: Applier, sleep: Callable[[float], None]) -> None:
        self._carrier, self._server, self._sleep = carrier, server, sleep
        self._since = _MEND_SECONDS

    def sleep(self, seconds: float) -> None:
        """Wait, then replace pods if needed."""
        self._sleep(seconds)
        self._since += seconds
        self.replace_pods()

    def replace_pods(self) -> None:
        """Replace pods without credentials, unless they were replaced less than 30 seconds ago."""
        if self._since >= _MEND_SECONDS and (pods := without_credentials(self._server)):
            printing.say(f"replacing {some(pods)}: created before the Pod Identity association")
            self._carrier.carry_out(RestartForwarder())
            self._since = 0.0


def _snapshots(account: Account, environment: Environment) -> Snapshots:
    stack = account.stack
    return Snapshots(environment.client, stack.bucket if stack else "", account.cluster.name)


def _confirm(cluster: str, due: Sequence[Row], options: ConnectOptions) -> None:
    printing.refuse_prompt(options.output)
    if not typer.confirm(f"Connect {cluster} ({counted(len(due), 'change')})?"):
        raise Rejected("nothing was changed")


def _ended(inspection: Inspection, options: ConnectOptions, state: str) -> int:
    is_fine = state == "connected" or (state == "planned" and not inspection.is_blocked)
    report = {
        "cluster": inspection.account.cluster.name,
        "region": inspection.account.region,
        "state": state,
        "rows": printing.row_items(inspection.rows),
        "findings": printing.as_items(inspection.findings),
    }
    lines = {"connected": ["connected"], "hindered": [_HINDERED]}.get(state, [])
    if lines or options.output not in IS_TEXT:
        names = (row.object for row in inspection.rows)
        print_report(report, lines, options.output, names=names, schema="connection")
    return CONNECTED if is_fine else NOT_CONNECTED
