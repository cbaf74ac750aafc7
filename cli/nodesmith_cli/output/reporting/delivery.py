"""The destination of a report: standard output, or a file if standard output is a terminal, which cannot show HTML."""

from __future__ import annotations

import sys
from pathlib import Path

from nodesmith.errors import Rejected
from nodesmith_cli.output.reporting.markup import Html


def deliver(page: Html, what: str) -> None:
    """Write a page to standard output, or to `nodesmith-WHAT.html` if that is a terminal.

    Raises Rejected if the file cannot be written.
    """
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(page.encode())  # UTF-8, as the page declares, in any locale
        return
    file = Path(f"nodesmith-{what}.html")
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Rejected(
            f"{file}: cannot be written: {error.strerror}; redirect the output to a file"
        ) from None
    print(f"written to {file}", file=sys.stderr)
