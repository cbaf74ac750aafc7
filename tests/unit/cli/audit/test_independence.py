"""The audit can only verify the solver as long as they share no code."""

import ast
from pathlib import Path

import nodesmith_cli.audit

ROOM = Path(nodesmith_cli.audit.__file__).parent
GIVEN = {
    "apimachinery.quantities",
    "ec2.catalog",
    "ec2.instancetypes",
    "nodeclasses.nodeclasses",
    "policies",
}
"""The allowed parts of nodesmith.model: the catalogue and settings as given data, and the parsing of quantities."""


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return names | {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}


def test_the_audit_shares_nothing_with_the_solver_but_the_catalogue_and_quantities() -> None:
    names = {name for path in ROOM.rglob("*.py") for name in imported(path)}
    ours = {name for name in names if name.startswith("nodesmith")}
    assert len(ours) > len(GIVEN)
    allowed = {f"nodesmith.model.{name}" for name in GIVEN}
    assert {name for name in ours if not name.startswith("nodesmith_cli.audit")} <= allowed
