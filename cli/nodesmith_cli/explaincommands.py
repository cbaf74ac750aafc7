"""What `nodesmith explain …` does: find the record, print it, replay it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.spelling import did_you_mean
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.snapshot import Snapshot
from nodesmith.settings import catalog_key
from nodesmith_cli.awsclients import aws_client
from nodesmith_cli.explain import catalog_of, explain, replayed, summary
from nodesmith_cli.explainpod import Search, nobody, pod_key, tell
from nodesmith_cli.podview import lines
from nodesmith_cli.poolview import pool_item, pool_lines
from nodesmith_cli.preconditions import require_kubeconfig
from nodesmith_cli.printing import print_told, printable
from nodesmith_cli.records import LATEST, Blobs, Bucket, Folder, Records, clusters, parse_record, state_folder

SAME, DIFFERENT, UNHEARD_OF = 0, 1, 1


@dataclass(frozen=True, slots=True)
class Where:
    """Where to look for records: the bucket if one is named, else `keep`, else what local runs left behind."""

    cluster: str = ""
    bucket: str = ""
    region: str = ""
    keep: Path | None = None

    def require(self, kubeconfig: str) -> None:
        """Refuse to look where nothing is: no bucket, no folder with records, no kubeconfig. Raises Rejected."""
        if self.keep and not self.bucket:
            self.records()
        elif not self.bucket:
            if self.cluster or self.region:
                option = "--cluster" if self.cluster else "--region"
                raise Rejected(
                    f"{option} goes with --bucket or --keep: a cluster as it is now is chosen by --kubeconfig"
                )
            require_kubeconfig(kubeconfig)

    def records(self) -> tuple[Records, Blobs]:
        """Open them. Raises Rejected where nothing is kept."""
        blobs: Blobs
        if self.bucket:
            if not self.cluster:
                raise Rejected("--bucket needs --cluster: the bucket holds the decisions of several clusters")
            blobs = Bucket(aws_client("s3", self.region), self.bucket)
            return Records(blobs, self.cluster), blobs
        folder = self.keep or state_folder()
        known = clusters(folder)
        if not known:
            raise Rejected(
                f"no decisions are kept in {folder}: run `nodesmith demo` or `nodesmith local run` first, "
                "or name a --bucket and a --cluster"
            )
        blobs = Folder(folder)
        if not self.cluster and len(known) > 1:
            others = ", ".join(sorted(known[1:]))
            print(
                f"of cluster {known[0]}, which decided last; --cluster names another: {others}",
                file=sys.stderr,
            )
        return Records(blobs, self.cluster or known[0]), blobs


def show(
    decision: str, where: Where, *, file: Path | None, output: Literal["table", "json"], replay: bool
) -> int:
    """Print one decision; with `replay`, make it again and give 1 where it comes out different."""
    if file is not None:
        records, blobs, record = None, None, _read_file(file)
    else:
        records, blobs = where.records()
        record = records.read(records.find(decision))
    if output == "json":
        print(json.dumps(record, indent=2, sort_keys=True))
    else:
        print("\n".join(map(printable, explain(record))))
    if not replay:
        return SAME
    snapshot = records.snapshot(record["id"]) if records else _beside(file)
    if snapshot is None:
        raise Rejected(f"decision {record['id']}: its snapshot was not kept")
    same = replayed(record, snapshot, lambda region: _catalog(region, record, blobs))
    verdict = "replay    gives the same bytes" if same else "replay    gives ANOTHER plan"
    print(verdict, file=sys.stderr if output == "json" else sys.stdout)
    return SAME if same else DIFFERENT


def show_all(where: Where, output: Literal["table", "json"]) -> int:
    """List the decisions of a cluster, oldest first."""
    records, _ = where.records()
    told = [{"id": record["id"], "summary": summary(record)} for record in records.newest()][::-1]
    print_told(told, (f"{each['id']}  {each['summary']}" for each in told), output)
    return SAME


def show_pod(name: str, where: Where, *, last: int, output: Literal["table", "json"], now: datetime) -> int:
    """Print what stands in the way of a pod, or where it goes; 1 where nobody has heard of it."""
    search = Search(pod_key(name))
    records, _ = where.records()
    search.look(records.newest(last))
    snapshot = _decoded(records.latest_snapshot())
    told = tell(search, snapshot, now)
    if told is None:
        print(f"nodesmith: {printable(nobody(search, snapshot))}", file=sys.stderr)
        return UNHEARD_OF
    print_told(told, lines(told), output)
    return SAME


def show_nodepools(name: str, where: Where, output: Literal["table", "json"]) -> int:
    """Print how NodePools come to their instance types, as the newest decision saw it; 1 where one is unheard of."""
    records, blobs = where.records()
    from nodesmith.decisions.provisioning import inputs_of
    from nodesmith.decisions.provisioning.considered import considered
    from nodesmith.model.karpenter.ownership import nodeclass_group, server_of
    from nodesmith.observation.decoding import decode
    from nodesmith_cli.foreign import foreign_nodepool, said_of

    record = records.read(records.find(LATEST))
    snapshot = records.snapshot(record["id"])
    if snapshot is None:
        raise Rejected(f"decision {record['id']}: its snapshot was not kept")
    catalog = catalog_of(record, lambda region: _catalog(region, record, blobs))
    inputs = inputs_of(record, decode(snapshot), catalog)
    foreign = foreign_nodepool(inputs.snapshot.foreign_nodepools, name)
    if foreign is not None:
        told_of = {"nodePool": name, "servedBy": server_of(nodeclass_group(foreign))}
        print_told([told_of], [f"NodePool {name} {said_of(foreign)}"], output)
        return SAME
    found = considered(inputs)
    asked = [pool for pool in found if name in {"", pool.nodepool}]
    if not asked:
        hint = did_you_mean(name, [pool.nodepool for pool in found])
        print(
            f"nodesmith: decision {record['id']} knows no NodePool {printable(name)}{hint}", file=sys.stderr
        )
        return UNHEARD_OF
    told = [pool_item(pool) for pool in asked]
    print_told(told, (line for pool in asked for line in pool_lines(pool)), output)
    return SAME


def _decoded(snapshot: bytes | None) -> Snapshot | None:
    """Read a snapshot; what another release has written is told and done without."""
    from nodesmith.observation.decoding import decode

    try:
        return decode(snapshot) if snapshot else None
    except Rejected as error:
        print(f"nodesmith: {error}", file=sys.stderr)
        return None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return parse_record(file.read_bytes(), str(file))
    except OSError as error:
        raise Rejected(f"{file}: {error.strerror}") from None


def _beside(file: Path | None) -> bytes | None:
    """Read the snapshot that lies beside a record: ID.json.gz and ID.snapshot.json.gz."""
    assert file is not None  # noqa: S101 - without records there is a file
    beside = file.with_name(file.name.partition(".")[0] + ".snapshot.json.gz")
    return beside.read_bytes() if beside.is_file() else None


def _catalog(region: str, record: dict[str, Any], blobs: Blobs | None) -> Catalog:
    """Return the catalogue that the bucket holds if it is the one decided on, else the package's."""
    from nodesmith.adapters.catalog.catalogs import embedded_catalog
    from nodesmith.adapters.catalog.encoding import decode

    kept = blobs.get(catalog_key(region)) if blobs else None
    if kept is not None:
        found = decode(kept)
        if found.ref == record["inputs"]["catalog"]["ref"]:
            return found
    return embedded_catalog(region)
