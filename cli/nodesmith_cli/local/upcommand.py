"""What `nodesmith local up` does: a cluster that lives until Ctrl-C, and a window on it."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from rich.console import Console
from rich.live import Live

from nodesmith.errors import Rejected
from nodesmith_cli.local.commands import OK, place_of, show_faults
from nodesmith_cli.local.controlplane import find_binaries
from nodesmith_cli.local.manifests import Manifests, load_manifests
from nodesmith_cli.local.progress import RunProgress
from nodesmith_cli.local.reaching import default_kubeconfig, reachable
from nodesmith_cli.local.running import apply, with_defaults
from nodesmith_cli.local.system import ControlPlaneKind, LocalSystem
from nodesmith_cli.local.timeline import Entry, Timeline
from nodesmith_cli.local.view import console, screen
from nodesmith_cli.records import writable_state_folder

_CONTEXT = "nodesmith-local"
_REFRESH_SECONDS = 1.0


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
) -> int:
    """Run a cluster until interrupted. Raises Rejected for options that make no sense."""
    to_user = console()
    manifests = load_manifests(files) if files else Manifests()
    manifests = manifests if bare else with_defaults(manifests)
    place = place_of(manifests, region, speed, no_capacity, port, control_plane)
    if control_plane == "real":
        find_binaries(to_user.print)  # which may take minutes the first time
    timeline = Timeline(None if to_user.is_terminal else lambda entry: _tell(to_user, entry))
    with _interrupted() as stop, RunProgress(to_user) as progress:
        system = LocalSystem(place, keep or writable_state_folder(), timeline=timeline, stage=progress.stage)
        with system, kubeconfig_at(kubeconfig or default_kubeconfig(), _access(system)) as path:
            progress.close()
            show_faults(to_user, [*manifests.faults, *apply(system, manifests.documents)])
            _greet(to_user, system, path)
            _watch(to_user, system, stop)
    return OK


def _access(system: LocalSystem) -> dict[str, Any]:
    return reachable(system.cluster.kubeconfig(), system.aws.url, system.place.region, system.clock)


def _greet(to: Console, system: LocalSystem, kubeconfig: Path) -> None:
    to.print(f"cluster {system.place.cluster} in {system.place.region}, API server {system.cluster.url}")
    to.print(f"AWS at {system.aws.url}, log in {system.log}")
    to.print(f"metrics for Prometheus at {system.metrics_url}")
    to.print()
    to.print(f"  export KUBECONFIG={kubeconfig}")
    to.print("  kubectl create deployment web --image=busybox --replicas=0 -- sleep infinity")
    to.print("  kubectl set resources deployment web --requests=cpu=1")
    to.print("  kubectl scale deployment web --replicas=20")
    to.print("  kubectl get nodes,pods,nodeclaims,nodepools -o wide")
    to.print("  nodesmith explain decision latest")
    to.print("  nodesmith local interrupt NODE")
    to.print()
    to.print("Ctrl-C ends it; nothing is kept but the records of decisions.")


def _watch(to: Console, system: LocalSystem, stop: threading.Event) -> None:
    """Show nodes and pods until told to stop; without a terminal the timeline has been printing all along."""
    if not to.is_terminal:
        stop.wait()
        return
    with Live(console=to, redirect_stdout=False, redirect_stderr=False, auto_refresh=False) as live:
        while not stop.wait(_REFRESH_SECONDS):
            live.update(screen(system.report(), to.width), refresh=True)


def _tell(to: Console, entry: Entry) -> None:
    to.print(f"{entry.at:%H:%M:%S} {entry.object} {entry.what} {entry.detail}".rstrip())


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set; a second one ends the process as usual."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def interrupt(number: int, frame: Any) -> None:
        del frame
        stop.set()
        signal.signal(number, before[number])

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, interrupt)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def kubeconfig_at(path: Path, kubeconfig: Mapping[str, Any]) -> Iterator[Path]:
    """Write the kubeconfig, readable by its owner only, for as long as its server lives.

    Raises Rejected rather than overwrite a file that leads to another cluster, a local one that runs included.
    """
    text = yaml.safe_dump(dict(kubeconfig), sort_keys=False)
    try:
        _refuse_anothers(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Rejected(f"{path}: {error.strerror}: name another file with --kubeconfig") from None
    try:
        yield path
    finally:
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == text:
                path.unlink()


def _refuse_anothers(path: Path) -> None:
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if not _is_ours(text):
        raise Rejected(
            f"{path}: leads to other clusters too and is left alone: name another with --kubeconfig"
        )
    found = re.search(r"^ *server: *(\S+)", text, re.MULTILINE)
    if found is not None and _answers(found[1]):
        raise Rejected(
            f"{path}: leads to a cluster that still runs at {found[1]}: name another with --kubeconfig"
        )


def _answers(server: str) -> bool:
    """Tell whether anybody listens at a URL, as a server that was killed does not."""
    try:
        where = urlsplit(server)
        with socket.create_connection((str(where.hostname), where.port or 80), timeout=1):
            return True
    except (OSError, ValueError):
        return False


def _is_ours(text: str) -> bool:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    if found is None:
        return True
    return isinstance(found, dict) and [c.get("name") for c in found.get("contexts") or ()] == [_CONTEXT]
