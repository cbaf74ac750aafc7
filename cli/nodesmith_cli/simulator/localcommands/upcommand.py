"""`nodesmith local up`: clusters that run until Ctrl-C, and a live view of them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from nodesmith_cli.output.progress import progress as step
from nodesmith_cli.output.terminal import console
from nodesmith_cli.simulator.localcommands.commands import OK, place_of, show_faults
from nodesmith_cli.simulator.localcommands.greeting import greet, page_of
from nodesmith_cli.simulator.localcommands.kubeconfigs import CONTEXT, kubeconfig_at, merged, renamed
from nodesmith_cli.simulator.localcommands.progress import RunProgress
from nodesmith_cli.simulator.localcommands.view import cluster_views
from nodesmith_formats.decisions.records import writable_state_folder
from nodesmith_formats.localsystem.reaching import default_kubeconfig, reachable
from nodesmith_formats.manifests.manifests import Fault, Manifests, load_manifests
from nodesmith_formats.manifests.places import numbered
from nodesmith_local.controlplane import find_binaries
from nodesmith_local.runs.ownmanifests import of_cluster
from nodesmith_local.runs.running import apply, with_defaults
from nodesmith_local.runs.system import ControlPlaneKind, LocalSystem, Place
from nodesmith_local.runs.timeline import Entry, Timeline

_REFRESH_SECONDS = 1.0
_BUILD_SECONDS = 300.0


def up(
    files: Sequence[str],
    *,
    region: str,
    speed: float,
    no_capacity: Sequence[str],
    port: int,
    kubeconfig: Path | None,
    keep: Path | None,
    bare: bool,
    control_plane: ControlPlaneKind,
    clusters: int = 1,
    page: bool = False,
) -> int:
    """Run clusters until interrupted, with the page of `nodesmith ui` if asked. Raises Rejected for invalid options."""
    to_user = console()
    manifests = load_manifests(files) if files else Manifests()
    manifests = manifests if bare else with_defaults(manifests)
    place = place_of(manifests, region, speed, no_capacity, port, control_plane, clusters)
    if control_plane == "real":
        with step("building the control plane", key="controlplane", expected_seconds=_BUILD_SECONDS):
            find_binaries(to_user.print)  # takes minutes the first time, and nothing later
    with _interrupted() as stop, RunProgress(to_user) as progress:
        system = LocalSystem(
            place, keep or writable_state_folder(), timeline=_timelines(to_user, place), stage=progress.stage
        )
        with system, kubeconfig_at(kubeconfig or default_kubeconfig(), access(system)) as path:
            progress.close()
            show_faults(to_user, _applied(system, manifests))
            with _page(to_user, system, path) if page else nullcontext("") as link:
                greet(to_user, system, path, link, keep)
                _watch(to_user, system, stop)
    return OK


def _page(to: Console, system: LocalSystem, kubeconfig: Path) -> AbstractContextManager[str]:
    """Serve the page of the first cluster; a new link is printed each time that one was followed."""
    from nodesmith_cli.views.ui.running import UiRequest, serving

    def used(link: str) -> None:
        to.print(f"{page_of(system)}, for another browser, at {link}", soft_wrap=True)

    return serving(UiRequest(kubeconfig=str(kubeconfig)), system.clock.now, used)


def _timelines(to: Console, place: Place) -> Callable[[str], Timeline]:
    """Return a factory for the clusters' timelines; they print entries if there is no terminal to draw on."""

    def timeline(cluster: str) -> Timeline:
        named = cluster if place.clusters > 1 else ""
        return Timeline(None if to.is_terminal else lambda entry: to.print(line_of(entry, named)))

    return timeline


def _applied(system: LocalSystem, manifests: Manifests) -> list[Fault]:
    """Apply the manifests to every cluster; return the faults, each fault once."""
    faults = list(manifests.faults)
    for cluster in system.clusters:
        documents = manifests.documents
        if len(system.clusters) > 1:
            documents = tuple(of_cluster(documents, cluster.name, system.first.name))
        faults += apply(cluster, documents)
    return list(dict.fromkeys(faults))


def access(system: LocalSystem) -> dict[str, Any]:
    """Return the kubeconfig with a context for each cluster; the current context is the first one's."""
    return merged(
        [
            reachable(
                renamed(cluster.cluster.kubeconfig(), numbered(CONTEXT, number)),
                system.aws.url,
                system.place.region,
                system.clock,
                cluster.name,
                system.chaos_url,
            )
            for number, cluster in enumerate(system.clusters, start=1)
        ]
    )


def line_of(entry: Entry, cluster: str = "") -> str:
    """Format a milestone as one line. `cluster` is the cluster's name if there are several."""
    return " ".join(filter(None, (f"{entry.at:%H:%M:%S}", cluster, entry.object, entry.what, entry.detail)))


def _watch(to: Console, system: LocalSystem, stop: threading.Event) -> None:
    """Show nodes and pods until `stop` is set; without a terminal, the timeline prints instead."""
    if not to.is_terminal:
        stop.wait()
        return
    with Live(console=to, redirect_stdout=False, redirect_stderr=False, auto_refresh=False) as live:
        while not stop.wait(_REFRESH_SECONDS):
            reports = {cluster.name: cluster.report() for cluster in system.clusters}
            live.update(cluster_views(reports, to.width), refresh=True)


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; a second signal ends the process as usual."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def interrupt(number: int, frame: Any) -> None:
        del frame
        stop.set()
        signal.signal(number, before[number])

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        before[signal_number] = signal.signal(signal_number, interrupt)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
