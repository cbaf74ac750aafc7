"""The `nodesmith explain` commands: find, print and replay a decision, and describe pods and NodePools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodesmith.errors import Rejected
from nodesmith.keys import catalog_key
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.access.awsclients import aws_client
from nodesmith_cli.access.preconditions import require_kubeconfig
from nodesmith_cli.output.printing import HTML, IS_TEXT, WIDE, print_report
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_cli.views.explaining.decision import catalog_of, explain, replayed
from nodesmith_cli.views.explaining.pod import Search, lines, pod_key, report_of, unknown_pod
from nodesmith_formats.decisions.records import (
    LATEST,
    Blobs,
    Bucket,
    Folder,
    Records,
    clusters,
    parse_record,
    state_folder,
)
from nodesmith_formats.decisions.summaries import summary
from nodesmith_formats.localsystem.contexts import ContextName
from nodesmith_formats.wording import moment, printable

if TYPE_CHECKING:
    from nodesmith.decisions.provisioning.nodepools.onsale import Considered

SAME, DIFFERENT, NOT_FOUND = 0, 1, 1


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Where to find records: the bucket if one is named, else `keep`, else the records of local runs."""

    cluster: str = ""
    bucket: str = ""
    region: str = ""
    keep: Path | None = None

    def require(self, kubeconfig: str) -> None:
        """Raise Rejected if there is neither a bucket, nor a folder with records, nor a kubeconfig.

        With records, a kubeconfig only shows how fast a local cluster's clock runs, so a context is not allowed.
        """
        if (self.bucket or self.keep) and isinstance(kubeconfig, ContextName):
            option = "--bucket" if self.bucket else "--keep"
            raise Rejected(
                f"--context {kubeconfig} and {option} are mutually exclusive: use --cluster to choose a cluster there"
            )
        if self.keep and not self.bucket:
            self.records()
        elif not self.bucket:
            if self.cluster or self.region:
                option = "--cluster" if self.cluster else "--region"
                raise Rejected(
                    f"{option} requires --bucket or --keep; use --kubeconfig to choose a live cluster"
                )
            require_kubeconfig(kubeconfig)

    def records(self) -> tuple[Records, Blobs]:
        """Open the records. Raises Rejected if there are none."""
        blobs: Blobs
        if self.bucket:
            if not self.cluster:
                raise Rejected(
                    "--bucket requires --cluster: a bucket holds the decisions of several clusters"
                )
            blobs = Bucket(aws_client("s3", self.region), self.bucket)
            return Records(blobs, self.cluster), blobs
        folder = self.keep or state_folder()
        names = clusters(folder)
        if not names:
            raise Rejected(
                f"no decisions found in {folder}: run `nodesmith demo` or `nodesmith local run` first, "
                "or use --bucket and --cluster"
            )
        parents = (folder / "clusters", *(folder / "allocations").glob("*"))
        if self.cluster and not any((parent / self.cluster).is_dir() for parent in parents):
            hint = did_you_mean(self.cluster, names) or f"; clusters: {', '.join(sorted(names))}"
            raise Rejected(f"no decisions of cluster {self.cluster!r} in {folder}{hint}")
        blobs = Folder(folder)
        if not self.cluster and len(names) > 1:
            others = ", ".join(sorted(names[1:]))
            print(
                f"showing cluster {names[0]}, which decided last; use --cluster for another: {others}",
                file=sys.stderr,
            )
        return Records(blobs, self.cluster or names[0]), blobs


def show(decision: str, source: RecordSource, *, file: Path | None, output: str, replay: bool) -> int:
    """Print one decision. With `replay`, repeat it and return 1 if the outcome differs."""
    if file is not None:
        records, blobs, record = None, None, _read_file(file)
        if decision not in (LATEST, "") and decision not in record["id"]:
            raise Rejected(f"--file {file}: holds decision {record['id']}, not {decision}")
    else:
        records, blobs = source.records()
        record = records.read(records.find(decision))
    snapshot = None
    if replay or output == HTML:
        snapshot = records.snapshot(record["id"]) if records else _beside(file)
    page = partial(_page, record, snapshot, blobs)
    print_report(record, explain(record), output, page, schema="decision")
    if not replay:
        return SAME
    if snapshot is None:
        raise Rejected(f"decision {record['id']}: its snapshot was not stored")
    same = replayed(record, snapshot, lambda region: recorded_catalog(region, record, blobs))
    verdict = "replay    the same plan, byte for byte" if same else "replay    a DIFFERENT plan"
    print(verdict, file=sys.stdout if output in IS_TEXT else sys.stderr)
    return SAME if same else DIFFERENT


def show_all(source: RecordSource, output: str) -> int:
    """List the decisions of a cluster, oldest first."""
    records, _ = source.records()
    with _reading():
        report = [_listed(record) for record in records.newest()][::-1]
    shown = [
        f"{decision['id']}  {_details(decision) if output == WIDE else ''}{decision['summary']}"
        for decision in report
    ]
    shown = shown or [f"no decisions of cluster {records.cluster} are stored yet"]
    names = (f"decision/{decision['id']}" for decision in report)
    print_report(report, shown, output, lambda: _decisions(records.cluster, report), names)
    return SAME


def _reading() -> AbstractContextManager[object]:
    from nodesmith_cli.output.progress import progress

    return progress("reading decisions", key="decisions-reading")


def _listed(record: dict[str, Any]) -> dict[str, Any]:
    """Return a decision of a list, as JSON data; `seconds` is the duration of its measured parts."""
    seconds = round(sum(record["durationsMs"].values()) / 1000, 3)
    about = {"concern": record["concern"], "at": record["at"], "seconds": seconds}
    return {"id": record["id"], "summary": summary(record), **about}


def _details(report: dict[str, Any]) -> str:
    return f"{report['concern']:<12}  {moment(report['at'])}  {report['seconds']:>7.3f} s  "


def show_pod(name: str, source: RecordSource, *, last: int, output: str, now: datetime) -> int:
    """Print what blocks a pod, or where it goes. Returns 1 if nothing mentions the pod."""
    search = Search(pod_key(name))
    records, _ = source.records()
    with _reading():
        search.search_records(records.newest(last))
        snapshot = _decoded(records.latest_snapshot())
    report = report_of(search, snapshot, now)
    if report is None:
        print(f"nodesmith: {printable(unknown_pod(search, snapshot))}", file=sys.stderr)
        return NOT_FOUND
    page = partial(in_lines, f"Pod {report['pod']}", lines(report), "pod")
    print_report(report, lines(report), output, page, schema="pod")
    return SAME


def show_nodepools(name: str, source: RecordSource, output: str) -> int:
    """Print how NodePools choose instance types, as of the newest decision. Returns 1 for an unknown NodePool."""
    records, blobs = source.records()
    from nodesmith.decisions.provisioning import inputs_of
    from nodesmith.decisions.provisioning.nodepools.onsale import considered
    from nodesmith.model.karpenter.ownership import nodeclass_group, server_of
    from nodesmith.observation.decoding import decode
    from nodesmith_cli.sharing.foreign import foreign_nodepool, owner_message

    record, snapshot = records.newest_inputs()
    catalog = catalog_of(record, lambda region: recorded_catalog(region, record, blobs))
    inputs = inputs_of(record, decode(snapshot), catalog)
    foreign = foreign_nodepool(inputs.snapshot.foreign_nodepools, name)
    if foreign is not None:
        foreign_report = {"nodePool": name, "servedBy": server_of(nodeclass_group(foreign))}
        foreign_lines = [f"NodePool {name} {owner_message(foreign)}"]
        print_report([foreign_report], foreign_lines, output, lambda: _nodepools([foreign_report]))
        return SAME
    pools = considered(inputs)
    chosen = [pool for pool in pools if name in {"", pool.nodepool}]
    if not chosen:
        names = [pool.nodepool for pool in pools]
        hint = did_you_mean(name, names) or f"; NodePools: {', '.join(names) or 'none'}"
        print(f"nodesmith: decision {record['id']} has no NodePool {printable(name)}{hint}", file=sys.stderr)
        return NOT_FOUND
    report = [pool_item(pool) for pool in chosen]
    shown = (line for pool in chosen for line in pool_lines(pool))
    print_report(report, shown, output, lambda: _nodepools(report))
    return SAME


def in_lines(title: str, shown: Iterable[str], name: str) -> tuple[Html, str]:
    """Return an explanation in lines as a report, and the name of its file."""
    from nodesmith_cli.views.explaining.page import lines_page

    return lines_page(title, list(shown)), name


def _decisions(cluster: str, report: Sequence[dict[str, Any]]) -> tuple[Html, str]:
    from nodesmith_cli.views.explaining.page import decisions_page

    return decisions_page(cluster, report), "decisions"


def _nodepools(report: Sequence[dict[str, Any]]) -> tuple[Html, str]:
    from nodesmith_cli.views.explaining.page import nodepools_page

    return nodepools_page(report), "nodepools"


def _page(record: dict[str, Any], snapshot: bytes | None, blobs: Blobs | None) -> tuple[Html, str]:
    """Return the report of a decision, with alternatives if its inputs are still stored."""
    from nodesmith_cli.views.explaining.page import decision_page

    decoded = _decoded(snapshot)
    others = None
    if decoded is not None and "moves" not in record["plan"]:
        from nodesmith.decisions.provisioning import inputs_of
        from nodesmith_cli.planning.alternatives import alternatives_of

        try:
            catalog = catalog_of(record, lambda region: recorded_catalog(region, record, blobs))
            others = alternatives_of(inputs_of(record, decoded, catalog))
        except Rejected as error:
            print(f"nodesmith: no alternatives: {printable(str(error))}", file=sys.stderr)
    return decision_page(record, decoded, others), "decision"


def _decoded(snapshot: bytes | None) -> Snapshot | None:
    """Decode a snapshot. If another release's format makes that impossible, print the reason and return None."""
    from nodesmith.observation.decoding import decode

    try:
        return decode(snapshot) if snapshot else None
    except Rejected as error:
        print(f"nodesmith: {printable(str(error))}", file=sys.stderr)
        return None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return parse_record(file.read_bytes(), str(file))
    except OSError as error:
        raise Rejected(f"{file}: {error.strerror}") from None


def _beside(file: Path | None) -> bytes | None:
    """Read the snapshot next to a record: ID.snapshot.json.gz next to ID.json.gz."""
    assert file is not None  # noqa: S101 - without records there is a file
    beside = file.with_name(file.name.partition(".")[0] + ".snapshot.json.gz")
    return beside.read_bytes() if beside.is_file() else None


def recorded_catalog(region: str, record: dict[str, Any], blobs: Blobs | None) -> Catalog:
    """Return the bucket's catalogue if the decision was made with it, else the embedded one."""
    from nodesmith.adapters.catalog.catalogs import decode, embedded_catalog

    data = blobs.get(catalog_key(region)) if blobs else None
    if data is not None:
        catalog = decode(data)
        if catalog.ref == record["inputs"]["catalog"]["ref"]:
            return catalog
    return embedded_catalog(region)


def pool_lines(pool: Considered) -> Iterator[str]:
    """Yield the lines for one NodePool."""
    yield f"NodePool {pool.nodepool}: {pool.left:,} of {pool.all:,} instance types can be launched"
    if pool.obstacle:
        yield f"  blocked   {pool.obstacle}"
    if pool.nodeclass_fault:
        yield f"  launches  {pool.nodeclass_fault}"
    for overlay in pool.overlays:
        yield f"  overlay   {overlay}"
    for limit in pool.limits:
        yield f"  limit     {limit}"
    for cost in pool.costs:
        yield f"  costs     {cost}"
    if not pool.removals:
        return
    yield "  removed  only by it  condition"
    for removal in pool.removals:
        yield f"  {removal.types:>7,}  {removal.alone:>10,}  {removal.condition}"


def pool_item(pool: Considered) -> dict[str, Any]:
    """Return one NodePool as JSON data."""
    return {
        "nodePool": pool.nodepool,
        "types": pool.all,
        "left": pool.left,
        "removals": [
            {"by": removal["condition"], "types": removal["types"], "onlyByIt": removal["alone"]}
            for removal in asdict(pool)["removals"]
        ],
        "obstacle": pool.obstacle or None,
        "nodeClassFault": pool.nodeclass_fault or None,
        "overlays": list(pool.overlays),
        "limits": list(pool.limits),
        **({"costs": list(pool.costs)} if pool.costs else {}),
    }
