"""Keep a Fleet up to date from a live cluster: watches for objects, polls for Events, usage, prices and savings."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Event, Thread
from typing import Any

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.decisions.budgets import is_active, next_boundary
from nodesmith.errors import NodesmithError, Rejected
from nodesmith.model.apimachinery.quantities import QuantityError, Resources, parse_resources
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.nodes import Node
from nodesmith_cli.costs.savings.nodeprices import PricedNode, priced_nodes, region_of_nodes, with_spot_prices
from nodesmith_cli.costs.savings.running import current_spot_prices, has_credentials
from nodesmith_cli.sharing.ownership import listed
from nodesmith_cli.views.top.fleet import KINDS, Fleet
from nodesmith_cli.views.top.rows import SavingsEstimate
from nodesmith_formats.localsystem.contexts import ContextName
from nodesmith_formats.wording import printable
from nodesmith_forwarder.clock import SystemClock
from nodesmith_forwarder.watching import ABSENT, Pauses, Watch

Manifest = Mapping[str, Any]
Clock = Callable[[], datetime]
_EVENTS, _USAGE = "/api/v1/events", "/apis/metrics.k8s.io/v1beta1/nodes"
_REFUSALS = "fieldSelector=reason%3DFailedScheduling"
_OURS = ("nodesmith", "karpenter")
"""Components whose Events say more about a pending pod than kube-scheduler's."""
_POLL_SECONDS, _SOON_SECONDS = 10.0, 0.2
_PROSPECT_SECONDS, _PROSPECT_TIMEOUT_SECONDS = 900.0, 300.0
_SETTLED_SECONDS = 5.0


@contextmanager
def kept_up_to_date(
    fleet: Fleet, server: ApiServer, kubeconfig: str, clock: Clock, *, compares: bool
) -> Iterator[None]:
    """Keep a fleet up to date for the duration of the block, in threads that end with the process.

    With `compares`, `nodesmith savings` runs every quarter of an hour in a process of its own, at the lowest priority.
    Warnings of the watches become notes of the fleet.
    """
    stop = Event()
    handler = _Notes(fleet)
    logger = logging.getLogger("nodesmith_forwarder.watching")
    logger.addHandler(handler)
    logger.propagate = False
    optional = [replace(kind, newer=kind.custom) for kind in KINDS]
    pauses = Pauses(SystemClock())
    jobs: list[Callable[[], None]] = [
        *(partial(Watch(kind, server, fleet, pauses).run, stop) for kind in optional),
        lambda: _poll(fleet, server, clock, stop),
    ]
    if compares:
        jobs.append(lambda: _compare(fleet, kubeconfig, stop))
    for job in jobs:
        Thread(target=job, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        logger.removeHandler(handler)
        logger.propagate = True


class _Notes(logging.Handler):
    """Shows the last warning about each kind in a fleet's notes. Ignores kinds that are not installed."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(logging.WARNING)
        self._fleet = fleet

    def emit(self, record: logging.LogRecord) -> None:
        kind, reason, *_ = (*map(str, record.args or ()), "", "")
        if reason == ABSENT:
            return
        text = (
            f"{kind}s may not be listed and watched"
            if "403" in reason or "orbidden" in reason
            else record.getMessage()
        )
        self._fleet.notes[f"watch {kind}"] = text


def _poll(fleet: Fleet, server: ApiServer, clock: Clock, stop: Event) -> None:
    while not (fleet.is_current or stop.wait(_SOON_SECONDS)):
        pass  # until everything was listed once
    while not stop.is_set():
        if not fleet.is_priced:
            _price(fleet)
        fleet.windows = tuple(budget_windows(fleet.nodepools(), clock()))
        for topic, read in (("Events", _read_refusals), ("usage", _read_usage)):
            try:
                read(fleet, server)
                fleet.notes.pop(topic, None)
            except NodesmithError as error:
                fleet.notes[topic] = f"{topic}: {error}"
        fleet.is_polled = True
        stop.wait(_POLL_SECONDS)


def _price(fleet: Fleet) -> None:
    """Price the fleet's nodes by their region's catalogue, and by EC2's spot prices if there are credentials."""
    nodes = fleet.nodes()
    region = region_of_nodes(nodes)
    try:
        if nodes and not region:
            raise Rejected("no node names its region by label or provider id")
        if region:
            catalog = embedded_catalog(region)
            fleet.price_with(pricing(catalog))
            fleet.notes.pop("prices", None)
            if has_credentials():
                fleet.price_with(pricing(with_spot_prices(catalog, current_spot_prices(region))))
    except NodesmithError as error:
        fleet.notes["prices"] = f"prices: {error}"


def pricing(catalog: Catalog) -> Callable[[Node, bool], PricedNode]:
    """Return the function that prices one node."""

    def price(node: Node, is_marked: bool) -> PricedNode:
        return priced_nodes([node], catalog, [node.provider_id] if is_marked else [])[0]

    return price


def _read_refusals(fleet: Fleet, server: ApiServer) -> None:
    if not fleet.has_pending:
        fleet.explanations = {}
        return
    fleet.explanations = refusals(listed(server, _EVENTS, _REFUSALS))


def refusals(events: Iterable[Manifest]) -> dict[str, str]:
    """Return the newest message of each pod by uid. Those of nodesmith and Karpenter come before kube-scheduler's."""
    newest: dict[str, tuple[bool, str, str]] = {}
    for event in events:
        target, source = event.get("involvedObject") or {}, event.get("source") or {}
        component = str(event.get("reportingComponent") or source.get("component") or "")
        at = str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")
        candidate = (component in _OURS, at, str(event.get("message") or ""))
        uid = str(target.get("uid") or "")
        newest[uid] = max(newest.get(uid, candidate), candidate)
    return {uid: message for uid, (_, _, message) in newest.items()}


def _read_usage(fleet: Fleet, server: ApiServer) -> None:
    response = server.get(_USAGE)
    fleet.use(dict(_used(response.get("items") or ())) if response else {})


def _used(items: Any) -> Iterator[tuple[str, Resources]]:
    for item in items:
        try:
            yield str(item["metadata"]["name"]), parse_resources(item.get("usage"))
        except (QuantityError, AttributeError, KeyError, TypeError):
            continue  # an unreadable sample counts as missing


def budget_windows(nodepools: list[Manifest], now: datetime) -> Iterator[str]:
    """Yield a sentence for each budget of a NodePool that has a schedule: when its window ends or begins."""
    for manifest in nodepools:
        pool = parse_nodepool(manifest).value
        for budget in pool.disruption.budgets if pool is not None else ():
            at = next_boundary([budget], now)
            if pool is not None and at is not None:
                verb = "ends" if is_active(budget, now) else "begins"
                yield f"NodePool {pool.name}: its budget of {budget.nodes} {verb} {at:%a %H:%M} UTC"


def _compare(fleet: Fleet, kubeconfig: str, stop: Event) -> None:
    while not stop.is_set():
        if not fleet.is_current:
            stop.wait(_SETTLED_SECONDS)
            continue
        result = _prospect(kubeconfig)
        if isinstance(result, SavingsEstimate):
            fleet.prospect = result
            fleet.notes.pop("savings", None)
        else:
            fleet.notes["savings"] = f"the lower bound is unknown: {result}"
        stop.wait(_PROSPECT_SECONDS)


def _yield_to_others() -> None:
    """Lower the priority of the process that is about to start."""
    os.nice(19)


def _prospect(kubeconfig: str) -> SavingsEstimate | str:
    """Return what `nodesmith savings` finds, or why it finds nothing."""
    command = [sys.executable, "-m", "nodesmith_cli.main", "savings", "-o", "json", "--seconds", "1"]
    option = "--context" if isinstance(kubeconfig, ContextName) else "--kubeconfig"
    command += [option, kubeconfig] if kubeconfig else []
    try:
        done = subprocess.run(  # noqa: S603 - this program, with arguments as a list
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PROSPECT_TIMEOUT_SECONDS,
            preexec_fn=_yield_to_others,
        )
        report = json.loads(done.stdout)
        return SavingsEstimate(
            float(report["lowerBound"]["hourly"]),
            float(report["reachable"]["hourly"]),
            int(report["reachable"]["moves"]),
        )
    except subprocess.CalledProcessError as error:
        return (
            printable((error.stderr or "").strip().rpartition("\n")[2]) or f"exit status {error.returncode}"
        )
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        return printable(str(error))
