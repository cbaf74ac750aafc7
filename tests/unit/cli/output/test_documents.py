"""Documents that commands write follow the schemas that they name. tests/sharing.py checks those of all other tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from typer.testing import CliRunner

from nodesmith.decisions.provisioning.plan import SCHEMA
from nodesmith.errors import Rejected
from nodesmith_cli.main import app
from nodesmith_cli.output import printing
from nodesmith_cli.output.documents.schemas import DOCUMENTS, schema_of
from nodesmith_formats.decisions.records import parse_record
from tests.formats.golden import TODAY
from tests.sharing import validator

GOLDEN: Mapping[str, Any] = json.loads((TODAY / "decision.json").read_text())
CHECK: Mapping[str, Any] = {
    "overlay": "forwarder/",
    "findings": [{"check": "crds", "severity": "info", "message": "found", "remedy": ""}],
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_schema_is_valid_has_its_address_and_describes_its_document(name: str) -> None:
    found = schema_of(name)
    Draft202012Validator.check_schema(found)
    assert found["$id"] == printing.schema_address(name)
    described = [found, *found.get("$defs", {}).values()]
    assert [each for each in described if not each["description"] or each["additionalProperties"]] == []


def test_a_recorded_decision_names_its_schema_and_follows_it() -> None:
    assert GOLDEN["$schema"] == SCHEMA == printing.schema_address("decision")
    validator("decision").validate(GOLDEN)


@pytest.mark.parametrize(
    ("place", "member", "value"),
    [
        ((), "unheardOf", 1),
        ((), "version", "1"),
        ((), "id", None),
        (("plan",), "unheardOf", 1),
        (("plan",), "priceHourlyUsd", "0.1"),
        (("plan",), "nodes", {}),
        (("inputs", "snapshot"), "takenAt", 5),
    ],
)
def test_an_unknown_member_or_a_wrong_type_is_invalid(
    place: tuple[str | int, ...], member: str, value: Any
) -> None:
    record = json.loads(json.dumps(GOLDEN))
    inner = record
    for step in place:
        inner = inner[step]
    inner[member] = value
    assert not validator("decision").is_valid(record)


def test_a_member_that_is_always_there_is_required() -> None:
    assert not validator("decision").is_valid({k: v for k, v in GOLDEN.items() if k != "inputsHash"})


def test_a_record_is_read_with_and_without_the_address_of_its_schema() -> None:
    without = {name: value for name, value in GOLDEN.items() if name != "$schema"}
    assert parse_record(json.dumps(GOLDEN).encode(), "r") == GOLDEN
    assert parse_record(json.dumps(without).encode(), "r") == without
    assert printing.named(without, "decision") == GOLDEN


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_begin_with_the_address(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_data(CHECK, output, "check")
    first = capsys.readouterr().out.removeprefix("{\n").splitlines()[0]
    assert first.strip().strip(",").replace('"', "") == f"$schema: {printing.schema_address('check')}"


def test_a_command_that_writes_what_its_schema_does_not_allow_fails_its_test() -> None:
    with pytest.raises(ValidationError, match="unheardOf"):
        printing.print_data({**CHECK, "unheardOf": 1}, "json", "check")


def test_the_command_lists_schemas_and_prints_one() -> None:
    listed = CliRunner().invoke(app, ["schema"]).stdout.splitlines()
    assert [line.split()[0] for line in listed] == sorted(DOCUMENTS)
    assert json.loads(CliRunner().invoke(app, ["schema", "plan"]).stdout) == schema_of("plan")


def test_an_unknown_schema_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Rejected, match="schema 'savigns': is not known, did you mean 'savings'"):
        schema_of("savigns")
