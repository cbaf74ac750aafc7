"""The commands `nodesmith local run`, `local up` and `demo`, and their exit status."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.observation.decoding import decode
from nodesmith_cli.access.preconditions import require_speed
from nodesmith_cli.commands.options import seconds_of
from nodesmith_cli.output.printing import HTML, IS_TEXT, TABLE, print_data
from nodesmith_cli.output.terminal import ESTIMATE, console, price_text
from nodesmith_cli.simulator.localcommands.progress import RunProgress
from nodesmith_cli.simulator.localcommands.view import latency_table, screen
from nodesmith_formats.decisions.records import Folder, Records, writable_state_folder
from nodesmith_formats.decisions.summaries import price_and_bound, summary
from nodesmith_formats.manifests.manifests import Fault, Manifests, load_manifests
from nodesmith_formats.manifests.places import cluster_of, region_of, zones_of
from nodesmith_formats.shipped import shipped
from nodesmith_local.runs.interrupting import Interrupted, drawn, interrupt_two
from nodesmith_local.runs.running import Outcome, converted_objects, simulate, with_defaults
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.shrinking import ScaleDown, grow, shrink
from nodesmith_local.runs.system import ControlPlaneKind, LocalSystem, Place
from nodesmith_local.runs.timeline import Timeline

OK, PODS_PENDING, BAD_INPUT = 0, 1, 2
_DEMO_LONGEST = "15m"
_DEMO_LEFT = 10
"""Replicas left, of 20."""
_DEMO_AGAIN = 15
"""Replicas after growing again; the two remaining nodes hold 14, so a third node is bought."""


def run(
    files: Sequence[str],
    *,
    region: str,
    patience_seconds: float,
    speed: float,
    no_capacity: Sequence[str],
    output: str,
    keep: Path | None,
    bare: bool,
) -> int:
    """Apply files, run until quiet, and print a report; return the exit status.

    Raises Rejected for invalid options.
    """
    to_user, to_side = console(), console(stderr=True)
    manifests = load_manifests(files)
    if not manifests.documents:
        show_faults(to_side, manifests.faults)
        return BAD_INPUT
    manifests = manifests if bare else with_defaults(manifests)
    place = place_of(manifests, region, speed, no_capacity)
    progress_to = to_user if output in IS_TEXT else to_side
    outcome, decisions = _simulate(place, manifests, patience_seconds, keep, progress_to)
    show_faults(to_side, outcome.faults)
    if output == HTML:
        _deliver(outcome, decisions, keep, "What a local run launched", "local-run")
    elif output in IS_TEXT:
        _show(to_user, outcome)
    else:
        print_data(outcome.report.to_json(), output, "run")
        if outcome.activity:
            to_side.print(f"time is up: {outcome.activity}", style="yellow", soft_wrap=True)
    return exit_status(outcome)


def demo(*, speed: float, keep: Path | None, output: str = TABLE) -> int:
    """Run the example of 20 pods from purchase to interruption; return the exit status."""
    to_user = console(stderr=output == HTML)
    example = shipped("_examples", "examples") / "express-test"
    manifests = load_manifests([str(example)])
    place = place_of(manifests, "", speed)
    to_user.print(
        f"nodesmith demo: {_display_path(example)} in {place.region}, at {place.speed:g} times real time"
    )
    seconds = seconds_of("--for", _DEMO_LONGEST)
    shrunk: list[ScaleDown] = []
    interrupted: list[Interrupted | None] = []

    def further_acts(cluster: ServedCluster) -> None:
        shrunk.append(shrink(cluster, "express-test", _DEMO_LEFT, seconds))
        grow(cluster, "express-test", _DEMO_AGAIN, seconds)
        interrupted.append(interrupt_two(cluster, seconds))

    outcome, decisions = _simulate(place, manifests, seconds, keep, to_user, further_acts)
    show_faults(to_user, outcome.faults)
    if output == HTML:
        _deliver(outcome, decisions, keep, "nodesmith demo", "demo", shrunk, list(filter(None, interrupted)))
        return exit_status(outcome)
    _show(to_user, outcome)
    _show_why(to_user, decisions)
    for scale_down in shrunk:
        _show_shrunk(to_user, scale_down)
    for interruption in filter(None, interrupted):
        _show_interrupted(to_user, interruption)
    _show_next(to_user)
    return exit_status(outcome)


def _deliver(
    outcome: Outcome,
    decisions: Sequence[Mapping[str, Any]],
    keep: Path | None,
    title: str,
    what: str,
    shrunk: Sequence[ScaleDown] = (),
    interrupted: Sequence[Interrupted] = (),
) -> None:
    from nodesmith_cli.output.reporting.delivery import deliver
    from nodesmith_cli.simulator.localcommands.page import demo_sections, run_page

    blobs = Folder(keep or writable_state_folder())
    decided = [
        (record, _shapes(Records(blobs, record["cluster"]).snapshot(record["id"]))) for record in decisions
    ]
    deliver(run_page(outcome, decided, title, demo_sections(shrunk, interrupted)), what)


def _shapes(snapshot: bytes | None) -> Mapping[str, Shape]:
    """Return the shapes of the pods that a decision saw."""
    return {pod.key: pod.shape for pod in decode(snapshot).pods} if snapshot else {}


def _simulate(
    place: Place,
    manifests: Manifests,
    seconds: float,
    keep: Path | None,
    progress_to: Console,
    then: Callable[[ServedCluster], None] = lambda _: None,
) -> tuple[Outcome, Sequence[Mapping[str, Any]]]:
    with RunProgress(progress_to, is_quiet=progress_to.stderr) as progress:
        system = LocalSystem(
            place,
            keep or writable_state_folder(),
            timeline=lambda _: Timeline(progress.entry),
            stage=progress.stage,
        )
        with system:
            outcome = simulate(system.first, manifests, seconds)
            decisions = [record for record in system.first.decisions.all if record["plan"]["nodes"]]
            if not outcome.activity:
                then(system.first)
    for complaint in system.invoker.failures_by_function():
        progress_to.print(f"{complaint}; see {system.log}", style="yellow")
    return outcome, decisions


def place_of(
    manifests: Manifests,
    region: str,
    speed: float,
    no_capacity: Sequence[str] = (),
    port: int = 0,
    control_plane: ControlPlaneKind = "embedded",
    clusters: int = 1,
) -> Place:
    """Return the place of a run; the manifests determine what the options leave open. Raises Rejected."""
    require_speed(speed, control_plane)
    objects = converted_objects(manifests.documents)
    region = region or region_of(objects)
    sold_in = {offering.zone for sold in embedded_catalog(region).offerings.values() for offering in sold}
    zones = zones_of(objects, region, sold_in)
    return Place(region, cluster_of(objects), zones, speed, port, tuple(no_capacity), control_plane, clusters)


def exit_status(outcome: Outcome) -> int:
    """Return 1 if pods stay pending, 2 if the input has faults, 1 if time was up before there were all pods, else 0."""
    if outcome.report.pending:
        return PODS_PENDING
    if outcome.faults:
        return BAD_INPUT
    return PODS_PENDING if outcome.activity else OK


def _show(to: Console, outcome: Outcome) -> None:
    to.print()
    to.print(screen(outcome.report, to.width))
    if outcome.report.price.estimated:
        to.print(ESTIMATE, style="dim")
    if outcome.latencies:
        to.print()
        to.print(latency_table(outcome.latencies))
        to.print(
            "  in the cluster's seconds; nodesmith's own running time counts --speed times",
            style="dim",
        )
    for problem in outcome.problems():
        to.print(problem, style="yellow")
    if outcome.activity:
        to.print(f"time is up: {outcome.activity}", style="yellow")


def _show_why(to: Console, decisions: Sequence[Mapping[str, Any]]) -> None:
    for record in decisions:
        to.print()
        to.print(f"why these nodes: decision {record['id']}")
        to.print(f"  {summary(record)}")
        to.print(f"  {price_and_bound(record['plan'])}")


def _show_shrunk(to: Console, shrunk: ScaleDown) -> None:
    to.print()
    to.print(f"half of the pods are removed: the Deployment is scaled to {_DEMO_LEFT} replicas")
    for record in shrunk.decisions:
        for move in record["plan"]["moves"] if not record["again"] else ():
            to.print(f"  {move['message']}")
    to.print()
    to.print(screen(shrunk.after, to.width))
    to.print()
    before, after = price_text(shrunk.before.price), price_text(shrunk.after.price)
    to.print(f"from {before} to {after} an hour: ${shrunk.saving_yearly_usd:,.0f} less in a year")
    if shrunk.activity:
        to.print(f"time is up: {shrunk.activity}", style="yellow")


def _show_interrupted(to: Console, interrupted: Interrupted) -> None:
    to.print()
    taken = f"EC2 reclaims {interrupted.taken} of {interrupted.nodes} nodes with two minutes' notice"
    to.print(f"{_DEMO_AGAIN} replicas again. {taken}: their replacements are ready first")
    for line in drawn(interrupted):
        to.print(line)
    if interrupted.activity:
        to.print(f"time is up: {interrupted.activity}", style="yellow")


def _show_next(to: Console) -> None:
    command = sys.argv[0] if Path(sys.argv[0]).name == "nodesmith" else "nodesmith"
    if command == shutil.which("nodesmith"):
        command = "nodesmith"
    to.print()
    to.print("next:")
    for arguments, purpose in (
        ("local up", "a cluster to try kubectl on"),
        ("local run -f FILE …", "your own manifests"),
        ("explain decision --replay", "the last decision, made again"),
    ):
        to.print(f"  {command} {arguments:<27}{purpose}")


def show_faults(to: Console, faults: Sequence[Fault]) -> None:
    """Print the faults of manifests, one per line."""
    for fault in faults:
        to.print(str(fault), style="red")


def _display_path(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
