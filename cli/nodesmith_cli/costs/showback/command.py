"""`nodesmith ledger`: read the booked costs, group them, and print or write them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nodesmith.adapters.s3 import S3Blobs
from nodesmith.errors import Rejected, Transient
from nodesmith.model.costs.allocations import ALLOCATIONS, Allocation, MoveOutcome
from nodesmith_cli.access.awsclients import aws_client
from nodesmith_cli.costs.showback.grouping import Group, grouped, in_dollars
from nodesmith_cli.costs.showback.reading import BookedCosts, read_month
from nodesmith_cli.costs.showback.writing import (
    GROUP_COLUMNS,
    ROW_COLUMNS,
    all_rows,
    group_rows,
    to_csv,
    to_opencost,
    to_parquet,
)
from nodesmith_cli.output import printing
from nodesmith_cli.output.progress import progress
from nodesmith_cli.views.explaining.commands import RecordSource
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import counted, printable, some

BUCKET, EXPORTS = "bucket", "exports"
_MOST_NAME = 60
"""The longest name in a table"""
_SUFFIXES = {"table": "txt", "json": "json", "csv": "csv", "parquet": "parquet", "opencost": "json"}


@dataclass(frozen=True, slots=True)
class ShowbackRequest:
    """The options of the command."""

    cluster: str
    month: str = ""
    by: str = ""
    bucket: str = ""
    region: str = ""
    keep: Path | None = None
    to: str = ""

    @property
    def where(self) -> RecordSource:
        """Where the objects are."""
        return RecordSource(self.cluster, self.bucket, self.region, self.keep)


def run(request: ShowbackRequest, view: str, output: str, now: datetime) -> int:
    """Show or write the costs or moves of a month, and return the exit status."""
    if request.to == BUCKET and not request.bucket:
        raise Rejected("--to bucket: requires --bucket, the bucket to read and to write")
    if view == "moves" and output not in {"table", "json"}:
        raise Rejected(f"-o {output}: moves are shown as table or json")
    month = read_month(request.month, now)
    _, blobs = request.where.records()
    books = BookedCosts(blobs, request.cluster)
    with progress("reading hours of nodes", key="ledger-reading"):
        moves = books.moves(month) if view == "moves" else ()
        rows = books.month(month, now) if view != "moves" else ()
    text: str | bytes = _moves(moves, output) if view == "moves" else _costs(request, rows, output, month)
    _put(
        request,
        text,
        f"{month:%Y-%m}{f'-by-{_file_name(request.by)}' if request.by else ''}.{_SUFFIXES[output]}",
    )
    for fault in books.faults:
        print(printable(fault), file=sys.stderr)
    return 0


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text)


def _costs(request: ShowbackRequest, rows: Sequence[Allocation], output: str, month: datetime) -> str | bytes:
    cluster = request.cluster
    if output in {"csv", "parquet"}:
        columns = GROUP_COLUMNS if request.by else ROW_COLUMNS
        group_list = group_rows(cluster, grouped(rows, request.by)) if request.by else all_rows(cluster, rows)
        return to_csv(group_list, columns) if output == "csv" else to_parquet(group_list, columns)
    by = request.by or "namespace"
    groups = grouped(rows, by)
    if output == "opencost":
        return json.dumps(to_opencost(cluster, groups), indent=2) + "\n"
    if output == "json":
        whole = sum(group.sum("nano_usd") for group in groups)
        document = {
            "cluster": cluster,
            "month": f"{month:%Y-%m}",
            "by": by,
            "from": min(row.window_start for row in rows).isoformat(),
            "to": max(row.window_end for row in rows).isoformat(),
            "nano_usd": whole,
            "groups": [group.to_item() for group in groups],
        }
        return json.dumps(printing.named(document, "costs"), indent=2) + "\n"
    return "\n".join(map(printable, _table(groups, rows, by))) + "\n"


def _table(groups: Sequence[Group], rows: Sequence[Allocation], by: str) -> Iterator[str]:
    start, end = min(row.window_start for row in rows), max(row.window_end for row in rows)
    yield f"from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, in USD"
    whole = Group("total", tuple(rows))
    width = min(_MOST_NAME, max(len(group.name) for group in (*groups, whole, Group(by, ()))))
    titles = ("cost", "share", "paid already", "CPU", "memory", "GPU", "DaemonSets")
    yield by.ljust(width) + "".join(title.rjust(14) for title in titles)
    for group in (*groups, whole):
        cost, all_ = group.sum("nano_usd"), whole.sum("nano_usd")
        shown = in_dollars(cost) + (estimate_mark(any(row.estimated for row in group.rows)) or " ")
        amounts = [f"{cost / all_:.1%}" if all_ else "-", in_dollars(group.sum("committed_nano_usd"))]
        amounts += [in_dollars(group.sum(f"{part}_nano_usd")) for part in ("cpu", "memory", "gpu")]
        amounts.append(in_dollars(group.of_daemonsets()))
        name = group.name if len(group.name) <= width else group.name[: width - 1] + "…"
        yield name.ljust(width) + shown.rjust(14) + "".join(amount.rjust(14) for amount in amounts)
    if any(row.estimated for row in rows):
        yield "~ includes estimated prices, or nodes whose price is unknown and counted as 0"


def _moves(moves: Sequence[MoveOutcome], output: str) -> str:
    if output == "json":
        return json.dumps([move.to_row() for move in moves], indent=2) + "\n"
    return "\n".join(map(printable, _move_lines(moves))) + "\n"


def _move_lines(moves: Sequence[MoveOutcome]) -> Iterator[str]:
    settled = [move for move in moves if move.settled_at]
    yield f"{counted(len(moves), 'move')}, {len(settled)} settled a day later"
    for move in moves:
        promised = f"promised {in_dollars(move.promised_hourly_nano_usd * 24)} USD a day"
        word = "saved" if move.settled_at else "so far"
        came = f"{word} {in_dollars(move.saved_nano_usd)} USD"
        by = f" by {some(move.replacements)}" if move.replacements else ""
        yield f"{move.moved_at:%Y-%m-%d %H:%M}  {move.reason:<14} {some(move.sources)}{by}: {promised}, {came}"
        for name, cause in zip(move.moved_again, move.causes, strict=True):
            yield f"{'':18}{name} has ended again: {cause}"
    day = sum(move.promised_hourly_nano_usd for move in settled) * 24
    saved = sum(move.saved_nano_usd for move in settled)
    yield f"settled moves promised {in_dollars(day)} USD a day and saved {in_dollars(saved)}"


def _put(request: ShowbackRequest, content: str | bytes, name: str) -> None:
    """Print, or write to the file or the bucket that the options name. Raises Rejected if neither can be written."""
    data = content if isinstance(content, bytes) else content.encode()
    if not request.to:
        sys.stdout.write(data.decode())
        return
    if request.to == BUCKET:
        key = f"{ALLOCATIONS}/{EXPORTS}/{request.cluster}/{name}"
        try:
            S3Blobs(aws_client("s3", request.region), request.bucket).put(key, data)
        except Transient as error:
            raise Rejected(str(error)) from None
        print(f"written to s3://{request.bucket}/{key}")
        return
    try:
        Path(request.to).write_bytes(data)
    except OSError as error:
        raise Rejected(f"--to {request.to}: {error.strerror}") from None
    print(f"written to {request.to}")
