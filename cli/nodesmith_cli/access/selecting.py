"""Which objects a command is about: the options --context, -n, -A and -l, with kubectl's meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodesmith.errors import Rejected
from nodesmith_formats.localsystem.contexts import ContextName, kubeconfig_file

_CLAUSE = re.compile(
    r"\s*(?:(?P<absent>!\s*(?P<not>[\w./-]+))|(?P<key>[\w./-]+)\s*"
    r"(?:(?P<is>==?|!=)\s*(?P<value>[\w.-]*)|\s(?P<of>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_LONGEST = 4_096


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement of a label selector. With `negated`, objects without the label match; None is any value."""

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        clause_match = labels.get(self.key)
        holds = clause_match is not None and (self.values is None or clause_match in self.values)
        return holds != self.negated


@dataclass(frozen=True, slots=True)
class Selection:
    """The pods, or the nodes, that a command is about. An empty namespace means all."""

    namespace: str = ""
    clauses: tuple[Clause, ...] = ()

    @property
    def is_all(self) -> bool:
        return not self.namespace and not self.clauses

    def has(self, labels: Mapping[str, str], namespace: str = "") -> bool:
        """Return whether an object is selected; nodes have no namespace."""
        return self.namespace in {"", namespace} and all(clause.matches(labels) for clause in self.clauses)


EVERYTHING = Selection()


def selection(namespace: str = "", all_namespaces: bool = False, selector: str = "") -> Selection:
    """Return what the options select. Raises Rejected for contradicting ones or a selector that cannot be read."""
    if namespace and all_namespaces:
        raise Rejected(f"-n {namespace} and -A are mutually exclusive")
    return Selection(namespace, tuple(_clauses(selector)))


def _clauses(selector: str) -> Iterator[Clause]:
    if len(selector) > _LONGEST:
        raise Rejected(f"-l: the selector has {len(selector):,} characters, of {_LONGEST:,} allowed")
    at = 0
    while at < len(selector):
        clause_match = _CLAUSE.match(selector, at)
        if clause_match is None:
            raise Rejected(
                f"-l {selector[:80]}: cannot be read from {selector[at : at + 40]!r} on; "
                "use a=b, a!=b, a in (b,c), a notin (b,c), a or !a, separated by commas"
            )
        yield _clause(clause_match)
        at = clause_match.end()


def _clause(clause_match: re.Match[str]) -> Clause:
    if clause_match["absent"]:
        return Clause(clause_match["not"], None, negated=True)
    if clause_match["of"]:
        values = frozenset(value.strip() for value in clause_match["values"].split(","))
        return Clause(clause_match["key"], values, negated=clause_match["of"] == "notin")
    if clause_match["is"]:
        return Clause(
            clause_match["key"], frozenset((clause_match["value"],)), negated=clause_match["is"] == "!="
        )
    return Clause(clause_match["key"], None)


def chosen_kubeconfig(kubeconfig: str, context: str) -> str:
    """Return the value of --kubeconfig that both options mean together: a context, a file, or empty.

    A value of --context is returned as a ContextName. With a file and a context, the file becomes this process's
    KUBECONFIG, as if that had been set. Raises Rejected.
    """
    if not context:
        return kubeconfig
    file = kubeconfig_file(kubeconfig)
    if not file and kubeconfig not in {"", context}:
        raise Rejected(f"--kubeconfig {kubeconfig}: is no file, so it cannot have --context {context}")
    if file:
        os.environ["KUBECONFIG"] = file
    return ContextName(context)
