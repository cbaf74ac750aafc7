"""Options that commands share with kubectl: -o, --context, -n, -A, -l and --watch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.access.selecting import Selection, chosen_kubeconfig, selection
from nodesmith_cli.commands.options import parser_of, with_jsonpath
from nodesmith_cli.output.printing import print_report
from nodesmith_cli.output.watching import repeated

FORMATS = with_jsonpath(("table", "json", "yaml", "name"))
TOLD = {"nodes": [{"name": "a"}, {"name": "b\x1b[31m"}]}


def printed(output: str, capsys: pytest.CaptureFixture[str]) -> str:
    print_report(TOLD, ["two nodes", "b\x1b[31m"], output, names=["node/a", "node/b\x1b[31m"])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("table", "two nodes\nb\\x1b[31m\n"),
        ("name", "node/a\nnode/b\\x1b[31m\n"),
        ("jsonpath={.nodes[0].name}", "a\n"),
        ("yaml", 'nodes:\n- name: a\n- name: "b\\e[31m"\n'),
    ],
)
def test_each_format_prints_the_same_data(
    output: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(output, capsys) == shown


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed("json", capsys)) == TOLD


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("tabel", "-o tabel: must be one of table, json, yaml, name, jsonpath=, did you mean 'table'?"),
        ("html", "-o html: must be one of"),
        ("jsonpath=", "-o jsonpath=: the template is empty"),
        ("jsonpath", "did you mean 'jsonpath'?"),
    ],
)
def test_a_format_that_a_command_does_not_have_is_rejected_by_name(given: str, why: str) -> None:
    with pytest.raises(Rejected) as error:
        parser_of(FORMATS)(given)

    assert why in str(error.value)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=db", True),
        ("app=web,tier=db", False),
        ("app in (api, web)", True),
        ("app notin (web)", False),
        ("zone notin (a)", True),
        ("zone!=a", True),
        ("app", True),
        ("!app", False),
        ("!zone,app", True),
        ("example.com/team", True),
    ],
)
def test_a_selector_matches_as_in_kubectl(selector: str, matches: bool) -> None:
    labels = {"app": "web", "tier": "front", "example.com/team": ""}

    assert selection(selector=selector).has(labels) is matches


@pytest.mark.parametrize(
    "selector", ["app=", "=web", "app in web", "app=web tier=db", "a;b", "x" * 5_000, ",,"]
)
def test_a_selector_that_cannot_be_read_is_rejected_with_examples(selector: str) -> None:
    if selector == "app=":  # a label with an empty value
        assert selection(selector=selector).has({"app": ""})
        return
    with pytest.raises(Rejected, match="-l"):
        selection(selector=selector)


def test_a_namespace_selects_its_pods_alone_and_excludes_all_namespaces() -> None:
    assert selection("shop").has({}, "shop")
    assert not selection("shop").has({}, "default")
    assert selection("", all_namespaces=True) == Selection()
    with pytest.raises(Rejected, match="mutually exclusive"):
        selection("shop", all_namespaces=True)


def test_a_context_of_a_file_is_looked_up_in_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "before")
    file = tmp_path / "config"
    file.write_text("")

    assert chosen_kubeconfig("", "blue") == "blue"
    assert chosen_kubeconfig("blue", "") == "blue"
    assert os.environ["KUBECONFIG"] == "before"
    assert chosen_kubeconfig(str(file), "blue") == "blue"
    assert os.environ["KUBECONFIG"] == str(file)
    with pytest.raises(Rejected, match="is no file"):
        chosen_kubeconfig("green", "blue")


def test_a_watched_command_prints_its_output_after_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    shown = iter(["one", "one", "", "two"])

    def look() -> int:
        text = next(shown)
        if not text:
            raise Transient("the API server is away")
        print(text)
        return 1

    status = repeated(look, watch=True, looks=4, pause=lambda _: None)

    reported = capsys.readouterr()
    assert status == 1
    assert reported.out == "one\n\ntwo\n"
    assert "the API server is away; trying again" in reported.err


def test_ctrl_c_ends_a_watched_command_with_its_last_status() -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    assert repeated(lambda: 0, watch=True, pause=interrupt) == 0
