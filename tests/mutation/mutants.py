"""Mutants: all small changes of a module, by operators over its syntax tree.

Not changed, because no test should assert it: sentences and f-strings, what is raised, logged or measured, docstrings,
annotations, decorators, defaults of parameters, assertions, `__repr__` and `__str__`, `TYPE_CHECKING` blocks,
`assert_never`, and `strict=` of `zip`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tests.mutation.reach import CORE, blocks

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NOT_CHANGED = set(
    "count gauge observe labelled warning info debug exception assert_never isinstance".split()
)
"""Calls of metrics and logs, and checks of types."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Place: TypeAlias = tuple[int, str, int | None]
"""A child of a syntax node: the node's number in `ast.walk` of the function, the field, the position in a list."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: at `place` of a function, the `variant`-th replacement of what is there.

    `function` is the qualified name of the function outside of all others, and `block` the number of the innermost
    block that contains the change, by which tests are chosen.
    """

    path: Path
    function: str
    block: int
    line: int
    operator: str
    place: Place
    variant: int

    @property
    def name(self) -> str:
        """The mutant's identity, which stays while its function stays as it is."""
        number, field, position = self.place
        at = f"{number}.{field}" if position is None else f"{number}.{field}.{position}"
        return f"{self.path.relative_to(CORE)}:{self.function}:{at}:{self.operator}:{self.variant}"

    def difference(self) -> str:
        """Return the change as a unified diff of the function."""
        trees = (_tree(self.path), self.tree())
        before, after = (ast.unparse(dict(_functions(tree))[self.function]).splitlines() for tree in trees)
        return "\n".join(list(unified_diff(before, after, lineterm="", n=2))[2:])

    def tree(self) -> ast.Module:
        """Return the changed module."""
        tree = copy.deepcopy(_tree(self.path))
        number, field, position = self.place
        parent = list(ast.walk(dict(_functions(tree))[self.function]))[number]
        found = getattr(parent, field) if position is None else getattr(parent, field)[position]
        _, changed = list(_replacements(field, found))[self.variant]
        if position is None:
            setattr(parent, field, changed)
        elif changed is None:
            del getattr(parent, field)[position]
        else:
            getattr(parent, field)[position] = changed
        return ast.fix_missing_locations(tree)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module, always in the same order."""
    tree = _tree(path)
    block = {id(n): at for at, body in enumerate(blocks(tree)) for each in body for n in ast.walk(each)}
    for name, function in _functions(tree):
        numbers = {id(node): number for number, node in enumerate(ast.walk(function))}
        for parent, field, position, found in _changed(function):
            place = (numbers[id(parent)], field, position)
            holder: Any = found if hasattr(found, "lineno") else parent  # operators are shared objects
            for variant, (operator, _) in enumerate(_replacements(field, found)):
                yield Mutant(path, name, block[id(holder)], holder.lineno, operator, place, variant)


def _functions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, _FUNCTIONS) and node.name not in ("__repr__", "__str__"):
            yield prefix + node.name, node


def _changed(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield what may be changed below a node: parent, field, position in a list, child."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and isinstance(
            node, (*_FUNCTIONS, ast.AnnAssign)
        ):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for position, child in children:
            if isinstance(child, ast.AST) and not _is_left(child):
                yield node, field, position, child
                yield from _changed(child)


def _is_left(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert() | ast.arguments() | ast.pattern():
            return True
        case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case (
            ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))
            | ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)))
        ):
            return name in _NOT_CHANGED
    return False


def _replacements(  # noqa: C901 - one case for each operator
    field: str, node: Any
) -> Iterator[tuple[str, ast.AST | None]]:
    """Yield the operator's name and what replaces a node; None removes it from its list."""
    if field in ("test", "ifs", "guard") and not _has_opposite(node):
        yield "condition", ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.cmpop():
            yield from (("comparison", other()) for other in _COMPARISONS[type(node)])
        case ast.And():
            yield "boolean", ast.Or()
        case ast.Or():
            yield "boolean", ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "boolean" if isinstance(node.op, ast.Not) else "arithmetic", operand
        case ast.operator() if type(node) in _ARITHMETIC:
            yield "arithmetic", _ARITHMETIC[type(node)]()
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=str() as value) if not any(map(str.isspace, value)):
            yield "constant", ast.Constant(f"{value}x")
        case ast.Return(value=ast.expr() as value) if not _is_empty(value):
            yield "return", ast.Return(ast.Constant(None))
        case ast.keyword(arg=str()):
            yield "argument", None
        case ast.Name(id=name) if field == "func" and name in _OPPOSITES:
            yield "opposite", ast.Name(_OPPOSITES[name], ast.Load())
        case ast.Expr(value=ast.Call()):
            yield "call", ast.Pass()


def _has_opposite(test: ast.AST) -> bool:
    """Return whether another operator already turns a condition into its opposite."""
    return (isinstance(test, ast.Compare) and len(test.ops) == 1) or (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _is_empty(value: ast.expr) -> bool:
    """Return whether None often means the same as a value."""
    match value:
        case ast.Constant():
            return not value.value
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
    return False
