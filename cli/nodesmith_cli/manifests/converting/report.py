"""The report of a conversion: every change with its place, outcome and risk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from nodesmith.model.karpenter.conversion.drafts import Change, Conversion, Fate
from nodesmith_cli.manifests.converting.objects import fault_of
from nodesmith_formats.manifests.manifests import Document

_RISKS = {
    Fate.MOVED: "none",
    Fate.ADDED: "none",
    Fate.REPAIRED: "low",
    Fate.ALTERED: "check",
    Fate.DROPPED: "lost",
    Fate.REFUSED: "blocks",
}
_STYLES = {Fate.REPAIRED: "yellow", Fate.ALTERED: "yellow", Fate.DROPPED: "yellow", Fate.REFUSED: "red"}
_TITLES = ("line", "field", "change", "details", "risk")
LEGEND = (
    "risk: low = verify that it is what you meant, check = behaves differently now, lost = has no effect, "
    "blocks = needs your decision"
)


def report_tables(documents: Sequence[Document], conversion: Conversion) -> Iterator[Table]:
    """Yield a table of changes for each object, in the order of the objects."""
    for number, changes in groupby(conversion.changes, key=lambda change: change.number):
        document = documents[number]
        title = f"{document.object} in {document.file}"
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for name in _TITLES:
            table.add_column(name, overflow="fold", justify="right" if name == "line" else "left")
        for change in changes:
            table.add_row(*_row(documents, change), style=_STYLES.get(change.fate))
        yield table


def _row(documents: Sequence[Document], change: Change) -> tuple[str, ...]:
    line = fault_of(documents, change).line
    return str(line or ""), change.field, str(change.fate), change.why, _RISKS[change.fate]
