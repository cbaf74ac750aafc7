"""The implementation of `nodesmith disconnect`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.connecting import printing
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.inspection import Environment
from nodesmith_cli.connecting.observed import Cluster
from nodesmith_cli.connecting.reading.apiserver import refuse_without_rights
from nodesmith_cli.connecting.reading.leftovers import LeftoverReading
from nodesmith_cli.connecting.steps.actions import DeleteRegistration, RemoveAction, Row
from nodesmith_cli.connecting.steps.deleting import Remover
from nodesmith_cli.connecting.steps.leftovers import KeepOptions, Leftovers, removals
from nodesmith_cli.output.printing import IS_TEXT, interruptible, print_report
from nodesmith_cli.sharing.ownership import ClusterOwnership, is_installed, read_ownership
from nodesmith_cli.sharing.removal import Removal, Settings, refuse_beside_karpenter
from nodesmith_cli.sharing.waiting import awaited
from nodesmith_formats.wording import some

DONE, LEFT = 0, 1
_NODES = (
    "nothing was changed: nodesmith manages these nodes. Run `nodesmith uninstall` first to delete the NodePools",
    "and drain their nodes, or use --keep-nodes to leave them running",
)
_NODES_OF_NO_CLUSTER = (
    "nothing was changed: the cluster is gone, so nothing drains or ends these instances. Terminate them, then run the "
    "command again, or use --keep-nodes to leave them running:"
)
_NODES_OF_NO_OBJECT = (
    "nothing was changed: these instances have neither Node nor NodeClaim. Functions terminate such instances within "
    "minutes. Run the command again later. If they stay, terminate them, or use --keep-nodes to leave them running:"
)
_NODES_OF_NO_FUNCTION = (
    "no function serves the cluster any more, so nothing drains or ends these instances. Terminate them, then run the "
    "command again, or use --keep-nodes to leave them running:"
)
_NODES_LEFT = "nodes are left: run the command again to continue waiting"
_KEPT_NODES = (
    "these nodes keep running, at your cost, until you terminate them: nothing drains or replaces them any more. "
    "Their Nodes and NodeClaims keep the finalizer karpenter.sh/termination, so a deletion only completes once the "
    "cluster is connected again"
)


@dataclass(frozen=True, slots=True)
class DisconnectOptions:
    """Options of disconnect: the resources to keep, output format, dry run, confirmation and timeout."""

    keep: KeepOptions = field(default_factory=KeepOptions)
    output: str = "table"
    is_dry: bool = False
    is_asked: bool = True
    timeout: timedelta = timedelta(minutes=30)


def disconnect(name: str, environment: Environment, options: DisconnectOptions) -> int:
    """Disconnect a cluster. Returns 0 if nothing of nodesmith is left, 1 if something is, 130 after Ctrl-C.

    Raises Rejected if the cluster is unknown, Transient.
    """
    return interruptible(lambda: _disconnect(name, environment, options))


def _disconnect(name: str, environment: Environment, options: DisconnectOptions) -> int:
    reading = LeftoverReading(environment.client, environment.region)
    cluster, unknown = _cluster(reading, name)
    with printing.working("reading what is left of the cluster"):
        left = reading.leftovers(name, cluster)
    if cluster is None and left.is_nothing:
        raise Rejected(unknown)
    if reading.denied:
        raise Rejected("nothing was changed: " + "; ".join(dict.fromkeys(reading.denied)))
    if stack := reading.cdk_stack(name):
        raise Rejected(
            f"stack {stack} manages the cluster's AWS resources: remove the cluster from `clusters` in cdk.json, run "
            f"`.venv/bin/python -m infra.cdk destroy {stack}`, then run this command again to remove the rest"
        )
    server, ownership = _look_inside(cluster, environment, reading)
    rows, theirs = removals(left, options.keep), _why_theirs(left, server)
    nodes, reason = _nodes(None if left.is_observed else ownership, left, environment.region)
    if nodes and not options.keep.nodes:
        return _refuse(name, nodes, options, reason)
    _show(rows, ownership, options, theirs)
    if options.is_dry:
        return _ended(name, "planned", rows, options)
    if options.is_asked:
        _confirm(name, options)
    instances = partial(reading.instances, name)
    if server is not None and not _take_out(server, environment, options, instances, is_theirs=bool(theirs)):
        return _ended(name, "left", rows, options)
    stack_of_region = reading.stack()
    remover = Remover(
        environment.client, name, stack_of_region.bucket if stack_of_region else "", environment.sleep
    )
    for row, action in _due(rows):
        with printing.step(f"removed {row.object}"):
            remover.carry_out(action)
        if isinstance(action, DeleteRegistration) and not options.keep.nodes and (late := instances()):
            # Launched by the last run of a function. Without the ledger and the profile, nobody would end them.
            return _refuse(
                name, _named(late), options, _terminating(_NODES_OF_NO_FUNCTION, late, environment.region)
            )
    return _ended(name, "disconnected", rows, options)


def _cluster(reading: LeftoverReading, name: str) -> tuple[Cluster | None, str]:
    """Describe the cluster. If it no longer exists in EKS, return None and the message that says so."""
    try:
        return reading.cluster(name), ""
    except Rejected as error:
        if "there is no cluster" not in str(error):
            raise
        return None, str(error)


def _look_inside(
    cluster: Cluster | None, environment: Environment, reading: LeftoverReading
) -> tuple[Applier | None, ClusterOwnership | None]:
    if cluster is None:
        printing.say("the cluster no longer exists in EKS: removing what is left of it in AWS")
        return None, None
    server = environment.server(cluster)
    refuse_without_rights(server, cluster, environment.region, reading.caller()["Arn"])
    return server, read_ownership(server, environment.clock())


def _nodes(
    ownership: ClusterOwnership | None, leftovers: Leftovers, region: str
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the nodes that are left, and why that stops disconnect, with what to do."""
    if ownership is not None and (nodes := awaited(ownership)):
        return [str(node) for node in nodes], _NODES
    reason = (
        _NODES_OF_NO_OBJECT if leftovers.is_registered else f"nothing was changed: {_NODES_OF_NO_FUNCTION}"
    )
    reason = _NODES_OF_NO_CLUSTER if ownership is None else reason
    return _named(leftovers.instances), _terminating(reason, leftovers.instances, region)


def _named(instances: Sequence[str]) -> Sequence[str]:
    return [f"Instance/{instance}" for instance in instances]


def _terminating(reason: str, instances: Sequence[str], region: str) -> Sequence[str]:
    return reason, f"aws ec2 terminate-instances --region {region} --instance-ids {' '.join(instances)}"


def _refuse(name: str, nodes: Sequence[str], options: DisconnectOptions, reason: Sequence[str]) -> int:
    lines = [*(f"still exists: {node}" for node in nodes), *reason]
    report = {"cluster": name, "state": "nodes", "nodes": list(nodes)}
    print_report(report, lines, options.output, names=nodes, schema="disconnection")
    return LEFT


def _why_theirs(leftovers: Leftovers, server: Applier | None) -> str:
    """Return why NodePools and EC2NodeClasses are not nodesmith's; empty if they are."""
    if leftovers.is_released:
        return "since the cluster was released to Karpenter"
    if leftovers.is_observed:
        return "since nodesmith only observed the cluster"
    if server is not None and not leftovers.is_registered and not is_installed(server):
        # An earlier run has removed the rest. Whose they are is not known any more.
        return "since nodesmith neither serves the cluster nor is installed there"
    return ""


def _show(
    rows: Sequence[Row], ownership: ClusterOwnership | None, options: DisconnectOptions, theirs: str
) -> None:
    if options.output not in IS_TEXT:
        return
    printing.print_rows(rows, [])
    nodes = awaited(ownership) if ownership else []
    if nodes and options.keep.nodes:
        print(f"stays            {some(str(node) for node in nodes)}")
        print(f"                 {_KEPT_NODES}")
    if ownership is not None:
        print(
            "in the cluster: the forwarder and the functions' RBAC will be removed" + _also(options, theirs)
        )


def _also(options: DisconnectOptions, theirs: str) -> str:
    if theirs:
        return f"; NodePools and EC2NodeClasses stay, {theirs}"
    return "" if options.keep.nodes else ", with NodePools, EC2NodeClasses, and unshared CRDs"


def _take_out(
    server: Applier,
    environment: Environment,
    options: DisconnectOptions,
    instances: Callable[[], Sequence[str]],
    *,
    is_theirs: bool,
) -> bool:
    removal = Removal(
        server,
        Settings(options.timeout),
        clock=environment.clock,
        sleep=environment.sleep,
        say=printing.say,
        instances=instances,
    )
    if options.keep.nodes or is_theirs:
        removal.take_out()
        return True
    refuse_beside_karpenter(read_ownership(server, environment.clock()))
    return removal.run()


def _confirm(name: str, options: DisconnectOptions) -> None:
    printing.refuse_prompt(options.output)
    if not typer.confirm(f"Disconnect {name}?"):
        raise Rejected("nothing was changed")


def _due(rows: Sequence[Row]) -> Iterator[tuple[Row, RemoveAction]]:
    for row in rows:
        if isinstance(row.action, RemoveAction):
            yield row, row.action


def _ended(name: str, state: str, rows: Sequence[Row], options: DisconnectOptions) -> int:
    report: dict[str, Any] = {"cluster": name, "state": state, "rows": printing.row_items(rows)}
    lines = {"disconnected": ["disconnected"], "left": [_NODES_LEFT]}.get(state, [])
    if lines or options.output not in IS_TEXT:
        print_report(
            report, lines, options.output, names=(row.object for row in rows), schema="disconnection"
        )
    return LEFT if state == "left" else DONE
