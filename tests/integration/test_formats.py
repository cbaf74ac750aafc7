"""What functions persist and send: as each version has written it, as a later one may, and as one before did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.documents import FORMATS, changed
from tests.formats.golden import TODAY, files, text_of
from tests.versions import earlier, later

LATELY = ("table", "snapshot", "unplaced", "decision", "registration", "trial", "event", "delayedinvocation")


def document(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_written_as_its_file_says(name: str) -> None:
    """Where this fails a format has changed: `python -m tests.formats` writes its file anew.

    What has been released has to be read all the same, so a released version's files stay.
    """
    assert text_of(FORMATS[name].write()) == (TODAY / f"{name}.json").read_text()


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_version_has_written_is_read(path: Path) -> None:
    assert FORMATS[path.stem].read(document(path)) == FORMATS[path.stem].value


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_later_version_adds_is_left_out_and_the_rest_is_read(name: str) -> None:
    told = FORMATS[name]
    grown = changed(told, told.write(), later)
    assert grown != told.write()
    assert told.read(grown) == told.value


@pytest.mark.parametrize("name", LATELY)
def test_what_the_version_before_does_not_write_has_a_default(name: str) -> None:
    told = FORMATS[name]
    shrunk = changed(told, told.write(), earlier)
    assert shrunk != told.write()
    assert changed(told, shrunk, earlier) == shrunk
    assert told.read(shrunk) is not None
