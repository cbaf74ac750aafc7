"""The pages in docs/reference/ are what the code says, and leave nothing without a meaning."""

from __future__ import annotations

import json
import re

import pytest

from nodesmith.registration import SETTINGS
from nodesmith.settings import NOTIFICATIONS
from nodesmith_cli.main import app
from tests.pages.reference import FOLDER, SCHEMAS_FOLDER, annotated, named_keys, pages, schema_files


@pytest.mark.parametrize(
    "name", ["annotations.md", "cli.md", "metrics.md", "notifications.md", "schemas.md", "settings.md"]
)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == pages()[name], "run `python -m tests.pages.reference`"


def test_the_schemas_are_what_the_code_says() -> None:
    written = {path.name: json.loads(path.read_text()) for path in SCHEMAS_FOLDER.glob("*.json")}
    del written["registration.schema.json"]  # test_context_schema compares it
    assert written == schema_files(), "run `python -m tests.pages.reference`"


def test_every_annotation_has_a_meaning() -> None:
    assert [key for key, meaning in annotated().items() if not meaning] == []


def test_the_page_has_every_annotation_that_the_code_reads() -> None:
    assert named_keys() - annotated().keys() == set(), "give each key a constant of its own, with a docstring"


def test_the_pages_have_every_command_setting_and_notification() -> None:
    commands = {str(each.name or each.callback.__name__) for each in app.registered_commands if each.callback}
    found = set(re.findall(r"^## nodesmith (\S+)", (FOLDER / "cli.md").read_text(), re.MULTILINE))
    assert {name.replace("_", "-") for name in commands} - found == set()
    assert [name for name in SETTINGS if f"`{name}`" not in (FOLDER / "settings.md").read_text()] == []
    headings = re.findall(r"^## (\w+)", (FOLDER / "notifications.md").read_text(), re.MULTILINE)
    assert headings == list(NOTIFICATIONS)
