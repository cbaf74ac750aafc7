"""Formats that functions store and send, as written by each version, by a later one, and by the previous one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.documents import FORMATS, changed
from tests.formats.golden import TODAY, files, text_of
from tests.formats.versions import earlier, later

LATELY = ("table", "snapshot", "unplaced", "decision", "registration", "trial", "event", "delayedinvocation")


def document(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_written_as_in_its_golden_file(name: str) -> None:
    """If this fails, a format has changed: `python -m tests.formats` rewrites its file.

    Released formats must stay readable, so a released version's files stay.
    """
    assert text_of(FORMATS[name].write()) == (TODAY / f"{name}.json").read_text()


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_data_of_every_released_version_can_be_read(path: Path) -> None:
    assert FORMATS[path.stem].read(document(path)) == FORMATS[path.stem].value


@pytest.mark.parametrize("name", FORMATS)
def test_additions_of_a_later_version_are_ignored_and_the_rest_is_read(name: str) -> None:
    reported = FORMATS[name]
    grown = changed(reported, reported.write(), later)
    assert grown != reported.write()
    assert reported.read(grown) == reported.value


@pytest.mark.parametrize("name", LATELY)
def test_fields_that_the_previous_version_does_not_write_have_defaults(name: str) -> None:
    reported = FORMATS[name]
    shrunk = changed(reported, reported.write(), earlier)
    assert shrunk != reported.write()
    assert changed(reported, shrunk, earlier) == shrunk
    assert reported.read(shrunk) is not None
