"""Where a cluster's decisions and ledger are kept, and how they are read: with the caller's own credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Semaphore
from typing import Any

from nodesmith.adapters.aws.calls import all_errors
from nodesmith.decisions.provisioning import inputs_of
from nodesmith.errors import NodesmithError, Rejected
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.observation.decoding import decode
from nodesmith_cli.access.awsclients import aws_client
from nodesmith_cli.access.ledger import TABLE
from nodesmith_cli.planning.alternatives import Alternatives, alternatives_of
from nodesmith_cli.views.explaining.commands import RecordSource, recorded_catalog
from nodesmith_cli.views.explaining.decision import catalog_of
from nodesmith_cli.views.explaining.node import unknown_node
from nodesmith_cli.views.explaining.nodecommand import lines, node_report, snapshot_of
from nodesmith_formats.decisions.records import Blobs, Bucket, Records
from nodesmith_formats.localsystem.reaching import Reached, local_system

_LOCAL_BUCKET = "nodesmith-"
NOTHING = (
    "Decisions are not shown: this page was started with a kubeconfig alone. To see them, name the deployment's bucket "
    "and the cluster: nodesmith ui --bucket BUCKET --cluster NAME."
)


_ALTERNATIVES_AT_ONCE = Semaphore(1)
"""Searching for alternatives keeps a processor busy for seconds."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What can be read. `ledger` may raise Rejected or Transient; `missing` says why there are no decisions."""

    kubeconfig: str = ""
    cluster: str = ""
    records: Records | None = None
    blobs: Blobs | None = None
    ledger: Callable[[], Ledger] | None = None
    missing: str = NOTHING

    def explain_node(self, name: str, now: datetime) -> list[str]:
        """Return why a node stays or what it waits for, as `nodesmith explain node` does. Raises Rejected, Transient.

        The snapshot is the newest one that is kept; if none is, it is taken now.
        """
        data = self.records.latest_snapshot() if self.records is not None else None
        if data is None:
            snapshot, blobs = snapshot_of(RecordSource(), self.kubeconfig, now)
        else:
            snapshot, blobs = decode(data), self.blobs
        report = node_report(name, snapshot, blobs, now)
        if report is None:
            raise Rejected(unknown_node(name, snapshot, now))
        return list(lines(report))

    def shapes_of(self, id_: str) -> Mapping[str, Shape]:
        """Return the shapes of pods by key, from the snapshot of a decision; empty if that was not stored."""
        data = self.records.snapshot(id_) if self.records is not None else None
        return {pod.key: pod.shape for pod in decode(data).pods} if data is not None else {}

    def alternatives_of(self, record: Mapping[str, Any]) -> Alternatives | None:
        """Decide again with other choices, and without each constraint. Returns None for moves, or without a snapshot.

        Raises Rejected if the catalogue is no longer the one that the decision was made with.
        """
        data = self.records.snapshot(record["id"]) if self.records is not None else None
        if data is None or "moves" in record["plan"]:
            return None
        catalog = catalog_of(record, lambda region: recorded_catalog(region, dict(record), self.blobs))
        with _ALTERNATIVES_AT_ONCE:
            return alternatives_of(inputs_of(record, decode(data), catalog))


def sources_of(source: RecordSource, kubeconfig: str, clock: Callable[[], datetime]) -> Sources:
    """Return what can be read: a bucket or folder if one is named, else those of the local system that is shown.

    Raises Rejected for options that do not fit together.
    """
    if source.bucket:
        records, blobs = source.records()
        ledger = _ledger(partial(aws_client, region=source.region), source.cluster, clock)
        return Sources(kubeconfig, source.cluster, records, blobs, ledger, "")
    if source.keep:
        records, blobs = source.records()
        return Sources(kubeconfig, records.cluster, records, blobs, None, "")
    local = local_system(kubeconfig)
    return _of_local(local, kubeconfig, clock) if local is not None else Sources(kubeconfig, source.cluster)


def _of_local(local: Reached, kubeconfig: str, clock: Callable[[], datetime]) -> Sources:
    context = kubeconfig if kubeconfig in local.clusters else local.current
    cluster = local.clusters.get(context) or next(iter(local.clusters.values()))
    client = local.client("s3")
    try:
        with all_errors("S3 of the local system"):
            names = [str(entry["Name"]) for entry in client.list_buckets()["Buckets"]]
    except NodesmithError as error:
        return Sources(kubeconfig, cluster, missing=str(error))
    name = next((name for name in names if name.startswith(_LOCAL_BUCKET)), "")
    bucket = Bucket(client, name) if name else None
    records = Records(bucket, cluster) if bucket else None
    return Sources(kubeconfig, cluster, records, bucket, _ledger(local.client, cluster, clock), "")


def _ledger(
    client: Callable[[str], Any], cluster: str, clock: Callable[[], datetime]
) -> Callable[[], Ledger]:
    def read() -> Ledger:
        from nodesmith.adapters.dynamodb.ledger import DynamoStore

        with all_errors(f"DynamoDB table {TABLE!r}"):
            return DynamoStore(client("dynamodb"), TABLE, cluster, clock).load()

    return read


@dataclass(slots=True)
class KeptLedger:
    """The ledger, read at most every five seconds. `note` says why it could not be read, if so."""

    sources: Sources
    clock: Callable[[], float]
    note: str = ""
    _read_at: float = float("-inf")
    _ledger: Ledger | None = None

    _EVERY_SECONDS = 5.0

    def get(self) -> Ledger | None:
        """Return the ledger, or None if there is none or it cannot be read."""
        if self.sources.ledger is None:
            return None
        if self.clock() - self._read_at >= self._EVERY_SECONDS:
            self._read_at = self.clock()
            try:
                self._ledger, self.note = self.sources.ledger(), ""
            except NodesmithError as error:
                self.note = f"The ledger cannot be read: {error}"
        return self._ledger
