"""The rules of docs/architecture.md that no off-the-shelf linter knows."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from nodesmith.model.functions.hints import Concern

ROOT = Path(__file__).parents[2]
CORE = ROOT / "layers/core/python/nodesmith"


def files(*patterns: str) -> list[Path]:
    """Return what git tracks, or would once it is added."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(ROOT / name for name in set(names) if name and (ROOT / name).is_file())


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


PRODUCT = files(
    "app.py",
    "cli/*.py",
    "formats/*.py",
    "forwarder/*.py",
    "functions/*.py",
    "infra/*.py",
    "layers/*.py",
    "local/*.py",
    "requirements/*.py",
)
TESTS = files("tests/*.py")


def test_the_rules_are_looking_at_the_code() -> None:
    assert len(PRODUCT) > 50
    assert CORE / "errors.py" in PRODUCT
    assert Path(__file__) in TESTS


def test_no_module_is_named_for_what_it_is_not_about() -> None:
    vague = re.compile(r"(^|_)(utils?|helpers?|managers?|common|misc)(_|$)")
    assert (
        named([p for p in PRODUCT + TESTS if any(map(vague.search, (p.stem, *p.relative_to(ROOT).parts)))])
        == []
    )


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    assert {name: lines(ROOT / name) for name in named(PRODUCT) if lines(ROOT / name) > 400} == {}


def test_handlers_only_parse_and_call_their_controller() -> None:
    handlers = files("functions/*/handler.py")
    assert {name: lines(ROOT / name) for name in named(handlers) if lines(ROOT / name) > 20} == {}


def test_nothing_catches_every_exception() -> None:
    """Except for the frame of a batch: one cluster's failure may not keep it from serving the others."""
    caught = [
        str(path.relative_to(ROOT))
        for path in PRODUCT + TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & {ast.unparse(n) for n in ast.walk(node.type)}
        )
    ]
    assert caught == ["layers/core/python/nodesmith/handlers.py"]


def test_no_test_is_written_to_be_skipped() -> None:
    skipping = {"skip", "skipif", "xfail", "importorskip", "skipTest", "skipUnless"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in skipping
    ]
    assert found == []


# Said in pieces, so that this file does not break its own rule.
HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "yarnpkg" + ".com"]
MACHINE_PATHS = re.compile(r"(?<![\w.~*-])/(?:work|root|home|Users)/" + r"\w")


def test_no_file_names_a_registry_or_a_path_of_someones_machine() -> None:
    for path in files():
        text = path.read_bytes().decode(errors="ignore")
        assert [host for host in HOSTS if host in text] == [], path
        assert MACHINE_PATHS.findall(text) == [], path


@pytest.mark.parametrize("concern", [concern.value for concern in Concern])
def test_a_concern_has_its_room_on_every_floor(concern: str) -> None:
    rooms = [
        ROOT / "functions" / concern / "handler.py",
        CORE / "controllers" / f"{concern}.py",
        ROOT / "docs" / "concerns" / f"{concern}.md",
    ]
    assert named([room for room in rooms if not room.is_file()]) == []


def test_every_function_and_page_is_a_concerns() -> None:
    concerns = {concern.value for concern in Concern}
    assert {path.parent.name for path in files("functions/*/handler.py")} <= concerns
    assert {path.stem for path in files("docs/concerns/*.md")} <= concerns


@pytest.mark.parametrize("page", named(files("*.md")))
def test_what_a_page_links_to_is_there(page: str) -> None:
    """Looks at files and folders; a heading or another site is the reader's to follow."""
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", (ROOT / page).read_text())
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not ((ROOT / page).parent / link).exists()] == []


def test_every_test_meets_an_aws_that_refuses_what_aws_refuses() -> None:
    allowed = {"tests/account.py", "tests/integration/test_strict_aws.py", "tests/unit/test_house_rules.py"}
    assert {name for name in named(TESTS) if "mock_aws" in (ROOT / name).read_text()} <= allowed
