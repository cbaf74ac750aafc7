"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from nodesmith_cli.completion import contexts
from nodesmith_cli.outputtype import help_of, parser_of, with_jsonpath

Output = Literal["table", "json"]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
"""Of commands that do something: what they did, for people or for scripts."""


def output_formats(*formats: str) -> Any:
    """Return the option -o for these formats, and for JSONPath templates if JSON is among them."""
    known = with_jsonpath(formats)
    shown = f"[{'|'.join(known).replace('=', '=TEMPLATE')}]"
    return typer.Option("--output", "-o", parser=parser_of(known), metavar=shown, help=help_of(known))


DataOutputOption = Annotated[str, output_formats("table", "json", "yaml")]
ReportOutputOption = Annotated[str, output_formats("table", "json", "yaml", "html")]
ListOutputOption = Annotated[str, output_formats("table", "wide", "json", "yaml", "name", "html")]
PageOutputOption = Annotated[str, output_formats("table", "html")]
SpeedOption = Annotated[float, typer.Option(help="How many times faster than real time the clock runs.")]
RegionOption = Annotated[
    str, typer.Option(help="AWS region. Defaults to the region of the manifests' zones, or us-east-1.")
]
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
    bool, typer.Option("--watch", "-w", help="Print it again after each change, until Ctrl-C.")
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
    for each in getattr(command, "commands", {}).values():
        read_plainly(each)
    return command


def _read_plainly(parameter: Any) -> None:
    described = getattr(parameter, "type_descriptor", None)
    if described is None or parameter.required or "process_value" in vars(parameter):
        return
    by_typer, parser = parameter.process_value, described.parameter_info.parser
    is_repeated = parameter.multiple or parameter.nargs == -1

    def process_value(context: Any, value: Any) -> Any:
        found: Any
        if value is None:
            found = () if is_repeated else None
        elif isinstance(value, str) and described.annotation is str:
            found = parser(value) if parser else value
        elif isinstance(value, list | tuple) and described.annotation == list[str] and not parser:
            found = list(value)
        elif value in get_args(described.annotation) and get_origin(described.annotation) is Literal:
            found = value
        else:
            return by_typer(context, value)
        return parameter.callback(context, parameter, found) if parameter.callback else found

    parameter.process_value = process_value
