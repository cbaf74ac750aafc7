"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import duration_seconds
from nodesmith_cli.commands.completion import contexts

_DURATION = re.compile(r"([0-9]+[smh])+", re.ASCII)
JSONPATH = "jsonpath="
_HELP = {
    "html": "html is one file that needs no network",
    "name": "name prints one name a line",
    JSONPATH: "jsonpath='{.a[*].b}' selects from the JSON data",
}


def with_jsonpath(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the formats, and `jsonpath=` if JSON is among them."""
    return (*formats, JSONPATH) if "json" in formats else tuple(formats)


def _help_of(formats: Sequence[str]) -> str:
    """Return the help text of the option -o of a command that has these formats."""
    return "; ".join(("Output format", *(_HELP[choice] for choice in formats if choice in _HELP))) + "."


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
        hint = did_you_mean(given, [choice.rstrip("=") for choice in formats])
        raise Rejected(f"-o {given}: must be one of {', '.join(formats)}{hint}")

    return parsed


def seconds_of(option: str, text: str) -> float:
    """Parse an option's duration, and return it in seconds. Raises Rejected if `text` is not a duration."""
    if not _DURATION.fullmatch(text):
        raise Rejected(f"{option} {text!r}: expected a duration such as 90s, 5m or 1h30m")
    return float(duration_seconds(text) or 0)


def output_formats(*formats: str) -> Any:
    """Return the option -o for these formats, and for JSONPath templates if JSON is among them."""
    all_formats = with_jsonpath(formats)
    shown = f"[{'|'.join(all_formats).replace('=', '=TEMPLATE')}]"
    return typer.Option(
        "--output", "-o", parser=parser_of(all_formats), metavar=shown, help=_help_of(all_formats)
    )


DataOutputOption = Annotated[str, output_formats("table", "json", "yaml")]
StepsOutputOption = Annotated[str, output_formats("table", "wide", "json", "yaml", "name")]
"""Of commands that change a list of objects, or find problems with them."""
ReportOutputOption = Annotated[str, output_formats("table", "json", "yaml", "html")]
ListOutputOption = Annotated[str, output_formats("table", "wide", "json", "yaml", "name", "html")]
PageOutputOption = Annotated[str, output_formats("table", "html")]
SpeedOption = Annotated[float, typer.Option(help="How many times faster than real time the clock runs.")]
RegionOption = Annotated[
    str, typer.Option(help="AWS region. Defaults to the region of the manifests' zones, or us-east-1.")
]
FilesOption = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", help="Manifests: a file, a folder, or - for standard input."),
]
FilesArgument = Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Manifests, like -f.")]
NoCapacityOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Offerings that EC2 has run out of, with the wildcards * and ?: m5.large:us-east-1a, spot:c7*.",
    ),
]
KeepOption = Annotated[Path | None, typer.Option(help="Folder that holds decision records.")]
ClusterOption = Annotated[
    str, typer.Option(help="Cluster name. Defaults to the cluster with the latest decision.")
]
BucketOption = Annotated[
    str, typer.Option(help="S3 bucket of a deployment. Defaults to the records of local runs.")
]
BucketRegionOption = Annotated[
    str, typer.Option(help="Region of the bucket. Defaults to the region in your AWS configuration.")
]
ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the EKS cluster.")]
ClusterRegionOption = Annotated[
    str, typer.Option(help="Region of the cluster. Defaults to the region in your AWS configuration.")
]
ProfileOption = Annotated[str, typer.Option(help="Profile in your AWS configuration.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
CompareOption = Annotated[
    bool,
    typer.Option(
        "--compare/--no-compare",
        help="Find the lower bound with `nodesmith savings`, every quarter of an hour.",
    ),
]
ContextOption = Annotated[
    str,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig, as for kubectl.",
        autocompletion=contexts,
    ),
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Only pods of this namespace.")
]
AllNamespacesOption = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Pods of all namespaces, which is the default.")
]
SelectorOption = Annotated[
    str,
    typer.Option(
        "--selector",
        "-l",
        metavar="LABELS",
        help="Only those that the label selector matches: a=b,c!=d,e in (f,g),h,!i.",
    ),
]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Print the output again after each change, until Ctrl-C.")
]
KubeconfigOption = Annotated[
    str,
    typer.Option(
        metavar="[CONTEXT]",
        help="Kubeconfig context or file. Defaults to the current context.",
        autocompletion=contexts,
    ),
]


def read_plainly(command: Any) -> Any:
    """Let a command and its subcommands read texts and flags without typer, and return it. typer reads everything else.

    To read a value, typer imports pydantic, which takes a tenth of a second.
    """
    by_typer = command.get_params

    def get_params(context: Any) -> list[Any]:
        found: list[Any] = by_typer(context)
        for parameter in found:
            _read_plainly(parameter)
        return found

    command.get_params = get_params
    for subcommand in getattr(command, "commands", {}).values():
        read_plainly(subcommand)
    return command


def _read_plainly(parameter: Any) -> None:
    described = getattr(parameter, "type_descriptor", None)
    if described is None or "process_value" in vars(parameter):
        return
    by_typer, parser = parameter.process_value, described.parameter_info.parser
    is_repeated = parameter.multiple or parameter.nargs == -1
    choices = get_args(described.annotation) if get_origin(described.annotation) is Literal else ()
    if parameter.required and parameter.param_type_name == "argument":
        parameter.get_usage_pieces = lambda _context: [parameter.metavar or parameter.name]

    def process_value(context: Any, value: Any) -> Any:
        found: Any
        if value is None:
            if parameter.required:
                return by_typer(context, value)
            found = () if is_repeated else None
        elif isinstance(value, str) and described.annotation is str:
            found = parser(value) if parser else value
        elif isinstance(value, list | tuple) and described.annotation == list[str] and not parser:
            found = list(value)
        elif value in choices:
            found = value
        elif choices:
            raise Rejected(_none_of(choices, parameter.get_error_hint(), value))
        else:
            return by_typer(context, value)
        return parameter.callback(context, parameter, found) if parameter.callback else found

    parameter.process_value = process_value


def _none_of(choices: Sequence[str], option: str, value: str) -> str:
    """Return what is wrong with a value that is no choice of an option or argument, such as `'--output' / '-o'`."""
    named = option.replace("'", "").rpartition(" / ")[2]
    return f"{named} {value}: must be one of {', '.join(choices)}{did_you_mean(value, choices)}"
