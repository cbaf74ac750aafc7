"""CloudFormation templates as values: intrinsic functions resolved, so that a test compares what would be deployed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodesmith.settings import function_name

PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::AccountId": "111122223333",
    "AWS::Region": "eu-west-1",
    "AWS::URLSuffix": "amazonaws.com",
}


@dataclass(frozen=True, slots=True)
class Template:
    """A template with Fn::Join, pseudo parameters and other `known` values resolved.

    A Ref or GetAtt of an unknown resource becomes `Id` or `Id.Arn`; the keys of `known` have the same form.
    """

    resources: dict[str, dict[str, Any]]
    outputs: dict[str, Any]
    text: str

    @classmethod
    def read(cls, path: Path, known: Mapping[str, str] = PSEUDO) -> Template:
        """Read a synthesised template."""
        return cls.parse(path.read_text(), known)

    @classmethod
    def parse(cls, text: str, known: Mapping[str, str] = PSEUDO) -> Template:
        """Read a template's JSON."""
        raw = json.loads(text)
        return cls(resolve(raw["Resources"], known), resolve(raw.get("Outputs", {}), known), text)

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of all resources of a type (without `AWS::`), by logical id."""
        found = {
            id_: each.get("Properties", {})
            for id_, each in self.resources.items()
            if each["Type"] == f"AWS::{kind}"
        }
        assert found, f"there is no {kind} in this template"
        return found

    def only(self, kind: str) -> dict[str, Any]:
        """Return the properties of the only resource of a type."""
        (properties,) = self.of_type(kind).values()
        return properties

    def function(self, concern: str, vpc: str = "") -> dict[str, Any]:
        """Return the properties of a concern's function."""
        (properties,) = (
            each
            for each in self.of_type("Lambda::Function").values()
            if each["FunctionName"] == function_name(concern, vpc)
        )
        return properties

    def statements(self, role: str) -> list[dict[str, Any]]:
        """Return the IAM statements of a role, by the role's logical id; actions and resources are always lists."""
        policies = self.of_type("IAM::Role")[role].get("Policies", [])
        documents = [each["PolicyDocument"] for each in policies]
        return [_lists(statement) for document in documents for statement in document["Statement"]]

    def trust(self, role: str) -> list[dict[str, Any]]:
        """Return the statements of a role's trust policy, by the role's logical id; actions are always lists."""
        document = self.of_type("IAM::Role")[role]["AssumeRolePolicyDocument"]
        return [_lists(statement) for statement in document["Statement"]]

    def role_of(self, concern: str, vpc: str = "") -> str:
        """Return the logical id of the role of a concern's function."""
        role: str = self.function(concern, vpc)["Role"]
        return role.removesuffix(".Arn").rpartition("/")[2]

    def role_named(self, name: str) -> str:
        """Return the logical id of the role with that name."""
        (found,) = (id_ for id_, each in self.of_type("IAM::Role").items() if each.get("RoleName") == name)
        return found


def resolve(value: Any, known: Mapping[str, str] = PSEUDO) -> Any:
    """Resolve intrinsic functions as far as the template and the known resources allow."""
    match value:
        case {"Ref": str(name), **rest} if not rest:
            return known.get(name, name)
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return known.get(f"{name}.{attribute}", f"{name}.{attribute}")
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(str(resolve(part, known)) for part in parts)
        case {"Fn::Split": [str(separator), whole]}:
            return str(resolve(whole, known)).split(separator)
        case {"Fn::Select": [int(number), parts]}:
            found = resolve(parts, known)
            return found[number] if number < len(found) else ""
        case dict():
            return {key: resolve(each, known) for key, each in value.items()}
        case list():
            return [resolve(each, known) for each in value]
        case _:
            return value


def _lists(statement: dict[str, Any]) -> dict[str, Any]:
    as_lists: dict[str, Any] = {
        key: [statement[key]] if isinstance(statement[key], str) else statement[key]
        for key in ("Action", "Resource")
        if key in statement
    }
    return {**statement, **as_lists}
