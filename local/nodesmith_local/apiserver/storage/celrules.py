"""CEL rules of CRDs (`x-kubernetes-validations`), evaluated on objects with a real server's messages.

Not implemented: formats that CEL treats as times and durations, escaped property names, and the cost budget.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from nodesmith_formats.kubernetes.builtin import Schema
from nodesmith_formats.kubernetes.errors import FieldProblem

_RULES = "x-kubernetes-validations"
_OLD_SELF = re.compile(r"\boldSelf\b")
_BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)
_REASONS = {
    "FieldValueForbidden": "Forbidden: ",
    "FieldValueRequired": "Required value: ",
    "FieldValueDuplicate": "Duplicate value: ",
}
Path = str


def rule_problems(
    schema: Schema, value: Any, old: Any, problems: Iterable[FieldProblem]
) -> Iterator[FieldProblem]:
    """Yield the rules that an object breaks.

    `old` is the object that it replaces, `problems` the problems that the schema check found. Rules do not run on an
    object that does not fit its schema; one problem reports that instead.
    """
    if not any(problem.cause in _BLOCKING for problem in problems):
        yield from _broken(schema, value, old, "", unchanged=False)
    elif _has_rules(schema):
        yield FieldProblem("<nil>", "FieldValueInvalid", _UNCHECKED)


def _has_rules(schema: Schema) -> bool:
    inner = [*(schema.get("properties") or {}).values(), *(schema.get("allOf") or ())]
    inner += [
        nested
        for keyword in ("items", "additionalProperties")
        if isinstance(nested := schema.get(keyword), Mapping)
    ]
    return bool(schema.get(_RULES)) or any(map(_has_rules, inner))


def _broken(schema: Schema, value: Any, old: Any, path: Path, *, unchanged: bool) -> Iterator[FieldProblem]:
    """Yield the broken rules of a value and of everything inside it.

    A value that an update leaves unchanged is checked only against rules about changes.
    """
    if value is None:
        return
    unchanged = unchanged or (old is not None and old == value)
    for rule in schema.get(_RULES) or ():
        about_change = bool(_OLD_SELF.search(rule["rule"]))
        if (about_change and old is None and not rule.get("optionalOldSelf")) or (
            unchanged and not about_change
        ):
            continue
        yield from _verdict(schema, rule, value, old, path)
    for part in schema.get("allOf") or ():
        yield from _broken(part, value, old, path, unchanged=unchanged)
    for inner, item, before, inner_path in _inside(schema, value, old, path):
        yield from _broken(inner, item, before, inner_path, unchanged=unchanged)


def _inside(schema: Schema, value: Any, old: Any, path: Path) -> Iterator[tuple[Schema, Any, Any, Path]]:
    """Yield the items inside a value as (schema, item, earlier item, path).

    The earlier item is None where it cannot be determined.
    """
    if isinstance(value, Mapping):
        before = old if isinstance(old, Mapping) and schema.get("x-kubernetes-map-type") != "atomic" else {}
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                yield properties[key], item, before.get(key), f"{path}.{key}" if path else key
            elif isinstance(extra, Mapping):
                yield extra, item, before.get(key), f"{path}[{key}]"
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        old_items = {_mark(item, keys): item for item in old or ()} if keys else {}
        for index, item in enumerate(value):
            yield schema["items"], item, old_items.get(_mark(item, keys)), f"{path}[{index}]"


def _mark(item: Any, keys: Iterable[str]) -> str:
    return json.dumps([item.get(key) for key in keys] if isinstance(item, Mapping) else item, sort_keys=True)


def _verdict(
    schema: Schema, rule: Mapping[str, Any], value: Any, old: Any, path: Path
) -> Iterator[FieldProblem]:
    variables = {"self": value} if old is None else {"self": value, "oldSelf": old}
    quoted = "" if isinstance(value, (Mapping, list)) else f"{json.dumps(value)}: "
    cause = rule.get("reason") or "FieldValueInvalid"
    try:
        if _program(rule["rule"]).execute(variables) is True:
            return
        message = rule.get("message") or f"failed rule: {rule['rule'].strip()}"
        if rule.get("messageExpression"):
            message = str(_program(rule["messageExpression"]).execute(variables))
    except (RuntimeError, ValueError, TypeError, KeyError) as error:  # the errors of a rule that cannot run
        detail = f"no such key: {error.args[0]}" if isinstance(error, KeyError) else error
        message_text = (rule.get("message") or rule["rule"]).strip()
        kind = json.dumps(schema.get("type") or "")
        text = f"Invalid value: {kind}: {detail} evaluating rule: {message_text}"
        yield FieldProblem(path.lstrip("."), "FieldValueInvalid", text)
        return
    reason = _REASONS.get(cause, f"Invalid value: {quoted}")
    yield FieldProblem(f"{path}{rule.get('fieldPath') or ''}".lstrip("."), cause, reason + message)


@lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    import cel  # slow to import (a third of a second), and many servers have no rules

    return cel.compile(expression)
