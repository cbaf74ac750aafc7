"""Rules for names and labels, with a real server's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodesmith_formats.kubernetes.errors import FieldProblem, invalid_value

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED})?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}')"
)


def subdomain_problems(name: str, path: str) -> Iterator[FieldProblem]:
    """Check a DNS subdomain, the form of most object names."""
    if not re.fullmatch(_SUBDOMAIN, name):
        yield invalid_value(path, name, _SUBDOMAIN_RULE)
    elif len(name) > 253:
        yield invalid_value(path, name, "must be no more than 253 characters")


def label_problems(name: str, path: str) -> Iterator[FieldProblem]:
    """Check a DNS label, the form of the names of namespaces, services and containers."""
    if not re.fullmatch(LABEL, name):
        yield invalid_value(path, name, _LABEL_RULE)
    elif len(name) > 63:
        yield invalid_value(path, name, "must be no more than 63 characters")


def label_map_problems(labels: Mapping[str, str], path: str) -> Iterator[FieldProblem]:
    """Check the keys and values of a label map."""
    for key, value in labels.items():
        yield from key_problems(key, path)
        if len(value) > 63:
            yield invalid_value(path, value, "must be no more than 63 bytes")
        elif not re.fullmatch(f"({_QUALIFIED})?", value):
            yield invalid_value(path, value, _VALUE_RULE)


def key_problems(key: str, path: str) -> Iterator[FieldProblem]:
    """Check a label or annotation key, including its prefix."""
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield invalid_value(path, key, f"prefix part {_SUBDOMAIN_RULE}")
    if not re.fullmatch(_QUALIFIED, name):
        yield invalid_value(path, key, _KEY_RULE)
    elif len(name) > 63:
        yield invalid_value(path, key, "name part must be no more than 63 bytes")
