"""The pages in docs/reference/, written from the code: `python -m tests.pages.reference` writes them; a test compares.

Commands come from the command line's own parser, settings from their metadata, metrics from a forwarder that is scraped
over HTTP, notifications from their schemas, and annotations from the constants that name them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer.main
from prometheus_client.parser import text_string_to_metric_families

from nodesmith.decisions.reporting.notifications import DETAILS, schema
from nodesmith.registration import SETTINGS
from nodesmith_cli.main import app
from nodesmith_cli.output.documents.schemas import DOCUMENTS, schema_of
from nodesmith_cli.output.printing import SCHEMAS, schema_address
from tests.promql.exported import exported, scraped

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/reference"
SCHEMAS_FOLDER = ROOT / "docs/schemas"
CORE = ROOT / "layers/core/python/nodesmith"
COMMANDS = ROOT / "cli/nodesmith_cli"
DOMAIN = re.compile(r"nodesmith\.dev/[a-z0-9-]+")
_WRITTEN = "Written by `python -m tests.pages.reference` from the code."


def pages() -> Mapping[str, str]:
    """Return the pages by file name."""
    return {
        "annotations.md": _annotations(),
        "cli.md": "".join(_commands()).rstrip("\n") + "\n",
        "metrics.md": _metrics(),
        "notifications.md": "\n".join(_notifications()) + "\n",
        "schemas.md": _schemas(),
        "settings.md": _settings(),
    }


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(_cell(text) for text in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# commands


def _commands() -> Iterator[str]:
    yield f"# Commands\n\n{_WRITTEN} `nodesmith COMMAND --help` says the same.\n"
    root = typer.main.get_command(app)
    yield f"\n{_options(root)}"
    yield from _of_group("nodesmith", root)


def _of_group(path: str, group: Any) -> Iterator[str]:
    for name, command in sorted(getattr(group, "commands", {}).items()):
        if command.hidden:
            continue
        here = f"{path} {name}"
        if getattr(command, "commands", None):
            yield f"\n## {here}\n\n{_text(command.help)}\n"
            yield from _of_group(here, command)
            continue
        usage = " ".join(
            (here, "[OPTIONS]", *(_usage(each) for each in command.params if _is_argument(each)))
        )
        yield f"\n## {here}\n\n`{usage}`\n\n{_text(command.help)}\n\n{_options(command)}"


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _usage(param: Any) -> str:
    name = (param.metavar or param.name or "").upper() + ("…" if param.nargs == -1 or param.multiple else "")
    return name if param.required else f"[{name}]"


def _options(command: Any) -> str:
    rows = []
    for param in command.params:
        if getattr(param, "hidden", False) or param.name in {"install_completion", "show_completion"}:
            continue
        names = _usage(param) if _is_argument(param) else ", ".join([*param.opts, *param.secondary_opts])
        rows.append((f"`{names}`", _text(getattr(param, "help", "")), _default(param)))
    return table(("argument or option", "meaning", "default"), rows) if rows else ""


def _default(param: Any) -> str:
    value = param.default
    if value is None or callable(value) or value in (False, (), [], "") or "UNSET" in repr(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _text(text: str | None) -> str:
    return re.sub(r"<([A-Za-z])", r"&lt;\1", " ".join((text or "").replace("\b", "").split()))


# settings


def _settings() -> str:
    rows = [(f"`{name}`", str(about["meaning"])) for name, about in sorted(SETTINGS.items())]
    return (
        f"# Settings of a cluster\n\n{_WRITTEN} They are in a cluster's registration: `nodesmith connect --setting\n"
        "NAME=VALUE` or `settings` in [cdk.json](../operations.md#deploy). Values are texts.\n\n"
        + table(("setting", "meaning"), rows)
    )


# metrics


def _metrics() -> str:
    labels = exported()
    rows = []
    for family in sorted(text_string_to_metric_families(scraped()), key=lambda each: each.name):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        of_family = {label for series, found in labels.items() if series.startswith(name) for label in found}
        shown = ", ".join(f"`{label}`" for label in sorted(of_family - {"le", "quantile"}))
        rows.append((f"`{name}`", family.type, shown, family.documentation))
    return (
        f"# Series for Prometheus\n\n{_WRITTEN} The forwarder serves them; [Metrics](../metrics.md) explains what\n"
        "they mean and how they differ from Karpenter's. The labels are those of a cluster with something of\n"
        "everything.\n\n" + table(("series", "kind", "labels", "meaning"), rows)
    )


# notifications


def _notifications() -> Iterator[str]:
    yield f"# Fields of notifications\n\n{_WRITTEN} [Notifications](../notifications.md) explains when they are sent."
    for kind in sorted(DETAILS, key=lambda each: each.__name__):
        reported = schema(kind)
        yield f"\n## {reported['title']}\n\n{reported['description']}\n"
        rows = []
        for name, about in reported["properties"].items():
            of = about.get("format") or about["type"]
            need = "always" if name in reported["required"] else "if known"
            rows.append((f"`{name}`", of, need, about["description"]))
        yield table(("field of `detail`", "type", "present", "meaning"), rows).rstrip("\n")


# schemas


def schema_files() -> Mapping[str, Mapping[str, Any]]:
    """Return the JSON schemas of documents and notifications by file name."""
    documents = {f"{name}.schema.json": schema_of(name) for name in DOCUMENTS}
    reported = {f"{kind.__name__}.schema.json": _addressed(kind.__name__, schema(kind)) for kind in DETAILS}
    return {**documents, **reported}


def _addressed(name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"$schema": found["$schema"], "$id": schema_address(name), **found}


def _schemas() -> str:
    rows = [
        (f"[`{name.removesuffix('.schema.json')}`](../schemas/{name})", each["description"])
        for name, each in sorted(schema_files().items(), key=lambda item: item[0].lower())
    ]
    others = [
        ("[`registration`](../schemas/registration.schema.json)", "The value of a cluster's SSM parameter."),
        ("[`cdk`](../../infra/cdk.schema.json)", "`cdk.json`."),
    ]
    return (
        f"# JSON schemas\n\n{_WRITTEN} [Reports](../reports.md#schemas) explains how editors use them. The address of\n"
        f"a schema is `{SCHEMAS}NAME.schema.json`, and `nodesmith schema NAME` prints those of commands' documents.\n\n"
        + table(("schema", "describes"), [*rows, *others])
    )


# annotations


def annotated() -> Mapping[str, str]:
    """Return the keys of nodesmith's domain that constants name, each with the constant's docstring.

    The command line's own keys are those that the core does not name.
    """
    found: dict[str, str] = {}
    for path in (*sorted(CORE.rglob("*.py")), *sorted(COMMANDS.rglob("*.py"))):
        text = path.read_text()
        if "nodesmith.dev/" in text:
            found = {**dict(_constants(ast.parse(text).body)), **found}
    return found


def named_keys() -> frozenset[str]:
    """Return all keys of nodesmith's domain that the text of the core names, in constants or elsewhere."""
    trees = (ast.parse(path.read_text()) for path in sorted(CORE.rglob("*.py")))
    texts = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(
        text
        for text in texts
        if isinstance(text, str)
        and DOMAIN.fullmatch(text)
        and not text.endswith("-")  # the latter are prefixes
    )


def _constants(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for at, node in enumerate(body):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str) and DOMAIN.fullmatch(node.value.value):
            yield node.value.value, _docstring(body[at + 1 : at + 2])


def _docstring(following: Sequence[ast.stmt]) -> str:
    match following:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return text
    return ""


def _annotations() -> str:
    rows = [(f"`{key}`", meaning) for key, meaning in sorted(annotated().items())]
    return (
        f"# Labels, annotations and tags of nodesmith.dev\n\n{_WRITTEN} Those of Karpenter and of Cluster Autoscaler\n"
        "are in [Manifests](../manifests.md) and [Cluster Autoscaler](../cluster-autoscaler.md).\n\n"
        + table(("key", "meaning"), rows)
    )


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    SCHEMAS_FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    for name, found in schema_files().items():
        (SCHEMAS_FOLDER / name).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
