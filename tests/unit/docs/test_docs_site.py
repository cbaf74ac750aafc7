"""The documentation site has every page once, and links that work on GitHub work there. `make docs` checks the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import hooks

ROOT = Path(__file__).parents[3]
LARGEST_PICTURE = 100_000
REPOSITORY = "https://example.com/owner/nodesmith"


# BaseLoader ignores the Python objects in it.
CONFIG = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)  # noqa: S506 makes nothing but text, lists and dicts


def uris(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [uri for item in (nav.values() if isinstance(nav, dict) else nav) for uri in uris(item)]


def test_every_page_has_one_place_in_the_navigation() -> None:
    written = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(uris(hooks.expanded(CONFIG["nav"]))) == sorted([*written, *hooks.generated()])


def test_sections_are_those_of_diataxis() -> None:
    sections = [next(iter(item)) for item in CONFIG["nav"]]
    assert sections[1:5] == ["Tutorial", "How-to guides", "Reference", "Explanation"]


def test_a_folder_without_pages_is_left_out() -> None:
    assert hooks.expanded([{"Nothing": "nothing/"}, {"Health": "health.md"}]) == [{"Health": "health.md"}]


def test_the_tutorial_is_a_section_of_the_readme() -> None:
    pages = hooks.generated()
    assert pages["try-it.md"].startswith("# Try it\n")
    assert "make demo" in pages["try-it.md"]
    assert "## Install on AWS" in pages["index.md"]
    assert "make demo    #" not in pages["index.md"]


def test_the_index_of_a_folder_lists_its_pages_by_title() -> None:
    index = hooks.generated()["adr/index.md"]
    assert "- [3. Pins without a lock file](0003-pins-without-a-lock-file.md)\n" in index


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("index.md", "[a](docs/health.md)", "[a](health.md)"),
        ("index.md", "[a](docs/adr/)", "[a](adr/index.md)"),
        ("try-it.md", "[a](docs/local.md#machines)", "[a](local.md#machines)"),
        ("contributing.md", "[a](CHANGELOG.md)", "[a](changelog.md)"),
        ("architecture.md", "[the\nconcerns](concerns/)", "[the\nconcerns](concerns/index.md)"),
        ("concerns/dispatch.md", "[a](../health.md)", "[a](../health.md)"),
        ("concerns/dispatch.md", "[a](../../README.md)", "[a](../index.md)"),
        ("connect.md", "[a](../infra/)", f"[a]({REPOSITORY}/tree/HEAD/infra)"),
        ("connect.md", "[a](../app.py#L3)", f"[a]({REPOSITORY}/blob/HEAD/app.py#L3)"),
        ("reference/schemas.md", "[a](../schemas/plan.schema.json)", "[a](../schemas/plan.schema.json)"),
        ("reference/schemas.md", "[a](../../infra/cdk.schema.json)", "[a](../schemas/cdk.schema.json)"),
        ("connect.md", "[a](#checks)", "[a](#checks)"),
        ("connect.md", "[a](missing.md)", "[a](missing.md)"),
        ("connect.md", "[a](https://example.com/x)", "[a](https://example.com/x)"),
    ],
)
def test_links_lead_to_pages_or_to_the_repository(uri: str, link: str, expected: str) -> None:
    assert hooks.adapted(link, uri, REPOSITORY) == expected


def test_a_link_to_a_file_is_plain_text_if_no_repository_is_known() -> None:
    assert hooks.adapted("see [`infra/`](infra/).", "index.md", None) == "see `infra/`."


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("index.md", "![demo](docs/images/demo.svg)", "![demo](images/demo.svg)"),
        ("tour.md", "![demo](images/demo.svg)", "![demo](images/demo.svg)"),
        ("concerns/repair.md", "![demo](../images/demo.svg)", "![demo](../images/demo.svg)"),
    ],
)
def test_pictures_are_part_of_the_site(uri: str, link: str, expected: str) -> None:
    assert hooks.adapted(link, uri, None) == expected


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_loads_nothing_and_runs_nothing(path: Path) -> None:
    drawn = path.read_text()
    assert not re.findall(r"url\((?!#)|<script|<foreignObject|href=", drawn)
    assert path.stat().st_size < LARGEST_PICTURE


def test_code_blocks_stay_as_they_are() -> None:
    text = "```sh\n[a](docs/health.md)\n  - b\n```\n"
    assert hooks.adapted(text, "index.md", REPOSITORY) == text


def test_nested_lists_are_indented_by_four_spaces() -> None:
    assert hooks.adapted("1. a\n   - b\n     c\n", "health.md", None) == "1. a\n    - b\n     c\n"


def test_the_repository_is_known_in_a_workflow_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert hooks.repository() is None
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/nodesmith")
    assert hooks.repository() == REPOSITORY
