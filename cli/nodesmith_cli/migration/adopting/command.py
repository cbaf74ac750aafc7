"""The implementation of `nodesmith adopt` and `nodesmith release`: checks, a plan, a question, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import typer

from nodesmith.adapters.aws.calls import all_errors
from nodesmith.adapters.catalog.catalogs import StoredCatalogs
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.decisions.takeover import is_closing
from nodesmith.errors import Rejected
from nodesmith_cli.connecting import printing
from nodesmith_cli.connecting.inspection import Environment
from nodesmith_cli.connecting.reading.apiserver import refuse_without_rights
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.migration.adopting.assessment import Row, State, assess
from nodesmith_cli.migration.adopting.clients import Controller, Ec2Machines, ServedObjects
from nodesmith_cli.migration.adopting.sequence import Result, Takeover, adopt, release, unsettled
from nodesmith_cli.output.printing import IS_TEXT, interruptible, print_report
from nodesmith_formats.wording import counted

DONE, LEFT = 0, 1
_GONE_WITHIN = timedelta(minutes=3)
"""How long a Karpenter that was scaled down may take until its lease and its Pods are gone."""
_POLL_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """How a command runs: output format, dry run, confirmation, timeout, and for adopt: pause and scaling down."""

    output: str = "table"
    is_dry: bool = False
    is_asked: bool = True
    timeout: timedelta = timedelta(minutes=10)
    pause: timedelta = timedelta(hours=1)
    is_to_scale_down: bool = False


@dataclass(frozen=True, slots=True)
class _Reached:
    run: Takeover
    objects: ServedObjects


def adopt_cluster(name: str, environment: Environment, options: AdoptOptions) -> int:
    """Adopt Karpenter's nodes. Returns 0 if all that can be are adopted, 1 if some are left, 130 after Ctrl-C.

    Raises Rejected if Karpenter runs, or the cluster is not served by nodesmith; Transient.
    """
    with all_errors(f"cluster {name}"):
        return interruptible(lambda: _adopt(name, environment, options))


def release_cluster(name: str, environment: Environment, options: AdoptOptions) -> int:
    """Release all nodes to Karpenter. Returns 0 if that is done, 1 if something is left, 130 after Ctrl-C.

    Raises Rejected, Transient.
    """
    with all_errors(f"cluster {name}"):
        return interruptible(lambda: _release(name, environment, options))


def _adopt(name: str, environment: Environment, options: AdoptOptions) -> int:
    reached = _reach(name, environment)
    running = [controller for controller in reached.objects.controllers() if controller.replicas]
    signs = reached.objects.karpenter()
    hindrance = _obstacle(signs, running, options)
    if hindrance and not options.is_dry:
        raise Rejected(f"{hindrance}. Nothing was changed")
    with printing.working("reading the cluster"):
        assessment = assess(reached.run.read())
    if options.is_dry:
        _show(name, "hindered" if hindrance else "planned", assessment.rows, hindrance, options)
        return LEFT if hindrance else DONE
    if options.is_asked:
        _show(name, "planned", assessment.rows, "", options)
        scaled = f" scale {running[0]} to zero," if signs and running else ""
        count = sum(row.state in (State.ADOPT, State.WAITS) for row in assessment.rows)
        paused = f" pause disruption for {_span(options.pause)}," if options.pause else ""
        _confirm(f"In cluster {name}:{scaled}{paused} adopt {counted(count, 'NodeClaim')}?", options)
    if signs:
        _scale_down(reached.objects, running[0], environment)
    with printing.working("adopting", options.timeout.total_seconds()):
        result = adopt(reached.run, options.pause, options.timeout)
    return _ended(name, "adopted", result, options)


def _release(name: str, environment: Environment, options: AdoptOptions) -> int:
    reached = _reach(name, environment)
    run, objects = reached.run, reached.objects
    ledger, shown = run.store.load(), objects.nodeclaims()
    left = dict(unsettled(ledger, shown))
    rows = [
        Row(f"NodeClaim/{claim.name}", State.RELEASE, left.get(f"NodeClaim/{claim.name}", ""))
        for claim in ledger.claims
    ]
    rows += [
        Row(about, State.WAITS, reason)
        for about, reason in left.items()
        if not about.startswith("NodeClaim/")
    ]
    hindrance = ""
    is_settled = ledger.handover is not None and ledger.handover.is_settled
    if left and not is_settled and (signs := objects.karpenter()):
        hindrance = f"Karpenter runs (it {signs[0]}), so nodesmith stands by and cannot complete {min(left)}"
    if hindrance and not options.is_dry:
        raise Rejected(f"{hindrance}. Scale Karpenter to zero first; nothing was changed")
    if options.is_dry:
        _show(name, "hindered" if hindrance else "planned", rows, hindrance, options)
        return LEFT if hindrance else DONE
    if options.is_asked:
        _show(name, "planned", rows, "", options)
        again = "continue to " if is_closing(ledger) else ""
        _confirm(f"In cluster {name}: {again}hand {counted(len(rows), 'object')} over to Karpenter?", options)
    with printing.working("releasing", options.timeout.total_seconds()):
        result = release(run, options.timeout)
    return _ended(name, "released", result, options)


def _reach(name: str, environment: Environment) -> _Reached:
    """Return the ports of a cluster that nodesmith serves. Raises Rejected, Denied, Transient."""
    reading = AwsReading(environment.client, environment.region)
    cluster = reading.cluster(name)
    stack = reading.stack()
    if stack is None or stack.missing or reading.parameter(name) is None:
        raise Rejected(f"nodesmith does not serve cluster {name}: run `nodesmith connect {name}` first")
    server = environment.server(cluster)
    refuse_without_rights(server, cluster, environment.region, reading.caller()["Arn"])
    blobs = S3Blobs(environment.client("s3"), stack.bucket)
    objects = ServedObjects(server, environment.clock)
    run = Takeover(
        cluster=name,
        store=DynamoStore(environment.client("dynamodb"), stack.table_name, name, environment.clock),
        machines=Ec2Machines(environment.client, name),
        objects=objects,
        snapshot=partial(newest_snapshot, blobs, name),
        catalog=StoredCatalogs(environment.region, blobs).latest(),
        clock=environment.clock,
        sleep=environment.sleep,
        say=printing.say,
    )
    return _Reached(run, objects)


def _obstacle(signs: Sequence[str], running: Sequence[Controller], options: AdoptOptions) -> str:
    """Return why adoption may not begin, empty if it may."""
    if not signs:
        return ""
    if not options.is_to_scale_down:
        return f"Karpenter runs: it {signs[0]}. Scale it to zero, or use --scale-down-karpenter"
    if len(running) != 1:
        names = ", ".join(map(str, running)) or "none with replicas"
        return f"--scale-down-karpenter needs exactly one Deployment of Karpenter, found {names}: scale it yourself"
    return ""


def _scale_down(objects: ServedObjects, controller: Controller, environment: Environment) -> None:
    """Scale Karpenter to zero, and wait until no sign of it is left. Raises Rejected."""
    with printing.step(f"scaled {controller} to zero"):
        objects.scale_down(controller)
        end = environment.clock() + _GONE_WITHIN
        while signs := objects.karpenter():
            if environment.clock() >= end:
                raise Rejected(
                    f"{controller} is scaled to zero, but Karpenter {signs[0]} after three minutes"
                )
            environment.sleep(_POLL_SECONDS)


def _confirm(question: str, options: AdoptOptions) -> None:
    printing.refuse_prompt(options.output)
    if not typer.confirm(question):
        raise Rejected("nothing was changed")


def _ended(name: str, state: str, result: Result, options: AdoptOptions) -> int:
    _show(name, state if result.is_done else "left", result.rows, result.reason, options)
    return DONE if result.is_done else LEFT


def _show(name: str, state: str, rows: Sequence[Row], reason: str, options: AdoptOptions) -> None:
    items: list[dict[str, Any]] = [
        {"object": row.object, "state": str(row.state), "detail": row.detail} for row in rows
    ]
    report = {"cluster": name, "state": state, "rows": items, "reason": reason}
    lines = list(_lines(name, state, rows, reason))
    if lines or options.output not in IS_TEXT:
        print_report(report, lines, options.output, names=(row.object for row in rows), schema="takeover")


def _lines(name: str, state: str, rows: Sequence[Row], reason: str) -> Iterator[str]:
    width = max((len(row.object) for row in rows), default=0)
    for row in rows:
        yield f"{row.state:<8}  {row.object:<{width}}  {row.detail}".rstrip()
    if reason:
        yield reason
    elif state != "planned":
        yield f"{state} {name}: {_counts(rows)}"


def _counts(rows: Sequence[Row]) -> str:
    counts = {state: sum(row.state is state for row in rows) for state in State}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing to do"


def _span(span: timedelta) -> str:
    minutes = round(span.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
