"""The implementation of `nodesmith ui`: a server on loopback for as long as a block runs."""

from __future__ import annotations

import logging
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from threading import Event, Thread

from waitress.server import create_server

from nodesmith.errors import Rejected
from nodesmith_cli.access.cluster import server_of
from nodesmith_cli.costs.savings.running import context_name
from nodesmith_cli.views.explaining.commands import RecordSource
from nodesmith_cli.views.explaining.nodecommand import catalog_of
from nodesmith_cli.views.top.actions import Actions
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.updates import kept_up_to_date
from nodesmith_cli.views.ui.access import LOOPBACK, Gate
from nodesmith_cli.views.ui.archive import Archive
from nodesmith_cli.views.ui.pages.kept import PageData
from nodesmith_cli.views.ui.samples import OnDemandPrices, Sampler
from nodesmith_cli.views.ui.server import Site, make_app
from nodesmith_cli.views.ui.sources import KeptLedger, sources_of

OK = 0
_PATIENCE_SECONDS, _FIRST_LOOK_SECONDS = 5.0, 10.0
_THREADS, _MOST_BODY = 8, 1024


@dataclass(frozen=True, slots=True)
class UiRequest:
    """What to show, and where. `port` 0 takes a free one; `compares` runs `nodesmith savings` in the background."""

    source: RecordSource = field(default_factory=RecordSource)
    kubeconfig: str = ""
    port: int = 0
    opens: bool = False
    compares: bool = True


def run(request: UiRequest, clock: Callable[[], datetime]) -> int:
    """Serve the page until Ctrl-C, and return the exit status. Raises Rejected or Transient."""
    with serving(request, clock, lambda link: print(f"for another browser: {link}", flush=True)) as link:
        print(f"nodesmith ui: {link}", flush=True)
        print("The link lets one browser in. Ctrl-C ends it.", flush=True)
        if request.opens:
            webbrowser.open(link)
        try:
            Event().wait()
        except KeyboardInterrupt:
            print()
    return OK


@contextmanager
def serving(request: UiRequest, clock: Callable[[], datetime], used: Callable[[str], None]) -> Iterator[str]:
    """Yield the link to the page, which is served while the block runs. Raises Rejected or Transient.

    `used` is called with a new link each time one was followed.
    """
    sources = sources_of(request.source, request.kubeconfig, clock)
    api = server_of(request.kubeconfig, patience_seconds=_PATIENCE_SECONDS)
    api.get("/version")  # fails at once if the cluster cannot be reached
    name = sources.cluster or context_name(request.kubeconfig)
    fleet = Fleet(name)
    sampler = Sampler(fleet, clock, OnDemandPrices(partial(catalog_of, blobs=None)))
    ledger = KeptLedger(sources, time.monotonic)
    page_data = PageData(
        name, sampler, Archive(sources.records), ledger, sources, Actions(api, fleet).explained
    )
    stop = Event()
    with kept_up_to_date(fleet, api, request.kubeconfig, clock, compares=request.compares):
        sampler.start(stop)
        page_data.archive.start(stop)
        _await(fleet)
        try:
            with listening(page_data, request.port, used) as gate:
                yield gate.link
        finally:
            stop.set()


def _await(fleet: Fleet) -> None:
    """Wait a little until everything was listed once, so that the first page is complete."""
    end = time.monotonic() + _FIRST_LOOK_SECONDS
    while not fleet.is_current and time.monotonic() < end:
        time.sleep(0.05)


@contextmanager
def listening(data: PageData, port: int, used: Callable[[str], None]) -> Iterator[Gate]:
    """Serve pages on loopback while the block runs, and yield the gate. Raises Rejected if the port is taken."""
    gate = Gate(port, used)
    logging.getLogger("waitress").setLevel(logging.CRITICAL)  # it would log paths, and the link is a path
    try:
        server = create_server(
            make_app(Site(gate, data)),
            host=LOOPBACK,
            port=port,
            threads=_THREADS,
            ident=None,
            max_request_body_size=_MOST_BODY,
            clear_untrusted_proxy_headers=True,
        )
    except OSError as error:
        raise Rejected(f"--port {port}: {error.strerror}; without --port, a free one is taken") from None
    gate.port = server.effective_port
    ended = Event()

    def serve() -> None:
        try:
            server.run()
        except OSError:  # at the end, its sockets are closed while it waits for them
            if not ended.is_set():
                raise

    Thread(target=serve, daemon=True).start()
    try:
        yield gate
    finally:
        ended.set()
        server.task_dispatcher.shutdown()
        server.close()
