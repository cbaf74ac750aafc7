"""docs/savings.md has a ClusterRole with the rights that `nodesmith savings` needs, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from nodesmith.observation.mirror import LEASES, WATCHED
from nodesmith_cli.costs.savings.reading import USAGE_PATH

PAGE = Path(__file__).parents[3] / "docs" / "savings.md"
_PATH = re.compile(r"/apis?/(?:(?P<group>[^/]+)/)?v\w+/(?P<resource>\w+)")


def granted() -> set[tuple[str, str]]:
    (role,) = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    )
    assert {tuple(rule["verbs"]) for rule in role["rules"]} == {("list",)}
    return {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def needed() -> set[tuple[str, str]]:
    paths = [USAGE_PATH, *(path for kind in WATCHED if kind is not LEASES for path in kind.paths)]
    return {(match["group"] or "", match["resource"]) for match in map(_PATH.fullmatch, paths) if match}


def test_the_role_grants_what_the_command_lists_and_nothing_else() -> None:
    assert granted() == needed()
