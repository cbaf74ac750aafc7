"""Pages of `nodesmith ui` for tests: their data from values, the server on a free port, and Chromium."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from nodesmith.model.ledger.ledger import Ledger
from nodesmith.observation.mirror import NODECLAIMS, NODEPOOLS, NODES, PODS
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.updates import pricing
from nodesmith_cli.views.ui.archive import Archive
from nodesmith_cli.views.ui.pages.kept import PageData
from nodesmith_cli.views.ui.running import listening
from nodesmith_cli.views.ui.samples import OnDemandPrices, Sampler
from nodesmith_cli.views.ui.sources import NOTHING, KeptLedger, Sources
from tests.builders import NOW, catalog

Manifest = Mapping[str, Any]
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def kept_of(
    nodes: Sequence[Manifest] = (),
    pods: Sequence[Manifest] = (),
    claims: Sequence[Manifest] = (),
    nodepools: Sequence[Manifest] = (),
    *,
    records: Sequence[Mapping[str, Any]] = (),
    ledger: Ledger | None = None,
    name: str = "test",
    clock: Callable[[], datetime] = lambda: NOW,
) -> PageData:
    """Return the data of pages that have seen these objects and records."""
    fleet = Fleet(name)
    for kind, objects in ((NODES, nodes), (PODS, pods), (NODECLAIMS, claims), (NODEPOOLS, nodepools)):
        fleet.put(kind, objects)
        fleet.mark(kind, current=True)
    fleet.price_with(pricing(catalog()))
    archive = Archive(None, is_filled=True)
    for record in records:
        archive.add(str(record["id"]), record)
    read = (lambda: ledger) if ledger is not None else None
    sources = Sources(cluster=name, ledger=read, missing="" if records else NOTHING)
    sampler = Sampler(fleet, clock, OnDemandPrices(lambda region: catalog()))  # noqa: ARG005
    kept = KeptLedger(sources, time.monotonic)
    return PageData(name, sampler, archive, kept, sources, lambda key, now: iter(()))  # noqa: ARG005


@contextmanager
def served(kept: PageData) -> Iterator[str]:
    """Yield the link to these pages."""
    with listening(kept, 0, lambda link: None) as gate:  # noqa: ARG005
        yield gate.link


def chromium() -> str:
    """Return the path of Chromium: $CHROMIUM, or the one on the PATH. Fails with what to install."""
    named = os.environ.get("CHROMIUM")
    found = named or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    assert found, (
        "Chromium is missing: install it (Debian: apt-get install chromium), or set CHROMIUM to its path"
    )
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a headless Chromium, as Playwright drives it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield launched
        finally:
            launched.close()
