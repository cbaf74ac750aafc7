"""The rules of docs/architecture.md that no off-the-shelf linter knows."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nodesmith.model.functions import Concern

ROOT = Path(__file__).parents[3]
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


def nodes(path: Path, pattern: str) -> Iterator[ast.AST]:
    """Yield the syntax nodes of a file in which the pattern occurs: parsing all files takes seconds."""
    text = path.read_text()
    if re.search(pattern, text):
        yield from ast.walk(ast.parse(text))


PRODUCT = files(
    "app.py",
    "cli/*.py",
    "formats/*.py",
    "forwarder/*.py",
    "functions/*.py",
    "infra/*.py",
    "layers/*.py",
    "local/*.py",
    "monitoring/*.py",
    "requirements/*.py",
)
TESTS = files("tests/*.py")


def test_the_rules_find_the_code() -> None:
    assert len(PRODUCT) > 50
    assert CORE / "errors.py" in PRODUCT
    assert Path(__file__) in TESTS


def test_no_module_has_a_vague_name() -> None:
    vague = re.compile(r"(^|_)(utils?|helpers?|managers?|common|misc)(_|$)")
    assert (
        named([p for p in PRODUCT + TESTS if any(map(vague.search, (p.stem, *p.relative_to(ROOT).parts)))])
        == []
    )


def test_no_module_of_the_product_has_more_than_400_lines() -> None:
    assert {name: lines(ROOT / name) for name in named(PRODUCT) if lines(ROOT / name) > 400} == {}


def test_no_folder_of_code_has_more_than_15_modules_and_folders() -> None:
    """The exception is `tests`: suites by the names that pytest is given, and a folder for each thing they share."""
    inside = {
        each
        for path in PRODUCT + TESTS
        for each in (path, *path.relative_to(ROOT).parents)
        if each.name != "__init__.py"
    }
    siblings = Counter(str((ROOT / each).parent.relative_to(ROOT)) for each in inside if each != Path())
    assert {folder for folder, count in siblings.items() if count > 15} == {"tests"}


def test_handlers_have_at_most_20_lines() -> None:
    handlers = files("functions/*/handler.py")
    assert {name: lines(ROOT / name) for name in named(handlers) if lines(ROOT / name) > 20} == {}


def test_nothing_catches_every_exception() -> None:
    """The exception is the loop over a batch: one cluster's failure may not keep it from serving the others."""
    caught = [
        str(path.relative_to(ROOT))
        for path in PRODUCT + TESTS
        for node in nodes(path, r"except[\s\\]*:|\b(Base)?Exception\b")
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & {ast.unparse(n) for n in ast.walk(node.type)}
        )
    ]
    assert caught == ["layers/core/python/nodesmith/composition/handlers.py"]


def test_only_two_modules_buy_evict_and_terminate() -> None:
    effects = {"launch", "terminate", "remove", "evict", "delete_pods", "release_node"}
    callers = {
        path.relative_to(CORE).as_posix()
        for path in files("layers/core/python/nodesmith/*.py")
        if "adapters" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in effects
        and ast.unparse(node.func.value).endswith(("cloud", "cluster"))
    }
    assert callers == {"effects.py", "launcheffects.py"}


def test_every_console_of_the_command_line_escapes_control_characters() -> None:
    """Text from clusters, manifests and catalogues could control the terminal through a plain console of rich."""
    plain = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        for node in nodes(path, r"\bConsole\(")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console"
    }
    assert plain == set()


def test_no_test_can_be_skipped() -> None:
    skipping = {"skip", "skipif", "xfail", "importorskip", "skipTest", "skipUnless"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in TESTS
        for node in nodes(path, "|".join(sorted(skipping)))
        if isinstance(node, ast.Attribute) and node.attr in skipping
    ]
    assert found == []


# In pieces, so that this file does not break its own rule.
HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "yarnpkg" + ".com"]
MACHINE_PATHS = re.compile(r"(?<![\w.~*-])/(?:work|root|home|Users)/" + r"\w")


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    for path in files():
        text = path.read_bytes().decode(errors="ignore")
        assert [host for host in HOSTS if host in text] == [], path
        assert MACHINE_PATHS.findall(text) == [], path


@pytest.mark.parametrize("concern", [concern.value for concern in Concern])
def test_a_concern_has_a_function_a_controller_and_a_page(concern: str) -> None:
    expected = [
        ROOT / "functions" / concern / "handler.py",
        ROOT / "docs" / "concerns" / f"{concern}.md",
    ]
    assert named([path for path in expected if not path.is_file()]) == []
    assert len(list((CORE / "controllers").rglob(f"{concern}.py"))) == 1


def test_every_function_and_page_belongs_to_a_concern() -> None:
    concerns = {concern.value for concern in Concern}
    assert {path.parent.name for path in files("functions/*/handler.py")} <= concerns
    assert {path.stem for path in files("docs/concerns/*.md")} <= concerns


@pytest.mark.parametrize("page", named(files("*.md")))
def test_links_of_a_page_lead_to_files(page: str) -> None:
    """Headings and other sites are not checked."""
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", (ROOT / page).read_text())
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", named(files("*.md")))
def test_links_of_a_page_lead_to_sections(page: str) -> None:
    links = re.findall(r"\]\(([^)\s#]*\.md|)#([^)\s]+)\)", (ROOT / page).read_text())
    targets = [((ROOT / page).parent / target if target else ROOT / page, anchor) for target, anchor in links]
    assert [anchor for target, anchor in targets if anchor not in _anchors(target)] == []


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in plain)


def test_tests_start_moto_only_with_the_checks_that_it_lacks() -> None:
    allowed = {
        "tests/aws/account.py",
        "tests/integration/ec2/test_strict_aws.py",
        "tests/unit/repository/test_house_rules.py",
    }
    assert {name for name in named(TESTS) if "mock_aws" in (ROOT / name).read_text()} <= allowed
