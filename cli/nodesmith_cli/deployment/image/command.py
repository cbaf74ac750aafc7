"""The implementation of `nodesmith image push`. Only the reference goes to standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.deployment.image.credentials import Credentials
from nodesmith_cli.deployment.image.outcome import PushedImage
from nodesmith_cli.deployment.image.pushing import PLATFORMS, PushOptions, push_image
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.safeconsole import SafeConsole
from nodesmith_formats.wording import printable

OK, MAY_PASS = 0, 1
_STATES = {"there": "exists", "missing": "would be pushed"}


@dataclass(frozen=True, slots=True)
class Login:
    """A user name, and whether its password is read from standard input."""

    username: str
    password_stdin: bool

    def read(self) -> Credentials | None:
        """Return the credentials, or None if there are none. Raises Rejected if only one of the options is set."""
        if bool(self.username) != self.password_stdin:
            lacking = "--password-stdin" if self.username else "--username"
            raise Rejected(f"--username and --password-stdin must be used together: {lacking} is missing")
        if not self.username:
            return None
        password = sys.stdin.read().rstrip("\r\n")
        if not password:
            raise Rejected("--password-stdin: standard input is empty")
        return Credentials(self.username, password, f"--username {self.username}")


def push(
    repository: str,
    *,
    base: str,
    platforms: Sequence[str] | None,
    login: Login,
    insecure: bool,
    wheels: Path | None,
    dry_run: bool,
    output: str,
) -> int:
    """Push the image, print the result, and return the exit status. Raises Rejected."""
    if wheels is not None and not wheels.is_dir():
        raise Rejected(f"--wheels {wheels}: no such folder")
    options = PushOptions(
        base=base,
        platforms=platforms or PLATFORMS,
        credentials=login.read(),
        is_plain=insecure,
        dry_run=dry_run,
        wheels=wheels,
    )
    console = SafeConsole(stderr=True)
    try:
        with _Steps(console) as steps:
            pushed = push_image(repository, options, steps.on_step)
    except Transient as error:
        print(f"nodesmith: {printable(str(error))}", file=sys.stderr)
        return MAY_PASS
    if output == "table":
        _show(console, pushed)
        print(pushed.reference_by_digest)
    else:
        print_data(pushed.report(), output, "image")
    return OK


class _Steps:
    """Progress output: each step once it takes longer than a second, on a terminal only."""

    def __init__(self, console: Console) -> None:
        self._console, self._step, self._shown = console, "", ExitStack()

    def __enter__(self) -> _Steps:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def on_step(self, what: str, _sent_bytes: int) -> None:
        """Show a step, unless it is the one that is shown."""
        if what != self._step:
            self._step = what
            self._shown.close()
            key = f"image-{what.partition(' ')[0]}"  # the rest names a digest or a tag
            self._shown.enter_context(progress(what, key=key, to=self._console))


def _show(console: Console, pushed: PushedImage) -> None:
    """Print the state of each part, and the base of each platform's image."""
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "MB", "state", "digest"):
        table.add_column(heading, justify="right" if heading == "MB" else "left", no_wrap=True)
    for part in pushed.parts:
        megabytes = f"{part.size / 1e6:,.1f}"
        table.add_row(part.what, megabytes, _STATES.get(part.result, part.result), part.digest[:19])
    console.print(table)
    lines = [f"{name}: {digest}, on {pushed.bases[name]}" for name, digest in pushed.manifests.items()]
    lines.append(f"{pushed.target}: {'dry run: nothing was pushed' if pushed.is_dry else 'pushed'}")
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
