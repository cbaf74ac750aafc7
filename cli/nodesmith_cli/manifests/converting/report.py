"""The report of a conversion: every change with its place, outcome and risk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from nodesmith.model.karpenter.conversion.drafts import Change, Conversion, FieldOutcome
from nodesmith_cli.manifests.converting.objects import fault_of
from nodesmith_formats.manifests.manifests import Document

_RISKS = {
    FieldOutcome.MOVED: "none",
    FieldOutcome.ADDED: "none",
    FieldOutcome.REPAIRED: "low",
    FieldOutcome.ALTERED: "check",
    FieldOutcome.DROPPED: "lost",
    FieldOutcome.REFUSED: "blocks",
}
_STYLES = {
    FieldOutcome.REPAIRED: "yellow",
    FieldOutcome.ALTERED: "yellow",
    FieldOutcome.DROPPED: "yellow",
    FieldOutcome.REFUSED: "red",
}
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
            table.add_row(*_row(documents, change), style=_STYLES.get(change.outcome))
        yield table


def _row(documents: Sequence[Document], change: Change) -> tuple[str, ...]:
    line = fault_of(documents, change).line
    return str(line or ""), change.field, str(change.outcome), change.explanation, _RISKS[change.outcome]
