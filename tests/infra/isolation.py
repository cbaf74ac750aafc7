"""Which role may do what: every role of a region with every call of the universe, in sessions and without.

`python -m tests.infra.isolation` writes the table of what is allowed, which a test compares (see the PYTHONPATH in
pyproject.toml).
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.infra.deployment import ACCOUNT, CLUSTERS, OTHER_VPC, REGION, VPC, code_on_empty_layers, synthesise
from tests.infra.iam import Context, allows, applies, session
from tests.infra.templates import Template
from tests.infra.universe import Call, Cluster, cluster_calls, shared_calls

TABLE = Path(__file__).with_name("allowed.md")
ASKING = Cluster("alpha", VPC)
OTHERS = tuple(Cluster(name, OTHER_VPC) for name in ("beta", "alphabet", "alph", "alpha-2"))
"""The clusters that the session of `ASKING` must not reach; some names are prefixes of others."""
FORWARDER = f"nodesmith-forwarder-{REGION}"
_HEAD = """# What each role is allowed

Written by `python -m tests.infra.isolation`, and checked by `test_isolation.py`.

- *session*: in the session of a cluster, for that cluster's resources only
- *function*: the function's code, without a session
- *Lambda*: Lambda itself on the function's behalf; the function's code may not
"""


def callers(template: Template, role: str, cluster: Cluster) -> dict[str, Context]:
    """Return the callers with a role (its name), each with its IAM context; `cluster` is the cluster of the session."""
    if role == FORWARDER:
        arn = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{cluster.name}"
        return {
            "session": {
                "aws:PrincipalTag/eks-cluster-name": cluster.name,
                "aws:PrincipalTag/eks-cluster-arn": arn,
            },
            "function": {},
        }
    function = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{role.removesuffix(f'-{REGION}')}"
    without: dict[str, Context] = {"function": {"lambda:SourceFunctionArn": function}, "Lambda": {}}
    if not _has_sessions(template, role):
        return without
    return {"session": session(cluster.name, cluster.vpc_id), **without}


def roles(template: Template) -> dict[str, list[dict[str, Any]]]:
    """Return the statements of the roles of all functions and of the forwarder, by the roles' names."""
    found = template.of_type("IAM::Role")
    return {each["RoleName"]: template.statements(id_) for id_, each in found.items() if "RoleName" in each}


def violations(template: Template) -> list[str]:
    """Return each forbidden access: to another cluster, or to any cluster without a session."""
    found = sorted(roles(template).items())
    return [each for role, statements in found for each in role_violations(template, role, statements)]


def role_violations(template: Template, role: str, statements: list[dict[str, Any]]) -> list[str]:
    """Return each forbidden access that a role (its name) would have with these statements."""
    found, who = [], callers(template, role, ASKING)
    for cluster in (ASKING, *OTHERS):
        for call in _calls(statements, cluster_calls(cluster, ASKING)):
            if cluster != ASKING and "session" in who and _is_allowed(statements, call, who["session"]):
                found.append(f"{role}: {ASKING.name}'s session: {call.action} on {_named(call)}")
            concern = role.removesuffix(f"-{REGION}").rpartition("-")[2]
            if concern not in call.open_to and _is_allowed(statements, call, who["function"]):
                found.append(f"{role}: without a session: {call.action} on {_named(call)}")
    return found


def unused(template: Template) -> list[str]:
    """Return the actions of statements that match no call of the universe, so that nothing would check them."""
    found = []
    for role, statements in sorted(roles(template).items()):
        who = callers(template, role, ASKING).values()
        calls = list(_all_calls(role))
        for statement in statements:
            for action in statement["Action"]:
                asked = (
                    applies(statement, action, call.resource, {**call.context, **caller})
                    for call in calls
                    if call.action == action
                    for caller in who
                )
                if not any(asked):
                    found.append(f"{role}: {statement['Sid']}: {action}")
    return found


def table(template: Template) -> str:
    """Return a Markdown table of what each role is allowed, and in which context."""
    parts = [_HEAD]
    for role, statements in sorted(roles(template).items()):
        rows: dict[tuple[str, str], list[str]] = defaultdict(list)
        for call in _calls(statements, _all_calls(role)):
            allowed = [
                name
                for name, caller in callers(template, role, ASKING).items()
                if _is_allowed(statements, call, caller)
            ]
            if "function" in allowed and "Lambda" in allowed:
                allowed.remove("Lambda")
            if allowed:
                actions = rows[(call.about, ", ".join(allowed))]
                if call.action not in actions:
                    actions.append(call.action)
        parts.append(f"\n## {role}\n\n| on what | who | may |\n|---|---|---|\n")
        parts += [f"| {about} | {who} | {', '.join(may)} |\n" for (about, who), may in rows.items()]
    return "".join(parts)


def _all_calls(role: str) -> Iterator[Call]:
    yield from cluster_calls(ASKING, ASKING)
    yield from shared_calls(f"arn:aws:iam::{ACCOUNT}:role/{role}")


def _calls(statements: list[dict[str, Any]], calls: Iterator[Call]) -> list[Call]:
    """Leave out calls that no statement names: they are denied to all."""
    named = {action for each in statements for action in each["Action"]}
    return [call for call in calls if call.action in named]


def _is_allowed(statements: list[dict[str, Any]], call: Call, caller: Context) -> bool:
    context: Mapping[str, str | list[str]] = {**call.context, **caller}
    return allows(statements, call.action, call.resource, context)


def _has_sessions(template: Template, role: str) -> bool:
    """Return whether roles may assume this role, and not only services."""
    return any("AWS" in each["Principal"] for each in template.trust(template.role_named(role)))


def _named(call: Call) -> str:
    return f"{call.about} of {call.whose} ({call.resource})"


def synthesised() -> Template:
    """Return the region's template, synthesised now."""
    with tempfile.TemporaryDirectory() as folder:
        output = synthesise(code_on_empty_layers(Path(folder) / "layers"), CLUSTERS, Path(folder) / "cdk.out")
        return Template.read(output / f"nodesmith-{REGION}.template.json")


if __name__ == "__main__":
    TABLE.write_text(table(synthesised()))
