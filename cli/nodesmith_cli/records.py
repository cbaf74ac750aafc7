"""Records of decisions, where they are kept: a folder, or the bucket of a deployment. Both hold the same keys."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.spelling import did_you_mean
from nodesmith.settings import decision_key, decision_snapshot_key, snapshot_key

LATEST = "latest"
_SUFFIX, _SNAPSHOT_SUFFIX = ".json.gz", ".snapshot.json.gz"
_LOOK_BACK = 30
"""decisions that `latest` looks through for one that bought nodes"""
_AT_ONCE = 16
"""records that are read at the same time: S3 answers each in some 30 ms"""


class Blobs(Protocol):
    """Objects by key."""

    def get(self, key: str) -> bytes | None:
        """Read an object, None when there is none."""

    def keys(self, prefix: str) -> Iterator[str]:
        """Name the objects under a prefix."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects as files."""

    path: Path

    def get(self, key: str) -> bytes | None:
        file = self.path / key
        return file.read_bytes() if file.is_file() else None

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises Rejected where the folder cannot be written."""
        file = self.path / key
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise Rejected(
                f"{file}: {error.strerror}: name a folder that can be written with --keep"
            ) from None

    def keys(self, prefix: str) -> Iterator[str]:
        return (str(file.relative_to(self.path)) for file in sorted((self.path / prefix).glob("*")))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects in S3; `client` is boto3's."""

    client: Any
    name: str

    def get(self, key: str) -> bytes | None:
        from nodesmith.adapters.s3.blobs import S3Blobs

        return S3Blobs(self.client, self.name).get(key)

    def keys(self, prefix: str) -> Iterator[str]:
        """Name the objects under a prefix. Raises Rejected or Transient with what S3 says instead."""
        from nodesmith.adapters.aws.errors import all_errors

        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        with all_errors(f"list of bucket {self.name!r}"):
            for page in pages:
                yield from (found["Key"] for found in page.get("Contents") or ())


class Records:
    """The decisions of one cluster."""

    def __init__(self, blobs: Blobs, cluster: str) -> None:
        self._blobs = blobs
        self.cluster = cluster

    def ids(self) -> list[str]:
        """Name all decisions, oldest first: names sort by time."""
        prefix = decision_key(self.cluster, "").removesuffix(_SUFFIX)
        return sorted(
            key.removeprefix(prefix).removesuffix(_SUFFIX)
            for key in self._blobs.keys(prefix)
            if key.endswith(_SUFFIX) and not key.endswith(_SNAPSHOT_SUFFIX)
        )

    def find(self, decision: str) -> str:
        """Complete an id that is cut short, or `latest`: the last that bought nodes, else the last.

        Raises Rejected when none or several fit.
        """
        ids = self.ids()
        if not ids:
            raise Rejected(f"no decision of cluster {self.cluster!r} is kept here")
        if decision == LATEST:
            return self._latest(ids)
        fitting = [found for found in ids if decision in found]
        if len(fitting) != 1:
            none = f"there is none of that id{did_you_mean(decision, ids)}"
            several = f"{len(fitting)} of them fit" if fitting else none
            shown = ", ".join((fitting or ids)[-5:])
            raise Rejected(f"decision {decision!r}: {several}; the last of cluster {self.cluster!r}: {shown}")
        return fitting[0]

    def _latest(self, ids: Sequence[str]) -> str:
        for found in ids[: -_LOOK_BACK - 1 : -1]:
            record = self.read(found)
            if record["plan"]["nodes"] and not record.get("superseded"):
                return found
        return ids[-1]

    def read(self, decision: str) -> dict[str, Any]:
        """Read a record by its full id. Raises Rejected when there is none or it is damaged."""
        key = decision_key(self.cluster, decision)
        data = self._blobs.get(key)
        if data is None:
            raise Rejected(f"decision {decision!r}: there is no {key}")
        return parse_record(data, key)

    def newest(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Read the `most` newest decisions, or all, newest first; one that cannot be read is told on standard error."""
        ids = self.ids()[::-1][:most]
        with ThreadPoolExecutor(_AT_ONCE) as readers:
            for start in range(0, len(ids), _AT_ONCE):
                found = readers.map(self._read_or_tell, ids[start : start + _AT_ONCE])
                yield from (record for record in found if record is not None)

    def _read_or_tell(self, decision: str) -> dict[str, Any] | None:
        try:
            return self.read(decision)
        except Rejected as error:
            print(f"nodesmith: left out: {error}", file=sys.stderr)
            return None

    def latest_snapshot(self) -> bytes | None:
        """Read the cluster's newest snapshot: the forwarder's if this is its bucket, else that of a decision."""
        latest = self._blobs.get(snapshot_key(self.cluster))
        if latest is not None:
            return latest
        kept = (self.snapshot(decision) for decision in self.ids()[: -_LOOK_BACK - 1 : -1])
        return next((snapshot for snapshot in kept if snapshot is not None), None)

    def snapshot(self, decision: str) -> bytes | None:
        """Read the snapshot that a decision was made from; None where none was kept."""
        return self._blobs.get(decision_snapshot_key(self.cluster, decision))


def parse_record(data: bytes, name: str) -> dict[str, Any]:
    """Read a record, compressed or plain. Raises Rejected naming what is wrong."""
    try:
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        record: Any = json.loads(text)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise Rejected(f"{name}: not the record of a decision: {error}") from None
    if not isinstance(record, Mapping) or record.get("format") != "nodesmith-decision":
        raise Rejected(
            f"{name}: not the record of a decision: its field 'format' is not 'nodesmith-decision'"
        )
    if record.get("version") != 1:
        raise Rejected(f"{name}: format version {record.get('version')!r}, this nodesmith reads version 1")
    return dict(record)


def clusters(folder: Path) -> Sequence[str]:
    """Name the clusters whose decisions a folder keeps, the one that decided last first."""
    found = (folder / "clusters").glob("*/decisions")
    return [path.parent.name for path in sorted(found, key=lambda path: -path.stat().st_mtime)]


def state_folder() -> Path:
    """Name the folder where local runs keep their records, by the XDG rules."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "nodesmith"


def writable_state_folder() -> Path:
    """Return the state folder, made if need be; where there is no home to write to, a temporary one."""
    try:
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return Path(mkdtemp(prefix="nodesmith-"))
    return folder if os.access(folder, os.W_OK) else Path(mkdtemp(prefix="nodesmith-"))
