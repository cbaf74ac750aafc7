"""The `nodesmith explain node` command: read the cluster, and print what it finds as data or in sentences."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from math import fsum

from nodesmith.decisions.scheduling.offerings.commitments import usage_of
from nodesmith.errors import Rejected
from nodesmith.keys import catalog_key
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.access.selecting import Selection
from nodesmith_cli.costs.commitments import commitments_of, covered_line, covered_of, with_commitments
from nodesmith_cli.output.printing import WIDE, print_report
from nodesmith_cli.views.explaining.commands import NOT_FOUND, SAME, RecordSource, in_lines
from nodesmith_cli.views.explaining.gone import MOST_RECORDS, why_gone
from nodesmith_cli.views.explaining.node import (
    PriceOf,
    Report,
    Subject,
    named,
    region_of,
    report_of,
    subjects,
    unknown_node,
)
from nodesmith_cli.views.explaining.stay import StayReason, observed_inputs, why_it_stays
from nodesmith_formats.decisions.records import Blobs
from nodesmith_formats.prices import PriceOf as InRegion
from nodesmith_formats.prices import estimate_mark, prices
from nodesmith_formats.wording import ago, counted, moment, printable, span

_WIDE = ("instanceType", "zone", "capacityType", "nodePool")


def show_nodes(
    name: str, source: RecordSource, selection: Selection, *, kubeconfig: str, output: str, now: datetime
) -> int:
    """Print what one node waits for, or list all terminating or selected nodes. Returns 1 for an unknown node.

    The snapshot comes from the bucket or folder if one is named; otherwise, it is taken now through the kubeconfig.
    """
    snapshot, blobs = snapshot_of(source, kubeconfig, now)
    if not name:
        prices = _prices(blobs)
        chosen = [subject for subject in subjects(snapshot, now) if _is_listed(subject, selection)]
        reports = [report_of(subject, snapshot, prices, now) for subject in chosen]
        reports.sort(key=lambda report: -report["waiting"]["seconds"] if report["waiting"] else 0)
        shown = partial(ending_lines if selection.is_all else selected_lines, reports, is_wide=output == WIDE)
        title = "Nodes that terminate" if selection.is_all else "Selected nodes"
        names = (
            f"node/{report['node']}" if report["node"] else f"nodeclaim/{report['nodeClaim']}"
            for report in reports
        )
        print_report(reports, shown(), output, lambda: in_lines(title, shown(), "nodes"), names)
        return SAME
    report = node_report(name, snapshot, blobs, now)
    if report is None:
        reason = _gone(name, source) if blobs is not None else ""
        message = f"node {name}: {reason}" if reason else unknown_node(name, snapshot, now)
        print(f"nodesmith: {printable(message)}", file=sys.stderr)
        return NOT_FOUND
    page = partial(in_lines, f"Node {name}", lines(report), "node")
    own = f"node/{report['node']}" if report["node"] else f"nodeclaim/{report['nodeClaim']}"
    print_report(report, lines(report), output, page, [own], "node")
    return SAME


def _gone(name: str, source: RecordSource) -> str:
    from nodesmith_cli.output.progress import progress

    records, _ = source.records()
    with progress("reading decisions", key="decisions-reading"):
        return why_gone(name, records.newest(MOST_RECORDS))


def node_report(name: str, snapshot: Snapshot, blobs: Blobs | None, now: datetime) -> Report | None:
    """Return what is known about a node, as JSON data, or None if the snapshot has no such node."""
    subject = named(name, snapshot, now)
    if subject is None:
        return None
    report = report_of(subject, snapshot, _prices(blobs), now, _stay(subject, snapshot, blobs, now))
    return {**report, **_paid(subject, snapshot, blobs, now)}


def _is_listed(subject: Subject, selection: Selection) -> bool:
    """Return whether a node is listed: a terminating one, or any that the selector matches."""
    if selection.is_all:
        return subject.is_ending
    labels = (
        subject.node.labels if subject.node is not None else subject.claim.labels if subject.claim else {}
    )
    return selection.has(labels)


def _stay(subject: Subject, snapshot: Snapshot, blobs: Blobs | None, now: datetime) -> StayReason | None:
    """Return the reason why a node stays, or None if it is terminating or its region's catalogue is unknown."""
    if subject.claim is None or subject.is_ending:
        return None
    catalog = catalog_of(region_of(subject), blobs)
    claims = [other.claim for other in subjects(snapshot, now) if other.claim is not None]
    return why_it_stays(subject.claim, claims, snapshot, catalog, now) if catalog is not None else None


def _paid(subject: Subject, snapshot: Snapshot, blobs: Blobs | None, now: datetime) -> dict[str, object]:
    """Return the share of an on-demand node that commitments pay for; empty if none are known."""
    claim = subject.claim
    catalog = catalog_of(region_of(subject), blobs) if claim is not None and blobs is not None else None
    if claim is None or catalog is None or not usage_of((claim,)):
        return {}
    claims = [other.claim for other in subjects(snapshot, now) if other.claim is not None]
    inputs = observed_inputs(claims, snapshot, catalog, now)
    ledger = with_commitments(inputs, commitments_of(catalog.region, blobs)).ledger
    report = covered_of(claim.instance_type, claim.zone, ledger, catalog, now)
    return {"commitments": report} if report is not None else {}


def snapshot_of(source: RecordSource, kubeconfig: str, now: datetime) -> tuple[Snapshot, Blobs | None]:
    """Return the newest snapshot of a bucket or folder if one is named, else a snapshot of the live cluster.

    Raises Rejected, Transient.
    """
    source.require(kubeconfig)
    from nodesmith_cli.output.progress import progress

    if source.bucket or source.keep:
        with progress("reading the newest snapshot", key="snapshot-reading"):
            return _stored_snapshot(source)
    with progress("reading the cluster", key="cluster-reading"):
        return _live_snapshot(kubeconfig, now), None


def _live_snapshot(kubeconfig: str, now: datetime) -> Snapshot:
    from nodesmith.adapters.kubernetes.cluster import Observer
    from nodesmith.observation.decoding import decode
    from nodesmith.observation.encoding import encode
    from nodesmith_cli.access.cluster import server_of
    from nodesmith_formats.localsystem.reaching import one_of_several

    cluster = one_of_several(kubeconfig)
    if cluster:
        print(f"showing cluster {cluster}", file=sys.stderr)
    observed = Observer(server_of(kubeconfig)).observe()
    return decode(encode(kubeconfig or "of the current context", now, observed))


def _stored_snapshot(source: RecordSource) -> tuple[Snapshot, Blobs]:
    from nodesmith.observation.decoding import decode

    records, blobs = source.records()
    data = records.latest_snapshot()
    if data is None:
        raise Rejected(f"no snapshot of cluster {records.cluster!r} is stored there")
    return decode(data), blobs


def catalog_of(region: str, blobs: Blobs | None) -> Catalog | None:
    """Return a region's catalogue from the bucket, else the embedded one, or None for an unknown region."""
    from nodesmith.adapters.catalog.catalogs import decode, embedded_catalog

    data = blobs.get(catalog_key(region)) if blobs else None
    try:
        return decode(data) if data is not None else embedded_catalog(region)
    except Rejected:
        return None  # a Node's labels may name any region


def _prices(blobs: Blobs | None) -> PriceOf:
    """Return a price lookup that uses the bucket's catalogue of a region, else the embedded one."""

    @cache
    def of_region(region: str) -> InRegion | None:
        catalog = catalog_of(region, blobs)
        return prices(catalog) if catalog is not None else None

    def price_of(region: str, labels: Mapping[str, str]) -> tuple[float, bool] | None:
        lookup = of_region(region)
        price = lookup(labels) if lookup else None
        return (price.hourly_usd, price.estimated) if price else None

    return price_of


def lines(report: Report) -> Iterator[str]:
    """Yield the lines for one node, given the data from `report_of`."""
    yield f"{'node' if report['node'] else 'NodeClaim'} {report['node'] or report['nodeClaim']}: {_state(report)}"
    if report["cause"]:
        yield f"  cause     {report['cause']}"
    yield from _staying(report["staying"])
    waiting = report["waiting"]
    if waiting:
        yield f"  waits     {waiting['message']}"
        if waiting["fix"]:
            yield f"  fix       {waiting['fix']}"
        yield f"  since     {ago(waiting['since'], waiting['seconds'])}{_spent(waiting)}"
    if report["deadline"]:
        yield f"  deadline  {moment(report['deadline'])}, when the instance terminates with whatever it runs"
    yield f"  node      {_kind(report)}"
    if "commitments" in report:
        yield f"  paid      {covered_line(report['commitments'])}"
    yield f"  age       {span(report['ageSeconds'])}, {counted(report['pods'], 'pod')} to evict"
    for obstacle in report["obstacles"]:
        yield f"  obstacle  {obstacle['message']}"
        yield f"            {obstacle['fix']}"
    yield f"  seen      {ago(report['snapshotAt'], report['snapshotAgeSeconds'])}"


def ending_lines(reports: Sequence[Report], *, is_wide: bool = False) -> Iterator[str]:
    """Yield one line for each terminating node, after a summary. `is_wide` adds its type, zone and NodePool."""
    if not reports:
        yield "no node is terminating"
        return
    yield f"{counted(len(reports), 'node')} terminating, {_total(reports)}"
    yield from _rows(reports, is_wide=is_wide)


def _total(reports: Sequence[Report]) -> str:
    """Return the price of nodes, with a ~ if part of it is an estimate."""
    mark = estimate_mark(any(report["priceEstimated"] for report in reports))
    return f"{mark}${fsum(report['priceHourly'] or 0 for report in reports):.4f}/hour"


def selected_lines(reports: Sequence[Report], *, is_wide: bool = False) -> Iterator[str]:
    """Yield one line for each selected node, after a summary."""
    if not reports:
        yield "the selector matches no node"
        return
    yield f"{counted(len(reports), 'node')}, {_total(reports)}"
    yield from _rows(reports, is_wide=is_wide)


def _rows(reports: Sequence[Report], *, is_wide: bool) -> Iterator[str]:
    width = max(len(_name(report)) for report in reports)
    for report in reports:
        waiting = report["waiting"]
        status = f"{waiting['message']}, for {span(waiting['seconds'])}" if waiting else _state(report)
        place = "  ".join(str(report[key] or "-") for key in _WIDE) + "  " if is_wide else ""
        yield f"  {_name(report):<{width}}  {_price(report) or '-':>13}  {place}{status}"


def _staying(staying: Report | None) -> Iterator[str]:
    if staying is None:
        return
    yield f"  {'leaves' if staying['leaves'] else 'stays':<9} {staying['message']}"
    if staying["since"]:
        yield f"  since     {ago(staying['since'], staying['seconds'])}{_spent(staying)}"


def _state(report: Report) -> str:
    if report["servedBy"]:
        return (
            f"its NodePool {report['nodePool']} is served by {report['servedBy']}: nodesmith leaves it alone"
        )
    if report["nodeClaim"] is None:
        return "it has no NodeClaim, so nodesmith does not manage it"
    since = f"{report['phase']} since {parse_time(report['phaseSince']):%H:%M:%S} UTC"
    if report["ending"]:
        return f"terminating, {since}" + ("" if report["waiting"] else ": nothing blocks it")
    trouble = "" if report["ready"] or report["node"] is None else ", not Ready"
    return f"{since}{trouble}"


def _kind(report: Report) -> str:
    place = f"{report['instanceType']} in {report['zone']}" if report["instanceType"] else ""
    parts = [
        f"{report['nodeClaim']} of NodePool {report['nodePool']}"
        if report["nodePool"]
        else report["nodeClaim"],
        place,
        report["capacityType"],
        report["instanceId"],
        _price(report) or "unknown price",
    ]
    return ", ".join(part for part in parts if part)


def _price(report: Report) -> str:
    if report["priceHourly"] is None:
        return ""
    return f"{estimate_mark(report['priceEstimated'])}${report['priceHourly']:.4f}/hour"


def _spent(waiting: Report) -> str:
    return f", at a cost of ${waiting['cost']:.4f}" if waiting["cost"] is not None else ""


def _name(report: Report) -> str:
    return str(report["node"] or report["nodeClaim"])
