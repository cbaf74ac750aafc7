"""Completion in shells and in kubectl, run as the programs that they call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
contexts: [{name: prod-eu, context: {}}, {name: prod-us, context: {}}, {name: dev, context: {}}]
"""


def run(program: str, *words: str, **environment: str) -> str:
    code = f"import sys; sys.argv = {[program, *words]!r}\n"
    code += "from nodesmith_cli.commands import completion; from nodesmith_cli import main\n"
    code += "completion.kubectl_entry() if 'complete' in sys.argv[0] else main.main()"
    reported = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/nonexistent", **environment},
    )
    assert not reported.stderr
    return reported.stdout


def test_kubectl_gets_commands_with_their_descriptions() -> None:
    lines = run("kubectl_complete-nodesmith", "expl").splitlines()
    assert lines == ["explain\tExplain what was decided, and why.", ":4"]


def test_kubectl_gets_the_options_of_a_command_each_on_one_line() -> None:
    lines = run("kubectl_complete-nodesmith", "plan", "--").splitlines()
    assert all(line.startswith("--") and "\t" in line for line in lines[:-1])
    assert {"--filename", "--kubeconfig", "--output"} <= {line.partition("\t")[0] for line in lines}


def test_kubectl_gets_the_contexts_of_all_kubeconfigs(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    (tmp_path / "broken").write_text("contexts: [")
    listed = os.pathsep.join(str(tmp_path / name) for name in ("broken", "absent", "config"))
    lines = run(
        "kubectl_complete-nodesmith", "status", "--kubeconfig", "prod", KUBECONFIG=listed
    ).splitlines()
    assert lines == ["prod-eu", "prod-us", ":0"]


def test_kubectl_offers_files_where_an_option_takes_one() -> None:
    assert run("kubectl_complete-nodesmith", "plan", "-f", "").splitlines()[-1] == ":0"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("",), {"slow", "throttled", "concurrency"}),
        (("thr",), {"throttled"}),
        (
            ("slow", "--service", "dynamodb,s"),
            {"dynamodb,s3", "dynamodb,sqs", "dynamodb,ssm", "dynamodb,scheduler"},
        ),
        (("slow", "--function", "provisioning,forw"), {"provisioning,forwarder"}),
    ],
)
def test_kubectl_gets_the_faults_and_what_they_can_hit(words: Sequence[str], found: set[str]) -> None:
    lines = run("kubectl_complete-nodesmith", "chaos", "start", *words).splitlines()
    assert found <= set(lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_every_shell_gets_a_script_that_asks_the_command(shell: str) -> None:
    assert "_NODESMITH_COMPLETE" in run("nodesmith", "completion", shell)


def test_bash_gets_commands() -> None:
    asked = {"_NODESMITH_COMPLETE": "complete_bash", "COMP_WORDS": "nodesmith sav", "COMP_CWORD": "1"}
    assert run("nodesmith", **asked).split() == ["savings"]


def test_the_plugin_shows_how_kubectl_calls_it() -> None:
    assert "Usage: kubectl nodesmith plan" in run("kubectl-nodesmith", "plan", "--help")
