"""Shell completion of `nodesmith` and of `kubectl nodesmith`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from enum import IntFlag
from pathlib import Path
from typing import Literal

from typer.completion import get_completion_inspect_parameters

PROGRAM = "nodesmith"
VARIABLE = "_NODESMITH_COMPLETE"
"""The variable with which the scripts of shells ask for completions."""
Shell = Literal["bash", "zsh", "fish", "powershell"]
_WORDS, _ACTION = "_TYPER_COMPLETE_ARGS", "_TYPER_COMPLETE_FISH_ACTION"


class Directive(IntFlag):
    """What a shell may add to completions: the values of Cobra's ShellCompDirective, which kubectl reads."""

    DEFAULT = 0
    NO_FILES = 4


def enable_completion() -> None:
    """Let this process answer a shell that asks for completions."""
    get_completion_inspect_parameters()  # registers Typer's classes for shells, which an app with options for it does


def contexts(incomplete: str) -> list[str]:
    """Return the kubeconfig contexts whose names start with a text; none if no kubeconfig can be read."""
    import yaml

    names: set[str] = set()
    for path in os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep):
        try:
            kubeconfig = yaml.safe_load(Path(path).expanduser().read_text())
        except (OSError, ValueError, yaml.YAMLError):
            continue
        listed = kubeconfig.get("contexts") if isinstance(kubeconfig, dict) else None
        names |= {str(entry["name"]) for entry in listed or () if isinstance(entry, dict) and "name" in entry}
    return sorted(name for name in names if name.startswith(incomplete))


def print_script(run: Callable[[], None], shell: Shell) -> None:
    """Print the script that a shell has to read. `run` is the command, which prints it when the environment asks."""
    os.environ[VARIABLE] = f"source_{shell}"
    run()


def complete_for_kubectl(run: Callable[[], None], words: Sequence[str]) -> None:
    """Print completions as kubectl expects them of `kubectl_complete-nodesmith`.

    `words` are what follows `kubectl nodesmith`; the last one is being typed and may be empty. Each line is a value
    and, after a tab, its description; the last line is a directive. `run` is the command, which completes instead of
    running when the environment says so. Fish's format is the same but for the directive.
    """
    os.environ.update(
        {
            VARIABLE: "complete_fish",
            _ACTION: "get-args",
            _WORDS: shlex.join([PROGRAM, *filter(None, words)]),
            "COLUMNS": "10000",  # each completion is one line
        }
    )
    if not words[-1:] or not words[-1]:
        os.environ[_WORDS] += " "
    try:
        run()
    except SystemExit as end:
        if end.code:
            raise
    follows_option = len(words) > 1 and words[-2].startswith("-")
    print(f":{Directive.DEFAULT if follows_option else Directive.NO_FILES:d}")


def kubectl_entry() -> None:
    """Run as `kubectl_complete-nodesmith`."""
    from nodesmith_cli.main import main

    complete_for_kubectl(main, sys.argv[1:])
