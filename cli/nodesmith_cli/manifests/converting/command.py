"""The implementation of `nodesmith convert`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith.model.karpenter.conversion.converting import convert
from nodesmith.model.karpenter.conversion.drafts import Conversion, Converted, FieldOutcome
from nodesmith.model.karpenter.conversion.nodeclasses import InstallationSettings
from nodesmith_cli.manifests.converting.layout import Remarks, finder, remarks_of, write_yaml
from nodesmith_cli.manifests.converting.objects import as_of_a_file, faults_of, unreadable
from nodesmith_formats.manifests.manifests import Document, Fault, read_documents

OK, REFUSED, BAD_INPUT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """What to convert, and how."""

    files: tuple[str, ...]
    around: InstallationSettings
    report: bool = False


def run(request: ConvertRequest, output: Literal["yaml", "json"]) -> int:
    """Convert and print objects, with findings on standard error. Returns the exit status.

    Raises Rejected if there is nothing to convert.
    """
    items = list(read_documents(request.files))
    documents = [item for item in items if isinstance(item, Document)]
    faults = [item for item in items if isinstance(item, Fault)]
    for fault in faults:
        _say(fault, "red")
    if not documents:
        raise Rejected(f"nothing to convert: {', '.join(request.files)}: no readable object")
    conversion = convert([document.manifest for document in documents], request.around, workloads=True)
    print(_WRITERS[output](documents, conversion), end="")
    if request.report:
        _print_report(documents, conversion)
    else:
        for problem in faults_of(documents, conversion):
            _say(problem, "yellow")
    refused = unreadable(documents, conversion)
    for fault in refused:
        _say(fault, "red")
    if faults:
        return BAD_INPUT
    return REFUSED if refused or any(c.outcome is FieldOutcome.REFUSED for c in conversion.changes) else OK


def _say(fault: Fault, colour: str) -> None:
    typer.secho(str(fault), fg=colour, err=True)


def _print_report(documents: Sequence[Document], conversion: Conversion) -> None:
    """Print every change with its risk, as tables on standard error."""
    from nodesmith_cli.manifests.converting.report import LEGEND, report_tables
    from nodesmith_cli.output.terminal import console

    side = console(stderr=True)
    for table in report_tables(documents, conversion):
        side.print(table)
    side.print(LEGEND, style="dim")


def as_yaml(documents: Sequence[Document], conversion: Conversion) -> str:
    """Return all objects as YAML. An unchanged document stays the same, byte for byte."""
    roots = {number: document.node for number, document in enumerate(documents)}
    remarks = {number: _remarks(document) for number, document in enumerate(documents)}
    parts: list[str] = []
    for _, group in groupby(conversion.objects, key=lambda each: _place(documents[each.number])):
        objects = list(group)
        if all(obj.manifest is documents[obj.number].manifest for obj in objects):
            parts.append(documents[objects[0].number].text.strip("\n") + "\n")
            continue
        parts += list(_written(objects, finder(roots), remarks, documents))
    return "---\n".join(parts)


def _written(
    objects: Sequence[Converted], node_of: Any, remarks: Mapping[int, Remarks], documents: Sequence[Document]
) -> Iterator[str]:
    for at, obj in enumerate(objects):
        text = write_yaml(as_of_a_file(obj), node_of, remarks, documents[obj.number].node)
        last = at + 1 == len(objects) or objects[at + 1].number != obj.number
        rest = remarks[obj.number].rest() if last else []
        yield text + "".join(f"{line}\n" for line in rest)


def _remarks(document: Document) -> Remarks:
    """Return the comments of a document with one object. The comments of a List are not attributed to its items."""
    kind = str(document.manifest.get("kind"))
    whole = document.node is not None and document.node.start_mark.index <= len(document.text)
    return remarks_of(document.text if whole and not kind.endswith("List") else "", document.node)


def _place(document: Document) -> tuple[str, int]:
    return document.file, document.number


def as_json(documents: Sequence[Document], conversion: Conversion) -> str:
    """Return all objects as JSON, as a List if there is more than one."""
    del documents
    objects = [as_of_a_file(obj).manifest for obj in conversion.objects]
    whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(whole, indent=2, default=str) + "\n"


_WRITERS = {"yaml": as_yaml, "json": as_json}
