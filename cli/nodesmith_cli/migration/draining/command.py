"""The implementation of `nodesmith migrate --drain`, `--undo` and `--status`: checks, questions, and the result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import typer

from nodesmith.adapters.aws.calls import all_errors
from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.errors import Rejected
from nodesmith_cli.connecting import printing
from nodesmith_cli.connecting.inspection import Environment
from nodesmith_cli.connecting.reading.aws import AwsReading
from nodesmith_cli.migration.draining.groups import AwsGroups, Size
from nodesmith_cli.migration.draining.objects import ServedObjects
from nodesmith_cli.migration.draining.running import (
    USUAL,
    Drain,
    Result,
    Rules,
    State,
    assess_group,
    state_of,
)
from nodesmith_cli.migration.draining.sequence import drain, undo
from nodesmith_cli.output.printing import interruptible, print_data
from nodesmith_formats.wording import counted, printable

DONE, LEFT = 0, 1
_AT_ONCE = re.compile(r"[1-9][0-9]{0,3}|(100|[1-9][0-9]?)%", re.ASCII)
_SHOWN = 20


class Action(StrEnum):
    """What a command does with groups."""

    DRAIN = "drain"
    UNDO = "undo"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """How a command runs: output format, dry run, confirmation, and the limits of a drain."""

    output: str = "table"
    is_dry: bool = False
    is_asked: bool = True
    rules: Rules = USUAL


def rules_of(at_once: str, timeout: timedelta, failures: int) -> Rules:
    """Return the limits of a drain from options. Raises Rejected for values that cannot be."""
    if not _AT_ONCE.fullmatch(at_once):
        raise Rejected(
            f"--max-unavailable {at_once!r}: expected a number of nodes such as 2, or a percentage such as 10%"
        )
    if failures < 1:
        raise Rejected(f"--max-failures {failures}: must be at least 1")
    return Rules(at_once, timeout, failures)


def run_on_groups(
    action: Action, cluster: str, names: Sequence[str], environment: Environment, options: DrainOptions
) -> int:
    """Drain groups one after another, undo that, or show how far it is. Return the exit status.

    That is 0 if nothing is left to do, 1 if something is, and 130 after Ctrl-C. Raises Rejected, Transient.
    """
    if action is not Action.STATUS and not names:
        raise Rejected(f"--{action} needs the groups: --group NAME, which may be repeated")
    with all_errors(f"cluster {cluster}"):
        return interruptible(lambda: _run(action, cluster, names, environment, options), ", or with --undo")


def _run(
    action: Action, cluster: str, names: Sequence[str], environment: Environment, options: DrainOptions
) -> int:
    is_reading = action is Action.STATUS or options.is_dry
    if options.is_asked and not is_reading:
        printing.refuse_prompt(options.output)
    server = environment.server(AwsReading(environment.client, environment.region).cluster(cluster))
    objects = ServedObjects(server, environment.clock)
    run = _reached(cluster, objects, environment, options)
    names = names or run.groups.names()
    if is_reading:
        with printing.working("looking at the groups"):
            looked = [_looked(run, action, name) for name in names]
        return _shown(action, cluster, looked, options)
    objects.refuse_without_rights(cluster)
    for name in names:
        run.groups.read(name)  # an unknown group is refused before the first one is changed
    return _shown(action, cluster, list(_done(run, action, names)), options)


def _reached(cluster: str, objects: ServedObjects, environment: Environment, options: DrainOptions) -> Drain:
    return Drain(
        groups=AwsGroups(environment.client, cluster),
        objects=objects,
        catalog=embedded_catalog(environment.region),
        clock=environment.clock,
        sleep=environment.sleep,
        say=printing.say,
        ask=_ask if options.is_asked else lambda _: True,
        rules=options.rules,
    )


def _done(run: Drain, action: Action, names: Sequence[str]) -> Iterator[Result]:
    """Do it to one group after another. After a rollback, no other group is begun: it would fare no better."""
    for name in names:
        result = drain(run, name) if action is Action.DRAIN else undo(run, name)
        yield result
        if result.state is State.ROLLED_BACK:
            return


def _looked(run: Drain, action: Action, name: str) -> Result:
    """Return how far a group is, and what keeps it from being drained."""
    seen = assess_group(run, name, is_planned=action is Action.DRAIN)
    state = state_of(seen.group)
    if action is not Action.DRAIN or state is State.DRAINED:
        return Result(state, seen)
    return Result(State.HINDERED if seen.obstacles else state, seen, (*seen.obstacles, *seen.notes))


def _ask(question: str) -> bool:
    return bool(typer.confirm(printable(question), err=True))


def _is_done(action: Action, result: Result, *, is_dry: bool) -> bool:
    if is_dry and action is not Action.STATUS:
        return result.state is not State.HINDERED
    if action is Action.UNDO:
        return result.state in (State.RESTORED, State.UNTOUCHED)
    return result.state is State.DRAINED


def _shown(action: Action, cluster: str, results: Sequence[Result], options: DrainOptions) -> int:
    if options.output == "json":
        print_data(
            {"cluster": cluster, "groups": [_item(result) for result in results]}, options.output, "drain"
        )
    else:
        if not results:
            print(f"{cluster} has neither managed node groups nor Auto Scaling groups")
        for result in results:
            print(printable(_line(result)))
            for reason in result.messages[:_SHOWN]:
                print(printable(f"    {reason}"))
            if len(result.messages) > _SHOWN:
                print(f"    and {len(result.messages) - _SHOWN} more: see -o json")
    return DONE if all(_is_done(action, result, is_dry=options.is_dry) for result in results) else LEFT


def _line(result: Result) -> str:
    group, seen = result.seen.group, result.seen
    there = f"{counted(len(group.instances), 'instance')}, {counted(len(seen.pods), 'pod')} to move"
    planned = f", {counted(seen.planned, 'new node')} planned" if seen.planned else ""
    before = f"; before its drain {group.before.size}" if group.before else ""
    return f"{result.state:<11}  {group}: {there}{planned}; {group.size}{before}"


def _item(result: Result) -> dict[str, Any]:
    group, seen = result.seen.group, result.seen
    before = group.before
    return {
        "group": group.name,
        "kind": str(group.kind),
        "state": str(result.state),
        "instances": list(group.instances),
        "nodes": sorted(str(node["metadata"]["name"]) for node in seen.nodes.values()),
        "pods": [pod.key for pod in seen.pods],
        "plannedNodes": seen.planned,
        "size": _size(group.size),
        "before": _size(before.size) if before else None,
        "messages": list(result.messages),
    }


def _size(size: Size) -> dict[str, int]:
    return {"min": size.minimum, "desired": size.desired, "max": size.maximum}
