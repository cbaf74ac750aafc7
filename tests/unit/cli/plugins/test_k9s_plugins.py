"""The plugins for k9s name commands and options that nodesmith has."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from nodesmith_cli.main import app

FILE = Path(__file__).parents[4] / "examples" / "k9s" / "plugins.yaml"
PLUGINS: dict[str, Any] = yaml.safe_load(FILE.read_text())["plugins"]
VARIABLES = {"$NAME", "$NAMESPACE", "$CONTEXT", "$CLUSTER"}
"""Those that k9s replaces in the arguments."""


def command_of(plugin: dict[str, Any]) -> list[str]:
    """Return the words of the nodesmith command that a plugin runs."""
    if plugin["command"] == "nodesmith":
        return list(plugin["args"])
    option, script, _, *_ = plugin["args"]
    assert option == "-c"
    return shlex.split(script.partition("|")[0])[1:]


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_has_what_k9s_requires(name: str) -> None:
    plugin = PLUGINS[name]
    assert {"shortCut", "description", "scopes", "command", "args"} <= plugin.keys()
    assert {word for word in plugin["args"] if word.startswith("$")} <= VARIABLES


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_runs_a_command_with_options_that_exist(name: str) -> None:
    words = command_of(PLUGINS[name])
    path = [word for word in words[:2] if word.isalpha()]
    reported = CliRunner().invoke(app, [*path, "--help"]).stdout
    assert reported.startswith(f"Usage: nodesmith {' '.join(path)}")
    assert [word for word in words if word.startswith("--") and word not in reported] == []


def test_no_two_plugins_of_a_view_share_a_shortcut() -> None:
    used = [(scope, each["shortCut"]) for each in PLUGINS.values() for scope in each["scopes"]]
    assert len(used) == len(set(used))
