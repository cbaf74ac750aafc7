"""What `nodesmith disconnect` does, from its options to its exit status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.connecting import told
from nodesmith_cli.connecting.actions import Row
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.connectcommand import STOPPED
from nodesmith_cli.connecting.leftoverreading import LeftoverReading
from nodesmith_cli.connecting.leftovers import Keeping, removals
from nodesmith_cli.connecting.looking import Around
from nodesmith_cli.connecting.observed import Cluster
from nodesmith_cli.connecting.reaching import refuse_without_rights
from nodesmith_cli.connecting.removing import RemoveAction
from nodesmith_cli.connecting.takingaway import Remover
from nodesmith_cli.printing import some
from nodesmith_cli.sharing.awaited import awaited
from nodesmith_cli.sharing.removal import Removal, Settings, refuse_beside_karpenter
from nodesmith_cli.sharing.survey import Survey, take_survey

DONE, LEFT = 0, 1
_KEPT_NODES = (
    "these nodes stay and cost money until you end them: nobody drains or replaces them any more. Their Nodes and "
    "NodeClaims keep the finalizer karpenter.sh/termination: deleting one waits until the cluster is connected again"
)


@dataclass(frozen=True, slots=True)
class HowToLeave:
    """How disconnect goes about it."""

    keeping: Keeping = field(default_factory=Keeping)
    output: Literal["table", "json"] = "table"
    is_dry: bool = False
    is_asked: bool = True
    timeout: timedelta = timedelta(minutes=30)


def disconnect(name: str, around: Around, how: HowToLeave) -> int:
    """Disconnect a cluster; 0 when nothing is left of nodesmith, 1 when something is, 130 after Ctrl-C.

    Raises Rejected where nothing is known of such a cluster; Transient.
    """
    try:
        return _disconnect(name, around, how)
    except KeyboardInterrupt:
        typer.echo("nodesmith: stopped; run it again to go on from here", err=True)
        return STOPPED


def _disconnect(name: str, around: Around, how: HowToLeave) -> int:
    reading = LeftoverReading(around.client, around.region)
    cluster, unknown = _cluster(reading, name)
    left = reading.leftovers(name, cluster)
    if cluster is None and left.is_nothing:
        raise Rejected(unknown)
    if reading.denied:
        raise Rejected("nothing was changed: " + "; ".join(dict.fromkeys(reading.denied)))
    if stack := reading.cdk_stack(name):
        raise Rejected(
            f"stack {stack} makes the cluster's part in AWS: take the cluster out of `clusters` in cdk.json, then "
            f".venv/bin/python -m infra.cdk destroy {stack}, and run this again for what is left"
        )
    server, survey = _look_inside(cluster, around, reading)
    rows = removals(left, how.keeping)
    if survey is not None and not how.keeping.nodes and (nodes := awaited(survey)):
        return _refuse(name, [str(each) for each in nodes], how)
    _show(rows, survey, how)
    if how.is_dry:
        return _ended(name, "planned", rows, how)
    if how.is_asked:
        _confirm(name, how)
    if server is not None and not _take_out(server, around, how):
        return _ended(name, "left", rows, how)
    stack_of_region = reading.stack()
    remover = Remover(around.client, name, stack_of_region.bucket if stack_of_region else "", around.sleep)
    for row, action in _due(rows):
        with told.step(f"removed {row.object}"):
            remover.carry_out(action)
    return _ended(name, "disconnected", rows, how)


def _cluster(reading: LeftoverReading, name: str) -> tuple[Cluster | None, str]:
    """Describe the cluster; None, and why, where EKS has it no more."""
    try:
        return reading.cluster(name), ""
    except Rejected as error:
        if "there is no cluster" not in str(error):
            raise
        return None, str(error)


def _look_inside(
    cluster: Cluster | None, around: Around, reading: LeftoverReading
) -> tuple[Applier | None, Survey | None]:
    if cluster is None:
        told.say("EKS has the cluster no more: what is left of it in AWS is taken away")
        return None, None
    server = around.server(cluster)
    refuse_without_rights(server, cluster, around.region, reading.caller()["Arn"])
    return server, take_survey(server, around.clock())


def _refuse(name: str, nodes: Sequence[str], how: HowToLeave) -> int:
    if how.output == "json":
        told.print_json({"cluster": name, "state": "nodes", "nodes": nodes})
        return LEFT
    for node in nodes:
        print(f"still there: {node}")
    print(
        "nothing was changed: these nodes are nodesmith's. End them first: `nodesmith uninstall` deletes NodePools"
    )
    print("and drains their nodes. --keep-nodes leaves them running")
    return LEFT


def _show(rows: Sequence[Row], survey: Survey | None, how: HowToLeave) -> None:
    if how.output == "json":
        return
    told.print_rows(rows, [])
    nodes = awaited(survey) if survey else []
    if nodes and how.keeping.nodes:
        print(f"stays            {some(str(each) for each in nodes)}")
        print(f"                 {_KEPT_NODES}")
    if survey is not None:
        print("and of the cluster: the forwarder and the functions' rights" + _also(how))


def _also(how: HowToLeave) -> str:
    return "" if how.keeping.nodes else ", NodePools, EC2NodeClasses, and CRDs that nobody else needs"


def _take_out(server: Applier, around: Around, how: HowToLeave) -> bool:
    removal = Removal(server, Settings(how.timeout), clock=around.clock, sleep=around.sleep, say=told.say)
    if how.keeping.nodes:
        removal.take_out()
        return True
    refuse_beside_karpenter(take_survey(server, around.clock()))
    return removal.run()


def _confirm(name: str, how: HowToLeave) -> None:
    if how.output == "json":
        raise Rejected("-o json asks nothing: add --yes to go on, or --dry-run to see what would be removed")
    if not typer.confirm(f"Disconnect {name}?"):
        raise Rejected("nothing was changed")


def _due(rows: Sequence[Row]) -> Iterator[tuple[Row, RemoveAction]]:
    for row in rows:
        if isinstance(row.action, RemoveAction):
            yield row, row.action


def _ended(name: str, state: str, rows: Sequence[Row], how: HowToLeave) -> int:
    if how.output == "json":
        report: dict[str, Any] = {"cluster": name, "state": state, "rows": told.row_items(rows)}
        told.print_json(report)
    elif state == "disconnected":
        print("disconnected")
    elif state == "left":
        print("nodes are left: run it again to go on waiting")
    return LEFT if state == "left" else DONE
