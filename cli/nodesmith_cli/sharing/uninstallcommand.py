"""The implementation of `nodesmith uninstall`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime

import typer

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.errors import Rejected
from nodesmith_cli.output.printing import IS_TEXT, interruptible, print_report
from nodesmith_cli.output.progress import progress
from nodesmith_cli.sharing import removalplan
from nodesmith_cli.sharing.ownership import ClusterOwnership, observes, read_ownership
from nodesmith_cli.sharing.removal import Outcome, Removal, Settings, refuse_beside_karpenter
from nodesmith_formats.wording import counted, printable

DONE, LEFT = 0, 1
_ONLY_OBSERVED = (
    "nodesmith only observes this cluster, so its NodePools and nodes are not nodesmith's: nothing was deleted. Use "
    "`nodesmith disconnect CLUSTER`, which leaves them"
)


def uninstall(
    server: ApiServer,
    settings: Settings,
    *,
    output: str,
    dry_run: bool,
    yes: bool,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Remove nodesmith from a cluster. Returns 0 if nothing is left, 1 if something is, 130 after Ctrl-C.

    Raises Rejected if a Karpenter controller is running or the user declines, Transient.
    """
    with progress("reading the cluster", key="survey"):
        ownership = read_ownership(server, clock())
        if observes(server):
            raise Rejected(_ONLY_OBSERVED)
    if dry_run:
        return _planned(ownership, output)
    refuse_beside_karpenter(ownership)
    if not yes:
        _confirmed(ownership, output)
    removal = Removal(
        server, settings, clock=clock, sleep=sleep, say=lambda line: typer.echo(printable(line), err=True)
    )
    return interruptible(lambda: _remove(removal, settings, output))


def _remove(removal: Removal, settings: Settings, output: str) -> int:
    with progress("removing nodesmith", expected_seconds=settings.timeout.total_seconds()):
        is_done = removal.run()
    _print(removal.outcome, output, is_done=is_done)
    return DONE if is_done else LEFT


def _planned(ownership: ClusterOwnership, output: str) -> int:
    """Print what would be deleted and what would be kept, and delete nothing."""
    nodes = [f"Node/{node['metadata']['name']}" for node in ownership.nodes]
    deleted = [
        *map(
            str,
            [*removalplan.buyers(ownership), *removalplan.claims(ownership), *removalplan.classes(ownership)],
        ),
        *nodes,
    ]
    kept = [asdict(other) for other in removalplan.others(ownership)]
    refused = [f"a Karpenter controller is running: it {reason}" for reason in ownership.karpenter]
    lines = [
        *(f"delete  {name}" for name in deleted),
        *(f"keep    {other['name']}: {other['reason']}" for other in kept),
        *(f"refused {reason}" for reason in refused),
        "then the forwarder, RBAC, and the CRDs that are no longer in use",
    ]
    report = {"delete": deleted, "keep": kept, "refused": refused}
    print_report(report, lines, output, names=deleted, schema="removal-plan")
    return LEFT if refused else DONE


def _confirmed(ownership: ClusterOwnership, output: str) -> None:
    if output not in IS_TEXT:
        raise Rejected(
            f"-o {output} does not prompt: add --yes to continue, or --dry-run to see what would be deleted"
        )
    numbers = f"{counted(len(ownership.nodepools), 'NodePool')} and {counted(len(ownership.nodes), 'node')}"
    if not typer.confirm(f"Delete {numbers}, and remove nodesmith from this cluster?"):
        raise Rejected("nothing was deleted")


def _print(outcome: Outcome, output: str, *, is_done: bool) -> None:
    report = {"done": is_done, **asdict(outcome)}
    print_report(report, _lines(outcome, is_done), output, names=outcome.deleted, schema="removal")


def _lines(outcome: Outcome, is_done: bool) -> Iterator[str]:
    for kept in outcome.kept:
        yield f"kept {kept.name}: {kept.reason}"
    for left in outcome.left:
        yield f"still exists: {left}"
    if outcome.left:
        yield "nothing else was removed. Run the command again to continue waiting. If nodesmith's functions are gone,"
        yield "use --lift-finalizers to remove these objects, and terminate their instances yourself"
    for instance in outcome.instances:
        yield f"not terminated: {instance}"
    if is_done:
        yield "nodesmith is removed from the cluster; its stack, launch templates and instance profiles remain"
