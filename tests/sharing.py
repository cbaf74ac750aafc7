"""What all tests of a process share, since making it again takes longer than most tests: AWS's API models, commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import typer.main
import typer.testing

from nodesmith_local.functions.sharedclients import models_are_shared


@contextmanager
def constants_are_shared() -> Iterator[None]:
    """Let sessions of botocore read each model once, and build the command line of an application once.

    A command line is built in 16 ms from functions' signatures, and running it does not change it.
    """
    built = cache(typer.main.get_command)
    with (
        models_are_shared(),
        patch.object(typer.main, "get_command", built),
        patch.object(typer.testing, "_get_command", built),
    ):
        yield
