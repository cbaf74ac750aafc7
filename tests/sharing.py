"""What all tests of a process share: AWS's API models and commands, and the check of what commands write as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import typer.main
import typer.testing

from nodesmith_cli.output import printing
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


@contextmanager
def documents_follow_their_schemas() -> Iterator[None]:
    """Fail a test in which a command writes a document that its schema does not allow."""
    named = printing.named

    def checked(reported: Any, schema: str) -> Any:
        found = named(reported, schema)
        if schema:
            validator(schema).validate(json.loads(json.dumps(found)))
        return found

    with patch.object(printing, "named", checked):
        yield


@cache
def validator(schema: str) -> Any:
    """Return a validator of one kind of document."""
    from jsonschema import Draft202012Validator

    from nodesmith_cli.output.documents.schemas import schema_of

    return Draft202012Validator(schema_of(schema))
