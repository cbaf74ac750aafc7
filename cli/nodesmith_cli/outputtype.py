"""The values of the option -o: the formats that a command has, and JSONPath templates as kubectl has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean

JSONPATH = "jsonpath="
_HELP = {
    "html": "html is one file that needs no network",
    "name": "name prints one name a line",
    JSONPATH: "jsonpath='{.a[*].b}' selects from the JSON data",
}


def with_jsonpath(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the formats, and `jsonpath=` if JSON is among them."""
    return (*formats, JSONPATH) if "json" in formats else tuple(formats)


def help_of(formats: Sequence[str]) -> str:
    """Return the help text of the option -o of a command that has these formats."""
    return "; ".join(("Output format", *(_HELP[each] for each in formats if each in _HELP))) + "."


def parser_of(formats: Sequence[str]) -> Callable[[str], str]:
    """Return the function that checks a value of -o. It raises Rejected for a format that the command does not have."""

    def parsed(given: str) -> str:
        if given in formats and given != JSONPATH:
            return given
        if given.startswith(JSONPATH) and JSONPATH in formats:
            if given == JSONPATH:
                raise Rejected(
                    "-o jsonpath=: the template is empty; an example: -o jsonpath='{.nodes[*].name}'"
                )
            return given
        hint = did_you_mean(given, [each.rstrip("=") for each in formats])
        raise Rejected(f"-o {given}: must be one of {', '.join(formats)}{hint}")

    return parsed
