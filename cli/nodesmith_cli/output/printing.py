"""The output of a command: as text, as a report, or as data that scripts read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith.errors import Rejected
from nodesmith_formats.wording import printable

TABLE, WIDE, JSON, YAML, NAME, HTML, JSONPATH = "table", "wide", "json", "yaml", "name", "html", "jsonpath="
IS_TEXT = (TABLE, WIDE)
"""The formats for people; all else goes to a program or a file, and standard output has nothing but that."""
SCHEMAS = "https://nodesmith.dev/schemas/"
"""Where the schemas of documents are; `nodesmith schema` prints them as well."""
_STOPPED = 130
"""The exit status after Ctrl-C, as of a shell."""


def print_report(
    data: Any,
    lines: Iterable[str],
    output: str,
    page: Callable[[], tuple[Any, str]] | None = None,
    names: Iterable[str] = (),
    schema: str = "",
) -> None:
    """Print `data` as data, `lines` as a table for people, or `names`, each as `kind/name`.

    `page` returns the HTML report and what it is about, if the command has one.
    """
    if output == HTML and page is not None:
        from nodesmith_cli.output.reporting.delivery import deliver

        deliver(*page())
    elif output in IS_TEXT:
        print("\n".join(map(printable, lines)))
    elif output == NAME:
        for name in names:
            print(printable(name))
    else:
        print_data(data, output, schema)


def interruptible(command: Callable[[], int], otherwise: str = "") -> int:
    """Run a command that can be run again after Ctrl-C, and return its exit status, 130 after Ctrl-C.

    The message then says so, with what else can be done.
    """
    try:
        return command()
    except KeyboardInterrupt:
        print(f"nodesmith: interrupted; run the command again to continue{otherwise}", file=sys.stderr)
        return _STOPPED


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows, the first of which has the titles, as lines with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def schema_address(name: str) -> str:
    """Return the address of the schema of a kind of document, which is also its `$id`."""
    return f"{SCHEMAS}{name}.schema.json"


def named(data: Any, schema: str) -> Any:
    """Return a document with the address of its schema as its first member. A list cannot name one."""
    return {"$schema": schema_address(schema), **data} if schema and isinstance(data, Mapping) else data


def print_data(data: Any, output: str, schema: str = "") -> None:
    """Print data as JSON, as YAML, or as what a JSONPath template selects. Raises Rejected for other formats.

    `schema` is the name of the document's schema, which JSON and YAML name.
    """
    data = named(data, schema)
    if output == JSON:
        print(json.dumps(data, indent=2))
    elif output == YAML:
        import yaml

        print(yaml.safe_dump(json.loads(json.dumps(data)), sort_keys=False, allow_unicode=True), end="")
    elif output.startswith(JSONPATH):
        from nodesmith_cli.output.jsonpaths import selected

        print(selected(output.removeprefix(JSONPATH), data))
    else:
        raise Rejected(f"-o {output}: this command does not have it")
