"""CEL rules on the simulated API server, in the words of the real one."""

from __future__ import annotations

from nodesmith_formats.kubernetes.errors import FieldProblem
from nodesmith_local.apiserver.storage.celrules import rule_problems

FAMILIES = {
    "type": "object",
    "x-kubernetes-validations": [
        {"rule": "{'AL2': 'al2'}[self.family] == self.alias", "message": "they differ", "fieldPath": ".alias"}
    ],
}


def test_a_rule_that_looks_up_a_missing_key_refuses_the_object_and_names_the_key() -> None:
    found = list(rule_problems(FAMILIES, {"family": "Ubuntu", "alias": "al2"}, None, ()))
    text = 'Invalid value: "object": no such key: Ubuntu evaluating rule: they differ'
    assert found == [FieldProblem("", "FieldValueInvalid", text)]


def test_a_rule_that_does_not_hold_names_the_field() -> None:
    found = list(rule_problems(FAMILIES, {"family": "AL2", "alias": "al2023"}, None, ()))
    assert found == [FieldProblem("alias", "FieldValueInvalid", "Invalid value: they differ")]
