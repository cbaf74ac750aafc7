"""Decision records, stored in a folder or in the bucket of a deployment. Both use the same keys."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from nodesmith.errors import Rejected
from nodesmith.keys import decision_key, decision_snapshot_key, snapshot_key
from nodesmith.model.apimachinery.problems import did_you_mean

LATEST = "latest"
_SUFFIX, _SNAPSHOT_SUFFIX = ".json.gz", ".snapshot.json.gz"
_LOOK_BACK = 30
"""How many decisions `latest` searches for one that launched nodes."""
_AT_ONCE = 16
"""How many records are read concurrently. S3 takes about 30 ms for each."""


class Blobs(Protocol):
    """Objects by key."""

    def get(self, key: str) -> bytes | None:
        """Read an object. Returns None if it does not exist."""

    def keys(self, prefix: str) -> Iterator[str]:
        """Return the keys under a prefix."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects as files."""

    path: Path

    def get(self, key: str) -> bytes | None:
        file = self.path / key
        return file.read_bytes() if file.is_file() else None

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises Rejected if the folder is not writable."""
        file = self.path / key
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise Rejected(f"{file}: {error.strerror}: use --keep to name a writable folder") from None

    def keys(self, prefix: str) -> Iterator[str]:
        return (str(file.relative_to(self.path)) for file in sorted((self.path / prefix).glob("*")))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects in S3. `client` is a boto3 S3 client."""

    client: Any
    name: str

    def get(self, key: str) -> bytes | None:
        from nodesmith.adapters.s3 import S3Blobs

        return S3Blobs(self.client, self.name).get(key)

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys under a prefix. Raises Rejected or Transient with the error from S3."""
        from nodesmith.adapters.aws.calls import all_errors

        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        with all_errors(f"list of bucket {self.name!r}"):
            for page in pages:
                yield from (entry["Key"] for entry in page.get("Contents") or ())


class Records:
    """The decisions of one cluster."""

    def __init__(self, blobs: Blobs, cluster: str) -> None:
        self._blobs = blobs
        self.cluster = cluster

    def ids(self) -> list[str]:
        """Return the ids of all decisions, oldest first. Ids sort by time."""
        prefix = decision_key(self.cluster, "").removesuffix(_SUFFIX)
        return sorted(
            key.removeprefix(prefix).removesuffix(_SUFFIX)
            for key in self._blobs.keys(prefix)
            if key.endswith(_SUFFIX) and not key.endswith(_SNAPSHOT_SUFFIX)
        )

    def newest_time(self) -> datetime | None:
        """Return the time of the newest decision, in whole seconds; None if there is none."""
        times = (_time_of(decision) for decision in reversed(self.ids()))
        return next((time for time in times if time is not None), None)

    def find(self, decision: str) -> str:
        """Return the id that contains `decision`, or for `latest` the last that launched nodes, else the last.

        Raises Rejected if no decision or more than one matches.
        """
        ids = self._existing_ids()
        if decision == LATEST:
            return self._latest(ids)
        matches = [id_ for id_ in ids if decision in id_]
        if len(matches) != 1:
            no_match = f"no decision has this id{did_you_mean(decision, ids)}"
            outcome = f"{len(matches)} decisions match" if matches else no_match
            listed = ", ".join((matches or ids)[-5:])
            raise Rejected(
                f"decision {decision!r}: {outcome}; the latest of cluster {self.cluster!r}: {listed}"
            )
        return matches[0]

    def _existing_ids(self) -> list[str]:
        ids = self.ids()
        if not ids:
            raise Rejected(f"no decisions of cluster {self.cluster!r} are stored here")
        return ids

    def newest_inputs(self) -> tuple[dict[str, Any], bytes]:
        """Return the newest decision whose snapshot is stored, launched or not, and that snapshot. Raises Rejected."""
        ids = self._existing_ids()
        for decision in ids[: -_LOOK_BACK - 1 : -1]:
            snapshot = self.snapshot(decision)
            if snapshot is not None:
                return self.read(decision), snapshot
        raise Rejected(f"decision {ids[-1]}: its snapshot was not stored")

    def _latest(self, ids: Sequence[str]) -> str:
        for decision in ids[: -_LOOK_BACK - 1 : -1]:
            record = self.read(decision)
            if record["plan"]["nodes"] and not record.get("superseded"):
                return decision
        return ids[-1]

    def read(self, decision: str) -> dict[str, Any]:
        """Read a record by its full id. Raises Rejected if it does not exist or is damaged."""
        key = decision_key(self.cluster, decision)
        data = self._blobs.get(key)
        if data is None:
            raise Rejected(f"decision {decision!r}: {key} does not exist")
        return parse_record(data, key)

    def newest(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the `most` newest decisions, or all, newest first. Unreadable ones are reported on standard error."""
        ids = self.ids()[::-1][:most]
        with ThreadPoolExecutor(_AT_ONCE) as readers:
            for start in range(0, len(ids), _AT_ONCE):
                records = readers.map(self._read_or_warn, ids[start : start + _AT_ONCE])
                yield from (record for record in records if record is not None)

    def _read_or_warn(self, decision: str) -> dict[str, Any] | None:
        try:
            return self.read(decision)
        except Rejected as error:
            print(f"nodesmith: skipped: {error}", file=sys.stderr)  # noqa: T201 a warning
            return None

    def latest_snapshot(self) -> bytes | None:
        """Read the cluster's newest snapshot: the forwarder's if it is stored here, else that of a decision."""
        latest = self._blobs.get(snapshot_key(self.cluster))
        if latest is not None:
            from nodesmith.observation.decoding import Reader

            return Reader().completed(latest, self.cluster, self._blobs.get)
        snapshots = (self.snapshot(decision) for decision in self.ids()[: -_LOOK_BACK - 1 : -1])
        return next((snapshot for snapshot in snapshots if snapshot is not None), None)

    def snapshot(self, decision: str) -> bytes | None:
        """Read the snapshot that a decision was made from. Returns None if it was not stored."""
        return self._blobs.get(decision_snapshot_key(self.cluster, decision))


def _time_of(decision: str) -> datetime | None:
    """Return the time in a decision's id, or None if it is not an id: other files may be among the records."""
    try:
        return datetime.strptime(decision.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def parse_record(data: bytes, name: str) -> dict[str, Any]:
    """Parse a record, compressed or plain. Raises Rejected with the reason if it is not one."""
    try:
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        record: Any = json.loads(text)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise Rejected(f"{name}: not a decision record: {error}") from None
    if not isinstance(record, Mapping) or record.get("format") != "nodesmith-decision":
        raise Rejected(f"{name}: not a decision record: its field 'format' is not 'nodesmith-decision'")
    if record.get("version") != 1:
        raise Rejected(
            f"{name}: unsupported format version {record.get('version')!r}; this release reads version 1"
        )
    return dict(record)


def clusters(folder: Path) -> Sequence[str]:
    """Return the clusters with decisions in a folder, the one with the latest decision first."""
    folders = (folder / "clusters").glob("*/decisions")
    return [path.parent.name for path in sorted(folders, key=lambda path: -path.stat().st_mtime)]


def state_folder() -> Path:
    """Return the folder for records of local runs, as the XDG base directory specification defines it."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "nodesmith"


def writable_state_folder() -> Path:
    """Return the state folder, creating it if needed, or a temporary folder if the home is not writable."""
    try:
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return Path(mkdtemp(prefix="nodesmith-"))
    return folder if os.access(folder, os.W_OK) else Path(mkdtemp(prefix="nodesmith-"))
